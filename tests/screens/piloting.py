"""Drive the real app over a real service and vault."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from time import monotonic
from typing import Any

from rich.cells import cell_len
from textual.app import App
from textual.events import Key, MouseDown, MouseUp
from textual.pilot import Pilot

from memtui.app import MemtuiApp
from memtui.config import Paths, Settings
from memtui.contract import Record, Scope, SourceKind, SourceRef, WriteRequest
from memtui.service import Caller, MemoryService
from memtui.widgets.dimmed import DimmingScreen
from memtui.widgets.filter_line import FilterLine
from tests.screens.hostile import screen_text

_LONGEST_SECONDS = 60


class Watched(MemtuiApp):
    """Keeps the messages of all toasts, which disappear after some seconds.

    It looks for risks only where a test asks: each look reads records, and the log shows that.
    """

    RISKS_SECONDS = 3_600

    told: tuple[str, ...] = ()

    def notify(self, message: str, **options: Any) -> None:
        """Keep it too."""
        self.told = (*self.told, message)
        super().notify(message, **options)


async def until(pilot: Pilot[Any], true: Callable[[], object]) -> None:
    """Let the app run until something is true and the app is idle; fails if it never is.

    A question that is shown then takes keys, also one that has to be seen first.
    """

    def done() -> object:
        questions = (one for one in pilot.app.screen_stack if isinstance(one, DimmingScreen))
        return true() and all(one.takes_since < inf for one in questions)

    await pilot.pause()
    end = monotonic() + _LONGEST_SECONDS
    while not done():
        assert monotonic() < end, "it never came true"
        await asyncio.sleep(0.01)
        if done():
            await pilot.pause()


@asynccontextmanager
async def running(
    paths: Paths,
    settings: Settings,
    screen: str,
    size: tuple[int, int] = (120, 40),
    **options: Any,
) -> AsyncIterator[tuple[MemtuiApp, Pilot[Any]]]:
    """Run the app on one of its screens until its service is open."""
    app = Watched(paths, settings, screen=screen, **options)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: app.state.session and app.state.binding)
        yield app, pilot


def counted(app: MemtuiApp) -> str:
    """Return what stands at the right end of the filter line."""
    assert app.frame is not None
    return app.frame.query_one(FilterLine).count


async def act(pilot: Pilot[Any], action_id: str) -> None:
    """Do an action as the palette does, such as one without a key."""
    assert isinstance(pilot.app, MemtuiApp)
    assert pilot.app.frame is not None
    await pilot.app.frame.perform(action_id)
    await pilot.pause()


def type_at_once(app: App[Any], *keys: str) -> None:
    """Press keys faster than any of them can have its effect."""
    for key in keys:
        app.post_message(Key(key, key if len(key) == 1 else None))


async def click_on(pilot: Pilot[Any], text: str) -> None:
    """Click on the lowest line where a text is painted, on its first letter.

    The mouse goes down and up at once: what is read meanwhile may move the line elsewhere.
    """
    await until(pilot, lambda: text in screen_text(pilot.app))
    app = pilot.app
    lines = screen_text(app).split("\n")
    row = max(number for number, line in enumerate(lines) if text in line)
    column = cell_len(lines[row].partition(text)[0])
    for sort in (MouseDown, MouseUp):
        await app.on_event(
            sort(app.screen, column, row, 0, 0, 1, shift=False, meta=False, ctrl=False)
        )
    await pilot.pause()


async def write_notes(
    service: MemoryService, caller: Caller, texts: Sequence[str], project: str = "mech"
) -> list[Record]:
    """Write notes as comments of an issue, through the service."""
    written: list[Record] = []
    for number, text in enumerate(texts, start=1):
        answer = await service.write(
            caller,
            WriteRequest(
                scope=Scope(company_id="local", project_id=project, run_id="run-7"),
                source=SourceRef(
                    kind=SourceKind.ISSUE_COMMENT,
                    company_id="local",
                    issue_id="ISS-31",
                    comment_id=str(number),
                ),
                content=text,
            ),
        )
        written.extend(answer.records)
    return written


def toasts(app: MemtuiApp) -> list[str]:
    """Return what the toasts said."""
    assert isinstance(app, Watched)
    return list(app.told)
