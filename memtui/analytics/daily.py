"""The partial figures of what is sealed: made once a segment, kept beside the segments.

They lie in `<company>/daily-<what they depend on>/<sealed through>/` and can be deleted: the next
question makes them again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from memtui.analytics.engine import quoted
from memtui.analytics.figures import USE_WITHIN
from memtui.analytics.layout import TABLES, Folder, Manifest, Segment, sync_folder
from memtui.analytics.partials import KEYS, first_opened, merged, partials
from memtui.analytics.rows import Rows
from memtui.store.columns import UtcMicroseconds

if TYPE_CHECKING:
    import duckdb

_VERSION = 3


class Daily:
    """The partial figures of one company for one zone and one set of score thresholds."""

    def __init__(
        self, root: Path, rows: Rows, *, zone: str, good_score: str, depends: Mapping[str, object]
    ) -> None:
        self._rows = rows
        self._zone = zone
        self._good_score = good_score
        text = json.dumps([_VERSION, zone, dict(depends), rows.visible], sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._folder = Folder(root, rows.company_id).path / f"daily-{key}"

    def tables(self, duck: duckdb.DuckDBPyConnection, manifest: Manifest) -> dict[str, str]:
        """Return the query of each table over all that is sealed, made where it is missing."""
        if not manifest.segments:
            return {}
        through = self._folder / f"{manifest.sealed_through:012d}"
        if not through.is_dir():
            if not os.access(self._folder.parent, os.W_OK):
                through = self._elsewhere() / through.name
            self._make(duck, manifest, through)
        return {
            table: f"SELECT * FROM read_parquet({quoted(through / f'{table}.parquet')})"
            for table in KEYS
        }

    def _elsewhere(self) -> Path:
        """Keep the figures in a private folder, for as long as they are asked for."""
        self._folder = Path(tempfile.mkdtemp(prefix="memtui-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def hot(self, duck: duckdb.DuckDBPyConnection, manifest: Manifest, last: int) -> dict[str, str]:
        """Return the query of each table over the hot rows up to `last`, after a refresh."""
        limit = f"seq BETWEEN {manifest.sealed_through + 1} AND {last}"
        own = {table: f"SELECT * FROM hot_{table} WHERE {limit}" for table in TABLES}
        row = duck.execute(
            f"SELECT epoch_us(min(started_at)) FROM hot_operations WHERE {limit}"
        ).fetchone()
        since = UtcMicroseconds.loaded(row[0] if row else None)
        return self._queries(own, manifest, since, manifest.sealed_through + 1)

    def _make(self, duck: duckdb.DuckDBPyConnection, manifest: Manifest, through: Path) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        known = max((int(path.name) for path in self._folder.glob("[0-9]*")), default=0)
        if all(known != segment.last_seq for segment in manifest.segments):
            known = 0
        for table in KEYS:
            old = self._folder / f"{known:012d}" / f"{table}.parquet"
            duck.execute(f"DROP TABLE IF EXISTS daily_{table}")
            if known:
                duck.execute(
                    f"CREATE TEMP TABLE daily_{table} AS SELECT * FROM read_parquet({quoted(old)})"
                )
        for segment in manifest.segments:
            if segment.last_seq > known:
                self._add(duck, manifest, segment)
        work = self._folder / f".new-{os.getpid()}-{through.name}"
        work.mkdir(mode=0o700)
        for table, keys in KEYS.items():
            path = work / f"{table}.parquet"
            rows = merged(table, f"SELECT * FROM daily_{table}")
            order = ", ".join(keys)
            duck.execute(
                f"COPY ({rows} ORDER BY {order}) TO {quoted(path)} "
                "(FORMAT parquet, COMPRESSION zstd)"
            )
            path.chmod(0o600)
            duck.execute(f"DROP TABLE daily_{table}")
        _put_in_place(work, through)
        for path in self._folder.glob("[0-9]*"):
            if path not in {through, self._folder / f"{known:012d}"}:
                shutil.rmtree(path, ignore_errors=True)

    def _add(self, duck: duckdb.DuckDBPyConnection, manifest: Manifest, segment: Segment) -> None:
        own = {table: f"SELECT * FROM {self._rows.sealed((segment,), table)}" for table in TABLES}
        queries = self._queries(own, manifest, segment.started_from, segment.first_seq)
        for table, query in queries.items():
            duck.execute(f"CREATE TEMP TABLE IF NOT EXISTS daily_{table} AS {query} LIMIT 0")
            duck.execute(f"INSERT INTO daily_{table} {query}")

    def _queries(
        self, own: dict[str, str], manifest: Manifest, since: datetime | None, first: int
    ) -> dict[str, str]:
        """The tables of a part of the log that begins at `first` and, in time, at `since`."""
        around, handles = own["operations"], own["handles"]
        near = [
            earlier
            for earlier in manifest.segments
            if since and earlier.last_seq < first and earlier.started_to >= since - USE_WITHIN
        ]
        if since and near:
            # An opening in this part may count for a query in one before it.
            begin = quoted((since - USE_WITHIN).isoformat())
            around += (
                f" UNION ALL SELECT * FROM {self._rows.sealed(near, 'operations')} "
                f"WHERE started_at >= {begin}::TIMESTAMPTZ"
            )
            handles += f" UNION ALL SELECT * FROM {self._rows.sealed(near, 'handles')}"
        return partials(
            own["operations"],
            own["usage"],
            first_opened(around, handles, first),
            zone=self._zone,
            good_score=self._good_score,
        )


def _put_in_place(work: Path, through: Path) -> None:
    sync_folder(work)
    try:
        work.rename(through)
    except OSError:
        # Another process made the same figures first.
        shutil.rmtree(work)
        if not through.is_dir():
            raise
