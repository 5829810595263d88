"""The app under test waits, paints and parses no more than a test needs.

Textual's pilot takes an app for idle that used little of the processor for 20 ms, and asks that
three times a key. Each frame is painted though nobody looks, and each app reads the same styles and
matches them with the same widgets. That was two thirds of what a test of a screen took.
"""

from __future__ import annotations

import asyncio
from functools import cache, lru_cache
from time import process_time
from typing import Any
from weakref import WeakKeyDictionary

from textual import _callback as textual_callback
from textual import app as textual_app
from textual import pilot as textual_pilot
from textual import strip as textual_strip
from textual._context import active_app, visible_screen_stack
from textual.app import App
from textual.css.model import RuleSet
from textual.css.stylesheet import CssSource, Stylesheet
from textual.dom import DOMNode
from textual.pilot import Pilot
from textual.screen import Screen

_STANDING = "records-watch"
"""The group of the one worker that runs as long as its screen."""
_TURN_SECONDS = 0.002
_QUIET_TURNS = 8
_USED_SECONDS = 0.0005

_paint: Any = Screen._compositor_refresh
_parse = Stylesheet._parse_rules
_match: Any = Stylesheet.apply
_begin: Any = Stylesheet.__init__
_add: Any = Stylesheet.add_source
_FLAGS = ("_has_hover_style", "_has_focus_within", "_has_order_style", "_has_odd_or_even")
"""What the rules that were looked at tell of a node, besides its styles."""

_brought: dict[Any, CssSource] = {}
"""The styles that widgets brought along, of all apps there were so far."""
_matched: dict[Any, dict[Any, tuple[list[Any], Any]]] = {}
_sheets: WeakKeyDictionary[Stylesheet, tuple[Any, dict[Any, Any]]] = WeakKeyDictionary()


def pytest_configure() -> None:
    """Let every app of this process be one of these."""
    for owner, name, ours in (
        (textual_app, "wait_for_idle", wait_for_idle),
        (textual_pilot, "wait_for_idle", wait_for_idle),
        (Pilot, "_wait_for_screen", _wait_for_screen),
        (Screen, "_compositor_refresh", _paint_later),
        (Stylesheet, "_parse_rules", _parse_once),
        (Stylesheet, "apply", _match_once),
        (Stylesheet, "__init__", _begin_with_known),
        (Stylesheet, "add_source", _add_and_know),
        (textual_callback, "_count_parameters", lru_cache(textual_callback._count_parameters)),
        (textual_strip, "FIFOCache", lambda _size: _UNKEPT),
    ):
        setattr(owner, name, ours)


async def wait_for_idle(_min_sleep: float = 0, max_sleep: float = 1) -> None:
    """Return once the event loop has nothing at hand, no worker runs and no layout is due.

    Where a worker waits for the test itself, Textual's rule decides. The longest is `max_sleep`
    seconds of the processor's time, as others of a busy machine have the most of it.
    """
    app = active_app.get()
    loop: Any = asyncio.get_running_loop()
    end = process_time() + max_sleep
    quiet_turns = 0
    while quiet_turns < _QUIET_TURNS and (begun := process_time()) < end:
        await asyncio.sleep(0)
        if not loop._ready and not _works(app) and not _was_put_off(app):
            return
        await asyncio.sleep(_TURN_SECONDS)
        quiet_turns = 0 if process_time() - begun > _USED_SECONDS else quiet_turns + 1


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
    """Paint nothing until the test looks (`picture`); a screen below another hands it up."""
    screen.app._picture = None
    if screen is screen.app.screen:
        screen._dirty_widgets.clear()
        screen.app._update_mouse_over(screen)
    else:
        _paint(screen)


def picture(app: Any) -> str:
    """Return what the shown screen paints, and what shows from below it: painted once a frame."""
    shown = (app.screen, *app._background_screens)
    kept = getattr(app, "_picture", None)
    if kept is None or kept[0] != shown:
        visible_screen_stack.set(app._background_screens)
        filters, app._filters = app._filters, []  # they change colours only
        strips = app.screen._compositor.render_strips()
        app._filters = filters
        text = "\n".join("".join(segment.text for segment in strip) for strip in strips)
        kept = app._picture = shown, text
    return str(kept[1])


class _Unkept:
    """In place of the seven caches of each line that is painted, as hardly one is painted twice."""

    def get(self, _key: object) -> None:
        """Return nothing."""

    def __setitem__(self, _key: object, _value: object) -> None:
        """Keep nothing."""


_UNKEPT = _Unkept()


@cache
def _rules(
    _variables: frozenset[tuple[str, str]], css: str, read_from: Any, *how: Any
) -> list[RuleSet]:
    sheet = Stylesheet(variables=dict(_variables))
    return _parse(sheet, css, read_from, *how)


def _parse_once(sheet: Stylesheet, css: str, read_from: Any, *how: Any, **more: Any) -> Any:
    return _rules(frozenset(sheet._variables.items()), css, read_from, *how, *more.values())


def _begin_with_known(sheet: Stylesheet, **variables: Any) -> None:
    """Begin with the styles of all widgets that were mounted in this process.

    Apps that mount the same ones in another order share what was matched, and parse no more.
    """
    _begin(sheet, **variables)
    sheet.source.update(_brought)
    sheet._require_parse = True


def _add_and_know(
    sheet: Stylesheet, css: str, read_from: Any = None, is_default_css: bool = False, **how: Any
) -> None:
    _add(sheet, css, read_from, is_default_css, **how)
    if is_default_css:
        _brought.setdefault(read_from, sheet.source[read_from])


def _match_once(
    sheet: Stylesheet, node: DOMNode, *, animate: bool = False, cache: Any = None
) -> None:
    """Match rules with a node as Textual does, once for all apps where it would keep the result.

    It keeps none of rules that ask for more than names, classes and states of nodes.
    """
    rules = sheet.rules
    read_as, matched = _sheets.get(sheet, (None, {}))
    if read_as is not rules:
        source = frozenset(sheet._variables.items()), tuple(sheet.source.items())
        matched = _matched.setdefault(source, {})
        _sheets[sheet] = rules, matched
    place = tuple(
        (type(one), one._id, one.classes, one._pseudo_classes_cache_key or _states(one))
        for one in node.css_path_nodes
    )
    kept: Any = node
    found = matched.get(place)
    if found is None:
        kept._matched = None
        results: dict[Any, Any] = {}
        _match(sheet, node, animate=animate, cache=results)
        for styles in results.values():
            kept._matched = matched[place] = [getattr(node, flag) for flag in _FLAGS], styles
    elif kept.__dict__.get("_matched") is found:
        node.notify_style_update()
    else:
        flags, styles = kept._matched = found
        for flag, value in zip(_FLAGS, flags, strict=True):
            setattr(node, flag, value)
        sheet.replace_rules(node, styles, animate=animate)
        sheet._process_component_classes(node)


def _states(node: DOMNode) -> Any:
    return frozenset(node.pseudo_classes) if isinstance(node, App) else ()
