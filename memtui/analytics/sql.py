"""Run a person's SQL over one company's log, read-only and isolated; the views that it reads."""

from __future__ import annotations

import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memtui.analytics.engine import POLL_SECONDS, first_line, guarded
from memtui.analytics.layout import TABLES
from memtui.analytics.rows import LogDatabase, text_of
from memtui.analytics.source import columns_of, stored_text
from memtui.analytics.statement import check_statement
from memtui.contract import Invalid, Model, Unavailable, field_docstrings
from memtui.store import bindings
from memtui.store.columns import UtcMicroseconds
from memtui.store.database import Database
from memtui.store.operation import INTERNAL, OperationDraft, why_damaged
from memtui.store.visibility import Visibility

if TYPE_CHECKING:
    import duckdb

_USD = "cost_pico * 0.000000000001::DECIMAL(13, 12) AS cost_usd"
_SURROGATE = r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_MEANINGS = tomllib.loads(Path(__file__).with_name("views.toml").read_text("utf-8"))
_OF_FIELDS = field_docstrings(OperationDraft)
_BINDINGS = {
    "key": "VARCHAR",
    "provider_key": "VARCHAR",
    "enabled": "BOOLEAN",
    "read_only": "BOOLEAN",
    "created_at": "TIMESTAMPTZ",
}
_RETURNED = "o.operation_type IN ('query', 'context')"
_OPENED = "o.operation_type IN ('get', 'history') AND NOT o.internal"
_FORGOTTEN = (
    "coalesce(arg_max(o.operation_type = 'forget' OR (o.operation_type = 'undo' "
    'AND contains(o.request, \'"type":"write"\')), h.seq) '
    "FILTER (o.operation_type IN ('write', 'correct', 'forget', 'undo')), false)"
)
_RECORDS = {
    "binding_key": "h.binding_key",
    "provider_record_id": "h.provider_record_id",
    "provider_key": "arg_max(h.provider_key, h.seq)",
    "first_seen": "min(o.started_at)",
    "last_seen": "max(o.started_at)",
    "written_at": "min(o.started_at) FILTER (o.operation_type = 'write')",
    "query_count": f"count(*) FILTER ({_RETURNED})",
    "last_query_at": f"max(o.started_at) FILTER ({_RETURNED})",
    "best_rank": f"min(h.rank) FILTER ({_RETURNED})",
    "best_score": f"max(h.score) FILTER ({_RETURNED})",
    "open_count": f"count(*) FILTER ({_OPENED})",
    "last_opened_at": f"max(o.started_at) FILTER ({_OPENED})",
    "correction_count": "count(*) FILTER (o.operation_type = 'correct')",
    "last_corrected_at": "max(o.started_at) FILTER (o.operation_type = 'correct')",
    "forgotten": _FORGOTTEN,
    "ghost": "bool_or(h.ghost)",
}
RECORDS = (
    f"SELECT {', '.join(f'{sql} AS {name}' for name, sql in _RECORDS.items())} "
    "FROM handles h JOIN operations o ON o.seq = h.seq WHERE o.status = 'ok' "
    "GROUP BY h.binding_key, h.provider_record_id"
)
"""The query of the view `records`, over the views of the log: successful operations only."""


def _shown(table: str) -> list[str]:
    """Return the columns of a table that a statement can read."""
    return [name for name in columns_of(table) if name not in {"company_id", "salt", "salts"}]


def _meanings(table: str) -> dict[str, str]:
    known = _OF_FIELDS | _MEANINGS["derived"] | _MEANINGS["log"]
    return {name: known[name] for name in _shown(table)}


VIEWS: dict[str, dict[str, str]] = {
    "operations": _meanings("operations") | _MEANINGS["derived"],
    "usage": _meanings("usage"),
    "handles": _meanings("handles"),
    "records": _MEANINGS["records"],
    "bindings": _MEANINGS["bindings"],
}
"""Every view and its columns, in order, with what they mean. A binding's config is left out."""


def selected(name: str) -> str:
    """Return the SQL of one column of a view, over the columns of `memtui.analytics.source`."""
    if name == "cost_usd":
        return _USD
    if name == "internal":
        return f"{INTERNAL} AS internal"
    if name in {"request", "details"}:
        # Drop lone surrogates: one of them would make every statement about the column fail.
        return (
            f"CASE WHEN contains({name}, '\\ud') "
            f"THEN regexp_replace({name}, '({_PAIR})|{_SURROGATE}', '\\1', 'g') "
            f"ELSE {name} END AS {name}"
        )
    return name


def _load_bindings(duck: Any, database: Database, company_id: str) -> None:
    """Replace the rows of the table `bindings` by the company's bindings."""
    with database.read() as connection:
        rows = bindings.bindings(connection, company_id)
    columns = ", ".join(f"{name} {kind}" for name, kind in _BINDINGS.items())
    duck.execute(f"CREATE OR REPLACE TABLE bindings ({columns})")
    for row in rows:
        texts = stored_text(row.key), stored_text(row.provider_key)
        duck.execute(
            "INSERT INTO bindings VALUES (?, ?, ?, ?, make_timestamptz(?))",
            [*texts, row.enabled, row.read_only, UtcMicroseconds.stored(row.created_at)],
        )


TIME_LIMIT_S = 60.0
MEMORY_MB = 512
MAX_ROWS = 10_000

_NO_LIMIT = 2**62
CEILING = 4
"""While a statement runs, the process may grow by so many times DuckDB's memory limit."""


class SqlAnswer(Model):
    """The result of a statement."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    """DuckDB's type of each column."""
    rows: tuple[tuple[Any, ...], ...]
    truncated: bool
    """True: there were more rows than `max_rows`."""


class SqlConsole(LogDatabase):
    """A DuckDB with the visible log of one company, which can read nothing else. Blocking.

    Views (`VIEWS` lists their columns): `operations`, `usage`, `handles`, `records` and `bindings`.
    Every run sees the operations logged before it began. It is a separate DuckDB from that of log
    views and figures: its locks apply to a whole DuckDB, a statement may use up the memory, and an
    internal error that a statement provokes makes the whole DuckDB unusable.
    """

    kept = {table: _shown(table) for table in TABLES}

    def __init__(
        self,
        database: Database,
        root: Path,
        company_id: str,
        *,
        zone: str = "UTC",
        memory_mb: int = MEMORY_MB,
        visibility: Visibility | None = None,
    ) -> None:
        super().__init__(
            database,
            root,
            company_id,
            visibility=visibility,
            zone=zone,
            memory_mb=memory_mb,
            locked=True,
        )
        self._ceiling_mb = CEILING * memory_mb
        self._preparing = threading.Lock()
        self._running: dict[duckdb.DuckDBPyConnection, threading.Event] = {}
        """The cursors in use, each with whether its statement was cancelled."""

    def run(
        self, sql: str, *, time_limit_s: float = TIME_LIMIT_S, max_rows: int = MAX_ROWS
    ) -> SqlAnswer:
        """Run one statement that reads.

        Args:
            sql: SELECT, WITH … SELECT, VALUES, DESCRIBE or SUMMARIZE, in DuckDB's dialect.
            time_limit_s: Seconds after which the statement is stopped.
            max_rows: The most rows to return.

        Raises:
            Denied: the statement would do more than read the views.
            Invalid: it is wrong, takes too long or too much memory, or was cancelled.
            Unavailable: the log cannot be read, or the statement fails on JSON that is damaged.
        """
        with self.asking() as cursor:
            check_statement(cursor, sql, frozenset(VIEWS))
            cancelled = self._running[cursor] = threading.Event()
            try:
                self._prepare()
                if cancelled.is_set():
                    raise Invalid("The statement was cancelled.")
                return self._ask(cursor, sql, time_limit_s, max_rows)
            finally:
                del self._running[cursor]

    def cancel(self) -> None:
        """Stop every statement that is running or about to run."""
        for cursor, cancelled in tuple(self._running.items()):
            cancelled.set()
            cursor.interrupt()

    def close(self) -> None:
        """Stop every statement, wait for its end, and free the memory.

        A thread that is inside DuckDB when the process ends would abort it.
        """
        while self._running:
            self.cancel()
            time.sleep(POLL_SECONDS)
        super().close()

    def _prepare(self) -> None:
        with self._preparing, guarded():
            manifest, last = self.refresh()
            duck = self.connection
            _load_bindings(duck, self.database, self.folder.company_id)
            for view in ("operations", "usage", "handles"):
                columns = ", ".join(map(selected, VIEWS[view]))
                rows = self.everything(manifest, view, columns, last=last)
                if self.visible:
                    # A LIMIT without effect: DuckDB moves none of the statement's conditions below
                    # it, where they could fail on a hidden row and show it in the message.
                    rows = f"SELECT * FROM ({rows}) LIMIT {_NO_LIMIT}"
                duck.execute(f"CREATE OR REPLACE VIEW {view} AS {rows}")
            duck.execute(f"CREATE OR REPLACE VIEW records AS {RECORDS}")

    def _ask(
        self, cursor: duckdb.DuckDBPyConnection, sql: str, time_limit_s: float, max_rows: int
    ) -> SqlAnswer:
        with limited(cursor, time_limit_s, self._ceiling_mb), _damage_named(cursor):
            cursor.execute(sql)
            described = cursor.description or []
            rows = cursor.fetchmany(max_rows + 1)
        return SqlAnswer(
            columns=tuple(_plain(str(column[0])) for column in described),
            types=tuple(str(column[1]) for column in described),
            rows=tuple(tuple(map(_plain, row)) for row in rows[:max_rows]),
            truncated=len(rows) > max_rows,
        )


def damaged_among(operations: str, usage: str) -> str:
    """Return the query of the operations whose JSON is damaged.

    `operations` and `usage` are SQL for FROM, with the columns of the views, so without lone
    surrogates, which are no damage.
    """
    return f"""
        SELECT seq FROM {operations} WHERE NOT json_valid(request) OR NOT json_valid(absent)
            OR NOT starts_with(request, '{{')
        UNION SELECT seq FROM {usage} WHERE NOT json_valid(details)
            AND seq IN (SELECT seq FROM {operations})
    """


@contextmanager
def _damage_named(cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """If a statement fails on JSON, raise `Unavailable` with the first damaged operation."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        if "Malformed JSON" in str(error):
            found = damaged_among("operations", "usage")
            [seq] = cursor.execute(f"SELECT min(seq) FROM ({found})").fetchone() or (None,)
            if seq is not None:
                raise Unavailable(why_damaged(seq)) from error
        raise


@contextmanager
def limited(
    cursor: duckdb.DuckDBPyConnection,
    time_limit_s: float,
    ceiling_mb: int,
    *,
    what: str = "statement",
    remedy: str = "narrow it down or raise the limit",
) -> Iterator[None]:
    """Limit the time and memory of a person's SQL in the block, and turn its errors into `Invalid`.

    Args:
        cursor: The connection that runs the SQL.
        time_limit_s: Seconds after which it is stopped.
        ceiling_mb: By how much the process may grow.
        what: The name of the SQL in errors.
        remedy: The advice in errors about a limit.

    Raises:
        Invalid: the SQL is wrong, takes too long or too much memory, or was cancelled.
    """
    import duckdb

    late = threading.Event()

    def stop() -> None:
        late.set()
        cursor.interrupt()

    timer = threading.Timer(time_limit_s, stop)
    timer.daemon = True
    timer.start()
    try:
        with memory_ceiling(ceiling_mb):
            yield
    except duckdb.InterruptException as error:
        if late.is_set():
            raise Invalid(
                f"The {what} ran for more than {time_limit_s:g} s and was stopped; {remedy}."
            ) from error
        raise Invalid(f"The {what} was cancelled.") from error
    except (duckdb.OutOfMemoryException, MemoryError) as error:
        raise Invalid(f"The {what} needs more memory than it may have; {remedy}.") from error
    except duckdb.Error as error:
        message = first_line(error).rstrip(".")
        raise Invalid(f"The {what} does not work: {message}.") from error
    except (OverflowError, ValueError) as error:
        raise Invalid(
            "The answer has a date or number that cannot be shown; cast it to VARCHAR."
        ) from error
    finally:
        timer.cancel()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return text_of(value)


_STATUS = Path("/proc/self/status")
_lock = threading.Lock()
_blocks = 0
_before = 0


@contextmanager
def memory_ceiling(extra_mb: int) -> Iterator[None]:
    """Limit this process's memory during the block to `extra_mb` above its present size.

    DuckDB's own limit does not count the texts and lists of a single step of an expression, and a
    step cannot be cancelled. With this limit such a step fails, rather than the machine. It applies
    to all threads, so `extra_mb` must leave room for theirs. Of concurrent blocks, the first one's
    limit applies. Does nothing without `/proc`.
    """
    if not _STATUS.exists():
        yield
        return
    import resource

    global _blocks, _before  # noqa: PLW0603 — a process has one limit
    kind = resource.RLIMIT_DATA
    with _lock:
        _blocks += 1
        if _blocks == 1:
            _before, hard = resource.getrlimit(kind)
            wanted = _used_bytes() + extra_mb * 2**20
            others = [limit for limit in (_before, hard) if limit != resource.RLIM_INFINITY]
            resource.setrlimit(kind, (min([wanted, *others]), hard))
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if _blocks == 0:
                resource.setrlimit(kind, (_before, resource.getrlimit(kind)[1]))


def _used_bytes() -> int:
    lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))
