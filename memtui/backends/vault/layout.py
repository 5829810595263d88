"""Where in the vault a scope's records live, and whose records a path holds (seed 002 §7)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote

from memtui.contract import Invalid, Scope

FACTS = "facts.md"
HISTORY = "facts.history.jsonl"
ORCHESTRATOR = "orchestrator"
SYSTEM = "system"
MAX_NAME_BYTES = 200

_UNSAFE = re.compile(r"""[\x00-\x1f\x7f/\\:*?"<>|%#]|^\.|[. ]$""")
_FACT_ID = re.compile(r"((?:.*?/)?facts\.md)#(.+)", re.DOTALL)
_NOTE_FOLDERS = {"notes": "note", "references": "reference", "overrides": "override"}


class Area(StrEnum):
    """Whose part of the vault a path is in; `COMPANY` is everything outside the known folders."""

    SYSTEM = "system"
    ORCHESTRATOR = "orchestrator"
    AGENT = "agent"
    PROJECT = "project"
    USER = "user"
    COMPANY = "company"


_NAMED = {
    "projects": (Area.PROJECT, "project_id"),
    "agent-types": (Area.AGENT, "agent_id"),
    "users": (Area.USER, "subject_id"),
}


@dataclass(frozen=True, slots=True)
class Place:
    """What a path says about the records in it."""

    area: Area
    folder: str
    """The scope's folder, relative to the vault; empty for the vault itself."""
    kind: str = "note"
    is_facts: bool = False
    project_id: str | None = None
    agent_id: str | None = None
    subject_id: str | None = None


def place_of(path: str) -> Place:
    """Say whose records the file at `path` (relative, POSIX separators) holds."""
    parts = path.split("/")
    scope = _scope_place(parts)
    if scope is None:
        return Place(Area.COMPANY, "")
    inner = parts[scope.folder.count("/") + 1 :]
    return Place(
        scope.area,
        scope.folder,
        kind=_kind_of(inner),
        is_facts=inner == [FACTS],
        project_id=scope.project_id,
        agent_id=scope.agent_id,
        subject_id=scope.subject_id,
    )


def _scope_place(parts: list[str]) -> Place | None:
    top, depth = parts[0], len(parts)
    if top == SYSTEM and depth > 1:
        return Place(Area.SYSTEM, top)
    if top == ORCHESTRATOR and depth > 1:
        return Place(Area.ORCHESTRATOR, top, agent_id=ORCHESTRATOR)
    if depth < 3 or top not in _NAMED:
        return None
    area, field = _NAMED[top]
    ids = {field: decode_name(parts[1])}
    return Place(
        area,
        f"{top}/{parts[1]}",
        project_id=ids.get("project_id"),
        agent_id=ids.get("agent_id"),
        subject_id=ids.get("subject_id"),
    )


def _kind_of(inner: list[str]) -> str:
    if inner == [FACTS]:
        return "fact"
    if inner[:2] == ["memory", "guidance"] and len(inner) > 2:
        return "guidance"
    return _NOTE_FOLDERS.get(inner[0], "note") if len(inner) > 1 else "note"


def folder_for(scope: Scope) -> str:
    """Return the folder that a record of `scope` is written to. Raises `Invalid` for a bad id."""
    if scope.project_id is not None:
        return f"projects/{encode_name(scope.project_id, 'project')}"
    if scope.subject_id is not None:
        return f"users/{encode_name(scope.subject_id, 'subject')}"
    if scope.agent_id == ORCHESTRATOR:
        return ORCHESTRATOR
    if scope.agent_id is not None:
        return f"agent-types/{encode_name(scope.agent_id, 'agent')}"
    return SYSTEM


def note_folder(folder: str, kind: str) -> str:
    """Return the folder under the scope's `folder` where a note of `kind` is written."""
    if kind == "guidance":
        return f"{folder}/memory/guidance"
    if kind == "reference" and folder.startswith("projects/"):
        return f"{folder}/references"
    return f"{folder}/memory"


def encode_name(value: str, what: str) -> str:
    """Return `value` as a file name, percent-encoding what a path cannot carry.

    Raises `Invalid` if it is empty, not UTF-8 or longer than 200 bytes once encoded.
    """
    try:
        encoded = _UNSAFE.sub(_percent, value)
        size = len(encoded.encode())
    except UnicodeEncodeError:
        raise Invalid(
            f"The {what} id contains a character that UTF-8 cannot carry; choose another id."
        ) from None
    if not 0 < size <= MAX_NAME_BYTES:
        raise Invalid(
            f"The {what} id must have 1 to {MAX_NAME_BYTES} bytes as a folder name; it has {size}."
        )
    return encoded


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match.group().encode())


def decode_name(name: str) -> str:
    """Return the id that a folder name stands for; a name that is no valid encoding is itself."""
    try:
        return unquote(name, errors="strict")
    except UnicodeDecodeError:
        return name


def split_id(record_id: str) -> tuple[str, str | None]:
    """Split a record id into the file's path and, for a fact, its name within the file."""
    match = _FACT_ID.fullmatch(record_id)
    if match and place_of(match.group(1)).is_facts:
        return match.group(1), match.group(2)
    return record_id, None


def history_path(facts_path: str) -> str:
    """Return the path of the history file beside a facts file."""
    return facts_path.removesuffix(FACTS) + HISTORY
