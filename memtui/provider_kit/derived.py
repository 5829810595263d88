"""A SQLite file for derived data, such as an index.

A damaged file is deleted and created anew. One that cannot be opened or written, as on a full disk,
may be sound, and is left alone.
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

from memtui.contract import Unavailable

T = TypeVar("T")

_BUSY_SECONDS = 30.0
_REPLACED_OFTEN = 5
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_UNUSABLE = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
     sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_NOLFS}
)  # fmt: skip


class Broken(Exception):
    """The database cannot be used; the message says why.

    `is_damaged`: its content cannot be trusted; otherwise only access failed.
    """

    def __init__(self, message: str, *, is_damaged: bool = False) -> None:
        super().__init__(message)
        self.is_damaged = is_damaged


_CACHE_KB = 16_000


class DerivedDatabase:
    """One SQLite connection that threads use in turn. Without a path it is in memory."""

    def __init__(
        self,
        path: Path | None,
        schema: str,
        *,
        version: int,
        what: str,
        synchronous: str = "FULL",
        functions: Mapping[str, tuple[int, Callable[..., Any]]] | None = None,
    ) -> None:
        """Use the file at `path`; one of another `version` is created anew.

        `what` begins the error messages; the path follows. `functions`: SQL functions by name,
        each with its number of arguments.
        """
        self._path, self._schema, self._version = path, schema, version
        self._where = f"{what} {path or 'in memory'}"
        self._synchronous = synchronous
        self._functions = functions or {}
        self._turn = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        """Inode of the connected file; another process may replace the file."""
        self._is_closed = False

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on the connection; run it again where another process replaced the file.

        `work` must commit; anything uncommitted is rolled back.

        Raises:
            Broken: the file is damaged, or cannot be used.
            Unavailable: another process locks it for too long, or replaces it again and again.
        """
        with self._turn:
            for _ in range(_REPLACED_OFTEN):
                connection = self._opened()
                try:
                    return work(connection)
                except sqlite3.DatabaseError as error:
                    if self._inode == self._inode_now():
                        raise self._fault(error) from error
                finally:
                    self._give_back(connection)
        raise Unavailable(
            f"{self._where} keeps being replaced by another program; try again later."
        )

    def discard(self) -> None:
        """Delete the file; the next call creates it anew. Raises `Broken`."""
        with self._turn:
            self._drop()
            if self._path is not None:
                with self._locked(self._path):
                    _remove(self._path)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        with self._turn:
            self._is_closed = True
            self._drop()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is not None and self._inode == self._inode_now():
            return self._connection
        self._drop()
        path = self._path
        if path is None:
            self._connection = self._created(":memory:")
            return self._connection
        with self._locked(path):
            connection = self._connected(path)
            if not self._is_ours(connection):
                connection.close()
                _remove(path)
                connection = self._created(path)
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
            self._connection, self._inode = connection, self._inode_now()
        return connection

    def _give_back(self, connection: sqlite3.Connection) -> None:
        try:
            connection.rollback()
        except sqlite3.Error:
            self._drop()
        if self._is_closed:  # the call ended after `close`
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._inode = None, 0

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """Whether the file is sound, of this version, and not empty."""
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            holds = connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.DatabaseError as error:
            if is_damaged(error):
                return False
            connection.close()
            raise
        return holds is not None and version == self._version

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        """Lock out other processes that would open or delete the file."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Not filelock: its import costs a query three hundredths of its time.
            descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                self._take(descriptor)
                yield
            finally:
                os.close(descriptor)
        except OSError as error:
            raise Broken(f"{path}: {error.strerror or error}") from error
        except sqlite3.Error as error:
            raise self._fault(error) from error

    def _take(self, descriptor: int) -> None:
        end = monotonic() + _BUSY_SECONDS
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if monotonic() > end:
                    message = f"{self._where} is locked by another program; try again."
                    raise Unavailable(message) from error
                sleep(0.01)

    def _connected(self, path: Path | str) -> sqlite3.Connection:
        if isinstance(path, Path):  # SQLite itself would make it readable by others
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.row_factory = sqlite3.Row
        for name, (arguments, function) in self._functions.items():
            connection.create_function(name, arguments, function, deterministic=True)
        return connection

    def _created(self, path: Path | str) -> sqlite3.Connection:
        connection = self._connected(path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(
            f"BEGIN; {self._schema} PRAGMA user_version = {self._version}; COMMIT;"
        )
        return connection

    def _fault(self, error: sqlite3.Error) -> Broken | Unavailable:
        """Return the error to raise for an error of SQLite."""
        if is_damaged(error) or _code(error) in _UNUSABLE:
            return Broken(f"{self._path or 'in memory'}: {error}", is_damaged=is_damaged(error))
        return Unavailable(f"{self._where} cannot answer now ({error}); try again.")

    def _inode_now(self) -> int:
        try:
            return self._path.stat().st_ino if self._path else 0
        except OSError:
            return 0


def scrub(connection: sqlite3.Connection) -> bool:
    """Remove deleted rows from freed pages and from the write-ahead log.

    Returns False where another process still uses that log.
    """
    connection.execute("VACUUM")
    [busy, *_] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def is_damaged(error: Exception) -> bool:
    """Whether the file's content cannot be trusted, so that it must be deleted."""
    lacks = isinstance(error, sqlite3.OperationalError) and "no such " in str(error)
    return lacks or _code(error) in _DAMAGED


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
