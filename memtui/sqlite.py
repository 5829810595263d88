"""What memtui needs of each connection to an SQLite file."""

from __future__ import annotations

import sqlite3
import time

_POLL_S = 0.01


def use_wal(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Let the file have a write-ahead log, where others may be opening it for the first time too.

    SQLite waits for nobody in this change, whatever the connection's own time-out.
    """
    until = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > until:
                raise
            time.sleep(_POLL_S)
        else:
            return


def add_lower(connection: sqlite3.Connection) -> None:
    """Let `lower()` know every script: SQLite's own knows ASCII."""
    connection.create_function("lower", 1, _lower, deterministic=True)


def _lower(value: object) -> str | None:
    return None if value is None else str(value).lower()
