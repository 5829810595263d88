"""Spending limits of a company, and what its hot operations spent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    and_,
    cast,
    delete,
    func,
    null,
    select,
    type_coerce,
)
from sqlalchemy.dialects import postgresql, sqlite

from memtui.store.tables import LogHeadRow, OperationRow, SpendingLimitRow, UsageRow

_HEADS = LogHeadRow.__table__  # type: ignore[attr-defined]
_LIMITS = SpendingLimitRow.__table__  # type: ignore[attr-defined]
_OPERATIONS = OperationRow.__table__  # type: ignore[attr-defined]
_USAGE = UsageRow.__table__  # type: ignore[attr-defined]
_PLACE = ("company_id", "target_type", "target_id", "measure", "period")
_TOKENS = ("input_tokens", "output_tokens", "embedding_tokens")
_HALF = 1_000_000_000
"""SQLite fails where a sum passes 63 bits, so each number is summed in two halves."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What the operations of one agent in one project through one binding spent together."""

    agent_id: str | None
    project_id: str | None
    binding_key: str | None
    tokens: int
    """Input, output and embedding tokens."""
    cost_pico: int
    """What is priced, in units of 1e-12 dollars."""
    unpriced_count: int
    """Calls without a price."""


def spending_limits(connection: Connection, company_id: str) -> list[SpendingLimitRow]:
    """Return a company's limits, by target, measure and period."""
    rows = connection.execute(
        select(_LIMITS)
        .where(_LIMITS.c.company_id == company_id)
        .order_by(*(_LIMITS.c[name] for name in _PLACE))
    )
    return [SpendingLimitRow(**row._mapping) for row in rows]  # noqa: SLF001 — SQLAlchemy's name


def set_spending_limit(connection: Connection, row: SpendingLimitRow) -> None:
    """Set a limit, in place of the one that has the same target, measure and period."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(
        dialect.insert(_LIMITS)
        .values(row.model_dump())
        .on_conflict_do_update(index_elements=_PLACE, set_={"amount": row.amount})
    )


def remove_spending_limits(
    connection: Connection,
    company_id: str,
    target_type: str,
    target_id: str,
    *,
    measure: str | None = None,
    period: str | None = None,
) -> list[SpendingLimitRow]:
    """Remove a target's limits, of every measure and period where these are None; return them."""
    wanted = {"target_type": target_type, "target_id": target_id}
    wanted |= {name: value for name, value in (("measure", measure), ("period", period)) if value}
    conditions = [_LIMITS.c[name] == value for name, value in wanted.items()]
    removed = [
        row
        for row in spending_limits(connection, company_id)
        if all(getattr(row, name) == value for name, value in wanted.items())
    ]
    connection.execute(delete(_LIMITS).where(_LIMITS.c.company_id == company_id, *conditions))
    return removed


def last_seq(connection: Connection, company_id: str) -> int:
    """Return the number of a company's newest operation, 0 where there is none."""
    found = connection.execute(select(_HEADS.c.seq).where(_HEADS.c.company_id == company_id))
    return found.scalar() or 0


def spent(
    connection: Connection,
    company_id: str,
    since: datetime,
    until: datetime,
    *,
    after: int,
    last: int,
) -> Iterator[Spent]:
    """Yield what the hot operations spent that began at or after `since` and before `until`.

    Only those above number `after` count, up to number `last`.
    """
    keys = [_unindexed(_OPERATIONS.c[name]) for name in ("agent_id", "project_id", "binding_key")]
    begun, seq = _OPERATIONS.c.started_at, _OPERATIONS.c.seq
    begun, seq = (_unindexed(begun), seq) if after else (begun, _unindexed(seq))
    cost = type_coerce(_USAGE.c.cost_usd, BigInteger)
    sums = [half for name in _TOKENS for half in _halves(_USAGE.c[name])]
    rows = connection.execute(
        select(*keys, func.count() - func.count(cost), *_halves(cost), *sums)
        .join(
            _USAGE,
            and_(
                _USAGE.c.company_id == _OPERATIONS.c.company_id,
                _USAGE.c.seq == _OPERATIONS.c.seq,
            ),
        )
        .where(
            _OPERATIONS.c.company_id == company_id,
            begun >= since,
            begun < until,
            seq > after,
            seq <= last,
        )
        .group_by(*keys)
    )
    for agent, project, binding, unpriced, *halves in rows:
        cost_pico, *tokens = (
            int(high) * _HALF + int(low)
            for high, low in zip(halves[::2], halves[1::2], strict=True)
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
    """Return the column so that no index of it is used: the time or the number narrows better."""
    return func.coalesce(column, null(), type_=column.type)


def _halves(number: Any) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """Return the sums of a column's high and low half; what is NULL adds nothing."""
    high, low = (func.coalesce(func.sum(part), 0) for part in (number // _HALF, number % _HALF))
    return cast(high, BigInteger), cast(low, BigInteger)
