"""What can be added up: the figures of some operations by day, in three small tables.

`totals` by day, binding, type and status; `spending` by day, provider and model; `latency` by day,
binding and bin. Rows of the same keys may come from several parts of the log; their numbers are
added. A bin holds latencies that differ by 1 %, so that a percentile made of bins is off by at
most `LATENCY_ERROR` of itself.
"""

from __future__ import annotations

from datetime import timedelta

from memtui.analytics.buckets import Bucket, bucket_of
from memtui.analytics.engine import quoted
from memtui.analytics.figures import BY_HAND, USE_WITHIN, USES

_WIDTH = 1.01
LATENCY_ERROR = (_WIDTH - 1) / (_WIDTH + 1)
"""How far a percentile made of bins may be off, as a share of it."""

_ZERO_BIN = -(2**31)
_EXACT = "DECIMAL(38, 0)"

KEYS = {
    "totals": ("day", "binding_key", "operation_type", "status"),
    "spending": ("day", "provider", "model"),
    "latency": ("day", "binding_key", "bin"),
}
_SPENT = ("input_tokens", "output_tokens", "embedding_tokens", "cost_pico", "usage_count",
          "unpriced_count")  # fmt: skip
NUMBERS = {
    "totals": ("operation_count", *_SPENT, "correction_count", "answered_count", "empty_count",
               "score_count", "used_count"),
    "spending": _SPENT,
    "latency": ("operation_count",),
}  # fmt: skip


def bin_value(column: str) -> str:
    """Return the SQL of the latency in milliseconds that a bin stands for."""
    value = f"{2 / (_WIDTH + 1)!r} * pow({_WIDTH}, {column})"
    return f"CASE WHEN {column} = {_ZERO_BIN} THEN 0.0 ELSE {value} END"


def is_use(column: str) -> str:
    """Return the SQL of whether an operation of this type opens a record."""
    return f"{column} IN ({', '.join(quoted(kind) for kind in USES)})"


def merged(table: str, rows: str) -> str:
    """Return the query that adds up rows of the same keys."""
    keys = ", ".join(KEYS[table])
    kind = "BIGINT" if table == "latency" else _EXACT
    sums = ", ".join(f"sum({name})::{kind} AS {name}" for name in NUMBERS[table])
    return f"SELECT {keys}, {sums} FROM ({rows}) GROUP BY {keys}"


def partials(
    operations: str, usage: str, opened: str, *, zone: str, good_score: str
) -> dict[str, str]:
    """Return the query of each table, over some operations.

    Args:
        operations: Query of the operations.
        usage: Query of their usage.
        opened: Query of the `seq` to count as used among all operations, see `first_opened`,
            with the operation's columns.
        zone: The IANA name of the zone that days are cut in.
        good_score: SQL of whether a query's best score reaches the threshold.
    """
    day = bucket_of(Bucket.DAY, zone)
    answered = "operation_type = 'query' AND status = 'ok'"
    spent = ", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in _SPENT)
    none = ", ".join(f"0 AS {name}" for name in NUMBERS["totals"] if name != "used_count")
    keys = "binding_key, operation_type, status"
    return {
        "totals": merged(
            "totals",
            f"SELECT {day} AS day, {keys}, count(*) AS operation_count, {spent}, "
            f"count(*) FILTER ({BY_HAND}) AS correction_count, "
            f"count(*) FILTER ({answered}) AS answered_count, "
            f"count(*) FILTER ({answered} AND result_count = 0) AS empty_count, "
            f"count(*) FILTER ({answered} AND {good_score}) AS score_count, 0 AS used_count "
            f"FROM ({operations}) GROUP BY ALL UNION ALL BY NAME "
            f"SELECT {day} AS day, {keys}, {none}, count(*) AS used_count "
            f"FROM ({opened}) GROUP BY ALL",
        ),
        "spending": merged(
            "spending",
            f"SELECT {day} AS day, provider, model, u.input_tokens, u.output_tokens, "
            "u.embedding_tokens, coalesce(u.cost_pico, 0) AS cost_pico, 1 AS usage_count, "
            "CASE WHEN u.cost_pico IS NULL THEN 1 ELSE 0 END AS unpriced_count "
            f"FROM ({usage}) u JOIN (SELECT seq, started_at FROM ({operations})) USING (seq)",
        ),
        "latency": merged(
            "latency",
            f"SELECT {day} AS day, binding_key, {_BIN} AS bin, 1 AS operation_count "
            f"FROM ({operations}) WHERE latency_ms IS NOT NULL",
        ),
    }


_BIN = (
    f"CASE WHEN latency_ms > 0 THEN ceil(ln(latency_ms) / ln({_WIDTH}))::INTEGER "
    f"ELSE {_ZERO_BIN} END"
)


def first_opened(operations: str, handles: str, first: int) -> str:
    """Return the query of the answered queries whose records were first opened from `first` on.

    Args:
        operations: Query of the operations that openings and their queries are among.
        handles: Query of their handles.
        first: The lowest `seq` of an opening that counts; one below it counted before.
    """
    seconds = USE_WITHIN // timedelta(seconds=1)
    return (
        f"WITH moments AS (SELECT * FROM ({operations}) WHERE status = 'ok' "
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
