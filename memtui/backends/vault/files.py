"""Finds, reads, replaces and locks the files of the vault folder, and only those (seed 002 §7)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from memtui.contract import Denied, Invalid, Location, MemtuiError, Problem, Unavailable
from memtui.paths import make_private, sync_folder
from memtui.provider_kit import refused_by_system, require_unprotected

from .layout import HISTORY
from .workspace import Workspace

_LOCK = ".memtui.lock"
_LOCK_POLL_SECONDS = 0.005
_OVER_LINK = "It is reached over a symbolic link, which is not followed."
_TEMP_PREFIX, _TEMP_SUFFIX = ".memtui-", ".tmp"


@dataclass(frozen=True, slots=True)
class File:
    """The content and metadata of a file at one moment."""

    content: str
    """The text; bytes that are not UTF-8 become lone surrogates, which `encoded` restores."""
    signature: str
    """Modification time, size and inode, to detect changes."""
    modified: datetime
    modified_ns: int
    mode: int = 0o600
    problem: Problem | None = None
    """The lines that are not UTF-8."""


@dataclass(slots=True)
class Scan:
    """The result of a walk over the folder: signatures by path, and unreadable folders."""

    signatures: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    leftovers: list[Path] = field(default_factory=list)


def encoded(content: str) -> bytes:
    """Return the bytes of a file's content."""
    return content.encode(errors="surrogateescape")


def decoded(raw: bytes) -> str:
    """Return the content of a file; `encoded` restores the same bytes."""
    return raw.decode(errors="surrogateescape")


def readable(content: str) -> str:
    """Return content, or a part of it, with \N{REPLACEMENT CHARACTER} for what is not UTF-8."""
    try:
        content.encode()
    except UnicodeEncodeError:
        return encoded(content).decode(errors="replace")
    return content


class VaultFolder:
    """The files of one company's vault. Paths are relative to it, with POSIX separators."""

    def __init__(
        self,
        root: Path,
        company_id: str,
        now: Callable[[], datetime],
        made: Path,
        *,
        exclude: frozenset[str],
        lock_seconds: float,
        max_bytes: int,
        workspaces: Sequence[Workspace] = (),
    ) -> None:
        self.root = root
        self.workspaces = workspaces
        self.company_id = company_id
        self.now = now
        self._made = made
        """Folder of notes, one for each vault folder that memtui made and may remove once empty."""
        self._exclude = exclude
        self._lock_seconds = lock_seconds
        self._max_bytes = max_bytes
        self._threads = threading.Lock()
        self.known = root.is_dir()
        """Whether the folder ever existed; if so and it disappears, it is not created again."""
        self.touched = 0
        """Number of files that were written or removed since the lock was taken."""

    def check(self) -> None:
        """Raise `Unavailable` if the folder existed and is gone."""
        if self.known and not self.root.is_dir():
            raise Unavailable(
                f"The vault {self.root} is gone; put the folder back, "
                "or create an empty one there to start over."
            )

    @staticmethod
    def is_path(path: str) -> bool:
        """Whether `path` can name a file of the vault: inside it, not hidden, markdown."""
        try:
            parts = path.encode().split(b"/")
        except UnicodeEncodeError:
            return False
        plain = all(part and not part.startswith(b".") and len(part) < 256 for part in parts)
        return plain and "\0" not in path and len(path) < 3000 and path.lower().endswith(".md")

    def check_path(self, path: str) -> None:
        """Raise `Invalid` unless `path` can name a file of the vault."""
        if not self.is_path(path):
            raise Invalid(f"{path[:200]!r} is not the path of a note in this vault.")

    def location(self, path: str, line: int = 1) -> Location:
        """Return the location of `path` for an editor."""
        return Location(path=self._absolute(path), line=line)

    def _place(self, path: str) -> tuple[Path, str]:
        """Return the root folder of a path, the vault's or a workspace's, and the path in it."""
        for one in self.workspaces:
            if path.startswith(one.prefix):
                return one.root, path.removeprefix(one.prefix)
        return self.root, path

    def _absolute(self, path: str) -> str:
        root, inner = self._place(path)
        return f"{root}/{inner}" if inner else str(root)

    def names(self, absolute: str) -> Iterator[str]:
        """Yield an absolute path relative to each workspace and the vault, if it is inside."""
        for root, prefix in (*((one.root, one.prefix) for one in self.workspaces), (self.root, "")):
            with contextlib.suppress(ValueError):
                yield f"{prefix}{Path(absolute).relative_to(root).as_posix()}"

    def is_read(self, path: str) -> bool:
        """Whether a file at this path would be read."""
        for one in self.workspaces:
            if path.startswith(one.prefix):
                return one.reads(path.removeprefix(one.prefix))
        is_hidden = any(part.startswith(".") for part in path.split("/"))
        return not is_hidden and (path.lower().endswith(".md") or path.endswith(".jsonl"))

    def problem(self, path: str, message: str, line: int = 1) -> Problem:
        """Return a problem of the file at `path`."""
        return Problem(message=message, location=self.location(path, line))

    def read(  # noqa: PLR0911 - a reason for each file that is not read
        self, path: str, *, is_plain: bool = False
    ) -> File | Problem | None:
        """Read a file; None if it does not exist, a `Problem` if it cannot be read.

        `is_plain`: the caller has just checked that no link leads to its folder.

        Raises `Unavailable` if the whole vault is gone.
        """
        if not is_plain and self._is_link(path.rpartition("/")[0]):
            return self.problem(path, _OVER_LINK)
        try:
            descriptor = os.open(
                self._absolute(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except (FileNotFoundError, NotADirectoryError):
            self.check()
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                return self.problem(path, _OVER_LINK)
            return self.problem(path, f"It cannot be opened: {error.strerror}.")
        try:
            status = os.fstat(descriptor)
            if reason := self._refusal(status):
                return self.problem(path, reason)
            raw = b""
            while part := os.read(descriptor, max(status.st_size - len(raw), 0) + 1):
                raw += part
        except OSError as error:
            return self.problem(path, f"It cannot be read: {error.strerror}.")
        finally:
            os.close(descriptor)
        try:
            content, problem = raw.decode(), None
        except UnicodeDecodeError as error:
            content = decoded(raw)
            problem = self._no_text(path, content, raw.count(b"\n", 0, error.start) + 1)
        return File(
            content,
            _signature_of(status),
            datetime.fromtimestamp(status.st_mtime_ns // 1000 / 1e6, UTC),
            status.st_mtime_ns,
            stat.S_IMODE(status.st_mode),
            problem,
        )

    def _refusal(self, status: os.stat_result) -> str:
        """The reason why a file is not read; empty if it is."""
        if stat.S_ISDIR(status.st_mode):
            return "It is a folder."
        if not stat.S_ISREG(status.st_mode):
            return "It is not a regular file."
        if status.st_size > self._max_bytes:
            return f"It is larger than {self._max_bytes // 1_000_000} MB and is not read."
        return ""

    def _no_text(self, path: str, content: str, line: int) -> Problem:
        """Return the problem of a file with lines that are not UTF-8, the first at `line`."""
        odd = sum(not _is_utf8(text) for text in content.split("\n"))
        more = f", one of {odd} such lines" if odd > 1 else ""
        message = (
            f"The line holds bytes that are not UTF-8{more}; they are shown as "
            "\N{REPLACEMENT CHARACTER}."
        )
        return self.problem(path, message, line)

    def signature(self, path: str) -> str:
        """Return a file's signature as a scan would; empty where there is none."""
        try:
            return _signature_of(os.lstat(self._absolute(path)))
        except OSError:
            return ""

    def _is_link(self, path: str) -> bool:
        root, inner = self._place(path)
        step = str(root)
        for part in filter(None, inner.split("/")):
            step = f"{step}/{part}"
            if os.path.islink(step):  # noqa: PTH114  # called for every file of a scan
                return True
        return False

    def create(self, path: str, content: str) -> bool:
        """Write a new file; False if one is already there."""
        with self._written_beside(path, content, self._now_ns()) as (target, temporary):
            try:
                os.link(temporary, target)
            except FileExistsError:
                return False
            except OSError:
                # A file system without hard links: the vault's lock keeps other writers out.
                if target.exists():
                    return False
                temporary.replace(target)
            self.touched += 1
        return True

    def replace(
        self, path: str, content: str, modified_ns: int | None = None, mode: int | None = None
    ) -> None:
        """Replace a file atomically.

        `modified_ns` is the file's new modification time; None is now. An existing file keeps its
        permissions; a new one gets `mode`, 0600 for None.

        Raises `Denied` for a write-protected file, or where the system refuses.
        """
        self.check_unprotected(path)
        moment = self._now_ns() if modified_ns is None else modified_ns
        with self._written_beside(path, content, moment) as (target, temporary):
            if target.exists():
                mode = stat.S_IMODE(target.stat().st_mode)
            if mode is not None:
                temporary.chmod(mode)
            temporary.replace(target)
            self.touched += 1

    def remove(self, path: str) -> None:
        """Remove a file; its folder stays.

        Raises `Denied` for a write-protected file, or where the system refuses.
        """
        target = self._writable(path)
        self.check_unprotected(path)
        # The file may be gone already, and its folder too.
        with self._readable_errors(path), contextlib.suppress(FileNotFoundError):
            target.unlink()
            self.touched += 1
            sync_folder(target.parent)

    def remove_made(self, path: str) -> None:
        """Remove the empty folders of a path that memtui made, the innermost first."""
        with contextlib.suppress(OSError):  # a folder is not empty, or has no note
            for folder in (self.root / one for one in Path(path).parents[:-1]):
                note = self._note_of(folder)
                if folder.is_dir():
                    if note.read_bytes() != _note(folder, folder):
                        return
                    folder.rmdir()
                    sync_folder(folder.parent)
                note.unlink(missing_ok=True)

    def drop_notes(self) -> None:
        """Remove the notes of missing folders: their paths may contain the ids of erased owners."""
        for note in self._made.glob("*"):
            folder = Path(os.fsdecode(note.read_bytes().partition(b" ")[2]))
            if not folder.is_dir():
                note.unlink()

    def _note_of(self, folder: Path) -> Path:
        return self._made / hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]

    def check_unprotected(self, path: str) -> None:
        """Raise `Denied` for a write-protected file."""
        require_unprotected(self._writable(path), path)

    @contextlib.contextmanager
    def _readable_errors(self, path: str) -> Iterator[None]:
        """Turn an `OSError` into an error for a person, unless the block already changed a file."""
        before = self.touched
        try:
            yield
        except OSError as error:
            if self.touched > before:
                raise
            raise refused_by_system(path, error) from error

    def _now_ns(self) -> int:
        moment = self.now()
        whole = moment.replace(microsecond=0)
        return int(whole.timestamp()) * 1_000_000_000 + moment.microsecond * 1000

    def _writable(self, path: str) -> Path:
        if self._is_link(path):
            raise Denied(f"{path} is behind a symbolic link; memtui does not write through links.")
        return self.root.joinpath(*path.split("/"))

    @contextlib.contextmanager
    def _written_beside(
        self, path: str, content: str, modified_ns: int
    ) -> Iterator[tuple[Path, Path]]:
        """Yield the target and a temporary file with the content, for the block to move there."""
        target, raw = self._writable(path), encoded(content)
        if len(raw) > self._max_bytes:
            raise Invalid(
                f"{target.name} would be larger than {self._max_bytes // 1000000} MB, and memtui "
                "reads no larger files; store less in it, or raise the binding's max_file_mb."
            )
        temporary = target.parent / f"{_TEMP_PREFIX}{secrets.token_hex(8)}{_TEMP_SUFFIX}"
        with self._readable_errors(path):
            self._make_folder(target.parent)
            try:
                with open(temporary, "xb", opener=_private) as stream:
                    stream.write(raw)
                    stream.flush()
                    os.utime(stream.fileno(), ns=(modified_ns, modified_ns))
                    os.fsync(stream.fileno())
                yield target, temporary
            finally:
                temporary.unlink(missing_ok=True)
            sync_folder(target.parent)

    def _make_folder(self, folder: Path) -> None:
        missing = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for step in reversed(missing):
            if step.is_relative_to(self.root) and step != self.root:
                self._make_noted(step)
            else:
                step.mkdir(mode=0o700, exist_ok=True)
            sync_folder(step.parent)

    def _make_noted(self, folder: Path) -> None:
        """Make a folder, after noting that it may be removed once empty.

        The note comes before the name, so that no crash leaves a folder of ours without a note.
        """
        note = self._note_of(folder)
        fresh = folder.with_name(f"{_TEMP_PREFIX}{note.name}{_TEMP_SUFFIX}")
        fresh.mkdir(mode=0o700, exist_ok=True)
        make_private(self._made)
        with open(note, "wb", opener=_private) as stream:
            stream.write(_note(folder, fresh))
            stream.flush()
            os.fsync(stream.fileno())
        sync_folder(self._made)
        fresh.rename(folder)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold this vault's lock, against writers in this and other processes.

        Raises `Unavailable` if the lock is not free within the configured seconds, or if the block
        fails after it changed a file; `Denied` if the folder cannot be written.
        """
        if not self._threads.acquire(timeout=self._lock_seconds):
            raise self._busy()
        try:
            self.check()
            self.touched = 0
            self._make_folder(self.root)
            self.known = True
            descriptor = self._lock()
            try:
                yield
            finally:
                os.close(descriptor)
        except MemtuiError as error:
            if self.touched:
                raise Unavailable(str(error), sent=True) from error
            raise
        except OSError as error:
            refusal = refused_by_system(f"The vault {self.root}", error)
            if self.touched:
                raise Unavailable(str(refusal), sent=True) from error
            raise refusal from error
        finally:
            self._threads.release()

    def _busy(self) -> Unavailable:
        return Unavailable(
            f"Another program has been writing to the vault {self.root} for too long; try again."
        )

    def _lock(self) -> int:
        """Lock the folder itself, so that it contains no lock file; return the open descriptor.

        Where folders cannot be locked, as on NFS, lock a file in it.
        """
        until = time.monotonic() + self._lock_seconds
        flags, place = os.O_RDONLY | os.O_DIRECTORY, self.root
        while True:
            descriptor = os.open(place, flags | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), place.stat()):
                    return descriptor
            except BlockingIOError:
                time.sleep(_LOCK_POLL_SECONDS)
            except OSError:
                if place != self.root:
                    os.close(descriptor)
                    raise
                flags, place = os.O_RDWR | os.O_CREAT, self.root / _LOCK
            os.close(descriptor)
            if time.monotonic() > until:
                raise self._busy()

    def scan(self) -> Scan:
        """Walk over the folder and return every markdown and history file with its signature.

        Raises `Unavailable` if the whole vault is gone.
        """
        self.check()
        self.known = self.root.is_dir()
        found = Scan()
        waiting = [""]
        while waiting:
            prefix = waiting.pop()
            try:
                with os.scandir(self.root / prefix) as entries:
                    for entry in entries:
                        self._visit(entry, prefix, found, waiting)
            except FileNotFoundError:
                continue
            except OSError as error:
                message = f"The folder cannot be read: {error.strerror}."
                found.problems.append(self.problem(prefix.rstrip("/"), message))
        for one in self.workspaces:
            self._scan_workspace(one, found)
        return found

    def _scan_workspace(self, workspace: Workspace, found: Scan) -> None:
        try:
            for entry in workspace.files():
                inner = Path(entry.path).relative_to(workspace.root).as_posix()
                path = f"{workspace.prefix}{inner}"
                if _is_utf8(path):
                    with contextlib.suppress(FileNotFoundError):
                        found.signatures[path] = _signature_of(entry.stat(follow_symlinks=False))
        except OSError as error:
            message = f"The project's folder cannot be read: {error.strerror}."
            found.problems.append(self.problem(workspace.prefix, message))

    def _visit(self, entry: os.DirEntry[str], prefix: str, found: Scan, waiting: list[str]) -> None:
        name, path = entry.name, prefix + entry.name
        if name.startswith("."):
            if name.startswith(_TEMP_PREFIX) and name.endswith(_TEMP_SUFFIX):
                found.leftovers.append(Path(entry.path))
            return
        is_ours = name.lower().endswith(".md") or name == HISTORY
        if entry.is_symlink():
            target = Path(os.path.realpath(entry.path))
            leaves = not (target.is_relative_to(self.root) and target.exists())
            if leaves and (is_ours or target.is_dir()):
                message = "It is a symbolic link out of the vault, which is not followed."
                found.problems.append(self.problem(path, message))
        elif entry.is_dir(follow_symlinks=False):
            if name not in self._exclude:
                waiting.append(f"{path}/")
        elif is_ours and not _is_utf8(path):
            shown = path.encode(errors="backslashreplace").decode()
            found.problems.append(self.problem(shown, "Its name is not UTF-8; rename the file."))
        elif is_ours:
            with contextlib.suppress(FileNotFoundError):
                found.signatures[path] = _signature_of(entry.stat(follow_symlinks=False))

    def clear_leftovers(self, leftovers: Sequence[Path]) -> None:
        """Remove the temporary files of killed writers; the lock keeps active writers out."""
        with self.locked():
            for path in leftovers:
                if path.is_dir():
                    path.rmdir()
                else:
                    path.unlink(missing_ok=True)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _signature_of(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}:{status.st_size}:{status.st_ino}"


def _note(folder: Path, made: Path) -> bytes:
    """Return the note of a folder: its inode, to recognise a replacement, and its path."""
    return b"%d %s" % (made.lstat().st_ino, os.fsencode(folder))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
