"""Reads files that other programs write, and detects later changes of them."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from memtui.contract import Json, Location, Problem

FILE_LIMIT = 64 * 1024 * 1024
"""Most bytes of a file; a larger one is listed as a problem and not read."""
FOLDER_LIMIT = 20_000
"""Most files read of one folder; beyond it, the folder is listed as a problem."""
_SETTLED_NS = 20_000_000
"""For this long after a change, another change may leave the file's time the same."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Signature:
    """The state of a file or folder, to detect changes."""

    device: int
    inode: int
    mode: int
    size: int
    modified_ns: int
    changed_ns: int
    settled: bool = field(default=True, compare=False)
    """False: it changed so recently that its times may miss the next change; never matches."""

    @classmethod
    def of(cls, found: os.stat_result) -> Signature:
        """Return the signature of a `stat` result."""
        times = found.st_mtime_ns, found.st_ctime_ns
        settled = time.time_ns() - max(times) > _SETTLED_NS
        return cls(found.st_dev, found.st_ino, found.st_mode, found.st_size, *times, settled)

    def same_as(self, other: Signature | None) -> bool:
        """Whether this state and `other` are certainly the same."""
        return self.settled and self == other

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self.mode)


def sign(path: Path) -> Signature | None:
    """Return the path's signature, links followed; None if it does not exist or is hidden."""
    try:
        return Signature.of(path.stat())
    except (OSError, ValueError):
        return None


def is_file(path: Path) -> bool:
    """Whether `path` is an accessible regular file."""
    found = sign(path)
    return found is not None and found.is_file


def is_folder(path: Path) -> bool:
    """Whether `path` is an accessible folder."""
    found = sign(path)
    return found is not None and found.is_folder


def is_gone(path: Path) -> bool:
    """Whether nothing is at `path`; False also if this cannot be determined."""
    try:
        path.lstat()
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    except ValueError:
        return True
    return False


@dataclass
class FileReader:
    """Reads the files for one load of a collection, and records the state of every path it checks.

    `memo`, shared by the loads of a collection, caches the parsed content of unchanged files.
    """

    memo: dict[Path, tuple[Signature, Any]] = field(default_factory=dict)
    seen: dict[Path, Signature | None] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def changed(self) -> bool:
        """Whether any checked path has changed since."""
        return any(
            now is not None if before is None else not before.same_as(now)
            for before, now in ((before, sign(path)) for path, before in self.seen.items())
        )

    def report(self, message: str, path: Path, line: int = 1) -> None:
        """List a problem at a place."""
        shown = os.fsencode(path).decode("utf-8", "replace")
        self.problems.append(Problem(message=message, location=Location(path=shown, line=line)))

    def look(self, path: Path) -> Signature | None:
        """Return the signature of `path` and record it, even None, to notice later changes."""
        self.seen[path] = sign(path)
        return self.seen[path]

    def modified(self, path: Path) -> datetime | None:
        """Return the modification time of a checked file, in UTC."""
        signature = self.seen.get(path)
        if signature is None:
            return None
        try:
            return _EPOCH + timedelta(microseconds=signature.modified_ns // 1000)
        except OverflowError:
            return None

    def parse(self, path: Path, parser: Callable[[str], T]) -> T | None:
        """Return the parser's result for a file's text; None if unreadable, with a problem listed.

        Bytes that are not UTF-8 become U+FFFD, with a problem; line ends become newlines.
        """
        before = sign(path)
        known = self.memo.get(path)
        if known is not None and known[0].same_as(before):
            self.seen[path] = before
            value, flaws = known[1]
        else:
            self.memo.pop(path, None)
            content = self._content(path)
            if content is None:
                return None
            text, flaws = _decode(content)
            value = parser(text)
            if (signature := self.seen[path]) is not None:
                self.memo[path] = (signature, (value, flaws))
        for flaw in flaws:
            self.report(flaw.message, path, flaw.line)
        parsed: T = value
        return parsed

    def files(self, folder: Path, suffix: str, *, depth: int = 1) -> list[Path]:
        """Return the folder's files with a suffix, sorted, down to `depth` levels.

        Hidden entries are left out. Links that lead out of the folder, folders with the suffix and
        unreadable folders become problems.
        """
        found: list[Path] = []
        root = resolved(folder) or folder
        for path in self._walk(folder, root, suffix, depth):
            if len(found) == FOLDER_LIMIT:
                self.report(f"Only the first {FOLDER_LIMIT} files are read.", folder)
                break
            found.append(path)
        return found

    def _walk(self, folder: Path, root: Path, suffix: str, depth: int) -> Iterator[Path]:
        self.seen[folder] = sign(folder)
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208 -- names, before they are trusted
        except FileNotFoundError:
            return
        except OSError as error:
            self.report(f"The folder cannot be listed ({error.strerror}).", folder)
            return
        for name in names:
            path = folder / name
            if name.startswith("."):
                continue
            stands_folder = is_folder(path)
            if not stands_folder and path.suffix.lower() != suffix:
                continue
            if reason := self._refusal(path, root, suffix, stands_folder and depth):
                self.report(reason, path)
            elif not stands_folder:
                yield path
            elif depth > 1:
                yield from self._walk(path, root, suffix, depth - 1)

    @staticmethod
    def _refusal(path: Path, root: Path, suffix: str, folder_depth: int) -> str | None:
        try:
            path.name.encode()
        except UnicodeEncodeError:
            return "The name is not valid UTF-8; rename the file to have it read."
        if folder_depth and path.suffix.lower() == suffix:
            return "A folder stands where a file was expected."
        if folder_depth > 1 and path.is_symlink():
            return "A link to a folder is not followed."
        if path.is_symlink():
            real = resolved(path)
            if real is None or not real.is_relative_to(root):
                return "The link leads nowhere or out of the folder, so it is not followed."
        return None

    def _content(self, path: Path) -> bytes | None:
        try:
            content, self.seen[path] = read_whole(path)
        except (FileRefused, OSError, ValueError) as error:
            self.seen[path] = sign(path)
            reason = error.strerror if isinstance(error, OSError) else "its name cannot be used"
            is_refused = isinstance(error, FileRefused)
            self.report(str(error) if is_refused else f"The file cannot be read ({reason}).", path)
            return None
        return content


class FileRefused(Exception):
    """The file exists but must not be read."""


def resolved(path: Path) -> Path | None:
    """Return the path with links resolved; None for a dangling or circular link."""
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        return None


def read_whole(path: Path) -> tuple[bytes, Signature]:
    """Return a file's bytes and signature. Raises `FileRefused`, `OSError`, `ValueError`."""
    # O_NONBLOCK: opening a named pipe must not wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 -- a descriptor
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise FileRefused("This is not a regular file, so it is not read.")
        for _ in range(3):
            if found.st_size > FILE_LIMIT:
                raise FileRefused(
                    f"The file has {found.st_size // 1024**2} MiB, more than the "
                    f"{FILE_LIMIT // 1024**2} that are read; split it."
                )
            before = Signature.of(found)
            file.seek(0)
            content = file.read(FILE_LIMIT)
            found = os.fstat(descriptor)
            if before == Signature.of(found):
                return content, before
        return content, replace(before, settled=False)


def _decode(content: bytes) -> tuple[str, tuple[Flaw, ...]]:
    flaws: tuple[Flaw, ...] = ()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = "From here on, bytes that are not UTF-8 are shown as \N{REPLACEMENT CHARACTER}."
        flaws = (Flaw(message, content.count(b"\n", 0, error.start) + 1),)
        text = content.decode("utf-8-sig", "replace")
    return text.replace("\r\n", "\n"), flaws


_ID_LIMIT = 160
_SLUG_CHARS = 60


@dataclass(frozen=True, slots=True)
class ParsedRecord:
    """One memory in a file, not yet assigned to a company and a binding."""

    id: str
    """Stable across reloads; a second entry with the same id in a collection gets `~2`."""
    text: str
    line: int = 1
    """The first line of the text, counted from 1."""
    title: str | None = None
    summary: str | None = None
    kind: str = "note"
    topic: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    run_id: str | None = None
    """The run that wrote it, if the file names one."""
    external_ref: str | None = None
    """The location of that run; without a run, the source is the file itself."""
    metadata: Json = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    caution: str | None = None
    lines: tuple[int, int] | None = None
    """The first and last line removed with the entry, if these are more than its text."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """An unreadable part of a file."""

    message: str
    line: int = 1


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The parsed content of one file: every part is in a record or a flaw."""

    records: tuple[ParsedRecord, ...] = ()
    flaws: tuple[Flaw, ...] = ()

    def dated(self, modified: datetime | None) -> ParsedFile:
        """Return it with the file's time in records that have none of their own."""
        return replace(self, records=tuple(
            one if one.updated_at or one.created_at else replace(one, updated_at=modified)
            for one in self.records
        ))  # fmt: skip


def digest(*parts: str) -> str:
    """Return a digest of the parts, twelve hexadecimal digits."""
    joined = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()[:12]


def printable_id(text: str) -> str:
    """Return a printable id for `text`, shortened and with a digest added where needed."""
    if len(text) <= _ID_LIMIT and text.isprintable():
        return text
    kept = "".join(char if char.isprintable() else "_" for char in text[:_ID_LIMIT])
    return f"{kept}-{digest(text)}"


def numbered(wanted: Iterable[str]) -> Iterator[str]:
    """Yield printable, unique ids for the wanted ones; a second equal one gets `~2`."""
    copies: dict[str, int] = {}
    for one in wanted:
        first = found = printable_id(one)
        while found in copies:
            copies[first] = copies.get(first, 0) + 1
            found = f"{first}~{copies[first]}"
        copies[found] = 1
        yield found


def own_id(record_id: str) -> str:
    """Return the id without its number."""
    return re.sub(r"~\d+\Z", "", record_id)


def first_line(text: str, limit: int = 80) -> str:
    """Return the first line of `text` as a title of at most `limit` characters."""
    line = text.lstrip()[: limit * 4].partition("\n")[0].strip().lstrip("-*+ ").strip()
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def slug(title: str, between: str = "_") -> str:
    """Return a title as part of a file name; `between` stands between its words."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", between, plain)
    return words[:_SLUG_CHARS].strip(between) or digest(title)


def parse_moment(value: object) -> datetime | None:
    """Return the UTC moment of ISO 8601 text; None if it is none. No offset means local time."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.strip()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
