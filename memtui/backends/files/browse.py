"""Choose, sort and page loaded records."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from memtui.contract import BrowsePage, BrowseRequest, Filter, Invalid, Record, Scope
from memtui.fuzzy import finds

_SORTS: dict[str, Callable[[Record], str | int | None]] = {
    "created_at": lambda record: _moment(record.created_at),
    "updated_at": lambda record: _moment(record.updated_at or record.created_at),
    "title": lambda record: (
        None if record.title is None else record.title[:_TITLE_LIMIT].casefold()
    ),
    "size": lambda record: len(record.text),
    "kind": lambda record: record.kind,
    "topic": lambda record: record.topic,
}
_SCOPE_FIELDS = ("agent_id", "project_id", "subject_id")

_TITLE_LIMIT = 200
"""Characters of a title that sorting and the cursor look at."""

_Key = tuple[Any, int]
"""A record's sort value (None: it has none) and its place in the files."""


def in_scope(record: Record, scope: Scope) -> bool:
    """Whether `scope` sees the record."""
    return sees(scope, record.scope)


def sees(scope: Scope, other: Scope) -> bool:
    """Whether `scope` sees what is in another one: no field that both set differs."""
    if other.company_id != scope.company_id:
        return False
    for field in _SCOPE_FIELDS:
        held, asked = getattr(other, field), getattr(scope, field)
        if held is not None and asked is not None and held != asked:
            return False
    return True


def matches(record: Record, chosen: Filter) -> bool:
    """Whether the record passes every field of the filter that records honour."""
    source = record.source
    exact = (
        (chosen.agent_id, record.scope.agent_id),
        (chosen.project_id, record.scope.project_id),
        (chosen.subject_id, record.scope.subject_id),
        (chosen.issue_id, source.issue_id if source else None),
        (chosen.run_id, source.run_id if source else None),
        (chosen.source_kind, source.kind if source else None),
        (chosen.topic, record.topic),
        (chosen.kind, record.kind),
    )
    if any(asked is not None and asked != held for asked, held in exact):
        return False
    if chosen.tag is not None and chosen.tag not in record.tags:
        return False
    return _in_time(record.created_at, chosen) and _has_words(record, chosen)


def page(records: Sequence[Record], request: BrowseRequest) -> BrowsePage:
    """Return one page of `records`, which are all that pass the scope and the filter.

    Records of one sort value keep the files' order, and those without one come last. The cursor
    holds the last record's sort value, place and id, so records that come or go between two pages
    neither repeat nor hide others.

    Raises:
        Invalid: the sort field is not supported, or the cursor is not of this sort.
    """
    name = request.sort.removeprefix("-")
    descending = request.sort.startswith("-")
    if name not in _SORTS:
        raise Invalid(f"Cannot sort by {name}; the fields are {', '.join(_SORTS)}.")
    value = _SORTS[name]
    keyed: list[tuple[_Key, Record]] = [
        ((value(record), place), record) for place, record in enumerate(records)
    ]
    present = sorted(
        (pair for pair in keyed if pair[0][0] is not None),
        key=lambda pair: pair[0][0],
        reverse=descending,
    )
    ordered = [*present, *(pair for pair in keyed if pair[0][0] is None)]
    start = 0
    if request.cursor is not None:
        last, record_id = _read_cursor(request.cursor, request.sort)
        place = next((n for n, record in enumerate(records) if _id(record) == record_id), last[1])
        last = last[0], place
        start = sum(not _is_after(key, last, descending=descending) for key, _ in ordered)
    chosen = ordered[start : start + request.limit]
    more = start + len(chosen) < len(ordered)
    return BrowsePage(
        records=tuple(record for _, record in chosen),
        next_cursor=_write_cursor(*chosen[-1], request.sort) if more else None,
        total=len(records),
    )


def _is_after(key: _Key, last: _Key, *, descending: bool) -> bool:
    if key[0] == last[0]:
        return key[1] > last[1]
    if key[0] is None or last[0] is None:
        return key[0] is None
    return bool(key[0] < last[0] if descending else key[0] > last[0])


def _id(record: Record) -> str:
    return record.handle.provider_record_id


def _write_cursor(key: _Key, record: Record, sort: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([sort, *key, _id(record)]).encode()).decode()


def _read_cursor(cursor: str, sort: str) -> tuple[_Key, str]:
    try:
        written, value, place, record_id = json.loads(base64.urlsafe_b64decode(cursor))
    except (ValueError, TypeError) as error:
        raise Invalid("The cursor is not one of this list; start from the first page.") from error
    number = sort.removeprefix("-") == "size"
    fits = value is None or (isinstance(value, int) if number else isinstance(value, str))
    if written != sort or not fits or type(place) is not int or not isinstance(record_id, str):
        raise Invalid("The cursor belongs to another sort; start from the first page.")
    return (value, place), record_id


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat(timespec="microseconds")


def _in_time(created_at: datetime | None, chosen: Filter) -> bool:
    if chosen.since is None and chosen.until is None:
        return True
    if created_at is None:
        return False
    return (chosen.since is None or created_at >= chosen.since) and (
        chosen.until is None or created_at < chosen.until
    )


def _has_words(record: Record, chosen: Filter) -> bool:
    if not chosen.text and not chosen.fuzzy:
        return True
    held = "\n".join((record.title or "", record.text, record.summary or "")).casefold()
    words = (chosen.text or "").casefold().split()
    return all(word in held for word in words) and all(finds(word, held) for word in chosen.fuzzy)
