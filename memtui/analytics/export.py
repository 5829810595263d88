"""Write operations, hot and sealed, to a file that other programs read: JSON Lines, CSV, Parquet.

`docs/audit.md` says what is in each. The rows go out as they are read: a long log takes no more
memory than a short one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from memtui.analytics.conditions import condition
from memtui.analytics.engine import Engine, guarded, quoted
from memtui.analytics.layout import TABLES, Manifest
from memtui.analytics.lines import lines_of
from memtui.analytics.rows import Rows
from memtui.analytics.source import columns_of
from memtui.analytics.views import VIEWS
from memtui.contract import Filter, Invalid
from memtui.csv_text import cell_sql
from memtui.store.database import Database
from memtui.store.sight import Sight

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")
R = TypeVar("R")

_BATCH = 16_384
_WORKERS = 2
_MEMORY_MB = 256
_MOMENT = "strftime(timezone('UTC', started_at), '%Y-%m-%dT%H:%M:%S.%fZ')"
_USD = "cost_pico * 0.000000000001::DECIMAL(13, 12)"
_OPTIONS = {
    "csv": "FORMAT csv, HEADER",
    "parquet": "FORMAT parquet, COMPRESSION zstd",
}

COLUMNS = ("company_id", *(column.name for column in VIEWS["operations"]))
"""The columns of CSV and Parquet."""


class ExportFormat(StrEnum):
    """JSON Lines have everything of an operation, the others one flat row of it."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


class Exporter:
    """Exports what may be seen of one company's log. Blocking; close it when done."""

    def __init__(
        self, database: Database, root: Path, company_id: str, *, sight: Sight | None = None
    ) -> None:
        self._engine = Engine(memory_mb=_MEMORY_MB)
        self._rows = Rows(database, root, company_id, self._engine, sight=sight)
        self._stopped = threading.Event()
        self._cursor: duckdb.DuckDBPyConnection | None = None

    def to_file(
        self,
        target: Path,
        form: ExportFormat,
        chosen: Filter | None = None,
        *,
        force: bool = False,
        exact: bool = False,
    ) -> int:
        """Write what a filter lets through to a file, in order of `seq`; returns how many.

        The file is private to its owner and appears when it is whole.

        Args:
            target: The file.
            form: How it is written.
            chosen: The filter; None is everything.
            force: Put it in place of a file that is there.
            exact: Put no apostrophe before cells of CSV that a spreadsheet would run.

        Raises:
            Invalid: the file is there already or cannot be written.
            Unavailable: the log cannot be read.
        """
        with replacing(target, force=force) as fresh:
            if form is ExportFormat.JSONL:
                with fresh.open("wb") as file:
                    return self._write_lines(file, chosen)
            return self._copy(fresh, form, chosen, exact=exact)

    def to_stream(
        self,
        stream: IO[bytes],
        form: ExportFormat,
        chosen: Filter | None = None,
        *,
        exact: bool = False,
    ) -> int:
        """Write them to an open stream instead, as JSON Lines or CSV.

        Raises:
            Invalid: Parquet needs a file.
            Unavailable: the log cannot be read.
        """
        if form is ExportFormat.PARQUET:
            raise Invalid("Parquet needs a file to be written to; name one, or choose csv.")
        if form is ExportFormat.JSONL:
            return self._write_lines(stream, chosen)
        with tempfile.TemporaryDirectory(prefix="memtui-") as folder:
            made = Path(folder) / "operations.csv"
            count = self._copy(made, form, chosen, exact=exact)
            with made.open("rb") as file:
                shutil.copyfileobj(file, stream)
        return count

    def stop(self) -> None:
        """Stop an export that runs; it ends with an error and leaves no file."""
        self._stopped.set()
        if self._cursor is not None:
            self._cursor.interrupt()

    def close(self) -> None:
        """Free the memory."""
        self._engine.close()

    def _write_lines(self, file: IO[bytes], chosen: Filter | None) -> int:
        with self._asking(chosen) as (cursor, manifest, where):
            spans = self._spans(cursor, manifest, where)
            with ThreadPoolExecutor(_WORKERS) as pool:
                for lines in _ahead(pool, self._lines, (sources for _, sources in spans)):
                    file.write(lines)
        return sum(count for count, _ in spans)

    def _copy(self, target: Path, form: ExportFormat, chosen: Filter | None, *, exact: bool) -> int:
        guard = form is ExportFormat.CSV and not exact
        columns = ", ".join(_flat(name, form, guard=guard) for name in COLUMNS)
        with self._asking(chosen) as (cursor, manifest, where), guarded():
            rows = self._rows.everything(manifest, "operations", columns, where)
            # DuckDB keeps the order of files, of tables and of UNION ALL, which is that of seq.
            cursor.execute(f"COPY ({rows}) TO {quoted(target)} ({_OPTIONS[form]})")
            [count] = cursor.fetchone() or (0,)
        return int(count)

    @contextmanager
    def _asking(
        self, chosen: Filter | None
    ) -> Iterator[tuple[duckdb.DuckDBPyConnection, Manifest, str]]:
        """A cursor on one state of the log, and the condition of what is chosen of it."""
        manifest, last = self._rows.refresh()
        own = condition(chosen or Filter())
        with guarded():
            self._cursor = self._engine.cursor()
        try:
            yield self._cursor, manifest, f"seq <= {last}" + (f" AND {own}" if own else "")
        finally:
            self._cursor.close()
            self._cursor = None

    def _spans(
        self, cursor: duckdb.DuckDBPyConnection, manifest: Manifest, where: str
    ) -> list[tuple[int, dict[str, str]]]:
        """Cut what a condition lets through into spans of `_BATCH` operations.

        Returns how many are in each, and the queries of their rows by table.
        """
        seqs = self._rows.everything(manifest, "operations", "seq", where)
        with guarded():
            cursor.execute(f"CREATE OR REPLACE TABLE chosen AS {seqs}")
            cut = cursor.execute(
                "SELECT min(seq), max(seq), count(*) FROM chosen "
                f"GROUP BY rowid // {_BATCH} ORDER BY 1"
            ).fetchall()
        spans = []
        for low, high, count in cut:
            sources = {table: self._span(manifest, table, low, high) for table in TABLES}
            if count < high - low + 1:
                among = f"seq IN (SELECT seq FROM chosen WHERE seq BETWEEN {low} AND {high})"
                sources = {
                    table: f"SELECT * FROM ({source}) WHERE {among}"
                    for table, source in sources.items()
                }
            spans.append((count, sources))
        return spans

    def _lines(self, sources: dict[str, str]) -> bytes:
        if self._stopped.is_set():
            raise Invalid("The export was stopped.")
        with guarded(), self._engine.cursor() as cursor:
            return lines_of(cursor, sources).encode()

    def _span(self, manifest: Manifest, table: str, low: int, high: int) -> str:
        """Return the query of a table's rows from one number to another."""
        within = f"WHERE seq BETWEEN {low} AND {high}"
        parts = [
            f"SELECT * FROM {self._rows.sealed([segment], table)} {within}"
            for segment in manifest.holding(low, high)
        ]
        if high > manifest.sealed_through:
            hot = f"{within} AND seq > {manifest.sealed_through}"
            parts.append(f"SELECT * FROM hot_{table} {hot}")
        return " UNION ALL ".join(parts)


def _ahead(pool: ThreadPoolExecutor, call: Callable[[T], R], values: Iterable[T]) -> Iterator[R]:
    """Yield what each call returns, in order; no more of them run or wait than have workers."""
    waiting: deque[Future[R]] = deque()
    for value in values:
        if len(waiting) == _WORKERS:
            yield waiting.popleft().result()
        waiting.append(pool.submit(call, value))
    while waiting:
        yield waiting.popleft().result()


def format_of(name: str) -> ExportFormat:
    """Return the format that a file's name ends in.

    Raises:
        Invalid: it ends in none of them.
    """
    ending = Path(name).suffix.removeprefix(".").lower()
    try:
        return ExportFormat(ending)
    except ValueError:
        known = ", ".join(f".{form}" for form in ExportFormat)
        raise Invalid(
            f"{name} does not say how to write it: end its name in one of {known}, "
            "or give --format."
        ) from None


def check_target(target: Path, *, force: bool) -> None:
    """Make sure that a new file may be made there.

    Raises:
        Invalid: it is there already and `force` is not given, it is a folder, or its folder is
            missing.
    """
    try:
        if target.is_dir():
            raise Invalid(f"{target} is a folder; name a file in it.")
        if not target.parent.is_dir():
            raise Invalid(f"There is no folder {target.parent}; make it, or name another place.")
        if not force and (target.exists() or target.is_symlink()):
            raise Invalid(f"{target} is there already; name a new file, or give --force.")
    except OSError as error:
        raise _unwritable(target, error) from error


@contextmanager
def replacing(target: Path, *, force: bool) -> Iterator[Path]:
    """A private file beside `target` to write to; it takes its place if the block ends well.

    Raises:
        Invalid: as `check_target`, or it cannot be written.
    """
    check_target(target, force=force)
    try:
        with tempfile.TemporaryDirectory(prefix=".memtui-", dir=target.parent) as folder:
            fresh = Path(folder) / target.name
            fresh.touch(mode=0o600)
            yield fresh
            fresh.chmod(0o600)
            with fresh.open("rb") as file:
                os.fsync(file.fileno())
            check_target(target, force=force)
            fresh.replace(target)
    except OSError as error:
        raise _unwritable(target, error) from error


def _unwritable(target: Path, error: OSError) -> Invalid:
    return Invalid(f"{target} cannot be written ({error.strerror}); choose another place.")


def _flat(name: str, form: ExportFormat, *, guard: bool) -> str:
    if name == "cost_usd":
        return f"{_USD} AS cost_usd"
    if name == "started_at" and form is ExportFormat.CSV:
        return f"{_MOMENT} AS started_at"
    if guard and columns_of("operations").get(name) == "VARCHAR":
        return f"{cell_sql(name)} AS {name}"
    return name
