"""Where discovery looks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from memtui.backends.discovery.finding import Finding, with_keys
from memtui.backends.discovery.places import (
    find_claude_memories,
    find_memsearch,
    find_project_instructions,
    find_user_instructions,
    find_vault,
)
from memtui.backends.discovery.servers import (
    Configuration,
    find_default_files,
    find_in_configuration,
    find_in_environment,
    read_configuration,
)
from memtui.backends.files.reading import resolved, sign

_PARENTS = 20
_VAULTS = ("vault", ".agent-queue/vault", "agent-queue/vault", ".memtui/vault")
_PROJECT_CONFIGS = (".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json")
_HOME_CONFIGS = (
    ".claude.json",
    "Library/Application Support/Claude/claude_desktop_config.json",
    ".cursor/mcp.json",
    ".codeium/windsurf/mcp_config.json",
)


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
    return with_keys(
        chain(
            _in_projects(projects, home, claude),
            _in_home(home),
            find_user_instructions(claude, "Claude Code loads it into every session."),
            find_claude_memories(claude, _by_slug(projects, configs), "Claude Code writes it."),
            find_in_environment(env, home),
            *(find_in_configuration(config, home, env) for config in configs),
            find_default_files(home),
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
            yield from find_vault(folder, why)
        yield from find_vault(folder / "vault", why)
        yield from find_memsearch(folder, why)
        yield from find_project_instructions(folder, claude, why)


def _in_home(home: Path) -> Iterator[Finding]:
    why = "It is a usual place for it."
    for name in _VAULTS:
        yield from find_vault(home / name, why)
    yield from find_memsearch(home, why)


def _configurations(
    home: Path, projects: list[Path], env: Mapping[str, str]
) -> Iterator[Configuration]:
    settings = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    paths = [folder / name for folder in projects for name in _PROJECT_CONFIGS]
    paths += [home / name for name in _HOME_CONFIGS]
    paths.append(settings / "Claude" / "claude_desktop_config.json")
    if env.get("APPDATA"):
        paths.append(Path(env["APPDATA"]) / "Claude" / "claude_desktop_config.json")
    for path in dict.fromkeys(paths):
        config = read_configuration(path)
        if config is not None:
            yield config


def _by_slug(projects: list[Path], configs: list[Configuration]) -> dict[str, str]:
    """Name the projects that Claude Code's slugs stand for, as far as they are known."""
    known = [str(path) for path in projects]
    for config in configs:
        listed = config.value.get("projects")
        if isinstance(listed, dict):
            known.extend(listed)
    return {re.sub(r"[^A-Za-z0-9]", "-", path): path for path in reversed(known)}
