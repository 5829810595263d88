"""Loads rows of the control plane's tables into DuckDB, from one consistent read.

`SELECTS` turns them into the columns of the sealed files, which the copy of the hot rows has too.
They are the control plane's columns with these differences: `started_at` is a timestamp in UTC.
Money is `cost_pico`, a whole number of 1e-12 US dollars, NULL if unpriced. An operation also has
the sums of its usage (`input_tokens`, `output_tokens`, `embedding_tokens`, `cost_pico`,
`usage_count`, `unpriced_count`) and of its handles (`handle_count`, `best_score`), so that most
queries need no join. A sum beyond 2**63 - 1 is capped there. Text that Parquet cannot store is
escaped as in the database (`memtui.store.columns.ForeignText`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from sqlalchemy import JSON, BigInteger, Boolean, Column, Double, LargeBinary, Table, select
from sqlalchemy.types import TypeDecorator

from memtui.contract import Unavailable
from memtui.store import statements
from memtui.store.columns import ForeignText, Portable
from memtui.store.database import DatabaseConnection, quoted
from memtui.store.digest import GENESIS
from memtui.store.operation import why_damaged
from memtui.store.tables import HANDLES, HEADS, OPERATIONS, USAGE

HOT: dict[str, Table] = {
    "operations": OPERATIONS,
    "usage": USAGE,
    "handles": HANDLES,
}

_BATCH = 4096
_LARGEST = 2**63 - 1


def columns_of(table: str) -> dict[str, str]:
    """Return the DuckDB type of every column of a table."""
    return {column.name: _duckdb_type(column) for column in HOT[table].columns}


def stored_text(value: str) -> str:
    """Return a text as the database stores it (see `ForeignText`)."""
    return str(ForeignText.stored(value))


def create_raw(duck: Any, only: Mapping[str, Sequence[str]] | None = None) -> None:
    """Create a cursor's tables `raw_*` that rows arrive in, with all columns or `only` these."""
    for table in HOT:
        kinds = columns_of(table)
        columns = ", ".join(f"{name} {kinds[name]}" for name in (only or {}).get(table, kinds))
        duck.execute(f"CREATE OR REPLACE TEMP TABLE raw_{table} ({columns})")


def load_raw(
    duck: Any,
    connection: DatabaseConnection,
    company_id: str,
    first: int,
    last: int,
    *,
    only: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Replace the rows in `raw_*` by those of a range of operations, ends included.

    Reads with Python's SQLite, not DuckDB's: if two copies of SQLite in one process open the same
    file, its locks are lost (https://sqlite.org/howtocorrupt.html §2.2.1).

    Raises:
        Unavailable: a row is damaged; it is named.
    """
    create_raw(duck, only)
    import duckdb

    is_sqlite = connection.dialect == "sqlite"
    where = f"company_id = {quoted(stored_text(company_id))} AND seq BETWEEN {first} AND {last}"
    for name, table in HOT.items():
        columns = [table.columns[one] for one in (only or {}).get(name) or table.columns.keys()]
        asked = ", ".join(
            f"{one.name}::text" if isinstance(one.type, JSON) and not is_sqlite else one.name
            for one in columns
        )
        # For a cursor without a name PostgreSQL sends all rows at once.
        rows = connection.driver.cursor(*(() if is_sqlite else ("rows",)))
        with closing(rows), duck.appender(f"raw_{name}") as appender:
            rows.execute(f"SELECT {asked} FROM {table.name} WHERE {where} ORDER BY seq")
            while batch := rows.fetchmany(_BATCH):
                try:
                    appender.append_rows(batch)
                except duckdb.Error as error:
                    raise _refused(columns, batch, error) from error


def _refused(
    columns: Sequence[Column[Any]], batch: Sequence[Sequence[Any]], error: Exception
) -> Exception:
    """Return the error for rows that DuckDB rejected, naming the row, as DuckDB does not."""
    place = next(place for place, one in enumerate(columns) if one.name == "seq")
    numbers = [
        place
        for place, one in enumerate(columns)
        if isinstance(_kind(one), (BigInteger, Double, Boolean))
    ]
    for row in batch:
        if any(isinstance(row[number], (str, bytes)) for number in numbers):
            return Unavailable(why_damaged(row[place]))
    return error


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
"""By table, the query that turns raw rows into those of the sealed files."""


class Head(NamedTuple):
    """The end of a company's log."""

    seq: int
    digest: str
    salt: bytes
    hot_first: int
    """The oldest operation in the database; one more than `seq` where none is."""


def head(connection: DatabaseConnection, company_id: str) -> Head:
    """Return the end of a company's log and the begin of its hot table, in the caller's read."""
    columns = HEADS.c
    asked = select(columns.seq, columns.digest, columns.salt)
    found = connection.execute(asked.where(columns.company_id == company_id)).one_or_none()
    [(first,)] = statements.FIRST_HOT.rows(connection, company_id=company_id)
    seq, digest, salt = found or (0, GENESIS, b"")
    return Head(seq, digest, bytes(salt), seq + 1 if first is None else first)


def _kind(column: Column[Any]) -> Any:
    return column.type.impl_instance if isinstance(column.type, TypeDecorator) else column.type


def _duckdb_type(column: Column[Any]) -> str:
    kind = _kind(column)
    names = {BigInteger: "BIGINT", Double: "DOUBLE", Boolean: "BOOLEAN", LargeBinary: "BLOB"}
    return next((name for sort, name in names.items() if isinstance(kind, sort)), "VARCHAR")


def load_of(kind: Any) -> Callable[[Any], Any] | None:
    """Return the function that decodes a column's values as DuckDB reads them; None: unchanged."""
    if isinstance(kind, Portable):
        return kind.loaded
    return _DECODER.decode if isinstance(kind, JSON) else None


def _nothing(_constant: str) -> None:
    """Return None for NaN and infinities, which count as null in the digest."""


_DECODER = json.JSONDecoder(parse_constant=_nothing)
