"""Private folders for what is needed for a while: none stays behind, even of a killed process."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

_PREFIX = "memtui-scratch-"
_BESIDE = f".{_PREFIX}"


class Scratch:
    """A folder that is removed with whoever made it.

    It is locked while its process lives, which a kill ends too: the next process that makes one
    removes those that nobody holds. That holds across containers that share the folder above.
    """

    def __init__(self, within: Path | None = None) -> None:
        """Make it in the system's temporary folder, or hidden `within` one.

        A link in the temporary folder leads to one that lies elsewhere.
        """
        _remove_known()
        if within is not None:
            remove_left(within)
        while True:
            folder = tempfile.mkdtemp(prefix=_BESIDE if within else _PREFIX, dir=within)
            self.path = Path(folder)
            try:
                held = os.open(self.path, os.O_RDONLY)
            except FileNotFoundError:  # as below, and by now it is gone
                continue
            with suppress(OSError):  # where folders cannot be locked, as on NFS, none is removed
                fcntl.flock(held, fcntl.LOCK_EX)
            if self.path.is_dir():
                break
            os.close(held)  # another process took it for one that was left
        link = None
        if within is not None:
            with suppress(OSError):  # where nothing can be written, as on a full disk
                link = Path(tempfile.gettempdir(), self.path.name[1:])
                link.symlink_to(self.path.absolute())
        self._end = weakref.finalize(self, _remove, self.path, held, link)

    def close(self) -> None:
        """Remove it; again does nothing."""
        self._end()


def remove_left(within: Path | None = None, *, deep: bool = False) -> list[Path]:
    """Remove what killed processes left in a folder, in those in it too where that is `deep`.

    None is the system's temporary folder, and wherever a link in it leads. Return what was removed.
    """
    root = within or Path(tempfile.gettempdir())
    found: list[Path] = []
    for where, folders, files in os.walk(root):
        for name in [one for one in (*folders, *files) if one.startswith((_PREFIX, _BESIDE))]:
            path = Path(where, name)
            with suppress(OSError):  # another's, or it goes just now
                found += _remove_unheld(path)
        if not deep:
            break
    return found


def remove_left_of(home: Path) -> list[Path]:
    """Remove what killed processes left anywhere in a home, beside it, and where they noted it."""
    found = [*remove_left(home.parent), *remove_left(home, deep=True)]
    with suppress(OSError):
        found += remove_left()
    return found


@cache
def _remove_known() -> None:
    """Remove it once a process."""
    with suppress(OSError):  # no folder can be written
        remove_left()


def _remove(folder: Path, held: int, link: Path | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(held)
    if link is not None:
        with suppress(OSError):
            link.unlink(missing_ok=True)


def _remove_unheld(path: Path) -> Iterator[Path]:
    """Remove a folder, or where a link leads, where no process holds it; yield what went."""
    if path.lstat().st_uid != os.geteuid():
        return
    folder = path.readlink() if path.is_symlink() else path
    link = path if path.is_symlink() else None
    if link is not None and (folder.name != f".{link.name}" or not folder.is_dir()):
        link.unlink()
        return
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(held).st_uid != os.geteuid():
            raise PermissionError
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return
    _remove(folder, held, link)
    yield folder
