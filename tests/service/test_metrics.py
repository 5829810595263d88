"""The metrics of seed 004 §8 over a history whose every figure is known."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memtui.config import Paths, load_settings
from memtui.contract import (
    ForgetRequest,
    Invalid,
    RecordHandle,
    Scope,
    SourceRef,
    Usage,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, open_service
from memtui.service.context.contexts import ContextRequest
from memtui.service.context.prompts import prompt_size
from memtui.service.history.metrics import FactMetrics
from memtui.store.log import OperationStore
from memtui.store.operation import OperationDraft
from tests.analytics.logs import HOSTILE, append
from tests.databases import ON_BOTH

USER = Caller(company_id="local", principal="user:ana", channel="test")
AGENT = Caller(company_id="local", principal="agent:coding", channel="test")
SOURCE = SourceRef(kind="manual_note", company_id="local")
START = datetime(2026, 5, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
ANA, BEN = (Scope(company_id="local", subject_id=name) for name in ("ana", "ben"))
APOLLO, ZEUS = (Scope(company_id="local", project_id=name) for name in ("apollo", "zeus"))


class Clock:
    now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def service(paths: Paths, database_url: str, clock: Clock) -> AsyncIterator[MemoryService]:
    settings = load_settings(paths, database_url=database_url)
    opened = await open_service(paths, settings, clock=clock)
    yield opened
    await opened.close()


async def save(
    service: MemoryService, text: str, scope: Scope, caller: Caller = USER, **fields: Any
) -> RecordHandle:
    given = {"scope": scope, "source": SOURCE, "content": text, "kind": "fact"}
    return (await service.write(caller, WriteRequest.model_validate(given | fields))).handles[0]


async def forget(
    service: MemoryService, handle: RecordHandle, scope: Scope, caller: Caller = USER
) -> str:
    answer = await service.forget(caller, ForgetRequest(scope=scope, handles=(handle,)))
    return answer.operation_id


async def measured(service: MemoryService, clock: Clock, **window: Any) -> FactMetrics:
    clock.now += timedelta(seconds=1)
    return await service.metrics.facts(USER, **window)


async def test_nothing_happened(service: MemoryService, clock: Clock) -> None:
    found = await measured(service, clock)
    assert (found.active_users, found.adoption, found.share_deleted_by_hand) == (0, None, None)
    assert (found.contexts, found.average_context_tokens, found.max_share_of_prompt) == (
        0, None, None,
    )  # fmt: skip
    assert (found.since, found.until) == (clock.now - 30 * DAY, clock.now)
    assert len(found.days) == 31
    assert not any(day.facts_added or day.contexts for day in found.days)


async def test_adoption_and_averages(service: MemoryService, clock: Clock) -> None:
    for number in range(3):
        await save(service, f"Fact {number}", ANA)
    cleo = Caller(company_id="local", principal="user:cleo", channel="test")
    await service.context(cleo, ContextRequest(scope=ZEUS))
    await service.context(AGENT, ContextRequest(scope=BEN))
    await save(service, "Uses SQLite", APOLLO)
    await save(
        service, "Ana reviews", Scope(company_id="local", subject_id="ana", project_id="apollo")
    )
    await save(service, "A note\nof two lines", ANA, kind="note")
    found = await measured(service, clock)
    assert (found.active_users, found.active_users_with_facts, found.adoption) == (2, 1, 0.5)
    assert (found.facts_of_users, found.average_facts_per_user) == (3, 3.0)
    assert (found.active_drives, found.facts_of_active_drives) == (2, 2)
    assert found.average_facts_per_active_drive == 1.0
    keeper = Caller(company_id="local", principal="user:keeper", channel="test")
    assert (await service.analysis.seal(keeper, everything=True)).segments
    clock.now += timedelta(seconds=1)
    sealed = await measured(service, clock)
    assert (sealed.active_users, sealed.adoption, sealed.active_drives) == (2, 0.5, 2)
    later = await service.metrics.facts(USER, clock.now + DAY, clock.now + 2 * DAY)
    assert (later.active_users, later.facts_of_users, later.facts_added) == (0, 3, 0)


async def test_saves_by_ai_and_by_users_each_on_its_day(
    service: MemoryService, clock: Clock
) -> None:
    first = await save(service, "One", ANA, AGENT)
    await save(service, "key: a", ANA)
    await save(service, "key: b", ANA, mode="upsert")
    clock.now += DAY
    await forget(service, first, ANA)
    await save(service, "Two", ANA, AGENT)
    found = await measured(service, clock, since=START)
    days = [
        (day.day.day, day.facts_added, day.facts_deleted, day.saves_by_ai, day.saves_by_user)
        for day in found.days
    ]
    assert days == [(1, 2, 0, 1, 1), (2, 1, 1, 1, 0)]
    assert (found.facts_saved, found.saves_by_ai, found.saves_by_user) == (3, 2, 1)
    assert (found.facts_added, found.facts_deleted, found.facts_of_users) == (3, 1, 2)


@pytest.mark.parametrize(
    ("after", "caller", "expected"),
    [(DAY, USER, 1), (6.9 * DAY, USER, 1), (7.1 * DAY, USER, 0), (DAY, AGENT, 0)],
)
async def test_what_is_deleted_by_hand_and_soon(
    service: MemoryService, clock: Clock, after: timedelta, caller: Caller, expected: int
) -> None:
    handle = await save(service, "One", ANA, AGENT)
    await save(service, "Two", ANA, AGENT)
    clock.now += after
    await forget(service, handle, ANA, caller)
    found = await measured(service, clock)
    assert found.deleted_by_hand_within_7_days == expected
    assert found.share_deleted_by_hand == expected / 2


async def test_what_came_back_was_not_deleted(service: MemoryService, clock: Clock) -> None:
    handle = await save(service, "One", ANA, AGENT)
    undone = await service.undo(USER, await forget(service, handle, ANA))
    found = await measured(service, clock)
    assert (found.deleted_by_hand_within_7_days, found.facts_of_users) == (0, 1)
    assert (found.facts_added, found.facts_deleted, found.facts_saved) == (2, 1, 1)
    await service.undo(USER, undone.operation_id)
    assert (await measured(service, clock)).deleted_by_hand_within_7_days == 1


async def test_the_same_text_saved_twice_lives_twice(service: MemoryService, clock: Clock) -> None:
    for _ in range(2):
        handle = await save(service, "One", ANA, AGENT)
        await forget(service, handle, ANA)
    await save(service, "One", ANA, AGENT)
    found = await measured(service, clock)
    assert (found.facts_saved, found.deleted_by_hand_within_7_days) == (3, 2)
    assert found.facts_of_users == 1


async def test_contexts_by_day_against_their_budget(service: MemoryService, clock: Clock) -> None:
    await save(service, "Prefers concise replies", ANA)
    small = await service.context(USER, ContextRequest(scope=ANA, delivered=True))
    clock.now += DAY
    await save(service, "Senior software engineer", ANA)
    big = await service.context(USER, ContextRequest(scope=ANA, budget=5))
    in_run = USER.model_copy(update={"run_id": "r"})
    await service.context(in_run, ContextRequest(scope=ANA, skip_given=True, delivered=True))
    found = await measured(service, clock, since=START)
    assert (found.contexts, found.contexts_delivered, found.contexts_over_budget) == (2, 1, 1)
    average = (small.tokens + big.tokens) / 2
    assert (found.average_context_tokens, found.average_context_budget) == (average, 252.5)
    assert found.most_context_tokens == big.tokens
    assert found.max_share_of_prompt == round(average) / (6_700 + round(average))
    assert [day.average_context_tokens for day in found.days] == [small.tokens, big.tokens]


@ON_BOTH
async def test_prompts_are_measured_without_loading_operations(
    service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, dict[str, Any], int]] = [
        ("context", {"imported": {"id": "a"}}, 900),
        ("context", {"imported": {"id": "b", "sidechain": True}}, 7_000),
        ("context", {"prompt_tokens": 300}, 0),
        ("context", {"prompt_tokens": "many", "text": HOSTILE}, 0),
        ("query", {}, 5_000),
    ]
    drafts = [
        OperationDraft(
            operation_id=f"op-{number}", operation_type=kind, status="ok", scope=ANA,
            principal="user:ana", channel="test", started_at=START, latency_ms=1, request=request,
            usage=[Usage(provider="llm", input_tokens=tokens - tokens // 3),
                   Usage(provider="llm", input_tokens=tokens // 3)] if tokens else [],
        )
        for number, (kind, request, tokens) in enumerate(asked)
    ]  # fmt: skip
    runtime = service.runtime
    append(runtime.database, drafts)

    def size() -> tuple[int, int]:
        with monkeypatch.context() as without:
            without.setattr(OperationStore, "by_seqs", None)
            found = prompt_size(runtime.settings, runtime.log("local"))
        return found.tokens, found.prompts

    assert size() == (600, 2)
    await service.analysis.seal(USER, everything=True)
    assert size() == (600, 2)
    more = {"operation_id": "op-9", "request": {"prompt_tokens": 400}}
    append(runtime.database, [drafts[2].model_copy(update=more)])
    assert size() == (400, 3)
    assert runtime.log("local").prompt_sizes(2) == [400, 0]


async def test_a_scope_narrows_everything(service: MemoryService, clock: Clock) -> None:
    await save(service, "One", ANA)
    await save(service, "Two", BEN)
    await service.context(USER, ContextRequest(scope=BEN))
    found = await measured(service, clock, scope=ANA)
    assert (found.active_users, found.facts_of_users, found.contexts) == (1, 1, 0)
    assert found.facts_added == 1


async def test_hostile_text_is_counted_like_any(service: MemoryService, clock: Clock) -> None:
    await save(service, 'a "b" \\u0000 \\ ü "kind":"note"', ANA, metadata={"x": "\x00", "y": "\\"})
    await save(service, '"kind":"fact"', ANA, kind="note")
    found = await measured(service, clock)
    assert (found.facts_of_users, found.active_users) == (1, 1)


async def test_a_window_that_ends_before_it_begins(service: MemoryService) -> None:
    with pytest.raises(Invalid, match="ends before it begins"):
        await service.metrics.facts(USER, START + DAY, START)


async def test_a_long_window_begins_with_the_first_day(
    service: MemoryService, clock: Clock
) -> None:
    await save(service, "One", ANA)
    clock.now += DAY
    found = await measured(service, clock, since=datetime(2000, 1, 1, tzinfo=UTC))
    assert [day.day.isoformat() for day in found.days] == ["2026-05-01", "2026-05-02"]


@pytest.mark.parametrize("contexts", [False, True])
async def test_days_of_a_long_window_begin_with_the_first_that_has_something(
    service: MemoryService, clock: Clock, contexts: bool
) -> None:
    await save(service, "Likes tea", ANA)
    clock.now += 3 * DAY
    if contexts:
        await service.context(USER, ContextRequest(scope=ANA, delivered=True))
    else:
        await save(service, "Likes coffee", ANA)
    until = datetime(2026, 5, 10, tzinfo=UTC)
    ends = until.date() - DAY
    for days, first in ((365, None), (366, None), (367, START), (10**5, START)):
        found = await measured(service, clock, since=until - days * DAY, until=until)
        begins = (until - days * DAY if first is None else first).date()
        assert (found.days[0].day, found.days[-1].day) == (begins, ends), days
        assert len(found.days) == (ends - begins).days + 1
        assert sum(one.facts_added for one in found.days) == (1 if contexts else 2)
        assert sum(one.contexts for one in found.days) == contexts
