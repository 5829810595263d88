"""Every action of every screen, at moments at which it has nothing to work on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

import memtui.service
from memtui.actions import ACTIONS, SCREENS, Need, groups_on
from memtui.app import MemtuiApp
from memtui.config import Paths, Settings
from memtui.contract import BrowseRequest, Scope, Unavailable
from memtui.screens.dialogs import Choose, Waiting
from memtui.screens.state import Phase
from memtui.service import Caller, MemoryService, open_service
from memtui.widgets.virtual_list import VirtualList
from tests.screens.held import Gate, Held
from tests.screens.hostile import screen_text
from tests.screens.piloting import Watched, type_at_once, until, write_notes

LEAVES = {"app.quit", "app.suspend"}
"""Actions that leave the app, or stop its process."""
OF_ROWS = set(Need) - {
    Need.SERVICE,
    Need.WRITABLE,
    Need.TAKES_CHANGES,
    Need.NOW,
    Need.CHARTS,
    Need.SQL,
    Need.TABLE,
}
EVERYWHERE = Scope(company_id="local")
MODES = [tab.mode for tab in SCREENS]


@pytest.fixture(autouse=True)
def _empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Discovery looks at the home folder; give it one without memories."""
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path / "user")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """What every answer of the app's service waits at."""
    held = Gate()

    async def open_held(*arguments: Any, **named: Any) -> Any:
        await held.through()
        return Held(await open_service(*arguments, **named), held)

    monkeypatch.setattr(memtui.service, "open_service", open_held)
    return held


@asynccontextmanager
async def running(
    paths: Paths, settings: Settings, screen: str = "records"
) -> AsyncIterator[tuple[Watched, Pilot[None]]]:
    app = Watched(paths, settings, screen=screen)
    async with app.run_test(size=(100, 24)) as pilot:
        yield app, pilot


async def walk(app: Watched, pilot: Pilot[None], *, waits: bool = False) -> None:
    """Do everything that can be done on each screen; `waits`: no row is there yet.

    What the screens share is done once for each widget that carries it out.
    """
    done: set[str] = set()
    for mode in MODES:
        await app.run_action(f"go_{mode}")
        frame = app.frame
        assert frame is not None
        for action_id in frame.action_ids():
            action = ACTIONS[action_id]
            if action_id in LEAVES or action.group in done:
                continue
            reason = frame.why_disabled(action_id)
            if waits and OF_ROWS.intersection(action.needs):
                assert reason, f"{action_id} has nothing to work on and does not say so"
            await frame.perform(action_id)
            if reason:
                assert reason in app.told, action_id
                assert app.screen is app.frame, action_id
                continue
            await pilot.pause()
            assert app.is_running, action_id
            while app.screen is not app.screen_stack[0]:
                await app.screen.dismiss(None)
            if app.frame is not frame:
                await app.run_action(f"go_{mode}")
        done.update(set(groups_on(mode)[1:]) - ({"list"} if mode == MODES[0] else set()))


async def leave(app: Watched) -> None:
    await app.run_action("quit")
    assert app.return_code == 0


async def test_before_the_service_is_open_and_where_nothing_is_or_can_be_read(
    paths: Paths, settings: Settings, gate: Gate
) -> None:
    gate.close()
    async with running(paths, settings) as (app, pilot):
        await walk(app, pilot, waits=True)
        assert app.state.phase is Phase.OPENING
        gate.open()
        await until(pilot, lambda: app.state.phase is Phase.READY)
        await walk(app, pilot)
        gate.error = Unavailable("The database is locked; close the other memtui.")
        await walk(app, pilot)
        await leave(app)


async def test_it_is_left_before_the_service_is_open(
    paths: Paths, settings: Settings, gate: Gate
) -> None:
    gate.close()
    async with running(paths, settings) as (app, _):
        await leave(app)


async def test_while_all_that_is_shown_is_being_read(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller, gate: Gate
) -> None:
    await write_notes(service, caller, ["one", "two"])
    async with running(paths, settings, "query") as (app, pilot):
        await until(pilot, lambda: app.state.phase is Phase.READY)
        gate.close()
        await walk(app, pilot, waits=True)
        await leave(app)


async def test_what_is_typed_while_a_picker_is_read_goes_to_the_picker(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller, gate: Gate
) -> None:
    await write_notes(service, caller, ["one"], project="bulk")
    async with running(paths, settings) as (app, pilot):
        await until(pilot, lambda: app.state.binding)
        gate.close()
        type_at_once(app, *"sbulk")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        await until(pilot, lambda: app.screen.query_one(Input).value == "bulk")
        assert "reading" in screen_text(app)
        await pilot.press("enter")
        assert isinstance(app.screen, Choose)
        gate.open()
        await until(pilot, lambda: app.state.scope.project_id == "bulk")
        assert app.frame is not None
        assert app.frame.MODE == "records"


def listed(app: MemtuiApp) -> VirtualList[Any]:
    assert app.frame is not None
    return app.frame.query_one(VirtualList)


async def test_taking_back_waits_for_the_change_and_gives_what_was_typed_to_the_question(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller, gate: Gate
) -> None:
    await write_notes(service, caller, ["one"])
    async with running(paths, settings) as (app, pilot):
        await until(pilot, lambda: listed(app).current is not None)
        gate.close()
        type_at_once(app, *"uy")
        await until(pilot, lambda: isinstance(app.screen, Waiting))
        assert not app.told
        gate.open()
        await until(pilot, lambda: any(one.startswith("Undone") for one in app.told))
        gate.close()
        await pilot.press("U", "U")
        gate.open()
        await until(pilot, lambda: any("nothing to redo" in one for one in app.told))
        assert sum(one.startswith("Redone") for one in app.told) == 1
        type_at_once(app, *"uy")  # what is read at once
        await until(pilot, lambda: sum(one.startswith("Undone") for one in app.told) == 2)


async def test_what_was_undone_is_redone_on_any_screen_until_something_else_changes(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["one"])
    await write_notes(service, caller, ["two"])
    async with running(paths, settings) as (app, pilot):
        await until(pilot, lambda: listed(app).current is not None)

        async def undo(name: str) -> None:
            before = len(app.told)
            await pilot.press("u")
            await until(pilot, lambda: f"(“{name}”)?" in screen_text(app))
            await pilot.press("y")
            await until(pilot, lambda: any("U redoes it" in one for one in app.told[before:]))

        async def redo(said: str) -> None:
            before = len(app.told)
            await pilot.press("U")
            await until(pilot, lambda: any(said in one for one in app.told[before:]))

        async def there() -> set[str]:
            page = await service.browse(caller, BrowseRequest(scope=EVERYWHERE))
            return {one.text for one in page.records}

        await undo("two")
        await undo("one")
        await pilot.press("1")
        await redo("Redone: “one”")
        assert await there() == {"one"}
        await pilot.press("2")
        await redo("Redone: “two”")
        assert await there() == {"one", "two"}
        await pilot.press("4")
        await undo("two")
        await pilot.press("p")
        await until(pilot, lambda: "Pinned. u undoes it." in app.told)
        await redo("nothing to redo")
        assert await there() == {"one"}


async def test_what_is_stopped_while_it_is_waited_for_changes_nothing(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller, gate: Gate
) -> None:
    await write_notes(service, caller, ["one"])
    async with running(paths, settings) as (app, pilot):
        await until(pilot, lambda: listed(app).current is not None)
        gate.close()
        await pilot.press("u", "y", "escape")
        await until(pilot, lambda: app.screen is app.frame)
        gate.open()
        await pilot.pause()
        assert app.screen is app.frame
        assert not app.told
    assert (await service.browse(caller, BrowseRequest(scope=EVERYWHERE))).records
