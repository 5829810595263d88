"""The demo: a company at work for sixty days, the same every time."""

from __future__ import annotations

import json
from pathlib import Path
from time import time

_INTERRUPTED_SECONDS = 30
"""Whoever makes a demo tells how far that is more often."""


def percent_made(demo_file: Path) -> int | None:
    """Return how much of a demo is made while another process makes it; None where none does."""
    try:
        if time() - demo_file.stat().st_mtime > _INTERRUPTED_SECONDS:
            return None
        marker = json.loads(demo_file.read_bytes())
    except (OSError, ValueError):  # `memtui demo` says what is wrong with it
        return None
    is_made = not isinstance(marker, dict) or bool(marker.get("summary"))
    return None if is_made else int(marker.get("percent", 0))
