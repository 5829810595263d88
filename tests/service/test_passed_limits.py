"""What a passed spending limit refuses, to whom, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal

import pytest

from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Denied,
    Filter,
    ForgetRequest,
    MemtuiError,
    OperationStatus,
    OperationType,
    QueryRequest,
    Scope,
    Usage,
    WriteRequest,
)
from memtui.service import (
    Caller,
    ContextRequest,
    LimitAction,
    LimitMeasure,
    LimitPeriod,
    LimitTarget,
    MemoryService,
    SpendingLimit,
)
from memtui.service.spending import LimitPassed
from tests.databases import ON_BOTH
from tests.service.fake import FakeAdapter

AGENT = Caller(company_id="acme", principal="agent:coding", channel="mcp", acts_for="user:ana")
ASKED = QueryRequest(scope=Scope(company_id="acme", project_id="p"), query="deploy")
LIMIT = SpendingLimit(
    target_type=LimitTarget.AGENT,
    target_id="coding",
    measure=LimitMeasure.TOKENS,
    amount=100,
    period=LimitPeriod.DAY,
)
EACH = Usage(provider="fake", input_tokens=60, cost_usd=Decimal(0))


async def passed(
    service: MemoryService, caller: Caller, action: str, limit: SpendingLimit = LIMIT
) -> None:
    """Let the agent pass a limit with this action by two queries."""
    limit = limit.model_copy(update={"action": LimitAction(action)})
    await service.limits.set(caller, limit)
    FakeAdapter.usage = (EACH,)
    for _ in range(2):
        await service.query(AGENT, ASKED)


async def refuses(work: Awaitable[object]) -> bool:
    try:
        await work
    except LimitPassed:
        return True
    except MemtuiError:
        return False
    return False


@pytest.mark.parametrize(
    ("action", "who", "refused"),
    [
        ("warn", AGENT, ""),
        ("no-search", AGENT, "query explain profile"),
        ("read-only", AGENT, "write correct"),
        ("refuse", AGENT, "query explain profile context write correct get browse"),
        ("refuse", "for it", "query explain profile context write correct"),
        ("refuse", "another", ""),
    ],
)
async def test_an_action_refuses_its_operations(
    service: MemoryService,
    caller: Caller,
    note: WriteRequest,
    action: str,
    who: Caller | str,
    refused: str,
) -> None:
    [handle] = (await service.write(caller, note)).handles
    await passed(service, caller, action)
    asks = caller if isinstance(who, str) else who
    name = "coding" if who == "for it" else "other" if who == "another" else None
    scope = note.scope.model_copy(update={"agent_id": name})
    query = ASKED.model_copy(update={"scope": scope})
    works: dict[str, Callable[[], Awaitable[object]]] = {
        "query": lambda: service.query(asks, query),
        "explain": lambda: service.explain(asks, query),
        "profile": lambda: service.profile(asks, scope),
        "context": lambda: service.context(asks, ContextRequest(scope=scope)),
        "write": lambda: service.write(asks, note.model_copy(update={"scope": scope})),
        "correct": lambda: service.correct(
            asks, CorrectRequest(scope=scope, handle=handle, text="Now this")
        ),
        "get": lambda: service.get(asks, handle, scope),
        "browse": lambda: service.browse(asks, BrowseRequest(scope=scope)),
        "forget": lambda: service.forget(asks, ForgetRequest(scope=scope, handles=(handle,))),
        "undo": lambda: service.undo(asks),
    }
    assert [one for one, work in works.items() if await refuses(work())] == refused.split()
    log = await service.log.page(caller, Filter(status=OperationStatus.DENIED))
    assert len(log.operations) == len(refused.split())
    assert all(
        "has passed its spending limit of a day" in str(one.error_message) for one in log.operations
    )


@pytest.mark.parametrize(
    ("target", "name"), [("company", ""), ("project", "p"), ("binding", "default")]
)
async def test_each_target_is_refused_for_what_is_its_own(
    service: MemoryService, caller: Caller, target: str, name: str
) -> None:
    other = LIMIT.model_copy(update={"target_type": LimitTarget(target), "target_id": name})
    await passed(service, caller, "refuse", other)
    with pytest.raises(LimitPassed) as refused:
        await service.query(caller, ASKED)
    said = f"The {f'{target} {name}'.strip()} has passed its spending limit of a day, so nothing is"
    assert str(refused.value).startswith(said)
    assert "120" not in str(refused.value)  # not everybody may see what others spend
    elsewhere = ASKED.model_copy(update={"scope": Scope(company_id="acme", project_id="q")})
    assert await refuses(service.query(caller, elsewhere)) is (target != "project")


async def test_a_context_goes_without_its_search_and_says_so_once_a_run(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    await service.write(caller, note.model_copy(update={"content": "deploy: main", "kind": "fact"}))
    await passed(service, caller, "no-search")
    FakeAdapter.calls.clear()
    scope = Scope(company_id="acme", project_id="p", run_id="r1")
    request = ContextRequest(scope=scope, prompt="How to deploy?", delivered=True, skip_given=True)
    first = await service.context(AGENT, request)
    assert "query" not in FakeAdapter.calls
    assert "deploy: main" in first.text
    assert "nothing is searched or embedded for it until" in first.text
    assert (await service.context(AGENT, request)).text == ""
    newest = await service.log.get(caller, first.operation_id)
    assert "has passed its spending limit" in newest.request["no_search"]


async def test_a_limit_is_overrun_by_what_is_under_way_alone(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    await service.write(caller, note)
    await passed(service, caller, "warn")
    await service.limits.set(caller, LIMIT.model_copy(update={
        "action": LimitAction.NO_SEARCH, "amount": 500,
    }))  # fmt: skip
    turn = asyncio.Semaphore(3)

    async def ask() -> bool:
        async with turn:
            return await refuses(service.query(AGENT, ASKED))

    refused = await asyncio.gather(*(ask() for _ in range(20)))
    done = refused.count(False)
    # 120 tokens were spent before; beyond 500 at most three at a time go on.
    assert 7 <= done <= 7 + 2


async def test_an_agent_stays_under_its_limit_whatever_agent_it_names(
    service: MemoryService, caller: Caller
) -> None:
    await service.limits.set(caller, LIMIT.model_copy(update={"action": LimitAction.REFUSE}))
    FakeAdapter.usage = (EACH,)
    for name in ("other", "another"):
        scope = ASKED.scope.model_copy(update={"agent_id": name})
        await service.query(AGENT, ASKED.model_copy(update={"scope": scope}))
    scope = ASKED.scope.model_copy(update={"agent_id": "third"})
    with pytest.raises(LimitPassed, match="The agent coding has passed"):
        await service.query(AGENT, ASKED.model_copy(update={"scope": scope}))


async def test_an_agent_changes_no_limit_that_refuses(
    service: MemoryService, caller: Caller
) -> None:
    await service.limits.set(AGENT, LIMIT)
    await service.limits.set(AGENT, LIMIT.model_copy(update={"amount": 200}))
    acting = LIMIT.model_copy(update={"action": LimitAction.REFUSE})
    with pytest.raises(Denied, match="let a person do it"):
        await service.limits.set(AGENT, acting)
    await service.limits.set(caller, acting)
    with pytest.raises(Denied, match="let a person do it"):
        await service.limits.set(AGENT, LIMIT)
    with pytest.raises(Denied, match="let a person do it"):
        await service.limits.remove(AGENT, LimitTarget.AGENT, "coding")
    with pytest.raises(Denied, match="let a person do it"):
        await service.undo(AGENT)
    kept = await service.limits.set(caller, LIMIT, keeps_action=True)
    assert kept.action is LimitAction.REFUSE
    await service.undo(caller)
    await service.undo(caller)
    assert [one.action for one in await service.limits.all(caller)] == [LimitAction.WARN]


@ON_BOTH
async def test_a_raised_limit_opens_again(service: MemoryService, caller: Caller) -> None:
    await passed(service, caller, "refuse")
    assert await refuses(service.query(AGENT, ASKED))
    await service.limits.set(caller, LIMIT.model_copy(update={"amount": 120}), keeps_action=True)
    assert not await refuses(service.query(AGENT, ASKED))
    assert await refuses(service.query(AGENT, ASKED))
    chosen = Filter(status=OperationStatus.DENIED, operation_type=OperationType.QUERY)
    assert (await service.log.page(caller, chosen)).total == 2
