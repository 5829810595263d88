"""Rows of a table that another program owns, read whole and changed by column.

The table is never made or altered. A row keeps its storage: in SQLite each value has the type that
it is stored with, and in PostgreSQL each is the text that its type reads and writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Insert,
    Text,
    and_,
    cast,
    column,
    delete,
    exists,
    func,
    literal,
    not_,
    null,
    quoted_name,
    select,
    table,
    text,
    true,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import NullType, UserDefinedType

from memtui.contract import Conflict, Invalid, Json
from memtui.provider_kit.databases import OPENING, Undecodable, is_postgres

Row = Mapping[str, Any]
"""Values by column."""

_SQLITE_COLUMNS = text("SELECT name, type FROM pragma_table_xinfo(:name) WHERE hidden = 0")
_POSTGRES_COLUMNS = text(
    "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute JOIN pg_class c "
    "ON c.oid = attrelid WHERE attrelid = to_regclass(:name) AND relkind IN ('r', 'p') "
    "AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"
)


_IN_PARTS = {"stream_results": True, "yield_per": 2_000}


class _Named(UserDefinedType[Any]):
    """A type of PostgreSQL by its name."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_options: Any) -> str:
        return self.name


class _WholeInsert(Insert):
    """An insert that in PostgreSQL also sets a column whose numbers the database always gives."""

    inherit_cache = True


@compiles(_WholeInsert, "postgresql")
def _spelled(statement: _WholeInsert, compiler: Any, **options: Any) -> str:
    written: str = compiler.visit_insert(statement, **options)
    return written.replace(") VALUES (", ") OVERRIDING SYSTEM VALUE VALUES (", 1)


class RowTable:
    """A table and its columns, without those that the database computes. Blocking."""

    def __init__(
        self, name: str, columns: Mapping[str, str], left_out: frozenset[str], *, in_postgres: bool
    ) -> None:
        schema, _, own = name.rpartition(".") if in_postgres else ("", "", name)
        self._types = dict(columns)
        self._left_out = left_out
        self._in_postgres = in_postgres
        self._table = table(
            _quoted(own), *(column(_quoted(one), NullType()) for one in columns),
            schema=_quoted(schema) if schema else None,
        )  # fmt: skip
        self._column = self._table.c
        """By name."""

    @classmethod
    def find(
        cls, connection: Connection, name: str, leaves_out: Collection[str] = ()
    ) -> RowTable | None:
        """Return a table of the database, without some columns; None: none has this name."""
        in_postgres = is_postgres(connection)
        spelled = name
        if in_postgres:
            spelled = ".".join(f'"{part}"' for part in name.replace('"', '""').rsplit(".", 1))
        wanted = _POSTGRES_COLUMNS if in_postgres else _SQLITE_COLUMNS
        found = connection.execute(wanted, {"name": spelled})
        columns = {str(one): str(kind) for one, kind in found}
        left_out = frozenset(columns).intersection(leaves_out)
        read = {one: kind for one, kind in columns.items() if one not in left_out}
        return cls(name, read, left_out, in_postgres=in_postgres) if columns else None

    @property
    def columns(self) -> frozenset[str]:
        """The names of the columns."""
        return frozenset(self._types)

    def stamp(self, connection: Connection) -> object:
        """Return a value that changes whenever another connection changed a row.

        In PostgreSQL a change by any connection changes it.
        """
        if not self._in_postgres:
            version = connection.exec_driver_sql("PRAGMA data_version").scalar_one()
            return connection.info[OPENING], version
        place = cast(column("ctid"), Text).concat(cast(column("xmin"), Text))
        digest = func.sum(cast(func.hashtext(place), BigInteger))
        counted = select(func.count(), digest).select_from(self._table)
        return tuple(connection.execute(counted).one())

    def every(self, connection: Connection) -> Iterator[Row]:
        """Yield every row, as the database sends them."""
        for values in connection.execute(self._select(), execution_options=_IN_PARTS):
            yield dict(zip(self._types, values, strict=True))

    def count_set(self, connection: Connection, name: str) -> int:
        """Return how many rows have a value in a column, which may be one that is left out.

        0: there is no such column.
        """
        if name not in self._left_out | self.columns:
            return 0
        own = column(_quoted(name), NullType())
        counted = select(func.count(own)).select_from(self._table)
        return connection.execute(counted).scalar_one()

    def of_key(self, connection: Connection, key: Row) -> list[Row]:
        """Return the rows of a key, locked until the end of a transaction that writes."""
        chosen = self._select().where(self._is(key))
        if self._in_postgres and connection.get_execution_options().get("immediate"):
            chosen = chosen.with_for_update()
        return [dict(zip(self._types, one, strict=True)) for one in connection.execute(chosen)]

    def insert(self, connection: Connection, row: Row, keys: Sequence[str] = ()) -> Row:
        """Add a row; return columns of it, such as a key that the database gave.

        Raises:
            Invalid: the table has no longer one of the row's columns.
        """
        if gone := sorted(row.keys() - self._types.keys()):
            raise Invalid(f"The table {self._table.name} has no column {gone[0]} any more.")
        values = {name: self._value(name, value) for name, value in row.items()}
        statement: Any = _WholeInsert(self._table).values(values)
        if all(name in row for name in keys):
            connection.execute(statement)
            return {name: row[name] for name in keys}
        added = connection.execute(statement.returning(*(self._column[one] for one in keys)))
        return dict(zip(keys, added.one(), strict=True))

    def update(self, connection: Connection, key: Row, changes: Row) -> None:
        """Change columns of the row of a key. Raises `Conflict` where it is gone."""
        values = {name: self._value(name, value) for name, value in changes.items()}
        changed = update(self._table).where(self._is(key)).values(values)
        if connection.execute(changed).rowcount != 1:
            raise Conflict("Another program removed the row at this moment; read it again.")

    def delete(self, connection: Connection, key: Row) -> int:
        """Remove the rows of a key; return how many there were."""
        return connection.execute(delete(self._table).where(self._is(key))).rowcount

    def count_without(self, connection: Connection, other: RowTable, keys: Sequence[str]) -> int:
        """Return how many rows have none of their key in another table."""
        same = and_(*(self._column[key] == other._column[key] for key in keys))
        lacking = not_(exists().select_from(other._table).where(same).correlate(self._table))
        counted = select(func.count()).select_from(self._table).where(lacking)
        return connection.execute(counted).scalar_one()

    def _select(self) -> Any:
        columns: list[ColumnElement[Any]] = [self._column[name] for name in self._types]
        return select(*(cast(one, Text) if self._in_postgres else one for one in columns))

    def _is(self, key: Row) -> ColumnElement[bool]:
        tests = (self._column[name] == self._value(name, value) for name, value in key.items())
        return and_(true(), *tests)

    def _value(self, name: str, value: Any) -> ColumnElement[Any]:
        if value is None:
            return null()
        if self._in_postgres:
            return cast(literal(str(value), Text), _Named(self._types[name]))
        if isinstance(value, Undecodable):
            return cast(literal(bytes(value), NullType()), Text)
        return literal(value, NullType())


def _quoted(name: str) -> quoted_name:
    return quoted_name(name, quote=True)


def revision_of(row: Row) -> str:
    """Return a digest of all columns, types included."""
    content = repr(tuple(row.items())).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()[:16]


def row_to_json(row: Row) -> Json:
    """Return a row as JSON from which `row_from_json` makes exactly the same."""
    return {name: _to_json(value) for name, value in row.items()}


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"text" if isinstance(value, Undecodable) else "blob": value.hex()}
    return {"real": value.hex()} if isinstance(value, float) else value


def row_from_json(document: Json) -> Row:
    """Return the row of `row_to_json`. Raises `ValueError`, `TypeError` or `AttributeError`."""
    return {name: _from_json(value) for name, value in document.items()}


def _from_json(value: Any) -> Any:
    match value:
        case {"blob": str(digits)}:
            return bytes.fromhex(digits)
        case {"text": str(digits)}:
            return Undecodable(bytes.fromhex(digits))
        case {"real": str(digits)}:
            return float.fromhex(digits)
        case None | str() | int():
            return value
    raise ValueError(value)
