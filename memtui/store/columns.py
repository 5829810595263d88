"""Column types that hold the same value in SQLite and in PostgreSQL."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

from sqlalchemy import BigInteger, Dialect, Text
from sqlalchemy.types import TypeDecorator

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PICO = Decimal(10) ** 12
MARK = "\ue000"
_UNSTORABLE = re.compile(f"[\x00\ud800-\udfff{MARK}]")
_MARKED = re.compile(f"{MARK}([0-9a-f]{{4}})")
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ASCII_JSON = json.JSONEncoder(separators=(",", ":"))


class Portable(TypeDecorator[T]):
    """A type that is converted in the same way for every database, by two plain functions."""

    @staticmethod
    def stored(value: Any) -> Any:
        """Return what to store."""
        raise NotImplementedError

    @staticmethod
    def loaded(value: Any) -> Any:
        """Return what was stored."""
        raise NotImplementedError

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """Return what to store."""
        del dialect
        return self.stored(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Return what was stored."""
        del dialect
        return self.loaded(value)


class UtcMicroseconds(Portable[datetime]):
    """A moment as microseconds since 1970 in UTC: sorts, indexes and exports as an integer."""

    impl = BigInteger
    cache_ok = True

    @staticmethod
    def stored(value: datetime | None) -> int | None:
        """Return the integer to store."""
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    @staticmethod
    def loaded(value: Any) -> datetime | None:
        """Return the moment that was stored."""
        return None if value is None else _EPOCH + value * _MICROSECOND


class PicoDollars(Portable[Decimal]):
    """US dollars as a whole number of 1e-12 dollars: exact, and summed exactly by any database."""

    impl = BigInteger
    cache_ok = True

    @staticmethod
    def stored(value: Decimal | None) -> int | None:
        """Return the integer to store."""
        return None if value is None else int(value * _PICO)

    @staticmethod
    def loaded(value: Any) -> Decimal | None:
        """Return the dollars that were stored."""
        return None if value is None else Decimal(value).scaleb(-12)


class ForeignText(Portable[str]):
    """Any Python string. What the databases cannot hold (NUL, lone surrogates) is kept escaped."""

    impl = Text
    cache_ok = True

    @staticmethod
    def stored(value: str | None) -> str | None:
        """Return the text to store."""
        if value is None:
            return None
        plain = value if type(value) is str else str(value)
        if plain.isascii() and "\x00" not in plain:
            return plain
        return _UNSTORABLE.sub(lambda match: f"{MARK}{ord(match[0]):04x}", plain)

    @staticmethod
    def loaded(value: Any) -> str | None:
        """Return the text that was stored."""
        if value is None or MARK not in value:
            return None if value is None else str(value)
        return _MARKED.sub(lambda match: chr(int(match[1], 16)), value)


def unsigned_zero(value: float | None) -> float | None:
    """Return a number as every database keeps it: SQLite knows no -0.0."""
    return None if value is None else value + 0.0


def stored_json(value: object) -> str:
    """Return the text of a JSON column."""
    text = _JSON.encode(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return _ASCII_JSON.encode(value)
    return text
