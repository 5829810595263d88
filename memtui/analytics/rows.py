"""Hot and sealed rows together, each operation once, for DuckDB to ask."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memtui.analytics.columns import SELECTS, load_raw
from memtui.analytics.conditions import visible_to
from memtui.analytics.engine import Engine, guarded, quoted
from memtui.analytics.layout import TABLES, Folder, Manifest, Segment
from memtui.analytics.operations import build, select_list
from memtui.analytics.recovery import LogEnds, log_ends, refuse_gap
from memtui.analytics.source import open_source
from memtui.store.database import Database
from memtui.store.operation import Operation
from memtui.store.sight import Sight

if TYPE_CHECKING:
    import duckdb

_LAST = 2**62


class Rows:
    """One company's rows: the sealed files, and a copy of the hot rows that grows as they do.

    What is out of the asker's sight is in neither.

    DuckDB starts at the first call that needs it. Safe for several threads, each with a cursor of
    its own.
    """

    def __init__(
        self,
        database: Database,
        root: Path,
        company_id: str,
        engine: Engine,
        *,
        sight: Sight | None = None,
    ) -> None:
        self.company_id = company_id
        self.visible = visible_to(sight)
        """The SQL condition of the operations that may be seen; empty for all."""
        self._database = database
        self._folder = Folder(root, company_id)
        self._engine = engine
        self._lock = threading.Lock()
        self._loaded = 0
        self._empty = True

    def place(self) -> tuple[Manifest, LogEnds]:
        """Return what is sealed and what is hot, at one moment.

        Raises:
            Unavailable: some operations are in neither.
        """
        while True:
            manifest = self._folder.read()
            ends = log_ends(self._database, self.company_id)
            if (ends.hot_first or ends.head + 1) <= manifest.sealed_through + 1:
                break
            # A seal may have come between the two reads; the manifest is written first.
            if self._folder.read() == manifest:
                break
        refuse_gap(manifest, ends)
        return manifest, ends

    def refresh(self) -> tuple[Manifest, int]:
        """Bring the copy of the hot rows up to date; returns what is sealed, and the last `seq`."""
        with self._lock, guarded():
            duck = self._engine.connection
            while True:
                manifest, ends = self.place()
                loaded = max(self._loaded, manifest.sealed_through)
                if ends.head == loaded and not self._empty:
                    return manifest, loaded
                with open_source(self._database) as source:
                    load_raw(duck, source, self.company_id, loaded + 1, _LAST)
                row = duck.execute("SELECT min(seq), max(seq) FROM raw_operations").fetchone()
                first, last = row or (None, None)
                if first is None or first == loaded + 1:
                    break
            self._keep(duck, manifest)
            self._loaded = last or loaded
        return manifest, self._loaded

    def _keep(self, duck: duckdb.DuckDBPyConnection, manifest: Manifest) -> None:
        duck.execute("BEGIN")
        for table in TABLES:
            if self._empty:
                duck.execute(f"CREATE TABLE hot_{table} AS {self._arrived(table)}")
            else:
                duck.execute(f"INSERT INTO hot_{table} {self._arrived(table)}")
                duck.execute(f"DELETE FROM hot_{table} WHERE seq <= {manifest.sealed_through}")
        duck.execute("COMMIT")
        self._empty = False
        for table in TABLES:
            duck.execute(f"DROP TABLE raw_{table}")

    def _arrived(self, table: str) -> str:
        return within_sight(f"({SELECTS[table]})", table, "raw_operations", self.visible)

    def everything(
        self,
        manifest: Manifest,
        table: str,
        columns: str,
        where: str = "",
        *,
        last: int | None = None,
    ) -> str:
        """Return the query of a table's rows, hot and sealed, up to `last`, after `refresh`."""
        hot = f"seq > {manifest.sealed_through}" + (f" AND ({where})" if where else "")
        if last is not None:
            # What is sealed needs no such filter, and DuckDB expects it to leave few rows.
            hot += f" AND seq <= {last}"
        parts = [f"SELECT {columns} FROM hot_{table} WHERE {hot}"]
        if manifest.segments:
            sealed = self.sealed(manifest.segments, table)
            condition = f" WHERE {where}" if where else ""
            parts.insert(0, f"SELECT {columns} FROM {sealed}{condition}")
        return " UNION ALL ".join(parts)

    def sealed(self, segments: Sequence[Segment], table: str) -> str:
        """Return the rows of segments as what can stand in FROM."""
        return sealed_rows(self._folder, segments, table, self.visible)

    def sealed_operations(
        self, cursor: duckdb.DuckDBPyConnection, manifest: Manifest, seqs: Sequence[int]
    ) -> dict[int, Operation]:
        """Return the sealed operations with these numbers, by number."""
        if not seqs:
            return {}
        segments = [
            s for s in manifest.segments if any(s.first_seq <= n <= s.last_seq for n in seqs)
        ]
        sources = {table: self.sealed(segments, table) for table in TABLES}
        return fetch(cursor, sources, seqs)


def sealed_rows(folder: Folder, segments: Sequence[Segment], table: str, visible: str) -> str:
    """Return the rows of segments that a condition on operations lets through, for FROM."""
    rows, operations = (
        f"read_parquet([{', '.join(quoted(folder.file(segment, name)) for segment in segments)}])"
        for name in (table, "operations")
    )
    return f"({within_sight(rows, table, operations, visible)})" if visible else rows


def within_sight(rows: str, table: str, operations: str, visible: str) -> str:
    """Return the query of a table's rows whose operation may be seen.

    Args:
        rows: What holds them, for FROM.
        table: What they are rows of.
        operations: What holds the operations.
        visible: The condition (`memtui.analytics.conditions.visible_to`); empty for all.
    """
    if not visible:
        return f"SELECT * FROM {rows}"
    if table != "operations":
        visible = f"seq IN (SELECT seq FROM {operations} WHERE {visible})"
    return f"SELECT * FROM {rows} WHERE {visible}"


def fetch(
    cursor: duckdb.DuckDBPyConnection, sources: dict[str, str], seqs: Sequence[int]
) -> dict[int, Operation]:
    """Return the operations with these numbers, by number, out of tables or files by table name."""
    low, high = min(seqs), max(seqs)
    wanted = f"seq BETWEEN {low} AND {high}"
    if high - low + 1 > len(seqs):
        wanted += f" AND seq IN ({', '.join(map(str, seqs))})"
    parts = [
        cursor.execute(f"SELECT {select_list(table)} FROM {source} WHERE {wanted}").fetchall()
        for table, source in sources.items()
    ]
    return {operation.seq: operation for operation in build(*parts)}
