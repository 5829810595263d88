"""The knowledge graph file of the MCP memory server: one JSON object a line.

An observation is a record, and so is a relation, and an entity that has no observation. The
server appends a name again now and then: the observations of all its lines are shown under the
one name, each with its own line, in the order that they were made in, which people rely on. A
relation may name an entity that is not there. Unknown keys are kept in the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from memtui.backends.files.adapter import FilesAdapter, FilesConfig
from memtui.backends.files.reading import (
    FileReader,
    Flaw,
    ParsedFile,
    ParsedRecord,
    digest,
    parse_moment,
    printable_id,
)
from memtui.contract import Json

_ENTITY_KEYS = frozenset({"type", "_type", "name", "entityType", "observations"})
_RELATION_KEYS = frozenset({"type", "_type", "from", "to", "relationType"})
_NESTING = 50
_TEXT_KEYS = ("content", "text", "observation", "value")
_TIME_KEYS = ("created_at", "createdAt", "timestamp", "date")


class McpMemoryConfig(FilesConfig):
    """The binding's settings; `path` is the file that `MEMORY_FILE_PATH` names."""


class McpMemoryAdapter(FilesAdapter[McpMemoryConfig]):
    """Shows a knowledge graph, a record an observation."""

    key = "mcp-memory"
    config_model = McpMemoryConfig
    holds = "file"

    def parse_all(self, reader: FileReader) -> Iterable[tuple[Path, ParsedFile]]:
        """Read the one file."""
        parsed = reader.parse(self.config.path, parse_graph)
        return [] if parsed is None else [(self.config.path, parsed)]


@dataclass(frozen=True, slots=True)
class _Relation:
    line: int
    start: str
    kind: str
    end: str
    extra: Json


@dataclass
class _Graph:
    records: list[ParsedRecord] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)
    lines_of: dict[str, list[int]] = field(default_factory=dict)
    relations: list[_Relation] = field(default_factory=list)


def parse_graph(text: str) -> ParsedFile:
    """Parse the file; every line that is not blank ends in a record or in a flaw."""
    graph = _Graph()
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            _read_line(graph, line, number)
    merged = [
        replace(entry, metadata={**entry.metadata, "lines": lines})
        if len(lines := graph.lines_of[entry.metadata["entity"]]) > 1
        else entry
        for entry in graph.records
    ]
    related = [_relation_entry(graph, relation) for relation in graph.relations]
    return ParsedFile((*merged, *related), tuple(sorted(graph.flaws, key=lambda flaw: flaw.line)))


def _read_line(graph: _Graph, line: str, number: int) -> None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "it is out of bounds"
        graph.flaws.append(Flaw(f"The line is not valid JSON: {reason}.", number))
        return
    if not isinstance(value, dict):
        graph.flaws.append(Flaw("The line is JSON and no object.", number))
        return
    if _is_deeper(value, _NESTING):
        graph.flaws.append(Flaw(f"The line is nested more than {_NESTING} deep.", number))
        return
    kind = value.get("type", value.get("_type"))
    if kind == "entity":
        _read_entity(graph, value, number)
    elif kind == "relation":
        _read_relation(graph, value, number)
    else:
        graph.flaws.append(Flaw("The line is neither an entity nor a relation.", number))


def _is_deeper(value: object, limit: int) -> bool:
    level = [value]
    while level and limit:
        limit -= 1
        nested = [item for item in level if isinstance(item, (dict, list))]
        level = [
            inner
            for item in nested
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return bool(level)


def _read_entity(graph: _Graph, value: Json, number: int) -> None:
    name = value.get("name")
    if not isinstance(name, str) or not name.strip():
        graph.flaws.append(Flaw("The entity has no name.", number))
        return
    graph.lines_of.setdefault(name, []).append(number)
    topic = value.get("entityType")
    base = ParsedRecord(
        id=f"entity/{printable_id(name)}",
        text=name,
        line=number,
        title=name,
        kind="entity",
        topic=topic if isinstance(topic, str) and topic else None,
        metadata={"entity": name, **_extra(value, _ENTITY_KEYS)},
    )
    held = value.get("observations", [])
    observed = list(_observations(graph, held if isinstance(held, list) else [held], number))
    for said, raw, created_at in observed:
        graph.records.append(
            replace(
                base,
                id=f"{base.id}/{digest(said)}",
                text=said,
                kind="observation",
                created_at=created_at,
                metadata=base.metadata if raw is None else {**base.metadata, "observation": raw},
            )
        )
    if not observed:
        graph.records.append(base)


def _observations(
    graph: _Graph, held: list[Any], number: int
) -> Iterator[tuple[str, Json | None, datetime | None]]:
    for value in held:
        raw = value if isinstance(value, dict) else None
        said: Any = value
        if raw is not None:
            texts = (raw[key] for key in _TEXT_KEYS if isinstance(raw.get(key), str))
            said = next(texts, None) or _dumped(raw)
        elif value is not None and not isinstance(value, str):
            said = _dumped(value)
        if not said or not said.strip():
            graph.flaws.append(Flaw("The entity has an empty observation.", number))
            continue
        moments = (parse_moment(raw.get(key)) for key in _TIME_KEYS) if raw else ()
        yield said, None if raw is None else _bounded(raw), next(filter(None, moments), None)


def _read_relation(graph: _Graph, value: Json, number: int) -> None:
    start, end, kind = (value.get(key) for key in ("from", "to", "relationType"))
    if not (isinstance(start, str) and start and isinstance(end, str) and end):
        graph.flaws.append(Flaw("The relation does not say from what to what.", number))
        return
    named = kind if isinstance(kind, str) and kind else "relates to"
    extra = _extra(value, _RELATION_KEYS)
    graph.relations.append(_Relation(number, start, named, end, extra))


def _relation_entry(graph: _Graph, told: _Relation) -> ParsedRecord:
    ends = dict.fromkeys((told.start, told.end))
    dangling = [name for name in ends if name not in graph.lines_of]
    metadata: Json = {"from": told.start, "to": told.end, "relation": told.kind, **told.extra}
    return ParsedRecord(
        id=f"relation/{digest(told.start, told.kind, told.end)}",
        text=f"{told.start} {told.kind} {told.end}",
        line=told.line,
        title=f"{told.start} → {told.end}",
        kind="relation",
        metadata={**metadata, "dangling": dangling} if dangling else metadata,
    )


def _extra(value: Json, known: frozenset[str]) -> Json:
    rest = {key: item for key, item in value.items() if key not in known}
    return {"extra": _bounded(rest)} if rest else {}


def _bounded(value: Json) -> Json:
    """Return the object, with what JSON cannot hold (NaN, infinities) as text."""
    bounded: Json = json.loads(_dumped(value), parse_constant=str)
    return bounded


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
