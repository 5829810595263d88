"""A plan for everything keeps to the settings, from wherever it is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from memtui.config import Paths, Settings
from memtui.contract import Filter, OperationType
from memtui.screens.dialogs import Prompt
from memtui.screens.prune import PruneReview
from memtui.screens.prune_review import WORDS, Sort
from memtui.service import MemoryService
from memtui.service.usecases.pruning import plan_everything, rules_of
from tests.screens.hostile import screen_text
from tests.screens.piloting import running, until
from tests.screens.test_budget import reviewed
from tests.service.usecases.ways import PERSON, WAYS, Command, Way, remember

_LONG = "Likes tea " * 30


@pytest.fixture
def settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Let facts be as long as they like."""
    monkeypatch.setenv("MEMTUI_FACT_MAX_CHARS", "0")
    return settings.model_copy(update={"fact_max_chars": 0})


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
            await pilot.press("x")
            await until(pilot, lambda: isinstance(app.screen, Prompt))
            await pilot.press("ctrl+u", "3", "enter")
            await until(pilot, lambda: review._rules.stale_days == 3 and not review._doing)
            names = {words: reason.value for reason, words in WORDS.items()}
            lines = [one for one in reviewed(app) if one.sort is Sort.GOES]
            found = {(one.text, names[one.reason]) for one in lines}
    assert found == {("Writes Lua", "exact_duplicate")}
    lists = Filter(operation_type=OperationType.BROWSE, internal=True)
    page = await service.log.page(PERSON, lists, limit=20)
    planned = next(one.request for one in page.operations if one.request.get("purpose") == "prune")
    assert planned["kind"] is None
    assert planned["rules"] == rules_of(settings, stale_days=3).model_dump(mode="json")
