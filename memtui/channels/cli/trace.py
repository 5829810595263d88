"""`trace`: what came of a memory, and forgetting it or holding it for review."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from memtui.channels.cli import impact
from memtui.channels.cli.forget import WAITS, changed_ids, forgetting_code, forgotten
from memtui.channels.cli.input import confirm
from memtui.channels.cli.options import BindingOptions, Yes, complete_filter, filter_of
from memtui.channels.cli.output import columns, jsonable, table
from memtui.channels.cli.session import Session, handle_in
from memtui.contract import Filter, Invalid
from memtui.filters import FilterTarget
from memtui.presenters import format as shown
from memtui.presenters import traces as words
from memtui.visible import visible

if TYPE_CHECKING:
    from memtui.service.history.traces import MemoryTrace, TracedRecord

_TEXT = 60
_TITLES = ("sure", "what*", "when>", "run", "by", "cost>", "today", "given", "record")


async def trace(
    session: Session,
    line: Annotated[list[str], typer.Argument(metavar="TARGET", autocompletion=complete_filter)],
    scope: BindingOptions,
    *,
    then: Literal["impact", "hold", "forget"] | None = None,
    through: Annotated[int, typer.Option(min=1, max=3)] = 1,
    limit: Annotated[int, typer.Option(min=0)] = 100,
    yes: Yes = False,
) -> int:
    """Show what came of a memory: who was given it, and what they wrote afterwards.

    Each write stands below what it came of. It is as certain as: 1 its text came back; 2 one run
    was given the one and wrote the other; 3 only the same agent did both. One undo takes back all
    that --then changed. Exit 1 if nothing came of it, or some of it could not go.

    Args:
        line: A record's id; or a filter line of the writes to begin with, such as run:run-4409,
            agent:coding or issue:ISS-12; or the address of a document.
        then: Replay the log's last questions without it; or let a person decide on each record with
            memtui review; or forget it.
        through: With --then: the least certainty that counts.
        limit: The most writes of certainty 3.
    """
    found = await _traced(session, line, scope, limit)
    said = [words.summary(found), *words.unknown(found.unknown, found.gaps)]
    if then is None:
        rows = (_cells(session, one) for one in found.records)
        session.out.answer(_document(found), table(columns(*_TITLES), rows), *said)
        return int(not any(one.certainty for one in found.records))
    from memtui.service.history.traces import Certainty
    from memtui.service.usecases.forgetting import forget
    from memtui.service.usecases.tracing import plan

    planned = await plan(session.service, session.caller, found, Certainty(through))
    what, *left = words.planned(planned)
    if then == "impact":
        handles = {key: [one.handle for one in own] for key, own in planned.records.items()}
        proof = await impact.find(session, handles, None)
        document = _document(found) | {"impact": impact.document(proof)}
        session.out.answer(document, impact.lines(proof), what, *left, *impact.sentences(proof))
        return 0
    if not yes and planned.records:
        confirm(f"{then.capitalize()} {what}?")
    reason = f"it came of {' '.join(line)}" if then == "hold" else ""
    done = await forget(session.service, session.caller, planned.records, hold=reason)
    names = [name for one in done.answers for name in changed_ids(one)]
    told = [] if reason else [sentence for one in done.answers for sentence in forgotten(one)]
    back = f"memtui undo {done.answers[0].operation_id} takes all of it back."
    changed, refused = jsonable(done.answers), jsonable(done.failed)
    document = _document(found) | {"changed": changed, "failed": refused}
    failed = (one.sentence for one in done.failed)
    waits = WAITS if reason else ""
    session.out.answer(document, names, f"{then}: {what}.", waits, *left, *told, *failed, back)
    return forgetting_code(done.answers, done.failed)


async def _traced(
    session: Session, line: list[str], scope: BindingOptions, limit: int
) -> MemoryTrace:
    service, caller, target = session.service, session.caller, " ".join(line)
    if "://" in target:
        return await service.traces.of_writes(caller, Filter(), target, listed=limit)
    try:
        chosen = filter_of(session, line, FilterTarget.OPERATIONS)
    except Invalid:
        if len(line) > 1:
            raise
        chosen = Filter(text=target)
    if chosen != Filter(text=target):
        return await service.traces.of_writes(caller, chosen, listed=limit)
    where = await service.resolve(caller, scope.scope(session), scope.binding)
    handle = handle_in(where, target)
    return await service.traces.of_record(caller, where.binding_key, handle, listed=limit)


def _cells(session: Session, one: TracedRecord) -> list[str]:
    made = one.operation
    text = visible(" ".join((one.text or "(no text)").split()), limit=_TEXT)
    when = shown.ago(made.started_at, session.now) if made else ""
    written = [when, one.run_id, one.by, shown.operation_cost(made) if made else ""]
    sure = str(int(one.certainty)) if one.certainty else ""
    state = words.state(one)
    return [sure, "  " * one.depth + text, *written, state, words.spread(one), one.place[1]]


def _document(found: MemoryTrace) -> dict[str, Any]:
    records = [
        {"depth": one.depth, "certainty": one.certainty, "binding_key": one.place[0],
         "record_id": one.place[1], "text": one.text, "passage": one.passage,
         "given_seq": one.given and one.given.seq, "today": words.state(one),
         "runs": len(one.runs), "deliveries": one.deliveries,
         "operation": jsonable(one.operation)}
        for one in found.records
    ]  # fmt: skip
    unknown, gaps = found.unknown, jsonable([*found.gaps])
    return {"records": records, "runs": found.runs, "unknown": unknown, "gaps": gaps}
