"""Spending limits of a company, and its spending, added up by quarters of an hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from memtui.store import statements
from memtui.store.database import DatabaseConnection, stored, stored_dollars
from memtui.store.operation import OperationDraft
from memtui.store.rows import SpendingLimitRow

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

HALF = 1_000_000_000
"""Numbers are summed in two halves, as a sum beyond 63 bits fails in SQLite."""

_QUARTER = timedelta(minutes=15)
"""Days begin at such a moment in every time zone of today."""
SHADOW = "shadow"
"""The purpose of a query to a shadow, whose answer nobody gets; it has a budget of its own."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Spent:
    """The usage of one principal for one agent in one project through one binding."""

    agent_id: str
    """Empty: the operations name none; so with the others."""
    project_id: str
    binding_key: str
    principal: str
    tokens: int
    """Input, output and embedding tokens."""
    cost_pico: int
    """Cost of the priced calls, in units of 1e-12 dollars."""
    unpriced_count: int
    """Calls without a price."""


def spending_limits(connection: DatabaseConnection, company_id: str) -> list[SpendingLimitRow]:
    """Return a company's limits, by target, measure and period."""
    return statements.LIMITS.found(connection, SpendingLimitRow, company_id=company_id)


def acting(connection: DatabaseConnection, company_id: str) -> tuple[SpendingLimitRow, ...]:
    """Return a company's limits that do more than warn."""
    return tuple(row for row in spending_limits(connection, company_id) if row.action != "warn")


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
        del place["amount"], place["action"]
        statements.REMOVE_LIMIT.run(connection, **place)
    return removed


def last_seq(connection: DatabaseConnection, company_id: str) -> int:
    """Return the number of a company's newest operation, 0 where there is none."""
    found = statements.HEAD_SEQ.rows(connection, company_id=company_id)
    return int(found[0][0]) if found else 0


def spent(
    connection: DatabaseConnection, company_id: str, since: datetime, until: datetime
) -> list[Spent]:
    """Return the usage of the operations that began at or after `since` and before `until`.

    Both are beginnings of a quarter of an hour.
    """
    found = []
    rows = statements.SPENT.rows(connection, company_id=company_id, since=since, until=until)
    for agent, project, binding, principal, *sums in rows:
        high, low, dear, cheap, unpriced = map(int, sums)
        found.append(
            Spent(
                agent_id=agent,
                project_id=project,
                binding_key=binding,
                principal=principal,
                tokens=high * HALF + low,
                cost_pico=dear * HALF + cheap,
                unpriced_count=unpriced,
            )
        )
    return found


def add_up(connection: DatabaseConnection, drafts: Sequence[OperationDraft]) -> None:
    """Add the usage of operations that are appended to the sums of their quarters of an hour.

    What a shadow is asked does not count: no limit may refuse anybody an answer for that.
    """
    rows = []
    for draft in drafts:
        if draft.request.get("purpose") == SHADOW:
            continue
        tokens = sum(
            one.input_tokens + one.output_tokens + one.embedding_tokens for one in draft.usage
        )
        cost = sum(stored_dollars(one.cost_usd) or 0 for one in draft.usage)
        unpriced = sum(one.cost_usd is None for one in draft.usage)
        if tokens or cost or unpriced:
            named = (draft.scope.agent_id, draft.scope.project_id, draft.binding_key)
            place = (*(name or "" for name in named), draft.principal)
            began = draft.started_at - (draft.started_at - _EPOCH) % _QUARTER
            values = map(stored, (draft.scope.company_id, began, *place))
            rows.append((*values, *divmod(tokens, HALF), *divmod(cost, HALF), unpriced))
    statements.ADD_SPENDING.insert(connection, rows)


def add_up_sealed(
    connection: DatabaseConnection, company_id: str, sealed: DatabaseConnection
) -> None:
    """Add up the usage of sealed operations, in a database that is made anew from them.

    `sealed`: a connection to the sealed tables of the company's log.
    """
    from sqlalchemy import BigInteger, String, cast, func, not_, or_, select, type_coerce

    from memtui.store.tables import OPERATIONS, USAGE

    quarter = _QUARTER // timedelta(microseconds=1)
    began = type_coerce(OPERATIONS.c.started_at, BigInteger) // quarter * quarter
    names = ("agent_id", "project_id", "binding_key", "principal")
    keys = [began, *(func.coalesce(OPERATIONS.c[name], "") for name in names)]
    cost = type_coerce(USAGE.c.cost_usd, BigInteger)
    counted = ("input_tokens", "output_tokens", "embedding_tokens")
    tokens = [halves(USAGE.c[name]) for name in counted]
    highs, lows = (sum(parts[1:], parts[0]) for parts in zip(*tokens, strict=True))
    sums = (highs, lows, *halves(cost), func.count() - func.count(cost))
    asked = cast(OPERATIONS.c.request, String)
    of_shadow = or_(*(asked.contains(f'"purpose":{gap}"{SHADOW}"') for gap in ("", " ")))
    found = sealed.execute(
        select(*keys, *sums)
        .join(USAGE, USAGE.c.seq == OPERATIONS.c.seq)
        .where(not_(of_shadow))
        .group_by(*keys)
    )
    rows = [tuple(map(stored, (company_id, *row))) for row in found]
    statements.ADD_SPENDING.insert(connection, rows)


def halves(number: Any) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """Return the sums of a column's high and low halves; NULL adds nothing."""
    from sqlalchemy import BigInteger, cast, func

    high, low = (func.coalesce(func.sum(part), 0) for part in (number // HALF, number % HALF))
    return cast(high, BigInteger), cast(low, BigInteger)
