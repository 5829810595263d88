"""`facts stats`: how well the facts serve, over a window of time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.doors.cli.complete import complete_name
from memtui.doors.cli.options import Since, Until
from memtui.doors.cli.output import Dim, Line
from memtui.doors.cli.session import Session, build
from memtui.doors.cli.tables import Column, facts, table

if TYPE_CHECKING:
    from memtui.service import FactMetrics

_COLUMNS = (
    Column("day"),
    Column("added", right=True),
    Column("deleted", right=True),
    Column("by ai", right=True),
    Column("by user", right=True),
    Column("contexts", right=True),
    Column("average tokens", right=True),
)


async def facts_stats(
    session: Session,
    *,
    since: Since = None,
    until: Until = None,
    subject: Annotated[str | None, typer.Option(help="Only this user.")] = None,
    project: Annotated[
        str | None, typer.Option(help="Only this project.", autocompletion=complete_name("project"))
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="Only this agent.", autocompletion=complete_name("agent"))
    ] = None,
) -> None:
    """Show how facts are used, and by whom.

    Over the last 30 days unless --since says otherwise. Days are UTC.
    """
    from memtui.contract import Scope
    from memtui.filters import parse_when

    now, zone = session.now, session.zone
    metrics = await session.service.metrics.facts(
        session.caller,
        parse_when(since, now=now, zone=zone) if since else None,
        parse_when(until, now=now, zone=zone) if until else None,
        scope=build(
            Scope,
            company_id=session.company.company_id,
            subject_id=subject,
            project_id=project,
            agent_id=agent,
        ),
    )
    session.out.answer(metrics, lambda: _lines(session, metrics))


def _lines(session: Session, found: FactMetrics) -> Iterator[Line]:
    from memtui.widgets import format as shown

    since, until = (shown.exact(moment, session.zone) for moment in (found.since, found.until))
    yield Dim(f"{since} to {until}")
    yield from facts([*_of_facts(found), *_of_contexts(found)])
    yield from table(_COLUMNS, _rows(found))


def _of_facts(found: FactMetrics) -> Iterator[tuple[str, str]]:
    """Yield each figure with the target of seed 004 §8."""
    low, high = found.facts_per_user_target
    least, most = found.facts_per_drive_target
    users = f"{found.active_users:,} active users (target {found.adoption_target:.0%})"
    yield "users with facts", f"{_percent(found.adoption)} of {users}"
    yield "facts per user", f"{_number(found.average_facts_per_user)} (target {low} to {high})"
    drive = _number(found.average_facts_per_active_drive)
    yield "facts per active drive", f"{drive} (target {least} to {most})"
    saved = f"{found.facts_saved:,} saved (target under {found.share_deleted_target:.0%})"
    yield "deleted by hand in 7 days", f"{_percent(found.share_deleted_by_hand)} of {saved}"
    yield "saved", f"{found.saves_by_ai:,} by ai, {found.saves_by_user:,} by users"
    yield "added, deleted", f"{found.facts_added:,}, {found.facts_deleted:,}"


def _of_contexts(found: FactMetrics) -> Iterator[tuple[str, str]]:
    tokens, budget = (
        _number(value) for value in (found.average_context_tokens, found.average_context_budget)
    )
    over = f"{found.contexts_over_budget:,} of {found.contexts:,} over it"
    yield "context size", f"{tokens} tokens on average, budget {budget}, {over}"
    least, most = _percent(found.min_share_of_prompt), _percent(found.max_share_of_prompt)
    target = f"target under {found.share_of_prompt_target:.0%}"
    yield "share of a prompt", f"{least} to {most} ({target})"


def _rows(found: FactMetrics) -> Iterator[list[str]]:
    for day in found.days:
        figures = (day.facts_added, day.facts_deleted, day.saves_by_ai, day.saves_by_user)
        if any(figures) or day.contexts:
            tokens = _number(day.average_context_tokens)
            yield [day.day.isoformat(), *map(str, figures), str(day.contexts), tokens]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"
