"""Where operations wait, on disk, until a whole file was read and they can go in order of time."""

from __future__ import annotations

import json
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from memtui.contract import Unavailable
from memtui.importing.entry import Entry
from memtui.importing.values import from_microseconds, microseconds

_CACHE_KIB = 16_384
_AT_A_TIME = 500
_SCHEMA = """
CREATE TABLE waiting (
    file INTEGER NOT NULL, line INTEGER NOT NULL, moment INTEGER NOT NULL, key TEXT NOT NULL,
    foreign_id TEXT, weight INTEGER NOT NULL, body TEXT NOT NULL
)
"""
_INSERT = "INSERT INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?)"
_REPLACE = """
ON CONFLICT (key) DO UPDATE SET line = excluded.line, file = excluded.file,
    weight = excluded.weight, body = excluded.body
WHERE excluded.weight > weight
"""
_IN_ORDER = """
SELECT moment, key, foreign_id, body,
    row_number() OVER (PARTITION BY file, key ORDER BY line) AS occurrence
FROM waiting ORDER BY moment, file, line
"""


class Waiting(NamedTuple):
    """An operation that was read, and which one of those with its key in its file it is."""

    document: dict[str, Any]
    """The draft as JSON, with the moment it goes in at."""
    key: str
    occurrence: int
    foreign_id: str | None


class Staging:
    """A private file of its own, gone when it is closed. SQLite sorts it without holding it.

    It may be closed while another thread still fills or reads it: that thread's next call raises
    `Unavailable`.
    """

    def __init__(self, *, once: bool) -> None:
        """Make it.

        Args:
            once: A key is one operation, however often it is added: the heaviest of them, at the
                moment of the first.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="memtui-import-")
        self._connection = sqlite3.connect(
            Path(self._folder.name) / "waiting", isolation_level=None, check_same_thread=False
        )
        for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE_KIB}"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute(_SCHEMA)
        self._lock = threading.Lock()
        self._closed = False
        self._insert = _INSERT
        if once:
            self._connection.execute("CREATE UNIQUE INDEX waiting_key ON waiting (key)")
            self._insert += _REPLACE
        self._connection.execute("BEGIN")
        self.added = 0

    def add(self, file: int, entry: Entry) -> None:
        """Let an operation wait."""
        body = json.dumps(entry.draft.model_dump(mode="json"))
        foreign_id = entry.foreign_id
        values = (
            file,
            entry.line,
            microseconds(entry.draft.started_at),
            entry.key,
            None if foreign_id is None else json.dumps(foreign_id),
            entry.weight,
            body,
        )
        with self._in_use() as connection:
            connection.execute(self._insert, values)
        self.added += 1

    @property
    def count(self) -> int:
        """How many wait."""
        with self._in_use() as connection:
            [count] = connection.execute("SELECT count(*) FROM waiting").fetchone()
        return int(count)

    def in_order(self) -> Iterator[Waiting]:
        """Yield them by the moment they began at, then as they stand in their files."""
        with self._in_use() as connection:
            cursor = connection.execute(_IN_ORDER)
        while True:
            with self._in_use():
                rows = cursor.fetchmany(_AT_A_TIME)
            if not rows:
                return
            for moment, key, foreign_id, body, occurrence in rows:
                document = json.loads(body) | {"started_at": from_microseconds(moment)}
                foreign = None if foreign_id is None else json.loads(foreign_id)
                yield Waiting(document, key, occurrence, foreign)

    def close(self) -> None:
        """Delete the file."""
        with self._lock:
            self._closed = True
            self._connection.close()
            self._folder.cleanup()

    @contextmanager
    def _in_use(self) -> Iterator[sqlite3.Connection]:
        """SQLite must not be closed under a thread that is inside of it."""
        with self._lock:
            if self._closed:
                raise Unavailable("The import was stopped.")
            yield self._connection
