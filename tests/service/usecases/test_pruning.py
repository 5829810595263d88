"""A plan for everything keeps to the settings, from wherever it is asked for."""

from __future__ import annotations

import re
from typing import Any

import pytest

from memtui.config import Paths, Settings
from memtui.contract import (
    CorrectRequest,
    Filter,
    OperationType,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.presenters.risks import WORDS
from memtui.screens.dialogs import Confirm, Prompt
from memtui.screens.prune import PruneReview
from memtui.screens.prune_review import Sort
from memtui.service import MemoryService
from memtui.service.context.contexts import ContextRequest
from memtui.service.usecases.forgetting import forget
from memtui.service.usecases.pruning import plan_context, plan_everything, rules_of
from tests.screens.hostile import screen_text
from tests.screens.piloting import running, until
from tests.screens.test_budget import reviewed
from tests.service.usecases.ways import ANA, PERSON, WAYS, Command, Way, last, remember

_LONG = "Likes tea " * 30
_BUDGET = 90


@pytest.fixture
def settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Let facts be as long as they like, and a context small."""
    monkeypatch.setenv("MEMTUI_FACT_MAX_CHARS", "0")
    monkeypatch.setenv("MEMTUI_CONTEXT_BUDGET", str(_BUDGET))
    return settings.model_copy(update={"fact_max_chars": 0, "context_budget": _BUDGET})


@pytest.mark.parametrize("way", WAYS)
async def test_everything_is_planned_without_a_limit_and_with_other_days(
    way: Way, service: MemoryService, command: Command, paths: Paths, settings: Settings
) -> None:
    await remember(service, _LONG, "Writes Lua", "writes lua.")
    if way == "service":
        rules = rules_of(settings, stale_days=3)
        answer = await plan_everything(service, PERSON, rules=rules)
        found = {(one.record.text, one.reason.value) for one in answer.plan.candidates}
        assert [one.text for one in answer.marked["default"]] == ["Writes Lua"]
        assert [one.text for one in answer.staying["default"]] == ["writes lua."]
    elif way == "command":
        typed = await command("facts", "prune", "--everything", "--stale-days", "3", "--json")
        found = {(one["text"], one["reason"]) for one in typed.document["candidates"]}
    else:
        async with running(paths, settings, "records") as (app, pilot):
            await until(pilot, lambda: "Writes Lua" in screen_text(app))
            await pilot.press("P")
            await until(pilot, lambda: isinstance(app.screen, PruneReview) and bool(reviewed(app)))
            review: Any = app.screen
            await pilot.press("m")
            await until(pilot, lambda: isinstance(app.screen, Prompt))
            await pilot.press("ctrl+u", "3", "enter")
            await until(pilot, lambda: review._rules.stale_days == 3 and not review._doing)
            names = {words: reason for reason, words in WORDS.items()}
            lines = [one for one in reviewed(app) if one.sort is Sort.GOES]
            found = {(one.text, names[one.reason]) for one in lines}
    assert found == {("Writes Lua", "exact_duplicate")}
    lists = Filter(operation_type=OperationType.BROWSE, internal=True)
    page = await service.log.page(PERSON, lists, limit=20)
    planned = next(one.request for one in page.operations if one.request.get("purpose") == "prune")
    assert planned["kind"] is None
    assert planned["rules"] == rules_of(settings, stale_days=3).model_dump(mode="json")


async def texts(service: MemoryService) -> list[str]:
    answer = await service.context(PERSON, ContextRequest(scope=ANA, budget=_BUDGET))
    return sorted(fact.text for section in answer.sections for fact in section.facts)


@pytest.mark.parametrize("way", WAYS)
async def test_a_context_is_cut_to_its_budget_in_five_keys(
    way: Way, service: MemoryService, command: Command, paths: Paths, settings: Settings
) -> None:
    await remember(service, "Always answers in German", topic="rules")
    [pinned] = await remember(service, "Is on call until the summer")
    await service.correct(PERSON, CorrectRequest.model_validate(
        {"scope": ANA, "handle": pinned.handle, "pinned": True}))  # fmt: skip
    worn = [
        "Deploys the shop from the main branch at noon",
        "Tests run in a container with forty workers",
        "The office dog is called Bello and likes biscuits",
        "Prefers TypeScript with Drizzle over plain SQL",
        "Writes minutes of each meeting into the wiki",
        "Invoices leave on the last Friday of a month",
        "Reviews pull requests before the first coffee",
    ]
    doubled = "reviews Pull Requests before the first coffee."
    await remember(service, *worn, doubled)
    before = await texts(service)
    request = ContextRequest(scope=ANA, budget=_BUDGET)
    if way == "service":
        plan = await plan_context(service, PERSON, request, to_budget=True)
        await forget(service, PERSON, plan.marked, plan.staying)
        tokens = plan.tokens_after
    elif way == "command":
        typed = await command(
            "facts", "prune", "--subject", "ana", "--to-budget", "--apply", "--json"
        )
        assert (typed.code, typed.document["budget"]) == (0, _BUDGET), typed.err
        tokens = typed.document["tokens_after"]
        least = [one for one in typed.document["diff"] if one["sign"] == "-"]
        assert all("Worth least: never delivered, made today, " in one["why"] for one in least)
    else:
        async with running(paths, settings, "bindings") as (app, pilot):
            await pilot.press("5")
            await until(pilot, lambda: "enter shows one" in screen_text(app))
            await pilot.press("enter")
            await until(pilot, lambda: "said twice" in screen_text(app))
            await pilot.press("P")
            await until(pilot, lambda: isinstance(app.screen, PruneReview) and bool(reviewed(app)))
            said = re.search(rf"context \d+ tokens → (\d+), budget {_BUDGET}", screen_text(app))
            assert said is not None
            tokens = int(said[1])
            await pilot.press("d")
            await until(pilot, lambda: isinstance(app.screen, Confirm))
            await pilot.press("y")
            await until(pilot, lambda: app.screen is app.frame)
    now = await service.context(PERSON, request)
    assert now.tokens == tokens <= _BUDGET
    left = await texts(service)
    never = ["Always answers in German", "Is on call until the summer"]
    assert left == sorted([*never, *worn[2:-1], doubled]), "the double and the oldest are gone"
    asked = ContextRequest(scope=ANA, budget=_BUDGET, prompt="From which branch?", profile=True)
    assert (await service.context(PERSON, asked)).tokens <= _BUDGET
    await service.undo_together(PERSON, await last(service))
    assert await texts(service) == before
    again = await command("facts", "prune", "--subject", "ana", "--to-budget", "--budget", "1000")
    assert "its budget is 1,000" in again.err
    assert "Nothing of 10 is marked to go." in again.err
    stuck = await command("facts", "prune", "--subject", "ana", "--to-budget", "--budget", "9")
    assert stuck.code == 1
    assert "1 rule and 1 pinned fact cannot go. They have " in stuck.err
    clash = await command("facts", "prune", "--to-budget", "--everything")
    assert clash.code == 2
    assert (await command("facts", "prune", "--reason", "least_worth")).code == 2


async def test_what_is_no_fact_is_named_where_it_alone_exceeds_the_budget(
    service: MemoryService,
) -> None:
    agent = Scope(company_id="local", agent_id="coder")
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
    for kind, text in (("guidance", "Ask before each release. " * 20), ("fact", "port: 8080")):
        request = WriteRequest(scope=agent, source=source, content=text, kind=kind)
        await service.write(PERSON, request)
    asked = ContextRequest(scope=agent, budget=60)
    plan = await plan_context(service, PERSON, asked, to_budget=True)
    assert not any(plan.marked.values())
    assert plan.stuck.startswith(
        "Nothing is marked: what is no fact (Guidance) cannot go. They have"
    )
