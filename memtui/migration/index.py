"""Hashes of the records of both sides, in a temporary file to save memory; methods block."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, NamedTuple, Self

from memtui.contract import Scope, Unavailable
from memtui.migration.envelope import Envelope, differing, identity_of, print_of
from memtui.scratch import Scratch

# No SQLModel: a temporary file that a run makes and drops, and plain SQL pairs its rows.
_SCHEMA = """
CREATE TABLE stored (row INTEGER PRIMARY KEY, id BLOB, prints BLOB, identity TEXT, state TEXT,
    scope TEXT, revision TEXT, origin TEXT, alike BLOB, has_metadata INTEGER, taken INTEGER);
CREATE INDEX pending_id ON stored (id);
CREATE INDEX pending_identity ON stored (identity);
CREATE INDEX pending_alike ON stored (alike);
CREATE TABLE wanted (row INTEGER PRIMARY KEY, id BLOB, prints BLOB, identity TEXT, home BLOB,
    origin BLOB, alike BLOB, scope TEXT);
CREATE TABLE pair (wanted INTEGER PRIMARY KEY, stored INTEGER UNIQUE);
"""
_PASSES = (
    ("identity || hex(prints)", "identity || hex(prints)"),
    ("hex(home) || hex(prints)", "hex(id) || hex(prints)"),
    ("prints", "prints"),
    ("identity", "identity"),
    ("home", "id"),
    ("alike", "CASE WHEN identity IS NULL THEN alike END"),
)
"""Keys to pair by, the surest first. The first three require equality in every field."""
_PAIR = """
INSERT INTO pair SELECT w.row, h.row FROM
    (SELECT row, {0} AS key, row_number() OVER (PARTITION BY {0} ORDER BY row) AS number
        FROM wanted WHERE row NOT IN (SELECT wanted FROM pair)) AS w
JOIN
    (SELECT row, {1} AS key, row_number() OVER (PARTITION BY {1} ORDER BY row) AS number
        FROM stored WHERE row NOT IN (SELECT stored FROM pair)) AS h
ON w.key = h.key AND w.number = h.number
"""
_MISSING = "wanted WHERE row NOT IN (SELECT wanted FROM pair)"
_EXTRA = "stored WHERE origin = ? AND row NOT IN (SELECT stored FROM pair)"
_DIFFERENT = (
    "pair JOIN wanted AS w ON w.row = pair.wanted JOIN stored AS h ON h.row = pair.stored"
    " WHERE w.prints <> h.prints"
)
_ALL = -1
"""`LIMIT -1` means no limit in SQLite."""


class DestinationRecord(NamedTuple):
    """A record of the destination."""

    id: str
    prints: bytes
    identity: str | None
    """`identity_of` the record it was migrated from; None: it was not migrated."""
    state: str | None
    """The hash of the record as it was migrated."""
    scope: Scope
    revision: str | None

    @classmethod
    def of(cls, envelope: Envelope) -> DestinationRecord:
        """Return the entry for an envelope."""
        record, migration_record = envelope.record, envelope.migration_record
        identity, state = (
            (migration_record.identity, migration_record.state)
            if migration_record
            else (None, None)
        )
        return cls(
            envelope.record_id, envelope.prints, identity, state, record.scope, record.revision
        )


def _unusable(error: Exception) -> Unavailable:
    return Unavailable(
        f"The temporary index in {tempfile.gettempdir()} cannot be used ({error}); make room "
        "there, and run it again."
    )


class RecordIndex:
    """Index of the records of both sides. Leaving the context deletes the file."""

    def __init__(self, source_key: str, destination_key: str) -> None:
        self._source, self._destination = source_key, destination_key
        self._extra = _EXTRA
        try:
            self._folder = Scratch()
            path = self._folder.path / "index.sqlite3"
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = OFF")
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise _unusable(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._database.close()
        self._folder.close()
        if isinstance(error, sqlite3.Error):
            raise _unusable(error) from error

    def add(self, envelopes: Iterable[Envelope]) -> None:
        """Add records of the destination."""
        self._insert("stored VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)", self._row_of, envelopes)

    def add_source(self, envelopes: Iterable[Envelope]) -> None:
        """Add records of the source."""
        self._insert("wanted VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", self._wanted_row, envelopes)

    def _insert(
        self,
        into: str,
        row: Callable[[Envelope], tuple[object, ...]],
        envelopes: Iterable[Envelope],
    ) -> None:
        self._database.execute("BEGIN")
        self._database.executemany(f"INSERT INTO {into}", map(row, envelopes))
        self._database.execute("COMMIT")

    def _row_of(self, envelope: Envelope) -> tuple[object, ...]:
        record, migration_record = DestinationRecord.of(envelope), envelope.migration_record
        return (
            _storable(record.id),
            *record[1:4],
            record.scope.model_dump_json(),
            record.revision,
            migration_record.binding if migration_record else None,
            _alike(envelope.prints),
            bool(migration_record or envelope.record.metadata),
        )

    def _wanted_row(self, envelope: Envelope) -> tuple[object, ...]:
        migration_record = envelope.migration_record
        is_home = migration_record is not None and migration_record.binding == self._destination
        return (
            _storable(envelope.record_id),
            envelope.prints,
            identity_of(self._source, envelope.record_id),
            _storable(migration_record.record_id) if migration_record and is_home else None,
            _storable(migration_record.origin_id if migration_record else envelope.record_id),
            _alike(envelope.prints),
            envelope.record.scope.model_dump_json(),
        )

    def migrated(self, identity: str) -> DestinationRecord | None:
        """Return the destination's record that was migrated from the given identity."""
        return self._one("identity = ?", identity)

    def named(self, record_id: str) -> DestinationRecord | None:
        """Return the destination's record with an id."""
        return self._one("id = ?", _storable(record_id))

    def take_alike(self, prints: bytes) -> DestinationRecord | None:
        """Return a destination record of the same text and scope; each is returned only once.

        None if any record of the destination has metadata: then the destination stores metadata,
        and migrated records are found by their migration records.
        """
        if self._database.execute("SELECT 1 FROM stored WHERE has_metadata LIMIT 1").fetchone():
            return None
        return self._one("alike = ? AND NOT taken", _alike(prints), take=True)

    def _one(
        self, condition: str, value: object, *, take: bool = False
    ) -> DestinationRecord | None:
        row = self._database.execute(
            "SELECT row, id, prints, identity, state, scope, revision FROM stored WHERE "  # noqa: S608 — constants
            f"{condition} ORDER BY row LIMIT 1",
            (value,),
        ).fetchone()
        if row is None:
            return None
        number, record_id, prints, identity, state, scope, revision = row
        if take:
            self._database.execute("UPDATE stored SET taken = 1 WHERE row = ?", (number,))
        own = _text_of(record_id), prints, identity, state
        return DestinationRecord(*own, Scope.model_validate_json(scope), revision)

    def pair(self, *, sampled: bool) -> None:
        """Pair both sides; `sampled`: only a sample of the source was added."""
        # With a sample, only a duplicate of a sampled record is known to be extra.
        known = " AND identity IN (SELECT identity FROM wanted)" if sampled else ""
        self._extra = _EXTRA + known
        self._database.execute("DELETE FROM pair")
        for keys in _PASSES:
            self._database.execute(_PAIR.format(*keys))

    def counts(self) -> dict[str, int]:
        """Return the numbers of records checked, matched, missing, different, extra and others."""
        checked, paired = self._count("wanted"), self._count("pair")
        different, extra = self._count(_DIFFERENT), self._count(self._extra, self._source)
        return {
            "checked": checked,
            "matched": paired - different,
            "missing": checked - paired,
            "different": different,
            "extra": extra,
            "others": self._count("stored") - paired - extra,
        }

    def _count(self, where: str, *values: object) -> int:
        [[number]] = self._rows("count(*)", where, *values)
        return int(number)

    def _rows(self, columns: str, where: str, *values: object) -> list[Any]:
        return self._database.execute(f"SELECT {columns} FROM {where}", values).fetchall()  # noqa: S608 — constants

    def missing(self, limit: int = _ALL) -> list[tuple[str, list[str], Scope]]:
        """Return the missing records: source id, possible destination ids, scope."""
        columns, where = "id, scope, origin, identity, home", f"{_MISSING} ORDER BY row LIMIT ?"
        return [
            (
                _text_of(own),
                [_text_of(origin), identity, *([_text_of(home)] if home else [])],
                Scope.model_validate_json(scope),
            )
            for own, scope, origin, identity, home in self._rows(columns, where, limit)
        ]

    def surplus(self, limit: int = _ALL) -> list[tuple[str, Scope]]:
        """Return destination id and scope of migrated records that the source lacks."""
        rows = self._rows("id, scope", f"{self._extra} ORDER BY row LIMIT ?", self._source, limit)
        return [(_text_of(own), Scope.model_validate_json(scope)) for own, scope in rows]

    def different(self, limit: int) -> list[tuple[str, str, tuple[str, ...]]]:
        """Return source id, destination id and differing fields of pairs that differ."""
        rows = self._rows("w.id, h.id, w.prints, h.prints", f"{_DIFFERENT} LIMIT ?", limit)
        return [
            (_text_of(left), _text_of(right), differing(ours, theirs))
            for left, right, ours, theirs in rows
        ]


def _alike(prints: bytes) -> bytes:
    """Return the hash of text and scope alone."""
    return print_of(prints, "text") + print_of(prints, "scope")


def _storable(text: str) -> bytes:
    """Encode any text for SQLite, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def _text_of(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass")
