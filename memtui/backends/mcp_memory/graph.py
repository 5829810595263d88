"""Reads and changes the lines of a knowledge graph file.

Each line is a JSON object. A change preserves all other lines byte for byte, and on its own line
all other members and observations.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from memtui.contract import Invalid, Json, Unavailable
from memtui.json_text import json_elements, json_members
from memtui.provider_kit import is_nested_deeper
from memtui.provider_kit.files.reading import (
    Flaw,
    ParsedFile,
    ParsedRecord,
    digest,
    numbered,
    parse_moment,
    printable_id,
)
from memtui.provider_kit.files.shared import encoded

ENTITY, OBSERVATION, RELATION = "entity", "observation", "relation"
_ENTITY_KEYS = frozenset({"type", "_type", "name", "entityType", "observations"})
_RELATION_KEYS = frozenset({"type", "_type", "from", "to", "relationType"})
_NESTING = 50
_TEXT_KEYS = ("content", "text", "observation", "value")
_TIME_KEYS = ("created_at", "createdAt", "timestamp", "date")
_UNNAMED = "relates to"
ARROW = " → "
_ARROWS = re.compile(r"\s+(?:→|->)\s+")
_NAMING: dict[object, tuple[str, ...]] = {ENTITY: ("name",), RELATION: ("from", "to")}
"""The members that name an entity, by the type of the line."""
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class GraphRecord(ParsedRecord):
    """An entity, an observation or a relation, and its place in the file."""

    entity: str = ""
    """Name of the entity or, for an observation, of its entity."""
    ends: tuple[str, str, str] = ("", "", "")
    """For a relation: from, relation, to."""
    at: int = 0
    """The place of an observation in its line, counted from 0."""


def relation_ends(text: str) -> tuple[str, str, str]:
    """Return the parts of a relation's text, `from → relation → to`.

    Raises:
        Invalid: the text is not three names with two arrows between them.
    """
    parts = [part.strip() for part in _ARROWS.split(text)]
    if len(parts) != 3 or not all(parts):
        raise Invalid(
            "A relation is written as three names with arrows between them: "
            "ripgrep → is faster than → grep."
        )
    return parts[0], parts[1], parts[2]


def is_whole(content: bytes) -> bool:
    """Whether the file may be complete: it is not empty, and its last line is JSON."""
    return _is_json(content.rstrip().rpartition(b"\n")[2])


def _is_json(text: str | bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


class _Unreadable(Exception):
    """A line is unreadable; the message is a sentence."""


class _Line:
    """A line of the file: its bytes, its parsed object and pending changes."""

    def __init__(self, content: bytes) -> None:
        self._before = _BOM if content.startswith(_BOM) else b""
        self._after = b"\r" if content.endswith(b"\r") else b""
        self._raw = content.removeprefix(_BOM).removesuffix(b"\r")
        self.value: Json = {}
        """The parsed object; empty if the line is unreadable."""
        self._as_list: bool | None = None
        """Whether to write the changed observations as a list; None: there are no changes."""

    @classmethod
    def of(cls, value: Json) -> _Line:
        """Make a line in the server's JSON format."""
        return cls(encoded(json.dumps(value, ensure_ascii=False, separators=(",", ":"))))

    def content(self) -> bytes:
        """Return the line's bytes."""
        self._write_observations()
        return self._before + self._raw + self._after

    def ended_as(self, other: _Line) -> _Line:
        """Give the line the other's line end."""
        self._after = other._after
        return self

    def read(self) -> None:
        """Read the object. Raises `_Unreadable`."""
        try:
            value = json.loads(self.shown)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "it is out of bounds"
            raise _Unreadable(f"The line is not valid JSON: {reason}.") from error
        if not isinstance(value, dict):
            raise _Unreadable("The line is JSON and no object.")
        if is_nested_deeper(value, _NESTING):
            raise _Unreadable(f"The line is nested more than {_NESTING} deep.")
        self.value = value

    @property
    def shown(self) -> str:
        """The line as text, with bytes that are not UTF-8 replaced."""
        self._write_observations()
        return self._raw.decode("utf-8", "replace")

    @property
    def whole(self) -> str:
        """The line as text, with the carriage return at its end."""
        return self.shown + self._after.decode()

    @property
    def is_blank(self) -> bool:
        return not self._raw.strip()

    def is_of(self, name: str) -> bool:
        """Whether the line is one of the entity's lines."""
        return _kind(self.value) == ENTITY and self.value.get("name") == name

    # Changes

    @property
    def text(self) -> str:
        """The line as text. Raises `Invalid` if it is not UTF-8: a change would lose bytes."""
        self._write_observations()
        try:
            return self._raw.decode()
        except UnicodeDecodeError as error:
            raise Invalid(
                "The line holds bytes that are not UTF-8; fix it in the file before changing it."
            ) from error

    @cached_property
    def observations(self) -> list[_Observation]:
        """The observations, to be changed in place. Raises `Invalid`, as `text` does."""
        _ = self.text
        return [_Observation(one) for one in self.as_read]

    @cached_property
    def as_read(self) -> list[str]:
        """The observations as JSON, exactly as in the file."""
        text = self.shown
        place = json_members(text).get("observations")
        if place is None:
            return []
        if text[place[0]] != "[":
            return [text[slice(*place)]]
        return [text[start:end] for start, end in json_elements(text, place[0])]

    def keep_observations(self, *, as_list: bool = True) -> None:
        """Mark the observations as changed, to be written as a list or as a single value."""
        self._as_list = as_list

    def _write_observations(self) -> None:
        as_list, self._as_list = self._as_list, None
        if as_list is not None:
            gap = ", " if self._is_spaced else ","
            written = gap.join(one.written for one in self.observations)
            self._put("observations", f"[{written}]" if as_list else written)

    def put(self, key: str, value: str) -> None:
        """Replace the value of a member of the object."""
        self._put(key, json.dumps(value, ensure_ascii=False))

    def _put(self, key: str, written: str) -> None:
        text = self.text
        if (place := json_members(text).get(key)) is not None:
            text = text[: place[0]] + written + text[place[1] :]
        else:
            gap, end = " " if self._is_spaced else "", text.rindex("}")
            text = f'{text[:end].rstrip()},{gap}"{key}":{gap}{written}{text[end:]}'
        self._raw = encoded(text)

    @property
    def _is_spaced(self) -> bool:
        return re.match(r'\s*\{\s*"[^"]*"\s*:\s', self.text) is not None


@dataclass(eq=False, slots=True)
class _Observation:
    """An observation as JSON; compared by identity."""

    written: str


class Graph:
    """The records of the file, and changes to it, which `content` then includes."""

    def __init__(self, content: bytes) -> None:
        self._lines = [_Line(one) for one in content.split(b"\n")]
        self._numbered = list(self._lines)
        self._last = self._lines[-1]
        self._flaws: list[Flaw] = []
        self._read: list[GraphRecord] = []
        for number, line in enumerate(self._lines, start=1):
            if not line.is_blank:
                try:
                    line.read()
                    self._read += self._records_of(line, number)
                except _Unreadable as error:
                    line.value = {}
                    self._flaws.append(Flaw(str(error), number))
        self._ids = dict(zip(numbered(one.id for one in self.records), self.records, strict=True))

    def content(self) -> bytes:
        """Return the file's bytes; the last line has a line end only if it had one before."""
        written = [line.content() for line in self._lines]
        if written and self._lines[-1] is not self._last and not self._last.is_blank:
            if self._last in self._lines:
                self._last.ended_as(self._numbered[0])
                written = [line.content() for line in self._lines]
            written[-1] = written[-1].removesuffix(b"\r")
        return b"\n".join(written)

    @cached_property
    def lines_of(self) -> dict[str, list[int]]:
        """The line numbers of each entity, which may have several lines."""
        found: dict[str, list[int]] = {}
        for number, line in enumerate(self._numbered, start=1):
            if _kind(line.value) == ENTITY:
                found.setdefault(line.value["name"], []).append(number)
        return found

    @cached_property
    def records(self) -> list[GraphRecord]:
        """The records in the file's order, relations last; an entity before its observations."""
        observed, related = dict[str, int](), dict[str, int]()
        for one in self._read:
            if one.kind == OBSERVATION:
                observed[one.entity] = observed.get(one.entity, 0) + 1
            for name in {one.ends[0], one.ends[2]} if one.kind == RELATION else ():
                related[name] = related.get(name, 0) + 1
        found: list[GraphRecord] = []
        shown: set[str] = set()
        for one in self._read:
            lines = self.lines_of.get(one.entity, [])
            several = {"lines": lines} if len(lines) > 1 else {}
            if one.kind == ENTITY:
                if one.entity not in shown:
                    counts = {
                        "observations": observed.get(one.entity, 0),
                        "relations": related.get(one.entity, 0),
                    }
                    words = [f"{n} {w if n > 1 else w[:-1]}" for w, n in counts.items() if n]
                    goes_with = {"goes_with": ", ".join(words)} if words else {}
                    found.append(_with(one, **several, **counts, **goes_with))
                shown.add(one.entity)
            elif one.kind == OBSERVATION:
                found.append(_with(one, **several))
        for one in self._read:
            if one.kind == RELATION:
                dangling = [name for name in dict.fromkeys(one.ends[::2]) if name not in shown]
                found.append(_with(one, dangling=dangling) if dangling else one)
        return found

    def parsed(self) -> ParsedFile:
        """Return the records and the flaws."""
        return ParsedFile(tuple(self.records), tuple(self._flaws))

    def why_foreign(self, *, is_undo: bool) -> str:
        """Return why the file is no graph with one object per line; empty if it is one.

        `is_undo` accepts a file without a good line, since undo may restore its last one.
        """
        written = [line.shown.strip() for line in self._numbered if not line.is_blank]
        if self._flaws and (
            written[0] == "{" or written[0].startswith("[") or _is_json("\n".join(written))
        ):
            return "it is one JSON document, not one object a line"
        if self._flaws and not self._read and not is_undo:
            return "none of its lines is an entity or a relation"
        return ""

    def find(self, record_id: str) -> GraphRecord | None:
        """Return the record of an id; None if there is none."""
        return self._ids.get(record_id)

    def ids(self, wanted: GraphRecord) -> list[str]:
        """Return the ids of the records with the same content as this one, in order."""
        return self._by_words.get(_content_of(wanted), [])

    @cached_property
    def _by_words(self) -> dict[_Content, list[str]]:
        found: dict[_Content, list[str]] = {}
        for record_id, one in self._ids.items():
            found.setdefault(_content_of(one), []).append(record_id)
        return found

    def ids_about(self, name: str) -> list[str]:
        """Return the ids of an entity, its observations and its relations, in order."""
        return [
            one_id
            for one_id, one in self._ids.items()
            if one.entity == name or name in one.ends[::2]
        ]

    def is_named(self, name: str) -> bool:
        """Whether an entity or a relation has this name."""
        return any(_touches(line, name) for line in self._lines)

    def _records_of(self, line: _Line, number: int) -> Iterator[GraphRecord]:
        kind = _kind(line.value)
        if kind == ENTITY:
            yield from self._entity(line.value, number)
        elif kind == RELATION:
            yield _relation(line.value, number)
        else:
            raise _Unreadable("The line is neither an entity nor a relation.")

    def _entity(self, value: Json, number: int) -> Iterator[GraphRecord]:
        name = value.get("name")
        if not isinstance(name, str) or not name.strip():
            raise _Unreadable("The entity has no name.")
        topic = value.get("entityType")
        base = GraphRecord(
            id=f"entity/{printable_id(name)}",
            text=name,
            line=number,
            title=name,
            kind=ENTITY,
            topic=topic if isinstance(topic, str) and topic else None,
            metadata={"entity": name, **_extra(value, _ENTITY_KEYS)},
            entity=name,
        )
        yield base
        texts = value.get("observations", [])
        for at, one in enumerate(texts if isinstance(texts, list) else [texts]):
            if (found := _observation(base, one, at)) is not None:
                yield found
            else:
                self._flaws.append(Flaw("The entity has an empty observation.", number))

    # Changes

    def add_observation(self, name: str, entity_type: str, text: str) -> None:
        """Add an observation at the end of an entity, which is created if missing."""
        written = _written(text)
        line = next((one for one in self._lines if one.is_of(name)), None)
        if line is None:
            line = self._add(_entity_value(name, entity_type))
        line.observations.append(_Observation(written))
        line.keep_observations()

    def add_entity(self, name: str, entity_type: str) -> None:
        """Add an entity without observations."""
        self._add(_entity_value(name, entity_type))

    def add_relation(self, ends: tuple[str, str, str]) -> None:
        """Add a relation."""
        start, relation, end = ends
        self._add({"type": RELATION, "from": start, "to": end, "relationType": relation})

    def remove(self, record: GraphRecord) -> None:
        """Remove a record; as in the server, an entity with its observations and relations."""
        line = self._numbered[record.line - 1]
        if record.kind == OBSERVATION:
            line.observations.remove(self._observation_of(record))
            line.keep_observations()
        elif record.kind == RELATION:
            self._lines = [one for one in self._lines if one is not line]
        else:
            self._lines = [one for one in self._lines if not _touches(one, record.entity)]

    def remove_if_empty(self, name: str) -> None:
        """Remove an entity if it has no observations and no relations."""
        lines = [one for one in self._lines if _touches(one, name)]
        if not any(one.observations or not one.is_of(name) for one in lines):
            self._lines = [one for one in self._lines if one not in lines]

    def correct(self, record: GraphRecord, new: GraphRecord) -> None:
        """Give an observation another text, an entity another name, or a relation other ends."""
        line = self._numbered[record.line - 1]
        if record.kind == OBSERVATION:
            self._observation_of(record).written = _written(new.text)
            line.keep_observations()
        elif record.kind == RELATION:
            for key, value in zip(("from", "relationType", "to"), new.ends, strict=True):
                line.put(key, value)
        else:
            for one in self._lines:
                for key in _NAMING.get(_kind(one.value), ()):
                    if one.value.get(key) == record.entity:
                        one.put(key, new.entity)

    def set_type(self, names: Collection[str], entity_type: str) -> None:
        """Set the type of entities on all their lines."""
        for line in self._lines:
            if any(map(line.is_of, names)):
                line.put("entityType", entity_type)

    def take_over(self, before: Graph, after: Graph) -> None:
        """Apply the difference between two other versions, as far as it is missing here."""
        counts = [Counter(map(_content_of, one.records)) for one in (before, after, self)]
        old, new, here = counts
        for record in after.records:
            said = _content_of(record)
            if here[said] < new[said] > old[said]:
                here[said] += 1
                self._add_again(record)
        for record_id, record in reversed(self._ids.items()):
            said = _content_of(record)
            if new[said] < old[said] and here[said] > new[said]:
                here[said] -= 1
                self.remove(self._ids[record_id])

    def _add_again(self, record: GraphRecord) -> None:
        if record.kind == OBSERVATION:
            self.add_observation(record.entity, record.topic or "", record.text)
        elif record.kind == RELATION:
            self.add_relation(record.ends)
        elif not any(line.is_of(record.entity) for line in self._lines):
            self.add_entity(record.entity, record.topic or "")

    def state(self, record: GraphRecord) -> Json:
        """Return the state from which a record can be restored in its place."""
        line = self._numbered[record.line - 1]
        state: Json = {
            "line": record.line,
            "same": len(self.ids(record)),
            "is_ended": self._last.is_blank,
        }
        if record.kind == OBSERVATION:
            place = {"at": record.at, "entity": record.entity, "entity_type": record.topic or ""}
            is_alone = not isinstance(line.value.get("observations"), list)
            written = line.as_read[record.at]
            return state | place | {"written": written, "alone": is_alone}
        if record.kind == RELATION:
            return state | {"written": line.whole}
        lines = enumerate(self._numbered, start=1)
        touched = [[n, one.whole] for n, one in lines if _touches(one, record.entity)]
        return state | {"entity": record.entity, "lines": touched}

    def put_back(self, wanted: Mapping[str, Json]) -> None:
        """Restore missing records by their ids, and entities as they were, in the file's order."""
        if not self.content() and not all(state["is_ended"] for state in wanted.values()):
            self._lines.clear()  # the file did not end with a line end
        whole = [state for state in wanted.values() if "lines" in state]
        for state in whole:
            self._put_entity_back(state)
        here = Counter(map(_content_of, Graph(self.content()).records if whole else self.records))
        for name, state in wanted.items():
            found = self._ids.get(name)
            if "lines" not in state and found and here[_content_of(found)] > state["same"]:
                here[_content_of(found)] -= 1
                self.remove(found)  # the next equal one was in its place
        for state in wanted.values():
            if "lines" in state:
                continue
            line = _Line(encoded(state["written"]))
            if "at" in state:
                line = _Line.of(_entity_value(state["entity"], state["entity_type"]))
                line.observations.append(_Observation(state["written"]))
                line.keep_observations()
            line.read()
            *_, record = self._records_of(line, 0)
            if here[_content_of(record)] < state["same"]:
                here[_content_of(record)] += 1
                self._put_line_back(line, state)

    def _put_line_back(self, line: _Line, state: Json) -> None:
        number, name = state["line"], state.get("entity")
        at_line = self._lines[number - 1 : number]
        own = next((one for one in (*at_line, *self._lines) if name and one.is_of(name)), None)
        if own is None:
            self._insert(line, number, is_new="at" in state)
        else:
            own.observations.insert(state["at"], line.observations[0])
            own.keep_observations(as_list=not (state["alone"] and len(own.observations) == 1))

    def _put_entity_back(self, state: Json) -> None:
        name = state["entity"]
        lines = enumerate(self._lines, start=1)
        if [[n, one.whole] for n, one in lines if _touches(one, name)] != state["lines"]:
            self._lines = [one for one in self._lines if not _touches(one, name)]
            for number, written in state["lines"]:
                self._insert(_Line(encoded(written)), number, is_new=False)

    def _observation_of(self, record: GraphRecord) -> _Observation:
        """Return the observation at the place where the record was read, despite later changes."""
        line = self._numbered[record.line - 1]
        return self._cells.setdefault(record.line, list(line.observations))[record.at]

    @cached_property
    def _cells(self) -> dict[int, list[_Observation]]:
        """The observations of the changed lines as they were read."""
        return {}

    def _add(self, value: Json) -> _Line:
        return self._insert(_Line.of(value), len(self._lines) + 1)

    def _insert(self, line: _Line, number: int, *, is_new: bool = True) -> _Line:
        """Insert a line at a line number, at the latest before trailing blank lines."""
        line.read()
        if self._lines and is_new:
            line.ended_as(self._lines[0])
        last = len(self._lines)
        while last and not self._lines[last - 1].content().strip():
            last -= 1
        self._lines.insert(min(number - 1, last), line)
        return line


def merged(before: bytes, after: bytes, content: bytes) -> bytes:
    """Return a content with the difference between two others applied."""
    graph = Graph(content)
    graph.take_over(Graph(before), Graph(after))
    return graph.content()


_Content = tuple[str, str, tuple[str, str, str], str]


def _content_of(record: GraphRecord) -> _Content:
    """Return a record's content without its place."""
    return record.kind, record.entity, record.ends, record.text


def lines_found_by_server(lines: Sequence[str], query: str) -> set[int]:
    """Return the lines, counted from 1, that `search_nodes` returns for a query.

    An entity matches if its name, its type or an observation contains the query in any case; a
    relation if an entity that it names matches. Only lines with a `type` count.

    Raises:
        Unavailable: the server would fail to read or compare a line.
    """
    graph: list[tuple[int, Json]] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise _fails(number, "the line is not valid JSON") from error
            graph.append((number, value if isinstance(value, dict) else {}))
    needle, names, found = query.lower(), set[str](), set[int]()
    for number, value in graph:
        if value.get("type") == ENTITY and _matches(value, needle, number):
            names.add(value["name"])
            found.add(number)
    for number, value in graph:
        if value.get("type") == RELATION and not names.isdisjoint(map(value.get, ("from", "to"))):
            found.add(number)
    return found


def _matches(entity: Json, needle: str, number: int) -> bool:
    for value in (entity.get("name"), entity.get("entityType")):
        if not isinstance(value, str):
            raise _fails(number, "the entity has no name or no type that is a text")
        if needle in value.lower():
            return True
    observations = entity.get("observations")
    if not isinstance(observations, list):
        raise _fails(number, "the entity's observations are not a list")
    for value in observations:
        if not isinstance(value, str):
            raise _fails(number, "an observation is not a text")
        if needle in value.lower():
            return True
    return False


def _fails(number: int, why: str) -> Unavailable:
    return Unavailable(
        f"Agents find nothing here: the memory server fails at line {number}, because {why}; fix "
        "that line."
    )


def _kind(value: Json) -> object:
    return value.get("type", value.get("_type"))


def _touches(line: _Line, name: str) -> bool:
    """Whether a line is an entity's own or one of its relations."""
    is_end = _kind(line.value) == RELATION and name in (line.value["from"], line.value["to"])
    return is_end or line.is_of(name)


def _entity_value(name: str, entity_type: str) -> Json:
    return {"type": ENTITY, "name": name, "entityType": entity_type, "observations": []}


def _observation(base: GraphRecord, value: Any, at: int) -> GraphRecord | None:
    """Return an observation of an entity; None for an empty one."""
    raw = value if isinstance(value, dict) else None
    said: Any = value
    if raw is not None:
        texts = (raw[key] for key in _TEXT_KEYS if isinstance(raw.get(key), str))
        said = next(texts, None) or json.dumps(raw, ensure_ascii=False)
    elif value is not None and not isinstance(value, str):
        said = json.dumps(value, ensure_ascii=False)
    if not said or not said.strip():
        return None
    moments = (parse_moment(raw.get(key)) for key in _TIME_KEYS) if raw else ()
    found = replace(
        base,
        id=f"{base.id}/{digest(said)}",
        text=said,
        kind=OBSERVATION,
        created_at=next(filter(None, moments), None),
        at=at,
    )
    return found if raw is None else _with(found, observation=_bounded(raw))


def _relation(value: Json, number: int) -> GraphRecord:
    start, end, kind = (value.get(key) for key in ("from", "to", "relationType"))
    if not (isinstance(start, str) and start and isinstance(end, str) and end):
        raise _Unreadable("The relation has no source or no target.")
    relation = kind if isinstance(kind, str) and kind else _UNNAMED
    extra = _extra(value, _RELATION_KEYS)
    return GraphRecord(
        id=f"relation/{digest(start, relation, end)}",
        text=ARROW.join((start, relation, end)),
        line=number,
        title=f"{start}{ARROW}{end}",
        kind=RELATION,
        metadata={"from": start, "to": end, "relation": relation, **extra},
        ends=(start, relation, end),
    )


def _with(record: GraphRecord, **metadata: Any) -> GraphRecord:
    return replace(record, metadata={**record.metadata, **metadata}) if metadata else record


def _extra(value: Json, known: frozenset[str]) -> Json:
    rest = {key: item for key, item in value.items() if key not in known}
    return {"extra": _bounded(rest)} if rest else {}


def _bounded(value: Json) -> Json:
    """Return the object, with NaN and infinities, which JSON lacks, as text."""
    bounded: Json = json.loads(json.dumps(value, ensure_ascii=False), parse_constant=str)
    return bounded


def _written(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
