"""Pictures of the screens, made without a terminal."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from textual.pilot import Pilot
from textual.strip import Strip

from memtui.app import MemtuiApp
from memtui.config import Paths, Settings
from memtui.contract import Scope, Unavailable
from memtui.filters import parse_filter
from memtui.screens.picture import lines_of, picture_of
from memtui.screens.state import GoTo, Phase
from memtui.screens.themes import check_theme
from memtui.widgets.background import is_talk

_LONGEST_SECONDS = 60.0
_LOOK_SECONDS = 0.1
_STANDING = "records-watch"
"""Group of a worker that runs as long as its screen, so it is not waited for."""
_STILL = 3
"""Equal looks in a row before a screen counts as complete."""


@dataclass(frozen=True, slots=True)
class Shot:
    """The content of a picture."""

    screen: str
    """The name of a numbered screen."""
    owner: Mapping[str, str | None] = field(default_factory=dict)
    """Fields of the scope; empty: the whole company."""
    filter_line: str = ""
    keys: tuple[str, ...] = ()
    """Keys to press before the picture is taken."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A screen as SVG."""

    svg: str
    is_whole: bool
    """Whether the screen was complete; False: it was still reading after a minute."""


async def take(
    paths: Paths,
    settings: Settings,
    shots: Iterable[Shot],
    *,
    size: tuple[int, int],
    company: str | None = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> list[Picture]:
    """Open the app without a terminal, and return a picture of each shot once it is complete.

    Its reads are logged as the app's own; no memory or setting is changed.

    Args:
        paths: The home.
        settings: Its settings.
        shots: The shots, in order.
        size: Columns and rows.
        company: The company, by id or name; None: the last one shown.
        clock: Returns the present moment.

    Raises:
        Invalid: a screen or theme is unknown, or a filter line does not parse.
        MemtuiError: the service cannot be opened.
        Unavailable: the app stopped.
    """
    shots = list(shots)
    for shot in shots:
        parse_filter(shot.filter_line, now=clock())
    check_theme(settings.theme)
    settings = settings.model_copy(update={"purge_after_days": 0})
    app = MemtuiApp(
        paths, settings, company=company, screen=shots[0].screen, clock=clock, unseen=True
    )
    taken: list[Picture] = []

    async def look(pilot: Pilot[Any]) -> None:
        try:
            await _until_read(app)
            for shot in shots:
                while len(app.screen_stack) > 1:
                    await app.pop_screen()
                whole = Scope(company_id=app.state.scope.company_id)
                scope = whole.model_copy(update=dict(shot.owner))
                app.post_message(
                    GoTo(shot.screen, filter_line=shot.filter_line, scope=scope, binding_key="")
                )
                is_whole = await _until_read(app)
                for key in shot.keys:
                    await pilot.press(key)
                    is_whole = await _until_read(app)
                taken.append(Picture(picture_of(app), is_whole))
        finally:
            app.exit()

    await app.run_async(headless=True, size=size, auto_pilot=look)
    if app.state.failure is not None:
        raise app.state.failure
    if len(taken) < len(shots):
        raise Unavailable(f"memtui stopped before there was a picture; see {paths.log_file}.")
    return taken


async def _until_read(app: MemtuiApp) -> bool:
    """Wait until the app reads nothing and its screen stays the same; False: it timed out."""
    end, still = monotonic() + _LONGEST_SECONDS, 0
    before: list[Strip] = []
    while still < _STILL:
        if monotonic() > end:
            return False
        await asyncio.sleep(_LOOK_SECONDS)
        now = [] if _reads(app) else lines_of(app)
        still = still + 1 if now and now == before else 0
        before = now
    return True


def _reads(app: MemtuiApp) -> bool:
    state, frame = app.state, app.frame
    if state.phase is Phase.FAILED:
        return False
    if state.phase is Phase.OPENING or frame is None:
        return True
    is_checked = state.health is not None or bool(state.resolution_problem)
    at_work = (one for one in app.workers if one.is_running and not is_talk(one))
    reads = any(not one.group.startswith(_STANDING) for one in at_work)
    return not is_checked or frame.reading or reads
