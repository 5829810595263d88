"""Ask a second binding for a time what a first one is asked, and deliver none of its answers.

Nothing more happens when somebody asks: the question stands in the log, and is asked of the shadow
afterwards (purpose `shadow`). What the binding answered is what the log says, but for the prompt of
a context, of which both are asked.
"""

from __future__ import annotations

from asyncio import to_thread
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from decimal import Decimal
from functools import partial
from hashlib import sha256
from itertools import takewhile
from operator import attrgetter

from filelock import FileLock, Timeout

from memtui.analytics.company_log import CompanyLog
from memtui.contract import (
    Filter,
    MemtuiError,
    Model,
    OperationStatus,
    OperationType,
    RecordHandle,
    Scope,
    Unavailable,
    Usage,
)
from memtui.service.answers import Shadow
from memtui.service.context.impact import LoggedReads, NotTried
from memtui.service.history.asked import Given, scope_outside
from memtui.service.history.runs import There
from memtui.service.memory import MemoryService
from memtui.service.recorder import FanOut
from memtui.service.usecases.comparing import (
    Answered,
    AskedQuestion,
    ComparedQuestion,
    MemoryComparison,
    compared,
    comparison_of,
    leaving,
    question_of,
    shadow_of,
)
from memtui.service.visibility import Caller
from memtui.store.limits import SHADOW, last_seq
from memtui.store.operation import Operation, Place

FEWEST = 30
"""Fewest questions answered by both that can support a cut-over."""
_ALIKE, _MOST_FAILED, _HALF = 0.8, 0.05, 0.5
_FAILURES = 3
"""After so many failures one after the other a shadow is left alone until the next time."""
_MOST_REPORTED = 500


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

    def because(self, why: str) -> ShadowState:
        """Return the state with why it is asked no more."""
        return self.model_copy(update={"why_not": why})

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


async def shadow_states(service: MemoryService, caller: Caller) -> list[ShadowState]:
    """Return what each shadow of the company was asked, also those that have ended."""
    found, now = [], service.runtime.clock()
    for shadow in [one for view in await service.bindings.all(caller) for one in view.shadows]:
        own = await to_thread(_own, service.runtime.log(caller.company_id), shadow)
        state = _state(shadow, own)
        if not shadow.lasts(now):
            why = "its time is over" if shadow.until else "there is only the yes"
            state = state.because(why)
        found.append(state)
    return found


def _state(shadow: Shadow, own: Iterable[Operation]) -> ShadowState:
    """Return how much a shadow was asked, by what `_own` returned."""
    state = ShadowState(shadow=shadow)
    for one in own:
        state = state.after(one.usage)
    return state


def _own(log: CompanyLog, shadow: Shadow) -> list[Operation]:
    """Return what a shadow was asked in its time, and what was asked beside it. Blocking."""
    kind, until = OperationType.QUERY, shadow.until
    chosen = Filter(binding_key=shadow.shadow_key, operation_type=kind, internal=True, until=until)
    each = log.each(chosen, after=shadow.since_seq) if until else ()
    found = [one for one in each if one.request.get("purpose") == SHADOW]
    # It may be the shadow of several bindings.
    asked = log.by_ids([str(one.request.get("together")) for one in found], strict=False)
    here = {one.operation_id for one in asked if one.binding_key == shadow.binding_key}
    found = [one for one in found if one.request.get("together") in here]
    return [*found, *log.by_ids([one.part_of for one in found if one.part_of], strict=False)]


async def ask_shadows(
    service: MemoryService, caller: Caller, seen: dict[tuple[str, str], int]
) -> list[ShadowState]:
    """Ask each shadow the questions that wait for it, of those that the caller sees in the log.

    Args:
        service: The open service.
        caller: Who asks, with its rights.
        seen: By pair of bindings the number of the last operation looked at; it is updated. Where
            the log has no newer one, nothing is read and the answer is empty.
    """
    head = await service.runtime.ask(last_seq, caller.company_id)
    if set(seen.values()) == {head}:
        return []
    states = await shadow_states(service, caller)
    if not service.records or service.read_only or caller.as_of is not None:
        return [one.because("memtui runs read-only here, or in the past") for one in states]
    for place, state in enumerate(states):
        if not state.why_not:
            pair = state.shadow.binding_key, state.shadow.shadow_key
            try:
                states[place] = await _ask_shadow(service, caller, state, seen.get(pair, 0))
            except MemtuiError as error:
                states[place] = state.because(str(error))
            if not states[place].why_not:
                seen[pair] = head
    return states


async def _ask_shadow(
    service: MemoryService, caller: Caller, state: ShadowState, after: int
) -> ShadowState:
    """Ask one question after the other, as far as the terms and the shadow's health allow."""
    shadow = state.shadow
    busy = state.because("another process asks it now")
    other, pair = shadow.shadow_key, (shadow.binding_key, shadow.shadow_key)
    limit, failures, asked = service.settings.all_bindings_timeout_ms, 0, 0
    by = caller.model_copy(update={"purpose": SHADOW, "run_id": None})
    lock = FileLock(service.paths.data / "shadow.lock", 0, mode=0o600, thread_local=False)
    elsewhere = service.runtime.database.claim(f"shadows of {caller.company_id}")
    try:
        with lock, ExitStack() as held:
            if not await to_thread(held.enter_context, elsewhere):
                return busy
            own = await to_thread(_own, service.runtime.log(caller.company_id), shadow)
            due = await to_thread(
                lambda: list(_due(service.runtime.log_of(caller), shadow, after, own))
            )
            state = await _looked_at(service, caller, _state(shadow, own))
            for request, [one] in due:
                keys = pair if one.operation_type is OperationType.CONTEXT else (other,)
                if state.why_not or state.calls + len(keys) > shadow.most_calls:
                    continue
                fan_out, failures = FanOut(one.operation_id, limit, seen_only=True), failures + 1
                for key in keys:
                    routed = request.model_copy(update={"binding_key": key})
                    usage: Sequence[Usage] = ()
                    with suppress(MemtuiError):  # its operation says why
                        usage = (await service.query(by, routed, fan_out=fan_out)).usage
                        failures = 0 if key == other else failures
                    state = state.after(usage)
                asked += 1
                if failures == _FAILURES:
                    state = state.because(f"{other} failed {_FAILURES} times, one after the other")
                state = await _looked_at(service, caller, state)
            return state.model_copy(update={"waiting": len(due) - asked})
    except Timeout:
        return busy


async def _looked_at(service: MemoryService, caller: Caller, state: ShadowState) -> ShadowState:
    """Return the state with why it is asked no more, by its terms and address of this moment."""
    if state.why_not:
        return state
    shadow = state.shadow
    pair = shadow.binding_key, shadow.shadow_key
    if await shadow_of(service, caller, pair) != shadow:
        return state.because("its terms were changed")
    if not shadow.lasts(service.runtime.clock()):
        return state.because("its time is over")
    if not shadow.covers(leaves := await leaving(service, caller, pair)):
        return state.because(
            f"Nobody agreed that questions go to {' and '.join(leaves)}; `memtui compare shadow "
            f"start {' '.join(pair)}` asks for a yes."
        )
    return state


def _due(
    log: CompanyLog, shadow: Shadow, after: int, own: Iterable[Operation]
) -> Iterator[AskedQuestion]:
    """Yield the questions that wait for a shadow, the oldest first. Blocking."""
    after, done = max(after, shadow.since_seq), {one.request.get("together") for one in own}
    asked = Filter(binding_key=shadow.binding_key, project_id=shadow.project_id)
    fresh = takewhile(lambda one: one.seq > after, LoggedReads(log).read(asked))
    for one in sorted(fresh, key=attrgetter("seq")):
        drawn = int(sha256(one.operation_id.encode()).hexdigest()[:8], 16) < shadow.share * 16**8
        # Of several bindings that are asked together, the shadow may be one.
        if drawn and one.operation_id not in done and "together" not in one.request:
            with suppress(NotTried):
                if (request := question_of(one, Given(log))) is not None:
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
            if (request := await to_thread(question_of, one, given)) is not None:
                answer = partial(_logged, side, there, side[pair[0]].started_at)
                questions.append(await compared(service, by, pair, (request, [one]), answer))
    left_out = len(answers) - len(found) + len(newest) - len(questions)
    return comparison_of(pair, questions, left_out)


def _handles(one: Operation) -> list[RecordHandle]:
    """Return the records of an answer, best first, without erased ones."""
    ids = one.request.get("record_ids") or [own.provider_record_id for own in one.handles]
    provider = one.provider_key or ""
    return [RecordHandle(provider_key=provider, provider_record_id=name) for name in ids if name]


async def _logged(
    side: Mapping[str, Operation], there: Mapping[Place, There], at: datetime, key: str
) -> Answered:
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
        f"Both answered {both:,} questions; a cut-over takes at least {FEWEST}.": both < FEWEST,
        f"{there} failed {failed:,} of {of:,} questions.": failed > of * _MOST_FAILED,
        f"{here} found more hits, by more than chance.": low > _HALF,
        f"Less than {_ALIKE:.0%} of the records are alike, and {there} is not ahead by more than "
        "chance.": high >= _HALF and (found.agreement or 0) < _ALIKE,
    }
    return tuple(sentence for sentence, holds in said.items() if holds)
