"""Which tools of an MCP memory server search, add or delete, and where a memory's parts stand.

A mapping is a short TOML file; `docs/providers.md` describes its format. It says nothing of how a
server is started or reached, so that a file from a repository starts and reaches nothing. The same
mapping builds calls (`ToolCall.built`), and reads calls that others made: their kind, the memories
that their arguments name, and the rows of their replies. All of it is pure.
"""

import math
import re
import tomllib
from collections.abc import Iterator
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import BeforeValidator, Field, ValidationError

from memtui.contract import Invalid, Json, Model
from memtui.json_text import lenient_json
from memtui.wording import misfit, unknown

Kind = Literal["read", "write", "correct", "delete"]
"""What a call does to memories."""

_ID = re.compile(r"[\w.:/-]+")
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_STARTS = frozenset({"command", "args", "url", "env", "headers", "cwd"})
_MOST_FILE = 100_000
MOST_NAMED = 1_000
"""How many memories of one call's arguments are returned."""
_FOLDER = Path(__file__).parent


class MappedRecord(NamedTuple):
    """A memory that a call names or returns; an empty id or text: it is not said."""

    id: str
    text: str
    score: float | None = None


def _each(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Joined: TypeAlias = tuple[str, str, Annotated[int, Field(ge=8, le=64)]]
"""What stands before the first part of an id, before the digest of the others, and its digits."""


class RecordPaths(Model):
    """Where the parts of a memory stand in a row of a reply: names joined by dots.

    A row has the fields of the rows around it too; `.` is the row itself, where it is no object.
    """

    id: Annotated[tuple[str, ...], BeforeValidator(_each)] = ()
    """Several paths: the first one and a digest of the others make the id. None: a digest of the
    text."""
    text: str = "text"
    """A list of texts is joined by line ends."""
    title: str | None = None
    kind: str | None = None
    topic: str | None = None
    tags: str | None = None
    """A list, or words joined by commas."""
    score: str | None = None
    """Higher is better."""
    created_at: str | None = None
    """ISO 8601 text, or seconds since 1970; likewise the other time."""
    updated_at: str | None = None
    created_by: str | None = None
    cut: str | None = None
    """Where it is true, the text is cut: the memory is read again by `[get]`."""
    metadata: str | None = None
    """An object; memtui keeps there what the server has no field for."""
    agent_id: str | None = None
    project_id: str | None = None
    subject_id: str | None = None

    def id_of(self, row: Json, joined: Joined) -> str:
        """Return the id of a row; empty: it has none."""
        parts = [_word(_at(row, path)) for path in self.id or (self.text,)]
        return "" if "" in parts else joined_id(parts, joined, is_digest=not self.id)


def joined_id(parts: list[str], joined: Joined, *, is_digest: bool = False) -> str:
    """Return an id of its parts: the first one, and a digest of the others where there are any."""
    first, others = ("", parts) if is_digest else (parts[0], parts[1:])
    if not others:
        return first
    start, between, digits = joined
    return f"{start}{first}{between}{sha256(chr(0).join(others).encode()).hexdigest()[:digits]}"


class ToolCall(Model):
    """A tool, its arguments and its reply."""

    tool: str = Field(min_length=1)
    arguments: Json = {}
    """`{name}` is a placeholder of a value; one without a value is left out. The members of an
    object under the key `.` become members of the outer object."""
    rows: str | None = None
    """The path of the memories in the reply; `name[]` is each item of a list, the empty path the
    reply itself. None: the reply has no memories."""
    id_after: str | None = None
    """Where the reply is a sentence: the words before the id in it."""
    fields: RecordPaths = RecordPaths()
    """The paths of this reply that differ from those of `[record]`."""
    kind: Kind = "read"
    """For tools that memtui does not call; those it calls have the kind of their section."""

    def built(self, values: Json) -> Json:
        """Return the arguments with their values."""
        return _filled(self.arguments, values) or {}

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the values that the arguments take."""
        return frozenset(_placeholders(self.arguments))

    def agrees(self, arguments: Json) -> bool:
        """Whether a call's arguments have the fixed values of this one."""
        return all(
            arguments.get(name) == value
            for name, value in self.arguments.items()
            if isinstance(value, str | int | float) and not _placeholder(value)
        )


class ListCall(ToolCall):
    """The tool that lists memories; `{limit}` with `{offset}` or `{page}` if it has pages."""

    page_size: int = Field(default=100, ge=1, le=10_000)


class SearchCall(ToolCall):
    """The tool that searches."""

    by: Literal["meaning", "words", "phrase"] | None = None
    """What it compares. For `phrase` memtui searches the list by words, and the tool only where
    the agents' own search is asked for. None: not known."""


class AddCall(ToolCall):
    """The tool that adds a memory."""

    first: ToolCall | None = None
    """A call made before this one. It creates the memory's container with the memory in it; if its
    reply has the memory, this tool is not called."""
    flat: bool = False
    """The metadata takes texts alone."""
    untitled: str = "notes"
    """The title of a memory without one, where the tool takes a title; `{new}` in it is a word
    that no other memory has, as it is among the arguments."""


class Mapping(Model):
    """The tools of a server. A section that is left out is an ability that the server lacks."""

    name: str = ""
    """The name of the file, without its ending."""
    title: str
    servers: tuple[str, ...] = ()
    """The names by which such servers introduce themselves."""
    extracts: bool = False
    """The server makes memories of its own from a text, and stores those."""
    late: bool = False
    """A written memory is there later, not at once."""
    replaces: bool = False
    """A text is corrected by adding the new memory and deleting the old one; for servers without a
    tool that changes one."""
    refused: tuple[str, ...] = ()
    """The signs of a failed call in a reply without `isError`: a path that is there and neither
    empty nor false, `path=value`, or `^words` with which a sentence begins."""
    strips: bool = False
    """The server adds and removes blank edges of a text."""
    gone: tuple[str, ...] = ()
    """The signs of a row that is no memory any more."""
    read_only: tuple[str, ...] = ()
    """The signs of a row that the server does not change."""
    taken: tuple[str, ...] = ()
    """Words of an error that say that another memory has this title or id."""
    missing: tuple[str, ...] = ("not found",)
    """Words of an error that say that there is no such memory."""
    uses: tuple[str, ...] = ()
    """Names in the metadata that the server changes as a memory is read."""
    joined: Joined = ("", "#", 16)
    """How an id is made of several parts; those of memtui's own provider of the same memories."""
    record: RecordPaths = RecordPaths()
    search: SearchCall | None = None
    listing: Annotated[ListCall | None, Field(alias="list")] = None
    get: ToolCall | None = None
    add: AddCall | None = None
    update: ToolCall | None = None
    delete: ToolCall | None = None
    other: tuple[ToolCall, ...] = ()
    """Tools that agents call and memtui does not."""

    @cached_property
    def calls(self) -> list[tuple[Kind, ToolCall]]:
        """The mapped calls, each with its kind."""
        add = self.add
        found: list[tuple[Kind, ToolCall | None]] = [
            ("read", self.search), ("read", self.listing), ("read", self.get), ("write", add),
            ("write", add and add.first), ("correct", self.update), ("delete", self.delete),
        ]  # fmt: skip
        return [(kind, one) for kind, one in found if one] + [(one.kind, one) for one in self.other]

    @property
    def reads_again(self) -> bool:
        """Whether a memory can be read by its id."""
        return self.get is not None or self.listing is not None

    @cached_property
    def tools(self) -> frozenset[str]:
        """The names of the tools that memtui calls."""
        return frozenset(one.tool for _, one in self.calls if one not in self.other)

    def call_of(self, tool: str, arguments: Json) -> tuple[Kind, ToolCall] | None:
        """Return what a call is; None: the mapping does not say it."""
        found = [(kind, call) for kind, call in self.calls if call.tool == tool]
        if len({kind for kind, _ in found}) > 1:
            found = [(kind, call) for kind, call in found if call.agrees(arguments)]
        return found[0] if len({kind for kind, _ in found}) == 1 else None

    def given(self, tool: str, arguments: Json) -> list[Json]:
        """Return the values by placeholder in a call's arguments, one object for each memory."""
        found = self.call_of(tool, arguments)
        return _matched(found[1].arguments, arguments) if found else []

    def beyond(self, tool: str, arguments: Json) -> list[str]:
        """Return the texts in a call's arguments that no placeholder stands for."""
        found = self.call_of(tool, arguments)
        return [*_beyond(found[1].arguments, arguments)] if found else []

    def named(self, tool: str, arguments: Json) -> list[MappedRecord]:
        """Return the memories that a call's arguments name: ids, texts or both."""
        rows = self.given(tool, arguments)
        named = (MappedRecord(self.id_given(one), _text(one.get("text"))) for one in rows)
        return [one for one in named if one.id or one.text]

    def id_given(self, values: Json) -> str:
        """Return the id of a memory by the values of a call's arguments; empty: it is not said."""
        paths = self.record.id
        is_titled = paths[:1] == (self.record.title,)
        first = _word(values.get("id") or (values.get("title") if is_titled else None))
        text = _text(values.get("text")) if paths[1:] == (self.record.text,) else ""
        return joined_id([first, text], self.joined) if first and text else first

    def id_argument(self, record_id: str) -> str:
        """Return the value of `{id}`: of an id of several parts, the first."""
        start, between, _ = self.joined
        first = record_id.removeprefix(start).rpartition(between)[0]
        return first if len(self.record.id) > 1 else record_id

    def query(self, tool: str, arguments: Json) -> str | None:
        """Return the words that a call searches for."""
        rows = self.given(tool, arguments)
        return next((_word(one["query"]) for one in rows if "query" in one), None)

    def records(self, tool: str, result: Json, arguments: Json | None = None) -> list[MappedRecord]:
        """Return the memories in a call's result, as MCP sends it (`content`, `isError` …)."""
        found = self.call_of(tool, arguments or {})
        if found is None or self.refusal(result) is not None:
            return []
        rows = self.rows(found[1], result)
        return [MappedRecord(row["id"], row["text"], row.get("score")) for row in rows]

    def rows(self, call: ToolCall, result: Json) -> list[Json]:
        """Return the parts of the memories in a reply, by the names of `RecordPaths`.

        A part that the reply lacks is left out; the id and the text may be empty.
        """
        if call.rows is None:
            return []
        data = data_of(result)
        if call.id_after is not None:
            said = data.partition(call.id_after)[2] if isinstance(data, str) else ""
            word = _ID.match(said)
            return [{"id": word[0], "text": "", "read_only": False}] if word else []
        paths = self.record.model_copy(update=call.fields.model_dump(exclude_unset=True))
        found = []
        for row in _rows(data, [one for one in call.rows.split(".") if one], {}):
            if _shows(row, self.gone):
                continue
            parts = {
                name: value
                for name, path in paths
                if isinstance(path, str) and (value := _at(row, path)) is not None
            }
            score = parts.get("score")
            is_score = isinstance(score, int | float) and math.isfinite(score)
            parts["score"] = float(score) if is_score and score is not None else None
            text = _text(parts.get("text"))
            parts["text"] = text.strip() if self.strips else text
            is_fixed = _shows(row, self.read_only)
            found.append({**parts, "id": paths.id_of(row, self.joined), "read_only": is_fixed})
        return found

    def refusal(self, result: Json) -> str | None:
        """Return why a call failed, in the server's words; None: it did not fail."""
        data = data_of(result)
        is_refused = result.get("isError") is True or _shows(data, self.refused)
        if not is_refused:
            return None
        said = (_at(data, name) for name in ("error", "message", "detail"))
        word = next((one for one in said if isinstance(one, str) and one), None)
        return word or (data if isinstance(data, str) else "") or "it says no more"


def _shows(data: Any, signs: tuple[str, ...]) -> bool:
    """Whether a reply or a row has one of some signs: `path`, `path=value` or `^words`."""
    for sign in signs:
        path, equals, wanted = sign.partition("=")
        found = None if sign.startswith("^") else _at(data, path)
        word = str(found).lower() if isinstance(found, bool) else str(found)
        if isinstance(data, str) and sign.startswith("^") and data.startswith(sign[1:]):
            return True
        if found is not None and (word == wanted if equals else bool(found)):
            return True
    return False


def data_of(result: Json) -> Any:
    """Return a result's structured content, or else its texts, with JSON parsed.

    A lone `result`, in which some servers wrap values that are no objects, is unwrapped; several
    texts are a list.
    """
    structured = result.get("structuredContent")
    if isinstance(structured, dict):
        return _decoded(structured["result"] if [*structured] == ["result"] else structured)
    data = [_decoded(one) for one in texts_of(result)]
    return data[0] if len(data) == 1 else data


def texts_of(result: Json) -> list[str]:
    """Return the texts in a call's result."""
    content = result.get("content")
    items = content if isinstance(content, list) else []
    texts = (one.get("text") for one in items if isinstance(one, dict))
    return [one for one in texts if isinstance(one, str)]


def tools_of(reply: Json) -> dict[str, Json]:
    """Return the tools of a server's list by their names."""
    tools = reply.get("tools")
    return {
        one["name"]: one
        for one in (tools if isinstance(tools, list) else ())
        if isinstance(one, dict) and isinstance(one.get("name"), str)
    }


def read_only_hint(tool: Json) -> bool | None:
    """Return the server's word on whether a tool only reads; None: it says nothing."""
    notes = tool.get("annotations")
    notes = notes if isinstance(notes, dict) else {}
    hint = notes.get("readOnlyHint", False if notes.get("destructiveHint") is True else None)
    return hint if isinstance(hint, bool) else None


def bundled_mappings() -> list[str]:
    """Return the names of the mappings that come with memtui."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_mapping(name_or_path: str) -> Mapping:
    """Return a mapping of memtui by its name, or one of a file by its path.

    Raises:
        Invalid: it is not there, does not fit, or would start or reach a server.
    """
    is_file = "/" in name_or_path or name_or_path.endswith(".toml")
    if not is_file and name_or_path not in bundled_mappings():
        raise Invalid(unknown("mapping", name_or_path, bundled_mappings()))
    path = Path(name_or_path).expanduser() if is_file else _FOLDER / f"{name_or_path}.toml"
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_FILE + 1).decode("utf-8")
        document = tomllib.loads(text)
    except (OSError, ValueError, RuntimeError, RecursionError) as error:
        why = getattr(error, "strerror", None) or "it is not TOML"
        raise Invalid(f"The mapping {path} cannot be read ({why}).") from error
    if len(text) > _MOST_FILE:
        raise Invalid(f"The mapping {path} is larger than {_MOST_FILE:,} characters.")
    if odd := sorted(_STARTS & document.keys()):
        raise Invalid(
            f"The mapping {path} has the setting {odd[0]}; a mapping neither starts nor reaches a "
            "server, so remove that line and give the command or url to the binding."
        )
    try:
        return Mapping.model_validate({**document, "name": path.stem})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise Invalid(f"The mapping {path} does not fit at {field}: {misfit(first)}.") from error


def _placeholder(template: object) -> str | None:
    found = _PLACEHOLDER.fullmatch(template) if isinstance(template, str) else None
    return found and found[1]


def _placeholders(template: object) -> Iterator[str]:
    if isinstance(template, dict | list):
        for one in template.values() if isinstance(template, dict) else template:
            yield from _placeholders(one)
    elif name := _placeholder(template):
        yield name


def _filled(template: Any, values: Json) -> Any:
    """Return a template with values; None: all of its values are missing."""
    if isinstance(template, dict):
        filled = {name: _filled(one, values) for name, one in template.items()}
        there = {name: one for name, one in filled.items() if one is not None}
        there = {**there.pop(".", {}), **there}
        return there if there or not template else None
    if isinstance(template, list):
        items = [one for each in template if (one := _filled(each, values)) is not None]
        return items if items or not template else None
    name = _placeholder(template)
    return template if name is None else values.get(name)


def _matched(template: Any, actual: Any) -> list[Json]:
    """Return the values of a template's placeholders in actual arguments, one for each item."""
    if (name := _placeholder(template)) is not None:
        return [{name: actual}]
    found: list[Json] = [{}]
    if isinstance(template, dict) and isinstance(actual, dict):
        for key, inner in template.items():
            if key in actual:
                items = _matched(inner, actual[key])
                found = [one | each for one in found for each in items][:MOST_NAMED]
    elif isinstance(template, list) and template and isinstance(actual, list):
        found = [one for item in actual[:MOST_NAMED] for one in _matched(template[0], item)]
    return found[:MOST_NAMED]


def _beyond(template: Any, actual: Any) -> Iterator[str]:
    """Yield the texts in actual arguments that a template neither has nor has a placeholder for."""
    if _placeholder(template) is not None:
        return
    if isinstance(actual, dict):
        known = template if isinstance(template, dict) else {}
        for key, inner in actual.items():
            yield from () if key in known else (key,)
            yield from _beyond(known.get(key), inner)
    elif isinstance(actual, list):
        items = template if isinstance(template, list) else []
        for at, inner in enumerate(actual):
            yield from _beyond(items[0] if items and at < MOST_NAMED else None, inner)
    elif isinstance(actual, str) and actual != template:
        yield actual


def _rows(value: Any, steps: list[str], around: Json) -> Iterator[Json]:
    """Yield the rows at a path, each with the fields of the rows around it."""
    value = _decoded(value) if steps else value
    if not steps:
        if value not in (None, ""):
            yield {**around, **(value if isinstance(value, dict) else {".": value})}
        return
    name = steps[0].removesuffix("[]")
    inner = value if not name else value.get(name) if isinstance(value, dict) else None
    if not steps[0].endswith("[]"):
        yield from _rows(inner, steps[1:], around)
        return
    inner = _decoded(inner)
    for item in inner if isinstance(inner, list) else [inner] if isinstance(inner, dict) else []:
        own = item if steps[1:] and isinstance(item, dict) else {}
        yield from _rows(item, steps[1:], {**around, **own})


def _at(row: Any, path: str) -> Any:
    """Return the value at a path; None: there is none."""
    if path == ".":
        return row.get(".") if isinstance(row, dict) else row
    for name in path.split("."):
        row = _decoded(row)
        row = row.get(name) if isinstance(row, dict) else None
    return row


def _decoded(value: Any) -> Any:
    """Return the JSON in a text; else the value itself."""
    if isinstance(value, str) and value.lstrip()[:1] in {"{", "["}:
        try:
            return lenient_json(value)
        except (ValueError, RecursionError):
            return value
    return value


def _word(value: object) -> str:
    """Return an id or a name as text; empty: it is neither text nor a whole number."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if isinstance(value, str) else str(value) if is_number else ""


def _text(value: object) -> str:
    lines = value if isinstance(value, list) else [value]
    return "\n".join(one for one in lines if isinstance(one, str))
