"""Stage foreign operations in a temporary database, to add them to the log sorted by time."""

import hashlib
import json
import marshal
import re
import sqlite3
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple

from memtui.contract import Unavailable
from memtui.importing.values import from_microseconds, microseconds, plain
from memtui.service.home.imports import REFERENCES, ForeignOperation
from memtui.store.operation import OperationDraft


def pack(draft: OperationDraft) -> bytes:
    """Serialise a draft without its id and its start."""
    left_out = {"operation_id", "started_at"}
    return marshal.dumps(draft.model_dump(mode="json", exclude=left_out))


def unpack(packed: bytes, operation_id: str, started_at: datetime) -> OperationDraft:
    """Return a packed draft, with this id and start."""
    rest = marshal.loads(packed)  # noqa: S302 — ours
    return OperationDraft(operation_id=operation_id, started_at=started_at, **rest)


_NAMESPACE = uuid.UUID("6f0d4a0e-0c6b-5d1c-9d0a-2f3d6a6d7c11")
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_KEPT_ID = re.compile(r"(?!\d+\Z)[A-Za-z0-9][A-Za-z0-9_.:-]{15,63}")


class ParsedOperation(NamedTuple):
    """An operation, and the key that identifies it in its log."""

    line: int
    draft: OperationDraft
    """Its `operation_id` is set later."""
    key: str
    """The same at every import of this row, from any file."""
    foreign_id: str | None = None
    weight: int = 0
    """Of several entries for one operation, the heaviest counts."""


def key_of(*parts: Any) -> str:
    """Return the digest of the values that identify a row."""
    return hashlib.sha256(_ENCODER.encode(plain(parts)).encode()).hexdigest()


def _operation_id(company_id: str, key: str, occurrence: int) -> str:
    """Return the id of the n-th row with a key, the same at every import into a company."""
    return uuid.uuid5(_NAMESPACE, f"{company_id}\n{key}\n{occurrence}").hex


_CACHE_KIB = 16_384
_AT_A_TIME = 500
_ANY_TEXT = ("utf-8", "surrogatepass")
# No SQLModel: one temporary table, into which long logs are read row by row.
_SCHEMA = """
CREATE TABLE waiting (
    file INTEGER NOT NULL, line INTEGER NOT NULL, moment INTEGER NOT NULL, key TEXT NOT NULL,
    foreign_id BLOB, weight INTEGER NOT NULL, body BLOB NOT NULL
)
"""
_INSERT = "INSERT INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?)"
_REPLACE = """
ON CONFLICT (key) DO UPDATE SET line = excluded.line, file = excluded.file,
    weight = excluded.weight, body = excluded.body
WHERE excluded.weight > weight
"""
_IN_ORDER = "SELECT moment, file, key, foreign_id, body FROM waiting ORDER BY moment, file, line"
_BY_FOREIGN_ID = "CREATE INDEX IF NOT EXISTS waiting_foreign ON waiting (foreign_id, moment)"
_NAMED = """
SELECT key FROM waiting WHERE foreign_id = :name
ORDER BY moment > :moment, abs(moment - :moment) LIMIT 1
"""
"""Of equal ids the last before a moment; an operation may begin before the one that it names."""


class Staging:
    """A temporary SQLite database that sorts the operations without loading all into memory.

    It spills to files without a name, which the system removes when this process ends, however it
    ends: so texts that are not redacted yet never outlive the import. It may be closed while
    another thread still fills or reads it: that thread's next call raises `Unavailable`.
    """

    def __init__(self, company_id: str, *, once: bool) -> None:
        """Create it.

        Args:
            company_id: The company that gets the operations.
            once: Entries with the same key are one operation: the heaviest one, at the moment of
                the first.
        """
        # A database without a name is a temporary one (https://sqlite.org/inmemorydb.html).
        self._company_id = company_id
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        # Faster, and nothing has to survive this process.
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
        self._next: list[tuple[Any, ...]] = []
        self.added = 0

    def add(self, file: int, entry: ParsedOperation) -> None:
        """Stage an operation; `file` is the number of its file."""
        foreign_id = entry.foreign_id
        self._next.append(
            (
                file,
                entry.line,
                microseconds(entry.draft.started_at),
                entry.key,
                None if foreign_id is None else foreign_id.encode(*_ANY_TEXT),
                entry.weight,
                pack(entry.draft),
            )
        )
        self.added += 1
        if self._closed or len(self._next) >= _AT_A_TIME:
            self._insert_next()

    @property
    def count(self) -> int:
        """The number of staged operations."""
        self._insert_next()
        with self._in_use() as connection:
            [count] = connection.execute("SELECT count(*) FROM waiting").fetchone()
        return int(count)

    def in_order(self) -> Iterator[ForeignOperation]:
        """Yield the operations by start, then in the order of their files and lines.

        An operation keeps its foreign id if that can serve as an id here: 16 to 64 characters, and
        no number.
        """
        self._insert_next()
        with self._in_use() as connection:
            connection.execute(_BY_FOREIGN_ID)
            cursor = connection.execute(_IN_ORDER)
        before: tuple[int, int] | None = None
        seen: Counter[str] = Counter()
        while True:
            with self._in_use():
                rows = cursor.fetchmany(_AT_A_TIME)
            if not rows:
                return
            for moment, file, key, foreign_id, body in rows:
                # Rows with the same key have the same moment, so earlier counts are not needed.
                if (moment, file) != before:
                    before = (moment, file)
                    seen.clear()
                seen[key] += 1
                own_id = _operation_id(self._company_id, key, seen[key])
                foreign = "" if foreign_id is None else foreign_id.decode(*_ANY_TEXT)
                is_kept = seen[key] == 1 and _KEPT_ID.fullmatch(foreign)
                at = from_microseconds(moment)
                draft = unpack(body, foreign if is_kept else own_id, at)
                yield self._with_others(ForeignOperation(draft, own_id), moment)

    def _with_others(self, one: ForeignOperation, moment: int) -> ForeignOperation:
        """Return an operation with our ids of those that it names."""
        named = {field: name for field in REFERENCES if (name := getattr(one.draft, field))}
        others: dict[str, str] = {}
        for name in named.values():
            asked = {"name": name.encode(*_ANY_TEXT), "moment": moment}
            with self._in_use() as connection:
                found = connection.execute(_NAMED, asked).fetchone()
            if found:
                others[name] = _operation_id(self._company_id, found[0], 1)
        fixed = {name: own for name, own in others.items() if not _KEPT_ID.fullmatch(name)}
        changes = {field: fixed[name] for field, name in named.items() if name in fixed}
        return ForeignOperation(one.draft.model_copy(update=changes), one.own_id, others)

    def close(self) -> None:
        """Delete the staged operations."""
        with self._lock:
            self._closed = True
            self._connection.close()

    def _insert_next(self) -> None:
        with self._in_use() as connection:
            connection.executemany(self._insert, self._next)
        self._next.clear()

    @contextmanager
    def _in_use(self) -> Iterator[sqlite3.Connection]:
        """Lock the connection: SQLite must not be closed while another thread uses it."""
        with self._lock:
            if self._closed:
                raise Unavailable("The import was stopped.")
            yield self._connection
