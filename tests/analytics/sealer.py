"""Seal in a process that is killed at a step."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from memtui.analytics.seal import seal
from memtui.store.database import Database


def seal_and_die(path: Path, url: str, root: Path, stop: str, nth: int) -> None:
    """Seal acme; die where a step comes for the nth time."""
    left = nth

    def step(name: str) -> None:
        nonlocal left
        left -= name == stop
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    seal(Database.open(path, url), root, "acme", segment_rows=20, step=step)
