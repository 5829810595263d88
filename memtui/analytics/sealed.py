"""The sealed operations of a company, for statements that otherwise query the hot tables.

The statements are those of `memtui.store`, in DuckDB's dialect over views of the files that have
the tables' names and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.dialects.postgresql.base import PGCompiler, PGDialect
from sqlalchemy.engine.result import IteratorResult, SimpleResultMetaData

from memtui.analytics.engine import Engine
from memtui.analytics.layout import ArchiveFolder, Manifest
from memtui.analytics.rows import load_of
from memtui.analytics.source import HOT
from memtui.store.conditions import BEGUN
from memtui.store.database import DatabaseConnection

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")

_COLUMNS = {
    "operations": f"* REPLACE (epoch_us(started_at) AS started_at), started_at AS {BEGUN}",
    "usage": "* RENAME (cost_pico AS cost_usd)",
    "handles": "*",
}


class Archive:
    """The sealed operations of every company. DuckDB starts on first use."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._engine = Engine()

    def of(self, company_id: str) -> Sealed:
        """Return a company's sealed operations; raises `Unavailable`."""
        folder = ArchiveFolder(self._root, company_id)
        return Sealed(self._engine, folder, folder.read())

    def close(self) -> None:
        """Free the memory."""
        self._engine.close()


class Sealed:
    """The sealed operations of one log at one moment, possibly none. Blocking."""

    def __init__(self, engine: Engine, folder: ArchiveFolder, manifest: Manifest) -> None:
        self._engine = engine
        self._folder = folder
        self.manifest = manifest

    @property
    def through(self) -> int:
        """The highest sealed `seq`, 0 where nothing is sealed."""
        return self.manifest.sealed_through

    @contextmanager
    def read(self) -> Iterator[DatabaseConnection]:
        """A connection for the readers of `memtui.store`; something must be sealed.

        Raises:
            Unavailable: a file cannot be read.
        """
        views = {
            HOT[table].name: f"SELECT {columns} FROM "
            f"{self._folder.parquet(self.manifest.segments, table)}"
            for table, columns in _COLUMNS.items()
        }
        with self._engine.asking() as cursor:
            yield _Connection(cursor, views)

    def ask(self, question: Callable[[DatabaseConnection], T]) -> T | None:
        """Return the result of `question`; None where nothing is sealed."""
        if not self.manifest.segments:
            return None
        with self.read() as connection:
            return question(connection)


class _Connection(DatabaseConnection):
    """DuckDB as a read-only connection of the control plane."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, views: dict[str, str]) -> None:
        """Take the views; each is created when first named, as that opens its files."""
        super().__init__("duckdb", cursor, lambda: None)
        self._to_make = views

    def execute(self, statement: Any, parameters: Any = None) -> Any:
        """Run a SELECT with its values as literals."""
        del parameters
        sql = statement.compile(dialect=_DIALECT, compile_kwargs={"literal_binds": True})
        columns = list(statement.selected_columns)
        loads = [load_of(column.type) for column in columns]
        self._make_views(str(sql))
        found = self.driver.execute(str(sql)).fetchall()
        rows = (
            tuple(
                value if load is None or value is None else load(value)
                for value, load in zip(row, loads, strict=True)
            )
            for row in found
        )
        return IteratorResult(SimpleResultMetaData([column.key for column in columns]), rows)

    def _make_views(self, sql: str) -> None:
        for name in [name for name in self._to_make if name in sql]:
            self.driver.execute(f"CREATE TEMP VIEW {name} AS {self._to_make.pop(name)}")


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
