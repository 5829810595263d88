"""A connection to the control plane's database, and statements that run on its driver."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from memtui.store.values import CONVERSIONS, Convert

if TYPE_CHECKING:
    import sqlalchemy
    from _typeshed import DataclassInstance

RowT = TypeVar("RowT", bound="DataclassInstance")

_ROWS_AT_ONCE = 100


class Driver(sqlite3.Connection):
    """SQLite's connection, which SQLAlchemy shares: only its owner ends a transaction or closes."""

    def commit(self) -> None:
        """Leave it to the owner."""

    def rollback(self) -> None:
        """Leave it to the owner."""

    def close(self) -> None:
        """Leave it to the owner."""

    def end(self) -> None:
        """Close it."""
        super().close()


class Connection:
    """A connection with an open transaction.

    Prepared statements run on the database's driver. `execute` takes any statement of SQLAlchemy,
    which is not imported before: most commands need nothing of it.
    """

    def __init__(self, dialect: str, driver: Any, alchemy: Callable[[], Any]) -> None:
        self.dialect = dialect
        """`sqlite` or `postgresql`."""
        self.driver = driver
        self._open_alchemy = alchemy
        self._alchemy: sqlalchemy.Connection | None = None

    @property
    def alchemy(self) -> sqlalchemy.Connection:
        """The same connection as SQLAlchemy's."""
        if self._alchemy is None:
            self._alchemy = self._open_alchemy()
        return self._alchemy

    def execute(
        self, statement: sqlalchemy.Executable, parameters: Any = None
    ) -> sqlalchemy.CursorResult[*tuple[Any, ...]]:
        """Run a statement of SQLAlchemy."""
        return self.alchemy.execute(statement, parameters)

    def exec_driver_sql(self, sql: str) -> Any:
        """Run plain SQL and return the driver's cursor."""
        cursor = self.driver.cursor()
        cursor.execute(sql)
        return cursor

    def forget_transaction(self) -> None:
        """Let SQLAlchemy know that the transaction has ended."""
        if self._alchemy is not None:
            self._alchemy.rollback()


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement in one database's dialect."""

    sql: str
    binds: tuple[tuple[str, Convert | None], ...] = ()
    """The name and the conversion of each parameter, in the SQL's order."""
    results: tuple[Convert | None, ...] = ()
    """The conversion of each column that it finds."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """The parameters whose value is part of the statement."""
    positional: bool = True

    def parameters(self, values: Mapping[str, Any]) -> Any:
        """Return what the driver takes."""
        values = {**self.constants, **values}
        return self.named(
            [
                values[name] if convert is None else convert(values[name])
                for name, convert in self.binds
            ]
        )

    def named(self, stored: Sequence[Any]) -> Any:
        """Return stored values in the SQL's order as the driver takes them."""
        if self.positional:
            return stored
        return {name: value for (name, _), value in zip(self.binds, stored, strict=True)}


class Taken(Exception):
    """A row with this key is there already."""


class Prepared:
    """A statement of `memtui.store.statements`, which runs in the transaction it is given.

    SQLAlchemy takes longer to be imported than a command may take, and longer to prepare a
    statement than SQLite to run it: SQLite's SQL stands in `memtui.store.compiled`, made from the
    statements. PostgreSQL's is made when it is first needed.
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

    def rows(self, connection: Connection, /, **values: Any) -> list[tuple[Any, ...]]:
        """Return what a SELECT finds."""
        return list(self.each(connection, **values))

    def each(
        self, connection: Connection, /, **values: Any
    ) -> Generator[tuple[Any, ...], None, None]:
        """Yield what a SELECT finds, read as it is asked for."""
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

    def found(self, connection: Connection, kind: type[RowT], /, **values: Any) -> list[RowT]:
        """Return what a SELECT of a table finds, as its rows."""
        names = [column.name for column in fields(kind)]
        rows = self.rows(connection, **values)
        return [kind(**dict(zip(names, row, strict=True))) for row in rows]

    def run(self, connection: Connection, /, **values: Any) -> int:
        """Run a change; returns how many rows it changed.

        Raises:
            Taken: the key of a new row is another's already.
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

    def run_all(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a change once for each row of values."""
        compiled = self._in(connection)
        _execute(connection, compiled.sql, [compiled.parameters(values) for values in rows])

    def insert(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows of stored values, in the order of the table's columns."""
        compiled = self._in(connection)
        _execute(connection, compiled.sql, [compiled.named(row) for row in rows])

    def _in(self, connection: Connection) -> Compiled:
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

    def _in_other(self, connection: Connection) -> Compiled:
        from memtui.store import statements

        return statements.compiled(getattr(statements, self._name), connection.alchemy.dialect)


def _execute(connection: Connection, sql: str, parameters: Sequence[Any]) -> None:
    if not parameters:
        return
    cursor = connection.driver.cursor()
    if len(parameters) == 1:
        cursor.execute(sql, parameters[0])
    else:
        cursor.executemany(sql, parameters)
    cursor.close()
