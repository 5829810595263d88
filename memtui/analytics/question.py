"""The exact figures of one filter over one state of the log, in SQL over hot and sealed rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from memtui.analytics.buckets import Bucket, begin_of, end_of
from memtui.analytics.cuts import OF_OPERATION, OF_USAGE, Cut
from memtui.analytics.figures import (
    BY_HAND,
    FAILED,
    USE_WITHIN,
    Figures,
    Group,
    HitSign,
    Latency,
)
from memtui.analytics.layout import Manifest
from memtui.analytics.operations import text_of
from memtui.analytics.partials import is_use
from memtui.analytics.rows import Rows

if TYPE_CHECKING:
    import duckdb

TOGETHER = 2_000_000
"""The longest log whose latencies are held in memory once for each of several cuts."""

_TOTALS = """
    count(*) AS operation_count,
    count(*) FILTER (asks) AS query_count,
    count(*) FILTER (writes) AS write_count,
    count(*) FILTER (corrects) AS correction_count,
    count(*) FILTER (succeeded) AS success_count,
    count(*) FILTER (failed) AS failure_count,
    count(*) FILTER (cancelled) AS cancelled_count,
    coalesce(sum(input_tokens), 0) AS input_tokens,
    coalesce(sum(output_tokens), 0) AS output_tokens,
    coalesce(sum(embedding_tokens), 0) AS embedding_tokens,
    coalesce(sum(cost_pico), 0) AS cost_pico,
    coalesce(sum(usage_count), 0) AS usage_count,
    coalesce(sum(unpriced_count), 0) AS unpriced_count,
    count(*) FILTER (answered) AS answered_count,
    count(*) FILTER (answered AND empty) AS empty_count,
    count(*) FILTER (answered AND hit) AS hit_count,
    quantile_cont(latency_ms, [0.5, 0.95, 0.99]) AS latency
"""
_MARKS = f"""
    operation_type = 'query' AS asks, operation_type = 'write' AS writes,
    {BY_HAND} AS corrects, status = 'ok' AS succeeded, {FAILED} AS failed,
    status = 'cancelled' AS cancelled,
    operation_type = 'query' AND status = 'ok' AS answered, result_count = 0 AS empty
"""
_SPENT = ("input_tokens", "output_tokens", "embedding_tokens", "cost_pico", "usage_count")
_NEEDED = (
    "seq",
    "started_at",
    "operation_type",
    "status",
    "principal",
    "result_count",
    "latency_ms",
    "best_score",
    "binding_key",
)


class Question:
    """What is asked of the operations that a filter lets through. Blocking."""

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        rows: Rows,
        state: tuple[Manifest, int],
        where: str,
        *,
        zone: str,
        sign: HitSign,
        good_score: str,
    ) -> None:
        """Set it up.

        Args:
            cursor: A connection of its own.
            rows: The log's.
            state: What is sealed, and the newest `seq` that counts (`Rows.refresh`).
            where: The SQL of the filter; empty for all.
            zone: The IANA name of the zone that days are cut in.
            sign: What makes a query a hit.
            good_score: The SQL of whether a query's best score reaches its threshold.
        """
        self._cursor = cursor
        self._rows = rows
        self._manifest, self._last = state
        self._where = where
        self._zone = zone
        self._sign = sign
        self._good_score = good_score
        if sign is HitSign.USED:
            cursor.execute(f"CREATE OR REPLACE TEMP TABLE used AS {self._used()}")

    def groups(self, cuts: Sequence[Cut]) -> list[tuple[Group, ...]]:
        """Return the groups of each cut, in order.

        A log of up to `TOGETHER` operations is read once for all cuts of operations, a longer one
        once for each cut: exact percentiles hold every latency in memory, as often as it is cut.
        """
        asked = tuple(dict.fromkeys(cuts))
        together = [cut for cut in asked if not cut.of_usage and self._last <= TOGETHER]
        found = dict(zip(together, self._read(together), strict=True)) if together else {}
        for cut in asked:
            if cut not in found:
                [found[cut]] = self._read([cut])
        return [found[cut] for cut in cuts]

    def _read(self, cuts: Sequence[Cut]) -> list[tuple[Group, ...]]:
        columns: dict[str, str] = {}
        for cut in cuts:
            columns |= cut.columns(self._zone)
        names = tuple(columns)
        named = "".join(f"{sql} AS {name}, " for name, sql in columns.items())
        own = [tuple(cut.columns(self._zone)) for cut in cuts]
        sets = ", ".join(f"({', '.join(group)})" for group in dict.fromkeys(own))
        which = f"grouping_id({', '.join(names)})" if names else "0"
        order = "".join(f", {name} NULLS LAST" for name in names)
        dimensions = tuple(dict.fromkeys(name for cut in cuts for name in cut.by))
        if any(cut.of_usage for cut in cuts) and self._last > TOGETHER:
            source = self._joined(named, dimensions)
        else:
            source = f"(SELECT {named}* FROM ({self._operations(dimensions)}))"
        self._cursor.execute(
            f"SELECT {''.join(f'{name}, ' for name in names)}{which} AS cut, {_TOTALS} "
            f"FROM {source} GROUP BY GROUPING SETS ({sets}) ORDER BY cut{order}"
        )
        described = [str(column[0]) for column in self._cursor.description or []]
        rows = [dict(zip(described, row, strict=True)) for row in self._cursor.fetchall()]
        ids = [_grouping_id(names, group) for group in own]
        return [
            tuple(self._group(row, cut.by, cut.bucket) for row in rows if row["cut"] == number)
            for cut, number in zip(cuts, ids, strict=True)
        ]

    def _joined(self, named: str, dimensions: tuple[str, ...]) -> str:
        """Make a table of the operations and their usage, a part of the log at a time.

        Joined at once, a long log does not fit into the memory and is spilled several times over.
        """
        for first in range(1, self._last + 1, TOGETHER):
            part = self._operations(dimensions, f"seq BETWEEN {first} AND {first + TOGETHER - 1}")
            rows = f"SELECT {named}* EXCLUDE (seq, started_at) FROM ({part})"
            make = "CREATE OR REPLACE TEMP TABLE joined AS" if first == 1 else "INSERT INTO joined"
            self._cursor.execute(f"{make} {rows}")
        return "joined"

    def _group(self, row: dict[str, Any], by: tuple[str, ...], bucket: Bucket | None) -> Group:
        latency = row["latency"] or [None, None, None]
        counts = {name: int(row[name]) for name in Figures.model_fields if name in row}
        begun = row.get(f"by_{bucket}")
        zone = self._zone
        return Group(
            **counts,
            cost_usd=Decimal(int(row["cost_pico"])).scaleb(-12),
            latency_ms=Latency(p50=latency[0], p95=latency[1], p99=latency[2]),
            keys={name: text_of(row[f"key_{name}"]) for name in by},
            begins=None if begun is None or bucket is None else begin_of(begun, zone),
            ends=None if begun is None or bucket is None else end_of(bucket, begun, zone),
        )

    def _operations(self, by: tuple[str, ...], among: str = "") -> str:
        """The operations with what `_TOTALS` needs, once for each group of usage they are in.

        Only those `among` which a condition on `seq` finds them.
        """
        of_usage = [OF_USAGE[name] for name in by if name in OF_USAGE]
        spent = () if of_usage else (*_SPENT, "unpriced_count")
        dimensions = [OF_OPERATION[name] for name in by if name in OF_OPERATION]
        columns = ", ".join(dict.fromkeys((*_NEEDED, *dimensions, *spent)))
        kept = ", ".join(dict.fromkeys(("seq", "started_at", "latency_ms", *dimensions, *spent)))
        rows = self._rows
        where = " AND ".join(filter(None, (self._where, among)))
        everything = rows.everything(self._manifest, "operations", columns, where, last=self._last)
        # Marks, because texts would make what is joined to the usage several times as wide.
        judged = f"SELECT {kept}, {_MARKS}, {self._hit()} AS hit FROM ({everything})"
        if not of_usage:
            return judged
        usage = rows.everything(self._manifest, "usage", "*", among)
        split = ", ".join(of_usage)
        return (
            f"SELECT o.*, u.* EXCLUDE (seq) FROM ({judged}) o LEFT JOIN ("
            f"SELECT seq, {split}, sum(input_tokens) AS input_tokens, "
            "sum(output_tokens) AS output_tokens, sum(embedding_tokens) AS embedding_tokens, "
            "sum(cost_pico) AS cost_pico, count(*) AS usage_count, "
            "count(*) - count(cost_pico) AS unpriced_count "
            f"FROM ({usage}) GROUP BY seq, {split}) u ON u.seq = o.seq"
        )

    def _hit(self) -> str:
        if self._sign is HitSign.SCORE:
            return self._good_score
        return "seq IN (SELECT seq FROM used)"

    def _used(self) -> str:
        """The queries of which a record was opened later, soon enough and through any door."""
        rows = self._rows
        moments = rows.everything(
            self._manifest,
            "operations",
            "seq, started_at",
            f"status = 'ok' AND (operation_type = 'query' OR {is_use('operation_type')})",
        )
        handles = rows.everything(
            self._manifest,
            "handles",
            "seq, operation_type, coalesce(binding_key, '') AS binding, provider_record_id",
            f"operation_type = 'query' OR {is_use('operation_type')}",
        )
        seconds = USE_WITHIN // timedelta(seconds=1)
        return (
            f"WITH touched AS (SELECT h.*, o.started_at FROM ({handles}) h "
            f"JOIN ({moments}) o ON o.seq = h.seq) "
            "SELECT DISTINCT q.seq FROM touched q JOIN touched u "
            "ON u.binding = q.binding AND u.provider_record_id = q.provider_record_id "
            f"AND q.operation_type = 'query' AND {is_use('u.operation_type')} "
            "AND u.seq > q.seq AND u.started_at >= q.started_at "
            f"AND u.started_at <= q.started_at + to_seconds({seconds})"
        )


def _grouping_id(columns: Sequence[str], group: Sequence[str]) -> int:
    """The number that DuckDB gives the rows of a group: a bit for each column that is not in it."""
    return int("".join("0" if name in group else "1" for name in columns) or "0", 2)
