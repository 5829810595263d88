"""`forget` and `undo`: remove memories, and undo changes."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.channels.cli import impact
from memtui.channels.cli.errors import KIND_CODES, kind_of
from memtui.channels.cli.impact import ImpactOptions
from memtui.channels.cli.input import confirm
from memtui.channels.cli.options import (
    BindingOptions,
    DryRun,
    Limit,
    OfKind,
    Revision,
    ScopeOptions,
    Yes,
)
from memtui.channels.cli.output import columns, jsonable, table
from memtui.channels.cli.session import Session, handle_in
from memtui.contract import ForgetRequest, Invalid, NotFound
from memtui.presenters import format as shown
from memtui.visible import visible

if TYPE_CHECKING:
    from memtui.service import GetAnswer, MutationAnswer, UndoCandidate
    from memtui.service.answers import BindingOutcome

WAITS = "Agents get none of it until a person decides; memtui review list says how."


async def forget(
    session: Session,
    record_ids: Annotated[list[str], typer.Argument(metavar="RECORD_ID")],
    scope: ScopeOptions,
    revision: Revision = None,
    *,
    kind: OfKind = None,
    hold: Annotated[str | None, typer.Option(metavar="REASON")] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    trial: ImpactOptions,
) -> int:
    """Remove records; undo brings them back.

    With --impact nothing is removed: the log's last queries and contexts are answered again, with
    the records and without them. Exit 1 if one was missing, or is still found afterwards.

    A record with a caution, which another program may write again, is removed without a question
    only by its --revision; exit 5 otherwise.

    Args:
        record_ids: The records' ids; - reads one a line from stdin.
        hold: Keep them back from agents until a person decides with memtui review, in place of
            removing them.
    """
    trial.refuse_alone()
    ids = ids_of(record_ids)
    if revision is not None and len(ids) != 1:
        raise Invalid("--revision goes with exactly one record id.")
    binding = await session.resolved(scope.scope(session), scope.binding)
    there: list[GetAnswer] = []
    missing: dict[str, NotFound] = {}
    if kind is not None or dry_run or not (yes or trial.tried or binding is None):
        there, missing = await looked_up(session, ids, scope, kind)
    for caution in filter(None, dict.fromkeys(one.record.caution for one in there)):
        session.out.say(caution)
    if trial.tried:
        return await _impact(session, ids, scope, trial)
    if dry_run:
        return _dry_run(session, there, missing)
    if not yes and binding is not None:
        if not there:
            raise missing[ids[0]]
        for error in missing.values():
            session.out.say(str(error))
        counted = shown.counted(len(there), kind or "record")
        verb = "Forget" if hold is None else "Hold"
        confirm(f"{verb} {counted} from {binding.binding_key}?")
    read = {  # what was shown is what is forgotten; --yes does not say that it was read
        one.record.handle.provider_record_id: one.record.revision
        for one in there
        if not yes and one.record.revision
    }
    request = scope.request(
        session,
        ForgetRequest,
        handles=tuple(handle_in(binding, record_id) for record_id in ids),
        revisions={ids[0]: revision} if revision is not None else read,
    )
    if hold is not None:
        return await _hold(session, request, hold)
    return answer_forgotten(session, [await session.service.forget(session.caller, request)])


async def _hold(session: Session, request: ForgetRequest, reason: str) -> int:
    if not reason.strip():
        raise Invalid("Say with --hold why they are held, for whoever decides.")
    answer = await session.service.review.hold(session.caller, request, reason)
    back = f"memtui undo {answer.operation_id} takes it back."
    session.out.answer(answer, changed_ids(answer), WAITS, back)
    return 0


async def undo(
    session: Session,
    scope: ScopeOptions,
    operation_id: Annotated[str | None, typer.Argument(metavar="OPERATION")] = None,
    *,
    record: Annotated[list[str] | None, typer.Option(metavar="RECORD_ID")] = None,
    listing: Annotated[bool, typer.Option("--list")] = False,
    limit: Limit = 20,
) -> int:
    """Undo a change.

    Without OPERATION it undoes the last change of memories or settings, or with a scope the last
    one in that scope. It asks first if somebody else made the change. A change that cannot be
    undone is never skipped. Undoing an undo redoes the change. What was forgotten from several
    bindings, stored from one file or merged is undone together; with --record only these records
    are restored, and a later undo restores the others.

    Args:
        operation_id: The operation; left out: the last change.
        record: Only this record of the operation; may be repeated.
        listing: List the changes that were not undone yet instead.
    """
    if listing:
        if operation_id is not None or record or asdict(scope) != asdict(ScopeOptions()):
            raise Invalid(
                "--list takes neither an operation, a record nor a scope; it lists every change."
            )
        candidates = await session.service.undoable(session.caller, limit)
        titles = columns("operation", "when>", "type", "what", "by", "project", "")
        rows = _candidate_rows(session, candidates)
        session.out.answer({"undoable": candidates}, table(titles, rows))
        return 0
    from memtui.service.usecases.undoing import last_change
    from memtui.service.usecases.undoing import undo as undo_each

    target = operation_id
    if target is None:
        if record:
            raise Invalid("--record needs the operation too, as in memtui undo OPERATION.")
        last = await last_change(
            session.service, session.caller, scope.scope(session), scope.binding
        )
        _refuse_stuck(last)
        if not session.service.read_only:
            _ask_for_anothers(session, last)
        target = last.operation.operation_id  # another change may have come meanwhile
    found = await undo_each(session.service, session.caller, [target], record or ())
    answers, failed = found.answers, found.failed
    if failed and not answers:
        raise failed
    error = {"error": {"kind": kind_of(failed), "message": str(failed)}} if failed else {}
    changes = [change.name for answer in answers for change in answer.settings]
    links = {old: new for answer in answers for old, new in answer.linked.items()}
    undone = f"{len(answers):,} changes"
    if len(answers) <= _NAMED:
        undone = " and ".join([await _undone(session, answer) for answer in answers])
    session.out.answer(
        jsonable(answers[0]) | {"together": jsonable(answers[1:])} | error,
        [*(name for answer in answers for name in changed_ids(answer)), *changes],
        str(failed or ""),
        *(f"{old} is {new} now." for old, new in links.items() if old != new),
        f"Undone: {undone}; memtui undo {answers[0].operation_id} redoes it.",
    )
    return KIND_CODES[kind_of(failed)] if failed else 0


async def _undone(session: Session, answer: MutationAnswer) -> str:
    """Name the undone change and its first record or setting."""
    service, caller = session.service, session.caller
    undone = str(answer.undoes)
    operation = await service.log.get(caller, undone)
    changes = await service.log.changes(caller, answer.operation_id)  # only those undone now
    records = [record for one in changes if (record := one.before or one.after)]
    names = [shown.beginning(record.shown) for record in records]
    if words := shown.configured(operation) or shown.judged(operation):
        names.append(words)
    else:
        names += [one.name for one in answer.settings]
    change = shown.the_change(operation, session.now, caller.principal)
    if not names:
        return change
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    return f"{change}, “{visible(names[0], limit=_UNDONE_CHARS)}”{more}"


def _refuse_stuck(last: UndoCandidate) -> None:
    if last.why_not is not None:
        operation = last.operation
        raise Invalid(
            f"The last change, {operation.operation_type} #{operation.seq}, cannot be undone. "
            f"{last.why_not} `memtui undo --list` has those before it; give the id of one."
        )


def _ask_for_anothers(session: Session, last: UndoCandidate) -> None:
    """Ask before undoing another principal's change, which may be newer than the person knows.

    Raises:
        Invalid: nobody can be asked; the message names the change.
        typer.Abort: the answer was no.
    """
    operation, me = last.operation, session.caller.principal
    if operation.principal == me:
        return
    if not sys.stdin.isatty():
        change = shown.the_change(operation, session.now, me)
        raise Invalid(
            f"The last change is not yours: {change}. "
            f"memtui undo {operation.operation_id} undoes it."
        )
    confirm(shown.undo_question(operation, shown.changed(last), session.now, me))


_NAMED = 3
"""Most operations of one undo that are named."""
_UNDONE_CHARS = 60


async def looked_up(
    session: Session, ids: Sequence[str], scope: BindingOptions, kind: str | None = None
) -> tuple[list[GetAnswer], dict[str, NotFound]]:
    """Return the answers for these ids, and the errors of missing ones by id.

    Raises:
        Invalid: a record is not of the `kind`.
    """
    answers: list[GetAnswer] = []
    missing: dict[str, NotFound] = {}
    for record_id in ids:
        try:
            found = await session.service.get(
                session.caller, record_id, scope.scope(session), binding_key=scope.binding
            )
        except NotFound as error:
            missing[record_id] = error
        else:
            answers.append(found)
            if kind not in {None, found.record.kind}:
                raise Invalid(
                    f"{record_id} is not a {kind} but a {found.record.kind}; memtui correct and "
                    "memtui forget take it without --kind."
                )
    return answers, missing


def _dry_run(session: Session, there: Sequence[GetAnswer], missing: Collection[str]) -> int:
    records = [one.record for one in there]
    session.out.answer(
        {"records": records, "missing": [*missing], "dry_run": True},
        (f"{one.handle.provider_record_id}  {visible(one.text, limit=100)}" for one in records),
    )
    for record_id in missing:
        session.out.say(f"There is no record {record_id}.")
    return 1 if missing else 0


async def _impact(
    session: Session, ids: Sequence[str], scope: ScopeOptions, trial: ImpactOptions
) -> int:
    resolved = await session.service.resolve(session.caller, scope.scope(session), scope.binding)
    handles = [handle_in(resolved, record_id) for record_id in ids]
    found = await impact.find(session, {resolved.binding_key: handles}, trial.last)
    session.out.answer(impact.document(found), impact.lines(found), *impact.sentences(found))
    return 1 if found.missing else trial.exit_code(found)


def changed_ids(answer: MutationAnswer) -> list[str]:
    """Return the ids of the changed records."""
    return [handle.provider_record_id for handle in answer.handles]


def pending(answer: MutationAnswer) -> str:
    """Return that a change is held for review; empty: it is not."""
    return answer.pending.sentence if answer.pending else ""


def answer_forgotten(
    session: Session, answers: Sequence[MutationAnswer], failed: Sequence[BindingOutcome] = ()
) -> int:
    """Print the results of forgetting; return the exit code."""
    first, *others = answers
    session.out.answer(
        jsonable(first) | ({"together": jsonable(others)} if others else {}),
        [name for one in answers for name in changed_ids(one)],
        *(line for one in answers for line in forgotten(one)),
        *(one.sentence for one in failed),
    )
    return forgetting_code(answers, failed)


def forgetting_code(answers: Sequence[MutationAnswer], failed: Sequence[BindingOutcome]) -> int:
    """Return 1 if a record was missing, refused, or is still there, or a binding failed; else 0."""
    return int(bool(failed) or any(one.missing or one.refused or one.ghosts for one in answers))


def forgotten(answer: MutationAnswer) -> Iterator[str]:
    """Yield lines: the forgotten records, how to undo it, and the records that stay."""
    yield from not_forgotten(answer)
    if answer.handles:
        them = "it" if len(answer.handles) == 1 else "them"
        yield (
            f"Forgot {shown.counted(len(answer.handles), 'record')} from {answer.binding_key}; "
            f"memtui undo {answer.operation_id} brings {them} back."
        )


def not_forgotten(answer: MutationAnswer) -> Iterator[str]:
    """Yield which records were not forgotten, and why."""
    yield pending(answer)
    for handle in answer.missing:
        yield f"There was no record {handle.provider_record_id}."
    for record_id, why in answer.refused.items():
        yield f"{record_id} was not forgotten: {why}"
    for handle in answer.ghosts:
        yield f"The provider still returns {handle.provider_record_id}: it is a ghost now."


def ids_of(given: Sequence[str]) -> list[str]:
    """Return the given record ids, each once; `-` reads them from stdin.

    Raises:
        Invalid: there are none.
    """
    ids: list[str] = []
    for word in given:
        ids.extend(sys.stdin.read().splitlines() if word == "-" else [word])
    unique = list(dict.fromkeys(record_id for record_id in ids if record_id))
    if not unique:
        raise Invalid("No record id was given, so there is nothing to forget.")
    return unique


def _candidate_rows(session: Session, candidates: Sequence[UndoCandidate]) -> Iterator[list[str]]:
    for candidate in candidates:
        operation = candidate.operation
        yield [
            operation.operation_id, shown.ago(operation.started_at, session.now),
            operation.operation_type.value, shown.changed(candidate), operation.principal,
            operation.scope.project_id or "", candidate.why_not or "",
        ]  # fmt: skip
