"""The MCP clients that memtui knows, and how this server is added to each."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memtui.backends import client_configs
from memtui.backends.client_configs import codex_folder, program_folder
from memtui.channels.clients import (
    SKILL,
    Addition,
    ClientPlan,
    ClientProgram,
    FileChange,
    adding,
    form_of,
    read,
    removing,
    unchanged,
)
from memtui.contract import Invalid, Json, NotFound

NAME = "memtui"
"""The server's name in a client's configuration."""


@dataclass(frozen=True, slots=True)
class McpClient(ClientProgram):
    """A client whose file has its MCP servers."""

    holder: str
    """The file's member with the servers."""
    program: str | None = None
    """The client's command; None: it has none."""
    add: tuple[str, ...] = ()
    """Arguments of its command that add a server; the server's command follows."""
    remove: tuple[str, ...] = ()
    skill: tuple[str, ...] | None = None
    """Path of a skill below the home folder; None: it reads none."""
    typed: bool = False
    """Whether an entry names its transport."""

    def entry(self, command: Sequence[str]) -> Json:
        """Return the entry of a server that a command starts."""
        transport = {"type": "stdio"} if self.typed else {}
        return {**transport, "command": command[0], "args": list(command[1:])}

    def has_memtui(self, home: Path) -> bool:
        """Whether its file names the server. Raises `Invalid` for a file that cannot be read."""
        return NAME in servers(self, self.file(home))


CLIENTS = (
    McpClient(
        "claude-code",
        "Claude Code",
        lambda home: home / client_configs.CLAUDE_CODE,
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
        lambda home: program_folder(home, os.environ) / client_configs.CLAUDE_DESKTOP,
        "mcpServers",
    ),
    McpClient(
        "codex",
        "Codex",
        lambda home: codex_folder(home, os.environ) / "config.toml",
        "mcp_servers",
        program="codex",
        add=("mcp", "add", NAME, "--"),
        remove=("mcp", "remove", NAME),
        skill=(".codex", "skills"),
    ),
    McpClient(
        "cursor", "Cursor", lambda home: home / client_configs.CURSOR, "mcpServers", typed=True
    ),
    McpClient(
        "vscode",
        "VS Code",
        lambda home: program_folder(home, os.environ) / client_configs.VS_CODE,
        "servers",
        typed=True,
    ),
    McpClient(
        "gemini",
        "Gemini CLI",
        lambda home: home / client_configs.GEMINI,
        "mcpServers",
    ),
    McpClient(
        "antigravity",
        "Antigravity",
        lambda home: home / client_configs.ANTIGRAVITY,
        "mcpServers",
        skill=(".gemini", "config", "skills"),
    ),
)


def installing(client: McpClient, path: Path, command: Sequence[str]) -> FileChange:
    """Return the change that adds the server to a client's file.

    Raises:
        Invalid: the file cannot be read, or holds another server of this name.
    """
    entry = client.entry(command)
    there = servers(client, path).get(NAME)
    if there == entry:
        return unchanged(path)
    if there is not None:
        raise Invalid(
            f"{client.name} has a server {NAME} already, which starts in another way ({path}); "
            f"take it out first with `memtui mcp uninstall {client.key}`, then install this one."
        )
    return adding(path, [Addition((client.holder, NAME), entry)])


def uninstalling(client: McpClient, path: Path) -> FileChange:
    """Return the change that removes the server from a client's file.

    Raises:
        NotFound: it is not there.
        Invalid: the file cannot be read.
    """
    there = servers(client, path)
    if NAME not in there:
        raise NotFound(f"{client.name} has no server {NAME} in {path}.")
    return removing(path, [Addition((client.holder, NAME), there[NAME])])


def plan_install(client: McpClient, home: Path, command: Sequence[str], skill: str) -> ClientPlan:
    """Return the plan that adds the server to a client, with a skill that says when to use it.

    The client's command is used if it is on the path, else its file is changed. `skill` is the
    skill's text, for clients that read skills.

    Raises:
        Invalid: its file cannot be read, or holds another server of this name.
    """
    own, changes = _own(client, (*client.add, *command)), []
    if own is None:
        changes.append(installing(client, client.file(home), command))
    if client.skill is not None:
        path = _skill_path(client, home)
        changes.append(FileChange(path, read(path), skill.encode()))
    return ClientPlan(own, tuple(one for one in changes if one.before != one.after))


def plan_uninstall(client: McpClient, home: Path) -> ClientPlan:
    """Return the plan that removes the server from a client.

    Raises:
        NotFound: the client does not have it.
    """
    own, changes = _own(client, client.remove), []
    if own is None:
        changes.append(uninstalling(client, client.file(home)))
    if client.skill is not None and (text := read(path := _skill_path(client, home))) is not None:
        changes.append(FileChange(path, text, None))
    return ClientPlan(own, tuple(changes))


def servers(client: McpClient, path: Path) -> Json:
    """Return the servers in a client's file by name. Raises `Invalid`: it cannot be read."""
    found = form_of(path).load(path, read(path)).get(client.holder)
    return found if isinstance(found, dict) else {}


def _skill_path(client: McpClient, home: Path) -> Path:
    return home.joinpath(*(client.skill or ()), f"{NAME}-memory", SKILL)


def _own(client: McpClient, arguments: Sequence[str]) -> tuple[str, ...] | None:
    """Return the client's command line; None: it has no command, or none on the path."""
    program = shutil.which(client.program) if client.program else None
    return (program, *arguments) if program else None
