"""Rollups over hot and sealed operations together (seed 000, "Cost And Evaluation").

Every figure is a sum over rows with `NUMBERS`: one row per operation for the exact figures of any
filter (`stats`), or one row for a day's operations of one kind for the dashboard, computed once per
sealed segment (`memtui.analytics.daily`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from memtui.analytics.daily import LATENCY_ERROR, Daily, bin_value, first_opened, merged
from memtui.analytics.figures import (
    ACCEPTED,
    DIMENSIONS,
    NUMBERS,
    OF_OPERATION,
    OF_USAGE,
    SPENT,
    TOKENS,
    Bucket,
    Cut,
    FigureGroup,
    Figures,
    HitSign,
    Latency,
    Stats,
    begin_of,
    end_of,
    is_use,
    last_words,
    numbers_of,
)
from memtui.analytics.layout import Manifest
from memtui.analytics.rows import LogDatabase, State, text_of
from memtui.analytics.source import stored_text
from memtui.contract import EVERYTHING, Filter, Invalid, Model
from memtui.store.conditions import condition
from memtui.store.database import quoted
from memtui.store.operation import INTERNAL

if TYPE_CHECKING:
    import duckdb

TOGETHER = 2_000_000
"""The longest log for which several cuts are computed at once, with all latencies in memory."""

MEMORY_MB = 512
"""The memory for the exact figures of ten million operations; log views need less."""

_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_NEEDED = ("seq", "started_at", "operation_type", "status", "principal", "result_count",
           "latency_ms", "best_score", "binding_key")  # fmt: skip
_SAID = "seq, started_at, operation_type, status, principal, request, binding_key, best_score"


class Dashboard(Model):
    """The figures that screen 6 shows first."""

    stats: Stats
    """Totals and bindings; `groups` are the time buckets."""
    spending: tuple[FigureGroup, ...]
    """Tokens, cost and usage only, by time bucket and provider; groups without usage are absent."""


class Rollups:
    """The figures of one company's log. Blocking."""

    short = 40_000
    """Up to this many operations, exact figures are faster than those by day."""

    def __init__(
        self,
        log: LogDatabase,
        *,
        zone: str = "UTC",
        score_threshold: float = 0.5,
        thresholds: Mapping[str, float] | None = None,
    ) -> None:
        """Create for a log; `score_threshold`, or that in `thresholds` by binding, makes a hit."""
        self.log = log
        log.allow(MEMORY_MB)
        self._zone = zone
        single = "".join(
            f" WHEN {quoted(stored_text(key))} THEN {value!r}"
            for key, value in (thresholds or {}).items()
        )
        limit = f"CASE binding_key{single} ELSE {score_threshold!r} END"
        self._good_score = (
            f"coalesce(best_score >= {limit if single else repr(score_threshold)}, false)"
        )
        self._daily = Daily(
            log,
            zone=zone,
            good_score=self._good_score,
            depends={"threshold": score_threshold, "thresholds": dict(thresholds or {})},
        )

    def stats(
        self,
        chosen: Filter | None = None,
        *,
        by: Sequence[str] = (),
        bucket: Bucket | None = None,
        hit_sign: HitSign | None = None,
    ) -> Stats:
        """Return the exact figures of the operations that match a filter.

        Args:
            chosen: The filter; None: everything.
            by: Names of `DIMENSIONS` to group by.
            bucket: The time bucket to group by; None: no buckets.
            hit_sign: What makes a query a hit; None: `USED` if the log has any opening of a record,
                else `SCORE`.

        Raises:
            Invalid: a name of `by` is not a dimension.
            Unavailable: the log cannot be read.
        """
        for name in by:
            if name not in DIMENSIONS:
                raise Invalid(f"There is no dimension {name}; choose from {', '.join(DIMENSIONS)}.")
        cuts = (Cut(tuple(by), bucket),) if by or bucket else ()
        with self.log.reading() as state:
            stats, groups = self._exact(state, chosen or EVERYTHING, hit_sign, cuts)
        return stats.model_copy(update={"groups": groups[0]}) if groups else stats

    def _exact(
        self, state: State, chosen: Filter, hit_sign: HitSign | None, cuts: Sequence[Cut]
    ) -> tuple[Stats, list[tuple[FigureGroup, ...]]]:
        """Return the total figures with those by binding, and the groups of each cut."""
        cursor, manifest, last = state
        sign = hit_sign or self._sign(cursor, manifest)
        asked = _Exact(self, state, condition(chosen), sign)
        [total], bindings, *groups = asked.groups((Cut(), Cut(("binding",)), *cuts))
        left_out = 0
        if chosen.excludes_internal:
            where = " AND ".join(filter(None, (INTERNAL, condition(chosen.with_internal()))))
            internal = self.log.everything(manifest, "operations", "1", where, last=last)
            [(left_out,)] = cursor.execute(f"SELECT count(*) FROM ({internal})").fetchall()
        stats = _answer(total, sign, bindings)
        return stats.model_copy(update={"left_out_count": left_out, "last_seq": last}), groups

    def dashboard(
        self,
        bucket: Bucket = Bucket.DAY,
        *,
        since: date | None = None,
        until: date | None = None,
        before: datetime | None = None,
        hit_sign: HitSign | None = None,
    ) -> Dashboard:
        """Return the figures of whole days; for a long log, from the figures by day.

        They equal those of `stats`, except for percentiles of latency, which may be off by
        `Stats.latency_error` of themselves.

        Args:
            bucket: The time bucket; not an hour.
            since: The first local day; None: the log's first.
            until: The local day after the last; None: after the log's last.
            before: Leave out operations that began at this moment or later. It may be within a day,
                so the figures by day are not used then.
            hit_sign: As in `stats`.

        Raises:
            Invalid: the bucket is an hour.
            Unavailable: the log cannot be read, or the figures by day cannot be cached.
        """
        if bucket is Bucket.HOUR:
            raise Invalid("The dashboard shows days, weeks and months; `memtui stats` shows hours.")
        with self.log.reading() as state:
            cursor, manifest, last = state
            if before is not None or last <= self.short:
                begin, end = (day and begin_of(day, self._zone) for day in (since, until))
                ends = (one for one in (end, before) if one is not None)
                chosen = Filter(since=begin, until=min(ends, default=None))
                cuts = (Cut(bucket=bucket), Cut(("provider",), bucket))
                stats, (groups, spending) = self._exact(state, chosen, hit_sign, cuts)
                spent = tuple(one for one in spending if one.usage_count)
                return Dashboard(stats=stats.model_copy(update={"groups": groups}), spending=spent)
            days = " AND ".join(
                f"day {sign} {quoted(day.isoformat())}::DATE"
                for sign, day in ((">=", since), ("<", until))
                if day is not None
            )
            sign = hit_sign or self._sign(cursor, manifest)
            return self._painted(state, days, sign, bucket)

    def _painted(self, state: State, days: str, sign: HitSign, bucket: Bucket) -> Dashboard:
        """Return the dashboard from the figures by day; `days`: a condition on `day`, or empty."""
        cursor, manifest, last = state
        left_out = 0
        kept = self._daily.rows(cursor, manifest, last)
        kept["totals"] += f" UNION ALL BY NAME {self._daily.said(self.feedback(manifest))}"
        for table, rows in kept.items():
            of_days = f"SELECT * FROM ({rows}) WHERE {days or 'true'}"
            chosen = f"{of_days} AND NOT internal"
            if table == "totals":
                internal = f"SELECT coalesce(sum(operation_count), 0) FROM ({of_days} AND internal)"
                [(left_out,)] = cursor.execute(internal).fetchall()
            # Not merged for latencies: their many rows are added up in each query anyway.
            added = chosen if table == "latency" else merged(table, chosen)
            cursor.execute(f"CREATE OR REPLACE TEMP TABLE painted_{table} AS {added}")
        painted = _Painted(cursor, self._zone, sign)
        [total] = painted.groups("totals", Cut())
        stats = _answer(total, sign, painted.groups("totals", Cut(("binding",))))
        found = {
            "groups": painted.groups("totals", Cut(bucket=bucket)),
            "latency_error": LATENCY_ERROR,
            "left_out_count": int(left_out),
            "last_seq": last,
        }
        return Dashboard(
            stats=stats.model_copy(update=found),
            spending=painted.groups("spending", Cut(("provider",), bucket), latency=False),
        )

    def prepare(self) -> None:
        """Cache the figures by day of the sealed operations, if the next dashboard needs them."""
        manifest, ends = self.log.place()
        if ends.head > self.short:
            with self.log.asking() as cursor:
                self._daily.sealed_rows(cursor, manifest)

    def feedback(self, manifest: Manifest) -> str:
        """Return the query of the last verdicts on results (`last_words`)."""
        of_words = "operation_type = 'feedback'"
        operations = self.log.everything(manifest, "operations", _SAID, of_words)
        handles = self.log.everything(
            manifest, "handles", "seq, binding_key AS at_binding, provider_record_id", of_words
        )
        return last_words(operations, handles)

    def _sign(self, cursor: duckdb.DuckDBPyConnection, manifest: Manifest) -> HitSign:
        used = is_use("operation_type")
        uses = self.log.everything(manifest, "operations", "seq", f"{used} AND NOT {INTERNAL}")
        # Reads without handles, such as those of a replay, open no record.
        opened = self.log.everything(manifest, "handles", "seq", used)
        both = f"SELECT 1 FROM ({uses}) SEMI JOIN ({opened}) USING (seq) LIMIT 1"
        found = cursor.execute(both).fetchone()
        return HitSign.USED if found else HitSign.SCORE


def _answer(total: FigureGroup, sign: HitSign, bindings: tuple[FigureGroup, ...]) -> Stats:
    own = {name: getattr(total, name) for name in Figures.model_fields}
    return Stats(**own, hit_sign=sign, bindings=bindings)


def _group(
    row: Mapping[str, Any], cut: Cut, zone: str, latency: Mapping[str, float]
) -> FigureGroup:
    """Return the group of a row, which has the sums and the columns of its cut."""
    begun = None if cut.bucket is None else row[f"by_{cut.bucket}"]
    return FigureGroup(
        **{name: int(row[name]) for name in Figures.model_fields if name in row},
        cost_usd=Decimal(int(row["cost_pico"])).scaleb(-12),
        latency_ms=Latency(**latency),
        keys={name: text_of(row[f"key_{name}"]) for name in cut.by},
        begins=None if begun is None else begin_of(begun, zone),
        ends=None if begun is None or cut.bucket is None else end_of(cut.bucket, begun, zone),
    )


def _asked(cursor: duckdb.DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    cursor.execute(sql)
    names = [str(column[0]) for column in cursor.description or []]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _sums(names: Sequence[str]) -> str:
    return ", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in names)


class _Exact:
    """Computes exact figures from the rows of the operations that match a filter."""

    def __init__(self, rows: Rollups, state: State, where: str, sign: HitSign) -> None:
        """Create for a state of the log; `where`: the SQL of a filter, empty for all."""
        self._rows = rows
        self._cursor, self._manifest, self._last = state
        self._where = where
        self._hit = rows._good_score  # noqa: SLF001 — its own part
        self._zone = rows._zone  # noqa: SLF001
        self._cursor.execute(
            f"CREATE OR REPLACE TEMP TABLE said AS {rows.feedback(self._manifest)}"
        )
        if sign is HitSign.USED:
            self._cursor.execute(f"CREATE OR REPLACE TEMP TABLE used AS {self._used()}")
            self._hit = "seq IN (SELECT seq FROM used)"
        accepted = rows.log.everything(self._manifest, "operations", "seq", ACCEPTED)
        self._cursor.execute(f"CREATE OR REPLACE TEMP TABLE accepted AS {accepted}")
        self._numbers = numbers_of(
            self._hit,
            accepted="SELECT seq FROM accepted",
            last_word="seq IN (SELECT seq FROM said)",
        )

    def groups(self, cuts: Sequence[Cut]) -> list[tuple[FigureGroup, ...]]:
        """Return the groups of each cut, in order.

        A log of up to `TOGETHER` operations is read once for all cuts of operations, a longer one
        once for each cut: exact percentiles need every latency in memory, once per cut.
        """
        together = [cut for cut in cuts if not cut.of_usage and self._last <= TOGETHER]
        found = dict(zip(together, self._read(together), strict=True)) if together else {}
        for cut in cuts:
            if cut not in found:
                [found[cut]] = self._read([cut])
        return [found[cut] for cut in cuts]

    def _read(self, cuts: Sequence[Cut]) -> list[tuple[FigureGroup, ...]]:
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
        rows = _asked(
            self._cursor,
            f"SELECT {''.join(f'{name}, ' for name in names)}{which} AS cut, {_sums(NUMBERS)}, "
            f"quantile_cont(latency_ms, {list(_SHARES.values())}) AS latency "
            f"FROM {source} GROUP BY GROUPING SETS ({sets}) ORDER BY cut{order}",
        )
        ids = [_grouping_id(names, group) for group in own]
        return [
            tuple(
                _group(row, cut, self._zone, dict(zip(_SHARES, row["latency"] or (), strict=False)))
                for row in rows
                if row["cut"] == number
            )
            for cut, number in zip(cuts, ids, strict=True)
        ]

    def _joined(self, named: str, dimensions: tuple[str, ...]) -> str:
        """Make a table of the operations joined to their usage, one part of the log after another.

        Joined at once, a long log does not fit into memory and is spilled several times over.
        """
        for first in range(1, self._last + 1, TOGETHER):
            part = self._operations(dimensions, f"seq BETWEEN {first} AND {first + TOGETHER - 1}")
            rows = f"SELECT {named}* EXCLUDE (seq, started_at) FROM ({part})"
            make = "CREATE OR REPLACE TEMP TABLE joined AS" if first == 1 else "INSERT INTO joined"
            self._cursor.execute(f"{make} {rows}")
        return "joined"

    def _operations(self, by: tuple[str, ...], within: str = "") -> str:
        """Return the query of operations with their `NUMBERS`, once for each group of usage.

        `within` is a condition on `seq`.
        """
        of_usage = [OF_USAGE[name] for name in by if name in OF_USAGE]
        spent = () if of_usage else SPENT
        dimensions = [column for name in by for column in OF_OPERATION.get(name, ())]
        columns = ", ".join(dict.fromkeys((*_NEEDED, *dimensions, *spent)))
        kept = ", ".join(dict.fromkeys(("seq", "started_at", "latency_ms", *dimensions, *spent)))
        where = " AND ".join(filter(None, (self._where, within)))
        everything = self._rows.log.everything(
            self._manifest, "operations", columns, where, last=self._last
        )
        # Only numbers are joined to the usage, as texts would make the rows several times as wide.
        judged = f"SELECT {kept}, {self._numbers} FROM ({everything})"
        if not of_usage:
            return judged
        split = ", ".join(of_usage)
        spent_on = f"seq, {split}, {', '.join(TOKENS)}, cost_pico"
        usage = self._rows.log.everything(self._manifest, "usage", spent_on, within)
        return (
            f"SELECT o.*, u.* EXCLUDE (seq) FROM ({judged}) o LEFT JOIN ("
            f"SELECT seq, {split}, sum(input_tokens) AS input_tokens, "
            "sum(output_tokens) AS output_tokens, sum(embedding_tokens) AS embedding_tokens, "
            "sum(cost_pico) AS cost_pico, count(*) AS usage_count, "
            "count(*) - count(cost_pico) AS unpriced_count "
            f"FROM ({usage}) GROUP BY seq, {split}) u ON u.seq = o.seq"
        )

    def _used(self) -> str:
        """Return the query of the queries with a record that was opened soon after (`USED`)."""
        of_reads = f"operation_type = 'query' OR {is_use('operation_type')}"
        opening = "seq, started_at, operation_type, status"
        operations, handles = (
            self._rows.log.everything(self._manifest, table, columns, of_reads)
            for table, columns in (
                ("operations", f"{opening}, channel, to_show"),
                ("handles", "seq, binding_key, provider_record_id"),
            )
        )
        return f"SELECT seq FROM ({first_opened(operations, handles, 1)})"


def _grouping_id(columns: Sequence[str], group: Sequence[str]) -> int:
    """Return DuckDB's `grouping_id` of a group: a bit for each column that is not in it."""
    return int("".join("0" if name in group else "1" for name in columns) or "0", 2)


class _Painted:
    """Computes figures from those by day, in the tables `painted_*` of a cursor."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, zone: str, sign: HitSign) -> None:
        self._cursor = cursor
        self._zone = zone
        self._sign = sign

    def groups(self, table: str, cut: Cut, *, latency: bool = True) -> tuple[FigureGroup, ...]:
        """Return the figures of a table grouped by a cut, in order."""
        keys = cut.columns_of_days()
        named = "".join(f"{sql} AS {name}, " for name, sql in keys.items())
        grouped = f"GROUP BY {', '.join(keys)}" if keys else ""
        ordered = f"ORDER BY {', '.join(f'{key} NULLS LAST' for key in keys)}" if keys else ""
        hits = f"{self._sign}_count AS hit_count, *" if table == "totals" else "*"
        sums = _sums(NUMBERS if table == "totals" else SPENT)
        rows = _asked(
            self._cursor,
            f"SELECT {named}{sums} FROM (SELECT {hits} FROM painted_{table}) {grouped} {ordered}",
        )
        percentiles = self._latencies(keys) if latency else {}
        return tuple(
            _group(
                row,
                cut,
                self._zone,
                percentiles.get(tuple(row[name] for name in keys), {}),
            )
            for row in rows
        )

    def _latencies(self, keys: dict[str, str]) -> dict[tuple[Any, ...], dict[str, float]]:
        """Return percentiles by group, interpolated between the bins of the neighbouring ranks."""
        named = "".join(f"{sql} AS {name}, " for name, sql in keys.items())
        group = ", ".join((*keys, "bin"))
        apart = f"PARTITION BY {', '.join(keys)}" if keys else ""
        ends, values = [], []
        for name, share in _SHARES.items():
            place = f"({share!r}::DOUBLE * (total - 1))"
            for end in ("floor", "ceil"):
                within = f"until - n <= {end}({place}) AND {end}({place}) < until"
                ends.append(f"max(bin) FILTER ({within}) AS {name}_{end}")
            low, high = (bin_value(f"{name}_{end}") for end in ("floor", "ceil"))
            part = f"({place} - floor({place}))"
            values.append(f"(1 - {part}) * ({low}) + {part} * ({high}) AS {name}")
        counted = (
            f"SELECT {named}bin, sum(operation_count)::BIGINT AS n "
            f"FROM painted_latency GROUP BY {group}"
        )
        added = (
            f"SELECT *, sum(n) OVER ({apart} ORDER BY bin)::BIGINT AS until, "
            f"sum(n) OVER ({apart})::BIGINT AS total FROM ({counted})"
        )
        outer = "".join(f"{key}, " for key in keys)
        grouped = f"GROUP BY {', '.join(keys)}" if keys else ""
        found = (
            f"SELECT {outer}any_value(total) AS total, {', '.join(ends)} FROM ({added}) {grouped}"
        )
        rows = _asked(self._cursor, f"SELECT {outer}{', '.join(values)} FROM ({found})")
        return {
            tuple(row[name] for name in keys): {name: row[name] for name in _SHARES} for row in rows
        }
