"""Statements on the path of every operation: compiled once and run on the driver's own cursor.

SQLAlchemy takes longer to prepare one of them than the database takes to run it. The SQL and the
conversion of values are still SQLAlchemy's, so that both databases hold what its tables say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Dialect, Executable
from sqlalchemy.types import TypeEngine

from memtui.store.columns import Portable

_Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A statement in one dialect: its SQL, its parameters and its columns."""

    sql: str
    positional: bool
    binds: tuple[tuple[str, _Convert | None], ...]
    """The name and the conversion of each parameter, in the SQL's order."""
    constants: Mapping[str, Any]
    """The parameters whose value is part of the statement."""
    results: tuple[_Convert | None, ...]

    def parameters(self, values: Mapping[str, Any]) -> Any:
        """Return what the driver takes."""
        if self.constants:
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


class Prepared:
    """One statement. It runs in the transaction of the connection that it is given."""

    def __init__(self, statement: Executable) -> None:
        self._statement = statement
        self._compiled: dict[str, _Compiled] = {}

    def rows(self, connection: Connection, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Return what a SELECT finds."""
        compiled = self._in(connection.dialect)
        cursor = connection.connection.cursor()
        cursor.execute(compiled.sql, compiled.parameters(values))
        found = cursor.fetchall()
        cursor.close()
        return [
            tuple(
                value if convert is None else convert(value)
                for convert, value in zip(compiled.results, row, strict=True)
            )
            for row in found
        ]

    def run(self, connection: Connection, values: Mapping[str, Any]) -> int:
        """Run a change; returns how many rows it changed."""
        compiled = self._in(connection.dialect)
        cursor = connection.connection.cursor()
        cursor.execute(compiled.sql, compiled.parameters(values))
        changed = int(cursor.rowcount)
        cursor.close()
        return changed

    def run_all(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a change once for each row of values."""
        compiled = self._in(connection.dialect)
        _execute(connection, compiled.sql, [compiled.parameters(values) for values in rows])

    def insert(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows of stored values, in the order of the table's columns."""
        compiled = self._in(connection.dialect)
        _execute(connection, compiled.sql, [compiled.named(row) for row in rows])

    def _in(self, dialect: Dialect) -> _Compiled:
        known = self._compiled.get(dialect.name)
        if known is None:
            known = self._compiled[dialect.name] = _compile(self._statement, dialect)
        return known


def _execute(connection: Connection, sql: str, parameters: Sequence[Any]) -> None:
    if not parameters:
        return
    cursor = connection.connection.cursor()
    if len(parameters) == 1:
        cursor.execute(sql, parameters[0])
    else:
        cursor.executemany(sql, parameters)
    cursor.close()


def _compile(statement: Any, dialect: Dialect) -> _Compiled:
    compiled = statement.compile(dialect=dialect)
    names = compiled.positiontup if compiled.positional else compiled.bind_names.values()
    parameters = {name: compiled.binds[name] for name in names}
    return _Compiled(
        sql=str(compiled),
        positional=compiled.positional,
        binds=tuple((name, _to_database(parameters[name].type, dialect)) for name in names),
        constants={name: bind.value for name, bind in parameters.items() if not bind.required},
        results=tuple(
            _from_database(column.type, dialect)
            for column in getattr(statement, "selected_columns", ())
        ),
    )


def _to_database(kind: TypeEngine[Any], dialect: Dialect) -> _Convert | None:
    if isinstance(kind, Portable):
        return kind.stored
    return kind.dialect_impl(dialect).bind_processor(dialect)


def _from_database(kind: TypeEngine[Any], dialect: Dialect) -> _Convert | None:
    if isinstance(kind, Portable):
        return kind.loaded
    return kind.dialect_impl(dialect).result_processor(dialect, None)
