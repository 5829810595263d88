"""What an error of SQLite says of a file that is derived, and may be begun anew."""

from __future__ import annotations

import sqlite3

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_UNUSABLE = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
     sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_NOLFS}
)  # fmt: skip


def is_damaged(error: Exception) -> bool:
    """Whether what the file holds cannot be trusted: only then it is to be thrown away."""
    lacks = isinstance(error, sqlite3.OperationalError) and "no such " in str(error)
    return lacks or _code(error) in _DAMAGED


def is_unusable(error: Exception) -> bool:
    """Whether the file cannot be opened or written, as on a full disk; it may well be sound."""
    return isinstance(error, OSError) or _code(error) in _UNUSABLE


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF
