"""Find the memories that are already on this machine and say how each could be bound.

Discovery only reads, looks at known places alone, and adds nothing. It blocks and never raises.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from memtui.backends.claude_memory import INDEX
from memtui.backends.files.reading import digest, is_file, is_folder, resolved, sign
from memtui.backends.instructions import (
    OTHERS,
    PROJECT_FILES,
    PROJECT_RULES,
    USER_FILES,
    USER_RULES,
)
from memtui.contract import Json, Model

ENTRY_LIMIT = 2_000
"""Entries of one folder that are looked at."""
_COUNT_BYTES = 4 * 1024 * 1024
_CONFIG_BYTES = 32 * 1024 * 1024
_SERVER_LIMIT = 1_000
_PARENTS = 20
_VAULTS = ("vault", ".agent-queue/vault", "agent-queue/vault", ".memtui/vault")
_PROJECT_CONFIGS = (".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json")
_HOME_CONFIGS = (
    ".claude.json",
    "Library/Application Support/Claude/claude_desktop_config.json",
    ".cursor/mcp.json",
    ".codeium/windsurf/mcp_config.json",
)
_VAULT_PARTS = ("system", "orchestrator", "projects/*", "agent-types/*", "users/*")
_VAULT_MARKS = ("facts.md", "memory")
_TURN = re.compile(rb"^###[ \t]", re.MULTILINE)
_HEADING = re.compile(rb"^#{1,6}[ \t]", re.MULTILINE)
_FULL_LINE = re.compile(rb"^[^\S\n]*\S", re.MULTILINE)
_VARIABLE = "MEMORY_FILE_PATH"
_PACKAGE = "@modelcontextprotocol/server-memory"
_PLACEHOLDER = re.compile(r"\$\{(?:env:)?([A-Za-z_]\w*)(?::-([^}]*))?\}")
_KEY_LIMIT = 48


class Finding(Model):
    """A memory on this machine that could become a read-only binding."""

    provider: str
    """The name of the provider that can open it."""
    key: str
    """A binding key to suggest: lower case, digits and hyphens, unique among the findings."""
    title: str
    path: str
    """Where it is."""
    config: Json = {}
    """The binding's config; empty where there is nothing to open, and `problems` say why."""
    records: int | None = None
    """How many records it holds; None: not counted."""
    estimated: bool = True
    """`records` was counted without parsing, so the true number may differ."""
    why: str
    """Why it was looked for there, as a sentence."""
    problems: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether a binding can be made of it."""
        return bool(self.config)


def discover(home: Path, cwd: Path, env: Mapping[str, str]) -> list[Finding]:
    """Return the memories found on this machine, the nearest to `cwd` first. Blocking.

    Looks at `cwd` and its parents up to the git root, at the known folders of `home`, and at the
    files that `env` and the configuration of MCP clients name; it walks no tree, reads a bounded
    part of each place, writes nothing and raises nothing. What is there and cannot be read is a
    finding without a config whose problems say why.
    """
    home, cwd = resolved(home) or home, resolved(cwd) or cwd
    claude = Path(env["CLAUDE_CONFIG_DIR"]) if env.get("CLAUDE_CONFIG_DIR") else home / ".claude"
    projects = _project_folders(cwd)
    configs = list(_configurations(home, projects, env))
    return _with_keys(
        chain(
            _in_projects(projects, home, claude),
            _in_home(home),
            _find_user_instructions(claude, "Claude Code loads it into every session."),
            _find_claude_memories(claude, _by_slug(projects, configs), "Claude Code writes it."),
            _find_in_environment(env, home),
            *(_find_in_configuration(config, home, env) for config in configs),
            _find_default_files(home),
        )
    )


def _project_folders(cwd: Path) -> list[Path]:
    """Return `cwd` and its parents up to the git root; without one, `cwd` alone."""
    climbed = [cwd, *cwd.parents][:_PARENTS]
    for number, folder in enumerate(climbed):
        if sign(folder / ".git") is not None:
            return climbed[: number + 1]
    return climbed[:1]


def _in_projects(folders: list[Path], home: Path, claude: Path) -> Iterator[Finding]:
    for number, folder in enumerate(folders):
        why = "You are in this folder." if not number else "It is above the folder you are in."
        if not home.is_relative_to(folder):
            # A home full of projects looks like a vault and is none.
            yield from _find_vault(folder, why)
        yield from _find_vault(folder / "vault", why)
        yield from _find_memsearch(folder, why)
        yield from _find_project_instructions(folder, claude, why)


def _in_home(home: Path) -> Iterator[Finding]:
    why = "It is a usual place for it."
    for name in _VAULTS:
        yield from _find_vault(home / name, why)
    yield from _find_memsearch(home, why)


def _configurations(
    home: Path, projects: list[Path], env: Mapping[str, str]
) -> Iterator[_Configuration]:
    settings = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    paths = [folder / name for folder in projects for name in _PROJECT_CONFIGS]
    paths += [home / name for name in _HOME_CONFIGS]
    paths.append(settings / "Claude" / "claude_desktop_config.json")
    if env.get("APPDATA"):
        paths.append(Path(env["APPDATA"]) / "Claude" / "claude_desktop_config.json")
    for path in dict.fromkeys(paths):
        config = _read_configuration(path)
        if config is not None:
            yield config


def _by_slug(projects: list[Path], configs: list[_Configuration]) -> dict[str, str]:
    """Name the projects that Claude Code's slugs stand for, as far as they are known."""
    known = [str(path) for path in projects]
    for config in configs:
        listed = config.value.get("projects")
        if isinstance(listed, dict):
            known.extend(listed)
    return {re.sub(r"[^A-Za-z0-9]", "-", path): path for path in reversed(known)}


def _with_keys(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings in order, each place once, each with a key of its own."""
    kept: dict[tuple[str, str], Finding] = {}
    taken: set[str] = set()
    for finding in findings:
        place = (finding.provider, finding.path)
        if place in kept and (kept[place].usable or not finding.usable):
            continue
        if place in kept:
            key = kept[place].key
        else:
            wanted = key = f"{finding.provider}-{_slug(finding.key)}"[:_KEY_LIMIT].strip("-")
            number = 1
            while key in taken:
                number += 1
                key = f"{wanted}-{number}"
        taken.add(key)
        kept[place] = finding.model_copy(update={"key": key})
    return list(kept.values())


def _slug(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or digest(name)


@dataclass(frozen=True, slots=True)
class _Listing:
    """The names in a folder, in order; `reason` says why they could not be read, if so."""

    names: tuple[str, ...] = ()
    capped: bool = False
    reason: str = ""

    @property
    def problems(self) -> tuple[str, ...]:
        return (self.reason,) if self.reason else ()

    def documents(self) -> list[str]:
        return [name for name in self.names if name.lower().endswith(".md")]


def _list_folder(folder: Path) -> _Listing:
    """List a folder's visible names, at most `ENTRY_LIMIT` of them."""
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if len(names) == ENTRY_LIMIT:
                    return _Listing(tuple(sorted(names)), capped=True)
                if not entry.name.startswith(".") and entry.name.isprintable():
                    names.append(entry.name)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return _Listing()
    except OSError as error:
        return _Listing(reason=f"{folder} cannot be listed: {error.strerror}.")
    return _Listing(tuple(sorted(names)))


def _count(paths: Sequence[Path], what: re.Pattern[bytes], least: int = 0) -> int | None:
    """Count in files, `least` in each; None where that would mean reading more than 4 MiB."""
    total = size = 0
    for path in paths:
        found = sign(path)
        if found is None or not found.is_file:
            continue
        size += found.size
        if size > _COUNT_BYTES:
            return None
        try:
            total += max(least, len(what.findall(path.read_bytes())))
        except OSError:
            return None
    return total


def _find_memsearch(folder: Path, why: str) -> Iterator[Finding]:
    """Look for memsearch's logs below `folder`."""
    path = folder / ".memsearch" / "memory"
    if not is_folder(path):
        return
    listing = _list_folder(path)
    logs = [path / name for name in listing.documents()]
    if logs or listing.reason:
        yield Finding(
            provider="memsearch",
            key=folder.name or "root",
            title=f"memsearch logs of {folder}",
            path=str(path),
            config={} if listing.reason else {"path": str(path)},
            records=None if listing.reason or listing.capped else _count(logs, _TURN),
            why=why,
            problems=listing.problems,
        )


def _find_project_instructions(folder: Path, claude: Path, why: str) -> Iterator[Finding]:
    """Look for a project's instruction files in `folder`; those in `claude` are the person's."""
    files = [
        path
        for path in _instruction_files(folder, PROJECT_FILES, PROJECT_RULES)
        if not path.is_relative_to(claude)
    ]
    yield from _instructions(folder, files, "project", f"Agent instructions of {folder}", why)


def _find_user_instructions(claude: Path, why: str) -> Iterator[Finding]:
    """Look for a person's own instruction files in their Claude Code folder."""
    files = _instruction_files(claude, USER_FILES, USER_RULES)
    yield from _instructions(claude, files, "user", "Your own agent instructions", why)


def _instruction_files(folder: Path, names: Sequence[str], rules: str) -> list[Path]:
    files = [folder / name for name in (*names, OTHERS) if is_file(folder / name)]
    return files + [folder / rules / name for name in _list_folder(folder / rules).documents()]


def _instructions(
    folder: Path, files: list[Path], layout: str, title: str, why: str
) -> Iterator[Finding]:
    if files:
        yield Finding(
            provider="instructions",
            key="user" if layout == "user" else folder.name or "root",
            title=title,
            path=str(folder),
            config={"path": str(folder), "layout": layout},
            records=_count(files, _HEADING, least=1),
            why=f"{why} It holds {', '.join(path.name for path in files[:4])}.",
        )


def _find_claude_memories(claude: Path, projects: dict[str, str], why: str) -> Iterator[Finding]:
    """Look for auto memories; `projects` names the folder of a project by its slug."""
    root = claude / "projects"
    listing = _list_folder(root)
    notes = list(listing.problems)
    if listing.capped:
        notes.append(f"{root} holds more than {ENTRY_LIMIT} projects; the rest was not looked at.")
    if notes:
        yield Finding(
            provider="claude-memory",
            key="projects",
            title="Claude Code projects",
            path=str(root),
            why=why,
            problems=tuple(notes),
        )
    for slug in listing.names:
        path = root / slug / "memory"
        held = _list_folder(path) if is_folder(path) else _Listing()
        memories = held.documents()
        if memories or held.reason:
            project = projects.get(slug)
            count = len([name for name in memories if name != INDEX]) or 1
            yield Finding(
                provider="claude-memory",
                key=Path(project).name if project else slug,
                title=f"Claude Code memory of {project or slug}",
                path=str(path),
                config={} if held.reason else {"path": str(path)},
                records=None if held.reason else count,
                why=why,
                problems=held.problems,
            )


def _find_vault(folder: Path, why: str) -> Iterator[Finding]:
    """Recognise a vault: a known part of it that holds `facts.md` or `memory/`."""
    marks = list(islice(_vault_marks(folder), 3))
    if marks:
        yield Finding(
            provider="vault",
            key=folder.name or "root",
            title=f"Vault {folder}",
            path=str(folder),
            config={"path": str(folder)},
            why=f"{why} It holds {', '.join(marks)}.",
        )


def _vault_marks(folder: Path) -> Iterator[str]:
    for part in _VAULT_PARTS:
        top, _, rest = part.partition("/")
        inner = _list_folder(folder / top).names if rest else ("",)
        for name in inner:
            for mark in _VAULT_MARKS:
                place = folder / top / name / mark
                if is_file(place) if mark == "facts.md" else is_folder(place):
                    yield "/".join(filter(None, (top, name, mark)))


@dataclass(frozen=True, slots=True)
class _Configuration:
    """An MCP client's configuration file, or why it cannot be read."""

    path: Path
    value: Json
    problem: str = ""


def _read_configuration(path: Path) -> _Configuration | None:
    """Read a JSON file; None where there is none."""
    found = sign(path)
    if found is None:
        return None
    if not found.is_file or found.size > _CONFIG_BYTES:
        return _Configuration(path, {}, f"{path} is no file that could be a configuration.")
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        return _Configuration(path, {}, f"{path} cannot be read: {error.strerror}.")
    except (ValueError, RecursionError):
        return _Configuration(path, {}, f"{path} is not valid JSON.")
    if not isinstance(value, dict):
        return _Configuration(path, {}, f"{path} is not a JSON object.")
    return _Configuration(path, value)


def _find_in_environment(env: Mapping[str, str], home: Path) -> Iterator[Finding]:
    """Look at `MEMORY_FILE_PATH`."""
    if written := env.get(_VARIABLE, "").strip():
        yield _finding(written, home, env, f"The environment variable {_VARIABLE} names it.")


def _find_in_configuration(
    config: _Configuration, home: Path, env: Mapping[str, str]
) -> Iterator[Finding]:
    """Look at every server of one client's configuration."""
    if config.problem:
        yield Finding(
            provider="mcp-memory",
            key=config.path.stem,
            title=f"MCP servers in {config.path}",
            path=str(config.path),
            why="An MCP client keeps its servers there.",
            problems=(config.problem,),
        )
    for name, server in islice(_servers(config.value), _SERVER_LIMIT):
        variables = server.get("env")
        written = variables.get(_VARIABLE) if isinstance(variables, dict) else None
        if isinstance(written, str) and written.strip():
            why = f"The MCP server {name} in {config.path} writes it."
            yield _finding(written.strip(), home, env, why)


def _find_default_files(home: Path) -> Iterator[Finding]:
    """Look where the server keeps its file when it is told no path and was started by npx."""
    cache = home / ".npm" / "_npx"
    for name in _list_folder(cache).names:
        for file in ("memory.jsonl", "memory.json"):
            path = cache / name / "node_modules" / _PACKAGE / "dist" / file
            if is_file(path):
                why = "The MCP memory server keeps its file there when it is told no path."
                yield _finding(str(path), home, {}, why)


def _servers(config: Json) -> Iterator[tuple[str, Json]]:
    holders: list[Any] = [config]
    projects = config.get("projects")
    if isinstance(projects, dict):
        holders.extend(projects.values())
    for holder in holders:
        if not isinstance(holder, dict):
            continue
        for section in ("mcpServers", "servers"):
            servers = holder.get(section)
            if isinstance(servers, dict):
                yield from (item for item in servers.items() if isinstance(item[1], dict))


def _finding(written: str, home: Path, env: Mapping[str, str], why: str) -> Finding:
    expanded = _expanded(written, home, env)
    path = Path(expanded)
    problem = _problem(expanded, path)
    return Finding(
        provider="mcp-memory",
        key=path.stem if path.stem not in {"memory", ""} else path.parent.name or "memory",
        title=f"MCP memory {expanded}",
        path=expanded,
        config={} if problem else {"path": expanded},
        records=None if problem else _count([path], _FULL_LINE),
        why=why,
        problems=(problem,) if problem else (),
    )


def _problem(expanded: str, path: Path) -> str:
    if "${" in expanded or "\0" in expanded:
        return f"The path {expanded!r} cannot be resolved here."
    if not path.is_absolute():
        return f"The path {expanded} is relative to the server's own folder, which is not known."
    found = sign(path)
    if found is None:
        return f"There is no file {expanded} yet, or it may not be seen."
    return "" if found.is_file else f"{expanded} is no file."


def _expanded(written: str, home: Path, env: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] == "HOME":
            return str(home)
        return env.get(match[1], match[2] if match[2] is not None else match[0])

    text = _PLACEHOLDER.sub(value, written)
    return str(home / text[2:]) if text.startswith("~/") else text
