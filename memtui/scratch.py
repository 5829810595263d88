"""Private temporary folders; those of a killed process are removed by a later one."""

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
    """A temporary folder that is removed when its `Scratch` is closed or collected.

    It is locked while its process lives; a kill releases the lock too, and the next process that
    makes one removes unlocked ones. This works across containers that share the parent folder.
    """

    def __init__(self, within: Path | None = None) -> None:
        """Make the folder in the system's temporary folder, or hidden in `within`.

        For one in `within`, a link in the temporary folder points to it, so that it can be found.
        """
        _remove_known()
        if within is not None:
            remove_left(within)
        while True:
            folder = tempfile.mkdtemp(prefix=_BESIDE if within else _PREFIX, dir=within)
            self.path = Path(folder)
            try:
                descriptor = os.open(self.path, os.O_RDONLY)
            except FileNotFoundError:  # another process removed it, as below
                continue
            with suppress(OSError):  # no locks, as on NFS: then no leftovers are removed
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if self.path.is_dir():
                break
            os.close(descriptor)  # another process removed it as abandoned
        link = None
        if within is not None:
            with suppress(OSError):  # not writable, as on a full disk
                link = Path(tempfile.gettempdir(), self.path.name[1:])
                link.symlink_to(self.path.absolute())
        self._end = weakref.finalize(self, _remove, self.path, descriptor, link)

    def close(self) -> None:
        """Remove the folder; a second call does nothing."""
        self._end()


def remove_left(within: Path | None = None, *, deep: bool = False) -> list[Path]:
    """Remove the folders that killed processes left in `within`; return the removed ones.

    None: the system's temporary folder, and the targets of links there. `deep`: subfolders too.
    """
    root = within or Path(tempfile.gettempdir())
    found: list[Path] = []
    for where, folders, files in os.walk(root):
        for name in [one for one in (*folders, *files) if one.startswith((_PREFIX, _BESIDE))]:
            path = Path(where, name)
            with suppress(OSError):  # another user's, or removed just now
                found += _remove_unheld(path)
        if not deep:
            break
    return found


def remove_left_of(home: Path) -> list[Path]:
    """Remove leftovers of killed processes in a home, beside it, and in the temporary folder."""
    found = [*remove_left(home.parent), *remove_left(home, deep=True)]
    with suppress(OSError):
        found += remove_left()
    return found


@cache
def _remove_known() -> None:
    """Remove the leftovers in the temporary folder, once for each process."""
    with suppress(OSError):  # no folder can be written
        remove_left()


def _remove(folder: Path, descriptor: int, link: Path | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(descriptor)
    if link is not None:
        with suppress(OSError):
            link.unlink(missing_ok=True)


def _remove_unheld(path: Path) -> Iterator[Path]:
    """Remove a folder or a link's target if no process has it locked; yield what was removed."""
    if path.lstat().st_uid != os.geteuid():
        return
    folder = path.readlink() if path.is_symlink() else path
    link = path if path.is_symlink() else None
    if link is not None and (folder.name != f".{link.name}" or not folder.is_dir()):
        link.unlink()
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return
    _remove(folder, descriptor, link)
    yield folder
