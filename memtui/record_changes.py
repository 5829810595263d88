"""Descriptions of changed fields other than the text, shared by every channel and screen.

Foreign strings are returned unescaped.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo
from typing import Any

from memtui.contract import (
    CorrectRequest,
    ForgetRequest,
    Record,
    RecordHandle,
    WriteMode,
    WriteRequest,
)

_NAMES = {
    "title": "title", "summary": "summary", "kind": "kind", "topic": "topic", "tags": "tags",
    "pinned": "pinned", "expires_at": "expires",
}  # fmt: skip
"""Fields that a change can set, with their display names."""
_READ = ("title", "summary", "topic", "tags", "metadata")
"""Fields other than the text whose sentences a model reads."""
_OF_FACTS = frozenset({("metadata", name) for name in ("entry_type", "key", "value")})
"""Metadata derived from a fact's text (seed 002) wherever `entry_type` is present."""
_ABSENT = {"pinned": "no", "expires": "never"}
"""Words for an unset field; any other unset field is `none`."""
_UNNAMED = RecordHandle(provider_key="none", provider_record_id="none")
_Fields = dict[tuple[str, str], str]
"""Values by display name and path; the path is empty except for metadata members."""


def changed_fields(
    before: Record | None, after: Record | None, zone: tzinfo | None = None
) -> list[tuple[str, str]]:
    """Return each field other than the text that a change changes: `("pinned", "no → yes")`.

    For a new or a removed record, return each field that it has: `("pinned", "yes")`.

    Args:
        before: The record before; None: it did not exist.
        after: The record after; None: it no longer exists.
        zone: The zone that times are shown in; None: the system's.
    """
    was, now = (_fields(one, zone) if one else {} for one in (before, after))
    if before is None or after is None:
        return [_said(*one) for one in (was or now).items() if one != (("kind", ""), "note")]
    made = _OF_FACTS if ("metadata", "entry_type") in {*was, *now} else frozenset()
    return [
        _said(name, f"{_value(name, was)} → {_value(name, now)}")
        for name in dict.fromkeys((*was, *now))
        if was.get(name) != now.get(name) and name not in made
    ]


def asked_fields(
    request: WriteRequest | CorrectRequest | ForgetRequest, zone: tzinfo | None = None
) -> list[tuple[str, str]]:
    """Return each field other than the text that a request sets."""
    if isinstance(request, ForgetRequest):
        return []
    if isinstance(request, WriteRequest):
        record = Record.like(request, handle=_UNNAMED, text=request.content)
        return [*changed_fields(None, record, zone), *written_with(request, zone)]
    now = _fields(corrected(Record(handle=_UNNAMED, text="", scope=request.scope), request), zone)
    names = [(_NAMES[name], "") for name in _NAMES if getattr(request, name, None) is not None]
    if request.never_expires:
        names.append(("expires", ""))
    return [*(_said(name, _value(name, now)) for name in names), *written_with(request, zone)]


def written_with(
    request: WriteRequest | CorrectRequest, zone: tzinfo | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the fields that a request sets and a correction does not change, such as author."""
    if request.created_by:
        yield "author", request.created_by
    if isinstance(request, CorrectRequest):
        return
    for name, moment in (
        ("made", request.created_at),
        ("holds from", request.valid_from),
        ("holds to", request.valid_to),
    ):
        if moment is not None:
            yield name, _moment(moment, zone)
    if request.record_id:
        in_place = "in the place of " * (request.mode is WriteMode.UPSERT)
        yield "stored as", f"{in_place}{request.record_id}"
    if request.embedding is not None:
        yield "vector", f"{len(request.embedding):,} numbers of its own, by which it is found"


def corrected(record: Record, request: CorrectRequest) -> Record:
    """Return a record as a correction would change it."""
    fields = ("text", "pinned", "summary", "topic", "tags", "expires_at")
    return record.model_copy(update=request.changes(*fields))


def texts_beside(of: object, names: Iterable[str] = _READ) -> list[str]:
    """Return the texts that a model reads in the other fields of a record or request.

    Named metadata values are returned as `name: text`.
    """
    return [*_strings({name: getattr(of, name, None) for name in names})]


def names_beside(of: object) -> list[str]:
    """Return the names that a model reads beside the texts of a record or request.

    These are its kind, id and author, and the names of its source.
    """
    handle, source = getattr(of, "handle", None), getattr(of, "source", None)
    names = [getattr(of, name, None) for name in ("kind", "record_id", "created_by")]
    names.append(handle.provider_record_id if handle else None)
    names.extend(source.model_dump(mode="json").values() if source else ())
    return [one for one in names if one]


def _strings(value: Any, name: str = "") -> Iterator[str]:
    """Yield the texts in a piece of JSON; named metadata values as `name: text`."""
    if isinstance(value, dict):
        key = value.get("key") if name else None
        for inner, one in value.items():
            path = inner if name or inner == "metadata" else ""
            yield from _strings(one, str(key) if key and inner == "value" else path)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _strings(one, name)
    elif value is not None:
        yield f"{name}: {value}" if name else str(value)


def _fields(record: Record, zone: tzinfo | None) -> _Fields:
    values = {name: getattr(record, name) for name in _NAMES}
    values["tags"], values["pinned"] = ", ".join(record.tags), "yes" if record.pinned else ""
    values["expires_at"] = _moment(record.expires_at, zone) if record.expires_at else ""
    fields = {(_NAMES[name], ""): value for name, value in values.items() if value}
    members = _leaves(record.metadata) if record.metadata else ()
    return fields | {("metadata", path): value for path, value in members}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and value of every leaf in a piece of JSON."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, str):
        yield path, value
    else:
        yield path, json.dumps(value, ensure_ascii=False)


def _said(name: tuple[str, str], value: str) -> tuple[str, str]:
    field, path = name
    return field, f"{path}: {value}" if path else value


def _value(name: tuple[str, str], fields: _Fields) -> str:
    return fields.get(name) or _ABSENT.get(name[0], "none")


def _moment(moment: datetime, zone: tzinfo | None) -> str:
    return moment.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %Z").rstrip()
