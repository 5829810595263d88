"""The index's SQLite file: opened, versioned, and thrown away when it cannot be trusted."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from memtui.contract import Unavailable

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


class Database:
    """A pool of connections to the index file, each used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._idle: list[tuple[int, sqlite3.Connection]] = []
        self._guard = threading.Lock()
        self._is_closed = False

    @contextlib.contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection. Raises `Unavailable` if the index cannot be opened at all."""
        inode, connection = self._take()
        try:
            yield connection
        finally:
            if connection.in_transaction:
                connection.rollback()
            with self._guard:
                keep = not self._is_closed and inode == _inode(self.path)
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
        import filelock

        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = filelock.FileLock(
                self.path.with_suffix(".lock"), timeout=_BUSY_SECONDS, mode=0o600,
                poll_interval=0.01, preserve_lock_file=True,
            )  # fmt: skip
            with lock:
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
                connection = self._ready()
                return _inode(self.path), connection
        except (OSError, sqlite3.Error, filelock.Timeout) as error:
            raise Unavailable(f"The index {self.path} cannot be opened: {error}.") from error

    def _ready(self) -> sqlite3.Connection:
        """Open the file, or throw it away and begin anew if it is not ours, or broken."""
        connection = self._connect()
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version == VERSION:
                connection.execute("SELECT count(*) FROM files").fetchone()
                return connection
            if version == 0 and not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                _create(connection)
                return connection
        except sqlite3.OperationalError as error:
            if is_busy(error):
                connection.close()
                raise
        except sqlite3.DatabaseError:
            pass
        connection.close()
        self._remove()
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = self._connect()
        _create(connection)
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.row_factory = sqlite3.Row
        return connection

    def discard(self) -> None:
        """Throw the index away; the next connection begins an empty one."""
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


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process merely holds the index."""
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0
