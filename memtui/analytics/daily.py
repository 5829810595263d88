"""The figures of operations by day, which can be added up; those of sealed operations are cached.

There are three small tables: `totals` by day, binding and type; `spending` by day, provider and
model; `latency` by day, binding and bin; each also by whether the operations are internal
(`OperationDraft.internal`). Rows with the same keys may come from several parts of the log; their
numbers are added. A bin has latencies that differ by up to 1 %, so a percentile computed from bins
is off by at most `LATENCY_ERROR` of itself.

The cache is in `<company>/daily-<hash of its inputs>/<sealed through>/`, or in DuckDB's private
folder if the archive cannot be written. It can be deleted; the next dashboard makes it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from memtui.analytics.figures import (
    ACCEPTED,
    NUMBERS,
    SAID,
    SPENT,
    USE_WITHIN,
    Bucket,
    bucket_of,
    is_use,
    numbers_of,
)
from memtui.analytics.layout import TABLES, Manifest, Segment
from memtui.analytics.rows import LogDatabase
from memtui.paths import is_writable, sync_folder
from memtui.store.columns import UtcMicroseconds
from memtui.store.database import quoted
from memtui.store.operation import INTERNAL

if TYPE_CHECKING:
    import duckdb

_VERSION = 9
_WIDTH = 1.01
LATENCY_ERROR = (_WIDTH - 1) / (_WIDTH + 1)
"""The largest error of a percentile computed from bins, as a share of it."""

_ZERO_BIN = -(2**31)
_BIN = (
    f"CASE WHEN latency_ms > 0 THEN ceil(ln(latency_ms) / ln({_WIDTH}))::INTEGER "
    f"ELSE {_ZERO_BIN} END"
)
_KEYS = {
    "totals": ("day", "internal", "binding_key", "operation_type"),
    "spending": ("day", "internal", "provider", "model"),
    "latency": ("day", "internal", "binding_key", "bin"),
}
_HITS = ("score_count", "used_count")
_ADDED = {
    "totals": (*(name for name in NUMBERS if name != "hit_count"), *_HITS),
    "spending": SPENT,
    "latency": ("operation_count",),
}


def bin_value(column: str) -> str:
    """Return the SQL of the latency, in milliseconds, that represents a bin."""
    value = f"{2 / (_WIDTH + 1)!r} * pow({_WIDTH}, {column})"
    return f"CASE WHEN {column} = {_ZERO_BIN} THEN 0.0 ELSE {value} END"


def merged(table: str, rows: str) -> str:
    """Return the query that adds up rows with the same keys."""
    keys = ", ".join(_KEYS[table])
    kind = "BIGINT" if table == "latency" else "DECIMAL(38, 0)"
    sums = ", ".join(f"coalesce(sum({name}), 0)::{kind} AS {name}" for name in _ADDED[table])
    return f"SELECT {keys}, {sums} FROM ({rows}) GROUP BY {keys}"


class Daily:
    """The figures by day of one log, for one zone and one set of score thresholds."""

    def __init__(
        self, log: LogDatabase, *, zone: str, good_score: str, depends: Mapping[str, object]
    ) -> None:
        """Create for a log.

        `good_score`: the SQL of whether a query's best score reaches the threshold. `depends`:
        further inputs of the figures, which are part of the cache's key.
        """
        self._log = log
        self._day = bucket_of(Bucket.DAY, zone)
        self._good_score = good_score
        text = json.dumps([_VERSION, zone, dict(depends), log.visible], sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._folder = log.folder.path / f"daily-{key}"

    def rows(
        self, duck: duckdb.DuckDBPyConnection, manifest: Manifest, last: int
    ) -> dict[str, str]:
        """Return the query of each table over the whole log up to `last`, after a refresh."""
        first = manifest.sealed_through + 1
        limit = f"seq BETWEEN {first} AND {last}"
        own = {table: f"SELECT * FROM hot_{table} WHERE {limit}" for table in TABLES}
        row = duck.execute(
            f"SELECT epoch_us(min(started_at)) FROM hot_operations WHERE {limit}"
        ).fetchone()
        since = UtcMicroseconds.loaded(row[0] if row else None)
        hot = self._queries(own, manifest, since, first)
        sealed = self.sealed_rows(duck, manifest)
        return {
            table: f"{rows} UNION ALL BY NAME {sealed[table]}" if sealed else rows
            for table, rows in hot.items()
        }

    def said(self, feedback: str) -> str:
        """Return the rows of `totals` that count the verdicts on results.

        They are not cached, as a later verdict in another part of the log replaces an earlier one.
        """
        helped = (f"(best_score = {score})::INTEGER AS {name}" for name, score in SAID.items())
        return (
            f"SELECT {self._day} AS day, false AS internal, binding_key, operation_type, "
            f"{', '.join(helped)} FROM ({feedback})"
        )

    def sealed_rows(self, duck: duckdb.DuckDBPyConnection, manifest: Manifest) -> dict[str, str]:
        """Return the query of each table over the sealed operations, after filling the cache."""
        if not manifest.segments:
            return {}
        through = self._folder / f"{manifest.sealed_through:012d}"
        if not through.is_dir() and not is_writable(self._folder.parent):
            self._folder = self._log.private_folder / self._folder.name
            through = self._folder / through.name
        if not through.is_dir():
            self._make(duck, manifest, through)
        return {
            table: f"SELECT * FROM read_parquet({quoted(through / f'{table}.parquet')})"
            for table in _KEYS
        }

    def _make(self, duck: duckdb.DuckDBPyConnection, manifest: Manifest, through: Path) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        known = max((int(path.name) for path in self._folder.glob("[0-9]*")), default=0)
        if all(known != segment.last_seq for segment in manifest.segments):
            known = 0  # the cached figures do not end with one of these segments: start anew
        for table in _KEYS:
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
        for table, keys in _KEYS.items():
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
        own = {table: f"SELECT * FROM {self._log.sealed((segment,), table)}" for table in TABLES}
        queries = self._queries(own, manifest, segment.started_from, segment.first_seq)
        for table, query in queries.items():
            duck.execute(f"CREATE TEMP TABLE IF NOT EXISTS daily_{table} AS {query} LIMIT 0")
            duck.execute(f"INSERT INTO daily_{table} {query}")

    def _queries(
        self, own: dict[str, str], manifest: Manifest, since: datetime | None, first: int
    ) -> dict[str, str]:
        """Return the queries of the tables for a part of the log.

        The part begins with number `first`; its earliest operation started at `since`.
        """
        around, handles = own["operations"], own["handles"]
        near = [
            earlier
            for earlier in manifest.segments
            if since and earlier.last_seq < first and earlier.started_to >= since - USE_WITHIN
        ]
        if since and near:
            # An opening in this part may be a use of a query in an earlier part.
            begin = quoted((since - USE_WITHIN).isoformat())
            around += (
                f" UNION ALL BY NAME SELECT * FROM {self._log.sealed(near, 'operations')} "
                f"WHERE started_at >= {begin}::TIMESTAMPTZ"
            )
            handles += f" UNION ALL BY NAME SELECT * FROM {self._log.sealed(near, 'handles')}"
        opened = first_opened(around, handles, first)
        accepted = f"SELECT seq FROM ({own['operations']}) WHERE {ACCEPTED}"
        numbers = numbers_of(self._good_score, "score_count", accepted=accepted)
        spent = ", ".join(SPENT)
        day = f"{self._day} AS day, {INTERNAL} AS internal"
        key = f"{day}, binding_key"
        return {
            "totals": merged(
                "totals",
                f"SELECT {key}, operation_type, {numbers}, {spent} FROM ({own['operations']}) "
                f"UNION ALL BY NAME SELECT {key}, operation_type, 1 AS used_count FROM ({opened})",
            ),
            "spending": merged(
                "spending",
                "SELECT o.day, o.internal, u.*, 1 AS usage_count, "
                "(u.cost_pico IS NULL)::INTEGER AS unpriced_count FROM "
                f"({own['usage']}) u JOIN (SELECT seq, {day} FROM ({own['operations']})) o "
                "USING (seq)",
            ),
            "latency": merged(
                "latency",
                f"SELECT {key}, {_BIN} AS bin, 1 AS operation_count "
                f"FROM ({own['operations']}) WHERE latency_ms IS NOT NULL",
            ),
        }


def first_opened(operations: str, handles: str, first: int) -> str:
    """Return the query of the answered queries with a record first opened at `first` or later.

    Args:
        operations: Query of operations with the queries and the openings.
        handles: Query of their handles.
        first: The lowest `seq` of an opening that counts; earlier ones count in an earlier part.
    """
    seconds = USE_WITHIN // timedelta(seconds=1)
    return (
        f"WITH moments AS (SELECT * FROM ({operations}) WHERE status = 'ok' AND NOT {INTERNAL} "
        f"AND (operation_type = 'query' OR {is_use('operation_type')})), "
        "touched AS (SELECT o.*, coalesce(h.binding_key, '') AS at_binding, h.provider_record_id "
        f"FROM ({handles}) h JOIN moments o ON o.seq = h.seq), "
        "opened AS (SELECT q.seq FROM touched q JOIN touched u ON u.at_binding = q.at_binding "
        "AND u.provider_record_id = q.provider_record_id AND q.operation_type = 'query' "
        f"AND {is_use('u.operation_type')} AND u.seq > q.seq AND u.started_at >= q.started_at "
        f"AND u.started_at <= q.started_at + to_seconds({seconds}) "
        f"GROUP BY q.seq HAVING min(u.seq) >= {first}) "
        "SELECT * FROM moments SEMI JOIN opened USING (seq)"
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
