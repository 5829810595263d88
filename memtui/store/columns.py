"""Column types that hold the same value in SQLite and in PostgreSQL."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, Dialect, Text
from sqlalchemy.types import TypeDecorator

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PICO = Decimal(10) ** 12
_MARK = "\ue000"
_UNSTORABLE = re.compile(f"[\x00\ud800-\udfff{_MARK}]")
_MARKED = re.compile(f"{_MARK}([0-9a-f]{{4}})")


class UtcMicroseconds(TypeDecorator[datetime]):
    """A moment as microseconds since 1970 in UTC: sorts, indexes and exports as an integer."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Return the integer to store."""
        del dialect
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Return the moment that was stored."""
        del dialect
        return None if value is None else _EPOCH + value * _MICROSECOND


class PicoDollars(TypeDecorator[Decimal]):
    """US dollars as a whole number of 1e-12 dollars: exact, and summed exactly by any database."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> int | None:
        """Return the integer to store."""
        del dialect
        return None if value is None else int(value * _PICO)

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:
        """Return the dollars that were stored."""
        del dialect
        return None if value is None else Decimal(value).scaleb(-12)


class ForeignText(TypeDecorator[str]):
    """Any Python string. What the databases cannot hold (NUL, lone surrogates) is kept escaped."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the text to store."""
        del dialect
        if value is None:
            return None
        plain = str(value)
        if plain.isascii() and "\x00" not in plain:
            return plain
        return _UNSTORABLE.sub(lambda match: f"{_MARK}{ord(match[0]):04x}", plain)

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """Return the text that was stored."""
        del dialect
        if value is None or _MARK not in value:
            return None if value is None else str(value)
        return _MARKED.sub(lambda match: chr(int(match[1], 16)), value)
