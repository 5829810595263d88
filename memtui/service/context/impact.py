"""Predict the effect of forgetting records, by replaying logged queries and contexts.

The last queries and delivered contexts that could have reached the records are answered twice from
the present memories, with the records and without them, and compared. Both answers come from
copies (`Adapter.without`), through the code that answers an agent. They are not logged, so they
count as no use of a record and change no figure. Operations that cannot be replayed are listed with
the reason. The log gets one row per binding: a read of the records with the purpose `impact`.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from difflib import unified_diff
from enum import StrEnum
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from memtui.analytics.company_log import CompanyLog
from memtui.contract import (
    OWNER_FIELDS,
    Capabilities,
    Filter,
    Invalid,
    MemtuiError,
    Model,
    NotFound,
    OperationStatus,
    OperationType,
    Problem,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Unsupported,
    owner_of,
)
from memtui.pruning.duplicates import TextForm, compare, form_of
from memtui.service.connections import Breaker, Connection
from memtui.service.context.contexts import ContextRequest, Contexts
from memtui.service.history.asked import Given, context_again, query_again
from memtui.service.operations.memories import Operations
from memtui.service.operations.reading import LOGGED_CHARS, LOGGED_OWNERS
from memtui.service.recorder import FanOut, Recorder, RunningOperation
from memtui.service.runtime import ServiceModule, ServiceRuntime
from memtui.service.visibility import Caller, readable, without_prefix
from memtui.store.bindings import Route
from memtui.store.details import RecordDetails
from memtui.store.operation import READS, Operation, Place
from memtui.store.rows import BindingRow
from memtui.wording import none_of_them

DEFAULT_LAST = 500
_PAGE = 500
_MOST_READ = 20_000
"""Most operations of a kind that are searched for those that could reach the records."""
_AT_ONCE = 4
_MOST_MS = 60_000


class ReplayProgress(NamedTuple):
    """The progress of a replay, in distinct questions."""

    done: int
    total: int
    differ: int
    """How many of the finished ones have a different answer."""


Tell = Callable[[ReplayProgress], None]


class ImpactRequest(Model):
    """Which records would be forgotten, and which operations to replay."""

    records: Mapping[str, tuple[RecordHandle, ...]]
    """By the key of their binding."""
    last: Annotated[int, Field(ge=1, le=10_000)] = DEFAULT_LAST
    """How many to replay: the newest queries and contexts that could reach the records."""
    filter: Filter = Filter()
    """Replay only operations that match."""


class WhyNot(StrEnum):
    """Why a question was not replayed."""

    PROVIDER = "provider"
    """The provider cannot answer without some records, on this machine and at no cost."""
    CUT = "cut"
    """The log has only the beginning of the question."""
    ERASED = "erased"
    PAST = "past"
    """It is a query of the past: forgetting cannot change it."""
    NOT_LOGGED = "not_logged"
    """The log does not have the question, as with an imported operation."""
    REFUSED = "refused"
    """It is no longer possible or not permitted to the caller, or it failed."""


class AnsweredRecord(Model):
    """A record in an answer."""

    rank: int
    """Position in the answer, from 1."""
    handle: RecordHandle
    binding_key: str
    text: str
    marked: bool = False
    """True: it is one of the records that would be forgotten."""

    @property
    def place(self) -> Place:
        """Its binding and its id there."""
        return self.binding_key, self.handle.provider_record_id


class Side(Model):
    """One answer to a question."""

    records: tuple[AnsweredRecord, ...]
    text: str | None = None
    """The text of a context; None: the answer of a query."""
    tokens: int | None = None
    problems: tuple[str, ...] = ()
    """Items that could not be read for it."""

    @property
    def compared(self) -> tuple[object, ...]:
        """The values compared between two answers: texts, records and order, but no scores."""
        return self.text, tuple((one.place, one.text) for one in self.records)


class Effect(Model):
    """A logged query with another answer once the records are gone, and who asked it."""

    operation: Operation
    """The newest operation with this query."""
    operation_ids: tuple[str, ...]
    """All operations that asked it, the newest first."""
    agents: tuple[str, ...] = ()
    principals: tuple[str, ...] = ()
    """The principals that asked it for no agent."""
    runs: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    before: Side
    """The answer with the records."""
    after: Side
    """The answer without them."""
    still_said: tuple[Place, ...] = ()
    """Lost records whose text another record in `after` repeats, word for word or nearly."""

    @property
    def question(self) -> str:
        """The text of the query or prompt; empty: a context without a prompt."""
        return _words(self.operation)

    @property
    def times(self) -> int:
        """How often it was asked."""
        return len(self.operation_ids)

    @property
    def gone(self) -> tuple[AnsweredRecord, ...]:
        """Records of `before` that are not in `after`."""
        return _beside(self.before, self.after)

    @property
    def come(self) -> tuple[AnsweredRecord, ...]:
        """Records of `after` that are not in `before`."""
        return _beside(self.after, self.before)

    @property
    def reordered(self) -> bool:
        """Whether the records in both answers are in another order."""
        came, went = ({one.place for one in part} for part in (self.come, self.gone))
        stayed = [one.place for one in self.before.records if one.place not in went]
        return stayed != [one.place for one in self.after.records if one.place not in came]

    @property
    def emptied(self) -> bool:
        """Whether no record is found any more."""
        return bool(self.before.records) and not self.after.records

    @property
    def loses_nothing(self) -> bool:
        """Whether another record in `after` repeats each lost one."""
        return {one.place for one in self.gone} <= set(self.still_said)

    @property
    def tokens_saved(self) -> int:
        """By how many tokens a context gets shorter, each time."""
        return (self.before.tokens or 0) - (self.after.tokens or 0)

    @property
    def difference(self) -> list[str]:
        """The unified diff of a context's text, in lines."""
        old, new = (side.text or "" for side in (self.before, self.after))
        lines = unified_diff(old.splitlines(), new.splitlines(), "now", "without", lineterm="")
        return list(lines)


def _beside(one: Side, other: Side) -> tuple[AnsweredRecord, ...]:
    known = {record.place for record in other.records}
    return tuple(record for record in one.records if record.place not in known)


class Untried(Model):
    """Questions that were not replayed for one reason."""

    why: WhyNot
    sentence: str
    operation_ids: tuple[str, ...]
    """The newest first."""
    with_a_record: tuple[str, ...] = ()
    """Those whose logged answer contained one of the records."""


class Impact(Model):
    """The difference that forgetting some records would make."""

    records: tuple[Record, ...]
    """Records that would be forgotten, as far as they can be read here."""
    unread: tuple[RecordHandle, ...] = ()
    """Records whose provider cannot answer without them, and so was not read."""
    missing: tuple[RecordHandle, ...] = ()
    """Records that do not exist."""
    asked: int = 0
    """Number of queries and contexts that could have reached them, at most `last`."""
    tried: int = 0
    """How many of these were replayed; identical ones are each counted."""
    questions: int = 0
    """How many distinct questions were replayed."""
    effects: tuple[Effect, ...] = ()
    """Differing answers: first those that become empty, then those that lose a record."""
    untried: tuple[Untried, ...] = ()
    is_all: bool = True
    """Whether no further operation could have reached them."""

    @property
    def differ(self) -> int:
        """How many of the replayed operations would get a different answer."""
        return sum(one.times for one in self.effects)

    @property
    def would_lose(self) -> int:
        """How many of those would lose a record that no other in the answer repeats."""
        return sum(one.times for one in self.effects if not one.loses_nothing)

    @property
    def with_a_record(self) -> int:
        """How many operations not replayed had one of the records in their answer."""
        return sum(len(one.with_a_record) for one in self.untried)

    @property
    def tokens_saved(self) -> int:
        """By how many tokens all replayed contexts together get shorter."""
        return sum(one.tokens_saved * one.times for one in self.effects)


class NotTried(Exception):
    """A question cannot be replayed."""

    def __init__(self, why: WhyNot, sentence: str) -> None:
        super().__init__(sentence)
        self.why = why
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class _Marked:
    """The records that would be forgotten, and their owners."""

    places: frozenset[Place]
    owners: Mapping[str, frozenset[tuple[str, str]]]
    """Their owners, by binding."""
    unread: frozenset[str]
    """Bindings whose provider is not read, so the owners of their records are unknown."""

    def ids_in(self, key: str) -> frozenset[str]:
        return frozenset(record_id for where, record_id in self.places if where == key)

    def in_answer_of(self, operation: Operation) -> bool:
        """Whether the answer of an operation contained one of them."""
        return any(operation.place_of(one) in self.places for one in operation.handles)

    def reached_by(self, operation: Operation) -> bool:
        """Whether the answer of an operation could have contained one of them."""
        is_query, own = operation.operation_type is OperationType.QUERY, operation.binding_key
        if own in self.unread or self.in_answer_of(operation):
            return True
        return any(
            _may_see(operation.asked_scope, owner)
            for key, owners in self.owners.items()
            if not is_query or key == own
            for owner in owners
        )


def _may_see(scope: Scope, owner: tuple[str, str]) -> bool:
    name, value = owner
    return name not in OWNER_FIELDS or getattr(scope, name) in {None, value}


class _Unrecorded(Recorder):
    """A recorder that logs nothing, for replays."""

    def _append(self, entry: RunningOperation) -> None:
        """Skip the log."""


@dataclass(eq=False)
class _Trial(ServiceRuntime):
    """A service runtime that answers from copies of the bindings and logs nothing."""

    source: ServiceRuntime = field(kw_only=True)
    """The origin of the copies: the service itself, or another trial."""
    gone: Mapping[str, Iterable[str]] = field(kw_only=True, default_factory=dict)
    """Ids of the records that the copies leave out, by binding."""
    _copies: dict[str, Connection] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _routes: dict[Hashable, Route] = field(default_factory=dict)
    _problems: dict[Hashable, list[Problem]] = field(default_factory=dict)

    async def resolve(self, caller: Caller, scope: Scope, binding_key: str | None) -> Route:
        """Return the route of a scope (`ServiceRuntime.resolve`), resolved once per trial."""
        asked = caller, scope, binding_key
        if asked not in self._routes:
            self._routes[asked] = await super().resolve(caller, scope, binding_key)
        return self._routes[asked]

    async def unreadable(
        self, entry: RunningOperation, connection: Connection, *, surely: bool = False
    ) -> list[Problem]:
        """Return the items an operation could not read; determined once, as no copy changes."""
        asked = connection.binding.key, entry.operation_type, entry.scope, entry.visibility
        if asked not in self._problems:
            self._problems[asked] = await super().unreadable(entry, connection, surely=surely)
        return self._problems[asked]

    async def open(
        self, binding: BindingRow, *, company_read_only: bool, as_of: datetime | None = None
    ) -> Connection:
        """Return a connection to the binding's copy. Raises `NotTried` where none can be made."""
        async with self._turn:
            if binding.key not in self._copies:
                opening = partial(
                    self.source.open, binding, company_read_only=company_read_only, as_of=as_of
                )
                self._copies[binding.key] = await self._copied(binding, opening)
            return self._copies[binding.key]

    async def _copied(
        self, binding: BindingRow, opening: Callable[[], Awaitable[Connection]]
    ) -> Connection:
        key, name = binding.key, binding.provider_key
        try:
            if not await _has_copies(self, name):
                raise Unsupported(
                    f"The provider {name} of {key} cannot answer as if some records were gone."
                )
            connection = await opening()
            ids = frozenset(self.gone.get(key, ()))
            copy = await connection.derive(lambda: connection.adapter.without(ids))
        except MemtuiError as error:
            raise NotTried(WhyNot.PROVIDER, str(error)) from error
        return replace(connection, adapter=copy, breaker=Breaker(time.monotonic), found={})

    async def close(self) -> None:
        """Close the copies."""
        for connection in self._copies.values():
            await connection.close()


def trial_of(
    source: ServiceRuntime, gone: Mapping[str, Iterable[str]] = MappingProxyType({})
) -> _Trial:
    """Return a runtime that answers as if some records were gone; close it afterwards.

    Args:
        source: The service's runtime, or another trial, which has the originals.
        gone: The ids of the records, by the key of their binding.
    """
    shared: dict[str, Any] = {one.name: getattr(source, one.name) for one in fields(ServiceRuntime)}
    shared["recorder"] = _Unrecorded(
        source.database, source.paths.data, source.clock, source.connections.timer, source.new_id
    )
    return _Trial(**shared, source=source, gone=gone)


async def _has_copies(runtime: ServiceRuntime, name: str) -> bool:
    """Whether a provider declares the capability `without`; the provider is not opened."""
    provider = await runtime.providers.within(name, partial(runtime.providers.load, name))
    able: object = provider.capabilities  # a foreign class may define a property
    return isinstance(able, Capabilities) and able.without


class _Asked(NamedTuple):
    """A distinct question, and the operations that asked it, the newest first."""

    request: QueryRequest | ContextRequest
    fan_out: FanOut | None
    operations: list[Operation]

    @property
    def words(self) -> str:
        return _words(self.operations[0])


def _words(operation: Operation) -> str:
    return str(operation.request.get("query") or operation.request.get("prompt") or "")


class Impacts(ServiceModule):
    """Predicts the effect of forgetting records."""

    async def of(
        self, caller: Caller, request: ImpactRequest, *, progress: Tell = lambda _progress: None
    ) -> Impact:
        """Replay the last logged queries and contexts, with some records and without them.

        Raises:
            Invalid: no record is named, or the caller has `as_of`.
            NotFound: none of the records exists.
        """
        if caller.as_of is not None:
            raise Invalid(
                "The impact of forgetting is tried on the present records; go back to now first."
            )
        if not any(request.records.values()):
            raise Invalid("Name at least one record.")
        records, missing, unread = await self._records(caller, request)
        marked = _marked(records, unread)
        found = await asyncio.to_thread(self._found, caller, request, marked)
        impact = Impact(
            records=tuple(record for own in records.values() for record in own),
            missing=tuple(missing),
            unread=tuple(one for own in unread.values() for one in own),
            asked=len(found.operations),
            is_all=found.is_all,
        )
        return await self._tried(caller, marked, found, impact, progress)

    async def _records(
        self, caller: Caller, request: ImpactRequest
    ) -> tuple[dict[str, list[Record]], list[RecordHandle], dict[str, list[RecordHandle]]]:
        """Return the records by binding, the missing handles, and the unread ones by binding."""
        records: dict[str, list[Record]] = {}
        missing: list[RecordHandle] = []
        unread: dict[str, list[RecordHandle]] = {}
        for key, handles in request.records.items():
            named = list(dict.fromkeys(handles))
            found = await self._read(caller, key, named, request.last)
            if found is None:
                unread[key] = named
                continue
            records[key] = [record for record in found.values() if record is not None]
            missing += [handle for handle, record in found.items() if record is None]
        if not unread and not any(records.values()):
            first = missing[0].provider_record_id
            others = none_of_them(len(missing) - 1)
            raise NotFound(
                f"There is no record {first} here{others}; `memtui browse` lists those there are."
            )
        return records, missing, unread

    async def _read(
        self, caller: Caller, key: str, handles: Sequence[RecordHandle], last: int
    ) -> dict[RecordHandle, Record | None] | None:
        """Return the present records; None: the provider lacks `without`, so a read is no use."""
        runtime, scope = self._runtime, Scope(company_id=caller.company_id)
        asked = RecordDetails(records=len(handles), purpose="impact", last=last)
        async with runtime.recorder.recorded(OperationType.GET, caller, scope, asked) as entry:
            entry.seen_only = entry.to_show = True
            routed = await runtime.admit(entry, key)
            if not await _has_copies(runtime, routed.binding.provider_key):
                return None
            connection = await runtime.open(
                routed.binding, company_read_only=routed.company_read_only, as_of=caller.as_of
            )
            snapshots = await connection.snapshots(handles, scope)
            moved = await runtime.moved(
                connection, [one.handle for one in snapshots if not one.record]
            )
            back = await connection.snapshots(list(dict.fromkeys(moved.values())), scope)
            now = {one.handle: one.record for one in back}
            found = {}
            for one in snapshots:
                record = one.record or now.get(moved.get(one.handle, one.handle))
                is_seen = record and readable([record], scope, entry.visibility, key)
                found[one.handle] = record if is_seen else None
            entry.result_count = sum(record is not None for record in found.values())
        return found

    def _found(self, caller: Caller, request: ImpactRequest, marked: _Marked) -> LoggedReads:
        """Return the newest operations that could have reached the records. Blocking."""
        found = LoggedReads(self._runtime.log_of(caller))
        chosen = request.filter
        named = {one.field for one in chosen.field_tests()}
        if "status" not in named:
            chosen = chosen.narrowed_to(status=OperationStatus.OK)
        kinds = [chosen]
        if "operation_type" not in named:
            kinds = [chosen.narrowed_to(operation_type=kind) for kind in READS]
        streams = [found.read(one) for one in kinds]
        newest = heapq.merge(*streams, key=lambda one: -one.seq)
        reaching = (one for one in newest if marked.reached_by(one))
        found.operations = list(islice(reaching, request.last))
        found.is_all = found.is_all and next(reaching, None) is None
        return found

    async def _tried(
        self, caller: Caller, marked: _Marked, found: LoggedReads, impact: Impact, progress: Tell
    ) -> Impact:
        asked, untried = await asyncio.to_thread(_questions, found)
        differing: dict[object, tuple[Side, Side, list[Operation]]] = {}
        tried = questions = done = differ = 0
        by = caller.model_copy(update={"run_id": None})
        async with AsyncExitStack() as stack:
            whole = trial_of(self._runtime)
            stack.push_async_callback(whole.close)
            gone = {key: marked.ids_in(key) for key in {where for where, _ in marked.places}}
            less = trial_of(whole, gone)
            stack.push_async_callback(less.close)

            async def attempt(one: _Asked) -> tuple[Side, Side] | NotTried:
                try:
                    before, after = await asyncio.gather(
                        *(_answer(side, by, one, marked) for side in (whole, less))
                    )
                except NotTried as error:
                    return error
                except MemtuiError as error:
                    return NotTried(WhyNot.REFUSED, str(error))
                if before.problems != after.problems:
                    return NotTried(WhyNot.REFUSED, (*after.problems, *before.problems)[0])
                return before, after

            for start in range(0, len(asked), _AT_ONCE):
                progress(ReplayProgress(done, len(asked), differ))
                some = asked[start : start + _AT_ONCE]
                for one, result in zip(
                    some, await asyncio.gather(*map(attempt, some)), strict=True
                ):
                    done += 1
                    if isinstance(result, NotTried):
                        untried.add(result, one.operations)
                        continue
                    questions += 1
                    tried += len(one.operations)
                    if result[0].compared != result[1].compared:
                        differ += 1
                        same = one.words, *(side.compared for side in result)
                        differing.setdefault(same, (*result, []))[2].extend(one.operations)
            progress(ReplayProgress(done, len(asked), differ))
        effects = sorted((_effect(*one) for one in differing.values()), key=_order)
        return impact.model_copy(
            update={
                "effects": tuple(effects),
                "tried": tried,
                "questions": questions,
                "untried": untried.untried(marked),
            }
        )


class LoggedReads:
    """The operations to replay, and whether the log was searched to its end."""

    def __init__(self, log: CompanyLog) -> None:
        self.log = log
        self.operations: list[Operation] = []
        self.is_all = True

    def read(self, chosen: Filter) -> Iterator[Operation]:
        """Yield the queries and delivered contexts that match, the newest first."""
        before: int | None = None
        for _ in range(0, _MOST_READ, _PAGE):
            page = self.log.page(chosen, limit=_PAGE, before=before)
            yield from filter(_answered_somebody, page.operations)
            if (before := page.next_before) is None:
                return
        self.is_all = False


def _answered_somebody(one: Operation) -> bool:
    if one.status is not OperationStatus.OK:
        return False
    if one.operation_type is OperationType.CONTEXT:
        return bool(one.request.get("delivered"))
    return one.operation_type is OperationType.QUERY


class _Left:
    """The operations that are not replayed, by reason."""

    def __init__(self) -> None:
        self._found: dict[tuple[WhyNot, str], list[Operation]] = defaultdict(list)

    def add(self, why: NotTried, operations: Iterable[Operation]) -> None:
        self._found[why.why, why.sentence] += operations

    def untried(self, marked: _Marked) -> tuple[Untried, ...]:
        return tuple(
            Untried(
                why=why,
                sentence=sentence,
                operation_ids=tuple(one.operation_id for one in newest),
                with_a_record=tuple(one.operation_id for one in newest if marked.in_answer_of(one)),
            )
            for (why, sentence), found in self._found.items()
            for newest in [sorted(found, key=lambda one: -one.seq)]
        )


def _marked(
    records: Mapping[str, Sequence[Record]], unread: Mapping[str, Sequence[RecordHandle]]
) -> _Marked:
    handles = {key: [record.handle for record in own] for key, own in records.items()} | {**unread}
    return _Marked(
        places=frozenset(
            (key, one.provider_record_id) for key, own in handles.items() for one in own
        ),
        owners={key: frozenset(owner_of(one.scope) for one in own) for key, own in records.items()},
        unread=frozenset(unread),
    )


def _questions(found: LoggedReads) -> tuple[list[_Asked], _Left]:
    """Return the questions that can be replayed, each once, and the rest. Blocking."""
    asked: dict[object, _Asked] = {}
    left, given = _Left(), Given(found.log)
    for one in found.operations:
        try:
            request, fan_out = ask_again(one, given)
        except NotTried as error:
            left.add(error, [one])
            continue
        same = type(request), request.model_dump_json(), fan_out is None
        asked.setdefault(same, _Asked(request, fan_out, [])).operations.append(one)
    return list(asked.values()), left


def ask_again(one: Operation, given: Given) -> tuple[QueryRequest | ContextRequest, FanOut | None]:
    """Return the logged request of an operation. Raises `NotTried`."""
    request = one.request
    if one.absent:
        raise NotTried(WhyNot.ERASED, "The text of the query was erased.")
    if request.get("as_of"):
        raise NotTried(WhyNot.PAST, "It was a query of the past, which forgetting cannot change.")
    is_query = one.operation_type is OperationType.QUERY
    if is_query and not isinstance(request.get("query"), str):
        raise NotTried(WhyNot.NOT_LOGGED, "The log does not have the text of the query.")
    is_cut = (
        len(request.get("query", "")) >= LOGGED_CHARS
        or len(request.get("owners", ())) >= LOGGED_OWNERS
    )
    if is_cut:
        raise NotTried(WhyNot.CUT, "The log has only the beginning of the query.")
    try:
        if not is_query:
            return context_again(one, given.before(one)), None
        again = query_again(one)
    except Invalid as error:
        raise NotTried(WhyNot.NOT_LOGGED, "The log does not have the text of the query.") from error
    together = request.get("together")
    fan_out = FanOut(str(together), _MOST_MS, seen_only=True) if together else None
    return again, fan_out


async def _answer(runtime: ServiceRuntime, by: Caller, asked: _Asked, marked: _Marked) -> Side:
    if isinstance(asked.request, QueryRequest):
        found = await runtime.module(Operations).query(by, asked.request, fan_out=asked.fan_out)
        found_records = [(found.binding_key, one.handle, one.text) for one in found.snippets]
        problems = tuple(one.sentence() for one in found.problems)
        return Side(records=_answered_records(found_records, marked), problems=problems)
    context = await runtime.module(Contexts).context(by, asked.request)
    found_records = [
        (fact.binding_key or "", fact.handle, fact.text)
        for section in context.sections
        for fact in section.facts
        if fact.handle is not None
    ]
    return Side(
        records=_answered_records(found_records, marked),
        text=context.text,
        tokens=context.tokens,
        problems=tuple(one.sentence() for one in context.problems),
    )


def _answered_records(
    found: Iterable[tuple[str, RecordHandle, str]], marked: _Marked
) -> tuple[AnsweredRecord, ...]:
    return tuple(
        AnsweredRecord(
            rank=rank, handle=handle, binding_key=key, text=text,
            marked=(key, handle.provider_record_id) in marked.places,
        )
        for rank, (key, handle, text) in enumerate(found, start=1)
    )  # fmt: skip


def _effect(before: Side, after: Side, asked: Iterable[Operation]) -> Effect:
    operations = sorted(asked, key=lambda one: -one.seq)

    def names(field: str) -> tuple[str, ...]:
        return tuple(sorted({name for one in operations if (name := getattr(one.scope, field))}))

    alone = {one.principal for one in operations if not one.scope.agent_id}

    forms = [form_of(without_prefix(one.text)) for one in after.records]
    return Effect(
        operation=operations[0],
        operation_ids=tuple(one.operation_id for one in operations),
        agents=names("agent_id"),
        principals=tuple(sorted(alone)),
        runs=names("run_id"),
        projects=names("project_id"),
        subjects=names("subject_id"),
        before=before,
        after=after,
        still_said=tuple(one.place for one in _beside(before, after) if _is_said(one.text, forms)),
    )


def _is_said(text: str, forms: Iterable[TextForm]) -> bool:
    own = form_of(without_prefix(text))
    return any(compare(own, form) is not None for form in forms)


def _order(one: Effect) -> tuple[bool, bool, int, int]:
    return not one.emptied, one.loses_nothing, -one.times, -one.operation.seq
