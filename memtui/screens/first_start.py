"""Point a person to the memories that are on this machine already; nothing is added here."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from memtui.screens.state import AppState
from memtui.widgets.format import counted

if TYPE_CHECKING:
    from memtui.backends.discovery import Finding


async def find_memories() -> tuple[Finding, ...]:
    """Look for memories on this machine, off the event loop; it reads and adds nothing."""

    def search() -> tuple[Finding, ...]:
        from memtui.backends.discovery import discover

        return tuple(discover(Path.home(), Path.cwd(), os.environ))

    return await asyncio.to_thread(search)


def is_first_start(state: AppState) -> bool:
    """Whether there is nothing yet but an empty default binding."""
    health = state.health
    return len(state.bindings) <= 1 and health is not None and health.health.records == 0


def offer(findings: tuple[Finding, ...], key: str) -> str:
    """Return the sentence that points at what was found; empty where nothing can be added."""
    usable = sum(1 for one in findings if one.usable)
    if not usable:
        return ""
    found = counted(usable, "memory", "memories")
    return f"Found {found} on this machine. {key} shows them; nothing is added without a yes."
