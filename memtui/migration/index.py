"""What both sides hold, hash by hash, in a temporary file: memory stays flat; methods block."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from memtui.contract import Scope, Unavailable
from memtui.migration.ends import Ends
from memtui.migration.parcel import Parcel, differing, identity_of, print_of

_SCHEMA = """
CREATE TABLE held (row INTEGER PRIMARY KEY, id BLOB, prints BLOB, identity TEXT, state TEXT,
    origin TEXT, alike BLOB, scope TEXT, revision TEXT, has_metadata INTEGER, taken INTEGER);
CREATE INDEX held_id ON held (id);
CREATE INDEX held_identity ON held (identity);
CREATE INDEX held_alike ON held (alike);
CREATE TABLE wanted (row INTEGER PRIMARY KEY, id BLOB, prints BLOB, identity TEXT, home BLOB,
    origin BLOB, alike BLOB, scope TEXT);
CREATE TABLE pair (wanted INTEGER PRIMARY KEY, held INTEGER UNIQUE);
"""
_COLUMNS = "row, id, prints, identity, state, origin, scope, revision"


class Held(NamedTuple):
    """A record of the destination, as the index knows it."""

    row: int
    id: str
    prints: bytes
    identity: str | None
    """Which record of which binding it was migrated from; None: it was not."""
    state: str | None
    """The hash of what was migrated."""
    origin: str | None
    """The binding it was migrated from."""
    scope: Scope
    revision: str | None


class Index:
    """What the destination holds. A context manager: the file goes with it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="memtui-migration-")
        path = Path(self._folder.name) / "index.sqlite3"
        self.database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.database.execute("PRAGMA journal_mode = OFF")
        self.database.execute("PRAGMA synchronous = OFF")
        self.database.executescript(_SCHEMA)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.database.close()
        self._folder.cleanup()
        if isinstance(error, sqlite3.Error):
            raise Unavailable(
                f"The temporary index in {tempfile.gettempdir()} cannot be used ({error}); make "
                "room there, and run it again."
            ) from error

    def add(self, parcels: Iterable[Parcel]) -> None:
        """Remember records."""
        self.database.execute("BEGIN")
        self.database.executemany(
            "INSERT INTO held (id, prints, identity, state, origin, alike, scope, revision,"
            " has_metadata, taken) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (
                (
                    storable(parcel.record_id),
                    parcel.prints,
                    parcel.passport.identity if parcel.passport else None,
                    parcel.passport.state if parcel.passport else None,
                    parcel.passport.binding if parcel.passport else None,
                    alike(parcel.prints),
                    parcel.record.scope.model_dump_json(),
                    parcel.record.revision,
                    bool(parcel.passport or parcel.record.metadata),
                )
                for parcel in parcels
            ),
        )
        self.database.execute("COMMIT")

    def migrated(self, identity: str) -> Held | None:
        """Return the record that was migrated from one of that identity."""
        return self._one("identity = ?", identity)

    def named(self, record_id: str) -> Held | None:
        """Return the record of an id."""
        return self._one("id = ?", storable(record_id))

    def take_alike(self, prints: bytes) -> Held | None:
        """Return a record of the same text and scope, each only once.

        There is none where anything in the destination has metadata: that keeps passports then.
        """
        if self.database.execute("SELECT 1 FROM held WHERE has_metadata LIMIT 1").fetchone():
            return None
        found = self._one("alike = ? AND NOT taken", alike(prints))
        if found is not None:
            self.database.execute("UPDATE held SET taken = 1 WHERE row = ?", (found.row,))
        return found

    def _one(self, condition: str, value: object) -> Held | None:
        row = self.database.execute(
            f"SELECT {_COLUMNS} FROM held WHERE {condition} ORDER BY row LIMIT 1",  # noqa: S608 — constants
            (value,),
        ).fetchone()
        return None if row is None else held_of(row)


def held_of(row: tuple[int, bytes, bytes, str | None, str | None, str | None, str, str]) -> Held:
    """Return a row of the table as a value."""
    number, record_id, prints, identity, state, origin, scope, revision = row
    return Held(
        number,
        text_of(record_id),
        prints,
        identity,
        state,
        origin,
        Scope.model_validate_json(scope),
        revision,
    )


def alike(prints: bytes) -> bytes:
    """Return the hash of text and scope alone."""
    return print_of(prints, "text") + print_of(prints, "scope")


def storable(text: str) -> bytes:
    """Return any text, halves of characters too, as SQLite keeps it."""
    return text.encode("utf-8", "surrogatepass")


def text_of(stored: bytes) -> str:
    """Return what `storable` was given."""
    return stored.decode("utf-8", "surrogatepass")


_PASSES = (
    ("identity || hex(prints)", "identity || hex(prints)"),
    ("hex(home) || hex(prints)", "hex(id) || hex(prints)"),
    ("prints", "prints"),
    ("identity", "identity"),
    ("home", "id"),
    ("alike", "CASE WHEN identity IS NULL THEN alike END"),
)
"""What pairs them, the surest first. The first three are the same in every field."""


class Counts(NamedTuple):
    """Numbers of records."""

    checked: int
    matched: int
    missing: int
    different: int
    extra: int
    others: int


class Pairing:
    """The source's records beside the index of the destination's."""

    def __init__(self, index: Index, ends: Ends) -> None:
        self._database = index.database
        self._source, self._destination = ends.source.key, ends.destination.key
        self._sampled = False

    def add_source(self, parcels: Iterable[Parcel]) -> None:
        """Remember records of the source."""
        self._database.execute("BEGIN")
        self._database.executemany(
            "INSERT INTO wanted (id, prints, identity, home, origin, alike, scope)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            map(self._row, parcels),
        )
        self._database.execute("COMMIT")

    def _row(self, parcel: Parcel) -> tuple[object, ...]:
        passport = parcel.passport
        is_home = passport is not None and passport.binding == self._destination
        return (
            storable(parcel.record_id),
            parcel.prints,
            identity_of(self._source, parcel.record_id),
            storable(passport.record_id) if passport and is_home else None,
            storable(passport.origin_id if passport else parcel.record_id),
            alike(parcel.prints),
            parcel.record.scope.model_dump_json(),
        )

    def pair(self, *, sampled: bool) -> None:
        """Pair both sides; `sampled`: the source's other records are not known."""
        self._sampled = sampled
        self._database.execute("DELETE FROM pair")
        for wanted, held in _PASSES:
            self._database.execute(
                f"""
                INSERT INTO pair SELECT w.row, h.row FROM
                    (SELECT row, {wanted} AS key,
                        row_number() OVER (PARTITION BY {wanted} ORDER BY row) AS number
                        FROM wanted WHERE row NOT IN (SELECT wanted FROM pair)) AS w
                JOIN
                    (SELECT row, {held} AS key,
                        row_number() OVER (PARTITION BY {held} ORDER BY row) AS number
                        FROM held WHERE row NOT IN (SELECT held FROM pair)) AS h
                ON w.key = h.key AND w.number = h.number
                """  # noqa: S608 — constants
            )

    def missing_names(self) -> Iterable[tuple[str, list[str], Scope]]:
        """Return each missing record's id, the ids that it may have there, and its scope."""
        rows = self._database.execute(
            "SELECT id, origin, identity, home, scope FROM wanted"
            " WHERE row NOT IN (SELECT wanted FROM pair)"
        ).fetchall()
        return [
            (
                text_of(own),
                [text_of(origin), identity, *([text_of(home)] if home else [])],
                Scope.model_validate_json(scope),
            )
            for own, origin, identity, home, scope in rows
        ]

    def surplus_names(self) -> list[tuple[str, Scope]]:
        """Return the destination's id and the scope of each migrated record the source lacks."""
        rows = self._database.execute(
            f"SELECT id, scope FROM held WHERE {self._is_extra}",  # noqa: S608 — constants
            (self._source,),
        ).fetchall()
        return [(text_of(own), Scope.model_validate_json(scope)) for own, scope in rows]

    def counts(self) -> Counts:
        """Return how many are the same, and how many are not."""
        checked = self._number("wanted")
        paired = self._number("pair")
        different = self._number(_DIFFERENT)
        extra = self._number(f"held WHERE {self._is_extra}", (self._source,))
        return Counts(
            checked=checked,
            matched=paired - different,
            missing=checked - paired,
            different=different,
            extra=extra,
            others=self._number("held") - paired - extra,
        )

    def missing(self, limit: int) -> list[str]:
        """Return the source's ids of records that the destination lacks."""
        return self._ids("wanted WHERE row NOT IN (SELECT wanted FROM pair)", (limit,))

    def surplus(self, limit: int) -> list[str]:
        """Return the destination's ids of migrated records that the source lacks."""
        return self._ids(f"held WHERE {self._is_extra}", (self._source, limit))

    def different(self, limit: int) -> list[tuple[str, str, tuple[str, ...]]]:
        """Return both ids of records that differ, and the fields."""
        rows = self._database.execute(
            f"SELECT w.id, h.id, w.prints, h.prints FROM {_DIFFERENT} LIMIT ?",  # noqa: S608 — constants
            (limit,),
        ).fetchall()
        return [
            (text_of(left), text_of(right), differing(ours, theirs))
            for left, right, ours, theirs in rows
        ]

    @property
    def _is_extra(self) -> str:
        """A sample says of the rest only what stands twice."""
        return _SURPLUS_OF_SAMPLE if self._sampled else _SURPLUS

    def _number(self, where: str, values: tuple[object, ...] = ()) -> int:
        row = self._database.execute(f"SELECT count(*) FROM {where}", values).fetchone()  # noqa: S608 — constants
        return int(row[0])

    def _ids(self, where: str, values: tuple[object, ...]) -> list[str]:
        rows = self._database.execute(f"SELECT id FROM {where} ORDER BY row LIMIT ?", values)  # noqa: S608 — constants
        return [text_of(row[0]) for row in rows]


_SURPLUS = "origin = ? AND row NOT IN (SELECT held FROM pair)"
_SURPLUS_OF_SAMPLE = (
    "origin = ? AND row NOT IN (SELECT held FROM pair)"
    " AND identity IN (SELECT identity FROM wanted)"
)
_DIFFERENT = (
    "pair JOIN wanted AS w ON w.row = pair.wanted JOIN held AS h ON h.row = pair.held"
    " WHERE w.prints <> h.prints"
)
