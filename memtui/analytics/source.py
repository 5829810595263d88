"""Rows of the control plane's tables on their way to DuckDB, out of one consistent view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from sqlalchemy import JSON, BigInteger, Boolean, Column, Double, LargeBinary, Table
from sqlalchemy.types import TypeDecorator

from memtui.analytics.engine import quoted
from memtui.contract import Invalid, Unavailable
from memtui.store.columns import ForeignText
from memtui.store.connection import Connection
from memtui.store.database import Database
from memtui.store.digest import GENESIS
from memtui.store.tables import HandleRow, LogHeadRow, OperationRow, UsageRow

TABLES: dict[str, Table] = {
    "operations": OperationRow.__table__,  # type: ignore[attr-defined]
    "usage": UsageRow.__table__,  # type: ignore[attr-defined]
    "handles": HandleRow.__table__,  # type: ignore[attr-defined]
    "heads": LogHeadRow.__table__,  # type: ignore[attr-defined]
}

_BATCH = 4096
_LAST = 2**62


def columns_of(table: str) -> dict[str, str]:
    """Return the DuckDB type of every column of a table."""
    return {column.name: _duckdb_type(column) for column in TABLES[table].columns}


def stored_text(value: str) -> str:
    """Return a text as the database stores it (see `ForeignText`)."""
    return str(ForeignText.stored(value))


class Source(Protocol):
    """A consistent view of the hot tables; what is appended or sealed meanwhile is not in it."""

    def copy_into(
        self, duck: Any, target: str, table: str, where: str, names: Sequence[str]
    ) -> None:
        """Append columns of the rows that a condition lets through to a DuckDB table of them."""


def company_rows(company_id: str, first: int, last: int) -> str:
    """Return the condition for a company's rows with `seq` from `first` to `last`."""
    return f"company_id = {quoted(stored_text(company_id))} AND seq BETWEEN {first} AND {last}"


class Head(NamedTuple):
    """The end of a company's log."""

    seq: int
    digest: str
    salt: bytes
    hot_first: int
    """The oldest operation in the database; one more than `seq` where none is."""


def head(source: Source, duck: Any, company_id: str) -> Head:
    """Return where a company's log ends and where its hot table begins, in one view of both."""
    columns = columns_of("heads")
    listed = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    duck.execute(f"CREATE OR REPLACE TABLE raw_heads ({listed})")
    own = company_rows(company_id, 0, _LAST)
    source.copy_into(duck, "raw_heads", "heads", own, tuple(columns))
    duck.execute("CREATE OR REPLACE TABLE raw_first (seq BIGINT)")
    first = f"{own} AND seq = (SELECT min(seq) FROM {TABLES['operations'].name} WHERE {own})"
    source.copy_into(duck, "raw_first", "operations", first, ("seq",))
    found = duck.execute("SELECT seq, digest, salt FROM raw_heads").fetchall()
    hot = duck.execute("SELECT seq FROM raw_first").fetchall()
    duck.execute("DROP TABLE raw_heads")
    duck.execute("DROP TABLE raw_first")
    [(seq, digest, salt)] = found or [(0, GENESIS, b"")]
    return Head(seq, digest, bytes(salt), hot[0][0] if hot else seq + 1)


@contextmanager
def open_source(database: Database) -> Iterator[Source]:
    """A consistent view of the database's tables for as long as the block.

    Raises:
        Unavailable: the database cannot be reached or read.
        Invalid: its ADBC driver is not installed.
    """
    with database.read() as connection:
        if database.dialect == "sqlite":
            yield _SqliteSource(connection)
            return
        url = connection.alchemy.engine.url.set(drivername="postgresql")
    with _open_postgres(url.render_as_string(hide_password=False)) as source:
        yield source


class _SqliteSource:
    """Python's own SQLite and DuckDB's appender.

    Not ADBC's driver: it brings a SQLite of its own, and a process in which two of them open one
    file loses its locks on it (https://sqlite.org/howtocorrupt.html §2.2.1).
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def copy_into(
        self, duck: Any, target: str, table: str, where: str, names: Sequence[str]
    ) -> None:
        """See `Source`."""
        sql = f"SELECT {', '.join(names)} {_from(table, where)}"
        rows = self._connection.exec_driver_sql(sql)
        with duck.appender(target) as appender:
            while batch := rows.fetchmany(_BATCH):
                appender.append_rows(batch)


class _PostgresSource:
    """ADBC streams the rows as Arrow, with no Python object a row."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def copy_into(
        self, duck: Any, target: str, table: str, where: str, names: Sequence[str]
    ) -> None:
        """See `Source`."""
        from adbc_driver_manager import AdbcStatement

        columns, kinds = TABLES[table].columns, columns_of(table)
        asked = (
            f"{name}::text AS {name}" if isinstance(columns[name].type, JSON) else name
            for name in names
        )
        casts = ", ".join(f"CAST({name} AS {kinds[name]})" for name in names)
        with AdbcStatement(self._connection) as statement:
            statement.set_sql_query(f"SELECT {', '.join(asked)} {_from(table, where)}")
            stream, _ = statement.execute_query()
            duck.register("arriving", stream)
            duck.execute(f"INSERT INTO {target} SELECT {casts} FROM arriving")
            duck.unregister("arriving")


@contextmanager
def _open_postgres(uri: str) -> Iterator[Source]:
    try:
        import adbc_driver_manager as adbc
        import adbc_driver_postgresql
    except ModuleNotFoundError as error:
        raise Invalid(
            'Reading this database for analysis needs its driver: pip install "memtui[postgres]".'
        ) from error
    try:
        with adbc_driver_postgresql.connect(uri) as raw, adbc.AdbcConnection(raw) as connected:
            with adbc.AdbcStatement(connected) as statement:
                statement.set_sql_query(
                    "SET SESSION CHARACTERISTICS AS TRANSACTION "
                    "ISOLATION LEVEL REPEATABLE READ, READ ONLY"
                )
                statement.execute_update()
            connected.set_autocommit(False)
            yield _PostgresSource(connected)
            connected.rollback()
    except adbc.Error as error:
        raise Unavailable(
            "The control plane's database could not be read for analysis; "
            "check its disk, permissions or server and try again."
        ) from error


def _from(table: str, where: str) -> str:
    return f"FROM {TABLES[table].name} WHERE {where} ORDER BY seq"


def _duckdb_type(column: Column[Any]) -> str:
    kind = column.type
    if isinstance(kind, TypeDecorator):
        kind = kind.impl_instance
    for sort, name in (
        (BigInteger, "BIGINT"),
        (Double, "DOUBLE"),
        (Boolean, "BOOLEAN"),
        (LargeBinary, "BLOB"),
    ):
        if isinstance(kind, sort):
            return name
    return "VARCHAR"
