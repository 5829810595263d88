"""A screen is painted as often as it looks otherwise, and not more often."""

from __future__ import annotations

from typing import Any

from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.message import Message
from textual.widgets import Static

from memtui.widgets.dimmed import DimmingScreen
from memtui.widgets.sized import SizedScreen
from tests.screens.hostile import screen_text
from tests.screens.piloting import until


class Below(SizedScreen[None]):
    def compose(self) -> ComposeResult:
        yield Static("before")


class Told(Message):
    """Anything that happens."""


class Over(DimmingScreen[None]):
    CSS = "Over { background: black 60%; }"

    def __init__(self) -> None:
        super().__init__()
        self.painted: list[tuple[Region, ...]] = []

    def refresh(self, *regions: Region, **how: Any) -> Any:
        if regions:
            self.painted.append(regions)
        return super().refresh(*regions, **how)


async def test_under_a_dialog_what_changed_is_painted_once() -> None:
    app: App[None] = App()
    async with app.run_test(size=(20, 3)) as pilot:
        below, over = Below(), Over()
        await app.push_screen(below)
        await app.push_screen(over)
        await pilot.pause()
        below._on_timer_update()  # what it has to paint itself may come after the pause
        over.painted.clear()
        below.query_one(Static).update("after")
        await until(pilot, lambda: over.painted)
        assert "after" in screen_text(app)
        below.post_message(Told())
        await pilot.pause()
        below._on_timer_update()
        assert len(over.painted) == 1
