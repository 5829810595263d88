"""What the log and the undo journal know about facts, as narrow rows to be counted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    Integer,
    Text,
    case,
    cast,
    func,
    select,
    type_coerce,
)

from memtui.contract import Filter, OperationStatus, OperationType
from memtui.store import log
from memtui.store.connection import Connection
from memtui.store.sight import Sight
from memtui.store.tables import JournalRow

_JOURNAL = JournalRow.__table__  # type: ignore[attr-defined]
_DAY = 86_400_000_000
"""Microseconds."""
_ROWS_AT_ONCE = 2_000


class ContextDay(NamedTuple):
    """The contexts that were assembled on a UTC day, a number of days since 1970."""

    day: int
    contexts: int
    delivered: int
    over_budget: int
    tokens: int
    budget: int
    """`tokens` and `budget` are sums over the day's contexts."""
    most_tokens: int


def fact_steps(connection: Connection, company_id: str, until: datetime) -> Iterator[Any]:
    """Yield what every successful mutation before `until` did to a fact.

    The rows of one record (`binding_key`, `record_id`) follow each other, the oldest first. Each
    has `seq`, `at`, `operation_type`, `principal`, `was` and `is_now` (1 where the record was a
    fact before and after it) and the ids of its scope.
    """
    before = _readable(connection, _JOURNAL.c.before)
    after = _readable(connection, _JOURNAL.c.after)
    was, is_now = (_is_fact(snapshot) for snapshot in (before, after))
    statement = (
        select(
            _JOURNAL.c.binding_key,
            _JOURNAL.c.provider_record_id.label("record_id"),
            _JOURNAL.c.seq,
            _JOURNAL.c.started_at.label("at"),
            _JOURNAL.c.operation_type,
            _JOURNAL.c.principal,
            was.label("was"),
            is_now.label("is_now"),
            *(
                func.coalesce(_scope_id(after, name), _scope_id(before, name)).label(name)
                for name in ("project_id", "subject_id", "agent_id")
            ),
        )
        .where(
            _JOURNAL.c.company_id == company_id,
            _JOURNAL.c.status == str(OperationStatus.OK),
            _JOURNAL.c.started_at < until,
            (was == 1) | (is_now == 1),
        )
        .order_by(_JOURNAL.c.binding_key, _JOURNAL.c.provider_record_id, _JOURNAL.c.seq)
        .execution_options(yield_per=_ROWS_AT_ONCE)
    )
    yield from connection.execute(statement)


def active(
    connection: Connection,
    company_id: str,
    chosen: Filter,
    field: str,
    *,
    above: int = 0,
    sight: Sight | None = None,
) -> set[str]:
    """Return the distinct values of an id among the successful operations that a filter takes.

    Configuring is left out, and operations up to the `seq` `above` are as if they were not there.
    """
    found = log.successful(connection, company_id, chosen, above, sight)
    column = found.c[field]
    used = found.c.operation_type != str(OperationType.CONFIGURE)
    rows = connection.execute(select(column).where(column.is_not(None), used).distinct())
    return {str(value) for (value,) in rows}


def contexts_by_day(
    connection: Connection,
    company_id: str,
    chosen: Filter,
    *,
    above: int = 0,
    sight: Sight | None = None,
) -> list[ContextDay]:
    """Return the days with contexts above a `seq`, the oldest first."""
    only = chosen.model_copy(update={"operation_type": OperationType.CONTEXT})
    found = log.successful(connection, company_id, only, above, sight)
    asked = _readable(connection, found.c.request)
    tokens, budget = (asked[name].as_integer() for name in ("tokens", "budget"))
    day = type_coerce(found.c.started_at, BigInteger) // _DAY
    rows = connection.execute(
        select(
            day.label("day"),
            func.count().label("contexts"),
            _count_true(asked["delivered"].as_boolean()).label("delivered"),
            _count_true(asked["over_budget"].as_boolean()).label("over_budget"),
            cast(func.sum(tokens), BigInteger).label("tokens"),
            cast(func.sum(budget), BigInteger).label("budget"),
            func.max(tokens).label("most_tokens"),
        )
        .where(tokens.is_not(None))
        .group_by(day)
        .order_by(day)
    )
    return [ContextDay(*row) for row in rows]


def _count_true(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0), type_=Integer)


def _readable(connection: Connection, column: Any) -> Any:
    r"""Return a JSON column whose members can be taken out, whatever foreign text stands in it.

    PostgreSQL fails on all of a document that holds `\u0000` or half a surrogate pair anywhere, so
    every escape in it becomes a question mark first.
    """
    if connection.dialect == "sqlite":
        return column
    return cast(func.regexp_replace(cast(column, Text), r"\\.", "?", "g"), JSON)


def _is_fact(snapshot: Any) -> ColumnElement[int]:
    return case((snapshot["record"]["kind"].as_string() == "fact", 1), else_=0)


def _scope_id(snapshot: Any, name: str) -> Any:
    return snapshot["record"]["scope"][name].as_string()
