"""Holds a lock of another program that is a file: whoever makes it holds the lock."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memtui.contract import Unavailable
from memtui.provider_kit import refused_by_system

_LOCK_SECONDS = 10.0
_LOOK_SECONDS = 0.02


@contextmanager
def lock_file(lock: Path, held: str) -> Iterator[None]:
    """Make the file with this process's id, and remove it at the end. Blocking.

    A file that a killed memtui left behind is taken over; one of another program never is. `held`
    begins the sentence where that program holds it: "OpenClaw is changing MEMORY.md".

    Raises:
        Unavailable: the other program does not release it in time.
        Denied: the file cannot be made.
    """
    try:
        lock.parent.mkdir(mode=0o700, exist_ok=True)
        _take(lock, held)
    except OSError as error:
        raise refused_by_system(str(lock), error) from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _take(lock: Path, held: str) -> None:
    until = time.monotonic() + _LOCK_SECONDS
    owner = json.dumps({"pid": os.getpid(), "by": "memtui"})
    while True:
        try:
            file = lock.open("x")
        except FileExistsError:
            if _is_left(lock):
                lock.unlink(missing_ok=True)
            elif time.monotonic() >= until:
                raise Unavailable(
                    f"{held}; try again. If that program does not run, remove {lock}."
                ) from None
            else:
                time.sleep(_LOOK_SECONDS)
        else:
            with file:
                file.write(owner)
            return


def _is_left(lock: Path) -> bool:
    """Whether a memtui that ended has left this lock."""
    try:
        owner = json.loads(lock.read_text())
    except (FileNotFoundError, ValueError):
        return False  # it is gone, or being written
    if not isinstance(owner, dict) or owner.get("by") != "memtui":
        return False
    try:
        os.kill(int(owner["pid"]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # another user's memtui runs
    return False
