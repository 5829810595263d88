"""The conformance report on screen, over a real service and plugins on real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from memtui.app import MemtuiApp
from memtui.config import Paths, Settings, load_settings
from memtui.conformance import CHECKS, CheckResult, ConformanceReport
from memtui.conformance.wire import SeenReply, SentRequest
from memtui.screens.conformance import Conformance, as_text, columns, row_content
from memtui.screens.dialogs import Confirm
from memtui.service import Caller, MemoryService
from memtui.widgets.columns import fit_cell
from memtui.widgets.virtual_list import VirtualList
from tests.backends.plugin_v1.servers.loopback import Answer, Request, serve, talk
from tests.backends.plugin_v1.servers.minimal import Minimal
from tests.backends.plugin_v1.servers.reference import Reference
from tests.screens.hostile import HOSTILE, assert_content_harmless, assert_harmless, screen_text
from tests.screens.piloting import act, running, toasts, type_at_once, until
from tests.screens.test_namespaces import to_binding


@asynccontextmanager
async def opened(
    paths: Paths, settings: Settings, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[MemtuiApp, Pilot[Any], Conformance]]:
    """Open the report of the binding `plugin`."""
    async with running(paths, settings, "bindings", size) as (app, pilot):
        await to_binding(app, pilot, "plugin")
        await act(pilot, "bindings.conformance")
        await until(pilot, lambda: isinstance(app.screen, Conformance))
        assert isinstance(app.screen, Conformance)
        yield app, pilot, app.screen


def results(report: Conformance) -> list[CheckResult]:
    found: VirtualList[CheckResult] = report.query_one("#check-list", VirtualList)
    return [one for _, one in found.rows.held()]


async def run(app: MemtuiApp, pilot: Pilot[Any]) -> None:
    type_at_once(app, "c", "y")
    await until(pilot, lambda: isinstance(app.screen, Confirm))
    assert "its own namespaces" in screen_text(app)
    await pilot.press("y")


@pytest.mark.slow
async def test_a_run_shows_each_check_and_writes_the_report(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings, tmp_path: Path
) -> None:
    server = Minimal()
    file = tmp_path / "report.json"
    async with serve(talk(server)) as url:
        await service.bindings.add(caller, "plugin", "plugin-v1", {"url": url})
        async with opened(paths, settings) as (app, pilot, screen):
            assert not server.rows
            assert " checks; c runs them" in screen_text(app)
            assert "write JSON" in screen_text(app)
            await pilot.press("x")
            assert "no finished run" in toasts(app)[-1]
            await run(app, pilot)
            await until(pilot, lambda: len(results(screen)) == len(CHECKS))
            await until(pilot, lambda: screen._state == "done")
            assert [one.name for one in results(screen)] == [check.name for check in CHECKS]
            assert {one.outcome for one in results(screen)} == {"pass", "fail", "not_applicable"}
            assert "run again" in screen_text(app)
            assert "left on the server" in screen_text(app)
            await pilot.press("t", "g")
            await until(pilot, lambda: {one.outcome for one in results(screen)} == {"fail"})
            assert "Request" in screen_text(app)
            for answer in ("n", "y"):
                await pilot.press("x")
                await until(pilot, lambda: app.screen.query(Input))
                app.screen.query_one(Input).value = str(file)
                await pilot.press("enter")
                if answer == "y":
                    await until(pilot, lambda: isinstance(app.screen, Confirm))
                    file.write_text("mine")
                    await pilot.press("escape")
                    assert file.read_text() == "mine"
                else:
                    await until(pilot, file.exists)
                    found = ConformanceReport.model_validate(json.loads(file.read_text()))
                    assert found.failed == len(results(screen))


@pytest.mark.slow
async def test_a_run_is_stopped_and_cleans_up_and_leaving_stops_it_too(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    server = Reference()
    made: set[str] = set()

    def slow(request: Request) -> Answer:
        made.update(server.namespaces)
        return server(request)

    async def answer(request: Request, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(0.05)
        return await talk(slow)(request, writer)

    async with serve(answer) as url:
        await service.bindings.add(caller, "plugin", "plugin-v1", {"url": url})
        async with opened(paths, settings) as (app, pilot, screen):
            await run(app, pilot)
            await until(pilot, lambda: made)
            await pilot.press("ctrl+c")
            await until(pilot, lambda: screen._state == "stopped")
            assert "stopped after" in screen_text(app)
            assert not server.namespaces
            made.clear()
            await run(app, pilot)
            await until(pilot, lambda: made)
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(app.screen, Conformance))
            assert not server.namespaces
            assert not server.rows
            made.clear()
            await to_binding(app, pilot, "plugin")
            await act(pilot, "bindings.conformance")
            await until(pilot, lambda: isinstance(app.screen, Conformance))
            await run(app, pilot)
            await until(pilot, lambda: made)
        assert not server.namespaces, "leaving the app cleans up too"


@pytest.mark.slow
async def test_it_is_refused_read_only_and_for_what_is_no_plugin_and_says_a_dead_server(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    server = Reference()
    async with serve(talk(server)) as url:
        await service.bindings.add(caller, "plugin", "plugin-v1", {"url": url})
        locked = load_settings(paths, principal="user:ana", read_only=True)
        async with opened(paths, locked, (80, 24)) as (app, pilot, screen):
            await pilot.press("c")
            await until(pilot, lambda: "memtui was started with --read-only." in toasts(app))
            assert app.screen is screen
    async with running(paths, settings, "bindings") as (app, pilot):
        await to_binding(app, pilot, "default")
        await act(pilot, "bindings.conformance")
        await until(pilot, lambda: any("Only a memory plugin" in said for said in toasts(app)))
        await to_binding(app, pilot, "plugin")
        await act(pilot, "bindings.conformance")
        await until(pilot, lambda: isinstance(app.screen, Conformance))
        await run(app, pilot)
        await until(pilot, lambda: "✗ The memory plugin at" in screen_text(app))
        assert "c runs again" in screen_text(app)


@pytest.mark.parametrize("text", [text[:5_000] for text in HOSTILE])
def test_hostile_replies_are_harmless(text: str) -> None:
    one = CheckResult(
        name=text,
        rule=text,
        source=text,
        outcome="fail",
        detail=text,
        request=SentRequest(method="PUT", path=text, body=text),
        reply=SeenReply(status=200, content_type=text, body=text),
    )
    for column in columns():
        assert_harmless(fit_cell(column.of(one).text, column.width))
    assert_content_harmless(row_content(one, 60))
    assert as_text(one).startswith("✗")
