"""A query and a list over all bindings of a company at once, whatever their providers.

Each binding is asked as it is alone, through the same routing, rights and log, in its own time: one
that is slow, fails or may not be read is named with its reason, and the others' answers stand. What
comes back is joined here, because scores of different providers cannot be compared: by rank, each
rank weighted by whose record it is (seed 002 §3: the project's most, the company's least).
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from memtui.contract import (
    ORCHESTRATOR,
    BrowseRequest,
    ExplainStage,
    Filter,
    ForgetRequest,
    Invalid,
    Links,
    Matching,
    MemtuiError,
    Model,
    NotFound,
    Problem,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snippet,
    SourceRef,
    Unavailable,
    Usage,
    owner_of,
    owner_scope,
)
from memtui.fact_values import Entry, entry_of
from memtui.provider_kit.matching import ENOUGH_OF_TOPIC
from memtui.provider_kit.pages import first_of, read_cursor, write_cursor
from memtui.provider_kit.search import take_apart
from memtui.service.answers import Answer, BrowseAnswer, MutationAnswer, QueryAnswer
from memtui.service.fact_limits import FACT
from memtui.service.operations import Operations
from memtui.service.querying import of_topic
from memtui.service.runtime import FanOut, ServiceModule, to_its_end
from memtui.service.visibility import Caller, without_prefix
from memtui.store import bindings as table
from memtui.store.compiled import BindingRow, TargetRow
from memtui.store.visibility import Visibility

if TYPE_CHECKING:
    from memtui.service.uses import ReportProgress

AnswerT = TypeVar("AnswerT", bound=Answer)

WEIGHTS: dict[str, float] = {
    "project": 1.0, "user": 1.0, "agent": 0.7, ORCHESTRATOR: 0.5, "company": 0.4,
}  # fmt: skip
"""How much a record counts by whose it is (seed 002 §3), where the settings do not say."""
_OWNERS = {"project_id": "project", "subject_id": "user", "agent_id": "agent"}

RANK_CONSTANT = 2
"""Of reciprocal rank fusion. It is small, as the lists are short: at 60, the usual one, nothing of
the company would ever stand before the project's hundredth."""


class FoundAt(Model):
    """Where a text was found, and what the binding there said of it."""

    binding_key: str
    handle: RecordHandle
    rank: int
    """In its binding's answer, from 1."""
    score: float | None
    """The provider's own; comparable within its answer only."""
    weight: float
    """By whose it is."""
    source: SourceRef | None

    @property
    def share(self) -> float:
        """What it adds to the joined score."""
        return self.weight / (RANK_CONSTANT + self.rank)


class FoundSnippet(Snippet):
    """A record that a query over all bindings found; `score` is the joined one."""

    binding_key: str
    places: tuple[FoundAt, ...] = ()
    """Where this text was found, the best first; each adds to the score."""


class HiddenSnippet(FoundSnippet):
    """A fact that gives way to one with the same key of a nearer scope."""

    key: str
    hidden_by: RecordHandle
    hidden_by_binding: str


class ListedRecord(Record):
    """A record in a list of all bindings."""

    binding_key: str
    links: Links | None = None
    """What it links to and what links to it, where the request asked for that."""


class BindingOutcome(Model):
    """What became of one binding where all were asked."""

    binding_key: str
    provider_key: str
    status: Literal["waiting", "ok", "failed"] = "waiting"
    reason: str = ""
    """Why it failed, as a sentence."""
    error_kind: str = ""
    """The contract's error that it failed with, in lower case: `unavailable`, `denied` …"""
    operation_ids: tuple[str, ...] = ()
    found: int = 0
    """How many records it answered with."""
    capped: bool = False
    """More may match there, or be there."""
    latency_ms: float = 0
    usage: tuple[Usage, ...] = ()
    problems: tuple[Problem, ...] = ()
    unread: tuple[str, ...] = ()
    """What of a list was not read, in sentences."""

    @property
    def sentence(self) -> str:
        """Why it failed, with its name; empty where it did not."""
        is_named = not self.reason or self.reason.startswith(self.binding_key)
        return self.reason if is_named else f"{self.binding_key}: {self.reason}"


class EverywhereAnswer(Model):
    """What all answers over several bindings say of them."""

    together: str
    """The id that stands in the request of each binding's operation."""
    bindings: tuple[BindingOutcome, ...]
    latency_ms: float = 0

    @property
    def failed(self) -> list[BindingOutcome]:
        """The bindings without an answer."""
        return [one for one in self.bindings if one.status == "failed"]

    @property
    def usage(self) -> tuple[Usage, ...]:
        """What all of them used."""
        return tuple(row for one in self.bindings for row in one.usage)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What could not be read where they looked."""
        return tuple(problem for one in self.bindings for problem in one.problems)


class EverywhereQuery(EverywhereAnswer):
    """What a query over all bindings found, best first."""

    snippets: tuple[FoundSnippet, ...] = ()
    hidden: tuple[HiddenSnippet, ...] = ()
    """Facts whose key a nearer scope has as well: the nearest one's is in `snippets`."""
    all_topics: bool = False
    """The topic asked for has fewer than three, so that every topic was looked through."""
    capped: bool = False
    stages: tuple[ExplainStage, ...] = ()
    """How it was joined; records are named `binding record-id`."""


class EverywherePage(EverywhereAnswer):
    """One page of what all bindings store, in one order."""

    records: tuple[ListedRecord, ...] = ()
    next_cursor: str | None = None
    """Of each binding how far it was shown; one that failed is asked again."""
    total: int | None = None
    at_least: bool = False


class ForgottenEverywhere(EverywhereAnswer):
    """What was forgotten from several bindings; undoing one of the operations undoes all."""

    answers: tuple[MutationAnswer, ...]
    """One a binding that forgot."""


@dataclass(eq=False)
class Asked:
    """The bindings that are asked, and what came of each so far."""

    fan_out: FanOut
    outcomes: dict[str, BindingOutcome]
    started: float = field(default_factory=perf_counter)
    errors: dict[str, MemtuiError] = field(default_factory=dict)

    def values(self) -> dict[str, Any]:
        """Return what every answer says of them."""
        return {
            "together": self.fan_out.together,
            "bindings": tuple(self.outcomes.values()),
            "latency_ms": round((perf_counter() - self.started) * 1000, 3),
        }

    def note(
        self, key: str, answer: Answer, found: int, *, capped: bool, unread: tuple[str, ...] = ()
    ) -> None:
        """Note what a binding answered, beside what it answered before."""
        was = self.outcomes[key]
        self.outcomes[key] = was.model_copy(
            update={
                "status": "ok",
                "operation_ids": (*was.operation_ids, answer.operation_id),
                "found": was.found + found,
                "capped": capped,
                "latency_ms": was.latency_ms + answer.latency_ms,
                "usage": was.usage + answer.usage,
                "problems": answer.problems,
                "unread": unread,
            }
        )

    def fail(self, key: str, error: MemtuiError, latency_ms: float) -> None:
        """Note why a binding has no answer."""
        self.errors[key] = error
        failed = {
            "status": "failed",
            "reason": str(error),
            "error_kind": error.kind.lower(),
            "latency_ms": round(latency_ms, 3),
        }
        self.outcomes[key] = self.outcomes[key].model_copy(update=failed)

    def has_failed(self, key: str) -> bool:
        """Whether a binding has no answer."""
        return key in self.errors

    def keep(self, chosen: Filter) -> None:
        """Ask those bindings alone that a filter lets through.

        Raises:
            NotFound: it names one that is not there, or lets none through.
        """
        for key in chosen.any_of("binding_key"):
            if key not in self.outcomes:
                raise NotFound(
                    f"No binding that is on is called {key}; `memtui bindings list` shows them."
                )
        self.outcomes = {
            key: one for key, one in self.outcomes.items() if chosen.allows("binding_key", key)
        }
        if not self.outcomes:
            raise NotFound("No binding that is on is one of those that the filter names.")

    def refuse_silence(self) -> None:
        """Raise the error where no binding has answered at all."""
        if len(self.errors) < len(self.outcomes):
            return
        first, *others = self.errors.values()
        if all(one.kind == first.kind for one in others) and not isinstance(first, Unavailable):
            raise first
        raise Unavailable(f"No binding answered. {' '.join(map(str, self.errors.values()))}")


async def gather(
    asked: Asked,
    calls: Mapping[str, Callable[[], Awaitable[AnswerT]]],
    answered: Callable[[str, AnswerT], None],
    told: Callable[[], None] = lambda: None,
) -> None:
    """Make all calls at once, note each answer, or why there is none, as it comes, and tell."""

    async def one(key: str) -> None:
        began = perf_counter()
        try:
            answer = await calls[key]()
        except MemtuiError as error:
            asked.fail(key, error, (perf_counter() - began) * 1000)
        else:
            answered(key, answer)
        told()

    async with asyncio.TaskGroup() as group:
        for key in calls:
            group.create_task(one(key))


class Everywhere(ServiceModule):
    """What is asked of all bindings of a company at once."""

    async def query(
        self,
        caller: Caller,
        request: QueryRequest,
        *,
        within_ms: int | None = None,
        so_far: Callable[[EverywhereQuery], None] = lambda _answer: None,
    ) -> EverywhereQuery:
        """Find what is relevant to a text, wherever it is kept.

        Args:
            caller: Who asks.
            request: The question, to no binding in particular.
            within_ms: How long each binding may take; None: `all_bindings_timeout_ms`.
            so_far: Is given what is known as each binding answers.

        Raises:
            Invalid: it names a binding, or asks as one provider's own agents do.
            Denied: the caller sees nothing here.
            NotFound: no binding is there to ask.
        """
        if request.matching is Matching.AGENTS:
            raise Invalid("Only one provider at a time is asked as its own agents ask it.")
        asked = await self._asked(caller, request, within_ms)
        weights = self._weights(request.scope)
        answers: dict[str, QueryAnswer] = {}

        def answered(key: str, answer: QueryAnswer) -> None:
            answers[key] = answer
            asked.note(key, answer, len(answer.snippets), capped=answer.capped)

        def joined() -> EverywhereQuery:
            return _join(answers, request, weights, asked)

        def ask(key: str) -> Awaitable[QueryAnswer]:
            routed = request.model_copy(update={"binding_key": key})
            return self._runtime.module(Operations).query(caller, routed, fan_out=asked.fan_out)

        calls = {key: partial(ask, key) for key in asked.outcomes}
        await gather(asked, calls, answered, lambda: so_far(joined()))
        asked.refuse_silence()
        return joined()

    async def browse(
        self,
        caller: Caller,
        request: BrowseRequest,
        *,
        within_ms: int | None = None,
        so_far: Callable[[EverywherePage], None] = lambda _page: None,
        told: ReportProgress = lambda _read, _total: None,
        seen_only: bool = False,
    ) -> EverywherePage:
        """Return one page of what is stored, wherever it is kept, in one order.

        Args:
            caller: Who asks.
            request: The page, of no binding in particular.
            within_ms: How long each binding may take; None: `all_bindings_timeout_ms`.
            so_far: Is given what would be on the page, without its cursor, as each binding answers.
            told: Is told how far they are together, while all is read first (`dup:`).
            seen_only: Of the whole company, list what the caller sees, where a list of everybody's
                is refused.

        Raises:
            Invalid: it names a binding or a namespace, or the cursor is not of this list.
            Denied: the caller sees nothing here.
            NotFound: no binding is there to ask.
        """
        if request.namespace is not None:
            raise Invalid("A namespace is one binding's; name the binding.")
        first_of((), request.sort)
        begun = _read_progress(request)
        asked = await self._asked(caller, request, within_ms, seen_only=seen_only)
        joined = _JoinedList(asked, request, begun, told)

        def ask(key: str) -> Awaitable[BrowseAnswer]:
            update = {"binding_key": key, "cursor": joined.lists[key].progress.cursor}
            routed = request.model_copy(update=update)
            tell = partial(joined.tell_reading, key)
            return self._runtime.module(Operations).browse(
                caller, routed, fan_out=asked.fan_out, told=tell
            )

        def tell_first() -> None:
            if not records:
                so_far(joined.preview())

        records: list[ListedRecord] = []
        while len(records) < request.limit:
            if unread := joined.unread():
                calls = {key: partial(ask, key) for key in unread}
                await gather(asked, calls, joined.take, tell_first)
            elif record := joined.shift():
                records.append(record)
            else:
                break
        asked.refuse_silence()
        return joined.page(records)

    @to_its_end
    async def forget(
        self,
        caller: Caller,
        records: Mapping[str, Sequence[Record]],
        staying: Mapping[str, Sequence[Record]] = MappingProxyType({}),
        *,
        together: str | None = None,
    ) -> ForgottenEverywhere:
        """Forget records of one binding or several, which one undo takes back.

        If one record changed since it was read, its whole batch is kept: the records of its owner,
        or of its binding where the caller manages the company. A binding that refuses or fails is
        named and forgets the records that it can; the other bindings forget theirs.

        Args:
            caller: Who asks.
            records: What to forget, as it was read, by the key of its binding.
            staying: What stays in its place, as it was read.
            together: Names what was changed with it already, for one undo of all.

        Raises:
            Invalid: there is nothing to forget.
            MemtuiError: nothing could be forgotten.
        """
        if not all(records.values()) or not records:
            raise Invalid("Nothing to forget; name at least one record.")
        visibility = await asyncio.to_thread(self._runtime.visibility, caller)
        company = Scope(company_id=caller.company_id)
        requests = {
            key: _forgetting(
                key, found, company if visibility is None or visibility.manages else None
            )
            for key, found in records.items()
        }
        rows = {row.key: row.provider_key for row in await self._bindings(caller)}
        asked = Asked(
            fan_out=FanOut(self._runtime.new_id(), 0),
            outcomes={
                key: BindingOutcome(binding_key=key, provider_key=rows.get(key, ""))
                for key in requests
            },
        )
        several = sum(map(len, requests.values())) > 1
        together = together or (asked.fan_out.together if several else None)
        answers: list[MutationAnswer] = []

        async def forget_from(key: str) -> MutationAnswer:
            stays, refusal = staying.get(key, ()), None
            for request in requests[key]:
                try:
                    answer = await self._runtime.module(Operations).forget(
                        caller, request, together=together, staying=stays
                    )
                except Unavailable:
                    raise  # and would be so for the next owner's
                except MemtuiError as error:
                    refusal = refusal or error
                    continue
                answers.append(answer)
                asked.note(key, answer, len(answer.handles), capped=False)
            if refusal is not None:
                raise refusal
            return answer

        calls = {key: partial(forget_from, key) for key in requests}
        await gather(asked, calls, lambda _key, _answer: None)
        if not answers and len(asked.errors) == 1:
            raise next(iter(asked.errors.values()))
        if not answers:
            asked.refuse_silence()
        return ForgottenEverywhere(**asked.values(), answers=tuple(answers))

    async def _bindings(self, caller: Caller) -> list[BindingRow]:
        """Return the bindings that are asked, the oldest first.

        They are enabled, and serve a scope that the caller may see.

        Raises:
            Denied: the company has members, and the caller is none.
        """
        runtime = self._runtime
        visibility = await asyncio.to_thread(runtime.visibility, caller)
        rows = await runtime.ask(table.bindings, caller.company_id)
        served = defaultdict(list)
        for target in await runtime.ask(table.targets, caller.company_id):
            served[target.binding_id].append(target)
        return [row for row in rows if row.enabled and _is_for(served[row.binding_id], visibility)]

    async def _asked(
        self,
        caller: Caller,
        request: QueryRequest | BrowseRequest,
        within_ms: int | None,
        *,
        seen_only: bool = False,
    ) -> Asked:
        if request.binding_key is not None:
            raise Invalid("All bindings are asked, so name none; or ask that one alone.")
        asked = await self.begin(caller, within_ms, seen_only=seen_only)
        asked.keep(request.filter)
        return asked

    async def begin(
        self, caller: Caller, within_ms: int | None = None, *, seen_only: bool = False
    ) -> Asked:
        """Return what keeps account of all bindings while they are asked.

        Raises:
            Denied: the caller sees nothing here.
            NotFound: no binding is there to ask.
        """
        rows = await self._bindings(caller)
        if not rows:
            raise NotFound("There is no binding to ask; `memtui bindings enable` turns one on.")
        limit = within_ms or self._runtime.settings.all_bindings_timeout_ms
        return Asked(
            fan_out=FanOut(self._runtime.new_id(), limit, seen_only),
            outcomes={
                row.key: BindingOutcome(binding_key=row.key, provider_key=row.provider_key)
                for row in rows
            },
        )

    def _weights(self, asked: Scope) -> Callable[[Scope], float]:
        """Return the weight of a record by its scope; for the whole company all count the same."""
        if owner_of(asked)[0] == "company_id":
            return lambda _scope: 1.0
        weights = WEIGHTS | dict(self._runtime.settings.scope_weights)
        return lambda scope: weights[_whose(scope)]


def _forgetting(
    binding_key: str, records: Sequence[Record], whole: Scope | None
) -> list[ForgetRequest]:
    """Return what forgets records of a binding: of several owners at once in the `whole` company.

    Who may not change the company's memories is asked owner by owner.
    """
    owners: dict[Scope, list[Record]] = defaultdict(list)
    for record in records:
        owners[owner_scope(record.scope)].append(record)
    if whole is not None and len(owners) > 1:
        return [ForgetRequest.of(records, whole, binding_key)]
    return [ForgetRequest.of(own, owner, binding_key) for owner, own in owners.items()]


def _whose(scope: Scope) -> str:
    field_name, value = owner_of(scope)
    if (field_name, value) == ("agent_id", ORCHESTRATOR):
        return ORCHESTRATOR
    return _OWNERS.get(field_name, "company")


def _is_for(served: Sequence[TargetRow], visibility: Visibility | None) -> bool:
    """Whether a binding serves what somebody may see; one that serves nobody yet is everybody's."""
    if visibility is None or not served:
        return True
    return any(
        one.target_type != "project"
        or visibility.projects is None
        or one.target_id in visibility.projects
        for one in served
    )


# Joining what a query found


def _join(
    answers: Mapping[str, QueryAnswer],
    request: QueryRequest,
    weight: Callable[[Scope], float],
    asked: Asked,
) -> EverywhereQuery:
    """Join the answers of several bindings, and say how, stage by stage."""
    placed = [
        (one, _place(key, rank, one, weight(one.scope)))
        for key in sorted(answers)
        for rank, one in enumerate(answers[key].snippets, start=1)
    ]
    fitting = set(map(id, of_topic([one for one, _ in placed], request.topic)))
    all_topics = request.topic is not None and len(fitting) < min(ENOUGH_OF_TOPIC, request.top_k)
    if not all_topics:
        placed = [pair for pair in placed if id(pair[0]) in fitting]
    merged = _same_texts_once(placed)
    asked_keys = frozenset(take_apart(request.query).keys)
    shown, hidden = _first_of_keys(merged)
    shown.sort(key=partial(_order, asked_keys))
    top = shown[: request.top_k]
    stages = _stages([*shown, *hidden], asked_keys, request, all_topics=all_topics)
    return EverywhereQuery(
        **asked.values(),
        snippets=tuple(top),
        hidden=tuple(hidden),
        all_topics=all_topics,
        capped=len(shown) > len(top) or any(one.capped for one in answers.values()),
        stages=(_asking(asked), *_own_stages(answers), *stages),
    )


def _place(key: str, rank: int, found: Snippet, weight: float) -> FoundAt:
    return FoundAt(
        binding_key=key,
        handle=found.handle,
        rank=rank,
        score=found.score,
        weight=weight,
        source=found.source,
    )


def _same_texts_once(placed: Sequence[tuple[Snippet, FoundAt]]) -> list[FoundSnippet]:
    """Return each text once, in its best place, with all the places where it was found."""
    by_text: dict[str, list[tuple[Snippet, FoundAt]]] = defaultdict(list)
    for one, place in placed:
        by_text[" ".join(without_prefix(one.text).split()).casefold()].append((one, place))
    merged = []
    for same in by_text.values():
        same.sort(key=lambda pair: -pair[1].share)
        best, place = same[0]
        merged.append(
            FoundSnippet(
                **{**dict(best), "score": sum(at.share for _, at in same)},
                binding_key=place.binding_key,
                places=tuple(at for _, at in same),
            )
        )
    return merged


def _first_of_keys(
    found: Sequence[FoundSnippet],
) -> tuple[list[FoundSnippet], list[HiddenSnippet]]:
    """Keep of the facts of one key the nearest scope's (seed 002 §3, first match wins).

    Providers without namespaces leave them out: such a key is that of any namespace.
    """
    nearest = sorted(found, key=lambda one: (-one.places[0].weight, -(one.score or 0.0)))
    kept: list[FoundSnippet] = []
    hidden: list[HiddenSnippet] = []
    first: dict[str, list[tuple[str, FoundSnippet]]] = defaultdict(list)
    for one in nearest:
        entry = _entry_of(one)
        if entry is None:
            kept.append(one)
            continue
        nearer = [
            other
            for namespace, other in first[entry.key]
            if (not namespace or not entry.namespace or namespace == entry.namespace)
            and other.places[0].weight > one.places[0].weight
        ]
        first[entry.key].append((entry.namespace, one))
        if not nearer:
            kept.append(one)
            continue
        hidden.append(
            HiddenSnippet(
                **dict(one),
                key=entry.key,
                hidden_by=nearer[0].handle,
                hidden_by_binding=nearer[0].binding_key,
            )
        )
    return kept, hidden


def _entry_of(record: Record) -> Entry | None:
    """Return under which key a fact stands, also as an agent gets it."""
    if record.kind != FACT:
        return None
    return entry_of(record.model_copy(update={"text": without_prefix(record.text)}))


def _is_asked_for(keys: frozenset[str], record: Record) -> bool:
    entry = _entry_of(record)
    return entry is not None and entry.key in keys


def _order(keys: frozenset[str], one: FoundSnippet) -> tuple[bool, float, str, str]:
    """A fact whose key is asked for stands first; the rest by their joined scores."""
    record_id = one.handle.provider_record_id
    return not _is_asked_for(keys, one), -(one.score or 0.0), one.binding_key, record_id


def _asking(asked: Asked) -> ExplainStage:
    """Say who was asked, what each found, and why some have no answer."""
    outcomes = asked.outcomes.values()
    told = [f"{one.binding_key} found {one.found}" for one in outcomes if one.status == "ok"]
    lead = f"All {len(outcomes)} at once, each for at most {asked.fan_out.within_ms / 1000:g} s"
    silent = [one.sentence for one in outcomes if one.sentence]
    return ExplainStage(name="bindings", detail=" ".join([f"{lead}: {', '.join(told)}.", *silent]))


def _named(binding_key: str, record_id: str) -> str:
    return f"{binding_key} {record_id}"


def _own_stages(answers: Mapping[str, QueryAnswer]) -> Iterator[ExplainStage]:
    """Yield how each binding came to its own answer, where it tells."""
    for key in sorted(answers):
        for one in answers[key].stages:
            scores = {_named(key, name): score for name, score in one.scores.items()}
            update = {"name": f"{key}: {one.name}", "scores": scores}
            yield one.model_copy(update=update)


def _stages(
    found: Sequence[FoundSnippet],
    keys: frozenset[str],
    request: QueryRequest,
    *,
    all_topics: bool,
) -> Iterator[ExplainStage]:
    places = [place for one in found for place in one.places]

    def named(binding_key: str, handle: RecordHandle) -> str:
        return _named(binding_key, handle.provider_record_id)

    yield ExplainStage(
        name="own ranks",
        detail="Each binding's own order; scores of different providers are not comparable.",
        scores={named(one.binding_key, one.handle): one.rank for one in places},
    )
    yield ExplainStage(
        name="scope",
        detail="How much a record counts, by whose it is: the nearest scope's most.",
        scores={named(one.binding_key, one.handle): one.weight for one in places},
    )
    yield ExplainStage(
        name="rank fusion",
        detail=f"Weight / ({RANK_CONSTANT} + rank), added up over all places of the same text.",
        scores={named(one.binding_key, one.handle): one.score or 0.0 for one in found},
    )
    if twice := {
        named(one.binding_key, one.handle): float(len(one.places))
        for one in found
        if len(one.places) > 1
    }:
        detail = "The same text in several places is shown once, with all of them."
        yield ExplainStage(name="same text", detail=detail, scores=twice)
    if named_keys := {
        named(one.binding_key, one.handle): 1.0 for one in found if _is_asked_for(keys, one)
    }:
        detail = "A fact whose key the query names comes first."
        yield ExplainStage(name="keys", detail=detail, scores=named_keys)
    if hidden := {
        named(one.binding_key, one.handle): one.places[0].weight
        for one in found
        if isinstance(one, HiddenSnippet)
    }:
        detail = "Of facts with the same key the nearest scope's is shown; these are hidden by it."
        yield ExplainStage(name="hidden", detail=detail, scores=hidden)
    if all_topics:
        detail = (
            f"Fewer than {ENOUGH_OF_TOPIC} of the topic {request.topic} were found, "
            "so every topic was searched."
        )
        yield ExplainStage(name="topic", detail=detail)


# One list of several


def _first(heads: Mapping[str, deque[Record]], sort: str) -> str:
    """Return which of several lists, none of them empty, has the record that comes next."""
    keys = list(heads)
    return keys[first_of([heads[key][0] for key in keys], sort)]


def _merged(waiting: dict[str, deque[Record]], sort: str) -> Iterator[tuple[str, Record]]:
    """Yield the records of several lists in one order, each with the list that it is from."""
    while waiting:
        key = _first(waiting, sort)
        yield key, waiting[key].popleft()
        if not waiting[key]:
            del waiting[key]


class _Progress(Model):
    """How far the list of one binding was shown."""

    cursor: str | None = None
    """Where its page begins."""
    shown: int = 0
    """How many records of that page were shown."""
    last_id: str | None = None
    """The last of them: records may have come or gone before it meanwhile."""
    total: int | None = None
    is_done: bool = False
    """Nothing of it is left to show."""


class _List:
    """The list of one binding: the records of a page that wait to be shown."""

    def __init__(self, progress: _Progress) -> None:
        self.progress = progress
        self.waiting: deque[Record] = deque()
        self._next: str | None = None
        self._links: dict[str, Links] = {}

    @property
    def is_read(self) -> bool:
        """Whether its next record is known, or that there is none."""
        return self.progress.is_done or bool(self.waiting)

    def take(self, page: BrowseAnswer) -> None:
        """Take a page, without what of it was shown."""
        was = self.progress
        ids = [one.handle.provider_record_id for one in page.records]
        start = ids.index(was.last_id) + 1 if was.last_id in ids else was.shown
        self.waiting.extend(page.records[start:])
        self._links |= page.links
        self._next = page.next_cursor
        self._go_on(shown=start, total=page.total)

    def shift(self) -> tuple[Record, Links | None]:
        """Return its next record, and its links where they are known."""
        record = self.waiting.popleft()
        name = record.handle.provider_record_id
        self._go_on(shown=self.progress.shown + 1, last_id=name)
        return record, self._links.get(name)

    def _go_on(self, **changed: Any) -> None:
        """Note how far it was shown; where that is the whole page, the next one follows."""
        if not self.waiting:
            done = {"cursor": self._next, "shown": 0, "last_id": None}
            changed |= done | {"is_done": self._next is None}
        self.progress = self.progress.model_copy(update=changed)


class _JoinedList:
    """The lists of several bindings as one, in the order that was asked for."""

    def __init__(
        self,
        asked: Asked,
        request: BrowseRequest,
        begun: Mapping[str, _Progress] | None,
        told: ReportProgress,
    ) -> None:
        """Begin, or go on where `begun` says: with the bindings of then."""
        if begun is not None:
            asked.outcomes = {key: one for key, one in asked.outcomes.items() if key in begun}
        self.lists = {key: _List((begun or {}).get(key, _Progress())) for key in asked.outcomes}
        for key, one in self.lists.items():
            if one.progress.is_done:
                asked.outcomes[key] = asked.outcomes[key].model_copy(update={"status": "ok"})
        self._asked = asked
        self._request = request
        self._told = told
        self._reading: dict[str, tuple[int, int | None]] = {}

    def tell_reading(self, key: str, read: int, total: int | None) -> None:
        """Tell how far all are together, where one of them is read first."""
        self._reading[key] = read, total
        read = sum(read for read, _ in self._reading.values())
        self._told(read, _sum(total for _, total in self._reading.values()))

    def unread(self) -> list[str]:
        """Return the bindings whose next record is not known yet."""
        return [key for key, one in self._answering() if not one.is_read]

    def take(self, key: str, page: BrowseAnswer) -> None:
        """Take a page of one binding."""
        self.lists[key].take(page)
        more = page.at_least or page.unfinished
        self._asked.note(key, page, len(page.records), capped=more, unread=page.unread)

    def shift(self) -> ListedRecord | None:
        """Return the next record of all; None where nothing is left."""
        heads = {key: one.waiting for key, one in self._answering() if one.waiting}
        if not heads:
            return None
        first = _first(heads, self._request.sort)
        record, links = self.lists[first].shift()
        return ListedRecord(**dict(record), binding_key=first, links=links)

    def preview(self) -> EverywherePage:
        """Return what would be on the page by what is known, without its cursor."""
        waiting = {key: deque(one.waiting) for key, one in self.lists.items() if one.waiting}
        shown = islice(_merged(waiting, self._request.sort), self._request.limit)
        known = tuple(ListedRecord(**dict(one), binding_key=key) for key, one in shown)
        return EverywherePage(**self._asked.values(), records=known, at_least=True)

    def page(self, records: Sequence[ListedRecord]) -> EverywherePage:
        """Return the page of these records, and how it goes on."""
        asked, lists = self._asked, self.lists
        is_part = asked.errors or any(one.capped for one in asked.outcomes.values())
        has_more = any(not one.progress.is_done for _, one in self._answering())
        return EverywherePage(
            **asked.values(),
            records=tuple(records),
            next_cursor=_write_progress(self._request.sort, lists) if has_more else None,
            total=_sum(one.progress.total for one in lists.values()),
            at_least=bool(is_part),
        )

    def _answering(self) -> Iterator[tuple[str, _List]]:
        return ((key, one) for key, one in self.lists.items() if not self._asked.has_failed(key))


def _sum(totals: Iterable[int | None]) -> int | None:
    """Return the sum, or None where one of them is not known."""
    known = list(totals)
    return None if None in known else sum(one or 0 for one in known)


def _write_progress(sort: str, lists: Mapping[str, _List]) -> str:
    places = {key: one.progress.model_dump(exclude_defaults=True) for key, one in lists.items()}
    return write_cursor(sort, json.dumps(places))


def _read_progress(request: BrowseRequest) -> dict[str, _Progress] | None:
    """Return how far each list was shown, None at the beginning.

    Raises:
        Invalid: the cursor is another list's.
    """
    if request.cursor is None:
        return None
    [written] = read_cursor(request.cursor, request.sort, str)
    try:
        return {key: _Progress(**place) for key, place in json.loads(written).items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Invalid("The cursor is not one of this list; start from the first page.") from error
