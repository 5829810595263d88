"""A shadow is asked what another binding was asked; the figures that come of it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from memtui.backends.plugin_v1 import PluginAdapter
from memtui.backends.vault import VaultAdapter
from memtui.config import Paths, Settings, find_paths, load_settings
from memtui.contract import (
    Denied,
    Filter,
    ForgetRequest,
    QueryRequest,
    RecordHandle,
    Scope,
    Usage,
)
from memtui.migration.cutover import plan_by_shadow, switch
from memtui.migration.endpoints import open_endpoints
from memtui.service import Membership, MemoryService, Role, open_service
from memtui.service.answers import Shadow
from memtui.service.context.contexts import ContextRequest
from memtui.service.context.impact import AnsweredRecord
from memtui.service.home.survey import PurgeRequest
from memtui.service.operations.feedback import Verdict
from memtui.service.spending import LimitMeasure, LimitPeriod, LimitTarget, SpendingLimit
from memtui.service.usecases import comparing, shadowing
from memtui.service.usecases.comparing import (
    ComparedAnswer,
    ComparedQuestion,
    MemoryComparison,
    agree,
)
from memtui.service.usecases.shadowing import ShadowState, ask_shadows, report_shadow
from memtui.store.limits import add_up_sealed
from memtui.store.operation import Operation
from memtui.store.tables import SPENDING
from tests.backends.plugin_v1.servers.loopback import serve, talk
from tests.backends.plugin_v1.servers.minimal import Minimal
from tests.databases import ON_BOTH
from tests.processes import prepared_processes
from tests.service.fake import FakeAdapter, down
from tests.service.usecases.test_comparing import ANA, APOLLO, DEPLOY, agent, ask, write

PAIR = "default", "outside"
TERMS: dict[str, Any] = {"share": 1.0, "budget_usd": Decimal(1), "most_calls": 100}
COSTLY = Usage(provider="fake", cost_usd=Decimal("0.4"))


@pytest.fixture
async def service(
    paths: Paths, settings: Settings, fake: type[FakeAdapter]
) -> AsyncIterator[MemoryService]:
    """The company over a vault, with an outside provider beside it."""
    opened = await open_service(paths, settings, providers={"fake": fake})
    await opened.bindings.add(ANA, "outside", "fake", {})
    yield opened
    await opened.close()


async def begin(service: MemoryService, pair: tuple[str, str] = PAIR, **terms: Any) -> Shadow:
    leaves = await comparing.leaving(service, ANA, pair)
    return await agree(service, ANA, pair, leaves, 14, **{**TERMS, **terms})


async def asked(service: MemoryService, by: Any = ANA) -> ShadowState:
    [state] = await ask_shadows(service, by, {})
    return state


async def own(service: MemoryService) -> list[Operation]:
    """Return what shadows were asked, the oldest first."""
    page = await service.log.page(ANA, Filter(internal=True), limit=500)
    return [one for one in page.operations[::-1] if one.request.get("purpose") == "shadow"]


@ON_BOTH
async def test_it_is_asked_afterwards_and_nobody_hears_it(
    service: MemoryService, fake: type[FakeAdapter]
) -> None:
    name = await write(service, DEPLOY)
    await write(service, DEPLOY, "outside")
    await ask(service, "deploy before it began")
    shadow = await begin(service)
    question = await ask(service, "when deploy pipeline")
    fake.calls.clear()
    await ask(service, "nothing else")
    assert fake.calls == []
    log = service.runtime.log_of(ANA)
    reads = log.retrieval_counts("default", [name]), log.retrieval_counts("outside", ["r1"])
    before = await service.log.page(ANA, Filter(), limit=100)
    state = await asked(service)
    assert (state.calls, state.unpriced, state.waiting, state.why_not) == (2, 2, 0, "")
    first, _ = await own(service)
    assert (first.binding_key, first.request["together"]) == ("outside", question)
    assert (first.handles, first.internal, len(first.request["record_ids"])) == ((), True, 1)
    assert (await service.log.page(ANA, Filter(), limit=100)).total == before.total
    assert reads == (log.retrieval_counts("default", [name]),
                     log.retrieval_counts("outside", ["r1"]))  # fmt: skip
    assert (await asked(service)).calls == 2
    found = await report_shadow(service, ANA, shadow)
    assert [(one.question, one.agreement) for one in found.questions] == [
        ("when deploy pipeline", 1.0), ("nothing else", None),
    ]  # fmt: skip
    assert found.questions[0].same == {1: 1}


async def test_later_use_and_feedback_are_those_of_the_report(service: MemoryService) -> None:
    name = await write(service, DEPLOY)
    await write(service, DEPLOY, "outside")
    shadow = await begin(service)
    question = await ask(service, "when deploy pipeline", agent("run-1"))
    await asked(service)
    await write(service, f"Done. {DEPLOY}", by=agent("run-1"))
    await service.feedback.say(ANA, name, Verdict.HELPED, operation_id=question)
    [one] = (await report_shadow(service, ANA, shadow)).questions
    assert [(side.helped, side.used) for side in one.answers] == [((1,), (1,))] * 2


async def test_what_was_written_after_the_question_counts_for_neither(
    service: MemoryService,
) -> None:
    shadow = await begin(service)
    await ask(service, "when deploy pipeline", agent("run-1"))
    await write(service, DEPLOY, by=agent("run-1"))
    later = service.runtime.clock() + timedelta(seconds=1)
    await write(service, DEPLOY, "outside", created_at=later)
    await asked(service)
    [one] = (await report_shadow(service, ANA, shadow)).questions
    assert [side.records for side in one.answers] == [(), ()]


async def test_the_prompt_of_a_context_is_asked_of_both(service: MemoryService) -> None:
    await write(service, DEPLOY)
    await write(service, DEPLOY, "outside")
    shadow = await begin(service)
    request = ContextRequest(scope=APOLLO, prompt="when deploy pipeline", delivered=True)
    await service.context(agent("run-1"), request)
    assert (await asked(service)).calls == 2
    assert [one.binding_key for one in await own(service)] == ["default", "outside"]
    [one] = (await report_shadow(service, ANA, shadow)).questions
    assert (one.question, one.agreement) == ("when deploy pipeline", 1.0)
    assert (await asked(service)).calls == 2


async def test_the_share_is_drawn_alike_each_time(service: MemoryService) -> None:
    await begin(service, share=0.5)
    for number in range(40):
        await ask(service, f"question {number}")
    calls = (await asked(service)).calls
    assert 8 < calls < 32
    assert (await asked(service)).calls == calls


async def test_only_the_questions_of_a_project(service: MemoryService) -> None:
    await begin(service, project_id="apollo")
    await ask(service, "ours")
    await ask(service, "theirs", scope=Scope(company_id="local", project_id="zeus"))
    await asked(service)
    assert [one.request["query"] for one in await own(service)] == ["ours"]


async def test_it_ends_with_its_budget_its_calls_and_its_time(
    service: MemoryService, fake: type[FakeAdapter]
) -> None:
    fake.usage = (COSTLY,)
    await begin(service)
    for number in range(5):
        await ask(service, f"question {number}")
    state = await asked(service)
    assert (state.calls, state.cost_usd, state.waiting) == (3, Decimal("1.2"), 2)
    assert state.why_not == "its budget is spent"
    assert (await asked(service)).calls == 3
    fake.usage = (COSTLY.model_copy(update={"cost_usd": None}),)
    await begin(service, most_calls=2)
    for number in range(3):
        await ask(service, f"more {number}")
    state = await asked(service)
    assert (state.calls, state.unpriced, state.why_not) == (2, 2, "its calls are used up")
    await agree(service, ANA, PAIR, (await begin(service)).leaves, 0, **TERMS)
    await ask(service, "too late")
    assert (await asked(service)).why_not == "its time is over"
    assert len(await own(service)) == 5


@pytest.mark.parametrize(
    ("change", "why"),
    [("withdraw", "its terms were changed"), ("move", "Nobody agreed"), ("wait", "time is over")],
)
async def test_a_yes_that_ends_while_it_is_asked_ends_it(
    service: MemoryService, fake: type[FakeAdapter], monkeypatch: pytest.MonkeyPatch,
    change: str, why: str,
) -> None:  # fmt: skip
    shadow = await begin(service)
    for number in range(3):
        await ask(service, f"deploy {number}")
    answer = fake.query

    async def last(self: FakeAdapter, request: Any) -> Any:
        if change == "withdraw":
            await service.bindings.set_shadow(ANA, PAIR, None)
        elif change == "move":
            moved = [("service", "elsewhere")]
            monkeypatch.setattr(fake, "places", classmethod(lambda _cls, _context: moved))
        else:
            monkeypatch.setattr(service.runtime, "clock", lambda: shadow.until)
        return await answer(self, request)

    monkeypatch.setattr(fake, "query", last)
    state = await asked(service)
    assert (state.calls, state.waiting) == (1, 2)
    assert why in state.why_not


async def test_nothing_is_read_where_nothing_was_asked_since(
    service: MemoryService, fake: type[FakeAdapter]
) -> None:
    seen: dict[tuple[str, str], int] = {}
    await begin(service)
    await ask(service, "deploy 1")
    for calls in ([1], [1], None, None):
        states = await ask_shadows(service, ANA, seen)
        assert [one.calls for one in states] == (calls or [])
    await ask(service, "deploy 2")
    fake.fault = down()
    [state] = await ask_shadows(service, ANA, seen)
    assert (state.calls, state.waiting) == (2, 0)


async def test_a_shadow_of_two_bindings_has_two_budgets(service: MemoryService) -> None:
    await service.bindings.add(ANA, "other", "vault", {})
    for pair in (PAIR, ("other", "outside")):
        await begin(service, pair, most_calls=2)
    for key in ("default", "other"):
        for number in range(2):
            await ask(service, f"{key} {number}", binding_key=key)
    states = await ask_shadows(service, ANA, {})
    assert [(one.shadow.binding_key, one.calls) for one in states] == [("default", 2), ("other", 2)]
    assert [one.calls for one in await shadowing.shadow_states(service, ANA)] == [2, 2]


async def test_a_context_takes_two_of_its_calls(service: MemoryService) -> None:
    await begin(service, most_calls=2)
    await ask(service, "first")
    request = ContextRequest(scope=APOLLO, prompt="when deploy pipeline", delivered=True)
    await service.context(agent("run-1"), request)
    state = await asked(service)
    assert (state.calls, state.waiting, state.why_not) == (1, 1, "")
    await ask(service, "last")
    state = await asked(service)
    assert (state.calls, state.why_not) == (2, "its calls are used up")


async def test_of_two_machines_one_asks(
    service: MemoryService, settings: Settings, fake: type[FakeAdapter], control_plane_url: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    del service
    shared = settings.model_copy(update={"database_url": control_plane_url})
    here, there = [
        await open_service(find_paths(tmp_path / name), shared, providers={"fake": fake})
        for name in ("one", "two")
    ]
    await here.bindings.add(ANA, "outside", "fake", {})
    await begin(here)
    await ask(here, "when deploy")
    with here.runtime.database.claim("shadows of local") as is_free:
        assert is_free
        assert (await asked(there)).why_not == "another process asks it now"
    assert [(await asked(one)).calls for one in (there, here)] == [1, 1]
    for one in (here, there):
        await one.close()


async def test_read_only_it_says_why_nothing_is_asked(
    service: MemoryService, settings: Settings, paths: Paths, fake: type[FakeAdapter]
) -> None:
    await begin(service)
    locked = settings.model_copy(update={"read_only": True})
    reader = await open_service(paths, locked, providers={"fake": fake})
    assert "read-only" in (await asked(reader)).why_not
    await reader.close()


async def test_no_spending_limit_counts_it(service: MemoryService, fake: type[FakeAdapter]) -> None:
    fake.usage = (COSTLY,)
    limit = SpendingLimit(
        target_type=LimitTarget.COMPANY, target_id="", measure=LimitMeasure.USD,
        amount=Decimal("0.1"), period=LimitPeriod.MONTH,
    )  # fmt: skip
    await service.limits.set(ANA, limit)
    await begin(service)
    await ask(service, "when deploy")
    assert (await asked(service)).cost_usd == Decimal("0.4")
    [status] = await service.limits.check(ANA)
    assert status.spent == 0
    await ask(service, "when deploy", binding_key="outside")
    await service.analysis.seal(ANA, everything=True)
    with (
        service.runtime.log("local")._sealed() as sealed,
        service.runtime.database.write() as made,
    ):
        made.execute(delete(SPENDING))
        assert sealed is not None
        add_up_sealed(made, "local", sealed)
    [status] = await service.limits.check(ANA)
    assert status.spent == Decimal("0.4")


@pytest.mark.parametrize("fault", [down(), RuntimeError("boom")])
async def test_a_shadow_that_fails_is_left_alone_and_harms_nobody(
    service: MemoryService, fake: type[FakeAdapter], fault: Exception
) -> None:
    await write(service, DEPLOY)
    shadow = await begin(service)
    fake.fault = fault
    for number in range(5):
        await ask(service, f"deploy {number}")
    state = await asked(service)
    assert (state.calls, state.waiting) == (3, 2)
    assert state.why_not == "outside failed 3 times, one after the other"
    found = await report_shadow(service, ANA, shadow)
    assert [bool(one.answers[1].error) for one in found.questions] == [True] * 3
    assert found.both == []


async def test_a_shadow_that_hangs_is_given_up(
    service: MemoryService, fake: type[FakeAdapter]
) -> None:
    brief = service.settings.model_copy(update={"all_bindings_timeout_ms": 10})
    service.settings = brief
    await begin(service)
    fake.delay = 60
    question = ask(service, "when deploy")
    await asyncio.wait_for(question, 30)
    assert (await asked(service)).calls == 1
    [one] = await own(service)
    assert "did not answer" in (one.error_message or "")


async def test_a_shadow_that_is_gone_is_not_asked(service: MemoryService) -> None:
    await begin(service)
    await ask(service, "when deploy")
    await service.bindings.update(ANA, "outside", enabled=False)
    assert "disabled" in (await asked(service)).why_not
    await service.bindings.remove(ANA, "outside")
    assert "no binding" in (await asked(service)).why_not
    assert await own(service) == []


async def test_nothing_is_asked_without_a_yes_to_this_address(service: MemoryService) -> None:
    await ask(service, "when deploy")
    assert await ask_shadows(service, ANA, {}) == []
    await agree(service, ANA, PAIR, ["outside (fake, elsewhere)"], 14, **TERMS)
    await ask(service, "when deploy")
    assert "Nobody agreed that questions go to outside (fake)" in (await asked(service)).why_not
    with pytest.raises(Denied, match="a person"):
        await agree(service, agent("run-1"), PAIR, ["outside (fake)"])
    assert await own(service) == []


async def test_the_yes_is_asked_once_and_undo_takes_it_back(service: MemoryService) -> None:
    await ask(service, "when deploy")
    plan = await comparing.plan_comparison(service, ANA, PAIR, 500)
    assert not plan.agreed
    await comparing.compare_memories(service, ANA, plan, agreed=True)
    for pair in (PAIR, PAIR[::-1]):
        assert (await comparing.plan_comparison(service, ANA, pair, 500)).agreed
    yes = await comparing.shadow_of(service, ANA, PAIR)
    assert (yes.principal, yes.leaves, yes.until) == ("user:ana", ("outside (fake)",), None)
    await service.undo(ANA)
    assert not (await comparing.plan_comparison(service, ANA, PAIR, 500)).agreed
    await begin(service, project_id="apollo")
    assert not (await comparing.plan_comparison(service, ANA, PAIR, 500)).agreed


async def test_a_yes_to_compare_now_is_none_to_a_shadow_at_another_address(
    service: MemoryService,
) -> None:
    await ask(service, "when deploy")
    await agree(service, ANA, PAIR, ["outside (fake, elsewhere)"], 14, **TERMS)
    plan = await comparing.plan_comparison(service, ANA, PAIR, 500)
    await comparing.compare_memories(service, ANA, plan, agreed=True)
    assert (await comparing.shadow_of(service, ANA, PAIR)).leaves == ("outside (fake, elsewhere)",)
    assert "Nobody agreed" in (await asked(service)).why_not


async def test_no_agent_takes_a_no_back(service: MemoryService) -> None:
    await begin(service)
    await service.bindings.set_shadow(ANA, PAIR, None)
    [stopped] = (await service.log.page(ANA, limit=1)).operations
    with pytest.raises(Denied, match="let a person say yes"):
        await service.undo(agent("run-1"), stopped.operation_id)
    assert await ask_shadows(service, ANA, {}) == []
    undone = await service.undo(ANA, stopped.operation_id)
    assert len(await ask_shadows(service, ANA, {})) == 1
    await service.undo(agent("run-1"), undone.operation_id)
    assert await ask_shadows(service, ANA, {}) == []


async def test_the_yes_is_not_for_another_binding_of_the_same_key(service: MemoryService) -> None:
    await begin(service)
    await service.bindings.remove(ANA, "outside")
    await service.undo(ANA)
    assert len(await ask_shadows(service, ANA, {})) == 1
    await service.bindings.remove(ANA, "outside")
    await service.bindings.add(ANA, "outside", "fake", {})
    await ask(service, "when deploy")
    assert await ask_shadows(service, ANA, {}) == []
    assert await own(service) == []


async def test_a_private_question_is_asked_only_by_whom_it_belongs_to(
    service: MemoryService,
) -> None:
    await service.members.set(ANA, Membership(principal="user:ana", role=Role.OWNER))
    bob = ANA.model_copy(update={"principal": "user:bob"})
    his = Scope(company_id="local", subject_id="bob")
    await service.members.set(
        ANA, Membership(principal="user:bob", role=Role.MEMBER, subject_id="bob")
    )
    shadow = await begin(service)
    with pytest.raises(Denied):
        await agree(service, bob, PAIR, shadow.leaves)
    await ask(service, "his secret", bob, scope=his)
    assert (await asked(service)).calls == 0
    assert (await asked(service, bob)).calls == 1
    found = await report_shadow(service, ANA, shadow)
    assert (found.questions, found.left_out) == ((), 1)
    assert len((await report_shadow(service, bob, shadow)).questions) == 1


async def test_a_purge_erases_the_ids_of_what_it_found(service: MemoryService) -> None:
    name = await write(service, DEPLOY, "outside")
    await begin(service)
    await ask(service, "when deploy")
    await asked(service)
    assert (await own(service))[0].request["record_ids"] == [name]
    handle = (await service.get(ANA, name, APOLLO, binding_key="outside")).record.handle
    await service.forget(ANA, ForgetRequest(scope=APOLLO, handles=(handle,), binding_key="outside"))
    await service.purging.apply(ANA, PurgeRequest(record_id=name, binding_key="outside"))
    assert (await own(service))[0].request["record_ids"] == [None]


async def test_figures_support_a_cut_over_or_they_do_not(service: MemoryService) -> None:
    await write(service, DEPLOY)
    await write(service, DEPLOY, "outside")
    await begin(service)
    endpoints = await open_endpoints(service, ANA, *PAIR, moves=False)
    _, why = await plan_by_shadow(endpoints)
    assert why[0] == "Both answered 0 questions; a cut-over takes at least 30."
    for number in range(shadowing.FEWEST):
        await ask(service, f"when deploy pipeline {number}")
    await asked(service)
    found, why = await plan_by_shadow(endpoints)
    assert (found.agreement, why) == (1.0, ())
    await switch(endpoints, service.paths.data, force=True)
    assert (await service.resolve(ANA, APOLLO)).binding_key == "outside"
    await service.undo(ANA)
    assert (await service.resolve(ANA, APOLLO)).binding_key == "default"
    views = {one.key: one for one in await service.bindings.all(ANA)}
    assert not views["default"].read_only


def _found(
    both: int, alike: int = 10, failed: int = 0, hits: tuple[int, int] = (0, 0)
) -> MemoryComparison:
    """Return a comparison of so many questions, with `alike` of each ten records found by both."""
    handle = RecordHandle(provider_key="vault", provider_record_id="x")
    records = [AnsweredRecord(rank=n, handle=handle, binding_key="a", text="x") for n in range(10)]
    down, plain = ComparedAnswer(error="down"), ComparedAnswer(records=tuple(records))
    hit = plain.model_copy(update={"used": (1,)})
    sides = [(hit, plain)] * hits[0] + [(plain, hit)] * hits[1]
    sides += [(plain, plain)] * (both - sum(hits)) + [(plain, down)] * failed
    same = {n: n for n in range(alike)}
    one = {"seq": 1, "question": "q", "times": 1, "same": same}
    made = [ComparedQuestion.model_validate({**one, "answers": answers}) for answers in sides]
    return MemoryComparison(bindings=("a", "b"), questions=tuple(made))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (_found(30), ""),
        (_found(29, failed=1), "Both answered 29 questions; a cut-over takes at least 30."),
        (_found(38, failed=2), ""),
        (_found(38, failed=3), "b failed 3 of 41 questions."),
        (_found(30, hits=(5, 0)), ""),
        (_found(30, hits=(6, 0)), "a found more hits, by more than chance."),
        (_found(30, alike=8), ""),
        (_found(30, alike=7), "Less than 80% of the records are alike"),
        (_found(30, alike=7, hits=(0, 5)), "Less than 80% of the records are alike"),
        (_found(30, alike=7, hits=(0, 6)), ""),
    ],
)
def test_what_speaks_against_a_cut_over(found: MemoryComparison, why: str) -> None:
    said = shadowing.objections(found)
    assert len(said) == bool(why)
    assert "".join(said).startswith(why)


async def test_what_all_bindings_were_asked_is_not_asked_again(service: MemoryService) -> None:
    await begin(service)
    await service.everywhere.query(ANA, QueryRequest(scope=APOLLO, query="when deploy"))
    state = await asked(service)
    assert (state.calls, state.waiting) == (0, 0)


async def test_only_failures_one_after_the_other_end_it_and_later_it_goes_on(
    service: MemoryService, fake: type[FakeAdapter], monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(service)
    for number in range(8):
        await ask(service, f"deploy {number}")
    answer = fake.query

    async def by_turns(self: FakeAdapter, request: Any) -> Any:
        if request.query[-1] in "01345":
            raise down()
        return await answer(self, request)

    monkeypatch.setattr(fake, "query", by_turns)
    seen: dict[tuple[str, str], int] = {}
    for calls, waiting, is_ended in ((6, 2, True), (8, 0, False)):
        [state] = await ask_shadows(service, ANA, seen)
        assert (state.calls, state.waiting, bool(state.why_not)) == (calls, waiting, is_ended)


async def test_the_cost_of_both_answers_to_a_context_counts(
    service: MemoryService, fake: type[FakeAdapter]
) -> None:
    fake.usage = (COSTLY, COSTLY.model_copy(update={"cost_usd": None}))
    await begin(service, ("outside", "default"))
    request = ContextRequest(
        scope=APOLLO, prompt="when deploy", delivered=True, binding_key="outside"
    )
    await service.context(agent("run-1"), request)
    assert (await asked(service)).cost_usd == Decimal("0.4")
    [state] = await shadowing.shadow_states(service, ANA)
    assert (state.calls, state.cost_usd, state.unpriced) == (2, Decimal("0.4"), 1)


async def test_a_budget_that_is_spent_exactly_is_spent(
    service: MemoryService, fake: type[FakeAdapter]
) -> None:
    fake.usage = (COSTLY,)
    await begin(service, budget_usd=Decimal("0.8"))
    for number in range(3):
        await ask(service, f"deploy {number}")
    assert (await asked(service)).calls == 2


async def test_what_cannot_be_read_for_the_report_is_no_empty_answer(
    service: MemoryService,
) -> None:
    await write(service, DEPLOY, "outside")
    shadow = await begin(service)
    await ask(service, "when deploy pipeline")
    await asked(service)
    await service.bindings.update(ANA, "outside", enabled=False)
    [one] = (await report_shadow(service, ANA, shadow)).questions
    assert "cannot be read now" in one.answers[1].error


async def test_a_server_is_asked_over_http(paths: Paths, settings: Settings) -> None:
    server = Minimal("fts")
    providers = {one.key: one for one in (PluginAdapter, VaultAdapter)}
    async with serve(talk(server)) as url:
        service = await open_service(paths, settings, providers=providers)
        config = {"url": url, "namespaces": ["workspace:apollo"]}
        await service.bindings.add(ANA, "outside", PluginAdapter.key, config)
        await write(service, DEPLOY)
        await write(service, DEPLOY, "outside")
        shadow = await begin(service)
        assert shadow.leaves == (f"outside (plugin-v1, localhost:{url.rpartition(':')[2]})",)
        await ask(service, "deploy")
        assert (await asked(service)).calls == 1
        [one] = (await report_shadow(service, ANA, shadow)).questions
        assert one.agreement == 1.0
    await ask(service, "deploy again")
    await asked(service)
    found = await report_shadow(service, ANA, shadow)
    assert all(one.answers[1].error for one in found.questions)
    await service.close()


def ask_and_die(home: Path) -> None:
    """Ask a shadow, and be killed while it answers."""

    async def dying(_self: VaultAdapter, _request: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def run() -> None:
        paths = find_paths(home)
        service = await open_service(paths, load_settings(paths, principal="user:ana"))
        VaultAdapter.query = dying  # type: ignore[assignment, method-assign]
        await ask_shadows(service, ANA, {})

    asyncio.run(run())


async def test_a_kill_in_between_loses_and_doubles_nothing(
    paths: Paths, settings: Settings
) -> None:
    pair = "default", "other"
    service = await open_service(paths, settings)
    await service.bindings.add(ANA, "other", "vault", {})
    await begin(service, pair)
    await ask(service, "when deploy")
    process = prepared_processes().Process(target=ask_and_die, args=(paths.data,))
    process.start()
    await asyncio.to_thread(process.join)
    assert process.exitcode == -signal.SIGKILL
    assert await own(service) == []
    assert (await asked(service)).calls == 1
    assert (await asked(service)).calls == 1
    await service.close()
