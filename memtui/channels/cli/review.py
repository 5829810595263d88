"""`review`: writes of agents that are held for review, and decisions on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from memtui.channels.cli.errors import code_of_several, failures
from memtui.channels.cli.forget import changed_ids
from memtui.channels.cli.input import read_stdin
from memtui.channels.cli.options import BindingKey, complete_read
from memtui.channels.cli.output import Dim, Line, columns, fields, jsonable, table
from memtui.channels.cli.records import change_of
from memtui.channels.cli.session import Session, build
from memtui.contract import RISK_STATES, Filter, Invalid, Json, NotFound, OperationType
from memtui.external_editor import edited
from memtui.filters import RISK_WORDS
from memtui.presenters import format as shown
from memtui.presenters.pending import (
    GONE,
    ORDERS,
    about,
    beside,
    briefly,
    kept_with,
    left_out,
    owners_of,
)
from memtui.presenters.risks import WORDS
from memtui.visible import visible
from memtui.wording import unknown

if TYPE_CHECKING:
    from memtui.service import MutationAnswer
    from memtui.service.review.queue import PendingDetails, PendingWrite


async def _waiting(session: Session) -> list[str]:
    return [one.pending_id for one in await session.service.review.waiting(session.caller)]


PendingId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The held write's id, or the beginning of it.",
        autocompletion=complete_read(_waiting),
    ),
]
PendingIds = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID",
        help="The held writes' ids, or the beginnings of them.",
        autocompletion=complete_read(_waiting),
    ),
]
Always = Annotated[
    Literal["agent", "channel", "text", "subject"] | None,
    typer.Option(
        "--always",
        help="From now on do the same with every write of this agent, channel, text or subject.",
    ),
]
Binding = Annotated[
    str | None, typer.Option("--binding", metavar="KEY", help="Only writes to this binding.")
]

_SHORT = 8
"""Characters of an id in a list; commands accept the beginning of an id."""
_CHARS = 80
_LATELY = timedelta(days=7)
"""For this long, `review list` names a person's own changes that were refused."""


async def review_list(session: Session, *, binding: Binding = None) -> None:
    """List agents' writes that wait for a person, the oldest first."""
    found = await session.service.review.queue(session.caller, binding)
    titles = columns("id", "waits>", "by", "asks to", "of", "why", "text*")
    rows = [_row(session, one) for one in found.writes]
    none = "" if rows else "Nothing waits for review."
    unread = (f"{key} was not asked what waits there: {why}" for key, why in found.unread.items())
    lately = Filter(operation_type=OperationType.REVIEW, since=session.now - _LATELY)
    refused = (await session.service.log.page(session.caller, lately, limit=100)).operations
    told = (
        f"{shown.who(one.principal)} refused your {str(one.request.get('pending'))[:_SHORT]} "
        f"{shown.since(one.started_at, session.now)}: {one.request.get('reason', 'no reason')}"
        for one in refused
        if one.request.get("author") == session.caller.principal != one.principal
    )
    holds = Counter(one.hold_id for one in found.writes if one.hold_id)
    first = {one.hold_id: one.pending_id[:_SHORT] for one in reversed(found.writes)}
    together = (
        f"{count} of them are one hold; memtui review accept {first[hold]} --hold decides on all."
        for hold, count in holds.items()
        if count > 1
    )
    document = {"waiting": found.writes, "unread": found.unread}
    listed = table(titles, rows) if rows else ()
    session.out.answer(document, listed, none, *together, *unread, *told)


async def review_show(session: Session, pending_id: PendingId) -> None:
    """Show what a held write would change, who asked for it, and why."""
    found = await session.service.review.show(session.caller, pending_id)
    session.out.answer(found, _details(session, found), _how(found))


async def review_accept(
    session: Session,
    pending_ids: PendingIds = None,
    *,
    seen: str | None = None,
    always: Always = None,
    binding: Binding = None,
    every: Annotated[bool, typer.Option("--all")] = False,
    hold: bool = False,
) -> int:
    """Accept held writes: they are carried out in your name.

    Exit 5 if a record that a write would change has changed since it was held. The other writes are
    still decided on.

    Args:
        seen: The state that `review show` printed: accept a write whose records changed since it
            was held.
        every: All held writes.
        hold: Each with all that a person held with it, such as what came of one memory.
    """
    if seen is not None and (every or hold or len(pending_ids or ()) != 1):
        raise Invalid("--seen goes with one id.")
    chosen = await _chosen(session, pending_ids, every=every, binding=binding, hold=hold)
    return await _decide(session, chosen, "accept", always, seen=seen)


async def review_fix(
    session: Session, pending_id: PendingId, text: str | None = None, *, seen: str | None = None
) -> int:
    """Edit a held write's text and accept it; without TEXT in your editor.

    The agent's summary is dropped with its text; its other fields stay and are named.

    Args:
        text: The new text; - reads it from stdin.
        seen: As for `review accept`.
    """
    [one] = await _chosen(session, [pending_id])
    if text is not None:
        return await _fix(session, one, read_stdin() if text == "-" else text, seen)
    if not one.text:
        raise Invalid(f"{one.pending_id} changes no text that could be fixed; accept or refuse it.")
    with edited(
        one.text,
        session.settings.editor,
        within=session.paths.data,
        keep=lambda file: session.out.say(f"Your text is kept in {file}."),
        of=(one.binding_key, one.pending_id),
    ) as changed:
        return await _fix(session, one, changed, seen)


async def _fix(session: Session, one: PendingWrite, text: str, seen: str | None) -> int:
    kept = kept_with(one, session.zone)
    notes = (left_out(one, text), f"Stored as the agent gave it: {kept}." if kept else "")
    return await _decide(session, [one], "fix", notes=notes, text=text, seen=seen)


async def review_refuse(
    session: Session,
    pending_ids: PendingIds = None,
    *,
    reason: str = "",
    always: Always = None,
    binding: Binding = None,
    older_than: Annotated[str | None, typer.Option(metavar="AGE")] = None,
    every: Annotated[bool, typer.Option("--all")] = False,
    hold: bool = False,
) -> int:
    """Refuse held writes: nothing is stored. Undo brings them back into the queue.

    Args:
        reason: Why; it is kept in the log.
        older_than: All writes that are held for longer: 30d.
        every: All held writes.
        hold: As for `review accept`.
    """
    before = session.moment(older_than) if older_than else None
    chosen = await _chosen(
        session, pending_ids, every=every, binding=binding, before=before, hold=hold
    )
    return await _decide(session, chosen, "refuse", always, reason=reason)


async def review_dismiss(
    session: Session,
    binding_key: BindingKey,
    record_id: Annotated[str, typer.Argument(metavar="RECORD")],
    *,
    risk: list[str] | None = None,
    again: bool = False,
) -> None:
    """Remember that the risks of a stored record are none, until its text changes.

    `memtui doctor --risks` lists the risks. Undo makes them count again.

    Args:
        record_id: The id of a stored record with a risk.
        risk: Only this risk, such as secret; may be repeated.
        again: Let dismissed risks count again.
    """
    if stray := next((one for one in risk or () if one not in RISK_WORDS), None):
        raise Invalid(unknown("risk", stray, RISK_WORDS))
    reasons = [reason for one in risk or () for reason in RISK_WORDS[one]]
    if states := {*RISK_STATES} & {*reasons}:
        raise Invalid(f"{min(states)} is no risk; leave --risk out for all of the record.")
    done = await session.service.risks.dismiss(
        session.caller, binding_key, record_id, reasons, again=again
    )
    what = "counts as a risk again" if again else "is no risk, until a text changes"
    words = ", ".join(WORDS[one] for one in done)
    session.out.answer({"dismissed": not again, "risks": done}, [], f"{record_id} {what}: {words}.")


async def review_rules(session: Session, key: str | None = None) -> None:
    """List the rules that hold, accept or refuse what agents write.

    Args:
        key: The binding's key; left out: all bindings.
    """
    bindings = await session.service.bindings.all(session.caller)
    if key is not None and key not in {one.key for one in bindings}:
        await session.service.review.rules(session.caller, key)  # says which there are
    rows = [
        [one.key, rule.action, rule.test, rule.value]
        for one in bindings
        for rule in one.review
        if key in {None, one.key}
    ]
    titles = columns("binding", "action", "test", "value*")
    document = {one.key: one.review for one in bindings if key in {None, one.key}}
    none = "" if rows else "No rule: what agents write is stored at once."
    session.out.answer({"rules": document}, table(titles, rows) if rows else (), none)


async def review_rule(
    session: Session,
    key: BindingKey,
    action: Literal["hold", "accept", "refuse"],
    test: Literal[
        "all",
        "new-subject",
        "contradiction",
        "instruction",
        "per-run",
        "agent",
        "channel",
        "text",
        "subject",
    ],
    value: str | None = None,
    *,
    remove: bool = False,
) -> None:
    """Set what happens with agents' writes to a binding.

    Rules that refuse come first, then those that accept, then those that hold. A write that no rule
    matches is stored at once.

    Args:
        action: hold, accept or refuse.
        test: all, new-subject, contradiction, instruction, per-run, agent, channel, text or
            subject.
        value: How many, or which agent, channel, text, subject.
        remove: Remove this rule.
    """
    from memtui.service import ReviewRule
    from memtui.service.review.queue import passed_over

    rule = build(ReviewRule, action=action, test=test, value=value or "")
    review = session.service.review
    change = review.remove_rule if remove else review.add_rule
    rules = await change(session.caller, key, rule)
    left = f"{key}: {'; '.join(one.name for one in rules) or 'no rule is left'}."
    beware = "" if remove else passed_over(rule, rules)
    session.out.answer({"binding": key, "rules": rules}, (one.name for one in rules), left, beware)


async def _chosen(
    session: Session,
    pending_ids: list[str] | None,
    *,
    every: bool = False,
    binding: str | None = None,
    before: datetime | None = None,
    hold: bool = False,
) -> list[PendingWrite]:
    """Return the chosen held writes, each once; `hold`: with all that was held with them.

    Raises:
        Invalid: none are chosen, or in more than one way, or a named one is part of no hold.
        NotFound: a named one is not held, or none are.
    """
    if bool(pending_ids) + (every or before is not None) != 1:
        raise Invalid("Name what to decide on by its id, or say --all.")
    if hold and not pending_ids:
        raise Invalid("--hold goes with the id of something that a person held.")
    review = session.service.review
    if pending_ids:
        named = [await review.get(session.caller, one) for one in pending_ids]
        if hold:
            if alone := next((one.pending_id for one in named if one.hold_id is None), None):
                raise Invalid(f"{alone} is part of no hold; leave out --hold.")
            holds = {one.hold_id for one in named}
            waiting = await review.waiting(session.caller)
            named += [one for one in waiting if one.hold_id in holds]
        return list({one.pending_id: one for one in named}.values())
    waiting = await review.waiting(session.caller, binding)
    found = [one for one in waiting if before is None or one.pending_since < before]
    if not found:
        raise NotFound("Nothing of the sort waits for review.")
    return found


async def _decide(
    session: Session,
    chosen: list[PendingWrite],
    decision: Literal["accept", "fix", "refuse"],
    always: str | None = None,
    *,
    notes: Sequence[str] = (),
    **how: Any,
) -> int:
    """Decide on each held write; print the results, and return the exit code."""
    from memtui.service import RuleAction, RuleTest
    from memtui.service.usecases.deciding import decide

    action = RuleAction.REFUSE if decision == "refuse" else RuleAction.ACCEPT
    test = RuleTest(always) if always else None
    found = await decide(session.service, session.caller, chosen, action, always=test, **how)
    done = [
        {"pending_id": one.pending_id, "decision": decision, **_answered(answer)}
        for one, answer in found.writes.done
    ]
    failed = failures("pending_id", ((one.pending_id, error) for one, error in found.failed))
    rules = list(dict.fromkeys(rule for _, rule in found.rules))
    what = "it" if len(done) + len(rules) == 1 else "all of it"
    session.out.answer(
        {"decided": done, "failed": failed, "rules": rules},
        (id_ for one in done for id_ in one["record_ids"]),
        *(f"{one['pending_id'][:_SHORT]}: {one['message']}" for one in failed),
        *(f"{_WORDS[decision]} {one['pending_id'][:_SHORT]}." for one in done),
        *notes,
        *(f"From now on: {rule.name}." for rule in rules),
        f"memtui undo {done[-1]['operation_id']} takes {what} back." if done else "",
        *dict.fromkeys(found.rules.values()),
    )
    return code_of_several(error for _, error in found.failed)


def _answered(answer: MutationAnswer | str) -> Json:
    """Return the result of a decision as JSON."""
    if isinstance(answer, str):
        return {"record_ids": [], "operation_id": answer}
    return {"record_ids": changed_ids(answer), **jsonable(answer)}


_WORDS = {"accept": "Accepted", "fix": "Fixed and accepted", "refuse": "Refused"}


def _row(session: Session, one: PendingWrite) -> list[str]:
    not_yours = " (not yours to decide)" * bool(one.kept)
    return [
        one.pending_id[:_SHORT],
        shown.ago(one.pending_since, session.now),
        one.principal,
        one.operation_type.value,
        f"{one.binding_key}: {owners_of(one)}",
        ", ".join(one.reasons) + " (unfit)" * bool(one.unfit) + not_yours,
        visible(briefly(one, session.zone), limit=_CHARS),
    ]


def _details(session: Session, one: PendingDetails) -> Iterator[Line]:
    for difference in one.differences:
        if len(one.differences) > 1 and difference.before is not None:
            yield Dim(difference.before.handle.provider_record_id)
        yield from change_of(difference.before, difference.after, whole=True)
    yield ""
    yield from fields(*about(one, session.now, session.zone), ("seen", one.seen))
    if one.orders:
        yield ORDERS
    for title, records in beside(one):
        for record in records:
            yield Dim(f"{title}  {record.handle.provider_record_id}")
            yield from change_of(None, record, whole=True)


def _how(one: PendingDetails) -> str:
    if one.unfit:
        return f"It can only be refused: memtui review refuse {one.pending_id[:_SHORT]}."
    if one.gone:
        return f"{GONE}: memtui review refuse {one.pending_id[:_SHORT]}."
    seen = f" --seen {one.seen}" if one.changed else ""
    return (
        f"memtui review accept {one.pending_id[:_SHORT]}{seen} accepts it, memtui review refuse "
        f"{one.pending_id[:_SHORT]} does not."
    )
