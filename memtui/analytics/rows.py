"""One company's log in DuckDB: hot and sealed rows together, each operation once."""

from __future__ import annotations

import threading
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import select

from memtui.analytics.archive import refuse_gap
from memtui.analytics.company_log import CompanyLog
from memtui.analytics.engine import MEMORY_MB, DuckDb, Stop
from memtui.analytics.figures import OF_OPERATION, OF_USAGE, TOKENS
from memtui.analytics.layout import TABLES, ArchiveFolder, LogEnds, Manifest, Segment, log_ends
from memtui.analytics.sealed import Archive
from memtui.analytics.source import HOT, SELECTS, columns_of, load_of, load_raw
from memtui.contract import Filter
from memtui.store.columns import ForeignText
from memtui.store.conditions import READ, visible_to
from memtui.store.database import Database, DatabaseConnection
from memtui.store.log import OperationStore
from memtui.store.operation import Operation, to_operation
from memtui.store.visibility import Visibility

if TYPE_CHECKING:
    import duckdb

BATCH = 10_000
"""Operations copied at a time; copying can be stopped between two batches."""


class State(NamedTuple):
    """A snapshot of a log: its cursor sees nothing newer."""

    cursor: duckdb.DuckDBPyConnection
    manifest: Manifest
    last: int
    """The newest `seq`."""


class LogDatabase(DuckDb):
    """A DuckDB over one company's log: the sealed files, and a copy of the hot rows.

    The log is append-only, so the copy gains new rows and loses sealed ones. Both contain visible
    operations only. The copy's tables are called `hot_operations` and so on. Safe for several
    threads, each with its own cursor.
    """

    kept: Mapping[str, Sequence[str]] | None = {
        "operations": [
            name
            for name in columns_of("operations")
            if name in READ or name in chain(*OF_OPERATION.values())
        ],
        "usage": ("seq", "ordinal", *OF_USAGE.values(), *TOKENS, "cost_usd"),
        "handles": ("seq", "rank", "binding_key", "operation_type", "provider_record_id", "score"),
    }
    """The columns that are copied, by table: those that views and figures need. None: all."""

    def __init__(
        self,
        database: Database,
        root: Path,
        company_id: str,
        *,
        visibility: Visibility | None = None,
        zone: str = "UTC",
        memory_mb: int = MEMORY_MB,
        locked: bool = False,
    ) -> None:
        """Set it up.

        Args:
            database: The control plane's database.
            root: The archive folder of all companies.
            company_id: The company of the log.
            visibility: The reader's visibility; None: everything.
            zone: The IANA name of the time zone in which days begin.
            memory_mb: Memory that DuckDB may use.
            locked: Whether DuckDB can open nothing but the company's archive.
        """
        self.folder = ArchiveFolder(root, company_id)
        only = self.folder.path.absolute() if locked else None
        super().__init__(memory_mb=memory_mb, zone=zone, only=only)
        self.visibility = visibility
        self.visible = visible_to(visibility)
        """The SQL condition of the visible operations; empty for all."""
        self.through = 0
        """The newest `seq` that is in the copy, or sealed."""
        self.begun = 0
        """How often the copy was started; again whenever the database contains another log."""
        self.database = database
        self._archive = Archive(root, self)
        self.log = CompanyLog(database, self._archive, company_id, visibility)
        """The complete operations; the copy has only the columns `kept`."""
        self._copying = threading.RLock()
        self._above = 0
        self._anew = True
        """Whether the copy must be started: there is none, or it is of another log."""
        self._digest: str | None = None
        self._known: dict[str, tuple[str, array[int]]] = {}
        """By name, the last digest that is sealed, and the numbers up to it."""

    def place(self) -> tuple[Manifest, LogEnds]:
        """Return the manifest and the ends of the log, at one moment.

        Raises:
            Unavailable: some operations are in neither.
        """
        while True:
            manifest = self.folder.read()
            ends = log_ends(self.database, self.folder.company_id)
            if ends.hot_first <= manifest.sealed_through + 1:
                break
            # A seal may have ended between the two reads: it writes the manifest first.
            if self.folder.read() == manifest:
                break
        refuse_gap(manifest, ends)
        return manifest, ends

    def stood_still(self, manifest: Manifest) -> bool:
        """Whether nothing was sealed since a manifest was read."""
        return self.place()[0].sealed_through == manifest.sealed_through

    def refresh(self) -> tuple[Manifest, int]:
        """Bring the copy up to date; returns the manifest and the last `seq`."""
        while True:
            manifest, ends = self.place()
            self.copy(manifest, ends.head, Stop())
            if self.stood_still(manifest):
                return manifest, ends.head

    @contextmanager
    def reading(self) -> Iterator[State]:
        """Yield a snapshot of the log, which later copying and removal do not change."""
        with self.asking() as cursor:
            with self._copying:
                manifest, last = self.refresh()
                cursor.begin()
                cursor.execute("FROM hot_operations LIMIT 0")  # the snapshot begins here
            yield State(cursor, manifest, last)

    def copy(self, manifest: Manifest, through: int, stop: Stop) -> None:
        """Bring the copy up to a `seq`, and remove sealed operations from it.

        If it is stopped, rows already copied stay.

        Raises:
            Interrupted: it was stopped.
            Unavailable: the log cannot be read.
        """
        with self._copying, self.asking() as cursor:
            self._take_out(cursor, manifest.sealed_through, stop)
            if self._anew or self.through < through:
                with self.database.read() as hot:
                    while self._anew or self.through < through:
                        self._add(cursor, hot, min(self.through + BATCH, through), stop)

    def _take_out(self, cursor: duckdb.DuckDBPyConnection, sealed: int, stop: Stop) -> None:
        # The database may contain another log by now: then the digest of the last row differs.
        other = self.through > sealed and self._digest != self._digest_at(self.through)
        if self._anew or sealed < self._above or other:
            self._anew = True
            self._above = self.through = sealed
        elif sealed > self._above:
            with stop.reaching(cursor):
                for table in TABLES:
                    # Not DELETE: deleted rows would not free memory.
                    left = f"SELECT * FROM hot_{table} WHERE seq > {sealed}"
                    cursor.execute(f"CREATE OR REPLACE TABLE hot_{table} AS {left}")
            self._above, self.through = sealed, max(self.through, sealed)

    def _add(
        self, cursor: duckdb.DuckDBPyConnection, hot: DatabaseConnection, through: int, stop: Stop
    ) -> None:
        with stop.reaching(cursor):
            company_id = self.folder.company_id
            load_raw(cursor, hot, company_id, self.through + 1, through, only=self.kept)
            cursor.begin()
            try:
                for table in TABLES:
                    visible = visible_to(self.visibility, "raw_handles")
                    rows = _seen(f"({SELECTS[table]})", table, "raw_operations", visible)
                    if self._anew:
                        cursor.execute(f"CREATE OR REPLACE TABLE hot_{table} AS {rows}")
                    else:
                        cursor.execute(f"INSERT INTO hot_{table} {rows}")
                cursor.commit()
            except BaseException:
                cursor.rollback()
                raise
            self.begun += self._anew
            self._anew = False
            self.through = through
            self._digest = self._digest_at(through)

    def _digest_at(self, seq: int) -> str | None:
        """Return the digest of an operation in the database; None if it is absent."""
        columns = HOT["operations"].c
        own = (columns.company_id == self.folder.company_id, columns.seq == seq)
        with self.database.read() as connection:
            return connection.execute(select(columns.digest).where(*own)).scalar()

    def internal(self, last: int) -> array[int]:
        """Return the numbers of memtui's own reads up to `last`."""
        return self._numbers(lambda one: one.internal_seqs(last), "internal")

    def has_parts(self) -> bool:
        """Whether any operation is part of another one."""
        return bool(self._numbers(lambda one: one.some_part(), "parts"))

    def folded(self, chosen: Filter, last: int, *, known_as: str = "") -> array[int]:
        """Return the numbers up to `last` of the matches that are part of another one.

        `known_as`: a name under which those of the sealed operations are remembered.
        """
        return self._numbers(lambda one: one.folded_seqs(chosen, last), known_as)

    def _numbers(self, ask: Callable[[OperationStore], Sequence[int]], name: str) -> array[int]:
        """Return the numbers asked for; those of sealed operations are remembered by name."""
        while True:
            manifest, _ = self.place()
            with self.database.read() as connection:
                hot = ask(self.store(connection, manifest.sealed_through))
            # By digest, not by number: another log may have replaced this one.
            digest, older = self._known.get(name, ("", array("q")))
            if not manifest.segments:
                older = array("q")
            elif not name or digest != manifest.last_digest:
                company_id = self.folder.company_id
                with self._archive.read(company_id, manifest.segments) as connection:
                    older = array("q", ask(self.store(connection)))
            if self.stood_still(manifest):
                if name:
                    self._known[name] = manifest.last_digest, older
                return array("q", (*older, *hot))

    def store(self, connection: DatabaseConnection, above: int = 0) -> OperationStore:
        """Return the visible hot operations above a `seq`."""
        return OperationStore(connection, self.folder.company_id, self.visibility, above)

    def hot(self, table: str, columns: str, where: str, above: int, through: int | None) -> str:
        """Return the query of the copied rows above one `seq` and up to another."""
        end = "" if through is None else f" AND seq <= {through}"
        condition = f" AND ({where})" if where else ""
        return f"SELECT {columns} FROM hot_{table} WHERE seq > {above}{end}{condition}"

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
        # Sealed rows need no `last`, and DuckDB would expect such a condition to leave few rows.
        hot = self.hot(table, columns, where, manifest.sealed_through, last)
        if not manifest.segments:
            return hot
        condition = f" WHERE {where}" if where else ""
        sealed = f"SELECT {columns} FROM {self.sealed(manifest.segments, table)}{condition}"
        return f"{sealed} UNION ALL {hot}"

    def sealed(self, segments: Sequence[Segment], table: str) -> str:
        """Return the visible rows of segments, as an SQL term for FROM.

        Raises:
            Unavailable: a file of them is missing.
        """
        rows = self.folder.parquet(segments, table)
        if not self.visible:
            return rows
        operations = self.folder.parquet(segments, "operations")
        visible = visible_to(self.visibility, self.folder.parquet(segments, "handles"))
        return f"({_seen(rows, table, operations, visible)})"


def _seen(rows: str, table: str, operations: str, visible: str) -> str:
    """Return the query of a table's rows whose operation is visible."""
    if not visible:
        return f"SELECT * FROM {rows}"
    if table != "operations":
        visible = f"seq IN (SELECT seq FROM {operations} WHERE {visible})"
    return f"SELECT * FROM {rows} WHERE {visible}"


def fetch(
    duck: duckdb.DuckDBPyConnection, sources: Mapping[str, str], where: str
) -> dict[int, Operation]:
    """Return operations by number.

    Args:
        duck: A DuckDB with their rows.
        sources: By table, the SQL term for FROM of rows with the sealed columns.
        where: The condition of their numbers (`among`).
    """
    operations, usage, handles = (_rows(duck, table, sources[table], where) for table in TABLES)
    parts: dict[int, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for place, rows in enumerate((usage, handles)):
        for row in rows:
            parts[row["seq"]][place].append(row)
    return {row["seq"]: to_operation(row, *parts[row["seq"]]) for row in operations}


def among(seqs: Sequence[int]) -> str:
    """Return the SQL condition that `seq` is one of some numbers, at least one."""
    low, high = min(seqs), max(seqs)
    within = f"seq BETWEEN {low} AND {high}"
    if high - low + 1 > len(seqs):
        within += f" AND seq IN ({', '.join(map(str, seqs))})"
    return within


Row = dict[str, Any]


def _rows(duck: duckdb.DuckDBPyConnection, table: str, source: str, where: str) -> Iterator[Row]:
    """Yield rows with their values decoded, as before they were stored."""
    names = HOT[table].columns.keys()
    order = {"usage": " ORDER BY seq, ordinal", "handles": " ORDER BY seq, rank"}.get(table, "")
    listed = ", ".join(_STORED.get(name, name) for name in names)
    found = duck.execute(f"SELECT {listed} FROM {source} WHERE {where}{order}").fetchall()
    loads = _LOADS[table]
    for row in found:
        yield {
            name: value if load is None or value is None else load(value)
            for name, value, load in zip(names, row, loads, strict=True)
        }


_STORED = {"started_at": "epoch_us(started_at) AS started_at", "cost_usd": "cost_pico AS cost_usd"}
"""The columns that differ between the sealed files and the database."""


_LOADS = {name: [load_of(column.type) for column in table.columns] for name, table in HOT.items()}


def text_of(value: Any) -> Any:
    """Return a value as it was before the database escaped it."""
    return ForeignText.loaded(value) if isinstance(value, str) else value
