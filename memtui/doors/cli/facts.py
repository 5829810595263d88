"""`facts list`, `add`, `edit` and `delete`: what every prompt is told, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.doors.cli.fact_scope import FACT, FactScope, fact, facts_of, revisions
from memtui.doors.cli.forget import confirm, ids_of, tell_forgotten
from memtui.doors.cli.nearest import say_unknown_of_records
from memtui.doors.cli.notes import Expires, Tags, read_stdin, tell_corrected, tell_written
from memtui.doors.cli.options import (
    FilterLine,
    RecordId,
    Since,
    SourceOptions,
    Until,
    Yes,
    filter_of,
    future,
)
from memtui.doors.cli.output import jsonable
from memtui.doors.cli.session import Session, build
from memtui.doors.cli.tables import Column, table

if TYPE_CHECKING:
    from memtui.contract import Record

FactIds = Annotated[
    list[str],
    typer.Argument(metavar="FACT_ID", help="The facts' ids; - reads one a line from stdin."),
]
_COLUMNS = (
    Column("id"),
    Column("added", right=True),
    Column("by"),
    Column(""),
    Column("expires", right=True),
    Column("tokens", right=True),
    Column("fact", stretch=True),
)


async def list_facts(
    session: Session,
    scope: FactScope,
    line: FilterLine = None,
    *,
    since: Since = None,
    until: Until = None,
) -> None:
    """List facts: who added them, when, and what each costs.

    Without a scope it lists everybody's.
    """
    from memtui.context.assembly import fact_tokens
    from memtui.context.cost import TokenCounter
    from memtui.filters import Taker

    chosen = filter_of(
        session,
        line,
        Taker.FACTS,
        since=since,
        until=until,
        project_id=scope.project,
        subject_id=scope.subject,
        binding_key=scope.binding,
    )
    records, problems = await facts_of(session, scope.scope(session), chosen.binding_key, chosen)
    counter = TokenCounter(session.settings.context_model)
    tokens = [fact_tokens(record.text, counter) for record in records]
    document = {
        "facts": [
            jsonable(record) | {"tokens": cost}
            for record, cost in zip(records, tokens, strict=True)
        ],
        "count": len(records),
        "tokens": sum(tokens),
        "exact": counter.exact,
        "tokenizer": counter.tokenizer,
        "problems": jsonable(problems),
    }
    session.out.answer(document, lambda: table(_COLUMNS, _rows(session, records, tokens)))
    if not session.out.as_json:
        from memtui.widgets import format as shown

        session.out.say(
            f"{shown.counted(len(records), 'fact')}, {shown.counted(sum(tokens), 'token')} "
            f"({counter.tokenizer}{'' if counter.exact else ', estimated'})."
        )
    if not records:
        place = scope.scope(session)
        await say_unknown_of_records(session, chosen, place, chosen.binding_key)


async def add_fact(
    session: Session,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The fact, one line; - reads it from stdin.")
    ],
    scope: FactScope,
    source: SourceOptions,
    *,
    topic: Annotated[str | None, typer.Option(help="Its topic.")] = None,
    tag: Tags = None,
    pin: Annotated[bool, typer.Option("--pin", help="Pin it.")] = False,
    expires: Expires = None,
) -> None:
    """Add a fact and print its id.

    A fact is one line of at most 200 characters, and a user or project has at most 50; the settings
    fact_max_chars and fact_max_count change that.
    """
    from memtui.contract import WriteRequest

    chosen = scope.scope(session)
    request = build(
        WriteRequest,
        scope=chosen,
        source=source.reference(chosen),
        content=read_stdin().removesuffix("\n") if text == "-" else text,
        binding_key=scope.binding,
        kind=FACT,
        topic=topic,
        tags=tuple(tag or ()),
        pinned=pin,
        created_by=session.caller.principal,
        expires_at=future(expires, now=session.now, zone=session.zone),
    )
    answer = await session.service.write(session.caller, request)
    session.out.answer(answer, lambda: [handle.provider_record_id for handle in answer.handles])
    if not session.out.as_json:
        tell_written(session, answer)


async def edit_fact(
    session: Session,
    record_id: RecordId,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The new text; - reads it from stdin.")
    ],
    scope: FactScope,
    *,
    revision: Annotated[
        str | None, typer.Option(help="Refuse unless the fact still has this revision.")
    ] = None,
) -> None:
    """Change a fact's text."""
    from memtui.contract import CorrectRequest

    chosen = scope.scope(session)
    record = await fact(session, record_id, chosen, scope.binding)
    request = build(
        CorrectRequest,
        scope=chosen,
        handle=record.handle,
        binding_key=scope.binding,
        text=read_stdin().removesuffix("\n") if text == "-" else text,
        revision=revision or record.revision,
    )
    tell_corrected(session, await session.service.correct(session.caller, request))


async def delete_facts(
    session: Session, record_ids: FactIds, scope: FactScope, *, yes: Yes = False
) -> int:
    """Delete facts; undo brings them back.

    Exit 1 if one is still found afterwards.
    """
    from memtui.contract import ForgetRequest
    from memtui.widgets import format as shown

    chosen = scope.scope(session)
    ids = ids_of(record_ids)
    records = [await fact(session, record_id, chosen, scope.binding) for record_id in ids]
    if not yes:
        confirm(f"Delete {shown.counted(len(records), 'fact')}?")
    request = ForgetRequest(
        scope=chosen,
        handles=tuple(record.handle for record in records),
        binding_key=scope.binding,
        revisions=revisions(records),
    )
    answer = await session.service.forget(session.caller, request)
    session.out.answer(answer, lambda: [handle.provider_record_id for handle in answer.handles])
    tell_forgotten(session, answer)
    return 1 if answer.missing or answer.ghosts else 0


def _rows(
    session: Session, records: Sequence[Record], tokens: Sequence[int]
) -> Iterator[list[str]]:
    from memtui.widgets import format as shown

    for record, cost in zip(records, tokens, strict=True):
        yield [
            record.handle.provider_record_id,
            shown.ago(record.created_at, session.now),
            record.created_by or "",
            "pinned" if record.pinned else "",
            shown.ago(record.expires_at, session.now) if record.expires_at else "",
            shown.count(cost),
            record.text,
        ]
