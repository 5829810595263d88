"""Finds and reads the settings of agents' programs, and the MCP servers in them.

A file is JSON, with or without comments, or TOML. Only known places are searched.
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any

from memtui.contract import Json
from memtui.provider_kit.files.reading import sign

_MOST_BYTES = 32 * 1024 * 1024
CLAUDE_CODE = ".claude.json"
CURSOR = ".cursor/mcp.json"
GEMINI = ".gemini/settings.json"
ANTIGRAVITY = ".gemini/config/mcp_config.json"
"""Files of clients in the home folder; Cursor's and Gemini's may also be in projects."""
CLAUDE_DESKTOP = "Claude/claude_desktop_config.json"
VS_CODE = "Code/User/mcp.json"
"""Files in the settings folder of desktop programs."""
_IN_PROJECT = (
    ".mcp.json", CURSOR, ".vscode/mcp.json", GEMINI, ".agents/mcp_config.json",
    ".codex/config.toml",
)  # fmt: skip
_IN_HOME = (
    CLAUDE_CODE, CURSOR, ".codeium/windsurf/mcp_config.json", ".copilot/mcp-config.json", GEMINI,
    ANTIGRAVITY, ".gemini/antigravity/mcp_config.json", ".gemini/antigravity-cli/mcp_config.json",
    ".lmstudio/mcp.json", ".vscode-server/data/User/mcp.json",
)  # fmt: skip
_OF_PROGRAMS = (CLAUDE_DESKTOP, VS_CODE, "zed/settings.json")
_CODES = ("Code", "Code - Insiders", "VSCodium")
"""The folder names of VS Code and its variants."""
_OF_CODES = (
    "User/mcp.json",
    "User/profiles/*/mcp.json",
    "User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
    "User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
)
_PROFILES = 100
_SERVERS = ("mcpServers", "servers", "mcp_servers", "context_servers")
"""The members under which clients list their servers."""
_STRING = r'("(?:\\.|[^"\\])*(?:"|\Z))'
_COMMENT = re.compile(_STRING + r"|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_BARE_NAME = re.compile(_STRING + r"|([A-Za-z_$][\w$]*)(?=\s*:)", re.DOTALL)
_LAST_COMMA = re.compile(_STRING + r"|,(?=\s*[}\]])", re.DOTALL)


def managed_folder() -> Path:
    """Return the folder of Claude Code's machine-wide settings, set by an administrator."""
    mac = "/Library/Application Support/ClaudeCode"
    return Path(mac if sys.platform == "darwin" else "/etc/claude-code")


def program_folders(home: Path, env: Mapping[str, str]) -> list[Path]:
    """Return the settings folders of desktop programs, for all platforms."""
    folders = [program_folder(home, env, platform) for platform in ("darwin", "linux")]
    if windows := env.get("APPDATA"):
        folders.append(Path(windows))
    return folders


def program_folder(home: Path, env: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Return the settings folder of desktop programs on a platform."""
    if platform == "darwin":
        return home / "Library" / "Application Support"
    return Path(env.get("XDG_CONFIG_HOME") or home / ".config")


def codex_folder(home: Path, env: Mapping[str, str]) -> Path:
    """Return Codex's own folder."""
    return Path(env.get("CODEX_HOME") or home / ".codex")


def client_files(
    home: Path, projects: Sequence[Path], managed: Path, env: Mapping[str, str]
) -> list[Path]:
    """Return the files in which MCP clients list their servers, each once."""
    paths = [folder / name for folder in projects for name in _IN_PROJECT]
    paths += [home / name for name in _IN_HOME]
    for folder in program_folders(home, env):
        paths += [folder / name for name in _OF_PROGRAMS]
        for code, name in product(_CODES, _OF_CODES):
            found = (folder / code).glob(name) if "*" in name else [folder / code / name]
            paths += sorted(islice(found, _PROFILES))
    paths += [codex_folder(home, env) / "config.toml", managed / "managed-mcp.json"]
    return list(dict.fromkeys(paths))


def read_configuration(path: Path) -> Json | str | None:
    """Return a file's content, a sentence on why it is unreadable, or None if it is missing."""
    found = sign(path)
    if found is None:
        return None
    if not found.is_file or found.size > _MOST_BYTES:
        return f"{path} is not a regular file, or too large for a configuration."
    form = "TOML" if path.suffix == ".toml" else "JSON"
    try:
        text = path.read_text(encoding="utf-8-sig")
        value = tomllib.loads(text) if form == "TOML" else _read_json(text)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}."
    except (ValueError, RecursionError):
        return f"{path} is not valid {form}."
    return value if isinstance(value, dict) else f"{path} is not a JSON object."


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # some programs allow comments, trailing commas and names without quotes
        plain = _COMMENT.sub(lambda match: match[1] or " ", text)
        plain = _BARE_NAME.sub(lambda match: match[1] or f'"{match[2]}"', plain)
        return json.loads(_LAST_COMMA.sub(lambda match: match[1] or "", plain))


def servers(config: Json) -> Iterator[tuple[str, Json]]:
    """Yield the MCP servers of a configuration by name, including those of its projects."""
    projects = config.get("projects")
    for holder in (config, *(projects.values() if isinstance(projects, dict) else ())):
        for section in _SERVERS if isinstance(holder, dict) else ():
            named = holder.get(section)
            if isinstance(named, dict):
                yield from (item for item in named.items() if isinstance(item[1], dict))


def projects(config: Json) -> list[str]:
    """Return the project folders that a client's configuration names."""
    named = config.get("projects")
    return [path for path in named if isinstance(path, str)] if isinstance(named, dict) else []
