"""Prepared statements: SQLite's SQL is generated ahead, PostgreSQL's on demand."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from memtui.store.database import CONVERSIONS, Compiled, Convert, DatabaseConnection

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RowT = TypeVar("RowT", bound="DataclassInstance")
_ROWS_AT_ONCE = 100


class Taken(Exception):
    """A row with this key exists."""


class Prepared:
    """A statement of `memtui.store.statements`, which runs in the transaction of its connection.

    Importing SQLAlchemy takes longer than a command may take, and preparing a statement longer than
    running it in SQLite. So SQLite's SQL is generated into `memtui.store.compiled`; PostgreSQL's is
    made when it is first needed.
    """

    def __init__(
        self,
        name: str,
        sql: str,
        *,
        binds: str = "",
        results: str = "",
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        """Take SQLite's SQL; `binds` and `results` name the conversions (`key=text`, `moment`)."""
        self._name = name
        self._sqlite = sql, binds, results, constants or {}
        self._compiled: dict[str, Compiled] = {}

    def rows(self, connection: DatabaseConnection, /, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT."""
        return list(self.each(connection, **values))

    def each(
        self, connection: DatabaseConnection, /, **values: Any
    ) -> Generator[tuple[Any, ...], None, None]:
        """Yield the rows of a SELECT, read in batches as they are consumed."""
        compiled = self._in(connection)
        cursor = connection.driver.cursor()
        cursor.execute(compiled.sql, compiled.parameters(values))
        try:
            while found := cursor.fetchmany(_ROWS_AT_ONCE):
                for row in found:
                    yield tuple(
                        value if convert is None else convert(value)
                        for convert, value in zip(compiled.results, row, strict=True)
                    )
        finally:
            cursor.close()

    def found(
        self, connection: DatabaseConnection, kind: type[RowT], /, **values: Any
    ) -> list[RowT]:
        """Return the rows of a SELECT of a table, as instances of `kind`."""
        names = [column.name for column in fields(kind)]
        rows = self.rows(connection, **values)
        return [kind(**dict(zip(names, row, strict=True))) for row in rows]

    def run(self, connection: DatabaseConnection, /, **values: Any) -> int:
        """Run a change; returns how many rows it changed.

        Raises:
            Taken: a row with the new row's key exists.
        """
        compiled = self._in(connection)
        cursor = connection.driver.cursor()
        try:
            cursor.execute(compiled.sql, compiled.parameters(values))
        except Exception as error:
            if any(kind.__name__ == "IntegrityError" for kind in type(error).__mro__):
                raise Taken from error
            raise
        changed = int(cursor.rowcount)
        cursor.close()
        return changed

    def stored(self, row: Iterable[Any]) -> tuple[Any, ...]:
        """Return a row for `insert`: stored values in the order of the columns."""
        return tuple(
            [
                value if value is None or convert is None else convert(value)
                for convert, value in zip(self._stores, row, strict=True)
            ]
        )

    @cached_property
    def _stores(self) -> list[Convert | None]:
        return [convert for _, convert in self._in_sqlite().binds]

    def insert(self, connection: DatabaseConnection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows of stored values, in the order of the table's columns."""
        compiled = self._in(connection)
        if not compiled.positional:
            rows = [compiled.named(row) for row in rows]
        if rows:
            cursor = connection.driver.cursor()
            cursor.executemany(compiled.sql, rows)
            cursor.close()

    def _in(self, connection: DatabaseConnection) -> Compiled:
        known = self._compiled.get(connection.dialect)
        if known is None:
            known = (
                self._in_sqlite() if connection.dialect == "sqlite" else self._in_other(connection)
            )
            self._compiled[connection.dialect] = known
        return known

    def _in_sqlite(self) -> Compiled:
        sql, binds, results, constants = self._sqlite
        named = (bind.split("=") for bind in binds.split())
        return Compiled(
            sql,
            tuple((name, CONVERSIONS[kind][0]) for name, kind in named),
            tuple(CONVERSIONS[kind][1] for kind in results.split()),
            constants,
        )

    def _in_other(self, connection: DatabaseConnection) -> Compiled:
        from memtui.store import statements

        return statements.compiled(getattr(statements, self._name), connection.alchemy.dialect)
