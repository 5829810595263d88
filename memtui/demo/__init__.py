"""The demo: sixty days of a company's work, the same every time."""

from __future__ import annotations

import json
from pathlib import Path
from time import time

_INTERRUPTED_SECONDS = 30
"""Seconds without progress after which a build counts as interrupted."""


def percent_made(demo_file: Path) -> int | None:
    """Return the progress of a demo that another process builds; None if none is being built."""
    try:
        if time() - demo_file.stat().st_mtime > _INTERRUPTED_SECONDS:
            return None
        marker = json.loads(demo_file.read_bytes())
    except (OSError, ValueError):  # `memtui demo` reports the error
        return None
    is_made = not isinstance(marker, dict) or bool(marker.get("summary"))
    return None if is_made else int(marker.get("percent", 0))
