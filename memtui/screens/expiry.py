"""Expiry times as a person writes them."""

from __future__ import annotations

from datetime import datetime

from memtui.filters import parse_expiry
from memtui.screens.state import AppState


def moment_or_never(text: str, state: AppState) -> datetime | None:
    """Parse an expiry in the person's time zone; None: empty, which means never."""
    if not text.strip():
        return None
    return parse_expiry(text, now=state.clock(), zone=state.zone)


def written_expiry(moment: datetime | None, state: AppState) -> str:
    """Return an expiry as text to edit; empty: never."""
    return moment.astimezone(state.zone).isoformat("T", "minutes") if moment else ""
