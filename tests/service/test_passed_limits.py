"""What a passed spending limit refuses, to whom, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from functools import partial

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
    WriteMode,
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
    ReviewRule,
    RuleAction,
    RuleTest,
    SpendingLimit,
)
from memtui.service.spending import LimitPassed
from memtui.store import limits as table
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


PROJECT = LIMIT.model_copy(update={"target_type": LimitTarget.PROJECT, "target_id": "p"})


@pytest.mark.parametrize("limit", [LIMIT, PROJECT], ids=["agent", "project"])
@pytest.mark.parametrize("action", ["warn", "no-search", "read-only", "refuse"])
async def test_a_wider_scope_goes_round_no_limit_of_a_records_owner(
    service: MemoryService, caller: Caller, note: WriteRequest, action: str, limit: SpendingLimit
) -> None:
    owner = Scope(company_id="acme", project_id="p", agent_id="coding")
    own = note.model_copy(update={"scope": owner, "record_id": "own"})
    [handle] = (await service.write(caller, own)).handles
    await passed(service, caller, action, limit)
    company = Scope(company_id="acme")
    over = {"scope": company, "mode": WriteMode.UPSERT, "content": "Over it"}
    FakeAdapter.calls.clear()
    works = [
        service.correct(caller, CorrectRequest(scope=company, handle=handle, text="Now this")),
        service.write(caller, own.model_copy(update=over)),
    ]
    is_refused = action in {"read-only", "refuse"}
    assert [await refuses(work) for work in works] == [is_refused, is_refused]
    assert ("write" in FakeAdapter.calls or "correct" in FakeAdapter.calls) is not is_refused
    assert not await refuses(
        service.forget(caller, ForgetRequest(scope=company, handles=(handle,)))
    )
    assert not await refuses(service.undo(caller))


@pytest.mark.parametrize("action", ["warn", "no-search"])
async def test_a_held_write_is_not_compared_and_says_so(
    service: MemoryService, caller: Caller, note: WriteRequest, action: str
) -> None:
    await service.bindings.update(caller, "default", config={"similar": True})
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.CONTRADICTION)
    await service.review.add_rule(caller, "default", rule)
    await passed(service, caller, action)
    searches = FakeAdapter.calls.count("query")
    told = await service.write(AGENT, note.model_copy(update={"content": "Cats sleep at noon"}))
    own = await service.log.get(caller, told.operation_id)
    if action == "warn":
        assert told.pending is None
        assert own.usage == (*(EACH,) * (FakeAdapter.calls.count("query") - searches), EACH)
        return
    assert FakeAdapter.calls.count("query") == searches
    assert told.pending is not None
    assert told.pending.reasons == ("not compared",)
    assert (await service.review.show(caller, told.pending.pending_id)).reasons == ("not compared",)


async def test_a_look_at_a_held_write_does_not_search_past_a_limit(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    await service.bindings.update(caller, "default", config={"similar": True})
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    await service.review.add_rule(caller, "default", rule)
    asked = await service.write(AGENT, note)
    assert asked.pending is not None
    seen = await service.review.show(caller, asked.pending.pending_id)
    assert seen.reasons == ("hold all",)
    await passed(service, caller, "refuse", PROJECT)
    FakeAdapter.calls.clear()
    seen = await service.review.show(caller, asked.pending.pending_id)
    assert "query" not in FakeAdapter.calls
    assert seen.reasons == ("hold all", "not compared")


@pytest.mark.parametrize(("whose", "sums"), [("none", 0), ("another's", 0), ("own", 1)])
async def test_the_limits_are_read_once_and_the_sums_where_a_limit_acts(
    service: MemoryService,
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
    whose: str,
    sums: int,
) -> None:
    action = LimitAction.WARN if whose == "none" else LimitAction.REFUSE
    await service.limits.set(caller, LIMIT.model_copy(update={"action": action}))
    reads: list[str] = []

    def noted(name: str, read: Callable[..., object], *asked: object) -> object:
        reads.append(name)
        return read(*asked)

    for name in ("spending_limits", "spent"):
        monkeypatch.setattr(table, name, partial(noted, name, getattr(table, name)))
    await service.query(caller if whose == "another's" else AGENT, ASKED)
    assert reads == ["spending_limits"] + ["spent"] * sums


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
    page = await service.log.page(caller, Filter(operation_type=OperationType.CONFIGURE))
    assert page.operations[0].request["set_spending_limit"]["action"] == "refuse"
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
