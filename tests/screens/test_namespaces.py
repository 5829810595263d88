"""The namespaces of a binding on screen, over a real service and a plugin on a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from memtui.app import MemtuiApp
from memtui.config import Paths, Settings, load_settings
from memtui.contract import BrowseRequest, Namespace, Scope
from memtui.screens.bindings.screen import BindingsScreen
from memtui.screens.dialogs import TypedConfirm
from memtui.screens.namespaces import NamespacesScreen, columns, row_content
from memtui.service import Caller, MemoryService
from memtui.widgets.columns import fit_cell
from memtui.widgets.frame import KeyFooter
from memtui.widgets.panes import OptionRows
from memtui.widgets.virtual_list import VirtualList
from tests.backends.plugin_v1.servers.loopback import serve, talk
from tests.backends.plugin_v1.servers.reference import Reference
from tests.screens.hostile import HOSTILE, assert_content_harmless, assert_harmless, screen_text
from tests.screens.piloting import act, click_on, running, toasts, until, write_notes

NOW = datetime(2026, 3, 9, 12, tzinfo=UTC)


async def prepared(service: MemoryService, caller: Caller, url: str, number: int = 3) -> None:
    """Bind a plugin, which serves the company, and write notes of the project `mech` into it."""
    await service.bindings.add(caller, "plugin", "plugin-v1", {"url": url})
    await service.bindings.set_target(caller, "company", "local", "plugin")
    await write_notes(service, caller, [f"Deploy number {one} from main" for one in range(number)])


@asynccontextmanager
async def opened(
    paths: Paths, settings: Settings, key: str = "plugin", size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[MemtuiApp, Pilot[Any]]]:
    """Open the namespaces of a binding."""
    async with running(paths, settings, "bindings", size) as (app, pilot):
        await to_binding(app, pilot, key)
        await act(pilot, "bindings.namespaces")
        await until(pilot, lambda: isinstance(app.screen, NamespacesScreen))
        yield app, pilot


async def to_binding(app: MemtuiApp, pilot: Pilot[Any], key: str) -> None:
    """Put the cursor on a binding."""
    screen = app.screen
    assert isinstance(screen, BindingsScreen)

    def places() -> list[int]:
        return [
            number
            for number, row in enumerate(screen._rows)
            if row.binding is not None and row.binding.key == key
        ]

    await until(pilot, places)
    screen.query_one(OptionRows).highlighted = places()[0]
    await pilot.pause()


def names(app: MemtuiApp) -> list[str]:
    found: VirtualList[Namespace] = app.screen.query_one("#namespace-list", VirtualList)
    return [one.name for _, one in found.rows.held()]


async def typed(pilot: Pilot[Any], text: str) -> None:
    """Answer the question that is asked."""
    await until(pilot, lambda: pilot.app.screen.query(Input))
    pilot.app.screen.query_one(Input).value = text
    await pilot.press("enter")


async def held(service: MemoryService, caller: Caller) -> list[str]:
    request = BrowseRequest(scope=Scope(company_id="local"), binding_key="plugin", limit=500)
    return sorted(record.text for record in (await service.browse(caller, request)).records)


@pytest.mark.slow
async def test_a_namespace_is_made_expires_and_is_deleted_and_its_records_come_back(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    server = Reference()
    async with serve(talk(server)) as url:
        await prepared(service, caller, url)
        before = await held(service, caller)
        async with opened(paths, settings) as (app, pilot):
            await until(pilot, lambda: "workspace:mech" in names(app))
            await pilot.press("a")
            await typed(pilot, "Not A Name")
            await typed(pilot, "")
            await until(pilot, lambda: any("is not a namespace" in said for said in toasts(app)))
            await until(pilot, lambda: app.screen.query_one(Input).value == "Not A Name")
            await typed(pilot, "custom:trial")
            await typed(pilot, "2d")
            await until(pilot, lambda: "custom:trial" in names(app))
            assert "expires_at" in server.namespaces["custom:trial"]
            await pilot.press("g", "K")
            await typed(pilot, "")
            await until(pilot, lambda: "expires_at" not in server.namespaces["custom:trial"])
            await until(pilot, lambda: "never" in screen_text(app))
            await pilot.press("G", "d")
            await until(pilot, lambda: isinstance(app.screen, TypedConfirm))
            assert "its 3 records" in screen_text(app)
            await typed(pilot, "workspace:mecha")
            assert "nothing was changed" in screen_text(app)
            assert "workspace:mech" in server.namespaces
            await typed(pilot, "workspace:mech")
            await until(pilot, lambda: "workspace:mech" not in names(app))
            assert "u brings the 3 records back" in toasts(app)[-1]
            assert await held(service, caller) == []
            await pilot.press("u")
            await until(pilot, lambda: "workspace:mech" in names(app))
            assert await held(service, caller) == before
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(app.screen, NamespacesScreen))


@pytest.mark.slow
async def test_what_cannot_be_listed_is_only_deleted_by_a_second_word(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    server = Reference()
    async with serve(talk(server)) as url:
        config = {"url": url, "max_searches": 1}
        await service.bindings.add(caller, "plugin", "plugin-v1", config)
        await service.namespaces.put(caller, "plugin", "workspace:mech")
        for number in range(130):
            body = {"content": f"Row {number}", "kind": "fact", "source": "agent"}
            server._write("workspace:mech", body)
        async with opened(paths, settings) as (app, pilot):
            await until(pilot, lambda: "workspace:mech" in names(app))
            assert "≥ 100" in screen_text(app)
            await pilot.press("G", "d")
            await until(pilot, lambda: isinstance(app.screen, TypedConfirm))
            assert "its 100 records or more" in screen_text(app)
            await typed(pilot, "workspace:mech")
            await until(pilot, lambda: "nobody can bring back" in screen_text(app))
            assert "workspace:mech" in server.namespaces
            await typed(pilot, "workspace:mech")
            assert "workspace:mech" in server.namespaces
            await typed(pilot, "for good")
            await until(pilot, lambda: "workspace:mech" not in names(app))
            assert "the others are gone for good" in toasts(app)[-1]


async def test_a_provider_without_namespaces_of_its_own_and_read_only_say_why(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    async with serve(talk(Reference())) as url:
        await prepared(service, caller, url, 1)
        async with opened(paths, settings, "default", (80, 24)) as (app, pilot):
            await until(pilot, lambda: "makes and removes no namespaces" in screen_text(app))
            await pilot.press("a")
            await until(pilot, lambda: "makes and removes no namespaces" in toasts(app)[-1])
        locked = load_settings(paths, principal="user:ana", read_only=True)
        async with opened(paths, locked) as (app, pilot):
            await until(pilot, lambda: "workspace:mech" in names(app))
            await pilot.press("d")
            await until(pilot, lambda: "memtui was started with --read-only." in toasts(app))
            assert isinstance(app.screen, NamespacesScreen)


async def test_the_mouse_opens_it_and_goes_back(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    async with running(paths, settings, "bindings") as (app, pilot):
        await to_binding(app, pilot, "default")
        more = app.screen.query_one("#binding-more", KeyFooter)
        await until(pilot, lambda: more.entries)
        await until(pilot, lambda: "ctrl+p palette  namespaces" in screen_text(app))
        await click_on(pilot, more.entries[1].label)
        await until(pilot, lambda: isinstance(app.screen, NamespacesScreen))
        footer = app.screen.query_one("#modal-footer", KeyFooter)
        await until(pilot, lambda: footer.entries)
        await click_on(pilot, f"{footer.entries[-1].key} {footer.entries[-1].label}")
        await until(pilot, lambda: not isinstance(app.screen, NamespacesScreen))
        await act(pilot, "bindings.migrate")
        assert "no other binding" in toasts(app)[-1]


async def test_a_plugin_that_is_gone_is_said(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    async with serve(talk(Reference())) as url:
        await prepared(service, caller, url, 1)
    async with opened(paths, settings) as (app, pilot):
        await until(pilot, lambda: "r reads again" in screen_text(app))
        assert "✗" in screen_text(app)


@pytest.mark.parametrize("text", [text[:5_000] for text in HOSTILE])
def test_hostile_namespaces_are_harmless(text: str) -> None:
    one = Namespace(
        name=text, kind=text, expires_at=NOW + timedelta(days=1), metadata={text: [text]}
    )
    for column in columns(lambda: NOW):
        assert_harmless(fit_cell(column.of(one).text, column.width))
    assert_content_harmless(row_content(one, NOW, UTC, 60))
