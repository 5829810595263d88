"""`purge`: erase memtui's own copies of forgotten records for good, and search for remains."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.channels.cli.options import Yes, complete_binding, complete_name
from memtui.channels.cli.output import Dim, Line, columns, jsonable, table
from memtui.channels.cli.session import Session, build
from memtui.contract import Invalid, NotFound
from memtui.presenters import format as shown
from memtui.presenters import traces as words
from memtui.wording import unknown

if TYPE_CHECKING:
    from memtui.analytics.traces import Trace
    from memtui.service import Caller
    from memtui.service.home.survey import Living, PurgeAnswer, PurgeRequest

_COPIES = columns("place*", "copies>", "of")
_LIVING = ("lives in", "record", "text*")
_REACHED = columns("binding", "written>", "came of it>", "derived>", "cannot go>")
_HIDDEN = "not yours to see"
_LOOKED_AT = 100_000
"""Newest operations whose names are compared with an unknown name."""


async def purge(
    session: Session,
    record_id: str | None = None,
    *,
    subject: Annotated[str | None, typer.Option(autocompletion=complete_name("user"))] = None,
    project: Annotated[str | None, typer.Option(autocompletion=complete_name("project"))] = None,
    run: Annotated[str | None, typer.Option(autocompletion=complete_name("run"))] = None,
    source: str | None = None,
    through: Annotated[int, typer.Option(min=1, max=3)] = 1,
    texts_older_than: str | None = None,
    binding: Annotated[str | None, typer.Option(autocompletion=complete_binding)] = None,
    forget: bool = False,
    keep_doing: bool = False,
    stop_doing: bool = False,
    yes: Yes = False,
) -> int:
    """Erase memtui's own copies of what is gone, for good.

    Without --yes it shows what would go and changes nothing. Records that still exist stay, unless
    --forget is given. Afterwards it searches for the erased texts; exit 1 if one is still found, or
    if what is named is unknown.

    Args:
        record_id: One record, whatever ids it had.
        subject: All memories of and about this person or identity.
        project: All memories of this project.
        run: All that this run wrote, and what came of it: every later write in which its text came
            back, and what a provider made of these.
        source: The same of the document at this address.
        through: With --run or --source: the least certainty that something came of it, as for
            memtui trace.
        texts_older_than: The texts of operations older than this, 90d or 2026-03-01.
        binding: The record's binding.
        forget: First forget the records that still exist.
        keep_doing: With --texts-older-than 90d: let the setting purge_after_days do this from now
            on.
        stop_doing: Undo --keep-doing.
    """
    from memtui.service.home.survey import PurgeRequest

    if stop_doing:
        await session.service.purging.keep_doing(session.caller, None)
        session.out.answer({"purge_after_days": None})
        session.out.say("Nothing is purged by age from now on.")
        return 0
    if not any((record_id, subject, project, run, source, texts_older_than)):
        raise Invalid(
            "Say what: a record's id, --subject, --project, --run, --source or --texts-older-than; "
            "without --yes nothing is changed."
        )
    before = session.past(texts_older_than)
    request = build(
        PurgeRequest,
        record_id=record_id,
        binding_key=binding,
        subject_id=subject,
        project_id=project,
        run_id=run,
        source=source,
        through=through,
        before=before,
        forget=forget,
    )
    if keep_doing and before is None:
        raise Invalid("--keep-doing goes with --texts-older-than.")
    purging = session.service.purging
    if not yes:
        plan = await _asked(session, request, purging.plan)
        session.out.answer(plan, _planned(plan, forget=forget))
        session.out.say("Nothing was changed; say --yes to erase this for good.")
        return 0
    done = await _asked(session, request, purging.apply)
    if keep_doing and before is not None:
        days = (session.now - before) // timedelta(days=1)
        await purging.keep_doing(session.caller, days)
        if session.settings.purge_after_days < days:
            session.out.say(
                f"Set purge_after_days = {days} in {session.paths.config_file} to have the app and "
                "the server do this from now on."
            )
    left = [one.model_dump() for one in done.left]
    session.out.answer(jsonable(done) | {"left": left, "passed": not left}, _done(done))
    return 1 if left else 0


async def _asked(
    session: Session,
    request: PurgeRequest,
    ask: Callable[[Caller, PurgeRequest], Awaitable[PurgeAnswer]],
) -> PurgeAnswer:
    """Return the answer; on `NotFound`, name an unknown user or project with near names."""
    try:
        return await ask(session.caller, request)
    except NotFound:
        seen = await session.service.log.scopes(session.caller, _LOOKED_AT, removed=True)
        for what, field in (("user", "subject_id"), ("project", "project_id"), ("run", "run_id")):
            name = getattr(request, field)
            known = sorted({value for one in seen if (value := getattr(one, field))})
            if name and name not in known:
                session.out.say(unknown(what, name, known))
        raise


def _planned(plan: PurgeAnswer, *, forget: bool) -> Iterator[Line]:
    yield from _listed(plan)
    going = [one for one in plan.living if forget and not one.stays]
    staying = [one for one in plan.living if one not in going]
    yield from _living("These live and would be forgotten first:", going)
    hint = "" if forget else " unless you say --forget"
    yield from _living(f"These live and stay{hint}:", staying)
    yield from _beyond(plan)


def _done(done: PurgeAnswer) -> Iterator[Line]:
    yield from _listed(done)
    if done.forgotten:
        yield f"Forgot {shown.counted(done.forgotten, 'record')} first."
    yield from _living("These live and stay:", done.living)
    yield ""
    found = done.found
    if found is not None and found.texts:
        texts = shown.counted(found.texts, "text")
        end = "found" if found.traces else "none found"
        yield f"Looked for {texts} in {found.files:,} files, {found.bytes:,} bytes: {end}."
        for trace in done.left:
            yield f"still in {_where(trace)}"
        for trace in done.others:
            yield Dim(f"another memory says it in {_where(trace)}")
        for place in found.unread:
            yield f"could not be read: {place}"
    else:
        yield "There was no text to look for."
    if done.short:
        yield (
            f"{shown.counted(done.short, 'text')} too short to be looked for: "
            "the places above were emptied of them."
        )
    yield from _beyond(done)


def _where(trace: Trace) -> str:
    return f"{trace.place} {trace.key}: {trace.text or _HIDDEN}"


def _listed(answer: PurgeAnswer) -> Iterator[Line]:
    if answer.reached:
        for_each = (
            [
                one.binding_key,
                *map(shown.count, (one.written, one.came_of_it, one.derived, one.stay)),
            ]
            for one in answer.reached
        )
        yield from table(_REACHED, for_each)
        yield ""
    if not answer.copies:
        yield "memtui keeps no copy of it."
        return
    rows = ([one.place, shown.count(one.count), one.what] for one in answer.copies)
    yield from table(_COPIES, rows)


def _living(heading: str, living: Sequence[Living]) -> Iterator[Line]:
    if living:
        yield ""
        yield heading
        why = ["cannot go, as"] if any(one.stays for one in living) else []
        rows = (
            [one.binding_key, one.record_id or _HIDDEN, one.text, *([one.stays] if why else [])]
            for one in living
        )
        yield from table(columns(*_LIVING, *why), rows)


def _beyond(answer: PurgeAnswer) -> Iterator[Line]:
    yield ""
    yield Dim("Not in memtui's reach:")
    for sentence in answer.beyond:
        yield Dim(f"- {sentence}")
    if answer.unknown:
        yield Dim("Not known to the log, so that more may have come of it:")
        yield from (Dim(f"- {sentence}") for sentence in words.unknown(answer.unknown))
