"""Open a page in the browser of the desktop, never in one that would take the terminal."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser

from memtui.contract import Unavailable
from memtui.screens.base import MemtuiScreen
from memtui.widgets.background import Background


def open_in_browser(screen: MemtuiScreen, work: Background, url: str) -> None:
    """Open a page beside the terminal; where there is no desktop, copy its address."""
    if not _has_desktop():
        screen.copy(url, f"There is no browser here; copied {url}")
        return

    def opened(ok: bool) -> None:  # noqa: FBT001 - the answer of webbrowser.open
        if ok:
            screen.toast(f"Opened {url}")
        else:
            screen.copy(url, f"The browser did not open; copied {url}")

    work.every(lambda: _open(url), opened, screen.fail)


async def _open(url: str) -> bool:
    try:
        return await asyncio.to_thread(webbrowser.open, url)
    except webbrowser.Error as error:
        raise Unavailable(f"The browser did not open: {error}.") from error


def _has_desktop() -> bool:
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(shown) or sys.platform in {"darwin", "win32"}
