"""Column types that hold the same value in SQLite and in PostgreSQL."""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

from sqlalchemy import BigInteger, Dialect, Text
from sqlalchemy.types import TypeDecorator

from memtui.store import database

T = TypeVar("T")


class Portable(TypeDecorator[T]):
    """A type that two plain functions convert, in the same way for every database."""

    @staticmethod
    def stored(value: Any) -> Any:
        """Convert a value to the one in the database."""
        raise NotImplementedError

    @staticmethod
    def loaded(value: Any) -> Any:
        """Convert a value from the database back."""
        raise NotImplementedError

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """Return the value for the database."""
        del dialect
        return self.stored(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Return `loaded` itself: it runs for every value."""
        del dialect, coltype
        return self.loaded


class UtcMicroseconds(Portable[datetime]):
    """A moment as microseconds since 1970 in UTC: sorts, indexes and exports as an integer."""

    impl = BigInteger
    cache_ok = True
    stored = staticmethod(database.stored_moment)
    loaded = staticmethod(database.loaded_moment)


class PicoDollars(Portable[Decimal]):
    """US dollars as a whole number of 1e-12 dollars: exact, and summed exactly by any database."""

    impl = BigInteger
    cache_ok = True
    stored = staticmethod(database.stored_dollars)
    loaded = staticmethod(database.loaded_dollars)


class ForeignText(Portable[str]):
    """Any Python string; NUL and lone surrogates, which no database stores, are escaped."""

    impl = Text
    cache_ok = True
    stored = staticmethod(database.stored_text)
    loaded = staticmethod(database.loaded_text)
