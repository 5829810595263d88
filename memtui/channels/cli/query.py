"""`query`, `bindings profile` and `context`: what an agent finds, and what a model gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from memtui.channels.cli.marks import RiskMarks, marks_of
from memtui.channels.cli.options import (
    AllBindings,
    AsOf,
    BindingOptions,
    FilterLine,
    ScopeOptions,
    Since,
    Until,
    filter_of,
    json_object,
)
from memtui.channels.cli.output import Dim, Line, jsonable, of_bindings, write_exactly
from memtui.channels.cli.session import Session
from memtui.contract import (
    ExplainStage,
    Invalid,
    Matching,
    QueryIntent,
    QueryRequest,
    Snippet,
    SourceKind,
)
from memtui.filters import FilterTarget, asked_with, names_bindings
from memtui.passages import passage
from memtui.presenters import format as shown
from memtui.visible import visible

if TYPE_CHECKING:
    from memtui.service import QueryAnswer
    from memtui.service.context.contexts import ContextAnswer
    from memtui.service.operations.everywhere import FoundAt, HiddenSnippet


async def query(
    session: Session,
    text: str,
    scope: ScopeOptions,
    line: FilterLine = None,
    *,
    top_k: Annotated[int, typer.Option(min=1, max=1000)] = 10,
    intent: QueryIntent = QueryIntent.ANSWER,
    max_tokens: Annotated[int, typer.Option(min=1)] = 500,
    topic: str | None = None,
    tag: str | None = None,
    kind: str | None = None,
    source_kind: SourceKind | None = None,
    since: Since = None,
    until: Until = None,
    as_of: AsOf = None,
    where: str | None = None,
    as_agents: bool = False,
    explain: bool = False,
    all_bindings: AllBindings = False,
) -> None:
    """Find the records that are relevant to TEXT, best first.

    Args:
        text: What to look for, in plain words.
        top_k: At most this many snippets.
        intent: What the answer is for.
        max_tokens: With --intent agent_preamble: the most tokens of the texts together.
        topic: Search this topic first; all topics if it finds fewer than three.
        tag: Only this tag.
        kind: Only this sort of record.
        source_kind: Only this source.
        where: Metadata that must match, as a JSON object.
        as_agents: Search as agents do that call the provider without memtui.
        explain: Show how the provider finds the answer, instead of the answer.
    """
    if not text.strip():
        raise Invalid("Say what to look for; `memtui browse` lists what is there.")
    session = session.at(as_of)
    chosen = filter_of(
        session,
        line,
        FilterTarget.QUESTIONS,
        topic=topic,
        tag=tag,
        kind=kind,
        source_kind=source_kind,
        since=since,
        until=until,
        binding_key=scope.binding,
    )
    narrowed = asked_with(chosen) if chosen.model_fields_set else {}
    request = scope.request(
        session,
        QueryRequest,
        **narrowed,
        query=text,
        top_k=top_k,
        intent=intent,
        max_tokens=max_tokens,
        metadata_filter=json_object(where, "--where"),
        matching=Matching.AGENTS if as_agents else Matching.MEMTUI,
    )
    from memtui.channels.cli.records import say_unknown_owners

    everywhere, service = all_bindings or bool(narrowed and names_bindings(chosen)), session.service
    if explain and not everywhere:
        explained = await service.explain(session.caller, request)
        session.out.answer(explained, _stages(explained.explanation.stages))
        return
    ask = service.everywhere.query if everywhere else service.query
    answer = await ask(session.caller, request)
    key = "" if everywhere else answer.bindings[0].binding_key
    placed = [(_binding_of(one, key), one) for one in answer.snippets]
    marks = await marks_of(session, placed)
    lines = _stages(answer.stages) if explain else _found(session, text, answer, placed, marks)
    document: Any = answer
    if session.out.as_json:
        document = jsonable(answer) | {"snippets": [marks.document(*one) for one in placed]}
    session.out.answer(document, lines, *_summary(answer))
    scopes = [one.scope for one in answer.snippets]
    binding = None if everywhere else answer.bindings[0].binding_key
    if not (everywhere or scopes or scope.binding):
        others = [one for one in await service.bindings.all(session.caller) if one.enabled]
        if len(others) > 1:
            session.out.say(f"Only {binding} was asked; --all-bindings asks all {len(others)}.")
    await say_unknown_owners(session, request.scope, binding, scopes, everywhere=everywhere)


def _stages(stages: Iterable[ExplainStage]) -> Iterator[Line]:
    for stage in stages:
        yield f"{stage.name}: {stage.detail}"
        for record_id, score in stage.scores.items():
            yield f"  {score:.3f}  {record_id}"


async def bindings_profile(session: Session, scope: BindingOptions) -> None:
    """Show the provider's profile of a scope, if it makes profiles."""
    whole = scope.scope(session)
    answer = await session.service.profile(session.caller, whole, binding_key=scope.binding)
    summary = answer.profile.summary
    session.out.answer(
        answer,
        summary.split("\n") if summary.strip() else ["Nothing is said of it."],
        f"from {answer.binding_key} ({answer.binding_reason}) "
        f"in {shown.duration(answer.latency_ms)}; operation {answer.operation_id}.",
    )


def _binding_of(snippet: Snippet, key: str) -> str:
    """Return the binding of a result; `key`: where only one was asked."""
    places: Sequence[FoundAt] = getattr(snippet, "places", ())
    return places[0].binding_key if places else key


def _found(
    session: Session,
    asked: str,
    answer: QueryAnswer,
    placed: Sequence[tuple[str, Snippet]],
    marks: RiskMarks,
) -> Iterator[Line]:
    if answer.profile_summary:
        yield answer.profile_summary
    for rank, (key, snippet) in enumerate(placed, start=1):
        places: Sequence[FoundAt] = getattr(snippet, "places", ())
        first = [*(one.binding_key for one in places[:1]), marks.briefly(key, snippet)]
        yield from _snippet(session, asked, rank, snippet, marks.sign(key, snippet), *first)
        for place in places[1:]:
            source = shown.source_line(place.source)
            also = [place.binding_key, source, place.handle.provider_record_id]
            yield Dim(" " * 13 + "also in " + " · ".join(part for part in also if part))
    for hidden in cast("tuple[HiddenSnippet, ...]", answer.hidden):
        where = f"{hidden.binding_key} · {hidden.handle.provider_record_id}"
        nearer = f"{hidden.hidden_by_binding} has {hidden.key} of a nearer scope"
        yield Dim(f"hidden: {visible(hidden.text, limit=_LEFT_OUT_CHARS)} ({where}): {nearer}")


def _snippet(
    session: Session, asked: str, rank: int, snippet: Snippet, mark: str, *first: str
) -> Iterator[Line]:
    score = "" if snippet.score is None else f"{snippet.score:.3f}"
    part = passage(snippet.shown, asked)
    for number, line in enumerate(part.text.split("\n")):
        yield f"{rank:>3} {mark:1}{score:>6}  {line}" if number == 0 else f"{'':13}{line}"
    if part.is_cut:
        whole = shown.counted(len(snippet.shown), "character")
        yield Dim(f"{'':13}A part of {whole}; memtui get shows the whole.")
    origin = [
        *first,
        "summary" if snippet.summary else "",
        shown.source_line(snippet.source),
        shown.since(snippet.created_at, session.now) if snippet.created_at else "",
        f"by {snippet.created_by}" if snippet.created_by else "",
        snippet.handle.provider_record_id,
    ]
    yield Dim(" " * 13 + " · ".join(part for part in origin if part))


def _summary(answer: QueryAnswer) -> Iterator[str]:
    count = shown.counted(len(answer.snippets), "snippet")
    more = " (more may match)" if answer.capped else ""
    topics = " (its topic has under three, so of all topics)" if answer.all_topics else ""
    yield f"{count}{more}{topics} {of_bindings(answer)}."
    for one in answer.bindings:
        yield from (*([one.sentence] if one.reason else []), *one.unread)


_BAR = 24
_LEFT_OUT_CHARS = 100
"""Most characters of a memory shown to a person; JSON has all of it."""
_SHOWN_WITHOUT_ROOM = 3


async def context(
    session: Session,
    scope: BindingOptions,
    *,
    prompt: Annotated[str | None, typer.Option(metavar="TEXT")] = None,
    profile: bool = False,
    by_relevance: Annotated[
        bool | None, typer.Option("--by-relevance/--all-facts", show_default=False)
    ] = None,
    topic: str | None = None,
    run: str | None = None,
    new_only: bool = False,
    within_ms: Annotated[int | None, typer.Option(metavar="MILLISECONDS", min=1)] = None,
    model: str | None = None,
    budget: Annotated[int | None, typer.Option(min=0)] = None,
    max_tokens: Annotated[int | None, typer.Option(min=0)] = None,
    check: bool = False,
    delivered: bool = False,
    text: bool = False,
    as_of: AsOf = None,
) -> int:
    """Show what a model is given before a run, and its price.

    With --delivered its records count as read, and the log keeps the text; otherwise neither.

    Args:
        prompt: What the model is asked; what a search finds for it is added.
        profile: Add the provider's profile of the scope.
        by_relevance: Add only facts that the prompt needs, pinned facts and rules; left out: as the
            setting facts_by_relevance says.
        topic: Add the project's notes of this topic.
        run: The id of the run that is given the context.
        new_only: With --run: leave out what the run was already given.
        within_ms: Leave out what is not found within this time; facts have twice as long.
        model: Count tokens and price for this model instead of the setting context_model.
        budget: The budget in tokens, instead of the setting context_budget.
        max_tokens: Cut the text to this many tokens, and say what was left out.
        check: Exit 1 if the context or one of its sections is over its budget.
        delivered: Say that a model is given it, so that its records count as read.
        text: Print only the text, byte for byte.
    """
    from memtui.context.assembly import WarningKind
    from memtui.service.context.contexts import ContextRequest

    session = session.at(as_of)
    settings = session.settings
    request = scope.request(
        session,
        ContextRequest,
        model=model or settings.context_model,
        budget=settings.context_budget if budget is None else budget,
        max_tokens=max_tokens,
        topic=topic,
        prompt=prompt,
        profile=profile,
        by_relevance=settings.facts_by_relevance if by_relevance is None else by_relevance,
        skip_given=new_only,
        within_ms=within_ms,
        delivered=delivered,
    )
    caller = session.caller.model_copy(update={"run_id": run or session.caller.run_id})
    answer = await session.service.context(caller, request)
    if text and not session.out.as_json:
        write_exactly(answer.text.encode("utf-8", "backslashreplace"))
        session.out.tell(answer.problems)
    else:
        share = jsonable(answer.share) | {"over_target": answer.share.over_target}
        session.out.answer(jsonable(answer) | {"share": share}, _lines(answer))
        if not delivered:
            from memtui.channels.cli.records import say_unknown_owners

            facts = (fact for section in answer.sections for fact in section.facts)
            scopes = [fact.scope for fact in facts if fact.scope is not None]
            await say_unknown_owners(session, request.scope, scope.binding, scopes)
    kinds = {WarningKind.OVER_BUDGET, WarningKind.FAR_OVER_BUDGET}
    over = [one.message for one in answer.warnings if one.kind in kinds]
    if check and over:
        session.out.say(f"{over[0]} `memtui facts prune` shows what could go.")
        return 1
    return 0


def _lines(answer: ContextAnswer) -> Iterator[Line]:
    yield from answer.text.rstrip("\n").split("\n") if answer.text else ()
    yield ""
    width = max((len(section.title) for section in answer.sections), default=0)
    for section in answer.sections:
        count = f"{shown.count(section.tokens)} of {shown.count(section.budget)}"
        yield f"{section.title:<{width}}  {_bar(section.tokens, section.budget)}  {count} tokens"
    over = ", over budget" if answer.over_budget else ""
    kind = "" if answer.exact else ", estimated"
    yield (
        f"{shown.counted(answer.tokens, 'token')} of {shown.count(answer.budget)}{over} "
        f"({answer.model}, {answer.tokenizer}{kind})"
    )
    yield from _cost(answer)
    for fact in (one for section in answer.sections for one in section.facts if one.why):
        why = visible(shown.relevance(fact))
        yield Dim(f"delivered: {visible(fact.text, limit=_LEFT_OUT_CHARS)} ({why})")
    yield from _left_out(answer)
    for warning in answer.warnings:
        yield Dim(f"warning: {warning.message} {warning.where}".rstrip())


def _left_out(answer: ContextAnswer) -> Iterator[Line]:
    """Yield left-out records with reasons; only counts for most without room, and given before."""
    from memtui.context.assembly import GIVEN_BEFORE, NO_ROOM

    reasons = Counter(left.reason for left in answer.left_out)
    room = _SHOWN_WITHOUT_ROOM
    for left in answer.left_out:
        if left.reason == GIVEN_BEFORE or (left.reason == NO_ROOM and not room):
            continue
        room -= left.reason == NO_ROOM
        said = visible(left.text, limit=_LEFT_OUT_CHARS)
        why = f"{left.reason} {visible(shown.relevance(left))}".rstrip()
        yield Dim(f"left out of {left.section}: {said} ({why})")
    more = reasons[NO_ROOM] - (_SHOWN_WITHOUT_ROOM - room)
    if more:
        yield Dim(f"{shown.counted(more, 'more record')} left out: no room in the budget")
    if given := reasons[GIVEN_BEFORE]:
        yield Dim(f"{shown.counted(given, 'record')} left out: given to the run before")


def _cost(answer: ContextAnswer) -> Iterator[Line]:
    cost, share = answer.price, answer.share
    if cost.priced:
        yield (
            f"{shown.money(cost.cost_usd)} a request, "
            f"{shown.money(cost.per_1000_requests_usd)} per 1,000 requests"
        )
    else:
        yield f"unpriced: {cost.table} has no price for {answer.model}"
    dated = f", newest price of {cost.table_date}" if cost.table_date else ""
    yield Dim(f"prices of {cost.table}{dated}")
    yield (
        f"{shown.share(share.min_share, share.max_share)} of {share.prompt.words}"
        f"{', more than it should be' if share.over_target else ''}"
    )


def _bar(tokens: int, budget: int) -> str:
    filled = min(_BAR, round(_BAR * tokens / budget)) if budget else _BAR
    return "█" * filled + "░" * (_BAR - filled)
