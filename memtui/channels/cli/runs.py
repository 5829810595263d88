"""`runs` and `agents`: what each run was given and did, and who is connected now."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.channels.cli.marks import RiskMarks, marks_of
from memtui.channels.cli.ops import say_damaged
from memtui.channels.cli.options import (
    AsOf,
    Before,
    FilterLine,
    Limit,
    OperationOptions,
    ScopeOptions,
    complete_run,
)
from memtui.channels.cli.output import Dim, Line, columns, fields, jsonable, table
from memtui.channels.cli.records import say_unknown_of_operations
from memtui.channels.cli.session import Session
from memtui.contract import NotFound
from memtui.presenters import format as shown
from memtui.presenters import runs as words
from memtui.store.operation import Place
from memtui.visible import visible

if TYPE_CHECKING:
    from memtui.service.history.runs import AssembledNow, Replay, Run, RunRecord, RunStep

_TEXT_CELLS = 100
"""Most characters of a record's text; the text of a context is shown whole."""


async def runs_list(
    session: Session,
    scope: ScopeOptions,
    which: OperationOptions,
    line: FilterLine = None,
    *,
    delivered: Annotated[str | None, typer.Option(metavar="RECORD_ID")] = None,
    limit: Limit = 100,
    before: Before = None,
    as_of: AsOf = None,
) -> int:
    """List the runs of agents, the most recently active first.

    A run is listed if one of its operations passes the filter and the options; all of its
    operations are counted. Exit 1 if one of them is damaged; it is named.

    Args:
        delivered: Only runs that this record was delivered to; --binding says where it is.
    """
    session = session.at(as_of)
    chosen = which.filter(session, line, scope)
    place = None
    if delivered is not None:
        where = await session.service.resolve(session.caller, scope.scope(session), scope.binding)
        place = where.binding_key, delivered
        chosen = chosen.model_copy(update={"binding_key": None})
    page = await session.service.runs.page(
        session.caller, chosen, delivered=place, limit=limit, before=before
    )
    titles = columns(
        "run", "last>", "agent", "project", "contexts>", "given>", "queries>", "writes>",
        "corrected>", "forgot>", "held>", "failed>", "cost>", "through*",
    )  # fmt: skip
    more = f"; the next page: --before {page.next_before}" if page.next_before else ""
    session.out.answer(
        page,
        table(titles, (_cells(session, one) for one in page.runs)) if page.runs else (),
        f"{shown.of_total(len(page.runs), page.total)}{more}." if page.runs else "",
        "" if page.runs else "No run is in the log, or none that passes the filter.",
    )
    if not page.total:
        await say_unknown_of_operations(session, chosen)
    for problem in page.problems:
        session.out.say(problem)
    return 1 if page.problems else 0


async def runs_show(
    session: Session,
    run: Annotated[str, typer.Argument(autocompletion=complete_run)],
    *,
    diff: bool = False,
    limit: Limit = 200,
    after: Annotated[int, typer.Option(min=0)] = 0,
    as_of: AsOf = None,
) -> int:
    """Replay one run: what it was given, asked, got and wrote, and what is still stored of it.

    With --diff each context that it was given is assembled again, without being delivered, and
    compared with the delivered one. Exit 1 if an operation of the run is damaged; it is named.

    Args:
        run: The run's id, or the beginning of it.
        diff: Compare each delivered context with what would be delivered now.
        after: Only after this number; for the next page.
    """
    session = session.at(as_of)
    await session.service.ask_later(session.caller)
    service, caller = session.service.runs, session.caller
    replay = await service.replay(caller, run, after=after, limit=limit)
    if diff:
        given = [one.operation for one in replay.steps if one.context is not None]
        if not given:
            raise NotFound(f"The run {replay.run.run_id} was given no context by memtui.")
        now = [await service.assembled_now(caller, one.operation_id) for one in given]
        contexts = [jsonable(one) | {"difference": one.difference} for one in now]
        document = {"run": jsonable(replay.run), "contexts": contexts}
        session.out.answer(document, _differences(now))
    else:
        marks = await marks_of(session, (at for step in replay.steps for at in _places(step)))
        document = jsonable(replay)
        for step, shown_step in zip(replay.steps, document["steps"], strict=True):
            shown_step["risks"] = marks.risks_at(_places(step))
        session.out.answer(document, _replay(session, replay, marks))
    if replay.next_after is not None:
        session.out.say(f"There is more: --after {replay.next_after}.")
    return say_damaged(session, (step.operation for step in replay.steps))


def _cells(session: Session, run: Run) -> list[str]:
    return [
        run.run_id, shown.ago(run.last_at, session.now), ", ".join(run.agents),
        ", ".join(run.projects), shown.count(run.contexts), shown.count(run.tokens_given),
        shown.count(run.queries), shown.count(run.writes), shown.count(run.corrections),
        shown.count(run.forgets), shown.count(run.pending), shown.count(run.failures),
        words.short_cost(run), ", ".join(run.channels),
    ]  # fmt: skip


def _places(step: RunStep) -> list[Place]:
    """Return the binding and id of each record that a step read, wrote or changed."""
    return [*map(step.operation.place_of, step.operation.handles)]


def _replay(session: Session, replay: Replay, marks: RiskMarks) -> Iterator[Line]:
    run = replay.run
    yield f"run {run.run_id}"
    yield from fields(
        ("agent", ", ".join(run.agents)),
        ("project", ", ".join(run.projects)),
        ("user", ", ".join(run.subjects)),
        ("issue", ", ".join(run.issues)),
        ("by", ", ".join(run.principals)),
        ("through", ", ".join(run.channels)),
        ("from", shown.exact(run.started_at, session.zone)),
        ("to", shown.exact(run.last_at, session.zone)),
        ("given", words.given(run)),
        ("did", words.did(run)),
        ("failed", words.failed(run)),
        ("cost", words.cost(run)),
        ("prompts", words.prompts(replay.steps)),
        ("today", words.today(one for step in replay.steps for one in step.records)),
    )
    for step in replay.steps:
        yield ""
        yield from _step(replay, step, marks.worst_at(_places(step)))


def _step(replay: Replay, step: RunStep, mark: str) -> Iterator[Line]:
    operation = step.operation
    ended = shown.outcome(operation.status)
    since = operation.started_at - replay.run.started_at
    at = "+?" if operation.damaged else words.offset(since)
    what = f"{mark} {words.what(step)}".strip()
    yield f"{at}  {ended.symbol} {words.verb(step)}  {what}".rstrip()
    yield Dim(f"        #{operation.seq}  {words.spent(step)}  {operation.operation_id}")
    if (why := shown.ending(operation, step.found)) and not operation.damaged:
        yield f"        {why}"
    if step.context is not None:
        yield from _context(step)
    for record in step.records:
        yield from _record(record)


def _context(step: RunStep) -> Iterator[Line]:
    if step.context is None:
        return
    if step.context.text is None:
        yield Dim("        the text is not kept any more")
        return
    if not step.context.text:
        yield Dim("        there was nothing new to tell")
        return
    for line in step.context.text.rstrip("\n").split("\n"):
        yield f"        | {line}"


def _record(record: RunRecord) -> Iterator[Line]:
    text = _short(record.text or record.handle.provider_record_id)
    measured = f"{words.measured(record):<{5 if record.tokens is None else 16}}"
    yield f"        {record.rank:>3}  {measured}  {words.state(record)}: {text}"
    if record.now is not None:
        yield Dim(f"{'':13}now: {_short(record.now)}")
    yield Dim(f"{'':13}{record.handle.provider_record_id}")


def _short(text: str) -> str:
    """Return the beginning of a text on one line, with … if there is more."""
    return visible(" ".join(text.split()), limit=_TEXT_CELLS)


def _differences(found: list[AssembledNow]) -> Iterator[Line]:
    for one in found:
        yield (
            f"#{one.operation.seq}  {shown.count(one.tokens)} tokens then, "
            f"{shown.count(one.now.tokens)} now"
        )
        if not one.difference:
            yield Dim("  the same, word for word")
        yield from one.difference


async def agents(
    session: Session, *, minutes: Annotated[int, typer.Option(min=1, max=1440)] = 10
) -> None:
    """List the connected agents, and the last answer of each.

    An agent with an open MCP session on this machine is listed while the session lasts; any other
    agent while it did something lately.

    Args:
        minutes: Minutes that count as lately.
    """
    within = timedelta(minutes=minutes)
    found = await session.service.agents.connected(session.caller, within)
    rows = [
        [
            one.principal,
            one.channel,
            one.client or "",
            one.project_id or "",
            one.run_id or "",
            shown.ago(one.since, session.now),
            shown.ago(one.last_seen, session.now) if not one.is_open else "open",
            shown.last_answer_words(one.last_answer, session.now),
        ]
        for one in found
    ]
    titles = columns("who", "channel", "client", "project", "run", "since>", "seen>", "last given")
    none = "" if found else f"No agent is connected, and none did anything in {minutes} minutes."
    session.out.answer({"agents": found}, table(titles, rows) if rows else (), none)
