"""A temporary file that remembers, hash by hash, what a binding holds: memory stays flat.

Every method blocks.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from memtui.contract import Scope, Unavailable
from memtui.migration.passport import Parcel
from memtui.migration.state import print_of

_SCHEMA = """
CREATE TABLE held (row INTEGER PRIMARY KEY, id BLOB, prints BLOB, identity TEXT, state TEXT,
    origin TEXT, alike BLOB, scope TEXT, revision TEXT, has_metadata INTEGER, taken INTEGER);
CREATE INDEX held_id ON held (id);
CREATE INDEX held_identity ON held (identity);
CREATE INDEX held_alike ON held (alike);
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
