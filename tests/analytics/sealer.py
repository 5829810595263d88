"""Seal in a process of its own that is killed at a step: `sealer.py DB URL ROOT STEP NTH`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from memtui.analytics.seal import seal
from memtui.store.database import Database


def main() -> None:
    path, url, root, stop, nth = sys.argv[1:]
    left = int(nth)

    def step(name: str) -> None:
        nonlocal left
        left -= name == stop
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    seal(Database.open(Path(path), url), Path(root), "acme", segment_rows=20, step=step)


if __name__ == "__main__":
    main()
