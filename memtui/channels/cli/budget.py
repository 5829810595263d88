"""`budget`: spending limits, and the spending so far."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memtui.channels.cli.options import TargetId, target_id_of
from memtui.channels.cli.output import Line, columns, table
from memtui.channels.cli.records import say_unknown_of_operations
from memtui.channels.cli.session import FirstSession, Session, build
from memtui.contract import Invalid
from memtui.filters import build_filter
from memtui.presenters import spending
from memtui.presenters.format import target_words

if TYPE_CHECKING:
    from memtui.service.spending import SpendingLimit, SpendingStatus

TargetType = Annotated[
    Literal["company", "agent", "project", "binding"],
    typer.Argument(metavar="TYPE", help="company, agent, project or binding."),
]
PeriodName = Literal["day", "month"]


async def budget_list(session: Session) -> None:
    """List the company's spending limits."""
    limits = await session.service.limits.all(session.caller)
    rows = [[target_words(one), spending.amount(one), one.period, one.action] for one in limits]
    lines = table(columns("target", "limit>", "per", "then"), rows) if limits else ()
    session.out.answer({"limits": limits}, lines, "" if limits else _NONE)


async def budget_set(
    session: FirstSession,
    target_type: TargetType,
    target_id: TargetId = None,
    *,
    usd: Annotated[str | None, typer.Option(metavar="DOLLARS")] = None,
    tokens: Annotated[int | None, typer.Option(min=1)] = None,
    per: PeriodName,
    then: Literal["warn", "no-search", "read-only", "refuse"] | None = None,
) -> None:
    """Set a spending limit.

    It replaces the limit of the same target, measure and period. Once a limit is passed, the header
    shows it and `memtui budget check` fails. --then also refuses operations until the day or month
    ends: no-search refuses queries and embedding, and contexts have only the facts; read-only
    refuses writes and corrections; refuse refuses all of these, and contexts. Forgetting and undo
    always work.

    Args:
        usd: The most US dollars: 5, 0.25.
        tokens: The most tokens of input, output and embedding.
        per: In each day or month of your time zone.
        then: What happens once it is passed; left out: as before, or warn.
    """
    from memtui.service.spending import (
        LimitAction,
        LimitMeasure,
        LimitPeriod,
        LimitTarget,
        SpendingLimit,
    )

    if (usd is None) == (tokens is None):
        raise Invalid("Give the limit in dollars or in tokens: --usd or --tokens, one of them.")
    name = target_id_of(session, target_type, target_id)
    limit = build(
        SpendingLimit,
        target_type=LimitTarget(target_type),
        target_id=name,
        measure=LimitMeasure.TOKENS if usd is None else LimitMeasure.USD,
        amount=tokens if usd is None else spending.parse_amount("usd", usd),
        period=LimitPeriod(per),
    )
    if then is not None:
        limit = limit.model_copy(update={"action": LimitAction(then)})
    made = await session.service.limits.set(session.caller, limit, keeps_action=then is None)
    session.out.answer(made, [_said(made)])
    if target_type in {"agent", "project"}:  # a binding that is not there was refused
        await say_unknown_of_operations(session, build_filter(**{f"{target_type}_id": name}))


async def budget_remove(
    session: Session,
    target_type: TargetType,
    target_id: TargetId = None,
    *,
    usd: bool = False,
    tokens: bool = False,
    per: PeriodName | None = None,
) -> None:
    """Remove the spending limits of a target.

    It removes all of them, unless an option is given.

    Args:
        usd: Only limits in US dollars.
        tokens: Only limits in tokens.
        per: Only those of a day or of a month.
    """
    from memtui.service.spending import LimitMeasure, LimitPeriod, LimitTarget

    measure = LimitMeasure.USD if usd else LimitMeasure.TOKENS
    name = target_id_of(session, target_type, target_id)
    removed = await session.service.limits.remove(
        session.caller,
        LimitTarget(target_type),
        name,
        measure=None if usd == tokens else measure,
        period=LimitPeriod(per) if per else None,
    )
    session.out.answer({"removed": removed}, [_said(limit) for limit in removed])


async def budget_check(
    session: Session,
    *,
    at: Annotated[str | None, typer.Option(metavar="DATE")] = None,
    warn: Annotated[float, typer.Option(min=0, max=1)] = 0.8,
) -> int:
    """Check what was spent against the spending limits.

    Exit 1 if a limit is passed. If calls have no price, the dollars are a lower bound (≥). Days and
    months are those of your time zone.

    Args:
        at: Look at the day and the month of this date: 2026-03-01, 30d.
        warn: The share of a limit from which its state is near.
    """
    found = await session.service.limits.check(
        session.caller,
        at=session.moment(at).astimezone(session.zone).date() if at else None,
        zone=session.zone,
        near=Decimal(str(warn)),
    )
    is_over = any(one.state == "passed" for one in found)
    session.out.answer(
        {"passed": not is_over, "limits": found},
        _spending(session, found),
        *_sentences(session, found),
    )
    return 1 if is_over else 0


async def limits_of(
    session: Session, target_type: str, target_id: str
) -> tuple[list[SpendingStatus], list[tuple[str, str]]]:
    """Return the status of one target's limits, and the same as fields to print."""
    found = await session.service.limits.check(session.caller, zone=session.zone)
    own = [one for one in found if (one.target_type, one.target_id) == (target_type, target_id)]
    stands = [spending.stand(one, spending.period(one, session.now, session.zone)) for one in own]
    return own, [("limit", one) for one in stands or ["none"]]


_NONE = "There are no spending limits; `memtui budget set` sets one."


def _spending(session: Session, found: list[SpendingStatus]) -> Iterator[Line]:
    rows = [
        [
            spending.mark(one), target_words(one), spending.spent(one), spending.amount(one),
            spending.share(one), spending.period(one, session.now, session.zone), one.action,
        ]
        for one in found
    ]  # fmt: skip
    if rows:
        yield from table(
            columns("state", "target", "spent>", "limit>", "share>", "period", "then"), rows
        )


def _sentences(session: Session, found: list[SpendingStatus]) -> Iterator[str]:
    """Yield a sentence for each limit that is near, passed, or has unpriced calls."""
    warnings = [one for one in found if one.state != "ok" or one.unpriced_count]
    for one in warnings:
        yield spending.sentence(one, session.now, session.zone)
    if not found:
        yield _NONE
    elif not warnings:
        yield "Spending is within every limit."


def _said(limit: SpendingLimit) -> str:
    return f"{target_words(limit)}: {spending.whole(limit)}"
