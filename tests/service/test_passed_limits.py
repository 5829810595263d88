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
    Record,
    Scope,
    Usage,
    WriteMode,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, ReviewRule, RuleAction, RuleTest
from memtui.service.context.contexts import ContextRequest
from memtui.service.spending import (
    LimitAction,
    LimitMeasure,
    LimitPassed,
    LimitPeriod,
    LimitTarget,
    SpendingLimit,
)
from memtui.service.usecases.changing import change
from memtui.service.usecases.merging import merge
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


WIDER = {
    "company": Scope(company_id="acme"),
    "project": Scope(company_id="acme", project_id="q"),
    "agent": Scope(company_id="acme", agent_id="scout"),
    "user": Scope(company_id="acme", subject_id="ana"),
}
OTHER = Caller(company_id="acme", principal="agent:other", channel="mcp", acts_for="user:ana")


@pytest.mark.parametrize("limit", [LIMIT, PROJECT], ids=["agent", "project"])
@pytest.mark.parametrize("action", ["warn", "no-search", "read-only", "refuse"])
@pytest.mark.parametrize("asked", WIDER)
@pytest.mark.parametrize("by", [OTHER, None], ids=["agent", "person"])
async def test_no_other_scope_goes_round_a_limit_of_a_records_owner(
    service: MemoryService,
    caller: Caller,
    note: WriteRequest,
    action: str,
    limit: SpendingLimit,
    asked: str,
    by: Caller | None,
) -> None:
    owner = Scope(company_id="acme", project_id="p", agent_id="coding")
    own = note.model_copy(update={"scope": owner, "record_id": "own"})
    [handle] = (await service.write(caller, own)).handles
    await passed(service, caller, action, limit)
    scope, by = WIDER[asked], by or caller
    over = {"scope": scope, "mode": WriteMode.UPSERT, "content": "Over it"}
    FakeAdapter.calls.clear()
    works = [
        service.correct(by, CorrectRequest(scope=scope, handle=handle, text="Now this")),
        service.write(by, own.model_copy(update=over)),
    ]
    is_refused = action in {"read-only", "refuse"}
    assert [await refuses(work) for work in works] == [is_refused, is_refused]
    assert ("write" in FakeAdapter.calls or "correct" in FakeAdapter.calls) is not is_refused
    assert (await service.get(caller, handle, owner)).record.text == (
        note.content if is_refused else "Over it"
    )
    forgot = await service.forget(by, ForgetRequest(scope=scope, handles=(handle,)))
    undone = await service.undo(by, forgot.operation_id)
    assert undone.undoes == forgot.operation_id


async def test_several_changes_are_refused_where_the_limit_is_passed_alone(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    there: list[Record] = []
    for project in ("p", "q"):
        scope = Scope(company_id="acme", project_id=project)
        there += (await service.write(caller, note.model_copy(update={"scope": scope}))).records
    await passed(service, caller, "read-only", PROJECT)
    found = await change(service, caller, {"default": there}, pinned=True)
    assert [one.scope.project_id for one, _ in found.done] == ["q"]
    assert [(one.scope.project_id, type(error)) for one, error in found.failed] == [
        ("p", LimitPassed)
    ]


async def test_a_merge_past_a_limit_leaves_every_fact(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    facts: list[Record] = []
    for text, pinned in (("port: 1", False), ("gate: 1", True)):
        fact = note.model_copy(update={"content": text, "kind": "fact", "pinned": pinned})
        facts += (await service.write(caller, fact)).records
    await passed(service, caller, "read-only", PROJECT)
    with pytest.raises(LimitPassed):
        await merge(service, caller, facts[0], facts[1:], binding_key="default")
    assert len(FakeAdapter.records["acme/default"]) == len(facts)


@pytest.mark.parametrize("limit", [LIMIT, PROJECT], ids=["agent", "project"])
async def test_what_waits_is_let_in_past_no_limit(
    service: MemoryService, caller: Caller, note: WriteRequest, limit: SpendingLimit
) -> None:
    [handle] = (await service.write(caller, note)).handles
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    await service.review.add_rule(caller, "default", rule)
    company = Scope(company_id="acme")
    fix = CorrectRequest(scope=company, handle=handle, text="Now this")
    remove = ForgetRequest(scope=company, handles=(handle,))
    asked = [
        await service.write(AGENT, note.model_copy(update={"content": "Another"})),
        await service.correct(AGENT, fix),
        await service.forget(AGENT, remove),
    ]
    waiting = [one.pending.pending_id for one in asked if one.pending is not None]
    assert len(waiting) == len(asked)
    await passed(service, caller, "read-only", limit)
    again = service.correct(AGENT, fix.model_copy(update={"text": "Now that"}))
    assert await refuses(again)  # and does not wait
    assert [one.pending_id for one in await service.review.waiting(caller)] == waiting
    taken = [await refuses(service.review.accept(caller, one)) for one in waiting]
    assert taken == [True, True, False]
    left = [one.pending_id for one in await service.review.waiting(caller)]
    assert left == waiting[:2]
    await service.undo(caller)
    await service.limits.remove(caller, limit.target_type, limit.target_id)
    for one in left:
        await service.review.accept(caller, one)


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
        assert "no_search" not in own.request
        return
    assert FakeAdapter.calls.count("query") == searches
    assert told.pending is not None
    assert told.pending.reasons == ("not compared",)
    assert own.usage == ()
    assert "has passed its spending limit" in own.request["no_search"] == told.no_search
    assert (await service.review.show(caller, told.pending.pending_id)).reasons == ("not compared",)


async def test_the_search_beside_a_write_is_left_out_and_said(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    await service.bindings.update(caller, "default", config={"similar": True})
    await service.write(caller, note)
    first = await service.write(AGENT, note, tell_similar=True)
    assert (bool(first.similar), first.no_search) == (True, "")
    await passed(service, caller, "no-search")
    FakeAdapter.calls.clear()
    told = await service.write(AGENT, note, tell_similar=True)
    assert "query" not in FakeAdapter.calls
    assert told.similar == ()
    assert "so nothing is searched or embedded for it until" in told.no_search
    own = await service.log.get(caller, told.operation_id)
    assert own.request["no_search"] == told.no_search
    assert (await service.write(AGENT, note)).no_search == ""  # nothing was to be searched


async def test_the_searches_of_a_held_write_are_counted_once_each_where_they_were_made(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    await service.bindings.update(caller, "default", config={"similar": True})
    for test in (RuleTest.ALL, RuleTest.CONTRADICTION):
        rule = ReviewRule(action=RuleAction.HOLD, test=test)
        await service.review.add_rule(caller, "default", rule)
    FakeAdapter.usage = (EACH,)
    asked = await service.write(AGENT, note, tell_similar=True)
    assert asked.pending is not None
    held = (await service.log.get(caller, asked.operation_id)).usage
    assert asked.usage == held == (EACH,) * FakeAdapter.calls.count("query")
    assert len(held) > 1
    FakeAdapter.calls.clear()
    await service.review.show(caller, asked.pending.pending_id)
    chosen = Filter(operation_type=OperationType.GET)
    [look] = (await service.log.page(caller, chosen)).operations
    assert (look.principal, look.scope.agent_id) == ("user:ana", None)
    assert look.usage == (EACH,) * FakeAdapter.calls.count("query")
    FakeAdapter.calls.clear()
    done = await service.review.accept(caller, asked.pending.pending_id)
    let_in = await service.log.get(caller, done.operation_id)
    assert (let_in.usage, let_in.scope.agent_id) == ((EACH,), "coding")
    assert "query" not in FakeAdapter.calls


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
async def test_limits_are_read_where_one_acts_and_sums_where_it_concerns_the_operation(
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
    assert reads == ["spending_limits"] * (whose != "none") + ["spent"] * sums


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


async def test_a_refused_change_of_a_limit_names_no_action_that_nobody_asked_for(
    service: MemoryService, caller: Caller
) -> None:
    await service.limits.set(caller, LIMIT.model_copy(update={"action": LimitAction.REFUSE}))
    higher = LIMIT.model_copy(update={"amount": 900})
    with pytest.raises(Denied, match="let a person do it"):
        await service.limits.set(AGENT, higher, keeps_action=True)
    await service.companies.set_read_only(caller, read_only=True)
    with pytest.raises(Denied, match="is read-only"):
        await service.limits.set(caller, higher, keeps_action=True)
    chosen = Filter(status=OperationStatus.DENIED, operation_type=OperationType.CONFIGURE)
    page = await service.log.page(caller, chosen)
    asked = [one.request["set_spending_limit"].get("action") for one in page.operations]
    assert asked == [None, "refuse"]  # not warn: the action was to stay


@ON_BOTH
async def test_a_raised_limit_opens_again(service: MemoryService, caller: Caller) -> None:
    await passed(service, caller, "refuse")
    assert await refuses(service.query(AGENT, ASKED))
    await service.limits.set(caller, LIMIT.model_copy(update={"amount": 120}), keeps_action=True)
    assert not await refuses(service.query(AGENT, ASKED))
    assert await refuses(service.query(AGENT, ASKED))
    chosen = Filter(status=OperationStatus.DENIED, operation_type=OperationType.QUERY)
    assert (await service.log.page(caller, chosen)).total == 2
