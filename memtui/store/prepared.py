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
        if self.positional:
            return [
                values[name] if convert is None else convert(values[name])
                for name, convert in self.binds
            ]
        return {
            name: values[name] if convert is None else convert(values[name])
            for name, convert in self.binds
        }


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

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a change once for each row of values."""
        if not rows:
            return
        compiled = self._in(connection.dialect)
        cursor = connection.connection.cursor()
        if len(rows) == 1:
            cursor.execute(compiled.sql, compiled.parameters(rows[0]))
        else:
            cursor.executemany(compiled.sql, [compiled.parameters(values) for values in rows])
        cursor.close()

    def _in(self, dialect: Dialect) -> _Compiled:
        known = self._compiled.get(dialect.name)
        if known is None:
            known = self._compiled[dialect.name] = _compile(self._statement, dialect)
        return known


def _compile(statement: Any, dialect: Dialect) -> _Compiled:
    compiled = statement.compile(dialect=dialect)
    names = compiled.positiontup if compiled.positional else compiled.bind_names.values()
    parameters = {name: compiled.binds[name] for name in names}
    return _Compiled(
        sql=str(compiled),
        positional=compiled.positional,
        binds=tuple(
            (name, _impl(parameters[name], dialect).bind_processor(dialect)) for name in names
        ),
        constants={name: bind.value for name, bind in parameters.items() if not bind.required},
        results=tuple(
            _impl(column, dialect).result_processor(dialect, None)
            for column in getattr(statement, "selected_columns", ())
        ),
    )


def _impl(element: Any, dialect: Dialect) -> TypeEngine[Any]:
    found: TypeEngine[Any] = element.type.dialect_impl(dialect)
    return found
