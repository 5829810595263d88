"""Two bindings kept in sync on screen, over a real service and two vaults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from textual.pilot import Pilot

from memtui.app import MemtuiApp
from memtui.config import Paths, Settings, load_settings
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    ForgetRequest,
    Record,
    RecordHandle,
    Scope,
)
from memtui.migration.moving import Failure
from memtui.migration.syncing import Divided, HeldBack, Synced
from memtui.screens.dialogs import Choose, Confirm
from memtui.screens.in_sync import InSyncScreen, conflict_content, rows_of, status_words
from memtui.screens.steps import columns
from memtui.service import Caller, MemoryService
from memtui.widgets.columns import fit_cell
from tests.screens.hostile import HOSTILE, assert_content_harmless, assert_harmless, screen_text
from tests.screens.piloting import act, running, toasts, until, write_notes
from tests.screens.test_namespaces import to_binding, typed

SCOPE = Scope(company_id="local")


@asynccontextmanager
async def opened(
    paths: Paths, settings: Settings, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[MemtuiApp, Pilot[Any], InSyncScreen]]:
    """Open both bindings and wait for the dry run."""
    async with running(paths, settings, "bindings", size) as (app, pilot):
        await to_binding(app, pilot, "default")
        await act(pilot, "bindings.in_sync")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        await typed(pilot, "copy")
        await until(pilot, lambda: isinstance(app.screen, InSyncScreen))
        screen = app.screen
        assert isinstance(screen, InSyncScreen)
        await settled(pilot, screen)
        yield app, pilot, screen


async def settled(pilot: Pilot[Any], screen: InSyncScreen) -> None:
    await until(pilot, lambda: pilot.app.screen is screen and not screen.run.busy)


async def pressed(pilot: Pilot[Any], screen: InSyncScreen, key: str) -> None:
    await pilot.press(key)
    await settled(pilot, screen)


async def held(service: MemoryService, caller: Caller, key: str) -> dict[str, Record]:
    request = BrowseRequest(scope=SCOPE, binding_key=key, limit=500)
    return {one.text: one for one in (await service.browse(caller, request)).records}


async def edited(service: MemoryService, caller: Caller, key: str, old: str, new: str) -> None:
    one = (await held(service, caller, key))[old]
    request = CorrectRequest(scope=one.scope, handle=one.handle, text=new, binding_key=key)
    await service.correct(caller, request)


@pytest.mark.slow
async def test_looked_at_synced_decided_and_deleted(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    await write_notes(service, caller, [f"Deploy number {one} from main" for one in range(6)])
    await service.bindings.add(caller, "copy", "vault", {})
    async with opened(paths, settings) as (app, pilot, screen):
        assert "6 to be written" in screen_text(app)
        assert await held(service, caller, "copy") == {}
        await pressed(pilot, screen, "a")
        assert len(await held(service, caller, "copy")) == 6
        await pilot.press("d")
        assert "No deletion is held back" in toasts(app)[-1]
        for key in ("default", "copy"):
            old = "Deploy number 1 from main"
            await edited(service, caller, key, old, f"Deploy 1 as {key} says")
        for number in (2, 3):
            gone = (await held(service, caller, "copy"))[f"Deploy number {number} from main"]
            request = ForgetRequest(scope=SCOPE, handles=(gone.handle,), binding_key="copy")
            await service.forget(caller, request)
        await pressed(pilot, screen, "a")
        shown = screen_text(app)
        assert "conflict: changed on both sides" in shown
        assert "1 conflict" in shown
        assert "2 deletions held back" in shown
        await pilot.press("K", *"copy", "enter")
        await settled(pilot, screen)
        assert "Both sides have what copy says now." in toasts(app)[-1]
        assert "Deploy 1 as copy says" in await held(service, caller, "default")
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert "Delete 2 records: 2 from default?" in screen_text(app)
        await pilot.press("y")
        await settled(pilot, screen)
        both = [await held(service, caller, key) for key in ("default", "copy")]
        assert both[0].keys() == both[1].keys()
        assert len(both[0]) == 4
        await pilot.press("escape")
        await until(pilot, lambda: "⇄ copy" in screen_text(app))


@pytest.mark.slow
async def test_in_read_only_it_is_looked_at_alone(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await write_notes(service, caller, ["Deploy from main"])
    await service.bindings.add(caller, "copy", "vault", {})
    locked = load_settings(paths, principal="user:ana", read_only=True)
    async with opened(paths, locked, (80, 24)) as (app, pilot, _):
        assert "1 to be written" in screen_text(app)
        await pilot.press("a")
        assert "memtui was started with --read-only." in toasts(app)[-1]
    assert await held(service, caller, "copy") == {}


@pytest.mark.parametrize("text", [text[:5_000] for text in HOSTILE])
def test_hostile_words_are_harmless(text: str) -> None:
    handle = RecordHandle(provider_key="vault", provider_record_id="a.md")
    hostile = Record(handle=handle, scope=SCOPE, text="").model_copy(update={"text": text})
    one = Divided(what="changed on both sides", records=(hostile, None))
    found = Synced(
        left=text, right=text, written={text: 1}, conflicts=(one,), failed=1,
        held_back=(HeldBack(key=text, record_ids=(text,), reason=text),),
        failures=(Failure(record_id=text, reason=text),),
    )  # fmt: skip
    for row in rows_of(found):
        for column in columns():
            assert_harmless(fit_cell(column.of(row).text, column.width))
    assert_content_harmless(conflict_content(one, (text, text), 60))
    assert_content_harmless(status_words(found))
