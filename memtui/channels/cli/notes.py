"""`note` and `correct`: store a memory, or change one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memtui.channels.cli.forget import changed_ids, looked_up, pending
from memtui.channels.cli.input import read_stdin
from memtui.channels.cli.options import (
    BindingOptions,
    OfKind,
    RecordId,
    Revision,
    ScopeOptions,
    SourceOptions,
    json_object,
)
from memtui.channels.cli.records import say_first_of
from memtui.channels.cli.session import FirstSession, Session, handle_in
from memtui.contract import CorrectRequest, Invalid, WriteMode, WriteRequest
from memtui.external_editor import edited
from memtui.fact_values import FACT
from memtui.presenters import format as shown
from memtui.visible import visible

if TYPE_CHECKING:
    from memtui.service import MutationAnswer

_SIMILAR_CHARS = 80

Topic = Annotated[str | None, typer.Option(help="Its topic.")]
Expires = Annotated[
    str | None,
    typer.Option(
        help="When it expires and is no longer returned: 30d from now, tomorrow, or a date."
    ),
]


async def note(
    session: FirstSession,
    scope: ScopeOptions,
    source: SourceOptions,
    text: str | None = None,
    *,
    file: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    dry_run: bool = False,
    kind: str = "note",
    title: str | None = None,
    summary: str | None = None,
    topic: Topic = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG")] = None,
    pin: bool = False,
    expires: Expires = None,
    valid_from: str | None = None,
    valid_to: str | None = None,
    record_id: str | None = None,
    mode: WriteMode = WriteMode.APPEND,
    metadata: str | None = None,
    update: Annotated[str | None, typer.Option(metavar="ID")] = None,
) -> int:
    """Store TEXT as a memory and print the new record's id.

    It names the records that already say the same, or nearly the same. With --file each object of a
    JSON document, or of a line, becomes a note: its text and, where given, title, summary, topic,
    tags, kind, pinned, source, metadata and times. In markdown each heading of the highest level
    begins a note, and the frontmatter gives topic, tags and kind of all. --kind, --topic, --tag and
    a source apply to notes that name none. A text that is already stored is skipped, so that a file
    can be loaded again; one undo undoes all of it. Exit 1 if a note was refused.

    Args:
        text: What to remember; - reads it from stdin.
        file: Store the records of a .json, .jsonl or .md file.
        dry_run: With --file: say what would be stored.
        kind: The sort of record: note, fact, reference …
        title: Its title.
        summary: A shorter form, which is searched and listed instead of TEXT.
        tag: A tag; may be repeated.
        pin: Pin it.
        valid_from: When it began to be valid, if not now: 7d before now, or a date.
        valid_to: When it stops being valid: 30d from now, or a date.
        record_id: The id to store it under, where the provider keeps ids.
        mode: upsert replaces the record of the same id or key.
        metadata: A JSON object to keep with it.
        update: Change this record to TEXT instead of storing a new one.
    """
    whole = (title, summary, expires, valid_from, valid_to, record_id, metadata, update)
    if file is not None:
        from memtui.channels.cli.record_files import load_file

        if text is not None or pin or any(whole) or mode is not WriteMode.APPEND:
            raise Invalid("With --file give only whose notes, a source, --kind, --topic and --tag.")
        defaults = {"kind": kind, "topic": topic, "tags": tuple(tag or ())}
        return await load_file(session, file, scope, source, defaults, dry_run=dry_run)
    if text is None or dry_run:
        raise Invalid("Give the text to remember, or --file FILE; --dry-run goes with --file.")
    if update is not None:
        if any((title, record_id, metadata, valid_from, valid_to)) or kind != "note":
            raise Invalid("With --update give the text, --topic, --tag, --pin or --expires alone.")
        await correct(
            session, update, scope, text, summary=summary, topic=topic, tag=tag,
            pin=pin or None, expires=expires,
        )  # fmt: skip
        return 0
    if mode is WriteMode.UPSERT and kind == "note" and record_id is None:
        raise Invalid(
            "--mode upsert replaces the record of the same id or key; give --record-id, or "
            "--kind fact with a text such as `key: value`."
        )
    await store(
        session,
        scope,
        source,
        content=_typed(text, kind),
        mode=mode,
        metadata=json_object(metadata, "--metadata"),
        record_id=record_id,
        kind=kind,
        title=title,
        summary=summary,
        topic=topic,
        tags=tuple(tag or ()),
        pinned=pin,
        expires_at=session.ahead(expires),
        valid_from=session.moment(valid_from) if valid_from else None,
        valid_to=session.future(valid_to),
    )
    return 0


async def store(
    session: Session, scope: BindingOptions, source: SourceOptions, **values: Any
) -> None:
    """Write a record, print its id, and say which binding stores it, and why."""
    request = scope.request(
        session,
        WriteRequest,
        source=source.reference(scope.scope(session)),
        created_by=session.caller.principal,
        **values,
    )
    await say_first_of(session, request.scope, request.binding_key)
    answer = await session.service.write(session.caller, request, tell_similar=True)
    session.out.answer(
        answer,
        changed_ids(answer),
        *_similar(answer),
        answer.no_search,
        _redacted(answer),
        answer.loss,
        _own_id(request, answer),
        *([pending(answer)] if answer.pending else _stored(session, request, answer)),
    )


def _typed(text: str, kind: str | None) -> str:
    """Return the given text, or stdin for `-`; for a fact without the final line break."""
    typed = read_stdin() if text == "-" else text
    return typed.removesuffix("\n") if kind == FACT and text == "-" else typed


def _stored(session: Session, request: WriteRequest, answer: MutationAnswer) -> Iterator[str]:
    stored = f"{_done(answer)} in {answer.binding_key} ({answer.binding_reason})"
    if not answer.handles:
        asks = f" memtui ops check {answer.operation_id} asks what came of it."
        took = f"{answer.binding_key} took it and stores it on its own time."
        yield f"{took}{asks if answer.event else ''}"
    yield _ahead(session, request)
    if answer.handles:
        yield f"{stored}; memtui undo {answer.operation_id} undoes it."
    else:
        sent = f"Sent to {answer.binding_key} ({answer.binding_reason})"
        yield f"{sent}; operation {answer.operation_id}."


def _done(answer: MutationAnswer) -> str:
    """Return `Stored`, or `Changed “…”` if the write replaced the value of a fact's key."""
    return "Stored" if answer.was is None else f"Changed “{visible(answer.was)}”"


def _own_id(request: WriteRequest, answer: MutationAnswer) -> str:
    """Return that the provider ignored the requested id; empty: it did not."""
    given = [one.provider_record_id for one in answer.handles]
    if request.record_id is None or not given or request.record_id in given:
        return ""
    return (
        f"{answer.binding_key} gives ids of its own, so it is not stored as "
        f"{visible(request.record_id)}."
    )


def _similar(answer: MutationAnswer) -> Iterator[str]:
    """Yield records that say the same or nearly the same, and how to update one instead."""
    for one in answer.similar:
        how = "As good as there already" if one.is_same else "Close to what is there"
        text = visible(shown.beginning(one.record.shown), limit=_SIMILAR_CHARS)
        record_id = visible(one.record.handle.provider_record_id)
        yield f"{how} ({one.likeness:.2f}): {record_id} “{text}”."
    if answer.similar and not answer.pending:
        yield (
            f"To change one of these instead: `memtui undo {answer.operation_id}`, then "
            "`memtui note --update ID TEXT`."
        )


def _ahead(session: Session, request: WriteRequest) -> str:
    """Return that the record is not valid now; empty: it is."""
    begin, end = request.valid_from, request.valid_to
    if begin is not None and begin > session.now:
        return f"It is valid from {shown.exact(begin, session.zone)}; it is not listed before."
    if end is not None and end <= session.now:
        return f"It was valid until {shown.exact(end, session.zone)}; --as-of shows it."
    return ""


async def correct(
    session: Session,
    record_id: RecordId,
    scope: ScopeOptions,
    text: str | None = None,
    *,
    revision: Revision = None,
    kind: OfKind = None,
    summary: str | None = None,
    topic: Topic = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG")] = None,
    pin: Annotated[bool | None, typer.Option("--pin/--no-pin")] = None,
    expires: Expires = None,
    no_expiry: bool = False,
    editor: bool = False,
) -> None:
    """Change a record; what is not given stays as it is.

    Its text, topic, tags, pin or expiry can be changed.

    Args:
        text: The new text; - reads it from stdin.
        summary: Its new summary; an empty one removes it.
        tag: Its new tags; an empty one removes them all.
        pin: Pin it, or unpin it.
        no_expiry: Remove its expiry.
        editor: Change its text in your editor.
    """
    if editor and text is not None:
        raise Invalid("Give the new text or --editor, not both.")
    if no_expiry and expires is not None:
        raise Invalid("Give --expires or --no-expiry, not both.")
    given = (text, summary, topic, tag, pin, expires)
    nothing = all(value is None for value in given) and not no_expiry
    if nothing and not editor:
        raise Invalid("Nothing to change; give a new text, --editor, or one of the options.")
    found = await session.resolved(scope.scope(session), scope.binding)
    if kind is not None:
        there, missing = await looked_up(session, [record_id], scope, kind)
        if missing:
            raise missing[record_id]
        looked = there[0].record
        revision = revision or (None if looked.caution else looked.revision)
    request = scope.request(
        session,
        CorrectRequest,
        handle=handle_in(found, record_id),
        text=None if text is None else _typed(text, kind),
        revision=revision,
        pinned=pin,
        summary=summary,
        topic=topic,
        tags=None if tag is None else tuple(word for word in tag if word),
        expires_at=session.ahead(expires),
        never_expires=no_expiry,
    )
    if editor:
        await _correct_in_editor(session, request)
    else:
        answer_corrected(session, await session.service.correct(session.caller, request))


async def _correct_in_editor(session: Session, request: CorrectRequest) -> None:
    found = await session.service.get(
        session.caller, request.handle, request.scope, binding_key=request.binding_key
    )
    if found.record.caution:
        session.out.say(found.record.caution)
    with edited(
        found.record.text,
        session.settings.editor,
        within=session.paths.data,
        keep=lambda file: session.out.say(f"Your text is kept in {file}."),
        of=(found.binding_key, found.record.handle.provider_record_id),
    ) as text:
        if text == found.record.text:
            session.out.say("Nothing was changed.")
            if session.out.as_json:
                session.out.document(found)
            return
        changed = request.model_copy(
            update={"text": text, "revision": request.revision or found.record.revision}
        )
        answer_corrected(session, await session.service.correct(session.caller, changed))


def answer_corrected(session: Session, answer: MutationAnswer) -> None:
    """Print a correction's answer, and how to undo it."""
    session.out.answer(
        answer, changed_ids(answer), _redacted(answer), answer.loss, corrected(answer)
    )


def corrected(answer: MutationAnswer) -> str:
    """Say how to undo a correction. Of a pending one, say that it waits for review."""
    return pending(answer) or f"Corrected; memtui undo {answer.operation_id} undoes it."


def _redacted(answer: MutationAnswer) -> str:
    return (
        f"Taken out before it was stored: {', '.join(answer.redacted)}." if answer.redacted else ""
    )
