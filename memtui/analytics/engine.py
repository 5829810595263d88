"""Runs DuckDB in memory for this package, and stops its queries."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from memtui.contract import Unavailable
from memtui.scratch import Scratch
from memtui.store.database import quoted

if TYPE_CHECKING:
    import duckdb

MEMORY_MB = 152
"""Memory that DuckDB may use; beyond that it spills to a private folder."""
POLL_SECONDS = 0.02
"""Interval of checking whether a stopped query has ended."""


class DuckDb:
    """One DuckDB in memory that downloads nothing, with a private folder to spill to.

    It starts when its connection is first asked for. Blocking.
    """

    def __init__(
        self, *, memory_mb: int = MEMORY_MB, zone: str = "UTC", only: Path | None = None
    ) -> None:
        """Create without starting it.

        Args:
            memory_mb: Memory that it may use; eight times that may be spilled.
            zone: The IANA name of the time zone of days.
            only: Lock it: it can open only this folder or file, and its settings cannot change.
        """
        self._memory_mb = memory_mb
        self._zone = zone
        self._only = only
        self._lock = threading.Lock()
        self._private: Scratch | None = None
        self._connection: duckdb.DuckDBPyConnection | None = None

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The first connection, for one thread's use at a time."""
        with self._lock:
            if self._connection is None:
                self._connection = self._start()
            return self._connection

    @property
    def private_folder(self) -> Path:
        """A private folder, removed on close, for spilled data and readers' files."""
        if self._private is None:
            self._private = Scratch()
        return self._private.path

    def _start(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        connection = duckdb.connect(
            ":memory:",
            config={
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "python_enable_replacements": False,
                "temp_directory": str(self.private_folder),
                **self._limits(),
            },
        )
        connection.execute(f"SET GLOBAL TimeZone = {quoted(self._zone)}")
        if self._only is not None:
            kind = "paths" if self._only.is_file() else "directories"
            connection.execute(f"SET allowed_{kind} = [{quoted(self._only)}]")
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
        return connection

    def allow(self, memory_mb: int) -> None:
        """Raise its memory limit to `memory_mb`, if it is lower."""
        with self._lock:
            if memory_mb > self._memory_mb:
                self._memory_mb = memory_mb
                if self._connection is not None:
                    for name, value in self._limits().items():
                        self._connection.execute(f"SET GLOBAL {name} = {quoted(value)}")

    def _limits(self) -> dict[str, str]:
        return {
            "memory_limit": f"{self._memory_mb}MB",
            "max_temp_directory_size": f"{8 * self._memory_mb}MB",
        }

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a connection to the same database for one thread's use."""
        return self.connection.cursor()

    @contextmanager
    def asking(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a connection to the same database; its errors become the contract's."""
        with guarded(), self.cursor() as cursor:
            yield cursor

    def close(self) -> None:
        """Free the memory and the spilled files."""
        with self._lock:
            if self._connection is not None:
                _close(self._connection)
            if self._private is not None:
                self._private.close()
            self._connection = self._private = None


def _close(connection: duckdb.DuckDBPyConnection) -> None:
    """Close a connection, stopping another thread's query on it first."""
    import duckdb

    while True:
        try:
            connection.close()
        except duckdb.ResourceInUseException:
            with suppress(duckdb.ConnectionException):  # it is being closed already
                connection.interrupt()
            time.sleep(POLL_SECONDS)
        else:
            return


@contextmanager
def opened(*, memory_mb: int = MEMORY_MB) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield the connection of a DuckDB, which is closed after the block."""
    engine = DuckDb(memory_mb=memory_mb)
    try:
        with guarded():
            yield engine.connection
    finally:
        engine.close()


@contextmanager
def guarded() -> Iterator[None]:
    """Turn errors of DuckDB and the file system into the contract's."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise Unavailable(
            f"The operation log could not be read ({first_line(error)}); check the disk, and "
            "`memtui audit verify` names the operation that is damaged."
        ) from error
    except OSError as error:
        raise Unavailable(
            f"The archive could not be read or written ({error.strerror}); check its disk and "
            "permissions."
        ) from error


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class Interrupted(Unavailable):
    """A newer query replaced this one."""

    def __init__(self) -> None:
        super().__init__("A newer query replaced this one.")


class Stop:
    """Stops the work of another thread, which then raises `Interrupted`, or ends its search."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self.search_ended = False
        """Set, it ends a search after the part that is read now; what was found stays."""
        self._cursor: duckdb.DuckDBPyConnection | None = None

    @property
    def stopped(self) -> bool:
        """Whether it was stopped."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Stop it now, or as soon as it begins."""
        self._stopped.set()
        if self._cursor is not None:
            self._cursor.interrupt()

    def check(self) -> None:
        """Raise `Interrupted` if it was stopped."""
        if self.stopped:
            raise Interrupted

    @contextmanager
    def reaching(self, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Let `stop` interrupt the cursor's queries in the block."""
        import duckdb

        self._cursor = cursor
        self.check()
        try:
            with guarded():
                yield
        except Unavailable as error:
            if isinstance(error.__cause__, duckdb.InterruptException):
                raise Interrupted from error
            raise
        finally:
            self._cursor = None
        self.check()
