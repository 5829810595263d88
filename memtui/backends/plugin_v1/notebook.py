"""What memtui remembers of a plugin that cannot list or look up: a file that may be deleted.

It holds the namespaces met, a few words of each memory seen, by which it is found again, and what
the plugin was seen to do. Every method blocks.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from memtui.contract import Namespace, Unavailable
from memtui.provider_kit import is_damaged, is_unusable

from .records import Place
from .wire import moment
from .words import telling_words

T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS namespace (name TEXT PRIMARY KEY, kind TEXT, expires_at TEXT,
    metadata TEXT);
CREATE TABLE IF NOT EXISTS seen (number INTEGER PRIMARY KEY, namespace TEXT, id TEXT, words TEXT,
    UNIQUE (namespace, id));
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value TEXT);
"""
_MOST_SEEN = 500_000


def _ready(path: Path | str) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False, timeout=5)
    database.execute("PRAGMA synchronous = OFF")
    database.executescript(_SCHEMA)
    return database


class Notebook:
    """The file; one that is damaged is begun anew, and where none can be written, memory serves."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            self._database = self._open()
        except (sqlite3.Error, OSError) as error:
            self._database = self._begin_anew(error)

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path.touch(mode=0o600, exist_ok=True)
        return _ready(self._path)

    def _use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            try:
                with self._database as database:
                    return work(database)
            except sqlite3.Error as error:
                old, self._database = self._database, self._begin_anew(error)
                with suppress(sqlite3.Error):
                    if is_unusable(error):
                        old.backup(self._database)
                    old.close()
            try:
                with self._database as database:
                    return work(database)
            except sqlite3.Error as error:
                raise self._unavailable(error) from error

    def _begin_anew(self, error: Exception) -> sqlite3.Connection:
        """Return the notes to go on with.

        Raises:
            Unavailable: another program holds the file.
        """
        try:
            if is_damaged(error):
                self._path.unlink(missing_ok=True)
                return self._open()
        except (sqlite3.Error, OSError) as refusal:
            error = refusal
        if is_unusable(error):
            return _ready(":memory:")
        raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> Unavailable:
        return Unavailable(
            f"memtui's notes on the plugin in {self._path} cannot be used now ({error}); try again."
        )

    def close(self) -> None:
        """Close the file; again is harmless."""
        with self._lock:
            self._database.close()

    def note(self, seen: Iterable[tuple[str, str, str]]) -> None:
        """Remember where memories are and how to find them: namespace, id, text."""
        entries = [
            (namespace, identity, " ".join(telling_words(text)))
            for namespace, identity, text in seen
            if _storable(identity)
        ]
        names = {(entry[0],) for entry in entries}

        def work(database: sqlite3.Connection) -> None:
            database.executemany("INSERT OR IGNORE INTO namespace (name) VALUES (?)", names)
            database.executemany(
                "INSERT INTO seen (namespace, id, words) VALUES (?, ?, ?) "
                "ON CONFLICT DO UPDATE SET words = excluded.words",
                entries,
            )
            database.execute(
                "DELETE FROM seen WHERE number <= (SELECT max(number) FROM seen) - ?", (_MOST_SEEN,)
            )

        if entries:
            self._use(work)

    def strike(self, places: Iterable[Place]) -> None:
        """Forget rows that are gone."""
        self._use(
            lambda database: database.executemany(
                "DELETE FROM seen WHERE namespace = ? AND id = ?",
                [place for place in places if _storable(place[1])],
            )
        )

    def kept(self, places: Iterable[Place]) -> dict[Place, str]:
        """Return the words that are kept of these memories, of those that any are kept of."""
        return {place: words for place in places if (words := self.words(place))}

    def scrub(self) -> None:
        """Keep nothing of rows that are gone, also not in freed pages of the file."""
        self._use(lambda database: database.execute("VACUUM"))

    def words(self, place: Place) -> str:
        """Return the words that a memory was last seen with, or nothing."""
        if not _storable(place[1]):
            return ""
        found = self._use(
            lambda database: database.execute(
                "SELECT words FROM seen WHERE namespace = ? AND id = ?", place
            ).fetchone()
        )
        return found[0] if found else ""

    def homes(self, identity: str) -> list[str]:
        """Return the namespaces that a memory of this id was seen in."""
        if not _storable(identity):
            return []
        return self._use(
            lambda database: [
                str(name)
                for (name,) in database.execute(
                    "SELECT namespace FROM seen WHERE id = ? ORDER BY number DESC", (identity,)
                )
            ]
        )

    def seen(self, namespace: str) -> list[tuple[str, str]]:
        """Return ids and words of a namespace's memories, the newest first."""
        return self._use(
            lambda database: database.execute(
                "SELECT id, words FROM seen WHERE namespace = ? ORDER BY number DESC", (namespace,)
            ).fetchall()
        )

    def meet(self, found: Sequence[Namespace]) -> None:
        """Remember namespaces as the plugin described them."""
        entries = [
            (one.name, one.kind, one.expires_at and one.expires_at.isoformat(),
             json.dumps(one.metadata))
            for one in found
        ]  # fmt: skip
        self._use(
            lambda database: database.executemany(
                "INSERT OR REPLACE INTO namespace VALUES (?, ?, ?, ?)", entries
            )
        )

    def leave(self, name: str) -> None:
        """Forget a namespace and what was in it."""

        def work(database: sqlite3.Connection) -> None:
            database.execute("DELETE FROM namespace WHERE name = ?", (name,))
            database.execute("DELETE FROM seen WHERE namespace = ?", (name,))

        self._use(work)

    def namespaces(self) -> dict[str, tuple[datetime | None, dict[str, object]]]:
        """Return the namespaces met, with their expiry and metadata where memtui set them."""
        rows = self._use(
            lambda database: database.execute(
                "SELECT name, expires_at, metadata FROM namespace ORDER BY name"
            ).fetchall()
        )
        return {
            name: (moment(expires_at), json.loads(metadata or "{}"))
            for name, expires_at, metadata in rows
        }

    def fact(self, name: str) -> str | None:
        """Return what was noted about the plugin under a name."""
        found = self._use(
            lambda database: database.execute(
                "SELECT value FROM fact WHERE name = ?", (name,)
            ).fetchone()
        )
        return found[0] if found else None

    def learn(self, name: str, value: str) -> None:
        """Note something about the plugin."""
        self._use(
            lambda database: database.execute(
                "INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value)
            )
        )


def _storable(text: str) -> bool:
    """Whether SQLite takes the text: it holds no half of a character."""
    return text.isprintable() or not any("\ud800" <= one <= "\udfff" for one in text)
