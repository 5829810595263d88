"""Rows of the control plane's tables on their way to DuckDB, out of one consistent view.

`SELECTS` makes of them the columns of the sealed files, which the copy of the hot rows has too: the
control plane's own with these differences. `started_at` is a timestamp in UTC. Money is
`cost_pico`, a whole number of 1e-12 US dollars, NULL where unpriced. An operation also has the sums
of its usage (`input_tokens`, `output_tokens`, `embedding_tokens`, `cost_pico`, `usage_count`,
`unpriced_count`) and of its handles (`handle_count`, `best_score`), so that most questions need no
join. A sum beyond 2**63 - 1 stands at that number. Text that Parquet cannot hold is escaped as in
the database (`memtui.store.columns.ForeignText`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from sqlalchemy import JSON, BigInteger, Boolean, Column, Double, LargeBinary, Table
from sqlalchemy.types import TypeDecorator

from memtui.contract import Invalid, Unavailable
from memtui.store.columns import ForeignText
from memtui.store.database import Connection, Database, quoted
from memtui.store.digest import GENESIS
from memtui.store.tables import OPERATIONS, HandleRow, LogHeadRow, UsageRow

HOT: dict[str, Table] = {
    "operations": OPERATIONS,
    "usage": UsageRow.__table__,  # type: ignore[attr-defined]
    "handles": HandleRow.__table__,  # type: ignore[attr-defined]
}
_HEADS: Table = LogHeadRow.__table__  # type: ignore[attr-defined]

_BATCH = 4096
_LAST = 2**62
_LARGEST = 2**63 - 1


def columns_of(table: str | Table) -> dict[str, str]:
    """Return the DuckDB type of every column of a table."""
    columns = (HOT[table] if isinstance(table, str) else table).columns
    return {column.name: _duckdb_type(column) for column in columns}


def stored_text(value: str) -> str:
    """Return a text as the database stores it (see `ForeignText`)."""
    return str(ForeignText.stored(value))


def create_raw(duck: Any, only: Mapping[str, Sequence[str]] | None = None) -> None:
    """Create the empty tables `raw_*` that rows arrive in, with all columns or `only` these."""
    for table in HOT:
        kinds = columns_of(table)
        columns = ", ".join(f"{name} {kinds[name]}" for name in (only or {}).get(table, kinds))
        duck.execute(f"CREATE OR REPLACE TABLE raw_{table} ({columns})")


def load_raw(
    duck: Any,
    source: Source,
    company_id: str,
    first: int,
    last: int,
    *,
    only: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Put the rows of a range of operations, ends included, in place of those that arrived."""
    create_raw(duck, only)
    where = _company_rows(company_id, first, last)
    for name, table in HOT.items():
        names = (only or {}).get(name) or table.columns.keys()
        source.copy_into(duck, f"raw_{name}", table, where, names)


def _sum(column: str) -> str:
    # Not least(): that takes the number where the sum is NULL.
    return f"(CASE WHEN sum({column}) > {_LARGEST} THEN {_LARGEST} ELSE sum({column}) END)::BIGINT"


SELECTS = {
    "operations": f"""
        SELECT o.* REPLACE (make_timestamptz(o.started_at) AS started_at),
            coalesce(u.input_tokens, 0) AS input_tokens,
            coalesce(u.output_tokens, 0) AS output_tokens,
            coalesce(u.embedding_tokens, 0) AS embedding_tokens,
            u.cost_pico, coalesce(u.usage_count, 0) AS usage_count,
            coalesce(u.unpriced_count, 0) AS unpriced_count,
            coalesce(h.handle_count, 0) AS handle_count, h.best_score
        FROM raw_operations o
        LEFT JOIN (
            SELECT seq, {_sum("input_tokens")} AS input_tokens,
                {_sum("output_tokens")} AS output_tokens,
                {_sum("embedding_tokens")} AS embedding_tokens, {_sum("cost_usd")} AS cost_pico,
                count(*) AS usage_count, count(*) - count(cost_usd) AS unpriced_count
            FROM raw_usage GROUP BY seq
        ) u ON u.seq = o.seq
        LEFT JOIN (
            SELECT seq, count(*) AS handle_count, max(score) AS best_score
            FROM raw_handles GROUP BY seq
        ) h ON h.seq = o.seq
        ORDER BY o.seq
    """,
    "usage": "SELECT * RENAME (cost_usd AS cost_pico) FROM raw_usage ORDER BY seq, ordinal",
    "handles": "SELECT * FROM raw_handles ORDER BY seq, rank",
}
"""From the rows that arrived to the rows that are kept, by table."""


class Head(NamedTuple):
    """The end of a company's log."""

    seq: int
    digest: str
    salt: bytes
    hot_first: int
    """The oldest operation in the database; one more than `seq` where none is."""


def head(source: Source, duck: Any, company_id: str) -> Head:
    """Return where a company's log ends and where its hot table begins, in one view of both."""
    columns = columns_of(_HEADS)
    listed = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    duck.execute(f"CREATE OR REPLACE TABLE raw_heads ({listed})")
    own = _company_rows(company_id, 0, _LAST)
    source.copy_into(duck, "raw_heads", _HEADS, own, tuple(columns))
    duck.execute("CREATE OR REPLACE TABLE raw_first (seq BIGINT)")
    operations = HOT["operations"]
    first = f"{own} AND seq = (SELECT min(seq) FROM {operations.name} WHERE {own})"
    source.copy_into(duck, "raw_first", operations, first, ("seq",))
    found = duck.execute("SELECT seq, digest, salt FROM raw_heads").fetchall()
    hot = duck.execute("SELECT seq FROM raw_first").fetchall()
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
            yield Source(connection)
            return
        url = connection.alchemy.engine.url.set(drivername="postgresql")
    with _open_postgres(url.render_as_string(hide_password=False)) as source:
        yield source


class Source:
    """The hot tables at one moment, by Python's own SQLite and DuckDB's appender.

    Not by ADBC's driver: it brings a SQLite of its own, and a process in which two of them open one
    file loses its locks on it (https://sqlite.org/howtocorrupt.html §2.2.1).
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def copy_into(
        self, duck: Any, target: str, table: Table, where: str, names: Sequence[str]
    ) -> None:
        """Append columns of the rows that a condition lets through to a DuckDB table of them."""
        sql = f"SELECT {', '.join(names)} FROM {table.name} WHERE {where} ORDER BY seq"
        rows = self._connection.exec_driver_sql(sql)
        with duck.appender(target) as appender:
            while batch := rows.fetchmany(_BATCH):
                appender.append_rows(batch)


class _PostgresSource(Source):
    """ADBC streams the rows as Arrow, with no Python object a row."""

    def __init__(self, connection: Any) -> None:
        self._adbc = connection

    def copy_into(
        self, duck: Any, target: str, table: Table, where: str, names: Sequence[str]
    ) -> None:
        from adbc_driver_manager import AdbcStatement

        kinds = columns_of(table)
        asked = ", ".join(
            f"{name}::text AS {name}" if isinstance(table.columns[name].type, JSON) else name
            for name in names
        )
        casts = ", ".join(f"CAST({name} AS {kinds[name]})" for name in names)
        with AdbcStatement(self._adbc) as statement:
            statement.set_sql_query(f"SELECT {asked} FROM {table.name} WHERE {where} ORDER BY seq")
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


def _company_rows(company_id: str, first: int, last: int) -> str:
    return f"company_id = {quoted(stored_text(company_id))} AND seq BETWEEN {first} AND {last}"


def _duckdb_type(column: Column[Any]) -> str:
    kind = column.type.impl_instance if isinstance(column.type, TypeDecorator) else column.type
    names = {BigInteger: "BIGINT", Double: "DOUBLE", Boolean: "BOOLEAN", LargeBinary: "BLOB"}
    return next((name for sort, name in names.items() if isinstance(kind, sort)), "VARCHAR")
