"""Any question in SQL about one company's log, read-only and locked in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memtui.analytics.ceiling import memory_ceiling
from memtui.analytics.engine import Engine, first_line, guarded
from memtui.analytics.layout import Folder
from memtui.analytics.operations import text_of
from memtui.analytics.rows import Rows
from memtui.analytics.statement import check_statement
from memtui.analytics.views import RECORDS, VIEWS, load_bindings, select_list
from memtui.contract import Invalid, Model
from memtui.store.database import Database
from memtui.store.sight import Sight

if TYPE_CHECKING:
    import duckdb

TIME_LIMIT_S = 60.0
MEMORY_MB = 512
MAX_ROWS = 10_000

_NAMES = frozenset(VIEWS)
_NO_LIMIT = 2**62
_CEILING = 4
"""How many times what DuckDB may use the whole process may grow while a statement runs."""


class SqlAnswer(Model):
    """What a statement returned."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    """DuckDB's, by column."""
    rows: tuple[tuple[Any, ...], ...]
    truncated: bool
    """True: there were more rows than asked for."""


class SqlConsole:
    """A DuckDB that holds what may be seen of one company, and can reach nothing else. Blocking.

    Views (`memtui.analytics.views.VIEWS` lists their columns): `operations`, `usage`, `handles`,
    `records` and `bindings`. Every run sees what was logged until it began.
    """

    def __init__(
        self,
        database: Database,
        root: Path,
        company_id: str,
        *,
        zone: str = "UTC",
        memory_mb: int = MEMORY_MB,
        sight: Sight | None = None,
    ) -> None:
        self._database = database
        self._company_id = company_id
        self._memory_mb = memory_mb
        folder = Folder(root, company_id).path.absolute()
        self._engine = Engine(memory_mb=memory_mb, zone=zone, only=folder)
        self._rows = Rows(database, root, company_id, self._engine, sight=sight)
        self._preparing = threading.Lock()
        self._running: set[duckdb.DuckDBPyConnection] = set()

    def run(
        self, sql: str, *, time_limit_s: float = TIME_LIMIT_S, max_rows: int = MAX_ROWS
    ) -> SqlAnswer:
        """Run one statement that reads.

        Args:
            sql: SELECT, WITH … SELECT, VALUES, DESCRIBE or SUMMARIZE, in DuckDB's dialect.
            time_limit_s: Seconds after which it is stopped.
            max_rows: The most rows to return.

        Raises:
            Denied: the statement would do more than read the views.
            Invalid: it is wrong, takes too long or too much memory, or was cancelled.
            Unavailable: the log cannot be read.
        """
        with guarded():
            cursor = self._engine.cursor()
        try:
            check_statement(cursor, sql, _NAMES)
            self._prepare()
            return self._ask(cursor, sql, time_limit_s, max_rows)
        finally:
            cursor.close()

    def cancel(self) -> None:
        """Stop every statement that runs."""
        for cursor in tuple(self._running):
            cursor.interrupt()

    def close(self) -> None:
        """Free the memory."""
        self._engine.close()

    def _prepare(self) -> None:
        with self._preparing, guarded():
            manifest, last = self._rows.refresh()
            duck = self._engine.connection
            load_bindings(duck, self._database, self._company_id)
            for view in ("operations", "usage", "handles"):
                rows = self._rows.everything(manifest, view, select_list(view), last=last)
                if self._rows.visible:
                    # A limit that limits nothing: DuckDB moves no condition of the statement's
                    # below it, which could fail on a hidden row and show it in its message.
                    rows = f"SELECT * FROM ({rows}) LIMIT {_NO_LIMIT}"
                duck.execute(f"CREATE OR REPLACE VIEW {view} AS {rows}")
            duck.execute(f"CREATE OR REPLACE VIEW records AS {RECORDS}")

    def _ask(
        self, cursor: duckdb.DuckDBPyConnection, sql: str, time_limit_s: float, max_rows: int
    ) -> SqlAnswer:
        late = threading.Event()

        def stop() -> None:
            late.set()
            cursor.interrupt()

        timer = threading.Timer(time_limit_s, stop)
        timer.daemon = True
        self._running.add(cursor)
        timer.start()
        try:
            with memory_ceiling(_CEILING * self._memory_mb), _explained(late, time_limit_s):
                cursor.execute(sql)
                described = cursor.description or []
                rows = cursor.fetchmany(max_rows + 1)
        finally:
            timer.cancel()
            self._running.discard(cursor)
        return SqlAnswer(
            columns=tuple(_plain(str(column[0])) for column in described),
            types=tuple(str(column[1]) for column in described),
            rows=tuple(tuple(map(_plain, row)) for row in rows[:max_rows]),
            truncated=len(rows) > max_rows,
        )


@contextmanager
def _explained(late: threading.Event, time_limit_s: float) -> Iterator[None]:
    """Turn what DuckDB says of a person's statement into a sentence."""
    import duckdb

    try:
        yield
    except duckdb.InterruptException as error:
        if late.is_set():
            raise Invalid(
                f"The statement ran for more than {time_limit_s:g} s and was stopped; "
                "narrow it down or raise the limit."
            ) from error
        raise Invalid("The statement was cancelled.") from error
    except (duckdb.OutOfMemoryException, MemoryError) as error:
        raise Invalid(
            "The statement needs more memory than it may have; narrow it down or raise the limit."
        ) from error
    except duckdb.Error as error:
        message = first_line(error).rstrip(".")
        raise Invalid(f"The statement does not work: {message}.") from error
    except (OverflowError, ValueError) as error:
        raise Invalid(
            "The answer has a date or number that cannot be shown; cast it to VARCHAR."
        ) from error


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return text_of(value)
