"""Compare two memories by the log's own questions: each is asked of two bindings.

Records are matched by their text, word for word or nearly, as each memory has ids of its own. The
questions are logged as memtui's own reads with the purpose `compare`.
"""

from __future__ import annotations

from asyncio import gather, to_thread
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import groupby, islice
from math import comb
from operator import itemgetter
from typing import Any, NamedTuple

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
    QueryRequest,
    Record,
    Scope,
    Usage,
)
from memtui.passages import Phrase, phrases_of, repeated
from memtui.pruning.duplicates import DuplicateIndex, TextForm, compare, form_of
from memtui.service.answers import Shadow
from memtui.service.context.impact import AnsweredRecord, LoggedReads, NotTried, ask_again
from memtui.service.history.asked import Given
from memtui.service.memory import MemoryService
from memtui.service.recorder import FanOut
from memtui.service.runtime import find_binding
from memtui.service.usecases.checking import refuse_failures
from memtui.service.visibility import Caller, without_prefix
from memtui.store.limits import last_seq
from memtui.store.operation import Operation, Place
from memtui.text_analysis import words_in_order
from memtui.wording import misfit

_AT_ONCE = 4
_MOST_WRITES = 1_000
_TAIL = 0.025
"""Of each side of an interval that holds the true share in 95 of 100 cases."""
_OWN = {"purpose": "compare", "run_id": None}
"""How the caller of these questions differs."""


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


AskedQuestion = tuple[QueryRequest, list[Operation]]
"""A question, and the operations that asked it, the newest first."""
Answered = tuple[Sequence[Record], tuple[Usage, ...], float]
"""The records of an answer, best first, its usage, and its latency in milliseconds."""


class ComparisonPlan(NamedTuple):
    """Questions to ask two bindings, before anything is sent."""

    bindings: tuple[str, str]
    asked: Sequence[AskedQuestion]
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
    agreed = await _agreed(service, caller, bindings, leave)
    return ComparisonPlan(bindings, asked, left_out, leave, agreed)


async def _agreed(
    service: MemoryService, caller: Caller, bindings: tuple[str, str], leave: Sequence[str]
) -> bool:
    """Whether somebody said yes to asking both what may leave the machine."""
    yes = [await shadow_of(service, caller, keys) for keys in (bindings, bindings[::-1])]
    return any(one.project_id is None and one.covers(leave) for one in yes)


def _questions(log: CompanyLog, last: int) -> tuple[list[AskedQuestion], int]:
    """Return the newest questions, each once, and how many cannot be asked again. Blocking."""
    found: dict[str, AskedQuestion] = {}
    left_out, given = 0, Given(log)
    for one in islice(LoggedReads(log).read(Filter()), last):
        try:
            request = question_of(one, given)
        except NotTried:
            left_out += 1
            continue
        if request is not None:
            found.setdefault(request.model_dump_json(), (request, []))[1].append(one)
    return list(found.values()), left_out


def question_of(one: Operation, given: Given) -> QueryRequest | None:
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
        agreed: The caller, a person, says yes to what the plan says may leave the machine; that is
            stored for the pair where the caller may change settings, and not asked again.
        progress: Receives how many questions are done.

    Raises:
        Denied: no person said yes.
    """
    if not plan.agreed:
        if not caller.by_person:
            raise Denied("An agent lets no questions leave; let a person say yes.")
        if not agreed:
            raise Denied(f"Nobody agreed that questions go to {' and '.join(plan.leave)}.")
        known, now = await shadow_of(service, caller, plan.bindings), service.runtime.clock()
        if known.project_id is None and not known.lasts(now):  # that had a yes of its own
            with suppress(Denied):  # that of a member who may not change settings is for this time
                await agree(service, caller, plan.bindings, plan.leave)
    by, found = caller.model_copy(update=_OWN), list[ComparedQuestion]()
    for start in range(0, len(plan.asked), _AT_ONCE):
        progress(start)
        leave = await leaving(service, caller, plan.bindings)
        still = await _agreed(service, caller, plan.bindings, leave) if plan.agreed else agreed
        if not still or not set(leave) <= set(plan.leave):
            raise Denied(f"Nobody agreed that questions go to {' and '.join(leave)}.")
        some = plan.asked[start : start + _AT_ONCE]
        found += await gather(*(_ask_both(service, by, plan.bindings, one) for one in some))
    return comparison_of(plan.bindings, found, plan.left_out)


def comparison_of(
    bindings: tuple[str, str], questions: list[ComparedQuestion], left_out: int
) -> MemoryComparison:
    """Return a comparison of questions, the least alike first, then the newest."""
    questions.sort(key=lambda one: (one.agreement is None, one.agreement, -one.seq))
    return MemoryComparison(bindings=bindings, questions=tuple(questions), left_out=left_out)


async def _ask_both(
    service: MemoryService, by: Caller, bindings: tuple[str, str], asked: AskedQuestion
) -> ComparedQuestion:
    limit = service.settings.all_bindings_timeout_ms
    fan_out = FanOut(service.runtime.new_id(), limit, seen_only=True)

    async def ask(key: str) -> Answered:
        own = asked[0].model_copy(update={"binding_key": key})
        found = await service.query(by, own, fan_out=fan_out)
        refuse_failures(found.problems)
        return found.snippets, found.usage, found.latency_ms

    return await compared(service, by, bindings, asked, ask)


async def compared(
    service: MemoryService,
    by: Caller,
    bindings: tuple[str, str],
    asked: AskedQuestion,
    ask: Callable[[str], Awaitable[Answered]],
) -> ComparedQuestion:
    """Compare the answers that `ask` returns by binding; it raises where there is none."""
    (request, operations), index = asked, DuplicateIndex()
    log = await to_thread(service.runtime.log_of, by)
    for key, record_id in await to_thread(_helped, log, operations):
        with suppress(MemtuiError):  # what is gone or hidden can be found by neither
            got = await service.get(by, record_id, request.scope, binding_key=key)
            index.add(_form(got.record.text))
    written, phrases = DuplicateIndex(), set[Phrase]()
    for text in await _written(service, by, log, operations):
        written.add(_form(text))
        phrases |= phrases_of(words_in_order(text))
    count = TokenCounter(service.settings.context_model).tokens

    def weighed(key: str, found: Answered) -> ComparedAnswer:
        records, usage, latency_ms = found
        texts = [one.text for one in records]
        asked_at = operations[-1].started_at
        used = (  # and did not come of the question itself
            rank
            for rank, one in enumerate(records, 1)
            if repeated(words_in_order(without_prefix(one.text)), phrases)
            and not ((one.created_at or asked_at) > asked_at and written.find(_form(one.text)))
        )
        return ComparedAnswer(
            records=tuple(
                AnsweredRecord(rank=rank, handle=one.handle, binding_key=key, text=one.text)
                for rank, one in enumerate(records, 1)
            ),
            helped=tuple(n for n, text in enumerate(texts, 1) if index.find(_form(text))),
            used=tuple(used),
            tokens=sum(map(count, texts)), usage=usage, latency_ms=latency_ms,
        )  # fmt: skip

    async def answer(key: str) -> ComparedAnswer:
        try:
            return await to_thread(weighed, key, await ask(key))
        except MemtuiError as error:
            return ComparedAnswer(error=str(error))

    # One after the other, so that neither slows the other down.
    first, second = [await answer(key) for key in bindings]
    same = await to_thread(_same, first, second)
    # Several bindings that were asked together were asked once.
    times = len({one.request.get("together", one.operation_id) for one in operations})
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


async def _written(
    service: MemoryService, by: Caller, log: CompanyLog, operations: Sequence[Operation]
) -> list[str]:
    """Return the visible texts that runs wrote after a question of theirs."""
    visibility, texts = await to_thread(service.runtime.visibility, by), list[str]()
    for own in operations:
        if run := own.scope.run_id:
            for made in await to_thread(log.writes, [run], [], own.seq, _MOST_WRITES):
                if visibility is None or visibility.sees(made):
                    # The log withholds what is the whole company's.
                    said = made.request.get("content")
                    after = [] if said else await service.log.changes(by, made.operation_id)
                    texts += [said] if said else [one.after.text for one in after if one.after]
    return texts


def _helped(log: CompanyLog, operations: Sequence[Operation]) -> list[Place]:
    """Return the records of some answers that helped more often than not. Blocking."""
    asked, balance = {own.operation_id for own in operations}, Counter[Place]()
    places = {own.place_of(handle) for own in operations for handle in own.handles}
    for key, own in groupby(sorted(places), itemgetter(0)):
        for word in log.words(key, [record_id for _, record_id in own]):
            if word.judged in asked:
                balance[key, word.record_id] += 1 if word.helped else -1
    return [place for place, more in balance.items() if more > 0]


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
