"""What a binding's provider reads again and says of a scope, on screen 1."""

from __future__ import annotations

from memtui.config import Paths, Settings
from memtui.screens.dialogs import Sheet
from memtui.service import Caller, MemoryService
from tests.screens.hostile import HOSTILE, assert_harmless, screen_text
from tests.screens.piloting import running, toasts, until, write_notes
from tests.screens.test_namespaces import to_binding


async def test_a_binding_is_read_again_and_says_what_it_knows(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await service.bindings.add(caller, "hosted", "demo-hosted", {})
    await service.bindings.set_target(caller, "project", "mech", "hosted")
    texts = HOSTILE[:8]
    await write_notes(service, caller, texts)
    await write_notes(service, caller, ["Deploys from main"], project="web")
    async with running(paths, settings, "bindings", size=(80, 24)) as (app, pilot):
        await to_binding(app, pilot, "default")
        await pilot.press("P")
        await until(pilot, lambda: "This provider makes no profiles." in toasts(app))
        await pilot.press("R")
        await until(pilot, lambda: "Saw 1 record, changed 0, removed 0" in screen_text(app))
        await pilot.press("escape")
        await to_binding(app, pilot, "hosted")
        await pilot.press("P")
        await until(pilot, lambda: f"{len(texts)} memories" in screen_text(app))
        assert isinstance(app.screen, Sheet)
        assert "What hosted says of the whole company" in screen_text(app)
        assert_harmless(screen_text(app))
        await pilot.press("escape", "R")
        await until(pilot, lambda: "This provider has nothing to sync." in toasts(app))
