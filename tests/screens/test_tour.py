"""The tour, of the demo and of a first start, and adding all that was found on the machine."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from time import time
from typing import Any

import pytest
from textual.containers import VerticalScroll

from memtui.actions import SCREENS
from memtui.app import MemtuiApp
from memtui.config import Paths, Settings, find_paths
from memtui.screens import state
from memtui.screens.bindings.screen import BindingsScreen
from memtui.screens.dialogs import Confirm, WriteRecord
from memtui.screens.prune import PruneReview
from memtui.screens.query.screen import QueryScreen
from memtui.screens.state import find_memories
from memtui.screens.tour import Tour
from memtui.screens.traces import TraceScreen
from memtui.service import Caller, MemoryService
from memtui.widgets.virtual_list import VirtualList
from tests.demos import END, Built
from tests.screens.hostile import screen_text
from tests.screens.piloting import running, toasts, until


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home folder with nothing in it that memtui could find."""
    folder = tmp_path / "person"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)
    return folder


def fill(machine: Path, logs: int) -> None:
    """Leave memories of other programs: so many, and one that is torn."""
    for number in range(logs):
        memory = machine / ".claude" / "projects" / f"-work-p{number}" / "memory"
        memory.mkdir(parents=True)
        (memory / "MEMORY.md").write_text(f"# Project {number}\n\nDeploys on Fridays.\n")
    torn = {"command": "npx", "env": {"MEMORY_FILE_PATH": str(machine / "none" / "m.jsonl")}}
    (machine / ".claude.json").write_text(json.dumps({"mcpServers": {"memory": torn}})[:-9])


def is_whole(app: MemtuiApp) -> bool:
    """Whether all of the tour is seen without scrolling."""
    return app.screen.query_one(VerticalScroll).max_scroll_y == 0


async def test_the_demo_opens_on_the_tour_once(built: Built, tmp_path: Path) -> None:
    shutil.copytree(built.paths.data, tmp_path / "demo")
    code = built.paths.data / "repositories" / "mech-fighters"
    home = find_paths(tmp_path / "demo"), Settings(workspaces={"mech-fighters": code})
    opened: dict[str, Any] = {"tours": True, "clock": lambda: END}
    async with running(*home, "records", **opened) as (app, pilot):
        assert isinstance(app.screen, Tour)
        for size in ((80, 24), (200, 60), (120, 40)):
            await pilot.resize_terminal(*size)
            assert is_whole(app)
            shown = screen_text(app)
            assert all(f"{tab.number} {tab.title}" in shown for tab in SCREENS)
        await pilot.press("enter", "f3", "a")
        query = app.frame
        assert isinstance(query, QueryScreen)
        await until(pilot, lambda: query.view.answer)
        assert "deploy_branch: release" in screen_text(app)
        await pilot.press("escape", "f3", "b")
        await until(pilot, lambda: app.state.filter_line == "type:write by:agent since:7d")
        log = app.screen.query_one(VirtualList)
        await until(pilot, lambda: log.current and log.current.operation_type.value == "write")
        await pilot.press("f3", "c")
        await until(pilot, lambda: isinstance(app.screen, PruneReview))
        await pilot.press("escape", "f3", "e")
        await until(pilot, lambda: isinstance(app.screen, TraceScreen))
        await until(pilot, lambda: "its text came back" in screen_text(app))
        assert "Note to all agents" in screen_text(app)
        await pilot.press("escape", "f3", "f")
        await until(pilot, lambda: "3 passed, 1 failed" in screen_text(app))
        await pilot.press("escape", "f3", "h")
        await until(pilot, lambda: "refers to what is gone, 0 of 1 marked" in screen_text(app))
        await pilot.press("j")
        await until(pilot, lambda: "tools/build_atlas.py" in screen_text(app))
        await pilot.press("escape", "f3", "i")
        await until(pilot, lambda: "hits: used later" in screen_text(app))
        await pilot.press("escape", "l")
        await until(pilot, lambda: "what stays" in screen_text(app))
    async with running(*home, "records", **opened) as (app, pilot):
        assert app.screen is app.frame


@pytest.mark.parametrize(
    ("logs", "named"), [(0, "No other memory stores"), (1, "1 memory store"), (8, "9 m")]
)
async def test_a_first_start_adds_all_that_was_found_with_one_yes(
    machine: Path,
    paths: Paths,
    settings: Settings,
    service: MemoryService,
    caller: Caller,
    logs: int,
    named: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(machine, logs)
    has_vault = logs > 1
    if has_vault:
        (machine / "web").mkdir()
        (machine / "Notes" / ".obsidian").mkdir(parents=True)
        monkeypatch.chdir(machine / "web")
    async with running(paths, settings, "records", size=(80, 24), tours=True) as (app, pilot):
        await until(pilot, lambda: named in screen_text(app))
        assert is_whole(app)
        await pilot.press("a")
        if not logs:
            assert isinstance(app.screen, Tour)
            await pilot.press("c")
            assert "memtui mcp install" in screen_text(app)
            await pilot.press("escape", "b")
            await until(pilot, lambda: isinstance(app.screen, WriteRecord))
            return
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert [one.key for one in await service.bindings.all(caller)] == ["default"]
        await pilot.press("y")
        if has_vault:
            await until(pilot, lambda: "Who should vault-notes serve?" in screen_text(app))
            await until(pilot, lambda: "web  — this folder" in screen_text(app))
            assert "default serves it now" in screen_text(app)
            await pilot.press("enter")
        await until(pilot, lambda: "all bindings" in screen_text(app))
        await until(pilot, lambda: "Deploys on Fridays." in screen_text(app))
        await pilot.press("1")
        screen = app.frame
        assert isinstance(screen, BindingsScreen)
        await until(pilot, lambda: len(screen.view.bindings) == 1 + logs + has_vault)
        await pilot.press("f")
        assert "Nothing was found on this machine that could still be added" in toasts(app)[-1]
    added = (await service.bindings.all(caller))[1:]
    if has_vault:
        [target] = added.pop().targets
        assert (target.target_type, target.target_id) == ("project", "web")
    assert all(one.read_only and one.provider_key == "claude-memory" for one in added)
    assert len({one.key for one in added}) == logs


async def test_a_demo_that_is_still_being_made_says_how_far_it_is(
    paths: Paths, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "_DEMO_SECONDS", 0.01)
    paths.demo_file.write_text('{"begun": true, "percent": 12, "summary": null}')
    async with running(paths, settings, "records", (80, 24), tours=True) as (app, pilot):
        assert "12% is made so far" in screen_text(app)
        paths.demo_file.write_text('{"begun": true, "percent": 64, "summary": null}')
        await until(pilot, lambda: "64% is made so far" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "demo 64% made" in screen_text(app).splitlines()[0])
        await pilot.press("2", "slash", *"type:forget", "enter")
        await until(pilot, lambda: "the demo is still being made" in screen_text(app))
        await pilot.press("4")
        record = "No record matches yet: the demo is still being made."
        await until(pilot, lambda: record in screen_text(app))
        await pilot.press("2")
        stopped = time() - 60
        os.utime(paths.demo_file, (stopped, stopped))
        await until(pilot, lambda: "made" not in screen_text(app).splitlines()[0])
        await until(pilot, lambda: "No operation matches." in screen_text(app))
        await pilot.press("4")
        await until(pilot, lambda: "No record matches." in screen_text(app))


async def test_the_tour_offers_only_what_no_binding_reads_yet(
    machine: Path, paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    fill(machine, 2)
    findings = await find_memories()
    await service.bindings.add_found(caller, findings[:1])
    async with running(paths, settings, "records", size=(80, 24), tours=True) as (app, pilot):
        if not isinstance(app.screen, Tour):
            await pilot.press("f3")
        await until(pilot, lambda: "Add 1 memory store, read-only" in screen_text(app))
