"""`facts`: what every prompt is told, one line each."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Filter,
    ForgetRequest,
    Invalid,
    MemtuiError,
    Problem,
    Record,
    Scope,
    WriteRequest,
    own_filter,
    owned,
)
from memtui.doors.cli.forget import answer_forgotten, confirm, ids_of, tell_forgotten
from memtui.doors.cli.notes import Expires, Tags, read_stdin, tell_corrected, tell_written
from memtui.doors.cli.options import (
    FilterLine,
    RecordId,
    Since,
    SourceOptions,
    Until,
    Yes,
    complete_binding,
    complete_name,
    filter_of,
    future,
)
from memtui.doors.cli.output import Dim, Line, columns, facts, jsonable, table
from memtui.doors.cli.records import say_unknown_of_records
from memtui.doors.cli.session import Session, build
from memtui.filters import Taker, parse_when
from memtui.visible import visible
from memtui.widgets import format as shown

if TYPE_CHECKING:
    from memtui.service import FactMetrics, MutationAnswer


FACT = "fact"


@dataclass(frozen=True, slots=True)
class FactScope:
    """Whose facts, and in which binding."""

    subject: Annotated[str | None, typer.Option(help="The user whose facts they are.")] = None
    project: Annotated[
        str | None,
        typer.Option(
            help="The project (drive) whose facts.", autocompletion=complete_name("project")
        ),
    ] = None
    agent: Annotated[
        str | None,
        typer.Option(
            help="The agent whose facts; with a subject or project, the one that they come from.",
            autocompletion=complete_name("agent"),
        ),
    ] = None
    binding: Annotated[
        str | None,
        typer.Option(
            help="Use this binding instead of the one that the scope resolves to.",
            autocompletion=complete_binding,
        ),
    ] = None

    def scope(self, session: Session) -> Scope:
        """Return the scope in the session's company.

        Raises:
            Invalid: it names a user and a project; a fact belongs to one of them.
        """
        if self.subject is not None and self.project is not None:
            raise Invalid("A fact is a user's or a project's; give --subject or --project.")
        return build(
            Scope,
            company_id=session.company.company_id,
            project_id=self.project,
            agent_id=self.agent,
            subject_id=self.subject,
        )

    def named(self, session: Session) -> tuple[Scope, str]:
        """Return the scope and the id of who owns its facts.

        Raises:
            Invalid: it names nobody.
        """
        scope = self.scope(session)
        name = self.project or self.subject or self.agent
        if name is None:
            raise Invalid("Whose facts? Give --subject, --project or --agent.")
        return scope, name


class OwnFacts(NamedTuple):
    """A scope's own facts, the oldest first, and what could not be read where they are kept."""

    records: list[Record]
    problems: tuple[Problem, ...]


async def facts_of(
    session: Session, scope: Scope, binding: str | None, chosen: Filter | None = None
) -> OwnFacts:
    """Return a scope's own facts that a filter lets through, page by page."""
    own = own_filter(scope, kind=FACT).model_dump(exclude_none=True)
    request = build(
        BrowseRequest,
        scope=scope,
        binding_key=binding,
        filter={**(chosen.model_dump(exclude_none=True) if chosen else {}), **own},
        sort="created_at",
    )
    records: list[Record] = []
    async for page in session.service.pages(session.caller, request):
        records += page.records
    return OwnFacts(owned(records, scope), page.problems)


async def fact(session: Session, record_id: str, scope: Scope, binding: str | None) -> Record:
    """Return one fact.

    Raises:
        NotFound: there is no such record in the scope.
        Invalid: the record is no fact.
    """
    answer = await session.service.get(session.caller, record_id, scope, binding_key=binding)
    if answer.record.kind != FACT:
        raise Invalid(f"{record_id} is no fact but a {answer.record.kind}; use memtui correct.")
    return answer.record


def revisions(records: Sequence[Record]) -> dict[str, str]:
    """Return the revision of each record that has one, by record id."""
    return {
        record.handle.provider_record_id: record.revision
        for record in records
        if record.revision is not None
    }


FactIds = Annotated[
    list[str],
    typer.Argument(metavar="FACT_ID", help="The facts' ids; - reads one a line from stdin."),
]
_COLUMNS = columns("id", "added>", "by", "", "expires>", "tokens>", "fact*")


async def facts_list(
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
        session.out.say(
            f"{shown.counted(len(records), 'fact')}, {shown.counted(sum(tokens), 'token')} "
            f"({counter.tokenizer}{'' if counter.exact else ', estimated'})."
        )
    if not records:
        place = scope.scope(session)
        await say_unknown_of_records(session, chosen, place, chosen.binding_key)


async def facts_add(
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


async def facts_edit(
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


async def facts_delete(
    session: Session, record_ids: FactIds, scope: FactScope, *, yes: Yes = False
) -> int:
    """Delete facts; undo brings them back.

    Exit 1 if one is still found afterwards.
    """
    chosen = scope.scope(session)
    ids = ids_of(record_ids)
    records = [await fact(session, record_id, chosen, scope.binding) for record_id in ids]
    if not yes:
        confirm(f"Delete {shown.counted(len(records), 'fact')}?")
    return answer_forgotten(session, await _forget(session, records, chosen, scope.binding))


def _rows(
    session: Session, records: Sequence[Record], tokens: Sequence[int]
) -> Iterator[list[str]]:
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


async def facts_clear(
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
    return answer_forgotten(session, await _forget(session, records, chosen, scope.binding))


async def facts_merge(
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


async def facts_pin(session: Session, record_ids: FactIds, scope: FactScope) -> None:
    """Pin facts.

    A pinned one comes first in a prompt and is never suggested for pruning.
    """
    await _change_each(session, record_ids, scope, pinned=True)


async def facts_unpin(session: Session, record_ids: FactIds, scope: FactScope) -> None:
    """Take the pin off facts."""
    await _change_each(session, record_ids, scope, pinned=False)


async def facts_expire(
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
    if not sys.stdin.isatty():
        raise Invalid(f"{warning} Nobody can confirm that here, so add --yes {name}.")
    _check_name(typer.prompt(visible(f"{warning} Type {name} to go on"), err=True), name)


def _check_name(typed: str, name: str) -> None:
    if typed != name:
        raise Invalid(f"{typed} is not {name}, so nothing was deleted.")


_DAY_COLUMNS = columns(
    "day", "added>", "deleted>", "by ai>", "by user>", "contexts>", "average tokens>"
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
    session.out.answer(metrics, lambda: _metrics(session, metrics))


def _metrics(session: Session, found: FactMetrics) -> Iterator[Line]:
    since, until = (shown.exact(moment, session.zone) for moment in (found.since, found.until))
    yield Dim(f"{since} to {until}")
    yield from facts([*_of_facts(found), *_of_contexts(found)])
    yield from table(_DAY_COLUMNS, _day_rows(found))


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


def _day_rows(found: FactMetrics) -> Iterator[list[str]]:
    for day in found.days:
        figures = (day.facts_added, day.facts_deleted, day.saves_by_ai, day.saves_by_user)
        if any(figures) or day.contexts:
            tokens = _number(day.average_context_tokens)
            yield [day.day.isoformat(), *map(str, figures), str(day.contexts), tokens]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"
