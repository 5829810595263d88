"""`changes`: the difference between a scope's records at two moments."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from memtui.channels.cli.marks import RiskMarks, marks_of
from memtui.channels.cli.options import FilterLine, ScopeOptions, Until, filter_of
from memtui.channels.cli.output import Dim, Line, columns, table
from memtui.channels.cli.records import change_of, from_words, say_unknown_owners
from memtui.channels.cli.session import Session
from memtui.contract import Filter, Invalid
from memtui.filters import FilterTarget
from memtui.presenters import format as shown

if TYPE_CHECKING:
    from memtui.service.history.past import CompareAnswer, Difference, MomentsAnswer

_WEEK = "7d"


async def changes(
    session: Session,
    scope: ScopeOptions,
    line: FilterLine = None,
    *,
    since: str = _WEEK,
    until: Until = None,
    days: bool = False,
) -> None:
    """Show what changed since a moment, who changed it, and why.

    It compares the memories at that moment with those of now, or of --until. Records that came and
    went in between are not shown; --days counts them. The first line sums up what agents wrote.

    Args:
        since: The earlier moment: 7d, yesterday, 2026-03-01.
        days: Count the changes of each day instead.
    """
    from memtui.service.usecases.agent_writes import agent_writes

    _refuse_moment(session, line)
    earlier = session.moment(since)
    if earlier > session.now:
        raise Invalid(f"{since!r} is still to come; say --since when, up to now.")
    later = None if until is None else session.moment(until)
    whole, binding = scope.scope(session), scope.binding
    past = session.service.past
    if days:
        counted = await past.moments(
            session.caller,
            whole,
            since=earlier,
            until=later,
            zone=session.zone,
            binding_key=binding,
        )
        titles = columns("day", "added>", "changed>", "removed>")
        when = f"{shown.counted(len(counted.days), 'day')} with changes in {counted.binding_key}."
        session.out.answer(counted, table(titles, _days(counted)), when)
        return
    chosen = filter_of(session, line, FilterTarget.RECORDS)
    answer = await past.compare(
        session.caller, whole, earlier, later, chosen=chosen, binding_key=binding
    )
    fields = whole.model_dump(exclude={"company_id"})
    wrote = await agent_writes(
        session.service, session.caller, earlier, Filter(**fields, binding_key=binding, until=later)
    )
    from_then = f"since {shown.exact(earlier, session.zone)}"
    when = "this week" if (since, until) == (_WEEK, None) else from_then
    first = shown.written_by_agents(wrote, when if until is None else f"{when} to {until}")
    document = {"agents_wrote": wrote, **answer.model_dump(mode="json")}
    stored = [(answer.binding_key, one.after) for one in answer.differences if one.after]
    marks = await marks_of(session, stored)
    for one, shown_one in zip(answer.differences, document["differences"], strict=True):
        shown_one["risks"] = marks.risks(answer.binding_key, one.after) if one.after else None
    lines = (first, *_differences(session, answer, marks))
    session.out.answer(document, lines, _summary(session, answer))
    if not answer.differences and not answer.same:
        await say_unknown_owners(session, whole, answer.binding_key)


def _refuse_moment(session: Session, line: list[str] | None) -> None:
    """Refuse moments given as the filter: read as words, they would match no memory."""
    if not line:
        return
    for names in ([" ".join(line)], line):
        if all(map(partial(_is_moment, session), names)):
            first = names[0]
            raise Invalid(f"{first} is a moment and no filter; say --since {shlex.quote(first)}.")


def _is_moment(session: Session, words: str) -> bool:
    try:
        session.moment(words)
    except Invalid:
        return False
    return True


def _days(answer: MomentsAnswer) -> Iterator[list[str]]:
    for one in answer.days:
        yield [one.day.isoformat(), *map(str, (one.added, one.changed, one.removed))]


def _differences(session: Session, answer: CompareAnswer, marks: RiskMarks) -> Iterator[Line]:
    for one in answer.differences:
        mark = marks.briefly(answer.binding_key, one.after) if one.after else ""
        yield from _difference(session, one, mark)


def _difference(session: Session, one: Difference, mark: str) -> Iterator[Line]:
    record = one.after or one.before
    if record is not None:
        name = record.handle.provider_record_id
        yield Dim("  ".join(part for part in (one.kind, name, mark) if part))
    yield from change_of(one.before, one.after)
    for operation in one.operations:
        yield Dim(
            f"    #{operation.seq}  {operation.operation_type}  "
            f"{shown.since(operation.started_at, session.now)} by {shown.doer(operation)}"
            f"{from_words(operation)}"
        )
    if not one.operations:
        yield Dim("    not through memtui")


def _summary(session: Session, answer: CompareAnswer) -> str:
    counts = dict.fromkeys(("added", "changed", "removed"), 0)
    for one in answer.differences:
        counts[one.kind] += 1
    said = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    earlier, later = (shown.exact(one, session.zone) for one in (answer.earlier, answer.later))
    return (
        f"{said}, {shown.count(answer.same)} as they were, between {earlier} and {later} in "
        f"{answer.binding_key} ({answer.binding_reason})."
    )
