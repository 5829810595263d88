"""The index's SQLite file: opened, versioned, thrown away when damaged, done without when full."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from memtui.contract import Unavailable
from memtui.provider_kit import is_damaged, is_unusable

T = TypeVar("T")
VERSION = 1
_BUSY_SECONDS = 30.0
_COLUMNS = "title, text, topic, tags, names"
_NEW = "new.title, new.text, new.topic, new.tags, new.names"
_OLD = "old.title, old.text, old.topic, old.tags, old.names"
_SCHEMA = f"""
CREATE TABLE files (
  path TEXT PRIMARY KEY, signature TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE problems (
  path TEXT NOT NULL, shown TEXT NOT NULL, line INTEGER NOT NULL, message TEXT NOT NULL
);
CREATE INDEX problems_path ON problems (path);
CREATE TABLE written (
  path TEXT PRIMARY KEY, digest TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE records (
  rowid INTEGER PRIMARY KEY,
  id TEXT NOT NULL, path TEXT NOT NULL, line INTEGER NOT NULL, area TEXT NOT NULL,
  kind TEXT NOT NULL, text TEXT NOT NULL, revision TEXT NOT NULL,
  project_id TEXT, agent_id TEXT, subject_id TEXT, issue_id TEXT, run_id TEXT,
  topic TEXT, tags TEXT NOT NULL, title TEXT,
  created INTEGER, updated INTEGER, expires INTEGER, pinned INTEGER NOT NULL,
  created_by TEXT, source TEXT, source_kind TEXT, metadata TEXT NOT NULL,
  valid_from INTEGER, valid_to INTEGER, is_current INTEGER NOT NULL,
  names TEXT NOT NULL, fact_key TEXT, size INTEGER NOT NULL
);
CREATE INDEX records_path ON records (path);
CREATE INDEX records_id ON records (id);
CREATE INDEX records_updated ON records (updated, id);
CREATE INDEX records_key ON records (fact_key) WHERE fact_key IS NOT NULL;
CREATE VIRTUAL TABLE search USING fts5 (
  {_COLUMNS}, content = 'records', content_rowid = 'rowid',
  tokenize = "porter unicode61 remove_diacritics 2"
);
CREATE TRIGGER records_added AFTER INSERT ON records BEGIN
  INSERT INTO search (rowid, {_COLUMNS}) VALUES (new.rowid, {_NEW});
END;
CREATE TRIGGER records_gone AFTER DELETE ON records BEGIN
  INSERT INTO search (search, rowid, {_COLUMNS}) VALUES ('delete', old.rowid, {_OLD});
END;
"""  # noqa: S608  # put together from constants

_REPLACED_OFTEN = 5


class Broken(Exception):
    """The index cannot go on as it is; its text says why."""


class Damaged(Broken):
    """What the file holds cannot be trusted: throw it away."""


class Unusable(Broken):
    """The file cannot be opened or written, as on a full disk; what it holds may be sound."""


class Database:
    """A pool of connections to the index file, each used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._idle: list[tuple[int, sqlite3.Connection]] = []
        self._guard = threading.Lock()
        self._is_closed = False

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on a connection; once more where another process began the file anew.

        Raises:
            Broken: the file is damaged, or cannot be used.
            Unavailable: it is held by another process for too long.
        """
        for _ in range(_REPLACED_OFTEN):
            inode, connection = self._take()
            try:
                return work(connection)
            except sqlite3.DatabaseError as error:
                if inode == _inode(self.path):
                    raise _fault(self.path, error) from error
            finally:
                self._give_back(inode, connection)
        raise Unavailable(f"The index {self.path} is replaced again and again; try again.")

    def _give_back(self, inode: int, connection: sqlite3.Connection) -> None:
        is_sound = _rolled_back(connection)
        with self._guard:
            keep = is_sound and not self._is_closed and inode == _inode(self.path)
            if keep:
                self._idle.append((inode, connection))
        if not keep:
            connection.close()

    def _take(self) -> tuple[int, sqlite3.Connection]:
        current = _inode(self.path)
        stale: list[sqlite3.Connection] = []
        found: tuple[int, sqlite3.Connection] | None = None
        with self._guard:
            while self._idle and found is None:
                inode, connection = self._idle.pop()
                if inode == current:
                    found = inode, connection
                else:
                    stale.append(connection)
        for connection in stale:
            connection.close()
        return found or self._open()

    def _open(self) -> tuple[int, sqlite3.Connection]:
        with self._locked():
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            connection = self._ready()
            return _inode(self.path), connection

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep every other process from opening the file, or from throwing it away."""
        import filelock

        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with filelock.FileLock(
                self.path.with_suffix(".lock"), timeout=_BUSY_SECONDS, mode=0o600,
                poll_interval=0.01, preserve_lock_file=True,
            ):  # fmt: skip
                yield
        except filelock.Timeout as error:
            raise Unavailable(f"The index {self.path} is held by another program.") from error
        except OSError as error:
            raise Unusable(f"{self.path}: {error.strerror or error}") from error
        except sqlite3.Error as error:
            raise _fault(self.path, error) from error

    def _ready(self) -> sqlite3.Connection:
        """Open the file, or throw it away and begin anew if it is not ours, or damaged."""
        connection = _connected(self.path)
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version == VERSION:
                connection.execute("SELECT count(*) FROM files").fetchone()
                return connection
            if version == 0 and not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                _create(connection)
                return connection
        except sqlite3.DatabaseError as error:
            if not isinstance(_fault(self.path, error), Damaged):
                connection.close()
                raise
        connection.close()
        self._remove()
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = _connected(self.path)
        _create(connection)
        return connection

    def discard(self) -> None:
        """Throw the index away; the next connection begins an empty one.

        Raises:
            Unusable: the file cannot be removed.
        """
        with self._locked():
            self._remove()

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def close(self) -> None:
        """Close every idle connection; those lent out close when they come back."""
        with self._guard:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()


class InMemory:
    """An index for this process alone, where none can be kept in a file."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._connection = _connected(":memory:")
        _create(self._connection)

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work`. Raises as `Database.run` does."""
        with self._guard:
            try:
                return work(self._connection)
            except sqlite3.DatabaseError as error:
                raise _fault("in memory", error) from error
            finally:
                _rolled_back(self._connection)

    def discard(self) -> None:
        """Begin an empty one."""
        with self._guard:
            self._connection = _connected(":memory:")
            _create(self._connection)

    def close(self) -> None:
        """Let go of it."""
        with self._guard:
            self._connection.close()


def _connected(path: Path | str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    connection.row_factory = sqlite3.Row
    return connection


def _rolled_back(connection: sqlite3.Connection) -> bool:
    """End a transaction that was left open; False: not even that is possible."""
    try:
        if connection.in_transaction:
            connection.rollback()
    except sqlite3.Error:
        return False
    return True


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")


def _fault(where: Path | str, error: sqlite3.Error) -> Broken | Unavailable:
    """Say what an error of SQLite means for the index."""
    if is_damaged(error):
        return Damaged(f"{where}: {error}")
    if is_unusable(error):
        return Unusable(f"{where}: {error}")
    return Unavailable(f"The vault's index {where} cannot answer now ({error}); try again.")


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0
