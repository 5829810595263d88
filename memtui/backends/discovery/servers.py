"""Find the MCP memory server's file in the environment and in the clients' configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from memtui.backends.discovery.finding import Finding
from memtui.backends.discovery.places import is_file, list_folder
from memtui.backends.files.reading import sign
from memtui.contract import Json

VARIABLE = "MEMORY_FILE_PATH"
_CONFIG_BYTES = 32 * 1024 * 1024
_SERVER_LIMIT = 1_000
_COUNT_BYTES = 4 * 1024 * 1024
_PACKAGE = "@modelcontextprotocol/server-memory"
_PLACEHOLDER = re.compile(r"\$\{(?:env:)?([A-Za-z_]\w*)(?::-([^}]*))?\}")


@dataclass(frozen=True, slots=True)
class Configuration:
    """One client's configuration file, or why it cannot be read."""

    path: Path
    value: Json
    problem: str = ""


def read_configuration(path: Path) -> Configuration | None:
    """Read a JSON file; None where there is none."""
    found = sign(path)
    if found is None:
        return None
    if not found.is_file or found.size > _CONFIG_BYTES:
        return Configuration(path, {}, f"{path} is no file that could be a configuration.")
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        return Configuration(path, {}, f"{path} cannot be read: {error.strerror}.")
    except (ValueError, RecursionError):
        return Configuration(path, {}, f"{path} is not valid JSON.")
    if not isinstance(value, dict):
        return Configuration(path, {}, f"{path} is not a JSON object.")
    return Configuration(path, value)


def find_in_environment(env: Mapping[str, str], home: Path) -> Iterator[Finding]:
    """Look at `MEMORY_FILE_PATH`."""
    if written := env.get(VARIABLE, "").strip():
        yield _finding(written, home, env, f"The environment variable {VARIABLE} names it.")


def find_in_configuration(
    config: Configuration, home: Path, env: Mapping[str, str]
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
        written = variables.get(VARIABLE) if isinstance(variables, dict) else None
        if isinstance(written, str) and written.strip():
            why = f"The MCP server {name} in {config.path} writes it."
            yield _finding(written.strip(), home, env, why)


def find_default_files(home: Path) -> Iterator[Finding]:
    """Look where the server keeps its file when it is told no path and was started by npx."""
    cache = home / ".npm" / "_npx"
    for name in list_folder(cache).names:
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
        records=None if problem else _count_lines(path),
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


def _count_lines(path: Path) -> int | None:
    found = sign(path)
    if found is None or found.size > _COUNT_BYTES:
        return None
    try:
        return sum(bool(line.strip()) for line in path.read_bytes().split(b"\n"))
    except OSError:
        return None
