"""The checks on screen: asked with one key, red where they fail, opened in Query, recorded."""

from __future__ import annotations

from typing import Any

from textual.pilot import Pilot

from memtui.app import MemtuiApp
from memtui.config import Paths, Settings
from memtui.contract import QueryRequest, Scope
from memtui.screens.checks import Checks
from memtui.screens.operations.screen import OperationsScreen
from memtui.screens.query.screen import QueryScreen
from memtui.service import Caller, MemoryService
from memtui.service.usecases.checking import read_checks
from memtui.widgets.virtual_list import VirtualList
from tests.screens.hostile import HOSTILE, assert_harmless, screen_text
from tests.screens.piloting import running, toasts, until, write_notes

MECH = Scope(company_id="local", project_id="mech")
ASK = "[[check]]\nask = 'where deploy'\nproject = 'mech'\nholds = "


def row(app: MemtuiApp) -> Any:
    return app.screen.query_one(VirtualList).current


async def shown(app: MemtuiApp, pilot: Pilot[Any], words: str) -> None:
    """Wait until the checks show some words."""
    await until(pilot, lambda: isinstance(app.screen, Checks) and words in screen_text(app))


async def test_a_failing_check_is_red_and_opens_in_query(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    await write_notes(service, caller, ["Deploy from main", *HOSTILE[:3]])
    name = "\\u001b[2J evil [/a]"
    paths.checks_file.write_text(
        f"{ASK}'main'\n{ASK}'release'\nname = \"{name}\"\n{ASK}'x'\nbinding = 'none'"
    )
    async with running(paths, settings, "query") as (app, pilot):
        await pilot.press("escape", "c")
        await shown(app, pilot, "1 passed, 1 failed, 1 could not be asked")
        assert_harmless(screen_text(app))
        assert app.screen.query_one(VirtualList).columns[0].of(row(app)).tone == "success"
        await pilot.press("j")
        assert app.screen.query_one(VirtualList).columns[0].of(row(app)).tone == "error"
        assert "“release” is in none of 1 results" in screen_text(app)

        paths.checks_file.write_text(f"{ASK}'main'")
        await pilot.press("r")
        await shown(app, pilot, "1 passed, 0 failed")
        paths.checks_file.write_text("x = 3")
        await pilot.press("r")
        await shown(app, pilot, "N on a result of Query records a check")
        assert "passed" not in screen_text(app)
        paths.checks_file.write_text(f"{ASK}'release'")
        await pilot.press("r")
        await shown(app, pilot, "0 passed, 1 failed")
        await pilot.press("enter")
        await until(
            pilot,
            lambda: isinstance(app.screen, QueryScreen) and app.screen.view.answer is not None,
        )
        assert isinstance(app.screen, QueryScreen)
        assert app.screen.view.question == "where deploy"
        assert app.state.scope.project_id == "mech"


async def test_one_key_records_a_check(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    await write_notes(service, caller, ["Deploy from main"])
    await service.query(caller, QueryRequest(scope=MECH, query="deploy main"))
    async with running(paths, settings, "operations") as (app, pilot):
        await until(pilot, lambda: isinstance(app.screen, OperationsScreen) and row(app))
        await pilot.press("g", "N")
        await until(pilot, lambda: toasts(app))
        assert toasts(app)[-1].startswith("Recorded in ")
        await pilot.press("3")
        await until(pilot, lambda: isinstance(app.screen, QueryScreen))
        screen = app.screen
        assert isinstance(screen, QueryScreen)
        screen.select("where deploy")
        await until(pilot, lambda: screen.view.answer is not None)
        await pilot.press("minus")
        await until(pilot, lambda: screen.view.said)
        await pilot.press("N")
        await until(pilot, lambda: len(toasts(app)) >= 3)
    first, second = read_checks(paths.checks_file)
    assert (first.holds, second.not_) == (("Deploy from main",), ("Deploy from main",))
