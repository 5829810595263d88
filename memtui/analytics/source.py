"""Rows of the control plane's tables as Arrow streams (ADBC), with no Python object a row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Column, Double, Table
from sqlalchemy.types import TypeDecorator

from memtui.analytics.engine import quoted
from memtui.contract import Invalid, Unavailable
from memtui.store.columns import ForeignText
from memtui.store.database import Database
from memtui.store.tables import HandleRow, LogHeadRow, OperationRow, UsageRow

TABLES: dict[str, Table] = {
    "operations": OperationRow.__table__,  # type: ignore[attr-defined]
    "usage": UsageRow.__table__,  # type: ignore[attr-defined]
    "handles": HandleRow.__table__,  # type: ignore[attr-defined]
    "heads": LogHeadRow.__table__,  # type: ignore[attr-defined]
}

_SAMPLES = {"BIGINT": "0", "DOUBLE": "0.0", "BOOLEAN": "0", "VARCHAR": "''"}


def columns_of(table: str) -> dict[str, str]:
    """Return the DuckDB type of every column of a table."""
    return {column.name: _duckdb_type(column) for column in TABLES[table].columns}


def stored_text(value: str) -> str:
    """Return a text as the database stores it (see `ForeignText`)."""
    return str(ForeignText().process_bind_param(value, None))  # type: ignore[arg-type]


class Source:
    """A consistent view of the hot tables; what is appended or sealed meanwhile is not in it."""

    def __init__(self, connection: Any, *, sqlite: bool) -> None:
        self._connection = connection
        self._sqlite = sqlite

    @contextmanager
    def rows(self, table: str, company_id: str, first: int, last: int) -> Iterator[Any]:
        """The rows of a company with `seq` from `first` to `last`, as an Arrow stream.

        SQLite's driver learns a column's type from its first rows, where a NULL says nothing; so
        there a row with `seq` -1 comes first that shows every type.
        """
        columns = columns_of(table)
        sql = self._select(table, columns, company_id, first, last)
        if self._sqlite:
            samples = ", ".join(f"{_SAMPLES[kind]} AS {name}" for name, kind in columns.items())
            sql = (
                f"SELECT {samples.replace('0 AS seq', '-1 AS seq')} UNION ALL SELECT * FROM ({sql})"
            )
        with self._execute(sql) as stream:
            yield stream

    def copy_into(
        self, duck: Any, target: str, table: str, company_id: str, *, first: int, last: int
    ) -> None:
        """Append rows to a DuckDB table of the columns of `columns_of`."""
        columns = columns_of(table)
        casts = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in columns.items())
        with self.rows(table, company_id, first, last) as stream:
            duck.register("arriving", stream)
            duck.execute(f"INSERT INTO {target} SELECT {casts} FROM arriving WHERE seq >= {first}")
            duck.unregister("arriving")

    def head(self, duck: Any, company_id: str) -> tuple[int, str | None]:
        """Return the `seq` and digest of a company's newest operation; (0, None) before any."""
        with self.rows("heads", company_id, 0, 2**62) as stream:
            duck.register("arriving", stream)
            found = duck.execute("SELECT seq, digest FROM arriving WHERE seq >= 0").fetchall()
            duck.unregister("arriving")
        return (int(found[0][0]), str(found[0][1])) if found else (0, None)

    def _select(
        self, table: str, columns: dict[str, str], company_id: str, first: int, last: int
    ) -> str:
        names = (
            f"{name}::text AS {name}"
            if not self._sqlite and isinstance(TABLES[table].c[name].type, JSON)
            else name
            for name in columns
        )
        return (
            f"SELECT {', '.join(names)} FROM {TABLES[table].name} "
            f"WHERE company_id = {quoted(stored_text(company_id))} "
            f"AND seq BETWEEN {first} AND {last} ORDER BY seq"
        )

    @contextmanager
    def _execute(self, sql: str) -> Iterator[Any]:
        from adbc_driver_manager import AdbcStatement

        with AdbcStatement(self._connection) as statement:
            statement.set_sql_query(sql)
            stream, _ = statement.execute_query()
            yield stream


@contextmanager
def open_source(database: Database) -> Iterator[Source]:
    """A consistent view of the database's tables for as long as the block.

    Raises:
        Unavailable: the database cannot be reached or read.
        Invalid: its ADBC driver is not installed.
    """
    with database.read() as connection:
        url = connection.engine.url
    sqlite = url.get_backend_name() == "sqlite"
    try:
        import adbc_driver_manager as adbc

        if sqlite:
            import adbc_driver_sqlite

            raw = adbc_driver_sqlite.connect(
                f"{Path(url.database or '').absolute().as_uri()}?mode=ro"
            )
        else:
            import adbc_driver_postgresql

            plain = url.set(drivername="postgresql")
            raw = adbc_driver_postgresql.connect(plain.render_as_string(hide_password=False))
    except ModuleNotFoundError as error:
        raise Invalid(
            'Reading this database for analysis needs its driver: pip install "memtui[postgres]".'
        ) from error
    try:
        with raw, adbc.AdbcConnection(raw) as connected:
            if not sqlite:
                _run(
                    connected,
                    "SET SESSION CHARACTERISTICS AS TRANSACTION "
                    "ISOLATION LEVEL REPEATABLE READ, READ ONLY",
                )
            connected.set_autocommit(False)
            yield Source(connected, sqlite=sqlite)
            connected.rollback()
    except adbc.Error as error:
        raise Unavailable(
            "The control plane's database could not be read for analysis; "
            "check its disk, permissions or server and try again."
        ) from error


def _run(connection: Any, sql: str) -> None:
    from adbc_driver_manager import AdbcStatement

    with AdbcStatement(connection) as statement:
        statement.set_sql_query(sql)
        statement.execute_update()


def _duckdb_type(column: Column[Any]) -> str:
    kind = column.type
    if isinstance(kind, TypeDecorator):
        kind = kind.impl_instance
    for sort, name in ((BigInteger, "BIGINT"), (Double, "DOUBLE"), (Boolean, "BOOLEAN")):
        if isinstance(kind, sort):
            return name
    return "VARCHAR"
