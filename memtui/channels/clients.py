"""Registers memtui with an agent's client, by the client's own command or by editing its file.

The rest of the file stays the same to the byte: comments, order, indentation, line ends. The
addition is inserted as text. Then the result is parsed, to verify that it differs from the old
document by the addition only. Removing the addition restores the file.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import shlex
import shutil
import stat
import subprocess
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from memtui.contract import Conflict, Invalid, Json, Unavailable
from memtui.paths import replacing
from memtui.wording import unknown

SKILL = "SKILL.md"
"""The file that a skill is; its folder goes with it."""

_TOKEN_CHARS = 8
_COMMAND_SECONDS = 60


_PROGRAMS = {"claude-code": "claude", "vscode": "code"}
"""The commands of clients whose key is another word."""


@dataclass(frozen=True, slots=True)
class ClientProgram(ABC):
    """A client that can use memtui, and its file in which memtui is configured."""

    key: str
    """Its name in commands."""
    name: str
    file: Callable[[Path], Path]
    """The path of its file, for a home folder."""

    def is_there(self, home: Path) -> bool:
        """Whether it seems to be installed: its file or a folder for it is there, or a command."""
        file = self.file(home)
        has_folder = file.parent != home and file.parent.is_dir()
        program = _PROGRAMS.get(self.key, self.key)
        return file.exists() or has_folder or shutil.which(program) is not None

    @abstractmethod
    def has_memtui(self, home: Path) -> bool:
        """Whether its file names memtui. Raises `Invalid` for a file that cannot be read."""


ClientT = TypeVar("ClientT", bound=ClientProgram)


def find_client(key: str, clients: Sequence[ClientT]) -> ClientT:
    """Return a client by its key.

    Raises:
        Invalid: there is none of this name.
    """
    for client in clients:
        if client.key == key:
            return client
    raise Invalid(unknown("client", key, [one.key for one in clients]))


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file as it is and as it is to be; None: there is none."""

    path: Path
    before: bytes | None
    after: bytes | None

    @property
    def token(self) -> str:
        """What a yes to this change is given by: another file or change has another."""
        parts = (str(self.path).encode(), self.before or b"", self.after or b"")
        lengths = b"".join(len(part).to_bytes(8, "big") for part in parts)
        return hashlib.sha256(lengths + b"".join(parts)).hexdigest()[:_TOKEN_CHARS]

    def lines(self) -> list[str]:
        """Return the change as a unified diff."""
        old, new = (
            (side or b"").decode("utf-8", "replace").splitlines(keepends=True)
            for side in (self.before, self.after)
        )
        path = str(self.path)
        shown = difflib.unified_diff(old, new, path, path)
        return [line.rstrip("\r\n") for line in shown]

    def apply(self, made: set[Path]) -> None:
        """Make the change; `made` are the folders that such changes made, and are kept in sync.

        Raises:
            Conflict: the file changed since it was read.
            Unavailable: it cannot be written.
        """
        try:
            if read(self.path) != self.before:
                raise Conflict(
                    f"{self.path} changed since the difference was shown; look at it again."
                )
            if self.after is None:
                self.path.unlink()
                for folder in self.path.parents:
                    is_own = folder in made or (folder / SKILL == self.path)
                    if not is_own or any(folder.iterdir()):
                        break
                    folder.rmdir()
                    made.discard(folder)
                return
            made |= {folder for folder in self.path.parents if not folder.exists()}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            mode = 0o600 if self.before is None else stat.S_IMODE(self.path.stat().st_mode)
            with replacing(self.path.resolve(), mode) as fresh:
                fresh.write_bytes(self.after)
        except OSError as error:
            raise Unavailable(f"{self.path} cannot be written: {error.strerror}.") from error


def read(path: Path) -> bytes | None:
    """Return the bytes of a file; None: there is no file. Raises `Unavailable`."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}.") from error


def unchanged(path: Path) -> FileChange:
    """Return the change of a file that stays as it is."""
    content = read(path)
    return FileChange(path, content, content)


class Addition(NamedTuple):
    """A value that a file gets."""

    path: tuple[str, ...]
    """The names of the members that lead to it, from the outside in."""
    value: Any
    listed: bool = False
    """Whether it becomes the last element of the list there, else the member itself."""


def adding(path: Path, additions: Sequence[Addition], begin: Sequence[Addition] = ()) -> FileChange:
    """Return the change that adds values to a file; `begin` is added first if the file is empty.

    Raises:
        Invalid: the file cannot be read or edited.
    """
    before, form = read(path), form_of(path)
    document = form.load(path, before)
    added = [*(() if document else begin), *additions]
    wanted = _with(path, document, added)
    return _checked(form, FileChange(path, before, form.added(before, added)), wanted, added)


def removing(
    path: Path, additions: Sequence[Addition], begin: Sequence[Addition] = ()
) -> FileChange:
    """Return the change that takes values that are there out of a file again.

    Of the files that they can have been added to, it is the one to which adding gives this file.

    Raises:
        Invalid: the file cannot be read or edited.
    """
    now, form = read(path) or b"", form_of(path)
    for nothing in (b"", None):
        if form.added(nothing, [*begin, *additions]) == now:
            return FileChange(path, now, nothing)
    without = form.without(now, additions)
    for before in without:
        if form.added(before, additions) == now:
            return FileChange(path, now, before)
    wanted = _without(form.load(path, now), additions)
    return _checked(form, FileChange(path, now, without[-1] if without else now), wanted, additions)


def _with(path: Path, document: Json, additions: Sequence[Addition]) -> Json:
    """Return what a file says with more values. Raises `Invalid` if something is in the way."""
    wanted = deepcopy(document)
    for one in additions:
        holder: Any = wanted
        for name in one.path[:-1]:
            holder = holder.setdefault(name, {})
            _require(path, one, isinstance(holder, dict))
        if one.listed:
            entries = holder.setdefault(one.path[-1], [])
            _require(path, one, isinstance(entries, list))
            entries.append(one.value)
        else:
            _require(path, one, one.path[-1] not in holder)
            holder[one.path[-1]] = one.value
    return wanted


def _require(path: Path, one: Addition, fits: bool) -> None:  # noqa: FBT001 - what it is about
    if not fits:
        place = ".".join(one.path)
        raise Invalid(f"{path} holds something else under {place}; fix it by hand.")


def _without(document: Json, additions: Sequence[Addition]) -> Json:
    wanted = deepcopy(document)
    for one in additions:
        holder = wanted
        for name in one.path[:-1]:
            holder = holder[name]
        if one.listed:
            holder[one.path[-1]].remove(one.value)
        else:
            del holder[one.path[-1]]
    return wanted


def _checked(
    form: ConfigFormat, change: FileChange, wanted: Json, additions: Sequence[Addition]
) -> FileChange:
    """Return the change if the file then says what is wanted; what is empty may be left out."""
    said = form.load(change.path, change.after)
    if _bare(said, additions) != _bare(wanted, additions):
        raise Invalid(f"{change.path} is written in a way that memtui cannot edit; do it by hand.")
    return change


def _bare(document: Json, additions: Sequence[Addition]) -> Json:
    """Return a document without the members that are empty once the additions are removed."""
    bare = deepcopy(document)
    for one in additions:
        holders: list[Any] = [bare]
        for name in one.path:
            if not isinstance(holders[-1], dict) or name not in holders[-1]:
                break
            holders.append(holders[-1][name])
        for holder, name in reversed(list(zip(holders, one.path, strict=False))):
            if isinstance(holder, dict) and holder.get(name) in ({}, []):
                del holder[name]
    return bare


class ConfigFormat(ABC):
    """A way to write a configuration, edited as text."""

    @abstractmethod
    def parse(self, text: str) -> Any:
        """Parse a text. Raises ValueError."""

    @abstractmethod
    def added(self, before: bytes | None, additions: Sequence[Addition]) -> bytes:
        """Return a file with the values in it; None: there is no file."""

    @abstractmethod
    def without(self, now: bytes, additions: Sequence[Addition]) -> list[bytes]:
        """Return the files without the values that this one can have come from."""

    @abstractmethod
    def written(self, text: str, place: Sequence[str]) -> tuple[int, int]:
        """Return where a value at a place begins and ends. Raises `Invalid`."""

    @abstractmethod
    def replaced(self, text: str, place: Sequence[str], value: Json) -> str:
        """Return a text with another object at a place. Raises `Invalid`."""

    def load(self, path: Path, data: bytes | None) -> Json:
        """Return the parsed document; an empty file is an empty object.

        Raises:
            Invalid: it cannot be read.
        """
        try:
            text = (data or b"").decode("utf-8-sig")
            document = self.parse(text) if text.strip() else {}
        except (ValueError, RecursionError) as error:
            raise Invalid(f"{path} cannot be read ({error}); fix it first.") from error
        if not isinstance(document, dict):
            raise Invalid(f"{path} holds no object; fix it first.")
        return document


class TomlForm(ConfigFormat):
    """TOML: an object is a table of its own at the end.

    tomlkit writes the table; it is put in by hand because tomlkit would put it between a comment
    and the table that the comment is about, and with other line ends than the file's.
    """

    def parse(self, text: str) -> Any:
        """Parse a text."""
        return tomllib.loads(text)

    def added(self, before: bytes | None, additions: Sequence[Addition]) -> bytes:
        """Return the file with the tables behind all else."""
        text = None if before is None else before.decode()
        for one in additions:
            end = _line_end(text or "")
            ended = text is None or text.endswith("\n")
            gap = "" if not text else end if ended else end * 2
            text = f"{text or ''}{gap}{_table(one, end)}{end if ended else ''}"
        return (text or "").encode()

    def written(self, text: str, place: Sequence[str]) -> tuple[int, int]:
        """Return where a table with those below it begins and ends; comments after it stay."""
        begin, end, at = -1, -1, 0
        is_inside = False
        for line in text.splitlines(keepends=True):
            if names := _header(line):
                is_inside = names[: len(place)] == [*place]
                begin = at if is_inside and begin < 0 else begin
            if is_inside and line.strip() and not line.lstrip().startswith("#"):
                end = at + len(line.rstrip("\r\n"))
            at += len(line)
        if begin < 0:
            raise Invalid(f"{'.'.join(place)} is not a table of its own; change it by hand.")
        return begin, end

    def replaced(self, text: str, place: Sequence[str], value: Json) -> str:
        """Return the text with another table."""
        begin, end = self.written(text, place)
        table = _table(Addition(tuple(place), value), _line_end(text))
        return text[:begin] + table + text[end:]

    def without(self, now: bytes, additions: Sequence[Addition]) -> list[bytes]:
        """Return the file without the tables and the empty line above each."""
        texts = [now.decode()]
        for one in reversed(additions):
            texts = [left for text in texts for left in _without_table(text, one)]
        return [text.encode() for text in texts]


def _header(line: str) -> list[str]:
    """Return the names that lead to the table that a line begins; none: it begins none."""
    if not line.lstrip().startswith("["):
        return []
    try:
        found: Any = tomllib.loads(line)
    except ValueError:
        return []
    names: list[str] = []
    while isinstance(found, dict) and found:
        [(name, found)] = found.items()
        names.append(name)
    return names


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _table(one: Addition, end: str) -> str:
    import tomlkit

    value = one.value
    for name in reversed(one.path):
        value = {name: value}
    return tomlkit.dumps(value).rstrip("\n").replace("\n", end)


def _without_table(text: str, one: Addition) -> list[str]:
    """Return the texts that a table can have been added to, the likeliest last."""
    end = _line_end(text)
    above, found, below = text.partition(_table(one, end))
    is_whole = (
        found and (not above or above.endswith("\n")) and (not below or below.startswith(end))
    )
    if not is_whole:
        return _without_rewritten(text, one)
    below = below.removeprefix(end)
    line = above.removesuffix(end)
    likeliest = line if below.startswith(end) else above
    return [left + below for left in (line, line.rstrip("\r\n"), above, likeliest)]


def _without_rewritten(text: str, one: Addition) -> list[str]:
    """Return the text without a table that somebody has written in another way since."""
    import tomlkit
    from tomlkit.items import Table

    document = tomlkit.parse(text)
    holder: Any = document
    try:
        for name in one.path[:-1]:
            holder = holder[name]
        table = holder[one.path[-1]]
        del holder[one.path[-1]]
    except KeyError:
        return []
    if not isinstance(table, Table):
        return [document.as_string()]
    last = max((at for at, (key, _) in enumerate(table.value.body) if key is not None), default=-1)
    behind = "".join(item.as_string() for _, item in table.value.body[last + 1 :])
    whole = table.as_string()
    above, _, below = text.partition(whole)
    header = above.rstrip("\r\n").rfind("\n") + 1
    return [above[:header].removesuffix(_line_end(text)) + behind + below]


class _Part(NamedTuple):
    """A member of a JSON object or an element of a list, by its places in the text."""

    name: str | None
    """None: it is an element."""
    start: int
    value: int
    end: int


class JsonForm(ConfigFormat):
    """JSON, also with comments and with commas behind the last member.

    Edited by hand: no library in use writes JSON with comments and keeps the rest to the byte.
    """

    def parse(self, text: str) -> Any:
        """Parse a text."""
        return json.loads(_plain(text))

    def added(self, before: bytes | None, additions: Sequence[Addition]) -> bytes:
        """Return the file with the values behind the others."""
        text = (before or b"").decode()
        if not text.strip("\ufeff \t\r\n"):
            made = json.dumps(_with(Path(), {}, additions), indent=2, ensure_ascii=False)
            return f"{text}{made}{'' if before == b'' else chr(10)}".encode()
        for one in additions:
            text = _added(text, one)
        return text.encode()

    def written(self, text: str, place: Sequence[str]) -> tuple[int, int]:
        """Return where a value begins and ends."""
        opening, part = _skip(text, 0), None
        for name in place:
            part = _member(text, opening, name)
            if part is None:
                raise Invalid(f"{'.'.join(place)} is not there.")
            opening = part.value
        assert part is not None  # noqa: S101 - a place has names
        return part.value, part.end

    def replaced(self, text: str, place: Sequence[str], value: Json) -> str:
        """Return the text with another object, indented as the one before."""
        begin, end = self.written(text, place)
        line = text[text.rfind("\n", 0, begin) + 1 : begin]
        indent = line[: len(line) - len(line.lstrip())]
        unit = ("\t" if "\t" in indent else 2) if "\n" in text[begin:end] else None
        new = json.dumps(value, indent=unit, ensure_ascii=False)
        return text[:begin] + new.replace("\n", _line_end(text) + indent) + text[end:]

    def without(self, now: bytes, additions: Sequence[Addition]) -> list[bytes]:
        """Return the file without the values, and without the holders that are empty then."""
        texts = [now.decode()]
        for one in reversed(additions):
            texts = [left for text in texts for left in _taken(text, one)]
        return [text.encode() for text in texts]


def form_of(path: Path) -> ConfigFormat:
    """Return how a file is written, by its name."""
    return TomlForm() if path.suffix == ".toml" else JsonForm()


_SPACE = re.compile(r"(?:[\s\ufeff]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SCALAR = re.compile(r"[^\s,\]}/]+")


def _skip(text: str, at: int) -> int:
    """Return where what is neither space nor comment begins."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value_end(text: str, at: int) -> int:
    if text[at] not in "{[":
        found = (_STRING if text[at] == '"' else _SCALAR).match(text, at)
        return found.end() if found else at
    depth = 0
    while True:
        if text[at] == '"':
            at = _value_end(text, at)
        else:
            depth += (text[at] in "{[") - (text[at] in "}]")
            at += 1
        if depth == 0:
            return at
        at = _skip(text, at)


def _parts(text: str, opening: int) -> list[_Part]:
    """Return what is in the object or list that opens at a place of a text known to be JSON."""
    found, at, named = [], _skip(text, opening + 1), text[opening] == "{"
    while text[at] not in "}]":
        start = value = at
        name = None
        if named:
            name_end = _value_end(text, at)
            name, value = json.loads(text[at:name_end]), _skip(text, _skip(text, name_end) + 1)
        end = _value_end(text, value)
        found.append(_Part(name, start, value, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _plain(text: str) -> str:
    """Return JSON without comments and without commas behind a last member."""
    parts, at = [], 0
    while at < len(text):
        string, space = _STRING.match(text, at), _SPACE.match(text, at)
        if string:
            parts.append(string[0])
            at = string.end()
        elif space and space.end() > at:
            parts.append(" ")
            at = space.end()
        elif text[at] == "," and text[_skip(text, at + 1) :][:1] in {"}", "]"}:
            at += 1
        else:
            parts.append(text[at])
            at += 1
    return "".join(parts)


def _member(text: str, opening: int, name: str) -> _Part | None:
    return next((one for one in _parts(text, opening) if one.name == name), None)


def _added(text: str, one: Addition) -> str:
    """Return a text with a value added; missing containers on its path are created."""
    opening = _skip(text, 0)
    value = [one.value] if one.listed else one.value
    for depth, name in enumerate(one.path):
        there = _member(text, opening, name)
        if there is None:
            for inner in reversed(one.path[depth + 1 :]):
                value = {inner: value}
            return _put(text, opening, name, value)
        opening = there.value
    return _put(text, opening, None, one.value)


def _put(text: str, opening: int, name: str | None, value: Any) -> str:
    """Return a text with a part behind the others of the object or list that opens at a place.

    A container that is created here is written in another form than an empty one that is filled, so
    that only the created one is removed with its content.
    """
    parts = _parts(text, opening)
    is_root = opening == _skip(text, 0)
    end = _line_end(text)
    if not parts and (is_root or name is None):
        return f"{text[: opening + 1]} {_padded(name, value)} {text[opening + 1 :]}"
    if not parts:
        return text[: opening + 1] + _written(name, value) + text[opening + 1 :]
    last = parts[-1]
    line = text.rfind("\n", 0, last.start) + 1
    indent = text[line : last.start]
    if not line or indent.strip():
        behind = ", " + (_padded if is_root else _written)(name, value)
    else:
        unit = "\t" if "\t" in indent else " " * (len(indent) if is_root else 2)
        behind = f",{end}{indent}" + _written(name, value, unit).replace("\n", end + indent)
    return text[: last.end] + behind + text[last.end :]


def _padded(name: str | None, value: Any) -> str:
    written = _written(name, value)
    if name is None or not isinstance(value, dict):
        return written
    return written[:-1].replace(": {", ": { ", 1) + " }"


def _written(name: str | None, value: Any, indent: str | None = None) -> str:
    written = json.dumps(value, indent=indent, ensure_ascii=False)
    return written if name is None else f"{json.dumps(name)}: {written}"


def _taken(text: str, one: Addition) -> list[str]:
    """Return the texts without a value: with the holders that are empty then, and without them."""
    openings = [_skip(text, 0)]
    for name in one.path[:-1] if not one.listed else one.path:
        there = _member(text, openings[-1], name)
        if there is None:
            return []
        openings.append(there.value)
    parts = _parts(text, openings[-1])
    same = [
        number
        for number, part in enumerate(parts)
        if (one.listed or part.name == one.path[-1])
        and json.loads(_plain(text[part.value : part.end])) == one.value
    ]
    if not same:
        return []
    left = _cut(text, openings[-1], same[-1])
    found = [left]
    for name, holder, opening in zip(
        reversed(one.path[: len(openings) - 1]), openings[-2::-1], openings[:0:-1], strict=True
    ):
        if _parts(left, opening):
            break
        names = [part.name for part in _parts(left, holder)]
        left = _cut(left, holder, names.index(name))
        found.append(left)
    return found


def _cut(text: str, opening: int, at: int) -> str:
    """Return a text without a part of the object or list that opens at a place."""
    parts = _parts(text, opening)
    if at > 0:
        return text[: parts[at - 1].end] + text[parts[at].end :]
    if len(parts) > 1:
        return text[: parts[0].start] + text[parts[1].start :]
    start, end = opening + 1, parts[0].end
    is_padded = text[start] == text[end] == " "
    return text[:start] + text[end + is_padded :]


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """What is to be done for a client: a command of its own, and changes of files."""

    command: tuple[str, ...] | None
    changes: tuple[FileChange, ...]

    @property
    def token(self) -> str:
        """What a yes to all of it is given by."""
        text = "\0".join([*(self.command or ()), *(one.token for one in self.changes)])
        return hashlib.sha256(text.encode()).hexdigest()[:_TOKEN_CHARS]

    def lines(self) -> list[str]:
        """Return it for a person: the command, then the files' differences."""
        command = [f"$ {shlex.join(self.command)}"] if self.command else []
        return [*command, *(line for one in self.changes for line in one.lines())]

    def carry_out(self, made: set[Path]) -> None:
        """Do it; `made` are the folders that plans made, and are kept in sync.

        Raises:
            Conflict: a file changed since.
            Unavailable: the command failed, or a file cannot be written.
        """
        if self.command:
            _run(self.command)
        for change in self.changes:
            change.apply(made)


def _run(command: Sequence[str]) -> None:
    """Run a client's own command.

    Raises:
        Unavailable: it failed; its words are told.
    """
    try:
        ended = subprocess.run(  # noqa: S603 - the program was found on the path, as a person would
            command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]} could not be run: {error}.") from error
    if ended.returncode != 0:
        words = (ended.stderr or ended.stdout).strip().splitlines()
        reason = words[-1] if words else f"exit code {ended.returncode}"
        raise Unavailable(f"{command[0]} refused: {reason}")
