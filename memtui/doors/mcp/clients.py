"""Telling an MCP client of this server: with its own command, or by a change to its file.

A file keeps everything else to the byte: comments, order, indentation, line ends. What is added is
put in as text, and the result is read again to see that it says what it said before and the new
entry, nothing else. Taking it out gives the file back as it was.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from memtui.contract import Conflict, Invalid, Json, NotFound, Unavailable
from memtui.paths import replacing

NAME = "memtui"
"""What the server is called in a client's configuration."""

_SKILL = "SKILL.md"
_TOKEN_CHARS = 8
_COMMAND_SECONDS = 60


@dataclass(frozen=True, slots=True)
class McpClient:
    """A client, and where it keeps its servers."""

    key: str
    name: str
    file: Callable[[Path], Path]
    """Its file, in a home folder."""
    holder: str
    """The member of the file that holds the servers."""
    program: str | None = None
    """Its own command."""
    add: tuple[str, ...] = ()
    """What its own command adds a server with; the server's command follows."""
    remove: tuple[str, ...] = ()
    skill: tuple[str, ...] | None = None
    """Where under the home folder it looks for a skill."""
    typed: bool = False
    """Whether an entry names its transport."""

    def entry(self, command: Sequence[str]) -> Json:
        """Return the entry of a server that a command starts."""
        transport = {"type": "stdio"} if self.typed else {}
        return {**transport, "command": command[0], "args": list(command[1:])}


def _config(home: Path) -> Path:
    """Return the folder of programs with windows."""
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    return Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")


CLIENTS = (
    McpClient(
        "claude-code",
        "Claude Code",
        lambda home: home / ".claude.json",
        "mcpServers",
        program="claude",
        add=("mcp", "add", "--scope", "user", NAME, "--"),
        remove=("mcp", "remove", "--scope", "user", NAME),
        skill=(".claude", "skills"),
        typed=True,
    ),
    McpClient(
        "claude-desktop",
        "Claude Desktop",
        lambda home: _config(home) / "Claude" / "claude_desktop_config.json",
        "mcpServers",
    ),
    McpClient(
        "codex",
        "Codex",
        lambda home: Path(os.environ.get("CODEX_HOME") or home / ".codex") / "config.toml",
        "mcp_servers",
        program="codex",
        add=("mcp", "add", NAME, "--"),
        remove=("mcp", "remove", NAME),
        skill=(".codex", "skills"),
    ),
    McpClient(
        "cursor", "Cursor", lambda home: home / ".cursor" / "mcp.json", "mcpServers", typed=True
    ),
    McpClient(
        "vscode",
        "VS Code",
        lambda home: _config(home) / "Code" / "User" / "mcp.json",
        "servers",
        typed=True,
    ),
    McpClient(
        "gemini",
        "Gemini CLI",
        lambda home: home / ".gemini" / "settings.json",
        "mcpServers",
    ),
    McpClient(
        "antigravity",
        "Antigravity",
        lambda home: home / ".gemini" / "config" / "mcp_config.json",
        "mcpServers",
        skill=(".gemini", "config", "skills"),
    ),
)


def find_client(key: str) -> McpClient:
    """Return a client by its key.

    Raises:
        Invalid: there is none of this name.
    """
    for client in CLIENTS:
        if client.key == key:
            return client
    raise Invalid(f"There is no client {key}; there are {', '.join(one.key for one in CLIENTS)}.")


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file as it is and as it is to be; None: there is none."""

    path: Path
    before: bytes | None
    after: bytes | None

    @property
    def token(self) -> str:
        """What a yes to this change is given by: another file or change has another."""
        told = (str(self.path).encode(), self.before or b"", self.after or b"")
        lengths = b"".join(len(part).to_bytes(8, "big") for part in told)
        return hashlib.sha256(lengths + b"".join(told)).hexdigest()[:_TOKEN_CHARS]

    def lines(self) -> list[str]:
        """Return the change as a unified diff."""
        old, new = (
            (side or b"").decode("utf-8", "replace").splitlines(keepends=True)
            for side in (self.before, self.after)
        )
        path = str(self.path)
        shown = difflib.unified_diff(old, new, path, path)
        return [line.rstrip("\r\n") for line in shown]

    def apply(self) -> None:
        """Make the change.

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
                if self.path.name == _SKILL:
                    self.path.parent.rmdir()
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            mode = 0o600 if self.before is None else stat.S_IMODE(self.path.stat().st_mode)
            with replacing(self.path.resolve(), mode) as fresh:
                fresh.write_bytes(self.after)
        except OSError as error:
            raise Unavailable(f"{self.path} cannot be written: {error.strerror}.") from error


def read(path: Path) -> bytes | None:
    """Return what a file holds, None where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def installing(client: McpClient, path: Path, command: Sequence[str]) -> FileChange:
    """Return the change that tells a client of the server.

    Raises:
        Invalid: the file cannot be read, or holds another server of this name.
    """
    before = read(path)
    entry = client.entry(command)
    form = _form(path)
    document = form.load(path, before)
    servers = document.get(client.holder, {})
    if not isinstance(servers, dict):
        raise Invalid(f"{path} holds something else under {client.holder}; mend it by hand.")
    if servers.get(NAME) == entry:
        return FileChange(path, before, before)
    if NAME in servers:
        raise Invalid(
            f"{path} has another server called {NAME}; take it out first with "
            f"`memtui mcp uninstall {client.key}`."
        )
    after = form.added(before, client.holder, entry)
    wanted = {**document, client.holder: {**servers, NAME: entry}}
    return _checked(form, FileChange(path, before, after), wanted, client.holder)


def uninstalling(client: McpClient, path: Path) -> FileChange:
    """Return the change that takes the server out again.

    Of the files that it can have been added to, it is the one to which adding gives this file.

    Raises:
        NotFound: it is not there.
        Invalid: the file cannot be read.
    """
    now = read(path)
    form = _form(path)
    servers = form.load(path, now).get(client.holder)
    if now is None or not isinstance(servers, dict) or NAME not in servers:
        raise NotFound(f"{client.name} has no server {NAME} in {path}.")
    without = form.without(now, client.holder)
    for before in (*without, b"", None):
        if form.added(before, client.holder, servers[NAME]) == now:
            return FileChange(path, now, before)
    document = form.load(path, now)
    document[client.holder] = {k: v for k, v in servers.items() if k != NAME}
    return _checked(form, FileChange(path, now, without[0]), document, client.holder)


def _checked(form: Form, change: FileChange, wanted: Json, holder: str) -> FileChange:
    """Return the change if the file then says what is wanted; an empty holder may be left out."""
    if {holder: {}} | form.load(change.path, change.after) != {holder: {}} | wanted:
        raise Invalid(f"{change.path} is written in a way that memtui cannot edit; do it by hand.")
    return change


class Form(ABC):
    """A way to write a configuration, edited as text."""

    @abstractmethod
    def parse(self, text: str) -> Any:
        """Return what a text says. Raises ValueError."""

    @abstractmethod
    def added(self, before: bytes | None, holder: str, entry: Json) -> bytes:
        """Return a file with the server in it; None: there is no file."""

    @abstractmethod
    def without(self, now: bytes, holder: str) -> list[bytes]:
        """Return the files without the server that this one can have come from."""

    def load(self, path: Path, data: bytes | None) -> Json:
        """Return what a file says; nothing is an empty object.

        Raises:
            Invalid: it cannot be read.
        """
        try:
            text = (data or b"").decode("utf-8-sig")
            document = self.parse(text) if text.strip() else {}
        except (ValueError, RecursionError) as error:
            raise Invalid(f"{path} cannot be read ({error}); mend it first.") from error
        if not isinstance(document, dict):
            raise Invalid(f"{path} holds no object; mend it first.")
        return document


_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)


class TomlForm(Form):
    """TOML: the server is a table of its own at the end."""

    def parse(self, text: str) -> Any:
        """Return what a text says."""
        return tomllib.loads(text)

    def added(self, before: bytes | None, holder: str, entry: Json) -> bytes:
        """Return the file with the table behind all else."""
        text = (before or b"").decode()
        end = "\r\n" if "\r\n" in text else "\n"
        pairs = [
            f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in entry.items()
        ]
        table = end.join([f"[{holder}.{NAME}]", *pairs])
        ended = before is None or text.endswith("\n")
        gap = "" if not text else end if ended else end * 2
        return f"{text}{gap}{table}{end if ended else ''}".encode()

    def without(self, now: bytes, holder: str) -> list[bytes]:
        """Return the file without the table and the empty line above it."""
        text = now.decode()
        header = re.search(rf"^\[{holder}\.{NAME}\]", text, re.MULTILINE)
        if header is None:
            return [now]
        behind = _HEADER.search(text, header.end())
        above, below = text[: header.start()], text[behind.start() :] if behind else ""
        line = above.removesuffix("\n").removesuffix("\r")
        return [(one + below).encode() for one in (line, line.rstrip("\r\n"), above)]


class _Member(NamedTuple):
    """A member of a JSON object, by its places in the text."""

    name: str
    start: int
    value: int
    end: int


class JsonForm(Form):
    """JSON, also with comments and with commas behind the last member."""

    def parse(self, text: str) -> Any:
        """Return what a text says."""
        return json.loads(_plain(text))

    def added(self, before: bytes | None, holder: str, entry: Json) -> bytes:
        """Return the file with the server behind the others."""
        text = (before or b"").decode()
        if not text.strip("\ufeff \t\r\n"):
            made = json.dumps({holder: {NAME: entry}}, indent=2, ensure_ascii=False)
            return f"{text}{made}{'' if before == b'' else chr(10)}".encode()
        root = _skip(text, 0)
        there = next((one for one in _members(text, root) if one.name == holder), None)
        if there is None:
            return _put(text, root, holder, {NAME: entry}).encode()
        return _put(text, there.value, NAME, entry).encode()

    def without(self, now: bytes, holder: str) -> list[bytes]:
        """Return the file without the server, and without the holder where that is empty then."""
        text = now.decode()
        there = next((one for one in _members(text, _skip(text, 0)) if one.name == holder), None)
        if there is None:
            return [now]
        left = _cut(text, there.value, NAME)
        bare = [] if list(_members(left, there.value)) else [_cut(left, _skip(left, 0), holder)]
        return [one.encode() for one in (left, *bare)]


def _form(path: Path) -> Form:
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


def _members(text: str, opening: int) -> Iterator[_Member]:
    """Yield the members of the object that opens at a place of a text that is known to be JSON."""
    at = _skip(text, opening + 1)
    while text[at] != "}":
        start, name_end = at, _value_end(text, at)
        value = _skip(text, _skip(text, name_end) + 1)
        end = _value_end(text, value)
        yield _Member(json.loads(text[start:name_end]), start, value, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


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


def _put(text: str, opening: int, name: str, value: Json) -> str:
    """Return a text with a member behind the others of the object that opens at a place.

    A holder that is made here looks other than an empty one that is filled: one goes again with the
    server, the other stays.
    """
    members = list(_members(text, opening))
    is_root = opening == _skip(text, 0)
    end = "\r\n" if "\r\n" in text else "\n"
    if not members and not is_root:
        return text[: opening + 1] + _member(name, value) + text[opening + 1 :]
    if not members:
        return f"{text[: opening + 1]} {_padded(name, value)} {text[opening + 1 :]}"
    last = members[-1]
    line = text.rfind("\n", 0, last.start) + 1
    indent = text[line : last.start]
    if not line or indent.strip():
        behind = ", " + (_padded if is_root else _member)(name, value)
    else:
        unit = "\t" if "\t" in indent else " " * (len(indent) if is_root else 2)
        behind = f",{end}{indent}" + _member(name, value, unit).replace("\n", end + indent)
    return text[: last.end] + behind + text[last.end :]


def _padded(name: str, value: Json) -> str:
    return _member(name, value)[:-1].replace(": {", ": { ", 1) + " }"


def _member(name: str, value: Json, indent: str | None = None) -> str:
    return f"{json.dumps(name)}: {json.dumps(value, indent=indent, ensure_ascii=False)}"


def _cut(text: str, opening: int, name: str) -> str:
    """Return a text without a member of the object that opens at a place."""
    members = list(_members(text, opening))
    at = next(number for number, one in enumerate(members) if one.name == name)
    if at > 0:
        return text[: members[at - 1].end] + text[members[at].end :]
    if len(members) > 1:
        return text[: members[0].start] + text[members[1].start :]
    start, end = opening + 1, members[0].end
    is_padded = text[start] == text[end] == " "
    return text[:start] + text[end + is_padded :]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done for a client: a command of its own, and changes of files."""

    command: tuple[str, ...] | None
    changes: tuple[FileChange, ...]

    @property
    def token(self) -> str:
        """What a yes to all of it is given by."""
        told = "\0".join([*(self.command or ()), *(one.token for one in self.changes)])
        return hashlib.sha256(told.encode()).hexdigest()[:_TOKEN_CHARS]

    def lines(self) -> list[str]:
        """Return it for a person: the command, then the files' differences."""
        told = [f"$ {shlex.join(self.command)}"] if self.command else []
        return [*told, *(line for one in self.changes for line in one.lines())]

    def carry_out(self) -> None:
        """Do it.

        Raises:
            Conflict: a file changed since.
            Unavailable: the command failed, or a file cannot be written.
        """
        if self.command:
            _run(self.command)
        for change in self.changes:
            change.apply()


def plan_install(client: McpClient, home: Path, command: Sequence[str], skill: str) -> Plan:
    """Return how a client is told of the server that a command starts, and of when to use it.

    The client's own command is taken where it is on the path, else its file is changed. `skill` is
    the text of a skill, for clients that look for some.

    Raises:
        Invalid: its file cannot be read, or holds another server of this name.
    """
    own, changes = _own(client, (*client.add, *command)), []
    if own is None:
        changes.append(installing(client, client.file(home), command))
    if client.skill is not None:
        path = _skill_path(client, home)
        changes.append(FileChange(path, read(path), skill.encode()))
    return Plan(own, tuple(one for one in changes if one.before != one.after))


def plan_uninstall(client: McpClient, home: Path) -> Plan:
    """Return how the server is taken out of a client again.

    Raises:
        NotFound: the client does not have it.
    """
    own, changes = _own(client, client.remove), []
    if own is None:
        changes.append(uninstalling(client, client.file(home)))
    if client.skill is not None and (held := read(path := _skill_path(client, home))) is not None:
        changes.append(FileChange(path, held, None))
    return Plan(own, tuple(changes))


def is_installed(client: McpClient, home: Path) -> bool:
    """Whether a client's file names the server.

    Raises:
        Invalid: it cannot be read.
    """
    path = client.file(home)
    servers = _form(path).load(path, read(path)).get(client.holder)
    return isinstance(servers, dict) and NAME in servers


def _skill_path(client: McpClient, home: Path) -> Path:
    return home.joinpath(*(client.skill or ()), f"{NAME}-memory", _SKILL)


def _own(client: McpClient, arguments: Sequence[str]) -> tuple[str, ...] | None:
    """Return the client's own command, None where it has none or it is not on the path."""
    program = shutil.which(client.program) if client.program else None
    return (program, *arguments) if program else None


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
        told = words[-1] if words else f"exit code {ended.returncode}"
        raise Unavailable(f"{command[0]} refused: {told}")
