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
from itertools import islice
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
    return _with_keys(_Search(resolved(home) or home, resolved(cwd) or cwd, env).findings())


def discover_here() -> list[Finding]:
    """Discover from this person's home and from the working folder up. Blocking."""
    home = Path.home()
    try:
        cwd = Path.cwd()
    except FileNotFoundError:  # it was removed under us
        cwd = home
    return discover(home, cwd, os.environ)


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
            plain = unicodedata.normalize("NFKD", finding.key).encode("ascii", "ignore").decode()
            slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-") or digest(finding.key)
            wanted = key = f"{finding.provider}-{slug}"[:_KEY_LIMIT].strip("-")
            number = 1
            while key in taken:
                number += 1
                key = f"{wanted}-{number}"
        taken.add(key)
        kept[place] = finding.model_copy(update={"key": key})
    return list(kept.values())


@dataclass(frozen=True, slots=True)
class _Listing:
    """The visible names in a folder, in order; `problems` say why they could not be read, if so."""

    names: tuple[str, ...] = ()
    capped: bool = False
    problems: tuple[str, ...] = ()

    def documents(self) -> list[str]:
        return [name for name in self.names if name.lower().endswith(".md")]


def _list_folder(folder: Path) -> _Listing:
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
        return _Listing(problems=(f"{folder} cannot be listed: {error.strerror}.",))
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


def _read_configuration(path: Path) -> Json | str | None:
    """Return a JSON object, why it cannot be read, or None where there is no file."""
    found = sign(path)
    if found is None:
        return None
    if not found.is_file or found.size > _CONFIG_BYTES:
        return f"{path} is no file that could be a configuration."
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}."
    except (ValueError, RecursionError):
        return f"{path} is not valid JSON."
    return value if isinstance(value, dict) else f"{path} is not a JSON object."


def _found(
    provider: str, path: Path, key: str, title: str, why: str, *,
    problems: tuple[str, ...] = (), records: int | None = None, **config: str,
) -> Finding:  # fmt: skip
    return Finding(
        provider=provider,
        key=key,
        title=title,
        path=str(path),
        config={} if problems else {"path": str(path), **config},
        records=None if problems else records,
        why=why,
        problems=problems,
    )


class _Search:
    """One look at a machine."""

    def __init__(self, home: Path, cwd: Path, env: Mapping[str, str]) -> None:
        self._home, self._env = home, env
        own = env.get("CLAUDE_CONFIG_DIR")
        self._claude = Path(own) if own else home / ".claude"
        climbed = [cwd, *cwd.parents][:_PARENTS]
        roots = (n for n, folder in enumerate(climbed) if sign(folder / ".git") is not None)
        self._projects = climbed[: next(roots, 0) + 1]
        """The folder and its parents up to the git root; without one, the folder alone."""

    def findings(self) -> Iterator[Finding]:
        """Yield what is there, the nearest first."""
        for number, folder in enumerate(self._projects):
            why = "It is above the folder you are in." if number else "You are in this folder."
            if not self._home.is_relative_to(folder):
                # A home full of projects looks like a vault and is none.
                yield from self._vault(folder, why)
            yield from self._vault(folder / "vault", why)
            yield from self._memsearch(folder, why)
            files = self._instruction_files(folder, PROJECT_FILES, PROJECT_RULES)
            own = [path for path in files if not path.is_relative_to(self._claude)]
            yield from self._instructions(folder, own, "project", why)
        why = "It is a usual place for it."
        for name in _VAULTS:
            yield from self._vault(self._home / name, why)
        yield from self._memsearch(self._home, why)
        files = self._instruction_files(self._claude, USER_FILES, USER_RULES)
        why = "Claude Code loads it into every session."
        yield from self._instructions(self._claude, files, "user", why)
        configs = {path: _read_configuration(path) for path in self._configurations()}
        yield from self._claude_memories([one for one in configs.values() if isinstance(one, dict)])
        if written := self._env.get(_VARIABLE, "").strip():
            yield self._graph(written, f"The environment variable {_VARIABLE} names it.")
        for path, config in configs.items():
            yield from self._in_configuration(path, config)
        yield from self._default_graphs()

    @staticmethod
    def _vault(folder: Path, why: str) -> Iterator[Finding]:
        """Recognise a vault: a known part of it that holds `facts.md` or `memory/`."""
        tops = (part.partition("/") for part in _VAULT_PARTS)
        parts = (
            (top, name)
            for top, _, rest in tops
            for name in (_list_folder(folder / top).names if rest else ("",))
        )
        held = (
            "/".join(filter(None, (top, name, mark)))
            for top, name in parts
            for mark, is_there in (("facts.md", is_file), ("memory", is_folder))
            if is_there(folder / top / name / mark)
        )
        if marks := list(islice(held, 3)):
            why = f"{why} It holds {', '.join(marks)}."
            yield _found("vault", folder, folder.name or "root", f"Vault {folder}", why)

    @staticmethod
    def _memsearch(folder: Path, why: str) -> Iterator[Finding]:
        path = folder / ".memsearch" / "memory"
        held = _list_folder(path) if is_folder(path) else _Listing()
        logs = [path / name for name in held.documents()]
        if logs or held.problems:
            count = None if held.capped else _count(logs, _TURN)
            title, key = f"memsearch logs of {folder}", folder.name or "root"
            yield _found("memsearch", path, key, title, why, problems=held.problems, records=count)

    @staticmethod
    def _instruction_files(folder: Path, names: Sequence[str], rules: str) -> list[Path]:
        files = [folder / name for name in (*names, OTHERS) if is_file(folder / name)]
        return files + [folder / rules / name for name in _list_folder(folder / rules).documents()]

    @staticmethod
    def _instructions(folder: Path, files: list[Path], layout: str, why: str) -> Iterator[Finding]:
        if files:
            is_own = layout == "user"
            title = "Your own agent instructions" if is_own else f"Agent instructions of {folder}"
            key = "user" if is_own else folder.name or "root"
            why = f"{why} It holds {', '.join(path.name for path in files[:4])}."
            count = _count(files, _HEADING, least=1)
            yield _found("instructions", folder, key, title, why, records=count, layout=layout)

    def _claude_memories(self, configs: list[Json]) -> Iterator[Finding]:
        """Look for auto memories; their folders name a project by its slug."""
        known = [str(path) for path in self._projects]
        for config in configs:
            listed = config.get("projects")
            known.extend(listed if isinstance(listed, dict) else ())
        projects = {re.sub(r"[^A-Za-z0-9]", "-", path): path for path in reversed(known)}
        provider, why, root = "claude-memory", "Claude Code writes it.", self._claude / "projects"
        listing = _list_folder(root)
        notes = listing.problems
        if listing.capped:
            notes = (f"{root} holds more than {ENTRY_LIMIT} projects; the rest was not looked at.",)
        if notes:
            yield _found(provider, root, "projects", "Claude Code projects", why, problems=notes)
        for slug in listing.names:
            path = root / slug / "memory"
            held = _list_folder(path) if is_folder(path) else _Listing()
            if (memories := held.documents()) or held.problems:
                count = len([name for name in memories if name != INDEX]) or 1
                project = projects.get(slug)
                key, title = Path(project).name if project else slug, project or slug
                yield _found(
                    provider, path, key, f"Claude Code memory of {title}", why,
                    problems=held.problems, records=count,
                )  # fmt: skip

    def _configurations(self) -> list[Path]:
        """Return where MCP clients keep their servers, each once."""
        settings = Path(self._env.get("XDG_CONFIG_HOME") or self._home / ".config")
        paths = [folder / name for folder in self._projects for name in _PROJECT_CONFIGS]
        paths += [self._home / name for name in _HOME_CONFIGS]
        paths.append(settings / "Claude" / "claude_desktop_config.json")
        if self._env.get("APPDATA"):
            paths.append(Path(self._env["APPDATA"]) / "Claude" / "claude_desktop_config.json")
        return list(dict.fromkeys(paths))

    def _in_configuration(self, path: Path, config: Json | str | None) -> Iterator[Finding]:
        """Look at every server of one client's configuration."""
        if isinstance(config, str):
            title, why = f"MCP servers in {path}", "An MCP client keeps its servers there."
            yield _found("mcp-memory", path, path.stem, title, why, problems=(config,))
        for name, server in islice(_servers(config), _SERVER_LIMIT):
            variables = server.get("env")
            written = variables.get(_VARIABLE) if isinstance(variables, dict) else None
            if isinstance(written, str) and written.strip():
                why = f"The MCP server {name} in {path} writes it."
                yield self._graph(written.strip(), why)

    def _default_graphs(self) -> Iterator[Finding]:
        """Look where the server keeps its file when it is told no path and was started by npx."""
        cache = self._home / ".npm" / "_npx"
        for name in _list_folder(cache).names:
            for file in ("memory.jsonl", "memory.json"):
                path = cache / name / "node_modules" / _PACKAGE / "dist" / file
                if is_file(path):
                    why = "The MCP memory server keeps its file there when it is told no path."
                    yield self._graph(str(path), why, {})

    def _graph(self, written: str, why: str, env: Mapping[str, str] | None = None) -> Finding:
        """Return the finding of a knowledge graph's file, as somebody wrote its path."""
        variables = {**(self._env if env is None else env), "HOME": str(self._home)}
        expanded = _PLACEHOLDER.sub(
            lambda match: variables.get(match[1], match[2] if match[2] is not None else match[0]),
            written,
        )
        if expanded.startswith("~/"):
            expanded = str(self._home / expanded[2:])
        path, found, problem = Path(expanded), None, ""
        if "${" in expanded or "\0" in expanded:
            problem = f"The path {expanded!r} cannot be resolved here."
        elif not path.is_absolute():
            problem = (
                f"The path {expanded} is relative to the server's own folder, which is not known."
            )
        elif (found := sign(path)) is None:
            problem = f"There is no file {expanded} yet, or it may not be seen."
        elif not found.is_file:
            problem = f"{expanded} is no file."
        key = path.stem if path.stem not in {"memory", ""} else path.parent.name or "memory"
        return _found(
            "mcp-memory", path, key, f"MCP memory {expanded}", why,
            problems=(problem,) if problem else (),
            records=None if problem else _count([path], _FULL_LINE),
        )  # fmt: skip


def _servers(config: Any) -> Iterator[tuple[str, Json]]:
    projects = config.get("projects") if isinstance(config, dict) else None
    for holder in (config, *(projects.values() if isinstance(projects, dict) else ())):
        for section in ("mcpServers", "servers") if isinstance(holder, dict) else ():
            servers = holder.get(section)
            if isinstance(servers, dict):
                yield from (item for item in servers.items() if isinstance(item[1], dict))
