"""Query and list over all bindings of a company at once, whatever their providers.

Each binding is queried as if alone: with the same routing and rights, a log entry and a time limit.
One that is slow, fails or may not be read is named with the reason; the other answers are returned.
Scores of different providers cannot be compared, so answers are joined by rank, weighted by the
owner of the record (seed 002 §3: the project's most, the company's least).
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from memtui.contract import (
    ORCHESTRATOR,
    BrowseRequest,
    ExplainStage,
    Filter,
    Invalid,
    Links,
    Matching,
    MemtuiError,
    Model,
    NotFound,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snippet,
    SourceRef,
    Unavailable,
    owner_of,
)
from memtui.fact_values import FACT, Entry, entry_of
from memtui.provider_kit.matching import ENOUGH_OF_TOPIC
from memtui.provider_kit.pages import first_of, read_cursor, write_cursor
from memtui.service.answers import Answer, BindingOutcome, BrowseAnswer, OutcomesAnswer, QueryAnswer
from memtui.service.operations.memories import Operations
from memtui.service.operations.reading import of_topic
from memtui.service.recorder import FanOut
from memtui.service.runtime import ServiceModule
from memtui.service.visibility import Caller, without_prefix
from memtui.store import bindings as table
from memtui.store.rows import BindingRow, TargetRow
from memtui.store.visibility import Visibility
from memtui.text_analysis import take_apart

if TYPE_CHECKING:
    from memtui.service.operations.uses import ReportProgress

T = TypeVar("T")

WEIGHTS: dict[str, float] = {
    "project": 1.0, "user": 1.0, "agent": 0.7, ORCHESTRATOR: 0.5, "company": 0.4,
}  # fmt: skip
"""Default weight of a record by its owner (seed 002 §3); the settings may override it."""
_OWNERS = {"project_id": "project", "subject_id": "user", "agent_id": "agent"}

RANK_CONSTANT = 2
"""The constant k of reciprocal rank fusion. It is small, as the lists are short: at the usual 60,
no record of the company would ever come before the project's hundredth."""


class FoundAt(Model):
    """Where a text was found: its binding, with its rank and score there."""

    binding_key: str
    handle: RecordHandle
    rank: int
    """Position in the answer of its binding, from 1."""
    score: float | None
    """The provider's score; comparable within the same answer only."""
    weight: float
    """The weight of the record's owner."""
    source: SourceRef | None

    @property
    def share(self) -> float:
        """The amount this place adds to the joined score."""
        return self.weight / (RANK_CONSTANT + self.rank)


class FoundSnippet(Snippet):
    """A record that a query over all bindings found; `score` is the joined score."""

    binding_key: str
    places: tuple[FoundAt, ...] = ()
    """All places where this text was found, the best first; each adds to the score."""


class HiddenSnippet(FoundSnippet):
    """A fact hidden by one with the same key in a nearer scope."""

    key: str
    hidden_by: RecordHandle
    hidden_by_binding: str


class ListedRecord(Record):
    """A record in a list over all bindings."""

    binding_key: str
    links: Links | None = None
    """Its links in both directions, where the request asked for them."""


@dataclass(eq=False)
class Asked:
    """The bindings of one call, and the outcome of each so far."""

    fan_out: FanOut
    outcomes: dict[str, BindingOutcome]
    as_of: datetime | None = None
    started: float = field(default_factory=perf_counter)
    errors: dict[str, MemtuiError] = field(default_factory=dict)

    def values(self) -> dict[str, Any]:
        """Return the fields of `OutcomesAnswer`."""
        return {
            "together": self.fan_out.together,
            "bindings": tuple(self.outcomes.values()),
            "latency_ms": round((perf_counter() - self.started) * 1000, 3),
            "as_of": self.as_of,
        }

    def note(
        self,
        key: str,
        answer: Answer | OutcomesAnswer,
        found: int,
        *,
        capped: bool,
        unread: tuple[str, ...] = (),
    ) -> None:
        """Add an answer of a binding to its earlier ones."""
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
        """Record the error of a binding without an answer."""
        self.errors[key] = error
        failed = {
            "status": "failed",
            "reason": str(error),
            "error_kind": error.kind.lower(),
            "latency_ms": round(latency_ms, 3),
        }
        self.outcomes[key] = self.outcomes[key].model_copy(update=failed)

    def keep(self, chosen: Filter) -> None:
        """Keep only the bindings that a filter allows.

        Raises:
            NotFound: the filter names a binding that does not exist or is disabled, or allows none.
        """
        for key in chosen.any_of("binding_key"):
            if key not in self.outcomes:
                raise NotFound(
                    f"No enabled binding is named {key}; `memtui bindings list` shows them."
                )
        self.outcomes = {
            key: one for key, one in self.outcomes.items() if chosen.allows("binding_key", key)
        }
        if not self.outcomes:
            raise NotFound(
                "The filter names no enabled binding; `memtui bindings list` shows them."
            )

    def refuse_silence(self) -> None:
        """Raise if every binding failed: the first error if all are alike, else `Unavailable`."""
        if len(self.errors) < len(self.outcomes):
            return
        first, *others = self.errors.values()
        if all(one.kind == first.kind for one in others) and not isinstance(first, Unavailable):
            raise first
        raise Unavailable(f"No binding answered. {' '.join(map(str, self.errors.values()))}")


async def gather(
    asked: Asked,
    calls: Mapping[str, Callable[[], Awaitable[T]]],
    answered: Callable[[str, T], None],
    report: Callable[[], None] = lambda: None,
) -> None:
    """Make all calls at once; handle each answer or record its error, then call `report`."""

    async def one(key: str) -> None:
        began = perf_counter()
        try:
            answer = await calls[key]()
        except MemtuiError as error:
            asked.fail(key, error, (perf_counter() - began) * 1000)
        else:
            answered(key, answer)
        report()

    async with asyncio.TaskGroup() as group:
        for key in calls:
            group.create_task(one(key))


class Everywhere(ServiceModule):
    """Query and list over all bindings of a company at once."""

    async def query(
        self,
        caller: Caller,
        request: QueryRequest,
        *,
        within_ms: int | None = None,
        so_far: Callable[[QueryAnswer], None] = lambda _answer: None,
    ) -> QueryAnswer:
        """Find the records relevant to a text, in all bindings.

        Args:
            caller: Who asks.
            request: The query, which names no binding.
            within_ms: Time limit of each binding; None: `all_bindings_timeout_ms`.
            so_far: Called with the answer so far, each time a binding answers.

        Raises:
            Invalid: it names a binding, or `Matching.AGENTS`, which needs a single provider.
            Denied: the caller sees nothing here.
            NotFound: there is no binding to query.
        """
        if request.matching is Matching.AGENTS:
            raise Invalid(
                "Searching as agents do works with one binding at a time; name the binding."
            )
        asked = await self._asked(caller.at(request.as_of), request, within_ms)
        weights = self._weights(request.scope)
        answers: dict[str, QueryAnswer] = {}

        def answered(key: str, answer: QueryAnswer) -> None:
            answers[key] = answer
            asked.note(key, answer, len(answer.snippets), capped=answer.capped)

        def joined() -> QueryAnswer:
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
        so_far: Callable[[BrowseAnswer], None] = lambda _page: None,
        report: ReportProgress = lambda _read, _total: None,
        seen_only: bool = False,
    ) -> BrowseAnswer:
        """Return one page of the records of all bindings, in one order.

        Args:
            caller: Who asks.
            request: The page, which names no binding.
            within_ms: Time limit of each binding; None: `all_bindings_timeout_ms`.
            so_far: Called with the page so far, without a cursor, each time a binding answers.
            report: Called with the progress of all bindings, while all is read first (`dup:`).
            seen_only: For the whole company, list only the records that the caller sees, instead
                of refusing a caller who may not list all.

        Raises:
            Invalid: it names a binding or a namespace, or the cursor is of another list.
            Denied: the caller sees nothing here.
            NotFound: there is no binding to list.
        """
        if request.namespace is not None:
            raise Invalid("A namespace belongs to one binding; name the binding too.")
        first_of((), request.sort)
        begun = _read_progress(request)
        asked = await self._asked(caller.at(request.as_of), request, within_ms, seen_only=seen_only)
        joined = _JoinedList(asked, request, begun, report)

        def ask(key: str) -> Awaitable[BrowseAnswer]:
            update = {"binding_key": key, "cursor": joined.lists[key].progress.cursor}
            routed = request.model_copy(update=update)
            tell = partial(joined.tell_reading, key)
            return self._runtime.module(Operations).browse(
                caller, routed, fan_out=asked.fan_out, report=tell
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

    async def _bindings(self, caller: Caller) -> list[BindingRow]:
        """Return the enabled bindings that serve a scope the caller may see, the oldest first.

        Raises:
            Denied: the company has members, and the caller is not one.
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
            raise Invalid(
                "Either all bindings are queried or one; leave out its name, or query that one "
                "alone."
            )
        asked = await self.begin(caller, within_ms, seen_only=seen_only)
        asked.keep(request.filter)
        return asked

    async def begin(
        self, caller: Caller, within_ms: int | None = None, *, seen_only: bool = False
    ) -> Asked:
        """Return an `Asked` with all bindings that the caller may use, each still waiting.

        Raises:
            Denied: the caller sees nothing here.
            NotFound: there is no binding.
        """
        rows = await self._bindings(caller)
        if not rows:
            raise NotFound("No binding is enabled; `memtui bindings enable` turns one on.")
        limit = within_ms or self._runtime.settings.all_bindings_timeout_ms
        return Asked(
            fan_out=FanOut(self._runtime.new_id(), limit, seen_only),
            outcomes={
                row.key: BindingOutcome(binding_key=row.key, provider_key=row.provider_key)
                for row in rows
            },
            as_of=caller.as_of,
        )

    def _weights(self, asked: Scope) -> Callable[[Scope], float]:
        """Return the weight by scope; in a query of the whole company every record has 1.0."""
        if owner_of(asked)[0] == "company_id":
            return lambda _scope: 1.0
        weights = WEIGHTS | dict(self._runtime.settings.scope_weights)
        return lambda scope: weights[_whose(scope)]


def _whose(scope: Scope) -> str:
    field_name, value = owner_of(scope)
    if (field_name, value) == ("agent_id", ORCHESTRATOR):
        return ORCHESTRATOR
    return _OWNERS.get(field_name, "company")


def _is_for(served: Sequence[TargetRow], visibility: Visibility | None) -> bool:
    """Whether a binding serves a scope in `visibility`; one without targets is visible to all."""
    if visibility is None or not served:
        return True
    return any(
        one.target_type != "project"
        or visibility.projects is None
        or one.target_id in visibility.projects
        for one in served
    )


# Joining the answers of a query


def _join(
    answers: Mapping[str, QueryAnswer],
    request: QueryRequest,
    weight: Callable[[Scope], float],
    asked: Asked,
) -> QueryAnswer:
    """Join the answers of several bindings, with the stages that explain the order."""
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
    return QueryAnswer(
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
    """Return each text once, at its best place, with all places where it was found."""
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
    """Split into shown and hidden: of facts with one key the nearest scope wins (seed 002 §3).

    A fact without a namespace matches any, as some providers have no namespaces.
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
    """Return the key of a fact, ignoring the prefix that its text has for agents."""
    if record.kind != FACT:
        return None
    return entry_of(record.model_copy(update={"text": without_prefix(record.text)}))


def _is_asked_for(keys: frozenset[str], record: Record) -> bool:
    entry = _entry_of(record)
    return entry is not None and entry.key in keys


def _order(keys: frozenset[str], one: FoundSnippet) -> tuple[bool, float, str, str]:
    """Sort key: facts whose key the query names first, then by joined score."""
    record_id = one.handle.provider_record_id
    return not _is_asked_for(keys, one), -(one.score or 0.0), one.binding_key, record_id


def _asking(asked: Asked) -> ExplainStage:
    """Return the stage that names the bindings, how much each found, and each failure."""
    outcomes = asked.outcomes.values()
    words = [f"{one.binding_key} found {one.found}" for one in outcomes if one.status == "ok"]
    lead = f"All {len(outcomes)} at once, each for at most {asked.fan_out.within_ms / 1000:g} s"
    silent = [one.sentence for one in outcomes if one.sentence]
    return ExplainStage(name="bindings", detail=" ".join([f"{lead}: {', '.join(words)}.", *silent]))


def _named(binding_key: str, record_id: str) -> str:
    return f"{binding_key} {record_id}"


def _own_stages(answers: Mapping[str, QueryAnswer]) -> Iterator[ExplainStage]:
    """Yield the stages of each binding's own answer, where its provider explains them."""
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
        detail="How much a record counts by its scope: the nearest scope counts most.",
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


# Joining several lists


def _first(heads: Mapping[str, deque[Record]], sort: str) -> str:
    """Return the key of the list whose first record comes next; no list is empty."""
    keys = list(heads)
    return keys[first_of([heads[key][0] for key in keys], sort)]


def _merged(waiting: dict[str, deque[Record]], sort: str) -> Iterator[tuple[str, Record]]:
    """Yield the records of several lists in one order, each with the key of its list."""
    while waiting:
        key = _first(waiting, sort)
        yield key, waiting[key].popleft()
        if not waiting[key]:
            del waiting[key]


class _Progress(Model):
    """The position in the list of one binding, part of the cursor."""

    cursor: str | None = None
    """The cursor of the current page."""
    shown: int = 0
    """Number of records of that page already shown."""
    last_id: str | None = None
    """The last record shown; finds the position again if records came or went meanwhile."""
    total: int | None = None
    is_done: bool = False
    """True: the whole list was shown."""


class _List:
    """The list of one binding: its position, and the records read but not shown yet."""

    def __init__(self, progress: _Progress) -> None:
        self.progress = progress
        self.waiting: deque[Record] = deque()
        self._next: str | None = None
        self._links: dict[str, Links] = {}

    @property
    def is_read(self) -> bool:
        """Whether its next record is known, or its end is reached."""
        return self.progress.is_done or bool(self.waiting)

    def take(self, page: BrowseAnswer) -> None:
        """Add a page, without the records already shown."""
        was = self.progress
        ids = [one.handle.provider_record_id for one in page.records]
        start = ids.index(was.last_id) + 1 if was.last_id in ids else was.shown
        self.waiting.extend(page.records[start:])
        self._links |= page.links
        self._next = page.next_cursor
        self._go_on(shown=start, total=page.total)

    def shift(self) -> tuple[Record, Links | None]:
        """Remove and return its next record, with its links where they are known."""
        record = self.waiting.popleft()
        name = record.handle.provider_record_id
        self._go_on(shown=self.progress.shown + 1, last_id=name)
        return record, self._links.get(name)

    def _go_on(self, **changed: Any) -> None:
        """Update the position; after the last record of a page, move to the next page."""
        if not self.waiting:
            done = {"cursor": self._next, "shown": 0, "last_id": None}
            changed |= done | {"is_done": self._next is None}
        self.progress = self.progress.model_copy(update=changed)


class _JoinedList:
    """The lists of several bindings as one, in the requested order."""

    def __init__(
        self,
        asked: Asked,
        request: BrowseRequest,
        begun: Mapping[str, _Progress] | None,
        report: ReportProgress,
    ) -> None:
        """Begin, or continue at the positions in `begun`, with its bindings only."""
        if begun is not None:
            asked.outcomes = {key: one for key, one in asked.outcomes.items() if key in begun}
        self.lists = {key: _List((begun or {}).get(key, _Progress())) for key in asked.outcomes}
        for key, one in self.lists.items():
            if one.progress.is_done:
                asked.outcomes[key] = asked.outcomes[key].model_copy(update={"status": "ok"})
        self._asked = asked
        self._request = request
        self._report = report
        self._reading: dict[str, tuple[int, int | None]] = {}

    def tell_reading(self, key: str, read: int, total: int | None) -> None:
        """Report the progress of all bindings together, when one of them reports its own."""
        self._reading[key] = read, total
        read = sum(read for read, _ in self._reading.values())
        self._report(read, _sum(total for _, total in self._reading.values()))

    def unread(self) -> list[str]:
        """Return the keys of the bindings of which a page must be read."""
        return [key for key, one in self._answering() if not one.is_read]

    def take(self, key: str, page: BrowseAnswer) -> None:
        """Add a page of one binding."""
        self.lists[key].take(page)
        more = page.at_least or page.unfinished
        self._asked.note(key, page, len(page.records), capped=more, unread=page.unread)

    def shift(self) -> ListedRecord | None:
        """Remove and return the next record of all lists; None at the end."""
        heads = {key: one.waiting for key, one in self._answering() if one.waiting}
        if not heads:
            return None
        first = _first(heads, self._request.sort)
        record, links = self.lists[first].shift()
        return ListedRecord(**dict(record), binding_key=first, links=links)

    def preview(self) -> BrowseAnswer:
        """Return the page by the records read so far, without a cursor."""
        waiting = {key: deque(one.waiting) for key, one in self.lists.items() if one.waiting}
        shown = islice(_merged(waiting, self._request.sort), self._request.limit)
        known = tuple(ListedRecord(**dict(one), binding_key=key) for key, one in shown)
        return BrowseAnswer(**self._asked.values(), records=known, at_least=True)

    def page(self, records: Sequence[ListedRecord]) -> BrowseAnswer:
        """Return a page of these records, with the cursor of the next one."""
        asked, lists = self._asked, self.lists
        is_part = asked.errors or any(one.capped for one in asked.outcomes.values())
        has_more = any(not one.progress.is_done for _, one in self._answering())
        return BrowseAnswer(
            **asked.values(),
            records=tuple(records),
            next_cursor=_write_progress(self._request.sort, lists) if has_more else None,
            total=_sum(one.progress.total for one in lists.values()),
            at_least=bool(is_part),
        )

    def _answering(self) -> Iterator[tuple[str, _List]]:
        return ((key, one) for key, one in self.lists.items() if key not in self._asked.errors)


def _sum(totals: Iterable[int | None]) -> int | None:
    """Return the sum, or None where one of the totals is not known."""
    known = list(totals)
    return None if None in known else sum(one or 0 for one in known)


def _write_progress(sort: str, lists: Mapping[str, _List]) -> str:
    places = {key: one.progress.model_dump(exclude_defaults=True) for key, one in lists.items()}
    return write_cursor(sort, json.dumps(places))


def _read_progress(request: BrowseRequest) -> dict[str, _Progress] | None:
    """Return the position in each list; None: there is no cursor, begin at the first page.

    Raises:
        Invalid: the cursor is of another list.
    """
    if request.cursor is None:
        return None
    [written] = read_cursor(request.cursor, request.sort, str)
    try:
        return {key: _Progress(**place) for key, place in json.loads(written).items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Invalid("The cursor is not one of this list; start from the first page.") from error
