"""Holds a lock of another program that is a file: whoever makes it holds the lock."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from memtui.contract import Conflict, Unavailable
from memtui.provider_kit import refused_by_system
from memtui.provider_kit.files.reading import FileRefused, read_whole
from memtui.provider_kit.files.shared import remove_if

_LOCK_SECONDS = 10.0
_LOOK_SECONDS = 0.02


@contextmanager
def lock_file(lock: Path, held: str) -> Iterator[None]:
    """Make the file with this process's id, and remove it at the end. Blocking.

    A lock file that a killed memtui left is taken over, that of another program never. `held`
    begins the error's sentence: "OpenClaw is changing MEMORY.md".

    Raises:
        Unavailable: the other program does not release it in time.
        Denied: the file cannot be made.
    """
    until = time.monotonic() + _LOCK_SECONDS
    try:
        lock.parent.mkdir(mode=0o700, exist_ok=True)
        while True:
            with suppress(FileExistsError), lock.open("x") as file:
                json.dump({"pid": os.getpid(), "by": "memtui"}, file)
                break
            with suppress(FileNotFoundError, Conflict):
                if _is_left(read_whole(lock)[0]) and remove_if(lock, _is_left):
                    continue
            if time.monotonic() >= until:
                raise Unavailable(
                    f"{held}; try again. If that program does not run, remove {lock}."
                )
            time.sleep(_LOOK_SECONDS)
    except FileRefused as error:
        raise Unavailable(f"{lock} is no file, so it can be no lock; remove it.") from error
    except OSError as error:
        raise refused_by_system(str(lock), error) from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _is_left(content: bytes) -> bool:
    """Whether a memtui that ended has left a lock of this content."""
    try:
        owner = json.loads(content)
        if not isinstance(owner, dict) or owner.get("by") != "memtui":
            return False
        os.kill(int(owner["pid"]), 0)
    except ProcessLookupError:
        return True
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, PermissionError):
        pass  # being written, or another user's memtui runs
    return False
