"""Sorting and paging of records in memory, with cursors."""

import base64
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from memtui.contract import BrowsePage, BrowseRequest, Invalid, Record

MOST_BACKLINKS = 500
"""Most links to one record that are returned; a hub of a large store has thousands."""


def write_cursor(sort: str, *place: str | int | None) -> str:
    """Return the cursor for a sort and the place where the next page begins."""
    return base64.urlsafe_b64encode(json.dumps([sort, *place]).encode()).decode()


def read_cursor(cursor: str, sort: str, *kinds: type | tuple[type, ...]) -> list[Any]:
    """Return the place in a cursor: one value of each of `kinds`.

    Raises:
        Invalid: it is not a cursor, or it belongs to another sort.
    """
    place: list[Any]
    try:
        written, *place = json.loads(base64.urlsafe_b64decode(cursor))
    except (ValueError, TypeError, RecursionError) as error:
        raise Invalid("The cursor is not one of this list; start from the first page.") from error
    fits = len(place) == len(kinds) and not any(isinstance(one, bool) for one in place)
    if written != sort or not fits or not all(map(isinstance, place, kinds)):
        raise Invalid("The cursor belongs to another sort; start from the first page.")
    return place


_TITLE_LIMIT = 200
"""Characters of a title that sorting and the cursor use."""
_NONE = type(None)


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat(timespec="microseconds")


_SORTS: dict[str, Callable[[Record], str | int | None]] = {
    "created_at": lambda record: _moment(record.created_at),
    "updated_at": lambda record: _moment(record.updated_at or record.created_at),
    "title": lambda record: record.title and record.title[:_TITLE_LIMIT].casefold(),
    "size": lambda record: len(record.text),
    "kind": lambda record: record.kind,
    "topic": lambda record: record.topic,
}


def _sort_of(sort: str) -> tuple[Callable[[Record], str | int | None], bool]:
    """Return the sort's value of a record as a function, and whether it descends."""
    name, is_down = sort.removeprefix("-"), sort.startswith("-")
    if name not in _SORTS:
        raise Invalid(f"Cannot sort by {name}; the fields are {', '.join(_SORTS)}.")
    return _SORTS[name], is_down


def first_of(records: Sequence[Record], sort: str) -> int:
    """Return the index of the record that comes first in this sort.

    Records without a sort value come last. Raises `Invalid` for an unknown sort.
    """
    value_of, is_down = _sort_of(sort)
    values: list[Any] = [value_of(one) for one in records]
    valued = [place for place, value in enumerate(values) if value is not None]
    if not valued:
        return 0
    return (max if is_down else min)(valued, key=lambda place: values[place])


_Key = tuple[Any, int]
"""A record's sort value (None: it has none) and its place in the list."""


def page(records: Sequence[Record], request: BrowseRequest) -> BrowsePage:
    """Return one page of `records`, which must already pass the scope and the filter.

    Records with equal sort values keep their order; those without one come last. The cursor has
    the last record's sort value, place and id, so records added or removed between two pages
    neither repeat nor hide others.

    Raises:
        Invalid: the sort field is not supported, or the cursor is not of this sort.
    """
    value_of, is_down = _sort_of(request.sort)
    keyed: list[tuple[_Key, Record]] = [
        ((value_of(record), place), record) for place, record in enumerate(records)
    ]
    present = [pair for pair in keyed if pair[0][0] is not None]
    present.sort(key=lambda pair: pair[0][0], reverse=is_down)
    ordered = [*present, *(pair for pair in keyed if pair[0][0] is None)]
    start = 0
    if request.cursor is not None:
        value = int if request.sort.endswith("size") else str
        last, place, last_id = read_cursor(request.cursor, request.sort, (value, _NONE), int, str)
        place = next((at for at, record in enumerate(records) if _id(record) == last_id), place)
        start = sum(not _is_after(key, (last, place), is_down=is_down) for key, _ in ordered)
    chosen = ordered[start : start + request.limit]
    cursor = None
    if start + len(chosen) < len(ordered):
        key, record = chosen[-1]
        cursor = write_cursor(request.sort, *key, _id(record))
    return BrowsePage(
        records=tuple(record for _, record in chosen), next_cursor=cursor, total=len(records)
    )


def _is_after(key: _Key, last: _Key, *, is_down: bool) -> bool:
    if key[0] == last[0]:
        return key[1] > last[1]
    if key[0] is None or last[0] is None:
        return key[0] is None
    return bool(key[0] < last[0] if is_down else key[0] > last[0])


def _id(record: Record) -> str:
    return record.handle.provider_record_id
