"""When something is to expire, as a person writes it."""

from __future__ import annotations

from datetime import datetime

from memtui.filters import parse_expiry
from memtui.screens.state import AppState


def moment_or_never(text: str, state: AppState) -> datetime | None:
    """Return `parse_expiry` of what was written, now and here; None for nothing, which is never."""
    if not text.strip():
        return None
    return parse_expiry(text, now=state.clock(), zone=state.zone)


def written_expiry(moment: datetime | None, state: AppState) -> str:
    """Return a moment as it is offered to be changed; nothing for never."""
    return moment.astimezone(state.zone).isoformat("T", "minutes") if moment else ""
