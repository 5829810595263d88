"""Changing and forgetting several records leaves the same from wherever it is asked for."""

from __future__ import annotations

import pytest

from memtui.config import Paths, Settings
from memtui.contract import BrowseRequest, CorrectRequest
from memtui.screens.dialogs import Confirm
from memtui.service import MemoryService
from memtui.service.usecases.changing import change
from memtui.service.usecases.forgetting import forget
from tests.screens.hostile import screen_text
from tests.screens.piloting import toasts, until
from tests.screens.test_budget import budget, texts
from tests.service.usecases.ways import (
    ANA,
    PERSON,
    WAYS,
    Command,
    Way,
    kept,
    last,
    logged,
    remember,
)

_LOGGED = {
    "status": "ok", "of": {"subject_id": "ana"}, "binding": "default", "by": "user:ana",
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
async def test_facts_are_pinned(
    way: Way, service: MemoryService, command: Command, paths: Paths, settings: Settings
) -> None:
    """One is pinned already, one changes meanwhile, and one is gone by then."""
    one, two, gone = await remember(service, "Likes tea", "Writes Lua", "Has a cat")
    [done] = await remember(service, "Lives in Bern", pinned=True)
    records = [one, two, gone, done]
    newer = CorrectRequest(scope=ANA, handle=two.handle, text="Writes Go")
    if way == "app":
        async with budget(paths, settings, ANA, 4) as (app, pilot):
            await pilot.press("A", "p")
            await until(pilot, lambda: isinstance(app.screen, Confirm))
            await service.correct(PERSON, newer)
            await forget(service, PERSON, {"default": [gone]})
            begun = await last(service)
            await pilot.press("y")
            await until(pilot, lambda: "Pinned 2 facts. u undoes it." in toasts(app))
            name = gone.handle.provider_record_id
            await until(pilot, lambda: any(name in one for one in toasts(app)))
    else:
        await service.correct(PERSON, newer)
        if way == "service":
            await forget(service, PERSON, {"default": [gone]})
            begun = await last(service)
            found = await change(service, PERSON, {"default": records}, pinned=True)
            assert [record.text for record, _ in found.done] == ["Likes tea", "Writes Lua"]
            assert [record.text for record, _ in found.failed] == ["Has a cat"]
        else:
            begun = await last(service)
            names = [record.handle.provider_record_id for record in (one, two, done)]
            typed = await command("facts", "pin", *names, "--subject", "ana", "--json")
            assert (typed.code, len(typed.document["changed"])) == (0, 2)
    page = await service.browse(PERSON, BrowseRequest(scope=ANA))
    stays = [] if way != "command" else [("Has a cat", False, (), None)]
    assert kept(page.records) == sorted([
        *stays, *((text, True, (), None) for text in ("Likes tea", "Lives in Bern", "Writes Go")),
    ])  # fmt: skip
    assert [one for one in await logged(service, begun) if one["status"] == "ok"] == [
        _LOGGED | {"type": "correct", "group": 1, "asked": {"pinned": True}}
    ] * 2
    await service.undo_together(PERSON)
    page = await service.browse(PERSON, BrowseRequest(scope=ANA))
    assert [one.text for one in page.records if one.pinned] == ["Lives in Bern"]


@pytest.mark.parametrize("way", WAYS)
async def test_facts_are_forgotten(
    way: Way, service: MemoryService, command: Command, paths: Paths, settings: Settings
) -> None:
    records = await remember(service, "Likes tea", "Writes Lua")
    begun = await last(service)
    if way == "service":
        await forget(service, PERSON, {"default": records})
    elif way == "command":
        names = [one.handle.provider_record_id for one in records]
        assert (await command("facts", "delete", *names, "--subject", "ana", "--yes")).code == 0
    else:
        async with budget(paths, settings, ANA, 2) as (app, pilot):
            await pilot.press("A", "d")
            await until(pilot, lambda: "Forget 2 records" in screen_text(app))
            await pilot.press("y")
            await until(pilot, lambda: texts(app) == [])
    assert (await service.browse(PERSON, BrowseRequest(scope=ANA))).records == ()
    assert await logged(service, begun) == [
        _LOGGED | {"type": "forget", "group": 0, "asked": {"records": 2}}
    ]
