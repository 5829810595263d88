"""Settings for SQLite connections: write-ahead log, and a `lower()` for Unicode."""

import sqlite3
import time

_POLL_S = 0.01


def use_wal(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Switch the file to a write-ahead log; retry while another process is doing the same.

    SQLite ignores the connection's time-out in this change, so this waits up to `timeout_s`.
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
    """Replace `lower()` by one for every script; SQLite's own knows only ASCII."""
    connection.create_function("lower", 1, _lower, deterministic=True)


def _lower(value: object) -> str | None:
    return None if value is None else str(value).lower()
