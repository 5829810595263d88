"""Pages over everything that is stored, with a cursor that survives inserts."""

# ruff: noqa: S608  # the SQL is put together from constants, values are bound
from __future__ import annotations

import base64
import binascii
import json
import sqlite3
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memtui.contract import BrowseRequest, Invalid

from .conditions import add_functions, holding, narrow, owned_by
from .entries import Entry
from .index import entry_of

_SORTS = {
    "created_at": "COALESCE(created, updated, 0)",
    "updated_at": "COALESCE(updated, 0)",
    "title": "lower(substr(COALESCE(title, text), 1, 100))",
    "size": "size",
    "kind": "kind",
    "topic": "COALESCE(topic, '')",
}


@dataclass(frozen=True, slots=True)
class Page:
    """One page of entries and the exact number of all that match."""

    entries: list[Entry]
    next_cursor: str | None
    total: int


def browse(connection: sqlite3.Connection, request: BrowseRequest, now: datetime) -> Page:
    """Return one page. Raises `Invalid` for an unknown sort or a cursor that is not ours."""
    add_functions(connection)
    key, is_descending = request.sort.removeprefix("-"), request.sort.startswith("-")
    if key not in _SORTS:
        raise Invalid(f"The vault cannot sort by {key!r}; choose one of {', '.join(_SORTS)}.")
    where = holding(now, None, expired=request.expired)
    narrow(where, request.scope, request.filter)
    owned_by(where, request.owners)
    total = connection.execute(
        f"SELECT count(*) FROM records WHERE {where.sql}", where.values
    ).fetchone()[0]
    order, compare = ("DESC", "<") if is_descending else ("ASC", ">")
    if request.cursor is not None:
        where.add(f"({_SORTS[key]}, id) {compare} (?, ?)", *_read(request.cursor, request.sort))
    rows = connection.execute(
        f"SELECT *, {_SORTS[key]} AS place FROM records WHERE {where.sql}"
        f" ORDER BY place {order}, id {order} LIMIT ?",
        [*where.values, request.limit + 1],
    ).fetchall()
    shown = rows[: request.limit]
    more = len(rows) > request.limit
    cursor = _write(request.sort, shown[-1]["place"], shown[-1]["id"]) if more else None
    return Page([entry_of(row) for row in shown], cursor, total)


def _write(sort: str, place: Any, record_id: str) -> str:
    data = json.dumps([sort, place, record_id]).encode()
    return base64.urlsafe_b64encode(data).decode()


def _read(cursor: str, sort: str) -> tuple[Any, str]:
    try:
        wrote, place, record_id = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, TypeError, binascii.Error):
        wrote = place = record_id = None
    if wrote != sort or not isinstance(record_id, str) or not isinstance(place, (int, str)):
        raise Invalid("This cursor does not belong to this sort order; begin with the first page.")
    return place, record_id
