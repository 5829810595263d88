"""The columns of the sealed files, and of the copy of the hot rows: the same in both.

They are the control plane's own columns with these differences. `started_at` is a timestamp in
UTC. Money is `cost_pico`, a whole number of 1e-12 US dollars, NULL where unpriced. An operation
also has the sums of its usage (`input_tokens`, `output_tokens`, `embedding_tokens`, `cost_pico`,
`usage_count`, `unpriced_count`) and of its handles (`handle_count`, `best_score`), so that most
questions need no join. A sum beyond 2**63 - 1 stands at that number. Text that Parquet cannot hold
is escaped as in the database (`memtui.store.columns.ForeignText`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memtui.analytics.source import Source, columns_of, company_rows

RAW = {"operations": "raw_operations", "usage": "raw_usage", "handles": "raw_handles"}
"""DuckDB tables that rows of the control plane's tables arrive in, as they are."""

_LARGEST = 2**63 - 1


def create_raw(duck: Any, only: Mapping[str, Sequence[str]] | None = None) -> None:
    """Create the empty tables that rows arrive in, with all columns or `only` these by table."""
    for table, name in RAW.items():
        kinds = columns_of(table)
        names = kinds if only is None else only[table]
        columns = ", ".join(f"{column} {kinds[column]}" for column in names)
        duck.execute(f"CREATE OR REPLACE TABLE {name} ({columns})")


def load_raw(
    duck: Any,
    source: Source,
    company_id: str,
    first: int,
    last: int,
    *,
    only: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Put the rows of a range of operations, ends included, in place of those that arrived."""
    create_raw(duck, only)
    for table, name in RAW.items():
        names = tuple(columns_of(table)) if only is None else only[table]
        source.copy_into(duck, name, table, company_rows(company_id, first, last), names)


def _sum(column: str) -> str:
    # Not least(): that takes the number where the sum is NULL.
    return f"(CASE WHEN sum({column}) > {_LARGEST} THEN {_LARGEST} ELSE sum({column}) END)::BIGINT"


SELECTS = {
    "operations": f"""
        SELECT o.* REPLACE (make_timestamptz(o.started_at) AS started_at),
            coalesce(u.input_tokens, 0) AS input_tokens,
            coalesce(u.output_tokens, 0) AS output_tokens,
            coalesce(u.embedding_tokens, 0) AS embedding_tokens,
            u.cost_pico, coalesce(u.usage_count, 0) AS usage_count,
            coalesce(u.unpriced_count, 0) AS unpriced_count,
            coalesce(h.handle_count, 0) AS handle_count, h.best_score
        FROM raw_operations o
        LEFT JOIN (
            SELECT seq, {_sum("input_tokens")} AS input_tokens,
                {_sum("output_tokens")} AS output_tokens,
                {_sum("embedding_tokens")} AS embedding_tokens, {_sum("cost_usd")} AS cost_pico,
                count(*) AS usage_count, count(*) - count(cost_usd) AS unpriced_count
            FROM raw_usage GROUP BY seq
        ) u ON u.seq = o.seq
        LEFT JOIN (
            SELECT seq, count(*) AS handle_count, max(score) AS best_score
            FROM raw_handles GROUP BY seq
        ) h ON h.seq = o.seq
        ORDER BY o.seq
    """,
    "usage": "SELECT * RENAME (cost_usd AS cost_pico) FROM raw_usage ORDER BY seq, ordinal",
    "handles": "SELECT * FROM raw_handles ORDER BY seq, rank",
}
"""From the rows that arrived to the rows that are kept, by table."""
