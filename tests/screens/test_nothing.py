"""Screens say what to do where there is nothing yet: no question, no memory, no binding at all."""

from __future__ import annotations

from memtui.config import Paths, Settings
from memtui.screens.dialogs import Choose
from memtui.service import Caller, MemoryService
from tests.screens.hostile import screen_text
from tests.screens.piloting import Watched, running, until


async def test_before_the_first_question_and_name(
    paths: Paths, settings: Settings, service: MemoryService
) -> None:
    async with running(paths, settings, "query", (80, 24)) as (app, pilot):
        await until(pilot, lambda: "Nothing was asked here yet." in screen_text(app))
        await pilot.press("escape", "s")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        await until(pilot, lambda: "Nobody is in the log yet" in screen_text(app))


async def test_a_company_without_a_binding(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await service.bindings.clear_target(caller, "company", "local")
    await service.bindings.remove(caller, "default")
    app = Watched(paths, settings, screen="records")
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: "a on screen 1 adds one" in screen_text(app))
        for keys, why in (("a", "No binding serves local"), ("Q H", "There is no binding with")):
            await pilot.press(*keys.split())
            await until(pilot, lambda: any(one.startswith(why) for one in app.told))  # noqa: B023
