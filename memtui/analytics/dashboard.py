"""The default dashboard, painted from the partial figures of `memtui.analytics.partials`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from memtui.analytics.buckets import Bucket, begin_of, end_of
from memtui.analytics.engine import quoted
from memtui.analytics.figures import FAILED, Figures, Group, HitSign, Latency, Stats
from memtui.analytics.operations import text_of
from memtui.analytics.partials import KEYS, LATENCY_ERROR, NUMBERS, bin_value, merged
from memtui.contract import Model

if TYPE_CHECKING:
    import duckdb

_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_OF_BINDING = {"binding": "binding_key"}
_OF_TYPE = {"type": "operation_type"}
_OF_PROVIDER = {"provider": "provider"}


class Span(Model):
    """Which days, how cut."""

    bucket: Bucket
    zone: str
    since: date | None = None
    until: date | None = None

    def condition(self) -> str:
        """Return the SQL of the days in it."""
        parts = ["true"]
        if self.since is not None:
            parts.append(f"day >= {quoted(self.since.isoformat())}::DATE")
        if self.until is not None:
            parts.append(f"day < {quoted(self.until.isoformat())}::DATE")
        return " AND ".join(parts)


class Dashboard(Model):
    """What screen 6 shows first."""

    stats: Stats
    """Totals and bindings; `groups` are the buckets of time."""
    types: tuple[Group, ...]
    """By type of operation, without latency."""
    spending: tuple[Group, ...]
    """By bucket of time and provider: tokens, cost and usage only."""


def paint(
    cursor: duckdb.DuckDBPyConnection,
    parts: Sequence[dict[str, str]],
    span: Span,
    sign: HitSign,
) -> Dashboard:
    """Add the parts up.

    Args:
        cursor: A connection of its own.
        parts: The queries of the three tables, for each part of the log.
        span: Which days, how cut.
        sign: What makes a query a hit.
    """
    for table in KEYS:
        rows = " UNION ALL ".join(
            f"SELECT * FROM ({part[table]}) WHERE {span.condition()}" for part in parts
        )
        # Latencies are many and are added up for each question anyway.
        added = rows if table == "latency" else merged(table, rows)
        cursor.execute(f"CREATE OR REPLACE TEMP TABLE painted_{table} AS {added}")
    painter = _Painter(cursor, span, sign)
    [total] = painter.groups("totals", {}, timed=False)
    return Dashboard(
        stats=Stats(
            **{name: getattr(total, name) for name in Figures.model_fields},
            hit_sign=sign,
            latency_error=LATENCY_ERROR,
            bindings=painter.groups("totals", _OF_BINDING, timed=False),
            groups=painter.groups("totals", {}, timed=True),
        ),
        types=painter.groups("totals", _OF_TYPE, timed=False, latency=False),
        spending=painter.groups("spending", _OF_PROVIDER, timed=True, latency=False),
    )


class _Painter:
    def __init__(self, cursor: duckdb.DuckDBPyConnection, span: Span, sign: HitSign) -> None:
        self._cursor = cursor
        self._span = span
        self._sign = sign

    def groups(
        self, table: str, by: dict[str, str], *, timed: bool, latency: bool = True
    ) -> tuple[Group, ...]:
        """Return the figures by keys, in order."""
        keys = {f"key_{name}": column for name, column in by.items()}
        if timed:
            keys = {"bucket": f"date_trunc('{self._span.bucket}', day)::DATE"} | keys
        sums = [f"coalesce(sum({name}), 0) AS {name}" for name in NUMBERS[table]]
        if table == "totals":
            sums += [
                f"coalesce(sum(operation_count) FILTER ({condition}), 0) AS {name}"
                for name, condition in (
                    ("query_count", "operation_type = 'query'"),
                    ("write_count", "operation_type = 'write'"),
                    ("success_count", "status = 'ok'"),
                    ("failure_count", FAILED),
                    ("cancelled_count", "status = 'cancelled'"),
                )
            ]
        rows = self._rows(f"painted_{table}", keys, sums)
        percentiles = self._latencies(keys) if latency else {}
        names = tuple(keys)
        return tuple(
            self._group(row, by, percentiles.get(tuple(row[name] for name in names), Latency()))
            for row in rows
        )

    def _rows(self, table: str, keys: dict[str, str], sums: Sequence[str]) -> list[dict[str, Any]]:
        named = [f"{sql} AS {name}" for name, sql in keys.items()]
        grouped = f"GROUP BY {', '.join(keys)}" if keys else ""
        ordered = f"ORDER BY {', '.join(f'{key} NULLS LAST' for key in keys)}" if keys else ""
        return self._ask(f"SELECT {', '.join((*named, *sums))} FROM {table} {grouped} {ordered}")

    def _ask(self, sql: str) -> list[dict[str, Any]]:
        self._cursor.execute(sql)
        names = [str(column[0]) for column in self._cursor.description or []]
        return [dict(zip(names, row, strict=True)) for row in self._cursor.fetchall()]

    def _latencies(self, keys: dict[str, str]) -> dict[tuple[Any, ...], Latency]:
        """Interpolate percentiles between the bins that hold the neighbouring operations."""
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
        rows = self._ask(f"SELECT {outer}{', '.join(values)} FROM ({found})")
        return {
            tuple(row[name] for name in keys): Latency(**{name: row[name] for name in _SHARES})
            for row in rows
        }

    def _group(self, row: dict[str, Any], by: dict[str, str], latency: Latency) -> Group:
        counts = {name: int(row[name]) for name in Figures.model_fields if name in row}
        hits = "used_count" if self._sign is HitSign.USED else "score_count"
        begun = row.get("bucket")
        span = self._span
        return Group(
            **counts,
            hit_count=int(row.get(hits, 0)),
            cost_usd=Decimal(int(row["cost_pico"])).scaleb(-12),
            latency_ms=latency,
            keys={name: text_of(row[f"key_{name}"]) for name in by},
            begins=None if begun is None else begin_of(begun, span.zone),
            ends=None if begun is None else end_of(span.bucket, begun, span.zone),
        )
