"""The knowledge graph file of the MCP memory server: one JSON object a line.

An observation is a record, and so is a relation, and an entity that has no observation. The
server appends a name again now and then: the observations of all its lines are shown under the
one name, each with its own line, in the order that they were made in, which people rely on. A
relation may name an entity that is not there. Unknown keys are kept in the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
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
from memtui.contract import Json, Record, Unavailable
from memtui.provider_kit import is_nested_deeper

_ENTITY_KEYS = frozenset({"type", "_type", "name", "entityType", "observations"})
_RELATION_KEYS = frozenset({"type", "_type", "from", "to", "relationType"})
_NESTING = 50
_TEXT_KEYS = ("content", "text", "observation", "value")
_TIME_KEYS = ("created_at", "createdAt", "timestamp", "date")


class McpMemoryConfig(FilesConfig):
    """The knowledge graph of an MCP memory server: the file that `MEMORY_FILE_PATH` names."""


class McpMemoryAdapter(FilesAdapter[McpMemoryConfig]):
    """Shows a knowledge graph, a record an observation."""

    key = "mcp-memory"
    config_model = McpMemoryConfig
    holds = "file"
    capabilities = FilesAdapter.capabilities.model_copy(update={"agents_search": True})

    def found_by_agents(self, query: str, records: dict[str, Record]) -> Iterable[Record]:
        """Return what the server's `search_nodes` finds: entities that match, then relations.

        Raises:
            Unavailable: the server fails at this query.
        """
        text = self.config.path.read_text("utf-8", "replace")
        lines = lines_found_by_server(text.split("\n"), query)
        there = [r for r in records.values() if r.location and r.location.line in lines]
        return sorted(there, key=lambda record: record.kind == "relation")

    def parse_all(self, reader: FileReader) -> Iterable[tuple[Path, ParsedFile]]:
        """Read the one file."""
        parsed = reader.parse(self.config.path, parse_graph)
        return [] if parsed is None else [(self.config.path, parsed)]


def parse_graph(text: str) -> ParsedFile:
    """Parse the file; every line that is not blank ends in a record or in a flaw."""
    graph = _Graph()
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                graph.read(_object(line), number)
            except _Unreadable as error:
                graph.flaws.append(Flaw(str(error), number))
    return graph.parsed()


def lines_found_by_server(lines: Sequence[str], query: str) -> set[int]:
    """Return the lines, counted from 1, that `search_nodes` answers a query with.

    An entity matches where its name, its type or one of its observations holds the query, whatever
    its case; a relation where an entity that it names does. Only lines with a `type` count.

    Raises:
        Unavailable: the server cannot read a line, or compare what stands in it.
    """
    graph: list[tuple[int, Json]] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                value = json.loads(line.strip("\r"))
            except (ValueError, RecursionError) as error:
                raise _fails(number, "the line is not valid JSON") from error
            graph.append((number, value if isinstance(value, dict) else {}))
    needle, names, found = query.lower(), set[str](), set[int]()
    for number, value in graph:
        if value.get("type") == "entity" and _matches(value, needle, number):
            names.add(value["name"])
            found.add(number)
    for number, value in graph:
        if value.get("type") == "relation" and {value.get("from"), value.get("to")} & names:
            found.add(number)
    return found


def _matches(entity: Json, needle: str, number: int) -> bool:
    observations = entity.get("observations")
    for value in (entity.get("name"), entity.get("entityType")):
        if not isinstance(value, str):
            raise _fails(number, "the entity has no name or no type that is a text")
        if needle in value.lower():
            return True
    if not isinstance(observations, list):
        raise _fails(number, "the entity's observations are no list")
    for value in observations:
        if not isinstance(value, str):
            raise _fails(number, "an observation is no text")
        if needle in value.lower():
            return True
    return False


def _fails(number: int, why: str) -> Unavailable:
    return Unavailable(
        f"Its agents find nothing: the memory server fails at line {number}, since {why}; mend "
        "that line."
    )


class _Unreadable(Exception):
    """What is wrong with a line, as a sentence."""


def _object(line: str) -> Json:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "it is out of bounds"
        raise _Unreadable(f"The line is not valid JSON: {reason}.") from error
    if not isinstance(value, dict):
        raise _Unreadable("The line is JSON and no object.")
    if is_nested_deeper(value, _NESTING):
        raise _Unreadable(f"The line is nested more than {_NESTING} deep.")
    return value


class _Graph:
    """What the lines that were read so far hold."""

    def __init__(self) -> None:
        self.flaws: list[Flaw] = []
        self._records: list[ParsedRecord] = []
        self._relations: list[ParsedRecord] = []
        self._lines_of: dict[str, list[int]] = {}

    def read(self, value: Json, number: int) -> None:
        """Take up a line. Raises `_Unreadable`."""
        kind = value.get("type", value.get("_type"))
        if kind == "entity":
            self._read_entity(value, number)
        elif kind == "relation":
            self._read_relation(value, number)
        else:
            raise _Unreadable("The line is neither an entity nor a relation.")

    def parsed(self) -> ParsedFile:
        """Return the records; an entity's name all lines that name it, a relation's what lacks."""
        found: list[ParsedRecord] = []
        for one in self._records:
            lines = self._lines_of[one.metadata["entity"]]
            found.append(_with(one, lines=lines) if len(lines) > 1 else one)
        for one in self._relations:
            ends = dict.fromkeys((one.metadata["from"], one.metadata["to"]))
            dangling = [name for name in ends if name not in self._lines_of]
            found.append(_with(one, dangling=dangling) if dangling else one)
        return ParsedFile(tuple(found), tuple(sorted(self.flaws, key=lambda flaw: flaw.line)))

    def _read_entity(self, value: Json, number: int) -> None:
        name = value.get("name")
        if not isinstance(name, str) or not name.strip():
            raise _Unreadable("The entity has no name.")
        self._lines_of.setdefault(name, []).append(number)
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
        observed = list(self._observations(base, held if isinstance(held, list) else [held]))
        self._records += observed or [base]

    def _observations(self, base: ParsedRecord, held: list[Any]) -> Iterator[ParsedRecord]:
        for value in held:
            raw = value if isinstance(value, dict) else None
            said: Any = value
            if raw is not None:
                texts = (raw[key] for key in _TEXT_KEYS if isinstance(raw.get(key), str))
                said = next(texts, None) or json.dumps(raw, ensure_ascii=False)
            elif value is not None and not isinstance(value, str):
                said = json.dumps(value, ensure_ascii=False)
            if not said or not said.strip():
                self.flaws.append(Flaw("The entity has an empty observation.", base.line))
                continue
            moments = (parse_moment(raw.get(key)) for key in _TIME_KEYS) if raw else ()
            found = replace(
                base,
                id=f"{base.id}/{digest(said)}",
                text=said,
                kind="observation",
                created_at=next(filter(None, moments), None),
            )
            yield found if raw is None else _with(found, observation=_bounded(raw))

    def _read_relation(self, value: Json, number: int) -> None:
        start, end, kind = (value.get(key) for key in ("from", "to", "relationType"))
        if not (isinstance(start, str) and start and isinstance(end, str) and end):
            raise _Unreadable("The relation does not say from what to what.")
        named = kind if isinstance(kind, str) and kind else "relates to"
        extra = _extra(value, _RELATION_KEYS)
        self._relations.append(
            ParsedRecord(
                id=f"relation/{digest(start, named, end)}",
                text=f"{start} {named} {end}",
                line=number,
                title=f"{start} → {end}",
                kind="relation",
                metadata={"from": start, "to": end, "relation": named, **extra},
            )
        )


def _with(record: ParsedRecord, **metadata: Any) -> ParsedRecord:
    return replace(record, metadata={**record.metadata, **metadata})


def _extra(value: Json, known: frozenset[str]) -> Json:
    rest = {key: item for key, item in value.items() if key not in known}
    return {"extra": _bounded(rest)} if rest else {}


def _bounded(value: Json) -> Json:
    """Return the object, with what JSON cannot hold (NaN, infinities) as text."""
    bounded: Json = json.loads(json.dumps(value, ensure_ascii=False), parse_constant=str)
    return bounded
