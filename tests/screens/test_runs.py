"""Runs on screen: the list, the replay, and the ways from there to operation, record and run."""

from __future__ import annotations

from typing import Any

from textual.pilot import Pilot
from textual.widgets import Input

from memtui.app import MemtuiApp
from memtui.config import Paths, Settings
from memtui.contract import QueryRequest, Scope
from memtui.screens.dialogs import Choose
from memtui.screens.help import Help
from memtui.screens.operations.screen import OperationsScreen
from memtui.screens.records.screen import RecordsScreen
from memtui.screens.runs import ReplayScreen, RunsScreen
from memtui.service import Caller, MemoryService
from memtui.widgets.panes import DetailPane
from memtui.widgets.virtual_list import VirtualList
from tests.screens.hostile import HOSTILE, assert_harmless, screen_text
from tests.screens.piloting import running, toasts, until, write_notes

SCOPE = Scope(company_id="local", project_id="mech", agent_id="coding")
NOTES = ["Deploy from main", "Deploy on Thursdays", *HOSTILE[:6]]


async def prepared(service: MemoryService, caller: Caller) -> None:
    """Let `run-7` write notes and `run-8` find them, and nobody's run look once more."""
    await write_notes(service, caller, NOTES)
    agent = Caller(company_id="local", principal="agent:coding", channel="mcp", run_id="run-8")
    await service.query(agent, QueryRequest(scope=SCOPE, query="deploy"))
    await service.query(caller, QueryRequest(scope=SCOPE, query="deploy"))


def runs(app: MemtuiApp) -> list[str]:
    found: VirtualList[Any] = app.screen.query_one("#run-list", VirtualList)
    return [one.run_id for _, one in found.rows.held()]


def pointed_at(app: MemtuiApp) -> str:
    record = app.screen.query_one(VirtualList).current
    return str(record.text) if record else ""


async def shown(app: MemtuiApp, pilot: Pilot[Any], kind: type) -> None:
    """Wait until a screen is there and has its rows."""
    await until(pilot, lambda: isinstance(app.screen, kind))
    await until(pilot, lambda: app.screen.query_one(VirtualList).rows.count)


async def shown_runs(app: MemtuiApp, pilot: Pilot[Any], wanted: list[str]) -> None:
    await until(pilot, lambda: isinstance(app.screen, RunsScreen) and runs(app) == wanted)


async def test_from_the_runs_to_a_record_and_to_all_that_were_told_it(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    await prepared(service, caller)
    async with running(paths, settings, "operations") as (app, pilot):
        await shown(app, pilot, OperationsScreen)
        await pilot.press("t")
        await shown(app, pilot, RunsScreen)
        assert runs(app) == ["run-8", "run-7"]
        await pilot.press("S")
        await pilot.click(VirtualList, offset=(6, 0))
        await until(pilot, lambda: toasts(app) == ["This list keeps its own order."] * 2)
        await pilot.press("C")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        await pilot.press(*"project", "enter")
        listed = app.screen.query_one(VirtualList)
        assert listed.hidden == {"project"}
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, Help))
        await pilot.press(*"column")
        await until(pilot, lambda: "Choose the columns" in screen_text(app))
        assert "Choose the column to sort by" not in screen_text(app)
        await pilot.press("escape", "G", "enter")
        await shown(app, pilot, ReplayScreen)
        assert app.screen.query_one(VirtualList).rows.count == len(NOTES)
        for _ in NOTES:
            assert_harmless(screen_text(app))
            await pilot.press("j")
        await pilot.press("t")
        assert toasts(app)[-1] == "This step delivered no context."
        await pilot.press("escape", "g", "T")
        await until(
            pilot, lambda: "asked" in screen_text(app) and "2 still stored" in screen_text(app)
        )
        goes_on = caller.model_copy(update={"run_id": "run-8"})
        await service.query(goes_on, QueryRequest(scope=SCOPE, query="thursdays"))
        await until(pilot, lambda: app.screen.query_one(VirtualList).rows.count == 2)
        assert app.screen.query_one(VirtualList).cursor == 0
        await pilot.press("T")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        await pilot.press("enter")
        await shown(app, pilot, RunsScreen)
        assert runs(app) == ["run-8"]
        await pilot.press("escape", "R")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RecordsScreen))
        await until(pilot, lambda: pointed_at(app).startswith("Deploy"))
        await pilot.press("T")
        await shown(app, pilot, RunsScreen)
        assert runs(app) == ["run-8"]
        await pilot.press("O")
        await shown(app, pilot, OperationsScreen)
        assert app.state.filter_line == "run:run-8"
        await pilot.press("T")
        await shown(app, pilot, ReplayScreen)
        await pilot.press("O")
        await shown(app, pilot, OperationsScreen)
        assert len(app.screen_stack) == 1


async def test_a_filter_that_lets_no_run_through_says_so(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    await prepared(service, caller)
    async with running(paths, settings, "operations", (80, 24)) as (app, pilot):
        await shown(app, pilot, OperationsScreen)
        await pilot.press("t")
        await shown(app, pilot, RunsScreen)
        lines = ["", "type:query since:9y", "agent:nobody"]
        for before, line, found in zip(lines, lines[1:], (["run-8"], []), strict=False):
            await pilot.press("slash")
            await until(pilot, lambda: app.screen.query(Input))
            assert app.screen.query_one(Input).value == before
            app.screen.query_one(Input).value = line
            await pilot.press("enter")
            await shown_runs(app, pilot, found)
            await until(pilot, lambda: f"only: {line}" in screen_text(app))  # noqa: B023 - waited for
        assert "No run passes the filter" in screen_text(app)
        await pilot.press("T")
        assert toasts(app)[-1] == "No run is selected."


async def test_a_replay_begins_at_the_step_that_delivered_the_record(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    await write_notes(service, caller, NOTES[:1])
    agent = Caller(company_id="local", principal="agent:coding", channel="mcp", run_id="run-8")
    for asked in ("zebras", "deploy", "main"):
        await service.query(agent, QueryRequest(scope=SCOPE, query=asked))
    async with running(paths, settings, "records") as (app, pilot):
        await until(pilot, lambda: pointed_at(app) == NOTES[0])
        await pilot.press("T")
        await shown(app, pilot, RunsScreen)
        await pilot.press("enter")
        await shown(app, pilot, ReplayScreen)
        assert app.screen.query_one(VirtualList).cursor == 1
        details = app.screen.query_one(DetailPane)
        style, before = details.styles.border_left
        await pilot.press("enter")
        await until(pilot, lambda: details.has_focus)
        assert details.styles.border_left[0] == style
        assert details.styles.border_left[1] != before
