"""The runs of agents, replayed from the log: contexts, queries, writes, records and costs.

An operation belongs to the run in its scope. Operations that a person does in the terminal app
while looking at a run are not part of it.
"""

from __future__ import annotations

import asyncio
import difflib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple

from memtui.context.cost import Price, TokenCounter, price
from memtui.context.delivered import pieces
from memtui.contract import (
    Filter,
    Invalid,
    MemtuiError,
    Model,
    NotFound,
    OperationStatus,
    OperationType,
    Record,
    RecordHandle,
    Scope,
    Usd,
    UsdSum,
    UtcDatetime,
)
from memtui.service.context.contexts import ContextAnswer, Contexts
from memtui.service.history.asked import Given, context_again, scope_outside
from memtui.service.history.log import LoggedOperations
from memtui.service.history.narrowing import operations_asked
from memtui.service.runtime import ServiceModule
from memtui.service.visibility import Caller, readable
from memtui.store.database import loaded_dollars
from memtui.store.details import RecordDetails
from memtui.store.journal import Journal, OutcomeCheck
from memtui.store.log import RecordText, RunFigures, RunPart, known, record_texts
from memtui.store.operation import Operation, OperationHandle, Place, why_damaged
from memtui.store.visibility import Visibility

_MOST_READ = 2_000
"""Most records that one replay reads again."""
_NOT_GIVEN = {"false", "0"}
"""What the databases return for `"delivered": false`."""


class Run(Model):
    """The figures of one run. Names are sorted alphabetically."""

    run_id: str
    agents: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    issues: tuple[str, ...] = ()
    principals: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    """The channels of its operations: hook, mcp, http, cli, import."""
    started_at: UtcDatetime
    last_at: UtcDatetime
    """The start of its last operation."""
    first_seq: int
    last_seq: int
    operations: int
    contexts: int = 0
    """Contexts delivered to it; of an imported run, its replies."""
    tokens_given: int = 0
    """Tokens of the contexts that memtui delivered to it."""
    queries: int = 0
    answered_queries: int = 0
    """Queries with at least one result."""
    writes: int = 0
    corrections: int = 0
    forgets: int = 0
    pending: int = 0
    """Requested changes that await review; they do not count as writes yet."""
    failures: int = 0
    """Operations that were refused, failed, conflicted or have an unknown outcome."""
    input_tokens: int = 0
    output_tokens: int = 0
    embedding_tokens: int = 0
    cost_usd: UsdSum | None = None
    """The cost of its priced calls; None: no call has a price."""
    unpriced_count: int = 0
    """Calls without a price."""


class RunPage(Model):
    """Runs, the most recently active first. `next_before` is where the next page begins."""

    runs: tuple[Run, ...]
    total: int
    next_before: int | None = None
    as_of: UtcDatetime | None = None
    """The moment up to which the log was read; None: now."""
    problems: tuple[str, ...] = ()
    """Damaged operations of these runs, which the figures may leave out."""


class RecordState(StrEnum):
    """The state today of a record in a run."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    GONE = "gone"
    THERE = "there"
    """It exists; whether its text changed is unknown."""
    UNREAD = "unread"
    """It cannot be read, so whether it exists is unknown."""


class RunRecord(Model):
    """A record as a run knew it, and its state today."""

    rank: int
    """Its rank in the answer, from 1."""
    score: float | None = None
    handle: RecordHandle
    binding_key: str | None
    ghost: bool = False
    state: RecordState
    new_id: str | None = None
    """Its present id, if it was restored under a new one."""
    why: str = ""
    """Why it cannot be read."""
    text: str | None = None
    """The text that the run knew; None: no longer known."""
    now: str | None = None
    """Its text today, if that differs from `text`."""
    tokens: int | None = None
    """Its tokens in the delivered context; None: it was in none, or its text was not found there.
    """
    cost_usd: Usd | None = None


class DeliveredContext(Model):
    """A context as it was delivered to a run."""

    text: str | None
    """The exact text; None: it was erased, or never logged."""
    price: Price
    budget: int
    over_budget: bool
    sections: dict[str, int]
    """Tokens by section."""


class RunStep(Model):
    """One operation of a run."""

    operation: Operation
    context: DeliveredContext | None = None
    records: tuple[RunRecord, ...] = ()
    found: OutcomeCheck | None = None
    """The finding of a check, where its outcome was unknown."""


class Replay(Model):
    """The operations of a run, oldest first."""

    run: Run
    steps: tuple[RunStep, ...]
    next_after: int | None = None
    """Where the next page begins."""
    as_of: UtcDatetime | None = None
    """The moment up to which the log was read; None: now."""


class AssembledNow(Model):
    """A delivered context, beside the one that the same request would deliver now."""

    operation: Operation
    delivered: str
    tokens: int
    """Tokens of `delivered`."""
    now: ContextAnswer

    @property
    def difference(self) -> list[str]:
        """The lines of a unified diff; empty if nothing changed."""
        old, new = self.delivered.splitlines(), self.now.text.splitlines()
        return list(difflib.unified_diff(old, new, "delivered", "now", lineterm=""))


class There(NamedTuple):
    """A record as it is now; `record` None: it is gone, or cannot be read (`why`)."""

    record: Record | None
    new_id: str | None = None
    why: str = ""
    is_hidden: bool = False
    """Whether the caller may not see it."""


class _Known(NamedTuple):
    """The material of a replay: the journal's states, records as they are now, findings."""

    kept: Mapping[Place, Sequence[RecordText]]
    there: Mapping[Place, There]
    visibility: Visibility | None
    checked: Mapping[str, OutcomeCheck]


class Runs(ServiceModule):
    """The runs of agents, as far as the caller may see them."""

    async def page(
        self,
        caller: Caller,
        chosen: Filter | None = None,
        *,
        delivered: tuple[str, str] | None = None,
        limit: int = 100,
        before: int | None = None,
    ) -> RunPage:
        """Return a page of the runs, the most recently active first, with figures of whole runs.

        Args:
            caller: Who asks.
            chosen: Only runs with an operation that matches this filter.
            delivered: A binding's key and a record's id there: only runs to which the record was
                returned, in a context or an answer, under any of its ids.
            limit: The most runs to return.
            before: `next_before` of the previous page.
        """

        def read() -> RunPage:
            asked = operations_asked(self._runtime, caller, chosen or Filter())
            own = self._runtime.log_of(caller)
            names = None if delivered is None else (delivered[0], self._ids(caller, *delivered))
            found = own.runs(asked, names)
            newest = sorted(found.items(), key=lambda one: -one[1])
            wanted = [one for one in newest if before is None or one[1] < before]
            page = [run_id for run_id, _ in wanted[:limit]]
            figures = own.run_figures(page)
            runs = _runs(figures)
            return RunPage(
                runs=tuple(runs[run_id] for run_id in page),
                problems=tuple(map(why_damaged, figures.damaged)),
                total=len(newest),
                next_before=wanted[limit - 1][1] if len(wanted) > limit else None,
                as_of=caller.as_of,
            )

        return await asyncio.to_thread(read)

    async def replay(
        self, caller: Caller, asked: str, *, after: int = 0, limit: int = 200
    ) -> Replay:
        """Return a run's operations in order, and the state today of the records in them.

        The records are read again, those of one binding together; these reads are logged, but not
        as part of the run.

        Args:
            caller: Who asks.
            asked: The run's id, or the beginning of it.
            after: `next_after` of the previous page.
            limit: The most operations to return.

        Raises:
            NotFound: no run has that id.
            Invalid: the id is empty, or several runs' ids begin with it.
        """

        def read() -> tuple[Run, tuple[Operation, ...], Visibility | None]:
            visibility = self._runtime.visibility(caller)
            own = self._runtime.log_of(caller)
            run_id = _named(asked, own.runs(Filter()))
            run = _runs(own.run_figures([run_id]))[run_id]
            return run, own.of_run(run_id, after=after, limit=limit), visibility

        run, operations, visibility = await asyncio.to_thread(read)
        log = self._runtime.module(LoggedOperations)
        checked = await log.found_outcomes(caller, operations)
        operations = await log.with_found(caller, operations, checked)
        there = await self._there(caller, operations)

        def steps() -> tuple[RunStep, ...]:
            known = _Known(self._kept(caller, there), there, visibility, checked)
            return tuple(_step(one, known) for one in operations)

        last = operations[-1].seq if operations else run.last_seq
        return Replay(
            run=run,
            steps=await asyncio.to_thread(steps),
            next_after=last if last < run.last_seq else None,
            as_of=caller.as_of,
        )

    async def assembled_now(self, caller: Caller, operation_id: str) -> AssembledNow:
        """Assemble the context of a logged request again, without delivering it.

        Raises:
            NotFound: there is no such operation.
            Invalid: it delivered no context, or the delivered text is no longer in the log.
        """
        operation = await self._runtime.module(LoggedOperations).get(caller, operation_id)
        delivered = _delivered(operation)
        if delivered is None:
            raise Invalid(
                f"{operation.operation_id} delivered no context; `memtui runs show` lists those "
                "of a run."
            )
        if delivered.text is None:
            raise Invalid(f"The text that {operation.operation_id} delivered is no longer stored.")

        def given() -> list[str]:
            return Given(self._runtime.log_of(caller)).before(operation)

        request = context_again(operation, await asyncio.to_thread(given))
        now = await self._runtime.module(Contexts).context(caller, request)
        tokens = delivered.price.input_tokens
        return AssembledNow(operation=operation, delivered=delivered.text, tokens=tokens, now=now)

    async def _there(self, caller: Caller, operations: Iterable[Operation]) -> dict[Place, There]:
        """Read the records that operations touched or returned, by binding and scope."""
        wanted: dict[tuple[str, Scope], dict[str, RecordHandle]] = defaultdict(dict)
        found: dict[Place, There] = {}
        for operation in operations:
            for one in operation.handles:
                place = operation.place_of(one)
                if not place[0]:
                    found[place] = There(None, why="No binding of this company holds it.")
                elif place[1] and place not in found:
                    found[place] = There(None, why=f"Only {_MOST_READ:,} records are read.")
                    if len(found) <= _MOST_READ:
                        handles = wanted[place[0], scope_outside(operation)]
                        handles[place[1]] = one.handle
        for (key, scope), handles in wanted.items():
            found.update(await self.read(caller, key, scope, list(handles.values()), "replay"))
        return found

    async def read(
        self, caller: Caller, key: str, scope: Scope, handles: Sequence[RecordHandle], why: str
    ) -> dict[Place, There]:
        """Read records as they are now; `why`: the logged purpose: `replay`, `trace`, `shadow`."""
        asked = RecordDetails(records=len(handles), purpose=why)
        try:
            async with self._runtime.recorder.recorded(
                OperationType.GET, caller, scope, asked
            ) as entry:
                entry.to_show, entry.seen_only = True, why != "replay"
                connection = await self._runtime.connect(entry, key)
                snapshots = await connection.snapshots(handles, scope)
                gone = [one.handle for one in snapshots if one.record is None]
                moved = await self._runtime.moved(connection, gone)
                back = list(dict.fromkeys(moved.values()))
                now = {one.handle: one for one in await connection.snapshots(back, scope)}
                found = {}
                for one in snapshots:
                    there = now[moved[one.handle]] if one.handle in moved else one
                    is_hidden = there.record is not None and not readable(
                        [there.record], scope, entry.visibility, key
                    )
                    found[key, one.handle.provider_record_id] = There(
                        None if is_hidden else there.record,
                        None if there is one else there.handle.provider_record_id,
                        "You may not see it." if is_hidden else "",
                        is_hidden,
                    )
                entry.result_count = sum(one.record is not None for one in found.values())
        except MemtuiError as error:
            return {(key, one.provider_record_id): There(None, why=str(error)) for one in handles}
        return found

    def _kept(self, caller: Caller, places: Iterable[Place]) -> dict[Place, Sequence[RecordText]]:
        """Return the undo journal's states of records. Blocking."""
        ids: dict[str, list[str]] = defaultdict(list)
        for key, record_id in places:
            ids[key].append(record_id)
        with self._runtime.database.read() as database:
            return {
                (key, record_id): texts
                for key, record_ids in ids.items()
                for record_id, texts in record_texts(
                    database, caller.company_id, key, record_ids
                ).items()
            }

    def _ids(self, caller: Caller, key: str, record_id: str) -> list[str]:
        with self._runtime.database.read() as database:
            return Journal(database, caller.company_id).ids_of(key, record_id)


def _named(asked: str, runs: Iterable[str]) -> str:
    known = set(runs)
    if asked in known:
        return asked
    if not asked:
        raise Invalid("A run is named by its id; give one, or the beginning of it.")
    begin = sorted(one for one in known if one.startswith(asked))
    if not begin:
        raise NotFound(f"There is no run {asked}; `memtui runs list` shows those there are.")
    if len(begin) > 1:
        raise Invalid(f"{asked} is the beginning of several runs' ids; give more of it.")
    return begin[0]


def _runs(figures: RunFigures) -> dict[str, Run]:
    parts: dict[str, list[RunPart]] = defaultdict(list)
    for part in figures.parts:
        parts[part.run_id].append(part)
    return {run_id: _run(run_id, own, figures) for run_id, own in parts.items()}


def _run(run_id: str, parts: Sequence[RunPart], figures: RunFigures) -> Run:
    def names(field: str) -> tuple[str, ...]:
        return tuple(sorted({value for one in parts if (value := getattr(one, field))}))

    def count(*kinds: OperationType) -> int:
        return sum(one.operations for one in done if one.operation_type in kinds)

    done = [one for one in parts if one.status != OperationStatus.PENDING]
    given = [
        one for one in figures.contexts if one.run_id == run_id and one.delivered not in _NOT_GIVEN
    ]
    used = [one for one in figures.usage if one.run_id == run_id]
    calls, unpriced = sum(one.calls for one in used), sum(one.unpriced for one in used)
    no_failure = {OperationStatus.OK, OperationStatus.CANCELLED, OperationStatus.PENDING}
    queries = [one for one in parts if one.operation_type == OperationType.QUERY]
    return Run(
        run_id=run_id,
        agents=names("agent_id"),
        projects=names("project_id"),
        subjects=names("subject_id"),
        issues=names("issue_id"),
        principals=names("principal"),
        channels=names("channel"),
        started_at=min(known(one.first_at for one in parts)),
        last_at=max(known(one.last_at for one in parts)),
        first_seq=min(one.first_seq for one in parts),
        last_seq=max(one.last_seq for one in parts),
        operations=sum(one.operations for one in parts),
        contexts=sum(one.contexts for one in given),
        tokens_given=sum(one.contexts * _count(one.tokens) for one in given),
        queries=count(OperationType.QUERY),
        answered_queries=sum(one.with_results for one in queries),
        writes=count(OperationType.WRITE),
        corrections=count(OperationType.CORRECT),
        forgets=count(OperationType.FORGET),
        pending=sum(one.operations for one in parts if one.status == OperationStatus.PENDING),
        failures=sum(one.operations for one in parts if one.status not in no_failure),
        input_tokens=sum(one.input_tokens for one in used),
        output_tokens=sum(one.output_tokens for one in used),
        embedding_tokens=sum(one.embedding_tokens for one in used),
        cost_usd=loaded_dollars(sum(one.cost_pico for one in used)) if calls > unpriced else None,
        unpriced_count=unpriced,
    )


def _delivered(operation: Operation) -> DeliveredContext | None:
    asked = operation.request
    if operation.status is not OperationStatus.OK or not asked.get("delivered"):
        return None
    text, sections = asked.get("text"), asked.get("sections")
    tokens, model = _count(asked.get("tokens")), str(asked.get("model") or "")
    return DeliveredContext(
        text=text if isinstance(text, str) else None,
        price=price(model, tokens, at=operation.started_at),
        budget=_count(asked.get("budget")),
        over_budget=bool(asked.get("over_budget")),
        sections={name: _count(one) for name, one in sections.items()}
        if isinstance(sections, dict)
        else {},
    )


def _count(said: object) -> int:
    """Return a logged number of tokens; 0 for other values, which an import may contain."""
    digits = str(said)
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else 0


def _step(operation: Operation, known: _Known) -> RunStep:
    context = _delivered(operation)
    text = context.text or "" if context else ""
    records = [
        _record(operation, one, text, known) for one in operation.handles if one.provider_record_id
    ]
    if context is not None:
        records = list(_priced(context, records, operation))
    return RunStep(
        operation=operation,
        context=context,
        records=tuple(records),
        found=known.checked.get(operation.operation_id),
    )


def _record(operation: Operation, one: OperationHandle, given: str, known: _Known) -> RunRecord:
    place = operation.place_of(one)
    now = known.there[place]
    then = _then(known.kept.get(place, ()), operation)
    if then is not None and not readable([then], operation.scope, known.visibility, place[0]):
        then = None
    text = None if then is None else _as_delivered(then, given)
    words = None if now.record is None else _as_delivered(now.record, given)
    if text is None and words is not None and words in given:
        text = words
    state = _state(text, words, now, operation)
    if text is None and state is RecordState.UNCHANGED:
        text = words
    return RunRecord.like(
        one,
        handle=one.handle,
        binding_key=place[0] or None,
        state=state,
        new_id=now.new_id,
        why=now.why,
        text=text,
        now=words if words != text else None,
    )


def _as_delivered(record: Record, given: str) -> str:
    """Return a record's text in a context: `shown` (a summary) if the full text is not there."""
    return record.text if not given or record.text in given else record.shown


def _then(kept: Sequence[RecordText], operation: Operation) -> Record | None:
    """Return a record as an operation left it, or found it if it removed it; None: not known."""
    known: Record | None = None
    for step in kept:
        if step.seq > operation.seq:
            return step.before
        known = step.after or (step.before if step.seq == operation.seq else None)
    return known


def _state(text: str | None, words: str | None, now: There, operation: Operation) -> RecordState:
    if now.why:
        return RecordState.UNREAD
    if now.record is None:
        return RecordState.GONE
    if text is not None:
        return RecordState.UNCHANGED if text == words else RecordState.CHANGED
    if now.record.updated_at is None:
        return RecordState.THERE
    later = now.record.updated_at > operation.started_at
    return RecordState.CHANGED if later else RecordState.UNCHANGED


def _priced(
    context: DeliveredContext, records: Sequence[RunRecord], operation: Operation
) -> Iterator[RunRecord]:
    """Yield the records of a context with their tokens and cost in it."""
    model = context.price.model
    counter = TokenCounter(model)
    found = pieces(context.text or "", [one.text for one in records])
    for record, piece in zip(records, found, strict=True):
        if piece is None:
            yield record
            continue
        tokens = counter.tokens(piece)
        cost: Decimal | None = price(model, tokens, at=operation.started_at).cost_usd
        yield record.model_copy(update={"tokens": tokens, "cost_usd": cost})
