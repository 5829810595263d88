"""Compare two memories by the log's own questions: each is asked of two bindings.

Records are matched by their text, word for word or nearly, as each memory has ids of its own. The
questions are logged as memtui's own reads with the purpose `compare`.

A shadow is a binding that is asked unheard, for a time, what another one is asked. Nothing more
happens when somebody asks: the question stands in the log, and is asked of the shadow afterwards
(purpose `shadow`). What the binding answered is what the log says, but for the prompt of a context,
of which both are asked.
"""

from __future__ import annotations

from asyncio import gather, to_thread
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from hashlib import sha256
from itertools import groupby, islice, takewhile
from math import comb
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from filelock import FileLock, Timeout
from pydantic import ValidationError

from memtui.analytics.company_log import CompanyLog
from memtui.context.cost import TokenCounter
from memtui.contract import (
    Denied,
    Filter,
    Invalid,
    MemtuiError,
    Model,
    NotFound,
    OperationStatus,
    OperationType,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Unavailable,
    Usage,
)
from memtui.passages import Phrase, phrases_of, repeated
from memtui.pruning.duplicates import DuplicateIndex, TextForm, compare, form_of
from memtui.service.answers import Shadow
from memtui.service.context.impact import AnsweredRecord, LoggedReads, NotTried, ask_again
from memtui.service.history.asked import Given, scope_outside
from memtui.service.history.runs import There
from memtui.service.memory import MemoryService
from memtui.service.recorder import FanOut
from memtui.service.runtime import ServiceRuntime, find_binding
from memtui.service.usecases.checking import refuse_failures
from memtui.service.visibility import Caller, without_prefix
from memtui.store.limits import SHADOW, last_seq
from memtui.store.operation import Operation, Place
from memtui.store.visibility import Visibility
from memtui.text_analysis import words_in_order
from memtui.wording import misfit

_AT_ONCE = 4
_MOST_WRITES = 1_000
_TAIL = 0.025
"""Of each side of an interval that holds the true share in 95 of 100 cases."""
_OWN = {"purpose": "compare", "run_id": None}
"""How the caller of these questions differs."""
FEWEST = 30
"""Fewest questions answered by both that can support a cut-over."""
_ALIKE, _MOST_FAILED, _HALF = 0.8, 0.05, 0.5
_FAILURES = 3
"""After so many failures one after the other a shadow is left alone until the next time."""
_MOST_REPORTED = 500


class ComparedAnswer(Model):
    """The answer of one binding to a question."""

    records: tuple[AnsweredRecord, ...] = ()
    error: str = ""
    """Why there is none; empty: it answered."""
    helped: tuple[int, ...] = ()
    """The ranks of records of which somebody said that they helped with the question."""
    used: tuple[int, ...] = ()
    """The ranks of those whose text came back in a later write of a run that asked it."""
    tokens: int = 0
    """Tokens of the texts, for the model of the setting `context_model`."""
    usage: tuple[Usage, ...] = ()
    latency_ms: float = 0

    @property
    def hits(self) -> int:
        """How many records helped or were used."""
        return len({*self.helped, *self.used})


class ComparedQuestion(Model):
    """A question, and the answers of both bindings."""

    seq: int
    """The number of the newest operation that asked it."""
    question: str
    times: int
    """How often it was asked."""
    answers: tuple[ComparedAnswer, ComparedAnswer]
    same: dict[int, int] = {}
    """The ranks of records that both found: in the first answer, and in the second."""

    @property
    def answered(self) -> bool:
        """Whether both answered."""
        return not any(one.error for one in self.answers)

    @property
    def agreement(self) -> float | None:
        """Share of the longer answer that both found; None: one failed, or nothing was found."""
        longer = max(len(one.records) for one in self.answers)
        return len(self.same) / longer if longer and self.answered else None


class MemoryComparison(Model):
    """What two bindings answered to the same questions."""

    bindings: tuple[str, str]
    questions: tuple[ComparedQuestion, ...]
    """The least alike first, then the newest."""
    left_out: int = 0
    """How many logged questions cannot be asked again: erased, cut, or of the past."""

    @property
    def both(self) -> list[ComparedQuestion]:
        """The questions that both answered."""
        return [one for one in self.questions if one.answered]

    @property
    def agreement(self) -> float | None:
        """Mean agreement of the questions to which one of them found something."""
        found = [one.agreement for one in self.questions if one.agreement is not None]
        return sum(found) / len(found) if found else None

    @property
    def more_hits(self) -> tuple[int, int]:
        """In how many questions the one had more hits, and in how many the other."""
        hits = [[answer.hits for answer in one.answers] for one in self.both]
        return sum(a > b for a, b in hits), sum(b > a for a, b in hits)

    @property
    def interval(self) -> tuple[float, float]:
        """In which share of the questions that differ in hits the first is truly better.

        Exact (Clopper and Pearson), at 95 %: a difference is shown if it leaves out a half, which
        is what the sign test says.
        """
        first, second = self.more_hits
        return _least(first, first + second), 1 - _least(second, first + second)


def _least(wins: int, of: int) -> float:
    """Return the least share with which so many wins are not too unlikely."""
    low, high = 0.0, 1.0
    for _ in range(40 if wins else 0):
        share = (low + high) / 2
        chance = sum(comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(wins, of + 1))
        low, high = (share, high) if chance < _TAIL else (low, share)
    return low


_Asked = tuple[QueryRequest, list[Operation]]
"""A question, and the operations that asked it, the newest first."""
_Found = tuple[Sequence[Record], tuple[Usage, ...], float]
"""The records of an answer, best first, its usage, and its latency in milliseconds."""


class ComparisonPlan(NamedTuple):
    """Questions to ask two bindings, before anything is sent."""

    bindings: tuple[str, str]
    asked: Sequence[_Asked]
    left_out: int
    leave: Sequence[str]
    """The bindings whose questions may leave this machine, with the address where it is known."""
    agreed: bool
    """Whether somebody said yes to that before, or nothing leaves."""


async def plan_comparison(
    service: MemoryService,
    caller: Caller,
    bindings: tuple[str, str],
    last: int,
    operation: str | None = None,
) -> ComparisonPlan:
    """Return the log's last questions, each once, that two bindings would be asked.

    Args:
        service: The open service.
        caller: Who asks; only questions that it sees in the log count.
        bindings: Their keys.
        last: How many of the newest queries, and contexts for a prompt, are looked at.
        operation: Only the question of this operation: an id, the beginning, or a number.

    Raises:
        Invalid: the bindings are one.
        NotFound: there is no question, or no such binding.
    """
    if bindings[0] == bindings[1]:
        raise Invalid("A binding is compared with another; name two.")
    log = await to_thread(service.runtime.log_of, caller)
    asked, left_out = await to_thread(_questions, log, last)
    leave = await leaving(service, caller, bindings)
    if operation is not None:
        seq = (await service.log.get(caller, operation)).seq
        asked = [one for one in asked if seq in {own.seq for own in one[1]}]
    if not asked:
        which = f"{operation} is not among the last {last:,} questions" if operation else ""
        raise NotFound(f"{which or 'There is no question in the log'} that can be asked again.")
    yes = [await shadow_of(service, caller, keys) for keys in (bindings, bindings[::-1])]
    agreed = any(one.project_id is None and one.covers(leave) for one in yes)
    return ComparisonPlan(bindings, asked, left_out, leave, agreed)


def _questions(log: CompanyLog, last: int) -> tuple[list[_Asked], int]:
    """Return the newest questions, each once, and how many cannot be asked again. Blocking."""
    found: dict[str, _Asked] = {}
    left_out, given = 0, Given(log)
    for one in islice(LoggedReads(log).read(Filter()), last):
        try:
            request = _question_of(one, given)
        except NotTried:
            left_out += 1
            continue
        if request is not None:
            found.setdefault(request.model_dump_json(), (request, []))[1].append(one)
    return list(found.values()), left_out


def _question_of(one: Operation, given: Given) -> QueryRequest | None:
    """Return what an operation asked, for any binding; None: a context without a prompt. Blocking.

    Raises `NotTried` where it cannot be asked again.
    """
    again, _ = ask_again(one, given)
    if not isinstance(again, QueryRequest):
        if not again.prompt:
            return None
        again = QueryRequest(scope=again.scope, query=again.prompt, topic=again.topic)
    return again.model_copy(update={"binding_key": None})


async def leaving(service: MemoryService, caller: Caller, bindings: tuple[str, str]) -> list[str]:
    """Return those bindings whose questions may leave this machine, each with its address."""
    return [place for key in bindings if (place := await _leaves(service, caller, key))]


async def _leaves(service: MemoryService, caller: Caller, key: str) -> str:
    """Return a binding with its address if its questions may leave this machine, else nothing.

    They stay only where the provider can be copied (`Capabilities.without`), so that it needs no
    model elsewhere, and stores in files.
    """
    runtime, scope = service.runtime, Scope(company_id=caller.company_id)
    row = (await runtime.resolve(caller, scope, key)).binding
    places = await runtime.connections.places(row, load=True)
    named = sorted({one[1] for one in places if one[0] != "path"})
    with suppress(MemtuiError):  # it fails again when it is asked, and is then counted
        connection = await runtime.open(row, company_read_only=False)
        if connection.adapter.capabilities.without and not named:
            return ""
    return f"{key} ({', '.join([row.provider_key, *named])})"


async def compare_memories(
    service: MemoryService,
    caller: Caller,
    plan: ComparisonPlan,
    *,
    agreed: bool = False,
    progress: Callable[[int], object] = lambda _done: None,
) -> MemoryComparison:
    """Ask both bindings the questions of a plan, four at a time; a cancelled call asks no more.

    Args:
        service: The open service.
        caller: Who asks.
        plan: The questions.
        agreed: Somebody says yes to what the plan says may leave the machine; that is stored for
            the pair where the caller may change settings, and not asked again.
        progress: Receives how many questions are done.

    Raises:
        Denied: nobody agreed.
    """
    if not plan.agreed:
        if not agreed:
            raise Denied(f"Nobody agreed that questions go to {' and '.join(plan.leave)}.")
        if (await shadow_of(service, caller, plan.bindings)).project_id is None:
            with suppress(Denied):  # an agent's, or a member's, is for this time
                await agree(service, caller, plan.bindings, plan.leave)
    by, found = caller.model_copy(update=_OWN), list[ComparedQuestion]()
    for start in range(0, len(plan.asked), _AT_ONCE):
        progress(start)
        some = plan.asked[start : start + _AT_ONCE]
        found += await gather(*(_ask_both(service, by, plan.bindings, one) for one in some))
    return _comparison(plan.bindings, found, plan.left_out)


def _comparison(
    bindings: tuple[str, str], questions: list[ComparedQuestion], left_out: int
) -> MemoryComparison:
    questions.sort(key=lambda one: (one.agreement is None, one.agreement, -one.seq))
    return MemoryComparison(bindings=bindings, questions=tuple(questions), left_out=left_out)


async def _ask_both(
    service: MemoryService, by: Caller, bindings: tuple[str, str], asked: _Asked
) -> ComparedQuestion:
    limit = service.settings.all_bindings_timeout_ms
    fan_out = FanOut(service.runtime.new_id(), limit, seen_only=True)

    async def ask(key: str) -> _Found:
        own = asked[0].model_copy(update={"binding_key": key})
        found = await service.query(by, own, fan_out=fan_out)
        refuse_failures(found.problems)
        return found.snippets, found.usage, found.latency_ms

    return await _compared(service, by, bindings, asked, ask)


async def _compared(
    service: MemoryService,
    by: Caller,
    bindings: tuple[str, str],
    asked: _Asked,
    ask: Callable[[str], Awaitable[_Found]],
) -> ComparedQuestion:
    """Compare the answers that `ask` returns by binding; it raises where there is none."""
    (request, operations), index = asked, DuplicateIndex()
    log = await to_thread(service.runtime.log_of, by)
    for key, record_id in await to_thread(_helped, log, operations):
        with suppress(MemtuiError):  # what is gone or hidden can be found by neither
            got = await service.get(by, record_id, request.scope, binding_key=key)
            index.add(_form(got.record.text))
    visibility = await to_thread(service.runtime.visibility, by)
    written = await to_thread(_written, log, operations, visibility)
    count = TokenCounter(service.settings.context_model).tokens

    def weighed(key: str, found: _Found) -> ComparedAnswer:
        records, usage, latency_ms = found
        texts = [one.text for one in records]
        words = (words_in_order(without_prefix(text)) for text in texts)
        return ComparedAnswer(
            records=tuple(
                AnsweredRecord(rank=rank, handle=one.handle, binding_key=key, text=one.text)
                for rank, one in enumerate(records, 1)
            ),
            helped=tuple(n for n, text in enumerate(texts, 1) if index.find(_form(text))),
            used=tuple(n for n, said in enumerate(words, 1) if repeated(said, written)),
            tokens=sum(map(count, texts)), usage=usage, latency_ms=latency_ms,
        )  # fmt: skip

    async def answer(key: str) -> ComparedAnswer:
        try:
            return await to_thread(weighed, key, await ask(key))
        except MemtuiError as error:
            return ComparedAnswer(error=str(error))

    # One after the other, so that neither slows the other down.
    first, second = [await answer(key) for key in bindings]
    same, times = await to_thread(_same, first, second), len(operations)
    return ComparedQuestion(
        seq=operations[0].seq, question=request.query, times=times, answers=(first, second),
        same=same,
    )  # fmt: skip


def _same(first: ComparedAnswer, second: ComparedAnswer) -> dict[int, int]:
    """Return the ranks of the records whose text is in both answers, each matched once."""
    found: dict[int, int] = {}
    forms = {one.rank: _form(one.text) for one in second.records}
    for one in first.records:
        own = _form(one.text)
        alike = (rank for rank, form in forms.items() if compare(own, form) is not None)
        if (rank := next(alike, None)) is not None:
            found[one.rank] = rank
            del forms[rank]
    return found


def _form(text: str) -> TextForm:
    return form_of(without_prefix(text))


def _written(
    log: CompanyLog, operations: Sequence[Operation], visibility: Visibility | None
) -> set[Phrase]:
    """Return the visible phrases that runs wrote after a question of theirs. Blocking."""
    return {
        phrase
        for own in operations
        if own.scope.run_id
        for made in log.writes([own.scope.run_id], [], own.seq, _MOST_WRITES)
        if visibility is None or visibility.sees(made)
        for phrase in phrases_of(words_in_order(str(made.request.get("content", ""))))
    }


def _helped(log: CompanyLog, operations: Sequence[Operation]) -> list[Place]:
    """Return the records of some answers that helped more often than not. Blocking."""
    asked, balance = {own.operation_id for own in operations}, Counter[Place]()
    places = {own.place_of(handle) for own in operations for handle in own.handles}
    for key, own in groupby(sorted(places), itemgetter(0)):
        for word in log.words(key, [record_id for _, record_id in own]):
            if word.judged in asked:
                balance[key, word.record_id] += 1 if word.helped else -1
    return [place for place, more in balance.items() if more > 0]


class ShadowState(Model):
    """How much a shadow was asked in its time, by everybody."""

    shadow: Shadow
    calls: int = 0
    cost_usd: Decimal = Decimal(0)
    """Of the calls with a price."""
    unpriced: int = 0
    """Calls without a price, or with one for a part."""
    waiting: int = 0
    """Questions that the caller sees and that still wait, after it was asked others."""
    why_not: str = ""
    """Why it is asked no more; empty: it is."""

    def after(self, usage: Iterable[Usage]) -> ShadowState:
        """Return the state after one more call."""
        costs = [one.cost_usd for one in usage]
        priced = [cost for cost in costs if cost is not None]
        calls, cost = self.calls + 1, sum(priced, self.cost_usd)
        why = "its budget is spent" if cost >= self.shadow.budget_usd else ""
        why = "its calls are used up" if calls >= self.shadow.most_calls else why
        unpriced = self.unpriced + (not costs or len(priced) < len(costs))
        update = {"calls": calls, "cost_usd": cost, "unpriced": unpriced, "why_not": why}
        return self.model_copy(update=update)


async def shadow_of(service: MemoryService, caller: Caller, bindings: tuple[str, str]) -> Shadow:
    """Return on which terms the second binding may be asked what the first is; maybe on none.

    Raises:
        NotFound: there is no such binding.
    """
    key, other = bindings
    row = await service.runtime.ask(find_binding, caller.company_id, key)
    await service.runtime.ask(find_binding, caller.company_id, other)
    none = Shadow(binding_key=key, shadow_key=other).model_dump()
    found = (one for one in row.shadows if one["shadow_key"] == other)
    return Shadow.model_validate(next(found, none))


async def agree(
    service: MemoryService,
    caller: Caller,
    bindings: tuple[str, str],
    leaves: Sequence[str],
    days: float | None = None,
    **terms: Any,
) -> Shadow:
    """Store the caller's yes to what may leave; with `days` the second becomes a shadow.

    Args:
        service: The open service.
        caller: A person.
        bindings: The binding that answers, and the one that may be asked too.
        leaves: What `leaving` returned.
        days: For how long it is asked; None: former terms stay.
        terms: Fields of `Shadow`: share, budget, calls and project.

    Raises:
        Denied: the caller is no person, or may not change settings.
        Invalid: the bindings are one, or a term does not fit.
    """
    if bindings[0] == bindings[1]:
        raise Invalid("A binding is the shadow of another; name two.")
    now = service.runtime.clock()
    yes = {"leaves": tuple(leaves), "principal": caller.principal, "agreed_at": now, **terms}
    if days is not None:
        yes["since_seq"] = await service.runtime.ask(last_seq, caller.company_id)
        yes["until"] = now + timedelta(days=days)
    known = await shadow_of(service, caller, bindings)
    try:
        shadow = Shadow.model_validate({**dict(known), **yes})
    except ValidationError as error:
        first = error.errors()[0]
        raise Invalid(f"{first['loc'][0]}: {misfit(first)}.") from error
    await service.bindings.set_shadow(caller, bindings, shadow)
    return shadow


async def shadow_states(service: MemoryService, caller: Caller) -> list[ShadowState]:
    """Return what each shadow of the company was asked, also those that have ended."""
    found, now = [], service.runtime.clock()
    for shadow in [one for view in await service.bindings.all(caller) for one in view.shadows]:
        state = await to_thread(_asked, service, caller, shadow)
        if shadow.until is None or shadow.until <= now:
            why = "its time is over" if shadow.until else "there is only the yes"
            state = state.model_copy(update={"why_not": why})
        found.append(state)
    return found


def _asked(service: MemoryService, caller: Caller, shadow: Shadow) -> ShadowState:
    """Return how much a shadow was asked. Blocking."""
    state = ShadowState(shadow=shadow)
    for one in _own(service.runtime.log(caller.company_id), shadow):
        state = state.after(one.usage)
    return state


def _own(log: CompanyLog, shadow: Shadow) -> list[Operation]:
    """Return what a shadow was asked in its time, and what was asked beside it. Blocking."""
    kind, until = OperationType.QUERY, shadow.until
    chosen = Filter(binding_key=shadow.shadow_key, operation_type=kind, internal=True, until=until)
    each = log.each(chosen, after=shadow.since_seq) if until else ()
    found = [one for one in each if one.request.get("purpose") == SHADOW]
    return [*found, *log.by_ids([one.part_of for one in found if one.part_of], strict=False)]


async def ask_shadows(
    service: MemoryService, caller: Caller, seen: dict[tuple[str, str], int]
) -> list[ShadowState]:
    """Ask each shadow the questions that wait for it, of those that the caller sees in the log.

    Args:
        service: The open service.
        caller: Who asks, with its rights.
        seen: By pair of bindings the number of the last operation looked at; it is updated.
    """
    if not service.records or service.read_only or caller.as_of is not None:
        return []
    states = await shadow_states(service, caller)
    for place, state in enumerate(states):
        if not state.why_not:
            shadow = state.shadow
            pair = shadow.binding_key, shadow.shadow_key
            head = await service.runtime.ask(last_seq, caller.company_id)
            try:
                states[place] = await _ask_shadow(service, caller, shadow, seen.get(pair, 0))
            except MemtuiError as error:
                states[place] = state.model_copy(update={"why_not": str(error)})
            if not states[place].why_not:
                seen[pair] = head
    return states


async def _ask_shadow(
    service: MemoryService, caller: Caller, shadow: Shadow, after: int
) -> ShadowState:
    """Ask one question after the other, as far as the terms and the shadow's health allow."""
    other, pair = shadow.shadow_key, (shadow.binding_key, shadow.shadow_key)
    if not shadow.covers(leaves := await leaving(service, caller, pair)):
        raise Denied(
            f"Nobody agreed that questions go to {' and '.join(leaves)}; `memtui compare shadow "
            f"start {' '.join(pair)}` asks for a yes."
        )
    limit, failures, asked = service.settings.all_bindings_timeout_ms, 0, 0
    by = caller.model_copy(update={"purpose": SHADOW, "run_id": None})
    lock = FileLock(service.paths.data / "shadow.lock", 0, mode=0o600, thread_local=False)
    try:
        with lock:
            due = await to_thread(lambda: list(_due(service.runtime, caller, shadow, after)))
            state = await to_thread(_asked, service, caller, shadow)
            for request, [one] in due:
                if state.why_not:
                    break
                fan_out = FanOut(one.operation_id, limit, seen_only=True)
                is_context, failures = one.operation_type is OperationType.CONTEXT, failures + 1
                for key in pair if is_context else (other,):
                    own = request.model_copy(update={"binding_key": key})
                    usage: Sequence[Usage] = ()
                    with suppress(MemtuiError):  # its operation says why
                        usage = (await service.query(by, own, fan_out=fan_out)).usage
                        failures = 0 if key == other else failures
                    state = state.after(usage)
                asked += 1
                if failures == _FAILURES:
                    why = f"{other} failed {_FAILURES} times, one after the other"
                    state = state.model_copy(update={"why_not": why})
            return state.model_copy(update={"waiting": len(due) - asked})
    except Timeout:
        return ShadowState(shadow=shadow, why_not="another process asks it now")


def _due(runtime: ServiceRuntime, caller: Caller, shadow: Shadow, after: int) -> Iterator[_Asked]:
    """Yield the questions that wait for a shadow, the oldest first. Blocking."""
    log, after = runtime.log_of(caller), max(after, shadow.since_seq)
    done = {own.request.get("together") for own in _own(runtime.log(caller.company_id), shadow)}
    asked = Filter(binding_key=shadow.binding_key, project_id=shadow.project_id)
    fresh = takewhile(lambda one: one.seq > after, LoggedReads(log).read(asked))
    for one in sorted(fresh, key=attrgetter("seq")):
        drawn = int(sha256(one.operation_id.encode()).hexdigest()[:8], 16) < shadow.share * 16**8
        # Of several bindings that are asked together, the shadow may be one.
        if drawn and one.operation_id not in done and "together" not in one.request:
            with suppress(NotTried):
                if (request := _question_of(one, Given(log))) is not None:
                    yield request, [one]


async def report_shadow(service: MemoryService, caller: Caller, shadow: Shadow) -> MemoryComparison:
    """Compare what a shadow answered with what the binding did, by the newest 500 questions.

    Texts are read now, by the ids in the log. A record that was written after the question counts
    for neither. `left_out` counts questions that the caller may not see, or that were erased.
    """
    pair = shadow.binding_key, shadow.shadow_key
    log = await to_thread(service.runtime.log_of, caller)
    answers = defaultdict[str, dict[str, Operation]](dict)
    for own in await to_thread(_own, service.runtime.log(caller.company_id), shadow):
        answers[str(own.request.get("together"))][own.binding_key or ""] = own
    found = await to_thread(lambda: log.by_ids([*answers], strict=False))
    newest = [one for one in found if one.binding_key == pair[0]][:_MOST_REPORTED]
    sides = [{pair[0]: one} | answers[one.operation_id] for one in newest]
    by = caller.model_copy(update={"purpose": SHADOW, "run_id": None})
    wanted = defaultdict[tuple[str, Scope], set[RecordHandle]](set)
    for key, one in [each for side in sides for each in side.items()]:
        wanted[key, scope_outside(one)].update(_handles(one))
    there: dict[Place, There] = {}
    for (key, scope), handles in wanted.items():
        there |= await service.runs.read(by, key, scope, [*handles], SHADOW) if handles else {}
    questions, given = list[ComparedQuestion](), Given(log)
    for one, side in zip(newest, sides, strict=True):
        with suppress(NotTried):
            if (request := await to_thread(_question_of, one, given)) is not None:
                answer = partial(_logged, side, there, side[pair[0]].started_at)
                questions.append(await _compared(service, by, pair, (request, [one]), answer))
    left_out = len(answers) - len(found) + len(newest) - len(questions)
    return _comparison(pair, questions, left_out)


def _handles(one: Operation) -> list[RecordHandle]:
    """Return the records of an answer, best first, without erased ones."""
    ids = one.request.get("record_ids") or [own.provider_record_id for own in one.handles]
    provider = one.provider_key or ""
    return [RecordHandle(provider_key=provider, provider_record_id=name) for name in ids if name]


async def _logged(
    side: Mapping[str, Operation], there: Mapping[Place, There], at: datetime, key: str
) -> _Found:
    """Return a logged answer with the texts of now, of records that were there at a moment."""
    one = side[key]
    if one.status is not OperationStatus.OK:
        raise MemtuiError(one.error_message or one.status)
    states = [there[key, own.provider_record_id] for own in _handles(one)]
    if why := next((own.why for own in states if own.why and not own.is_hidden), ""):
        raise Unavailable(f"What it found cannot be read now: {why}")
    records = [own.record for own in states if own.record]
    old = [own for own in records if own.created_at is None or own.created_at <= at]
    return old, one.usage, one.latency_ms or 0


def objections(found: MemoryComparison) -> tuple[str, ...]:
    """Return why a comparison does not support that the second binding serves; empty: it does."""
    (here, there), both, of = found.bindings, len(found.both), len(found.questions)
    low, high = found.interval
    failed = sum(bool(one.answers[1].error) for one in found.questions)
    said = {
        f"Both answered {both:,} questions; {FEWEST} are the fewest.": both < FEWEST,
        f"{there} failed {failed:,} of {of:,} questions.": failed > of * _MOST_FAILED,
        f"{here} found more hits, by more than chance.": low > _HALF,
        f"Less than {_ALIKE:.0%} of the records are alike, and {there} is not ahead by more than "
        "chance.": high >= _HALF and (found.agreement or 0) < _ALIKE,
    }
    return tuple(sentence for sentence, holds in said.items() if holds)
