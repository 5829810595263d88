"""Deciding on several pending writes leaves the same from wherever it is asked for."""

from __future__ import annotations

import pytest

from memtui.config import Paths, Settings
from memtui.contract import BrowseRequest, CorrectRequest, WriteRequest
from memtui.screens.review import ReviewScreen
from memtui.service import MemoryService, ReviewRule, RuleAction, RuleTest
from memtui.service.usecases.deciding import decide
from tests.screens.hostile import screen_text
from tests.screens.piloting import running, toasts, until
from tests.service.usecases.ways import (
    ANA,
    BOT,
    PERSON,
    SOURCE,
    WAYS,
    Command,
    Way,
    last,
    logged,
    remember,
)


@pytest.mark.parametrize("way", WAYS)
async def test_what_waits_is_accepted_but_for_what_changed_meanwhile(
    way: Way, service: MemoryService, command: Command, paths: Paths, settings: Settings
) -> None:
    [fact] = await remember(service, "Likes tea")
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    await service.review.add_rule(PERSON, "default", rule)
    change = CorrectRequest(scope=ANA, handle=fact.handle, text="Likes beer")
    for text in ("Writes Lua", "Has a cat"):
        await service.write(BOT, WriteRequest(scope=ANA, source=SOURCE, content=text))
    await service.correct(BOT, change)
    await service.correct(PERSON, change.model_copy(update={"text": "Likes mate"}))
    begun = await last(service)
    if way == "service":
        waiting = await service.review.waiting(PERSON)
        found = await decide(service, PERSON, waiting, RuleAction.ACCEPT)
        assert [one.text for one, _ in found.failed] == ["Likes beer"]
    elif way == "command":
        assert (await command("review", "accept", "--all")).code == 5
    else:
        async with running(paths, settings, "records") as (app, pilot):
            await pilot.press("Q")
            await until(pilot, lambda: isinstance(app.screen, ReviewScreen))
            await until(pilot, lambda: "3 writes" in screen_text(app))
            await pilot.press("A", "a", "y")
            await until(pilot, lambda: "Accepted 2 writes; u undoes them." in toasts(app))
            await until(pilot, lambda: "1 write" in screen_text(app))
    assert [one.text for one in await service.review.waiting(PERSON)] == ["Likes beer"]
    page = await service.browse(PERSON, BrowseRequest(scope=ANA))
    assert {one.text for one in page.records} == {"Likes mate", "Writes Lua", "Has a cat"}
    changes = [(one["type"], one["status"], one["group"]) for one in await logged(service, begun)]
    assert changes == [("write", "ok", 1), ("write", "ok", 1), ("correct", "conflict", 1)]
    await service.undo_together(PERSON)
    assert len(await service.review.waiting(PERSON)) == 3
