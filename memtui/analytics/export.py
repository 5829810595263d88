"""Write operations, hot and sealed, to a file for other programs: JSON Lines, CSV or Parquet.

`docs/audit.md` describes the formats. Rows are written as they are read, so a long log takes no
more memory than a short one.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from enum import StrEnum
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

from memtui import paths
from memtui.analytics.engine import guarded
from memtui.analytics.layout import TABLES, Manifest
from memtui.analytics.rows import LogDatabase, among, fetch
from memtui.analytics.source import columns_of
from memtui.analytics.sql import VIEWS, damaged_among, selected
from memtui.contract import EVERYTHING, Filter, Invalid, Scope, SourceRef, Usage
from memtui.csv_text import cell_sql
from memtui.scratch import Scratch
from memtui.store.conditions import condition
from memtui.store.database import MARK, Database, quoted
from memtui.store.operation import INTERNAL, OWN_FIELDS, Operation, OperationHandle
from memtui.store.visibility import Visibility

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

COLUMNS = ("company_id", *VIEWS["operations"])
"""The columns of CSV and Parquet."""


class ExportFormat(StrEnum):
    """JSON Lines have complete operations; CSV and Parquet have one flat row per operation."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


class Exported(NamedTuple):
    """The result of an export."""

    operations: int
    """Number of exported operations."""
    damaged: int
    """Number of those whose JSON is not valid."""
    first_damaged: int | None
    """The `seq` of the first damaged one."""

    @property
    def problem(self) -> str | None:
        """A sentence about the damaged operations; None: there are none."""
        if not self.damaged:
            return None
        which = "1 is" if self.damaged == 1 else f"{self.damaged:,} are"
        return (
            f"Of these operations {which} damaged, operation {self.first_damaged} first; "
            "docs/recovery.md says what to do."
        )


class Exporter(LogDatabase):
    """Exports the visible operations of one company's log. Blocking; close it when done."""

    kept = None

    def __init__(
        self,
        database: Database,
        root: Path,
        company_id: str,
        *,
        visibility: Visibility | None = None,
    ) -> None:
        super().__init__(database, root, company_id, visibility=visibility, memory_mb=_MEMORY_MB)
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
    ) -> Exported:
        """Write the operations that match a filter to a file, in order of `seq`.

        The file is private to its owner and appears when it is complete.

        Args:
            target: The file.
            form: The format.
            chosen: The filter; None: everything.
            force: Replace an existing file.
            exact: Do not put an apostrophe before CSV cells that a spreadsheet would execute.

        Raises:
            Conflict: the file exists.
            Invalid: it cannot be written.
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
    ) -> Exported:
        """Write the operations that match a filter to an open stream, as JSON Lines or CSV.

        Raises:
            Invalid: Parquet needs a file.
            Unavailable: the log cannot be read.
        """
        if form is ExportFormat.PARQUET:
            raise Invalid("Parquet needs a file to be written to; name one, or choose csv.")
        if form is ExportFormat.JSONL:
            return self._write_lines(stream, chosen)
        with closing(Scratch()) as scratch:
            made = scratch.path / "operations.csv"
            done = self._copy(made, form, chosen, exact=exact)
            with made.open("rb") as file:
                shutil.copyfileobj(file, stream)
        return done

    def stop(self) -> None:
        """Stop a running export, which fails and leaves no file."""
        self._stopped.set()
        if self._cursor is not None:
            self._cursor.interrupt()

    def _write_lines(self, file: IO[bytes], chosen: Filter | None) -> Exported:
        with self._asking(chosen) as (cursor, manifest, where):
            spans = self._spans(cursor, manifest, where)
            with ThreadPoolExecutor(_WORKERS) as pool:
                for lines in _ahead(pool, self._lines, (sources for _, sources in spans)):
                    file.write(lines)
            return self._done(cursor, manifest, where, sum(count for count, _ in spans))

    def _copy(
        self, target: Path, form: ExportFormat, chosen: Filter | None, *, exact: bool
    ) -> Exported:
        guard = form is ExportFormat.CSV and not exact
        columns = ", ".join(_flat(name, form, guard=guard) for name in COLUMNS)
        with self._asking(chosen) as (cursor, manifest, where), guarded():
            rows = self.everything(manifest, "operations", columns, where)
            # DuckDB keeps the order of files, tables and UNION ALL, which is here that of `seq`.
            cursor.execute(f"COPY ({rows}) TO {quoted(target)} ({_OPTIONS[form]})")
            [count] = cursor.fetchone() or (0,)
            return self._done(cursor, manifest, where, int(count))

    def _done(
        self, cursor: duckdb.DuckDBPyConnection, manifest: Manifest, where: str, count: int
    ) -> Exported:
        """Return the result, with the damaged operations counted."""
        asked, details = f"seq, {selected('request')}, absent", f"seq, {selected('details')}"
        operations = self.everything(manifest, "operations", asked, where)
        usage = self.everything(manifest, "usage", details)
        found = damaged_among(f"({operations})", f"({usage})")
        with guarded():
            damaged, first = cursor.execute(
                f"SELECT count(*), min(seq) FROM ({found})"
            ).fetchone() or (0, None)
        return Exported(count, damaged, first)

    @contextmanager
    def _asking(
        self, chosen: Filter | None
    ) -> Iterator[tuple[duckdb.DuckDBPyConnection, Manifest, str]]:
        """Yield a cursor on one state of the log, its manifest, and the condition of a filter."""
        manifest, last = self.refresh()
        own = condition(chosen or EVERYTHING)
        # Not `asking`, which would report a failed write to the target as an unreadable log.
        with self.cursor() as cursor:
            self._cursor = cursor
            try:
                yield cursor, manifest, f"seq <= {last}" + (f" AND {own}" if own else "")
            finally:
                self._cursor = None

    def _spans(
        self, cursor: duckdb.DuckDBPyConnection, manifest: Manifest, where: str
    ) -> list[tuple[int, dict[str, str]]]:
        """Cut the operations that match a condition into spans of `_BATCH` operations.

        Returns the number of operations in each span, and the queries of its rows by table.
        """
        seqs = self.everything(manifest, "operations", "seq", where)
        cut = f"SELECT min(seq), max(seq), count(*) FROM chosen GROUP BY rowid // {_BATCH}"
        with guarded():
            cursor.execute(f"CREATE OR REPLACE TABLE chosen AS {seqs}")
            found = cursor.execute(f"{cut} ORDER BY 1").fetchall()
        spans = []
        for low, high, count in found:
            sources = {table: self._span(manifest, table, low, high) for table in TABLES}
            if count < high - low + 1:
                cond = f"seq IN (SELECT seq FROM chosen WHERE seq BETWEEN {low} AND {high})"
                sources = {
                    table: f"SELECT * FROM ({source}) WHERE {cond}"
                    for table, source in sources.items()
                }
            spans.append((count, sources))
        return spans

    def _lines(self, sources: dict[str, str]) -> bytes:
        if self._stopped.is_set():
            raise Invalid("The export was stopped.")
        with self.asking() as cursor:
            return lines_of(cursor, sources).encode()

    def _span(self, manifest: Manifest, table: str, low: int, high: int) -> str:
        """Return the query of a table's rows from operation `low` to `high`."""
        within, sealed = f"seq BETWEEN {low} AND {high}", manifest.sealed_through
        parts = [
            f"SELECT * FROM {self.sealed([segment], table)} WHERE {within}"
            for segment in manifest.holding(low, high)
        ]
        if high > sealed:
            parts.append(self.hot(table, "*", within, sealed, high))
        return " UNION ALL ".join(parts)


def _ahead(pool: ThreadPoolExecutor, call: Callable[[T], R], values: Iterable[T]) -> Iterator[R]:
    """Yield the results of calls in order, with at most `_WORKERS` calls running or waiting."""
    waiting: deque[Future[R]] = deque()
    for value in values:
        if len(waiting) == _WORKERS:
            yield waiting.popleft().result()
        waiting.append(pool.submit(call, value))
    while waiting:
        yield waiting.popleft().result()


def format_of(name: str) -> ExportFormat:
    """Return the format of a file by the ending of its name.

    Raises:
        Invalid: the ending is not that of a format.
    """
    ending = Path(name).suffix.removeprefix(".").lower()
    try:
        return ExportFormat(ending)
    except ValueError:
        *others, last = (f".{form}" for form in ExportFormat)
        known = f"{', '.join(others)} or {last}"
        raise Invalid(
            f"The name {name} has no known ending: end it in {known}, or give --format."
        ) from None


@contextmanager
def replacing(target: Path, *, force: bool) -> Iterator[Path]:
    """Yield a private file beside `target`, which replaces it if the block ends without error.

    Raises:
        Conflict, Invalid: as `paths.check_target`, or the file cannot be written.
    """
    paths.check_target(target, force=force)
    try:
        with paths.replacing(target) as fresh:
            yield fresh
            paths.check_target(target, force=force)
    except OSError as error:
        raise paths.unwritable(target, error) from error


def _flat(name: str, form: ExportFormat, *, guard: bool) -> str:
    if name == "cost_usd":
        return f"{_USD} AS cost_usd"
    if name == "started_at" and form is ExportFormat.CSV:
        return f"{_MOMENT} AS started_at"
    if name == "internal":
        return f"{INTERNAL} AS internal"
    if guard and columns_of("operations").get(name) == "VARCHAR":
        return f"{cell_sql(name)} AS {name}"
    return name


# JSON Lines: a line is an operation as Python's `json` writes it, without spaces and in ASCII.
# DuckDB makes nearly all lines, several times as fast as Python; a line that DuckDB may write
# differently is made by Python.

_BEYOND_ASCII = re.compile(r"[\x7f-\U0010ffff]+")
_WRITTEN_APART = {"request", "started_at"}
PLAIN = (*(n for n in OWN_FIELDS if n not in _WRITTEN_APART), "seq", "previous_digest")
SCOPE = tuple(Scope.model_fields)
SOURCE = tuple(name for name in SourceRef.model_fields if name not in {"kind", "company_id"})
USAGE = tuple(name for name in Usage.model_fields if name not in {"cost_usd", "details"})
HANDLE = tuple(name for name in OperationHandle.model_fields if name != "binding_key")


def lines_of(duck: Any, sources: Mapping[str, str]) -> str:
    """Return a line for each operation, in order.

    Args:
        duck: A DuckDB cursor.
        sources: The queries of the operations' rows, with the sealed columns, by table.
    """
    found = dict(duck.execute(_select_lines(sources)).fetchall())
    lines = "".join(found.values())
    if _may_differ(lines):
        differing = [seq for seq, line in found.items() if _may_differ(line)]
        lines = "".join((found | _from_operations(duck, sources, differing)).values())
    if lines.isascii() and "\x7f" not in lines:
        return lines
    return _BEYOND_ASCII.sub(lambda match: encode_basestring_ascii(match[0])[1:-1], lines)


def _may_differ(line: str) -> bool:
    """Whether Python may write the line differently: it has an escape or a non-finite number."""
    return MARK in line or "\\u" in line


def _from_operations(duck: Any, sources: Mapping[str, str], seqs: Sequence[int]) -> dict[int, str]:
    """Return the lines as written by Python; damaged operations have none."""
    found = {table: f"({source})" for table, source in sources.items()}
    try:
        read = fetch(duck, found, among(seqs))
    except (TypeError, ValueError, ArithmeticError):
        if len(seqs) == 1:
            return {}
        middle = len(seqs) // 2
        first = _from_operations(duck, sources, seqs[:middle])
        return first | _from_operations(duck, sources, seqs[middle:])
    return {
        seq: json.dumps(_document(operation), separators=(",", ":")) + "\n"
        for seq, operation in read.items()
    }


def _document(operation: Operation) -> dict[str, Any]:
    """Return an operation as the object of a line, with its members in order."""
    own = operation.model_dump()
    moment = operation.started_at.isoformat().replace("+00:00", "Z")
    later = {name: own[name] for name in ("request", "scope", "source")}
    usage = [
        {name: one[name] for name in USAGE}
        | {"cost_usd": cost if cost is None else str(cost), "details": one["details"]}
        for one in own["usage"]
        for cost in (one["cost_usd"],)
    ]
    handles = [
        {name: one[name] for name in HANDLE} | {"binding_key": one["binding_key"]}
        for one in own["handles"]
    ]
    return (
        {name: own[name] for name in PLAIN}
        | {"started_at": moment, **later, "usage": usage, "handles": handles}
        | {"absent": own["absent"], "digest": own["digest"]}
    )


def _select_lines(sources: Mapping[str, str]) -> str:
    """Return the query that selects each operation's `seq` and JSON line, in order of `seq`."""
    return f"""
        WITH o AS MATERIALIZED ({sources["operations"]}),
        u AS (
            SELECT seq, string_agg({_USAGE}, ',' ORDER BY ordinal) AS list
            FROM ({sources["usage"]}) p GROUP BY seq
        ),
        h AS (
            SELECT seq, string_agg({_HANDLE}, ',' ORDER BY rank) AS list
            FROM ({sources["handles"]}) p JOIN o USING (seq) GROUP BY seq
        )
        SELECT seq, {_OPERATION} || chr(10)
        FROM o LEFT JOIN u USING (seq) LEFT JOIN h USING (seq) ORDER BY seq
    """


def _object(members: Mapping[str, str]) -> str:
    """Return SQL for the text of a JSON object; `members` map names to SQL for their values."""
    parts = ", ',', ".join(f"'\"{name}\":', {value}" for name, value in members.items())
    return f"concat('{{', {parts}, '}}')"


def _members(table: str, names: Mapping[str, str], alias: str) -> dict[str, str]:
    """Return members for `_object` by name, each from a column of the table."""
    kinds = columns_of(table)
    return {name: _value(f"{alias}.{column}", kinds[column]) for name, column in names.items()}


def _value(column: str, kind: str) -> str:
    if kind == "VARCHAR":
        text = f"to_json({column})::VARCHAR"
    elif kind == "DOUBLE":
        text = f"CASE WHEN isfinite({column}) THEN {column}::VARCHAR ELSE {quoted(MARK)} END"
        return f"CASE WHEN {column} IS NULL THEN 'null' ELSE {text} END"
    else:
        text = f"{column}::VARCHAR"
    return f"coalesce({text}, 'null')"


def _same(names: tuple[str, ...]) -> dict[str, str]:
    return {name: name for name in names}


_LINE_MOMENT = (
    "replace(strftime(timezone('UTC', o.started_at), '\"%Y-%m-%dT%H:%M:%S.%fZ\"'), '.000000Z', 'Z')"
)
_SOURCE = _members(
    "operations", {"kind": "source_kind", "company_id": "company_id"}, "o"
) | _members("operations", {name: f"source_{name}" for name in SOURCE}, "o")
_OPERATION = _object(
    _members("operations", _same(PLAIN), "o")
    | {
        "started_at": _LINE_MOMENT,
        "request": "o.request",
        "scope": _object(_members("operations", _same(SCOPE), "o")),
        "source": f"CASE WHEN o.source_kind IS NULL THEN 'null' ELSE {_object(_SOURCE)} END",
        "usage": "'[', u.list, ']'",
        "handles": "'[', h.list, ']'",
        "absent": "coalesce(o.absent, '{}')",
        "digest": _value("o.digest", "VARCHAR"),
    }
)
# As Python's `str` writes a `Decimal`: with an exponent below a millionth.
_DOLLARS = """
    CASE WHEN p.cost_pico IS NULL THEN 'null'
    WHEN p.cost_pico = 0 THEN '"0"'
    WHEN p.cost_pico < 1000000 THEN concat('"',
        regexp_replace(rtrim(p.cost_pico::VARCHAR, '0'), '^(.)(.)', '\\1.\\2'),
        'E-', 13 - length(p.cost_pico::VARCHAR), '"')
    ELSE concat('"', p.cost_pico // 1000000000000,
        rtrim(rtrim('.' || lpad((p.cost_pico % 1000000000000)::VARCHAR, 12, '0'), '0'), '.'), '"')
    END
"""
_USAGE = _object(
    _members("usage", _same(USAGE), "p") | {"cost_usd": _DOLLARS, "details": "p.details"}
)
_HANDLE = _object(
    _members("handles", _same(HANDLE), "p")
    | {
        "binding_key": "CASE WHEN p.binding_key = o.binding_key THEN 'null' "
        f"ELSE {_value('p.binding_key', 'VARCHAR')} END"
    }
)
