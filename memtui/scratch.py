"""Private folders for what is needed for a while: none stays behind, even of a killed process."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path

_PREFIX = "memtui-scratch-"
_YOUNG_SECONDS = 60
"""So new a folder may be one that its process has not locked yet."""


class Scratch:
    """A folder that is removed with whoever made it.

    It is locked while its process lives, which a kill ends too: the next process that makes one
    removes those that nobody holds. That holds across containers that share the folder above.
    """

    def __init__(self) -> None:
        _remove_left()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        held = os.open(self.path, os.O_RDONLY)
        with suppress(OSError):  # where folders cannot be locked, as on NFS, nobody removes others'
            fcntl.flock(held, fcntl.LOCK_EX)
        self._end = weakref.finalize(self, _remove, self.path, held)

    def close(self) -> None:
        """Remove it; again does nothing."""
        self._end()


def _remove(folder: Path, held: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(held)


@cache
def _remove_left() -> None:
    """Remove what killed processes left, once a process."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with suppress(OSError):  # another's, or it goes just now
                    _remove_unheld(Path(entry.path))


def _remove_unheld(folder: Path) -> None:
    status = folder.lstat()
    if status.st_uid != os.geteuid() or time.time() - status.st_mtime < _YOUNG_SECONDS:
        return
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return
    _remove(folder, held)
