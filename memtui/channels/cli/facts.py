"""`facts`: facts of one line that every prompt gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memtui.channels.cli.command import short_form
from memtui.channels.cli.errors import code_of_several, failures
from memtui.channels.cli.forget import (
    answer_forgotten,
    changed_ids,
    forget,
    forgotten,
    ids_of,
    looked_up,
    not_forgotten,
)
from memtui.channels.cli.input import confirm_name
from memtui.channels.cli.marks import marks_of
from memtui.channels.cli.notes import correct, corrected, note, store
from memtui.channels.cli.options import (
    AddedFact,
    AsOf,
    BindingOptions,
    FactScope,
    FilterLine,
    OwnerOptions,
    RecordId,
    RunOptions,
    Since,
    SourceOptions,
    Until,
    filter_of,
)
from memtui.channels.cli.output import Dim, Line, columns, fields, jsonable, table
from memtui.channels.cli.records import say_unknown_of_records, say_unknown_owners
from memtui.channels.cli.session import FirstSession, Session
from memtui.contract import NotFound, Record, WriteMode
from memtui.fact_values import FACT, fact_text
from memtui.filters import FilterTarget
from memtui.presenters import format as shown

if TYPE_CHECKING:
    from memtui.service import MutationAnswer
    from memtui.service.history.metrics import FactMetrics
    from memtui.service.operations.facts import FactAnswer, FactKeys, FactRequest, KeyedFact


Key = Annotated[str, typer.Argument(metavar="KEY", help="The key, such as deploy_branch.")]
Namespace = Annotated[
    str | None,
    typer.Option(help="The namespace: in a facts file, the heading above the fact."),
]
AllBindings = Annotated[
    bool, typer.Option("--all-bindings", help="Ask every binding, not only those that serve it.")
]
FactIds = Annotated[
    list[str],
    typer.Argument(metavar="FACT_ID", help="The facts' ids; - reads one a line from stdin."),
]


async def facts_list(
    session: Session,
    scope: FactScope,
    line: FilterLine = None,
    *,
    since: Since = None,
    until: Until = None,
    as_of: AsOf = None,
) -> None:
    """List facts: who added them, when, and what each costs.

    Without a scope it lists everybody's. Tokens are counted for each fact and added up. `memtui
    context` counts the whole text with its headings, so its sum is slightly different.
    """
    from memtui.context.assembly import fact_tokens
    from memtui.context.cost import TokenCounter

    session = session.at(as_of)
    chosen = filter_of(
        session,
        line,
        FilterTarget.FACTS,
        since=since,
        until=until,
        project_id=scope.project,
        subject_id=scope.subject,
        binding_key=scope.binding,
    )
    records, last = await scope.facts(session, chosen)
    counter = TokenCounter(session.settings.context_model)
    tokens = [fact_tokens(record.text, counter) for record in records]
    marks = await marks_of(session, [(last.binding_key, one) for one in records])
    document = {
        "facts": [
            marks.document(last.binding_key, record) | {"tokens": cost}
            for record, cost in zip(records, tokens, strict=True)
        ],
        "count": len(records),
        "tokens": sum(tokens),
        "exact": counter.exact,
        "tokenizer": counter.tokenizer,
        "problems": jsonable(last.problems),
        "as_of": jsonable(session.caller)["as_of"],
    }
    titles = columns("id", "added>", "by", "", "expires>", "tokens>", "", "fact*")
    signs = [marks.sign(last.binding_key, record) for record in records]
    session.out.answer(
        document,
        table(titles, _rows(session, records, tokens, signs)),
        f"{shown.counted(len(records), 'fact')}, {shown.counted(sum(tokens), 'token')} line by "
        f"line ({counter.tokenizer}{'' if counter.exact else ', estimated'}); a context has "
        "headings too and is counted as one text.",
    )
    if not records:
        place = scope.scope(session)
        await say_unknown_of_records(session, chosen, place, chosen.binding_key)


facts_add = short_form(
    note,
    """Add a fact and print its id.

    It belongs to the named user or project; an agent that is named too is where it comes from.
    A fact is one line of at most 200 characters, and a user or project has at most 50; the
    settings fact_max_chars and fact_max_count change that.
    """,
    scope=AddedFact,
    kind=FACT,
    title=None,
    summary=None,
    update=None,
)
facts_edit = short_form(
    correct,
    "Change a fact; what is not given stays as it is.",
    scope=FactScope,
    kind=FACT,
    summary=None,
)
facts_delete = short_form(
    forget,
    """Delete facts; undo brings them back.

    With --impact nothing is deleted: the log's last queries and contexts are answered again, with
    the facts and without them. Exit 1 if one was missing, or is still found afterwards.
    """,
    scope=FactScope,
    kind=FACT,
)


def _rows(
    session: Session, records: Sequence[Record], tokens: Sequence[int], signs: Sequence[str]
) -> Iterator[list[str]]:
    for record, cost, mark in zip(records, tokens, signs, strict=True):
        yield [
            record.handle.provider_record_id,
            shown.ago(record.created_at, session.now),
            record.created_by or "",
            "pinned" if record.pinned else "",
            shown.ago(record.expires_at, session.now) if record.expires_at else "",
            shown.count(cost),
            mark,
            record.text,
        ]


async def facts_clear(
    session: Session,
    scope: FactScope,
    *,
    yes: Annotated[str | None, typer.Option(metavar="NAME")] = None,
) -> int:
    """Delete all facts of one user, project or agent.

    It is one operation, and undo brings them back. On a terminal it asks for the owner's name;
    elsewhere give it with --yes NAME.

    Args:
        yes: The name of the facts' owner; nothing is asked.
    """
    from memtui.service.usecases import forgetting

    name = scope.owner()
    records, last = await scope.facts(session)
    session.out.tell(last.problems)
    if not records:
        session.out.answer({"deleted": 0})
        session.out.say(f"{name} has no facts.")
        return 0
    going = f"All {shown.counted(len(records), 'fact')} of {name} will go."
    confirm_name(name, yes, going, "--yes")
    gone = await forgetting.forget(session.service, session.caller, {last.binding_key: records})
    return answer_forgotten(session, gone.answers, gone.failed)


async def _read(session: Session, ids: Sequence[str], scope: FactScope) -> dict[str, list[Record]]:
    """Return the facts with these ids, by binding. Raises `NotFound` or `Invalid` (not a fact)."""
    there, missing = await looked_up(session, ids, scope, FACT)
    for error in missing.values():
        raise error
    return {there[0].binding_key: [one.record for one in there]}


async def facts_merge(
    session: Session,
    survivor: str,
    others: Annotated[list[str], typer.Argument(metavar="OTHER")],
    scope: FactScope,
    *,
    text: str | None = None,
) -> int:
    """Keep one of several facts that say the same.

    The others are deleted, and the one that stays gets the pins and tags of all, and the latest
    expiry. If that is refused the others are restored; one undo undoes all of it. An agent whose
    writes are reviewed cannot change the one that stays.

    Args:
        survivor: The id of the fact that stays.
        others: The ids of the facts that go.
        text: The new text of the fact that stays.
    """
    from memtui.service.usecases.merging import merge

    [(key, (kept, *records))] = (await _read(session, [survivor, *ids_of(others)], scope)).items()
    merged = await merge(session.service, session.caller, kept, records, binding_key=key, text=text)
    forgot, change = merged.forgot, merged.change
    session.out.answer(
        {
            "survivor": survivor,
            "text": kept.text if text is None else text,
            "deleted": changed_ids(forgot),
            "operation_ids": [one.operation_id for one in reversed(merged.answers)],
        },
        [survivor],
        *(forgotten(forgot) if change is None else not_forgotten(forgot)),
        "" if change is None else _merged(forgot, change),
    )
    return 1 if forgot.refused or forgot.ghosts else 0


def _merged(forgot: MutationAnswer, change: MutationAnswer) -> str:
    """Return how to undo a merge that changed the survivor."""
    if not forgot.handles:
        return corrected(change)
    merged = shown.counted(len(forgot.handles) + 1, "fact")
    return f"Made one of {merged}; memtui undo {change.operation_id} undoes it."


async def facts_pin(session: Session, record_ids: FactIds, scope: FactScope) -> int:
    """Pin facts.

    A pinned one comes first in a prompt and is never suggested for pruning.
    """
    return await _change_each(session, record_ids, scope, pinned=True)


async def facts_unpin(session: Session, record_ids: FactIds, scope: FactScope) -> int:
    """Unpin facts."""
    return await _change_each(session, record_ids, scope, pinned=False)


async def facts_expire(session: Session, record_id: RecordId, when: str, scope: FactScope) -> int:
    """Let a fact expire, or never expire.

    Args:
        when: When it expires: 30d from now, tomorrow, a date, or never.
    """
    change: dict[str, object] = {"never_expires": True}
    if when != "never":
        change = {"expires_at": session.ahead(when)}
    return await _change_each(session, [record_id], scope, **change)


async def _change_each(
    session: Session, record_ids: Sequence[str], scope: FactScope, **fields: Any
) -> int:
    """Change facts and print the result of each; return the exit code."""
    from memtui.service.usecases.changing import change

    records = await _read(session, ids_of(record_ids), scope)
    found = await change(session.service, session.caller, records, **fields)
    ids = [(one.handle.provider_record_id, error) for one, error in found.failed]
    failed = failures("record_id", ids)
    nothing = "" if found.done or failed else "That is so already, nothing was changed."
    session.out.answer(
        {"changed": found.answers, "failed": failed},
        [one.handle.provider_record_id for one, _ in found.done],
        *(f"{one['record_id']} was not changed: {one['message']}" for one in failed),
        *_changed(found.answers),
        nothing,
    )
    return code_of_several(error for _, error in found.failed)


def _changed(answers: Sequence[MutationAnswer]) -> Iterator[str]:
    """Yield how to undo the changes, or that they are held for review."""
    if len(answers) < 2 or any(one.pending for one in answers):
        yield from map(corrected, answers)
    else:
        changed = shown.counted(len(answers), "fact")
        yield f"Changed {changed}; memtui undo {answers[-1].operation_id} undoes all of it."


async def facts_get(
    session: Session,
    key: Key,
    scope: BindingOptions,
    *,
    namespace: Namespace = None,
    all_bindings: AllBindings = False,
    as_of: AsOf = None,
) -> None:
    """Print the value of a key, the nearest scope's first.

    A project's value comes before a user's, an agent type's, the orchestrator's and the company's;
    stderr says which value counts and which ones it hides. With --json the value is a number, a
    truth value or a list if its text is one: 47, true, [a, b].
    """
    session = session.at(as_of)
    request = _request(session, scope, namespace, all_bindings=all_bindings)
    try:
        answer = await session.service.facts.get(session.caller, key, request)
    except NotFound:
        await _say_unknown(session, request)
        raise
    session.out.answer(answer, [answer.written], *_reasons(answer))
    await _say_unknown(session, request, answer)


async def facts_keys(
    session: Session,
    scope: BindingOptions,
    *,
    namespace: Namespace = None,
    all_bindings: AllBindings = False,
    as_of: AsOf = None,
) -> None:
    """List the keys of facts with the value that counts, by namespace."""
    session = session.at(as_of)
    request = _request(session, scope, namespace, all_bindings=all_bindings)
    answer = await session.service.facts.keys(session.caller, request)
    hidden = sum(len(fact.hidden) for fact in answer.facts)
    session.out.answer(
        answer,
        table(columns("namespace", "key", "of", "binding", "hides>", "value*"), _key_rows(answer)),
        f"{shown.counted(len(answer.facts), 'key')}, "
        f"{shown.counted(hidden, 'value')} hidden by a nearer one.",
    )
    await _say_unknown(session, request, *answer.facts)


async def facts_set(
    session: FirstSession,
    key: Key,
    value: str,
    scope: RunOptions,
    source: SourceOptions,
    *,
    namespace: Namespace = None,
) -> None:
    """Give a key a value and print the fact's id.

    It replaces the key's value in this scope; a provider that keeps history keeps the old value.

    Args:
        value: Its value, kept as it is written.
    """
    text = fact_text(key, value)
    mode = WriteMode.UPSERT
    await store(session, scope, source, content=text, kind=FACT, topic=namespace, mode=mode)


def _request(
    session: Session, scope: BindingOptions, namespace: str | None, *, all_bindings: bool = False
) -> FactRequest:
    from memtui.service.operations.facts import FactRequest

    return scope.request(session, FactRequest, namespace=namespace, all_bindings=all_bindings)


async def _say_unknown(session: Session, request: FactRequest, *found: KeyedFact) -> None:
    """Name the owners of a request that have no records, even if facts of others answer it."""
    scopes = [one.record.scope for fact in found for one in (fact, *fact.hidden)]
    asked, everywhere = request.binding_key, request.all_bindings
    await say_unknown_owners(session, request.scope, asked, scopes, everywhere=everywhere)


def _reasons(answer: FactAnswer) -> Iterator[str]:
    """Yield why it is this value, and the values that it hides."""
    yield answer.why
    for one in answer.hidden:
        yield f"hidden: {one.belongs_to} in {one.binding_key} says {one.written}"
    if answer.other_namespaces:
        names = ", ".join(name or "none" for name in answer.other_namespaces)
        yield f"The key stands for something else in other namespaces: {names}."


def _key_rows(answer: FactKeys) -> Iterator[list[str]]:
    for fact in answer.facts:
        hides = shown.count(len(fact.hidden)) if fact.hidden else ""
        yield [
            fact.namespace or "", fact.key, fact.belongs_to, fact.binding_key, hides,
            fact.written,
        ]  # fmt: skip


async def facts_stats(
    session: Session, scope: OwnerOptions, *, since: Since = None, until: Until = None
) -> None:
    """Show how facts are used, and by whom.

    It covers the last 30 days unless --since is given, and everybody's facts unless an owner is
    given. Days are UTC.
    """
    metrics = await session.service.metrics.facts(
        session.caller,
        session.moment(since) if since else None,
        session.moment(until) if until else None,
        scope=scope.scope(session),
    )
    session.out.answer(metrics, _metrics(session, metrics))
    await say_unknown_owners(session, scope.scope(session), None)


def _metrics(session: Session, found: FactMetrics) -> Iterator[Line]:
    since, until = (shown.exact(moment, session.zone) for moment in (found.since, found.until))
    yield Dim(f"{since} to {until}")
    yield from fields(*_of_facts(found), *_of_contexts(found))
    titles = ("day", "added>", "deleted>", "by ai>", "by user>", "contexts>", "average tokens>")
    yield from table(columns(*titles), _day_rows(found))


def _of_facts(found: FactMetrics) -> Iterator[tuple[str, str]]:
    """Yield each figure with the target of seed 004 §8."""
    low, high = found.facts_per_user_target
    least, most = found.facts_per_drive_target
    users = f"{found.active_users:,} active users (target {found.adoption_target:.0%})"
    yield "users with facts", f"{_percent(found.adoption)} of {users}"
    yield "facts per user", f"{_number(found.average_facts_per_user)} (target {low} to {high})"
    drive = _number(found.average_facts_per_active_drive)
    yield "facts per active project", f"{drive} (target {least} to {most})"
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
    target = f"(target under {found.share_of_prompt_target:.0%})"
    share = shown.share(found.min_share_of_prompt, found.max_share_of_prompt)
    yield "share of a prompt", f"{share} of {found.prompt.words} {target}"


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
