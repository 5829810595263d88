"""Maps scopes to folders of the vault, paths to owners, and decides which scope sees a record.

The folders and the weights are those of seed 002 §3 and §7.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote

from memtui.contract import (
    ORCHESTRATOR,
    OWNER_FIELDS,
    Invalid,
    Json,
    Record,
    RecordHandle,
    Scope,
    SourceRef,
)
from memtui.patterns import late_pattern

if TYPE_CHECKING:
    from .markdown import Wikilink

KEY = "vault"
FACTS = "facts.md"
HISTORY = "facts.history.jsonl"
SYSTEM = "system"
WORKSPACE = ".workspace"
"""Path segment in the ids of workspace files; no folder of a vault begins with a dot."""
MAX_NAME_BYTES = 200
IDS = ("agent_id", "subject_id", "issue_id", "run_id")
"""The scope fields that a record may set itself; its project comes from its folder."""

_UNSAFE = late_pattern(r"""[\x00-\x1f\x7f/\\:*?"<>|%#]|^\.|[. ]$""")
_FACT_ID = late_pattern(r"((?:.*?/)?facts\.md)#(.+)", re.DOTALL)
_NOTE_FOLDERS = {"notes": "note", "references": "reference", "overrides": "override"}


class Area(StrEnum):
    """The part of the vault that a path is in; `COMPANY` is everything outside known folders."""

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
class VaultPath:
    """The owner and kind of the records in a file, by its path."""

    area: Area
    folder: str
    """The scope's folder, relative to the vault; empty for the vault itself."""
    kind: str = "note"
    is_facts: bool = False
    project_id: str | None = None
    agent_id: str | None = None
    subject_id: str | None = None

    def scope(self, company_id: str) -> Scope:
        """Return the owner's scope."""
        return Scope(
            company_id=company_id,
            project_id=self.project_id,
            agent_id=self.agent_id,
            subject_id=self.subject_id,
        )


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A note or a version of a fact, with the index fields that are not in `Record`."""

    record: Record
    area: Area
    is_current: bool = True
    """False for an earlier version of a fact."""
    names: str = ""
    """Searchable words that are not in the text: subject, file name."""
    links: tuple[Wikilink, ...] = ()
    aliases: tuple[str, ...] = ()
    """Other names by which a note can be linked."""
    problems: tuple[str, ...] = ()
    """Messages on its unreadable parts."""

    @property
    def id(self) -> str:
        """The record's id."""
        return self.record.handle.provider_record_id


@lru_cache(maxsize=1024)
def place_of(path: str) -> VaultPath:
    """Return the owner and kind of records in `path` (relative, POSIX separators)."""
    top, *rest = path.split("/")
    if top == SYSTEM and rest:
        return _place(Area.SYSTEM, top, rest)
    if top == ORCHESTRATOR and rest:
        return _place(Area.ORCHESTRATOR, top, rest, agent_id=ORCHESTRATOR)
    if top in _NAMED and len(rest) > 1:
        area, field = _NAMED[top]
        return _place(area, f"{top}/{rest[0]}", rest[1:], **{field: decode_name(rest[0])})
    return VaultPath(Area.COMPANY, "")


def _place(area: Area, folder: str, inner: list[str], **owner: str) -> VaultPath:
    kind = _NOTE_FOLDERS.get(inner[0], "note") if len(inner) > 1 else "note"
    if inner[0] == WORKSPACE:
        kind = "document"
    elif inner == [FACTS]:
        kind = "fact"
    elif inner[:2] == ["memory", "guidance"] and len(inner) > 2:
        kind = "guidance"
    return VaultPath(area, folder, kind, is_facts=inner == [FACTS], **owner)


def is_document(path: str) -> bool:
    """Whether a path is a workspace file's: a project's own file outside of the vault."""
    parts = path.split("/", 3)
    return len(parts) > 3 and parts[0] == "projects" and parts[2] == WORKSPACE


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
    """Return `value` as a file name, with characters that are unsafe in a path percent-encoded.

    Raises `Invalid` if it is empty, not UTF-8 or longer than 200 bytes once encoded.
    """
    try:
        encoded = _UNSAFE.sub(_percent, value)
        size = len(encoded.encode())
    except UnicodeEncodeError:
        raise Invalid(
            f"The {what} id contains a character that UTF-8 cannot encode; choose another id."
        ) from None
    if not 0 < size <= MAX_NAME_BYTES:
        raise Invalid(
            f"The {what} id must have 1 to {MAX_NAME_BYTES} bytes as a folder name; it has {size}."
        )
    return encoded


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match.group().encode())


def decode_name(name: str) -> str:
    """Return the id in a folder name; a name that is not a valid encoding is returned as is."""
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
    """Return the path of the history file of a facts file."""
    return facts_path.removesuffix(FACTS) + HISTORY


def own_ids(scope: Scope, place: VaultPath) -> dict[str, str | None]:
    """Return the ids of `scope` that differ from those of the record's place."""
    ids = {name: getattr(scope, name) for name in IDS}
    return {name: None if id_ == getattr(place, name, None) else id_ for name, id_ in ids.items()}


def handle_of(record_id: str) -> RecordHandle:
    """Return the handle of a record id."""
    return RecordHandle(provider_key=KEY, provider_record_id=record_id)


def source_fields(source: SourceRef) -> Json:
    """Return a source's stored fields, without the company: a vault belongs to one."""
    return source.model_dump(mode="json", exclude={"company_id"}, exclude_none=True)


def source_of(fields: Json | None, company_id: str) -> SourceRef | None:
    """Return the source reference of stored `fields`."""
    return SourceRef(company_id=company_id, **fields) if fields else None


def rules(scope: Scope) -> list[tuple[float, dict[str, str]]]:
    """Return what is visible to `scope`: weights, and required values of a record's columns.

    The highest weights come first. Issue and run do not narrow: they only tell who asks.
    """
    found: list[tuple[float, dict[str, str]]] = []
    project, agent = scope.project_id, scope.agent_id
    if project is not None:
        found.append((1.0, {"area": Area.PROJECT, "project_id": project}))
    for column, area, weight in (("subject_id", Area.USER, 1.0), ("agent_id", Area.AGENT, 0.7)):
        value = getattr(scope, column)
        if value is not None:
            # With a project, only records in the user's or agent's own folder count as theirs.
            within = {} if project is None else {"area": str(area)}
            found.append((weight, {**within, column: value}))
    if project is not None or agent is not None:
        found.append((0.5, {"area": Area.ORCHESTRATOR}))
        found += [(0.4, {"area": area}) for area in (Area.SYSTEM, Area.COMPANY)]
    return found or [(1.0, {})]


def sees(scope: Scope, area: Area, owner: Scope) -> bool:
    """Whether a record of `owner` in `area` is visible to `scope`."""
    return any(
        all(
            value == (area if column == "area" else getattr(owner, column))
            for column, value in wanted.items()
        )
        for _, wanted in rules(scope)
    )


def places_of(area: Area, owner: Scope) -> list[str]:
    """Return a word for each condition of `rules` that a record of `owner` in `area` meets."""
    ids = {name: getattr(owner, name) for name in OWNER_FIELDS if getattr(owner, name)}
    own = [{name: value} for name, value in ids.items()]
    met = ({"area": str(area)}, *own, *({"area": str(area), **one} for one in own))
    return [_place_word(*wanted.items()) for wanted in met]


def places_seen(scope: Scope) -> list[str]:
    """Return words of which each record visible to `scope` has one; empty: it sees all records."""
    seen = [wanted for _, wanted in rules(scope)]
    return [] if {} in seen else [_place_word(*wanted.items()) for wanted in seen]


@lru_cache(maxsize=1024)
def _place_word(*wanted: tuple[str, str]) -> str:
    """Return a word for a condition: digits, one token for full-text search, in no query."""
    text = "\0".join(f"{column}={value}" for column, value in wanted)
    return str(int.from_bytes(hashlib.sha256(text.encode(errors="replace")).digest()[:8]))


def weight_sql(scope: Scope) -> tuple[str, list[str]]:
    """Return the weight of a row of `records` in SQL (0: not seen), and its values."""
    cases: list[str] = []
    values: list[str] = []
    for weight, wanted in rules(scope):
        test = " AND ".join(f"{column} = ?" for column in wanted) or "1"
        cases.append(f"WHEN {test} THEN {weight}")
        values += map(str, wanted.values())
    return f"CASE {' '.join(cases)} ELSE 0 END", values
