"""The sealed operations of a company, for statements that otherwise query the hot tables.

The statements are those of `memtui.store`, in DuckDB's dialect over queries of the files that
have the tables' names and columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy.dialects.postgresql.base import PGCompiler, PGDialect
from sqlalchemy.engine.result import IteratorResult, SimpleResultMetaData

from memtui.analytics.engine import DuckDb
from memtui.analytics.layout import ArchiveFolder, Manifest, Segment
from memtui.analytics.source import HOT, load_of
from memtui.store.conditions import BEGUN
from memtui.store.database import DatabaseConnection

if TYPE_CHECKING:
    import duckdb

_KEPT = 64
"""The most segments whose files' footers stay in memory, 1.2 MB each. DuckDB would keep more, and
counts a fifth of that against its limit. Reading them is most of what a narrow statement takes."""
_COLUMNS = {
    "operations": f"* REPLACE (epoch_us(started_at) AS started_at), started_at AS {BEGUN}",
    "usage": "* RENAME (cost_pico AS cost_usd)",
    "handles": "*",
}


class Archive:
    """The sealed operations of every company. Blocking. DuckDB starts on first use."""

    def __init__(self, root: Path, duck: DuckDb) -> None:
        self._root = root
        self._duck = duck

    def manifest(self, company_id: str) -> Manifest:
        """Return the manifest of a company's sealed segments; raises `Unavailable`."""
        return ArchiveFolder(self._root, company_id).read()

    @contextmanager
    def read(self, company_id: str, segments: Sequence[Segment]) -> Iterator[DatabaseConnection]:
        """Yield a connection to some segments, at least one, for `memtui.store`.

        Raises:
            Unavailable: a file cannot be read.
        """
        folder = ArchiveFolder(self._root, company_id)
        tables = {
            HOT[table].name: f"SELECT {columns} FROM {folder.parquet(segments, table)}"
            for table, columns in _COLUMNS.items()
        }
        is_short = len(self.manifest(company_id).segments) <= _KEPT
        with self._duck.asking() as cursor:
            cursor.execute(f"SET parquet_metadata_cache = {is_short}")
            yield _Connection(cursor, tables)

    def close(self) -> None:
        """Free the memory."""
        self._duck.close()


class _Connection(DatabaseConnection):
    """DuckDB as a read-only connection of the control plane."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, tables: dict[str, str]) -> None:
        """Take the query of each table, by the table's name."""
        super().__init__("duckdb", cursor, lambda: None)
        self._tables = tables

    def execute(self, statement: Any, parameters: Any = None) -> Any:
        """Run a SELECT with its values as literals."""
        del parameters
        sql = statement.compile(dialect=_DIALECT, compile_kwargs={"literal_binds": True})
        columns = list(statement.selected_columns)
        loads = [load_of(column.type) for column in columns]
        named = (one for one in self._tables.items() if one[0] in str(sql))
        # Not materialized: DuckDB then reads only the columns and parts of files that it needs.
        tables = ", ".join(f"{name} AS NOT MATERIALIZED ({query})" for name, query in named)
        found = self.driver.execute(f"WITH {tables} {sql}").fetchall()
        rows = (
            tuple(
                value if load is None or value is None else load(value)
                for value, load in zip(row, loads, strict=True)
            )
            for row in found
        )
        return IteratorResult(SimpleResultMetaData([column.key for column in columns]), rows)


class _Compiler(PGCompiler):
    """PostgreSQL's SQL, except where DuckDB's differs."""

    def visit_floordiv_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Write a division of whole numbers."""
        del operator
        return f"{self.process(binary.left, **kw)} // {self.process(binary.right, **kw)}"

    def visit_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Write a search: DuckDB's `~` matches the whole text only."""
        del operator
        left, right = (self.process(side, **kw) for side in (binary.left, binary.right))
        return f"regexp_matches({left}, {right})"


class _Dialect(PGDialect):
    name = "duckdb"
    statement_compiler = _Compiler
    _backslash_escapes = False


_DIALECT = _Dialect(paramstyle="qmark")  # type: ignore[no-untyped-call]
