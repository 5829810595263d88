"""What values become in a database, the same in SQLite and in PostgreSQL, and what they were."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PICO = Decimal(10) ** 12
MARK = "\ue000"
"""Begins the escape of a character that no database holds: four hexadecimal digits follow it."""
_UNSTORABLE = re.compile(f"[\x00\ud800-\udfff{MARK}]")
_MARKED = re.compile(f"{MARK}([0-9a-f]{{4}})")
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ASCII_JSON = json.JSONEncoder(separators=(",", ":"))


def stored_moment(value: datetime | None) -> int | None:
    """Return a moment in microseconds since 1970."""
    return None if value is None else (value - _EPOCH) // _MICROSECOND


def loaded_moment(value: Any) -> datetime | None:
    """Return the moment that was stored, in UTC."""
    return None if value is None else _EPOCH + value * _MICROSECOND


def stored_dollars(value: Decimal | None) -> int | None:
    """Return US dollars in units of 1e-12 dollars."""
    return None if value is None else int(value * _PICO)


def loaded_dollars(value: Any) -> Decimal | None:
    """Return the US dollars that were stored."""
    return None if value is None else Decimal(value).scaleb(-12)


def stored_text(value: str | None) -> str | None:
    """Return a text without what the databases cannot hold (NUL, lone surrogates), escaped."""
    if value is None:
        return None
    plain = value if type(value) is str else str(value)
    if plain.isascii() and "\x00" not in plain:
        return plain
    return _UNSTORABLE.sub(lambda match: f"{MARK}{ord(match[0]):04x}", plain)


def loaded_text(value: Any) -> str | None:
    """Return the text that was stored."""
    if value is None or MARK not in value:
        return None if value is None else str(value)
    return _MARKED.sub(lambda match: chr(int(match[1], 16)), value)


def stored_json(value: object) -> str:
    """Return the text of a JSON column."""
    text = _JSON.encode(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return _ASCII_JSON.encode(value)
    return text


def stored_optional_json(value: object) -> str | None:
    """Return the text of a JSON column in which None is NULL."""
    return None if value is None else stored_json(value)


def loaded_json(value: Any) -> Any:
    """Return what a JSON column holds."""
    return None if value is None else json.loads(value)


def loaded_flag(value: Any) -> bool | None:
    """Return what a Boolean column holds; SQLite has numbers for it."""
    return None if value is None else bool(value)


def unsigned_zero(value: float | None) -> float | None:
    """Return a number as every database keeps it: SQLite knows no -0.0."""
    return None if value is None else value + 0.0


Convert = Callable[[Any], Any]
CONVERSIONS: Mapping[str, tuple[Convert | None, Convert | None]] = {
    "text": (stored_text, loaded_text),
    "moment": (stored_moment, loaded_moment),
    "dollars": (stored_dollars, loaded_dollars),
    "json": (stored_json, loaded_json),
    "optional_json": (stored_optional_json, loaded_json),
    "flag": (None, loaded_flag),
    "plain": (None, None),
}
"""What a kind of column does to a value on its way in and out; None leaves it as it is."""


def quoted(text: object) -> str:
    """Return a text as an SQL literal, of DuckDB, SQLite and PostgreSQL alike."""
    return "'" + str(text).replace("'", "''") + "'"
