"""`facts clear`, `merge`, `pin`, `unpin` and `expire`: change facts that are there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memtui.doors.cli.fact_scope import FactScope, fact, facts_of, revisions
from memtui.doors.cli.facts import FactIds
from memtui.doors.cli.forget import ids_of, tell_forgotten
from memtui.doors.cli.options import RecordId, future
from memtui.doors.cli.session import Session

if TYPE_CHECKING:
    from memtui.contract import Record, Scope
    from memtui.service import MutationAnswer


async def clear_facts(
    session: Session,
    scope: FactScope,
    *,
    yes: Annotated[
        str | None,
        typer.Option("--yes", metavar="NAME", help="Do it without asking; names whose facts go."),
    ] = None,
) -> int:
    """Delete all facts of one user, project or agent.

    It is one operation, and undo brings them back. On a terminal it asks for the name of whose
    facts go; elsewhere --yes NAME says it.
    """
    from memtui.widgets import format as shown

    chosen, name = scope.named(session)
    if yes is not None:
        _check_name(yes, name)
    records, problems = await facts_of(session, chosen, scope.binding)
    session.out.tell(problems)
    if not records:
        session.out.answer({"deleted": 0}, lambda: ())
        session.out.say(f"{name} has no facts.")
        return 0
    if yes is None:
        _ask_for_name(f"All {shown.counted(len(records), 'fact')} of {name} will go.", name)
    answer = await _forget(session, records, chosen, scope.binding)
    session.out.answer(answer, lambda: [handle.provider_record_id for handle in answer.handles])
    tell_forgotten(session, answer)
    return 1 if answer.missing or answer.ghosts else 0


async def merge_facts(
    session: Session,
    survivor: Annotated[
        str, typer.Argument(metavar="SURVIVOR", help="The id of the fact that stays.")
    ],
    others: Annotated[
        list[str], typer.Argument(metavar="OTHER", help="The ids of the facts that go.")
    ],
    scope: FactScope,
    *,
    text: Annotated[str | None, typer.Option(help="What the survivor says from now on.")] = None,
) -> int:
    """Keep one of several facts that say the same.

    The others are deleted in one operation; a new text is another. Where the text is refused the
    others come back.
    """
    from memtui.contract import Invalid

    gone = [other for other in ids_of(others) if other != survivor]
    if not gone:
        raise Invalid("Name at least one other fact to merge into the survivor.")
    chosen = scope.scope(session)
    kept = await fact(session, survivor, chosen, scope.binding)
    records = [await fact(session, record_id, chosen, scope.binding) for record_id in gone]
    forgotten = await _forget(session, records, chosen, scope.binding)
    corrected = None
    if text is not None and text != kept.text:
        corrected = await _correct_or_undo(
            session, kept, chosen, scope.binding, text=text, forgotten=forgotten
        )
    answers = [answer for answer in (corrected, forgotten) if answer is not None]
    document = {
        "survivor": survivor,
        "text": kept.text if text is None else text,
        "deleted": [handle.provider_record_id for handle in forgotten.handles],
        "operation_ids": [answer.operation_id for answer in answers],
    }
    session.out.answer(document, lambda: [survivor])
    tell_forgotten(session, forgotten)
    if corrected is not None and not session.out.as_json:
        session.out.say(f"Corrected; memtui undo {corrected.operation_id} takes it back.")
    return 1 if forgotten.ghosts else 0


async def pin_facts(session: Session, record_ids: FactIds, scope: FactScope) -> None:
    """Pin facts.

    A pinned one comes first in a prompt and is never suggested for pruning.
    """
    await _change_each(session, record_ids, scope, pinned=True)


async def unpin_facts(session: Session, record_ids: FactIds, scope: FactScope) -> None:
    """Take the pin off facts."""
    await _change_each(session, record_ids, scope, pinned=False)


async def expire_fact(
    session: Session,
    record_id: RecordId,
    when: Annotated[
        str,
        typer.Argument(
            metavar="WHEN", help="From then on it is gone: 30d from now, a date, or never."
        ),
    ],
    scope: FactScope,
) -> None:
    """Let a fact expire, or never expire."""
    change: dict[str, object] = {"never_expires": True}
    if when != "never":
        change = {"expires_at": future(when, now=session.now, zone=session.zone)}
    await _change_each(session, [record_id], scope, **change)


async def _change_each(
    session: Session, record_ids: Sequence[str], scope: FactScope, **change: Any
) -> None:
    from memtui.contract import CorrectRequest

    chosen = scope.scope(session)
    ids = ids_of(record_ids)
    records = [await fact(session, record_id, chosen, scope.binding) for record_id in ids]
    answers: list[MutationAnswer] = []
    for record in records:
        request = CorrectRequest(
            scope=chosen,
            handle=record.handle,
            binding_key=scope.binding,
            revision=record.revision,
            **change,
        )
        answers.append(await session.service.correct(session.caller, request))
        if not session.out.as_json:
            session.out.line(record.handle.provider_record_id)
            session.out.say(f"Changed; memtui undo {answers[-1].operation_id} takes it back.")
    if session.out.as_json:
        session.out.document({"changed": answers})


async def _forget(
    session: Session, records: Sequence[Record], scope: Scope, binding: str | None
) -> MutationAnswer:
    from memtui.contract import ForgetRequest

    request = ForgetRequest(
        scope=scope,
        handles=tuple(record.handle for record in records),
        binding_key=binding,
        revisions=revisions(records),
    )
    return await session.service.forget(session.caller, request)


async def _correct_or_undo(
    session: Session,
    record: Record,
    scope: Scope,
    binding: str | None,
    *,
    text: str,
    forgotten: MutationAnswer,
) -> MutationAnswer:
    """Give the survivor its text; where that is refused, bring back what it was to stand for.

    It comes after the deletion because a store may not hold one text or key twice.
    """
    from memtui.contract import CorrectRequest, MemtuiError

    request = CorrectRequest(
        scope=scope,
        handle=record.handle,
        binding_key=binding,
        text=text,
        revision=record.revision,
    )
    try:
        return await session.service.correct(session.caller, request)
    except MemtuiError:
        await session.service.undo(session.caller, forgotten.operation_id)
        raise


def _ask_for_name(warning: str, name: str) -> None:
    """Ask for the name of what is to be cleared.

    Raises:
        Invalid: nobody is there to ask, or another name was typed.
    """
    from memtui.contract import Invalid
    from memtui.visible import visible

    if not sys.stdin.isatty():
        raise Invalid(f"{warning} Nobody can confirm that here, so add --yes {name}.")
    _check_name(typer.prompt(visible(f"{warning} Type {name} to go on"), err=True), name)


def _check_name(typed: str, name: str) -> None:
    from memtui.contract import Invalid

    if typed != name:
        raise Invalid(f"{typed} is not {name}, so nothing was deleted.")
