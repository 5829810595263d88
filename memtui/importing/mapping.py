"""The rows of a file, each with the values that a person's SQL expressions compute from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memtui.analytics.engine import DuckDb, first_line
from memtui.analytics.sql import CEILING, MEMORY_MB, TIME_LIMIT_S, limited
from memtui.analytics.statement import check_expression, tried
from memtui.contract import Denied, Invalid
from memtui.importing.rows import FormatName, Row, read
from memtui.json_text import whole
from memtui.paths import refuse_other_than_file
from memtui.store.database import quoted

if TYPE_CHECKING:
    import duckdb

_BATCH = 2_000
_BATCH_CHARS = 8 << 20
_KINDS = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR", dict: "JSON",
          list: "JSON"}  # fmt: skip
_LOAD = (
    "CREATE OR REPLACE TABLE log AS SELECT unnest(from_json(row, ?)) "
    "FROM (SELECT unnest(?::JSON[]) AS row)"
)
_NAMED = 40
"""Upper bound of the columns that a message names."""
_EXPLAINED = 10
"""For so many failing rows the reason is determined; each takes another query."""

MappedRow = tuple[Row, dict[str, Any]]
"""A row, and the values computed from it, by name."""


class MappedRows:
    """The rows of one file, each with the values of the expressions. Blocking.

    An expression that is a column's name gives the value in the file, unchanged. DuckDB evaluates
    other expressions over a table `log`, and is locked: it can open nothing but the file. For
    DuckDB a column of CSV is text, one of JSON a number, a truth value, text or JSON.
    """

    def __init__(
        self, path: Path, form: FormatName, expressions: Mapping[str, str], *, zone: str = "UTC"
    ) -> None:
        """Find the columns, and check the expressions.

        Args:
            path: A log in CSV, JSON or Parquet.
            form: Its format.
            expressions: SQL, by the name of the value that it computes.
            zone: The IANA name of the zone of times without one.

        Raises:
            Invalid: the file cannot be read, or an expression does not work.
            Denied: an expression would read anything but the columns.
        """
        refuse_other_than_file(path)
        self._path = path.absolute()
        self._form = form
        self._explained = 0
        self._engine = DuckDb(memory_mb=MEMORY_MB, zone=zone, only=self._path)
        try:
            is_parquet = form == "parquet"
            self.columns = self._view_parquet() if is_parquet else _columns(read(path, form))
            """DuckDB's types of the columns, by name."""
            self._named = {name: text for name, text in expressions.items() if text in self.columns}
            self._expressions = {
                name: text for name, text in expressions.items() if name not in self._named
            }
            if self.columns and self._expressions:
                self._check()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[MappedRow]:
        """Yield each row with its values; a row where an expression fails has a problem instead.

        Raises:
            Invalid: the file cannot be read, or the expressions take too long or too much memory.
        """
        if self._form == "parquet":
            yield from self._of_parquet()
            return
        rows = read(self._path, self._form)
        if self.columns and self._expressions:
            for batch in _batches(rows):
                yield from self._of_batch(batch)
        else:
            yield from map(self._mapped, rows)

    def close(self) -> None:
        """Stop the running query, and free the memory."""
        self._engine.close()

    def described(self) -> str:
        """Return a clause that names the columns."""
        names = [f"{name} ({kind})" for name, kind in self.columns.items()]
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        return f"{self._path.name} has the columns {', '.join(names[:_NAMED])}{more}"

    @property
    def _duck(self) -> duckdb.DuckDBPyConnection:
        return self._engine.connection

    def _limited(
        self, duck: duckdb.DuckDBPyConnection, what: str = "mapping"
    ) -> AbstractContextManager[None]:
        ceiling = CEILING * MEMORY_MB
        return limited(duck, TIME_LIMIT_S, ceiling, what=what, remedy="simplify it")

    def _view_parquet(self) -> dict[str, str]:
        import duckdb

        try:
            self._duck.execute(f"CREATE VIEW log AS FROM read_parquet({quoted(self._path)})")
            found = self._duck.execute("DESCRIBE log").fetchall()
        except duckdb.Error as error:
            raise Invalid(
                f"{self._path} cannot be read as Parquet ({first_line(error)})."
            ) from error
        return {name: kind for name, kind, *_ in found}

    def _check(self) -> None:
        if self._form != "parquet":
            self._load([])
        for name, expression in self._expressions.items():
            what = f"expression of {name}"
            try:
                check_expression(self._duck, expression, "log", what=what)
            except Denied as error:
                raise Denied(f"The {what} is refused: {error}") from error
            try:
                with self._limited(self._duck, what):
                    self._duck.execute(_select([tried(expression)], "log LIMIT 0"))
            except Invalid as error:
                raise Invalid(f"{str(error).rstrip('.')}; {self.described()}.") from error

    def _load(self, texts: list[str]) -> None:
        """Load rows of CSV or JSON, given as JSON texts, into the table."""
        names = {name.lower(): name for name in self.columns if name}  # DuckDB ignores case
        structure = {name: self.columns[name] for name in names.values()}
        self._duck.execute(_LOAD, [_text(structure), texts])

    def _of_batch(self, batch: list[tuple[Row, str]]) -> Iterator[MappedRow]:
        with self._limited(self._duck):
            self._load([text for _, text in batch if text])
            query = _select(map(tried, self._expressions.values()), "log")
            found = enumerate(self._duck.execute(query).fetchall())
        for row, text in batch:
            yield self._mapped(row, *next(found)) if text else self._mapped(row)

    def _of_parquet(self) -> Iterator[MappedRow]:
        count, index = len(self._expressions), 0
        query = _select([*map(tried, self._expressions.values()), "*"], "log")
        with self._engine.cursor() as cursor:
            with self._limited(cursor):
                found = cursor.execute(query).fetchmany(_BATCH)
            while found:
                for cells in found:
                    row = Row(index + 1, dict(zip(self.columns, cells[count:], strict=True)))
                    yield self._mapped(row, index, cells[:count])
                    index += 1
                with self._limited(cursor):
                    found = cursor.fetchmany(_BATCH)

    def _mapped(self, row: Row, index: int = 0, cells: Sequence[Any] = ()) -> MappedRow:
        if row.values is None:
            return row, {}
        mapped = {name: row.values.get(column) for name, column in self._named.items()}
        for (name, expression), cell in zip(self._expressions.items(), cells, strict=False):
            if cell is None:  # a value of NULL is a list with NULL (`tried`)
                return Row(row.line, None, f"{name}: {self._why(expression, index)}"), {}
            [mapped[name]] = cell
        return row, mapped

    def _why(self, expression: str, index: int) -> str:
        """Return why an expression fails on a row of the table."""
        import duckdb

        self._explained += 1
        if self._explained <= _EXPLAINED:
            self._duck.execute(f"CREATE OR REPLACE TABLE one AS FROM log LIMIT 1 OFFSET {index}")
            try:
                self._duck.execute(_select([f"({expression}\n)"], "one AS log")).fetchall()
            except duckdb.Error as error:
                return first_line(error)
        return "its expression fails"


def _select(columns: Iterable[str], source: str) -> str:
    return f"SELECT {', '.join(columns)} FROM {source}"  # noqa: S608 — checked, and locked in


def _text(value: Any) -> str:
    """Return the JSON text of a value; half a surrogate pair becomes U+FFFD."""
    text = json.dumps(value)
    return json.dumps(whole(value)) if "\\ud" in text else text


def _batches(rows: Iterable[Row]) -> Iterator[list[tuple[Row, str]]]:
    """Yield rows with their JSON text, which is empty for those that cannot be read."""
    batch: list[tuple[Row, str]] = []
    size = 0
    for row in rows:
        batch.append((row, "" if row.values is None else _text(row.values)))
        size += len(batch[-1][1])
        if len(batch) == _BATCH or size >= _BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _columns(rows: Iterable[Row]) -> dict[str, str]:
    """Return DuckDB's types of the columns of CSV or JSON; text where rows differ in kind."""
    kinds: dict[str, set[str]] = {}
    for row in rows:
        for name, value in (row.values or {}).items():
            found = kinds.setdefault(name, set())
            if value is not None:
                # BIGINT has 64 bits: a longer number stays text.
                is_long = type(value) is int and not -(2**63) <= value < 2**63
                found.add("VARCHAR" if is_long else _KINDS[type(value)])
    numbers = {"BIGINT", "DOUBLE"}
    return {
        name: "DOUBLE" if found == numbers else found.pop() if len(found) == 1 else "VARCHAR"
        for name, found in kinds.items()
    }
