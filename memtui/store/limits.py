"""Spending limits of a company, and the spending of its hot operations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memtui.store import statements
from memtui.store.database import DatabaseConnection
from memtui.store.rows import SpendingLimitRow

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

_TOKENS = ("input_tokens", "output_tokens", "embedding_tokens")
HALF = 1_000_000_000
"""Numbers are summed in two halves, as a sum beyond 63 bits fails in SQLite."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The usage of one agent in one project through one binding."""

    agent_id: str | None
    project_id: str | None
    binding_key: str | None
    tokens: int
    """Input, output and embedding tokens."""
    cost_pico: int
    """Cost of the priced calls, in units of 1e-12 dollars."""
    unpriced_count: int
    """Calls without a price."""


def spending_limits(connection: DatabaseConnection, company_id: str) -> list[SpendingLimitRow]:
    """Return a company's limits, by target, measure and period."""
    return statements.LIMITS.found(connection, SpendingLimitRow, company_id=company_id)


def set_spending_limit(connection: DatabaseConnection, row: SpendingLimitRow) -> None:
    """Set a limit; replaces one with the same target, measure and period."""
    statements.SET_LIMIT.run(connection, **asdict(row))


def remove_spending_limits(
    connection: DatabaseConnection,
    company_id: str,
    target_type: str,
    target_id: str,
    *,
    measure: str | None = None,
    period: str | None = None,
) -> list[SpendingLimitRow]:
    """Remove and return a target's limits; `measure` or `period` None: every one."""
    removed = [
        row
        for row in spending_limits(connection, company_id)
        if (row.target_type, row.target_id) == (target_type, target_id)
        and measure in {None, row.measure}
        and period in {None, row.period}
    ]
    for row in removed:
        place = asdict(row)
        del place["amount"]
        statements.REMOVE_LIMIT.run(connection, **place)
    return removed


def last_seq(connection: DatabaseConnection, company_id: str) -> int:
    """Return the number of a company's newest operation, 0 where there is none."""
    found = statements.HEAD_SEQ.rows(connection, company_id=company_id)
    return int(found[0][0]) if found else 0


def spent(
    connection: DatabaseConnection,
    company_id: str,
    since: datetime,
    until: datetime,
    *,
    after: int,
    last: int,
) -> Iterator[Spent]:
    """Yield the usage of the hot operations that began at or after `since` and before `until`.

    Only operations with a number above `after`, up to `last`, count.
    """
    from sqlalchemy import BigInteger, and_, func, select, type_coerce

    from memtui.store.tables import OPERATIONS, USAGE

    keys = [_unindexed(OPERATIONS.c[name]) for name in ("agent_id", "project_id", "binding_key")]
    begun, seq = OPERATIONS.c.started_at, OPERATIONS.c.seq
    begun, seq = (_unindexed(begun), seq) if after else (begun, _unindexed(seq))
    cost = type_coerce(USAGE.c.cost_usd, BigInteger)
    sums = [half for name in _TOKENS for half in halves(USAGE.c[name])]
    rows = connection.execute(
        select(*keys, func.count() - func.count(cost), *halves(cost), *sums)
        .join(
            USAGE,
            and_(
                USAGE.c.company_id == OPERATIONS.c.company_id,
                USAGE.c.seq == OPERATIONS.c.seq,
            ),
        )
        .where(
            OPERATIONS.c.company_id == company_id,
            begun >= since,
            begun < until,
            seq > after,
            seq <= last,
        )
        .group_by(*keys)
    )
    for agent, project, binding, unpriced, *parted in rows:
        cost_pico, *tokens = (
            int(high) * HALF + int(low) for high, low in zip(parted[::2], parted[1::2], strict=True)
        )
        yield Spent(
            agent_id=agent,
            project_id=project,
            binding_key=binding,
            tokens=sum(tokens),
            cost_pico=cost_pico,
            unpriced_count=unpriced,
        )


def _unindexed(column: Any) -> Any:
    """Wrap a column so that SQLite uses no index on it, as the other condition narrows more."""
    from sqlalchemy import func, null

    return func.coalesce(column, null(), type_=column.type)


def halves(number: Any) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """Return the sums of a column's high and low halves; NULL adds nothing."""
    from sqlalchemy import BigInteger, cast, func

    high, low = (func.coalesce(func.sum(part), 0) for part in (number // HALF, number % HALF))
    return cast(high, BigInteger), cast(low, BigInteger)
