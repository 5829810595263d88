"""Changes a file that another program rewrites as a whole at any time, without a lock.

Such a program reads the file, changes the content and writes all of it back; a write in between is
lost silently. So a change here atomically exchanges the file with the changed one, checks that the
replaced file was the one it had read, and watches for a while whether the other program overwrites
the result. If anything interfered, the other program's version stays, and the change is repeated
on it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from memtui.contract import Conflict, Invalid, Json, Unavailable
from memtui.paths import replacing, sync_folder
from memtui.provider_kit import refused_by_system, require_unprotected
from memtui.provider_kit.files.reading import FileRefused, is_file, read_whole
from memtui.scratch import Scratch

if TYPE_CHECKING:
    import ctypes

_OFTEN = 500
_LOOK_SECONDS = 0.001
_HALF_SECONDS = 0.05
"""A file written less than this many seconds ago may be incomplete."""

_BUSY_SECONDS = 2.0
_BUSY_SETTLE_SECONDS = 1.0

_State = tuple[int, int, int, int]
"""A file's device, inode, size and modification time."""


class FileRights(NamedTuple):
    """A file's mode and owner."""

    mode: int
    uid: int
    gid: int

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """Return those of a file; None: there is none."""
        with suppress(OSError):
            found = path.stat()
            return cls(found.st_mode & 0o7777, found.st_uid, found.st_gid)
        return None

    def give(self, path: Path) -> None:
        """Give them to a file, its owner as far as the system lets this user. Raises `OSError`."""
        if (self.uid, self.gid) != (os.geteuid(), os.getegid()):
            with suppress(PermissionError):
                os.chown(path, self.uid, self.gid)
        path.chmod(self.mode)


def rights_in(state: Json) -> FileRights | None:
    """Return the rights in the state of a snapshot; None: it has none."""
    return FileRights(*state["rights"]) if state.get("rights") else None


def create(path: Path, content: bytes, rights: FileRights | None = None) -> None:
    """Make a file with the rights that it had.

    A new one gets those of the file beside it that was changed last, as the other program made
    that one, or else the system's.

    Raises:
        OSError: the system refuses; `FileExistsError` where it is there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    rights = rights or _rights_beside(path)
    with replacing(path, None, is_new=True) as fresh:
        fresh.write_bytes(content)
        if rights is not None:
            rights.give(fresh)
    sync_folder(path.parent)


def _rights_beside(path: Path) -> FileRights | None:
    beside = [one for one in path.parent.glob(f"*{path.suffix}") if is_file(one)]
    last = max(beside, key=lambda one: one.stat().st_mtime_ns, default=None)
    rights = None if last is None else FileRights.of(last)
    return rights and rights._replace(mode=rights.mode & 0o666 | 0o600)


def put(
    path: Path,
    before: bytes | None,
    after: bytes | None,
    *,
    marker: Path,
    rights: FileRights | None = None,
) -> None:
    """Make, replace or remove a file, of which None is none; one that is as `after` stays.

    `rights`: those of a new file. `marker`: as of `SharedFile`. Blocking.

    Raises:
        Conflict: its content is another than `before`.
        Denied: the file or its folder is protected.
        Unavailable: it cannot be read or replaced.
    """

    def checked(now: bytes | None) -> bytes:
        if now not in (before, after):
            raise changed_meanwhile(path)
        return after or b""

    try:
        if after is None:
            checked(content_of(path))
            with suppress(FileNotFoundError):
                if not remove_if(path, lambda content: content == before):
                    raise changed_meanwhile(path)
        elif before is None:
            create(path, after, rights)
        else:
            SharedFile(path, marker=marker).change(checked)
    except FileExistsError as error:
        if content_of(path) != after:
            raise changed_meanwhile(path) from error
    except OSError as error:
        raise refused_by_system(str(path), error) from error


def changed_meanwhile(path: Path) -> Conflict:
    """Return the error where another program changed a file while memtui did."""
    return Conflict(f"Another program changed {path} at this moment; read it again.")


def remove_if(path: Path, fits: Callable[[bytes], bool]) -> bool:
    """Remove a file whose content fits; return whether it was removed.

    A version that another program writes meanwhile stays. Raises `Conflict`, `OSError`.
    """
    with closing(Scratch(path.parent)) as scratch:
        moved, is_gone = scratch.path / path.name, False
        path.replace(moved)
        try:
            is_gone = fits(read_whole(moved)[0])
        except FileRefused as error:
            raise changed_meanwhile(path) from error
        finally:
            if not is_gone:
                _give_back(moved, path)
    sync_folder(path.parent)
    return is_gone


def _give_back(moved: Path, path: Path) -> None:
    try:
        os.link(moved, path)
    except FileExistsError:
        pass  # a newer version than the moved one
    except OSError:  # a folder, or a file system without links
        moved.rename(path)


def content_of(path: Path) -> bytes | None:
    """Return a file's content; None: there is none.

    Raises:
        Denied: the system refuses.
        Unavailable: it is too large, or no file.
    """
    try:
        return read_whole(path)[0]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused_by_system(str(path), error) from error
    except FileRefused as error:
        raise Unavailable(f"{path} cannot be read ({str(error).rstrip('.')}).") from error


def text_of(content: bytes, path: Path) -> str:
    """Return a file's text with its line ends. Raises `Invalid` if it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"{path} is not UTF-8; fix it first.") from error


def encoded(text: str) -> bytes:
    """Return a text as UTF-8. Raises `Invalid` if that is impossible."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        problem = "The text contains half a character (a lone surrogate); remove it."
        raise Invalid(problem) from error


class SharedFile:
    """A file that another program changes too; the caller serialises memtui's own processes."""

    def __init__(
        self,
        path: Path,
        *,
        marker: Path,
        is_whole: Callable[[bytes], bool] = lambda _content: True,
        merge: Callable[[bytes, bytes, bytes], bytes] = lambda _before, _theirs, content: content,
        settle_seconds: float = 0.0,
    ) -> None:
        """Set up the file.

        Args:
            path: The file's path.
            marker: A file whose modification time is that of memtui's last change.
            is_whole: Whether a content may be complete; an incomplete one is read again for a
                moment.
            merge: Applies the difference between the first two contents to the third, as far as it
                is missing there.
            settle_seconds: How long to watch after a change whether another program overwrites it;
                at least a second if one has just written. 0: not at all.
        """
        self._path, self._marker, self._is_whole, self._merge = path, marker, is_whole, merge
        self._settle_seconds = settle_seconds

    def change(self, edit: Callable[[bytes], bytes]) -> bytes:
        """Apply `edit` to the file's content, and return the content that remains.

        `edit` is called again for each content that another program writes meanwhile; if its change
        is already made, it must return the content unchanged. If it raises, the other program's
        version stays. Blocking.

        Raises:
            Conflict: other programs keep overwriting the change.
            Denied: the file or its folder is write-protected.
            Unavailable: the file cannot be read or replaced.
        """
        require_unprotected(self._path, str(self._path))
        displaced: list[tuple[bytes, bytes]] = []
        """Pairs of the content read and the content that another program wrote before an exchange.
        """
        try:
            for attempt in range(_OFTEN):
                state, there = self._read()
                base = there
                for before, theirs in displaced:
                    base = self._merge(before, theirs, base)
                fresh = edit(base)
                if fresh == there or self._put(fresh, state, displaced, there, attempt):
                    return fresh
        except OSError as error:
            raise refused_by_system(str(self._path), error) from error
        except FileRefused as error:
            why = str(error).rstrip(".")
            raise Unavailable(f"{self._path} cannot be changed ({why}).") from error
        raise Conflict(
            f"Another program keeps rewriting {self._path}, so the change was lost each time; try "
            "again when that program is idle."
        )

    def _put(
        self,
        fresh: bytes,
        state: _State,
        displaced: list[tuple[bytes, bytes]],
        there: bytes,
        attempt: int,
    ) -> bool:
        """Replace the file in this state by `fresh`, and return whether it stays.

        Only the first attempt syncs before the exchange: later, the time between two versions of
        the other program may be too short for that.
        """
        _c_library()
        with self._spare(fresh) as (file, spare):
            if not attempt:
                os.fsync(file)
            if _state_of(self._path.stat()) != state:
                return False
            old = _exchange(spare, self._path)
            ours = _state_of(os.fstat(file))
            try:
                with old.open("rb") as theirs:
                    if _state_of(os.fstat(theirs.fileno())) == state:
                        os.fsync(file)
                        is_busy = attempt > 0 or self._is_busy(state)
                        if self._stays(ours, theirs.fileno(), state, is_busy=is_busy):
                            sync_folder(self._path.parent)
                            self._marker.touch(0o600)
                            return True
                        if _state_of(os.fstat(theirs.fileno())) == state:
                            return False
                    old.replace(self._path)
                    if self._is_whole(content := theirs.read()):  # otherwise a write is unfinished
                        displaced.append((there, content))
                    return False
            except OSError:
                if old.exists() and _state_of(self._path.stat()) == ours:
                    old.replace(self._path)  # restore: the old file was not checked for changes
                raise
            finally:
                old.unlink(missing_ok=True)

    def _is_busy(self, state: _State) -> bool:
        """Whether another program has written the file just now."""
        written = state[3]
        is_recent = 0 <= time.time() - written / 1e9 < _BUSY_SECONDS
        with suppress(FileNotFoundError):
            return is_recent and written > self._marker.stat().st_mtime_ns
        return is_recent

    def _stays(self, ours: _State, old: int, state: _State, *, is_busy: bool) -> bool:
        """Whether nobody replaces the file or writes to the old one during the settling time."""
        seconds = self._settle_seconds
        if is_busy and seconds:
            seconds = max(seconds, _BUSY_SETTLE_SECONDS)
        until = time.monotonic() + seconds
        while _state_of(self._path.stat()) == ours and _state_of(os.fstat(old)) == state:
            if time.monotonic() >= until:
                return True
            time.sleep(_LOOK_SECONDS)
        return False

    @contextmanager
    def _spare(self, content: bytes) -> Iterator[tuple[int, Path]]:
        """Yield a new file near the target, as descriptor and path, with the target's rights.

        The next change removes files that a killed process left behind.
        """
        with closing(Scratch(self._path.parent)) as scratch:
            spare = scratch.path / self._path.name
            with spare.open("xb", buffering=0) as file:
                if (rights := FileRights.of(self._path)) is not None:
                    rights.give(spare)
                left = memoryview(content)
                while left:
                    left = left[file.write(left) :]
                yield file.fileno(), spare

    def _read(self) -> tuple[_State, bytes]:
        while True:
            content, found = read_whole(self._path)
            age = time.time() - found.modified_ns / 1e9
            if not 0 <= age < _HALF_SECONDS or self._is_whole(content):
                state = found.device, found.inode, found.size, found.modified_ns
                return state, content
            time.sleep(_LOOK_SECONDS)


def _state_of(found: os.stat_result) -> _State:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


_AT_CURRENT_FOLDER = -100
_RENAME_EXCHANGE = 2


@cache
def _c_library() -> ctypes.PyDLL:
    """Return the C library, called without releasing the GIL.

    This keeps the time between the last check of a file and its exchange short.
    """
    import ctypes

    return ctypes.PyDLL(None)


def _exchange(spare: Path, path: Path) -> Path:
    """Exchange the two files, and return the new path of the one that was at `path`.

    On Linux this is atomic. Elsewhere, a write of another program between the two steps, within
    some microseconds, is lost.
    """
    rename = getattr(_c_library(), "renameat2", None)
    if rename is not None:
        here, names = _AT_CURRENT_FOLDER, (os.fsencode(spare), os.fsencode(path))
        if rename(here, names[0], here, names[1], _RENAME_EXCHANGE) == 0:
            return spare
    old = spare.with_name(f"{spare.name}-old")
    os.link(path, old)
    spare.replace(path)
    return old
