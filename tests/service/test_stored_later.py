"""A write whose provider stores later stays open, and ends with the records that came of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from memtui.config import Paths, Settings
from memtui.contract import (
    BindingContext,
    Conflict,
    CorrectRequest,
    Filter,
    Invalid,
    NotFound,
    OperationStatus,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteReply,
    WriteRequest,
)
from memtui.service import (
    Caller,
    MemoryService,
    Operation,
    ReviewRule,
    RuleAction,
    RuleTest,
    open_service,
)
from memtui.service.home.survey import PurgeRequest
from tests.databases import ON_BOTH
from tests.service.later import LaterAdapter

RUN = Scope(company_id="local", project_id="web", run_id="run-1")
WEB = Scope(company_id="local", project_id="web")
SAID = WriteRequest(
    scope=RUN,
    source=SourceRef(kind=SourceKind.RUN, company_id="local", run_id="run-1"),
    content="We deploy from release. Nobody deploys on Fridays.",
    binding_key="later",
)


class Clock:
    """A clock that a test sets forward."""

    now = datetime(2026, 3, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def later() -> Iterator[type[LaterAdapter]]:
    LaterAdapter.reset()
    yield LaterAdapter
    LaterAdapter.reset()


@pytest.fixture
def caller() -> Caller:
    return Caller(company_id="local", principal="user:ana", channel="test")


async def start(paths: Paths, settings: Settings, clock: Clock) -> MemoryService:
    return await open_service(paths, settings, clock=clock, providers={"later": LaterAdapter})


@pytest.fixture
async def service(
    paths: Paths, settings: Settings, clock: Clock, caller: Caller, later: type[LaterAdapter]
) -> AsyncIterator[MemoryService]:
    opened = await start(paths, settings, clock)
    await opened.bindings.add(caller, "later", "later", {})
    yield opened
    await opened.close()


async def newest(service: MemoryService, caller: Caller) -> Operation:
    return (await service.log.page(caller, limit=1)).operations[0]


@ON_BOTH
async def test_it_ends_with_what_was_stored_and_undo_takes_all_of_it_back(
    service: MemoryService, caller: Caller, later: type[LaterAdapter], clock: Clock
) -> None:
    answer = await service.write(caller, SAID)
    assert (answer.event, answer.handles) == ("event-1", ())
    [open_one] = (await service.log.page(caller, Filter(status=OperationStatus.UNKNOWN))).operations
    assert (open_one.operation_id, open_one.request["event"]) == (answer.operation_id, "event-1")
    with pytest.raises(Invalid, match="outcome is unknown"):
        await service.undo(caller, answer.operation_id)
    assert (await service.check_outcome(caller, answer.operation_id)).happened is None

    ids = later.store("event-1")
    found = await service.check_outcome(caller, answer.operation_id)
    assert (found.happened, found.sentence) == (True, "It happened: later stored 2 records.")
    check = await newest(service, caller)
    assert check.usage[0].input_tokens == 7
    assert [one.provider_record_id for one in check.handles] == ids
    changes = await service.log.changes(caller, answer.operation_id)
    assert [one.after.text for one in changes if one.after] == [
        "We deploy from release", "Nobody deploys on Fridays",
    ]  # fmt: skip
    written = (await service.get(caller, ids[0], WEB, binding_key="later")).record.handle
    told = await service.log.provenance(caller, "later", written)
    assert told.written is not None
    assert told.written.operation_id == answer.operation_id
    [step] = (await service.runs.replay(caller, "run-1")).steps
    assert [one.text for one in step.records] == [
        "We deploy from release", "Nobody deploys on Fridays",
    ]  # fmt: skip

    undone = await service.undo(caller, answer.operation_id)
    assert undone.undoes == answer.operation_id
    assert later.last.held == {}
    with pytest.raises(Conflict, match="already undone"):
        await service.undo(caller, answer.operation_id)


async def test_what_was_changed_since_is_not_undone_by_mistake(
    service: MemoryService, caller: Caller, later: type[LaterAdapter]
) -> None:
    answer = await service.write(caller, SAID)
    [first, _] = later.store("event-1")
    record = (await service.get(caller, first, WEB, binding_key="later")).record
    change = CorrectRequest(
        scope=WEB, handle=record.handle, text="We deploy from main", binding_key="later"
    )
    await service.correct(caller, change)
    assert (await service.check_outcome(caller, answer.operation_id)).happened
    with pytest.raises(Conflict, match="has changed since"):
        await service.undo(caller, answer.operation_id)
    assert later.last.held[first].text == "We deploy from main"


async def test_it_is_asked_again_less_and_less_often_and_after_a_restart(
    paths: Paths, settings: Settings, caller: Caller, later: type[LaterAdapter], clock: Clock,
    service: MemoryService,
) -> None:  # fmt: skip
    answer = await service.write(caller, SAID)
    begun = clock.now
    times: list[float] = []
    for _ in range(2_000):
        clock.wait(0.5)
        before = len(later.asked)
        assert await service.ask_later(caller) == ()
        if len(later.asked) > before:
            times.append((clock.now - begun).total_seconds())
    assert 8 <= len(times) <= 10, times
    assert all(2 * one <= then for one, then in pairwise(times)), times
    hidden = await service.log.page(caller, Filter(), limit=5)
    assert {str(one.operation_type) for one in hidden.operations} == {"write", "configure"}
    assert hidden.left_out == len(times)
    await service.close()

    again = await start(paths, settings, clock)
    ids = later.store("event-1")
    assert await again.ask_later(caller) == ()
    clock.wait(2_000)
    assert await again.ask_later(caller) == (answer.operation_id,)
    asked = len(later.asked)
    clock.wait(100_000)
    assert await again.ask_later(caller) == ()
    assert len(later.asked) == asked
    assert (await newest(again, caller)).operation_type == "check"
    assert ids[0] in later.last.held
    await again.close()


@ON_BOTH
async def test_an_event_that_failed_or_was_lost_ends_with_its_reason(
    service: MemoryService, caller: Caller, later: type[LaterAdapter], clock: Clock
) -> None:
    failed = await service.write(caller, SAID)
    later.failed["event-1"] = "The model refused the text."
    found = await service.check_outcome(caller, failed.operation_id)
    assert (found.happened, found.sentence) == (
        False, "It did not happen: The model refused the text.",
    )  # fmt: skip
    with pytest.raises(Invalid, match="nothing to undo"):
        await service.undo(caller, failed.operation_id)

    lost = await service.write(caller, SAID)
    later.said.clear()
    found = await service.check_outcome(caller, lost.operation_id)
    assert (found.happened, found.sentence) == (
        None, "later no longer knows the event event-2, so what it stored is not known.",
    )  # fmt: skip
    away = await service.write(caller, SAID)
    later.fault = Unavailable("It is away.")
    with pytest.raises(Unavailable):
        await service.check_outcome(caller, away.operation_id)
    clock.wait(10)
    assert await service.ask_later(caller) == ()
    told = await service.log.found_outcome(caller, away.operation_id)
    assert told is not None
    assert told.sentence == "later could not be asked: It is away."
    later.fault = None
    clock.wait(100)
    await service.bindings.update(caller, "later", enabled=False)
    asked = len(later.asked)
    assert await service.ask_later(caller) == ()
    assert len(later.asked) == asked
    past = caller.at(clock.now)
    assert await service.ask_later(past) == ()


async def test_nothing_may_come_of_a_text(
    service: MemoryService, caller: Caller, later: type[LaterAdapter]
) -> None:
    answer = await service.write(caller, SAID)
    later.said.clear()
    later.ended["event-1"] = WriteReply()
    found = await service.check_outcome(caller, answer.operation_id)
    assert (found.happened, found.sentence) == (True, "It happened: later stored nothing of it.")
    with pytest.raises(Invalid, match="nothing to undo"):
        await service.undo(caller, answer.operation_id)
    with pytest.raises(NotFound):
        await service.get(caller, "event-1-0", WEB, binding_key="later")


async def test_an_accepted_write_leaves_the_queue_once_it_is_stored(
    service: MemoryService, caller: Caller, later: type[LaterAdapter]
) -> None:
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.DOOR, value="mcp")
    await service.review.add_rule(caller, "later", rule)
    agent = Caller(company_id="local", principal="agent:coder", channel="mcp")
    held = (await service.write(agent, SAID)).pending
    assert held is not None
    await service.review.accept(caller, held.pending_id)
    [accepted] = (await service.log.page(caller, Filter(status=OperationStatus.UNKNOWN))).operations
    later.store("event-1")
    assert (await service.check_outcome(caller, accepted.operation_id)).happened
    assert await service.review.waiting(caller) == []
    await service.undo(caller, accepted.operation_id)
    assert later.last.held == {}
    assert [one.pending_id for one in await service.review.waiting(caller)] == [held.pending_id]


async def test_a_binding_that_cannot_be_opened_is_asked_less_and_less_often(
    service: MemoryService, caller: Caller, later: type[LaterAdapter], clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    answer = await service.write(caller, SAID)
    for enabled in (False, True):  # it is opened again
        await service.bindings.update(caller, "later", enabled=enabled)

    async def fails(_context: BindingContext) -> LaterAdapter:
        raise Invalid("There is no secret MEM0_API_KEY.")

    monkeypatch.setattr(later, "open", fails)
    for _ in range(100):
        clock.wait(2)
        await service.ask_later(caller)
    page = await service.log.page(caller, Filter())
    assert {str(one.operation_type) for one in page.operations} == {"write", "configure"}
    assert 5 <= page.left_out <= 8
    told = await service.log.found_outcome(caller, answer.operation_id)
    assert told is not None
    assert (told.happened, told.sentence) == (
        None, "later could not be asked: There is no secret MEM0_API_KEY.",
    )  # fmt: skip


async def test_a_look_at_the_log_does_not_wait_for_each_write_in_turn(
    service: MemoryService, caller: Caller, later: type[LaterAdapter], clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("memtui.service.operations.undo._LOOK_SECONDS", 0.05)
    for _ in range(3):
        answer = await service.write(caller, SAID)
    clock.wait(3)
    later.delay = 60
    assert await service.ask_later(caller) == ()
    assert later.calls.count("ingested") == 1
    told = await service.log.found_outcome(caller, answer.operation_id)
    assert told is not None
    assert told.sentence == "later could not be asked: It did not answer within 0.05 s."


@ON_BOTH
async def test_of_two_checks_at_once_the_first_finding_stands(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller,
    later: type[LaterAdapter], clock: Clock, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    answer = await service.write(caller, SAID)
    other = await start(paths, settings, clock)
    asking, go_on = asyncio.Event(), asyncio.Event()
    plain = later.ingested

    async def fails_late(adapter: LaterAdapter, event: str, scope: Scope) -> WriteReply | None:
        monkeypatch.setattr(later, "ingested", plain)
        asking.set()
        await go_on.wait()
        raise Invalid("The model refused the text.")

    monkeypatch.setattr(later, "ingested", fails_late)
    slow = asyncio.create_task(service.check_outcome(caller, answer.operation_id))
    await asking.wait()
    ids = later.store("event-1")
    found = await other.check_outcome(caller, answer.operation_id)
    go_on.set()
    await slow
    assert await service.log.found_outcome(caller, answer.operation_id) == found
    changes = await service.log.changes(caller, answer.operation_id)
    assert [one.after.handle.provider_record_id for one in changes if one.after] == ids
    await other.close()


async def test_the_past_does_not_know_what_came_of_it_later(
    service: MemoryService, caller: Caller, later: type[LaterAdapter], clock: Clock
) -> None:
    answer = await service.write(caller, SAID)
    clock.wait(10)
    past = caller.at(clock.now)
    later.store("event-1")
    assert await service.ask_later(caller) == (answer.operation_id,)
    assert await service.log.changes(past, answer.operation_id) == ()
    assert len(await service.log.changes(caller.at(clock.now), answer.operation_id)) == 2


async def test_a_purge_names_the_writes_that_are_not_stored_yet(
    service: MemoryService, caller: Caller, later: type[LaterAdapter]
) -> None:
    bob = Scope(company_id="local", subject_id="bob")
    answer = await service.write(caller, SAID.model_copy(update={"scope": bob}))
    request = PurgeRequest(subject_id="bob", forget=True)
    told = (
        f"later may still store what operation {answer.operation_id} gave it: once "
        f"`memtui ops check {answer.operation_id}` says that it has ended, purge again."
    )
    assert told in (await service.purging.plan(caller, request)).beyond
    assert told in (await service.purging.apply(caller, request)).beyond
    later.store("event-1")
    assert (await service.check_outcome(caller, answer.operation_id)).happened
    done = await service.purging.apply(caller, request)
    assert told not in done.beyond
    assert done.forgotten == 2
    assert later.last.held == {}
