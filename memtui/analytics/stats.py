"""Rollups over hot and sealed operations together (seed 000, "Cost And Evaluation")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memtui.analytics.buckets import Bucket, begin_of, bucket_of, end_of
from memtui.analytics.conditions import condition
from memtui.analytics.daily import Daily
from memtui.analytics.dashboard import Dashboard, Span, paint
from memtui.analytics.engine import Engine, guarded, quoted
from memtui.analytics.figures import USE_WITHIN, Figures, Group, HitSign, Latency, Stats
from memtui.analytics.layout import Manifest
from memtui.analytics.operations import text_of
from memtui.analytics.partials import is_use
from memtui.analytics.rows import Rows
from memtui.analytics.source import stored_text
from memtui.contract import Filter, Invalid
from memtui.store.database import Database

if TYPE_CHECKING:
    import duckdb

OF_OPERATION = {
    "company": "company_id",
    "agent": "agent_id",
    "project": "project_id",
    "binding": "binding_key",
    "type": "operation_type",
    "source_kind": "source_kind",
    "status": "status",
    "door": "door",
    "principal": "principal",
}
OF_USAGE = {"provider": "provider", "model": "model"}
"""Dimensions of what was consumed. An operation counts in each group that it used, and in the one
of None where it used nothing; tokens and cost count where they were spent."""

DIMENSIONS = OF_OPERATION | OF_USAGE

TOGETHER = 2_000_000
"""The longest log whose latencies are held in memory once for each of several cuts."""

_TOTALS = """
    count(*) AS operation_count,
    count(*) FILTER (operation_type = 'query') AS query_count,
    count(*) FILTER (operation_type = 'write') AS write_count,
    count(*) FILTER (operation_type = 'correct') AS correction_count,
    count(*) FILTER (status = 'ok') AS success_count,
    coalesce(sum(input_tokens), 0) AS input_tokens,
    coalesce(sum(output_tokens), 0) AS output_tokens,
    coalesce(sum(embedding_tokens), 0) AS embedding_tokens,
    coalesce(sum(cost_pico), 0) AS cost_pico,
    coalesce(sum(usage_count), 0) AS usage_count,
    coalesce(sum(unpriced_count), 0) AS unpriced_count,
    count(*) FILTER (answered) AS answered_count,
    count(*) FILTER (answered AND result_count = 0) AS empty_count,
    count(*) FILTER (answered AND hit) AS hit_count,
    quantile_cont(latency_ms, [0.5, 0.95, 0.99]) AS latency
"""
_SPENT = ("input_tokens", "output_tokens", "embedding_tokens", "cost_pico", "usage_count")
_NEEDED = (
    "seq",
    "started_at",
    "operation_type",
    "status",
    "result_count",
    "latency_ms",
    "best_score",
    "binding_key",
)


class Rollups:
    """The figures of one company's log. Blocking; close it when done."""

    def __init__(
        self,
        database: Database,
        root: Path,
        company_id: str,
        *,
        zone: str = "UTC",
        score_threshold: float = 0.5,
        thresholds: Mapping[str, float] | None = None,
        memory_mb: int = 512,
    ) -> None:
        """Set it up.

        Args:
            database: The control plane's.
            root: The archive folder of all companies.
            company_id: Whose log.
            zone: The IANA name of the zone that days are cut in.
            score_threshold: From this score on a returned record is a hit.
            thresholds: The same for single bindings, by key.
            memory_mb: What DuckDB may use.
        """
        self._engine = Engine(memory_mb=memory_mb)
        self._rows = Rows(database, root, company_id, self._engine)
        self._zone = zone
        self._threshold = score_threshold
        self._thresholds = dict(thresholds or {})
        self._daily = Daily(
            root,
            self._rows,
            zone=zone,
            good_score=self.good_score(),
            depends={"threshold": score_threshold, "thresholds": self._thresholds},
        )

    def stats(
        self,
        chosen: Filter | None = None,
        *,
        by: Sequence[str] = (),
        bucket: Bucket | None = None,
        hit_sign: HitSign | None = None,
    ) -> Stats:
        """Return the figures of the operations that a filter lets through.

        Args:
            chosen: The filter; None is everything.
            by: Names of `DIMENSIONS` to group by.
            bucket: How to cut time; None does not.
            hit_sign: What makes a query a hit; None is `USED` where the log has any opening of a
                record, else `SCORE`.

        Raises:
            Invalid: a name of `by` is no dimension.
            Unavailable: the log cannot be read.
        """
        for name in by:
            if name not in DIMENSIONS:
                raise Invalid(f"There is no dimension {name}; choose {', '.join(DIMENSIONS)}.")
        manifest, last = self._rows.refresh()
        with guarded():
            cursor = self._engine.cursor()
            try:
                sign = hit_sign or self._sign(cursor, manifest)
                where = condition(chosen or Filter())
                ask = _Question(self, cursor, (manifest, last), where, sign)
                cuts = [Cut(), Cut(("binding",)), Cut(tuple(by), bucket)]
                found = ask.groups(cuts if by or bucket else cuts[:2])
                [total] = found[0]
                return Stats(
                    **_own(total),
                    hit_sign=sign,
                    bindings=found[1],
                    groups=found[2] if by or bucket else (),
                )
            finally:
                cursor.close()

    def close(self) -> None:
        """Free the memory."""
        self._engine.close()

    def dashboard(
        self,
        bucket: Bucket = Bucket.DAY,
        *,
        since: date | None = None,
        until: date | None = None,
        hit_sign: HitSign | None = None,
    ) -> Dashboard:
        """Return the figures of whole days, from partial figures made once a sealed segment.

        They equal those of `stats`, except for percentiles of latency, which may be off by
        `Stats.latency_error` of themselves.

        Args:
            bucket: How to cut time; an hour is too short.
            since: The first local day; None is the log's first.
            until: The local day after the last; None is the log's last.
            hit_sign: As in `stats`.

        Raises:
            Invalid: the bucket is an hour.
            Unavailable: the log cannot be read, or the figures cannot be kept beside it.
        """
        if bucket is Bucket.HOUR:
            raise Invalid("The dashboard has days, weeks and months; ask stats for hours.")
        manifest, last = self._rows.refresh()
        with guarded():
            cursor = self._engine.cursor()
            try:
                sign = hit_sign or self._sign(cursor, manifest)
                sealed = self._daily.tables(cursor, manifest)
                hot = self._daily.hot(cursor, manifest, last)
                return paint(
                    cursor,
                    [hot, sealed] if sealed else [hot],
                    Span(bucket=bucket, zone=self._zone, since=since, until=until),
                    sign,
                )
            finally:
                cursor.close()

    def prepare(self) -> None:
        """Make the partial figures of what is sealed, so that the next dashboard need not."""
        manifest, _ = self._rows.place()
        with guarded():
            cursor = self._engine.cursor()
            try:
                self._daily.tables(cursor, manifest)
            finally:
                cursor.close()

    @property
    def rows(self) -> Rows:
        """What the figures are made of."""
        return self._rows

    @property
    def zone(self) -> str:
        """The zone that days are cut in."""
        return self._zone

    def good_score(self) -> str:
        """Return the SQL of whether a query's best score reaches its binding's threshold."""
        single = " ".join(
            f"WHEN {quoted(stored_text(key))} THEN {value!r}"
            for key, value in self._thresholds.items()
        )
        limit = (
            f"CASE binding_key {single} ELSE {self._threshold!r} END"
            if single
            else repr(self._threshold)
        )
        return f"coalesce(best_score >= {limit}, false)"

    def _sign(self, cursor: duckdb.DuckDBPyConnection, manifest: Manifest) -> HitSign:
        uses = self._rows.everything(manifest, "handles", "1", is_use("operation_type"))
        found = cursor.execute(f"SELECT 1 FROM ({uses}) LIMIT 1").fetchone()
        return HitSign.USED if found else HitSign.SCORE


class Cut(NamedTuple):
    """By which dimensions and how in time figures are cut; by neither, all are one group."""

    by: tuple[str, ...] = ()
    bucket: Bucket | None = None

    @property
    def of_usage(self) -> bool:
        """Whether it takes the usage of an operation apart."""
        return any(name in OF_USAGE for name in self.by)

    def columns(self, zone: str) -> dict[str, str]:
        """Return the SQL of each column that groups have in common, by name, in their order."""
        time = {} if self.bucket is None else {f"by_{self.bucket}": bucket_of(self.bucket, zone)}
        return time | {f"key_{name}": DIMENSIONS[name] for name in self.by}


class _Question:
    """One filter over one state of the log."""

    def __init__(
        self,
        rollups: Rollups,
        cursor: duckdb.DuckDBPyConnection,
        state: tuple[Manifest, int],
        where: str,
        sign: HitSign,
    ) -> None:
        self._rollups = rollups
        self._cursor = cursor
        self._manifest, self._last = state
        self._where = where
        self._sign = sign
        if sign is HitSign.USED:
            cursor.execute(f"CREATE OR REPLACE TEMP TABLE used AS {self._used()}")

    def groups(self, cuts: Sequence[Cut]) -> list[tuple[Group, ...]]:
        """Return the groups of each cut, in order.

        A log of up to `TOGETHER` operations is read once for all cuts of operations, a longer one
        once for each cut: exact percentiles hold every latency in memory, as often as it is cut.
        """
        together = [cut for cut in cuts if not cut.of_usage and self._last <= TOGETHER]
        found = dict(zip(together, self._read(together), strict=True)) if together else {}
        return [found[cut] if cut in found else self._read([cut])[0] for cut in cuts]

    def _read(self, cuts: Sequence[Cut]) -> list[tuple[Group, ...]]:
        columns: dict[str, str] = {}
        for cut in cuts:
            columns |= cut.columns(self._rollups.zone)
        names = tuple(columns)
        named = "".join(f"{sql} AS {name}, " for name, sql in columns.items())
        own = [tuple(cut.columns(self._rollups.zone)) for cut in cuts]
        sets = ", ".join(f"({', '.join(group)})" for group in dict.fromkeys(own))
        which = f"grouping_id({', '.join(names)})" if names else "0"
        order = "".join(f", {name} NULLS LAST" for name in names)
        dimensions = dict.fromkeys(name for cut in cuts for name in cut.by)
        self._cursor.execute(
            f"SELECT {''.join(f'{name}, ' for name in names)}{which} AS cut, {_TOTALS} "
            f"FROM (SELECT {named}* FROM ({self._operations(tuple(dimensions))})) "
            f"GROUP BY GROUPING SETS ({sets}) ORDER BY cut{order}"
        )
        described = [str(column[0]) for column in self._cursor.description or []]
        rows = [dict(zip(described, row, strict=True)) for row in self._cursor.fetchall()]
        ids = [_grouping_id(names, group) for group in own]
        return [
            tuple(self._group(row, cut.by, cut.bucket) for row in rows if row["cut"] == number)
            for cut, number in zip(cuts, ids, strict=True)
        ]

    def _group(self, row: dict[str, Any], by: tuple[str, ...], bucket: Bucket | None) -> Group:
        latency = row["latency"] or [None, None, None]
        counts = {name: int(row[name]) for name in Figures.model_fields if name in row}
        counts["failure_count"] = counts["operation_count"] - counts["success_count"]
        begun = row.get(f"by_{bucket}")
        zone = self._rollups.zone
        return Group(
            **counts,
            cost_usd=Decimal(int(row["cost_pico"])).scaleb(-12),
            latency_ms=Latency(p50=latency[0], p95=latency[1], p99=latency[2]),
            keys={name: text_of(row[f"key_{name}"]) for name in by},
            begins=None if begun is None or bucket is None else begin_of(begun, zone),
            ends=None if begun is None or bucket is None else end_of(bucket, begun, zone),
        )

    def _operations(self, by: tuple[str, ...]) -> str:
        """The operations with what `_TOTALS` needs, once for each group of usage they are in."""
        of_usage = [OF_USAGE[name] for name in by if name in OF_USAGE]
        spent = () if of_usage else (*_SPENT, "unpriced_count")
        dimensions = [OF_OPERATION[name] for name in by if name in OF_OPERATION]
        columns = ", ".join(dict.fromkeys((*_NEEDED, *dimensions, *spent)))
        rows = self._rollups.rows
        everything = rows.everything(
            self._manifest, "operations", columns, self._where, last=self._last
        )
        judged = (
            f"SELECT *, operation_type = 'query' AND status = 'ok' AS answered, "
            f"{self._hit()} AS hit FROM ({everything})"
        )
        if not of_usage:
            return judged
        usage = rows.everything(self._manifest, "usage", "*")
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
            return self._rollups.good_score()
        return "seq IN (SELECT seq FROM used)"

    def _used(self) -> str:
        """The queries of which a record was opened later, soon enough and through any door."""
        rows = self._rollups.rows
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


def _own(group: Group) -> dict[str, Any]:
    return {name: getattr(group, name) for name in Figures.model_fields}
