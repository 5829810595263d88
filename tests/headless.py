"""The app under test waits, paints and parses no more than a test needs.

Textual's pilot takes an app for idle that used little of the processor for 20 ms, and asks that
three times a key. Each frame is painted though nobody looks, and each app reads the same styles.
That was two thirds of what a test of a screen took.
"""

from __future__ import annotations

import asyncio
from functools import cache
from time import process_time
from typing import Any

from textual import app as textual_app
from textual import pilot as textual_pilot
from textual._context import active_app
from textual.app import App
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot
from textual.screen import Screen

_STANDING = "records-watch"
"""The group of the one worker that runs as long as its screen."""
_TURN_SECONDS = 0.002
_QUIET_SECONDS = 0.02
_USED_SECONDS = 0.0005

_paint: Any = Screen._compositor_refresh
_parse = Stylesheet._parse_rules


def pytest_configure() -> None:
    """Let every app of this process be one of these."""
    for owner, name, ours in (
        (textual_app, "wait_for_idle", wait_for_idle),
        (textual_pilot, "wait_for_idle", wait_for_idle),
        (Pilot, "_wait_for_screen", _wait_for_screen),
        (Screen, "_compositor_refresh", _paint_later),
        (Stylesheet, "_parse_rules", _parse_once),
    ):
        setattr(owner, name, ours)


async def wait_for_idle(_min_sleep: float = 0, max_sleep: float = 1) -> None:
    """Return once the event loop has nothing at hand, no worker runs and no layout is due.

    Where a worker waits for the test itself, Textual's rule decides. The longest is `max_sleep`
    seconds.
    """
    app = active_app.get()
    loop: Any = asyncio.get_running_loop()
    quiet_since = loop.time()
    end = quiet_since + max_sleep
    while loop.time() < end:
        used = process_time()
        await asyncio.sleep(0)
        if not loop._ready and not _works(app) and not _was_put_off(app):
            return
        await asyncio.sleep(_TURN_SECONDS)
        if process_time() - used > _USED_SECONDS:
            quiet_since = loop.time()
        elif loop.time() - quiet_since > _QUIET_SECONDS:
            return


async def _wait_for_screen(_pilot: Pilot[Any], _timeout: float = 0) -> bool:
    """Send no widget a message to see that it answers: who waits for idle waits for all."""
    return True


def _works(app: App[Any]) -> bool:
    answers = {one.future for screen in app.screen_stack for one in screen._result_callbacks}
    return any(
        one.is_running and not one.group.startswith(_STANDING) and _waits_for(one) not in answers
        for one in app.workers
    )


def _waits_for(worker: Any) -> Any:
    """Return what a worker waits for: a dialog's answer is the test's to give."""
    return worker._task._fut_waiter if worker._task is not None else None


def _was_put_off(app: Any) -> bool:
    """Do what waits for the next frame at once; return whether there was something."""
    if app._resize_timer is not None:
        app._check_resize()
    elif app.screen_stack and app.screen._update_timer._active.is_set():
        app.screen._on_timer_update()
    else:
        return False
    return True


def _paint_later(screen: Any) -> None:
    """Paint nothing until the test looks (`screen_text`); a screen below another hands it up."""
    if screen is screen.app.screen:
        screen._dirty_widgets.clear()
        screen.app._update_mouse_over(screen)
    else:
        _paint(screen)


@cache
def _rules(
    _variables: frozenset[tuple[str, str]], css: str, read_from: Any, *how: Any
) -> list[RuleSet]:
    sheet = Stylesheet(variables=dict(_variables))
    return _parse(sheet, css, read_from, *how)


def _parse_once(sheet: Stylesheet, css: str, read_from: Any, *how: Any, **more: Any) -> Any:
    return _rules(frozenset(sheet._variables.items()), css, read_from, *how, *more.values())
