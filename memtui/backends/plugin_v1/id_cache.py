"""A cache for plugins that cannot list or look up memories: a file that may be deleted.

It contains the known namespaces, a few words of each memory seen, to find it again by a search, and
observations on the plugin's abilities. Every method blocks.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from memtui.backends.plugin_v1.wire import Place, moment
from memtui.contract import Namespace
from memtui.provider_kit.derived import Broken, DerivedDatabase, scrub

T = TypeVar("T")

# No SQLModel: this is a deletable cache of three tables that only this module reads.
_SCHEMA = """
CREATE TABLE namespace (name TEXT PRIMARY KEY, kind TEXT, expires_at TEXT,
    metadata TEXT);
CREATE TABLE seen (number INTEGER PRIMARY KEY, namespace TEXT, id TEXT, words TEXT,
    UNIQUE (namespace, id));
CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT);
"""
_MOST_SEEN = 500_000
_TELLING = 5
_ANY_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}|[^\W_]{2,40}")
"""Words, and pairs of characters in scripts without spaces, for searches by substring."""
_LONGEST_GAP = 3
_WORD = re.compile(r"(?<![\w./@:'-])[A-Za-z]{4,24}(?![\w/@:'-]|\.\w)", re.ASCII)
_SCANNED = 20_000


def _notes(path: Path | None) -> DerivedDatabase:
    what = "The file with memtui's notes on the plugin,"
    return DerivedDatabase(path, _SCHEMA, version=0, what=what, synchronous="OFF")


class IdCache:
    """The cache; a damaged file is replaced, and an unwritable one by memory."""

    def __init__(self, path: Path) -> None:
        self._notes = _notes(path)

    def _use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return self._notes.run(work)
        except Broken as error:
            self._begin_anew(error)
            return self._notes.run(work)

    def _begin_anew(self, error: Broken) -> None:
        old = self._notes
        if error.is_damaged:
            with suppress(Broken):
                old.discard()
                return
        self._notes = _notes(None)
        with suppress(Broken):  # copies the contents if they are readable
            self._notes.run(lambda memory: old.run(lambda file: file.backup(memory)))
        old.close()

    def _change(self, work: Callable[[sqlite3.Connection], object]) -> None:
        def changed(database: sqlite3.Connection) -> None:
            database.execute("BEGIN IMMEDIATE")
            work(database)
            database.execute("COMMIT")

        self._use(changed)

    def _rows(self, query: str, *values: str) -> list[Any]:
        return self._use(lambda database: database.execute(query, values).fetchall())

    def close(self) -> None:
        """Close the file; closing it twice is harmless."""
        self._notes.close()

    def note(self, seen: Iterable[tuple[str, str, str]]) -> None:
        """Store the place and telling words of memories, given as namespace, id and text."""
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
            self._change(work)

    def strike(self, places: Iterable[Place]) -> None:
        """Delete the rows of removed memories."""
        self._change(
            lambda database: database.executemany(
                "DELETE FROM seen WHERE namespace = ? AND id = ?",
                [place for place in places if _storable(place[1])],
            )
        )

    def scrub(self) -> None:
        """Erase deleted rows from the file, its freed pages included."""
        self._use(scrub)

    def words(self, place: Place) -> str:
        """Return the stored words of a memory; empty if it was never seen."""
        if not _storable(place[1]):
            return ""
        found = self._rows("SELECT words FROM seen WHERE namespace = ? AND id = ?", *place)
        return found[0][0] if found else ""

    def homes(self, identity: str) -> list[str]:
        """Return the namespaces in which a memory of this id was seen, the latest first."""
        if not _storable(identity):
            return []
        found = self._rows("SELECT namespace FROM seen WHERE id = ? ORDER BY number DESC", identity)
        return [name for (name,) in found]

    def seen(self, namespace: str) -> list[tuple[str, str]]:
        """Return ids and words of a namespace's memories, the newest first."""
        return self._rows(
            "SELECT id, words FROM seen WHERE namespace = ? ORDER BY number DESC", namespace
        )

    def meet(self, found: Namespace) -> None:
        """Store a namespace as the plugin described it."""
        ends = found.expires_at and found.expires_at.isoformat()
        values = (found.name, found.kind, ends, json.dumps(found.metadata))
        self._use(
            lambda database: database.execute(
                "INSERT OR REPLACE INTO namespace VALUES (?, ?, ?, ?)", values
            )
        )

    def leave(self, name: str) -> None:
        """Delete a namespace and its memories from the cache."""

        def work(database: sqlite3.Connection) -> None:
            database.execute("DELETE FROM namespace WHERE name = ?", (name,))
            database.execute("DELETE FROM seen WHERE namespace = ?", (name,))

        self._change(work)

    def namespaces(self) -> dict[str, tuple[datetime | None, dict[str, object]]]:
        """Return the known namespaces, with their expiry and metadata if memtui set them."""
        rows = self._rows("SELECT name, expires_at, metadata FROM namespace ORDER BY name")
        return {
            name: (moment(expires_at), json.loads(metadata or "{}"))
            for name, expires_at, metadata in rows
        }

    def fact(self, name: str) -> str | None:
        """Return a stored observation on the plugin."""
        found = self._rows("SELECT value FROM fact WHERE name = ?", name)
        return found[0][0] if found else None

    def learn(self, name: str, value: str) -> None:
        """Store an observation on the plugin."""
        self._use(
            lambda database: database.execute(
                "INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value)
            )
        )


def _storable(text: str) -> bool:
    """Whether SQLite can store the text: it contains no lone surrogate."""
    return text.isprintable() or not any("\ud800" <= one <= "\udfff" for one in text)


def plain_words(text: str) -> list[str]:
    """Return the distinct words on which all tokenisers agree, in order."""
    return list(dict.fromkeys(word.lower() for word in _WORD.findall(text[:_SCANNED])))


def telling_words(text: str) -> list[str]:
    """Return the longest plain words of a text, which are rarely stop words, or else any words."""
    words = plain_words(text) or dict.fromkeys(phrases(text, 1, ()))
    return sorted(words, key=lambda word: (-len(word), word))[:_TELLING]


def phrases(text: str, length: int, begun: Collection[str]) -> Iterator[str]:
    """Yield the phrases of `length` words, as in the text; longer ones extend a `begun` one.

    So both a search for all words and one for a substring find them.
    """
    text = text[:_SCANNED]
    words = list(_ANY_WORD.finditer(text))
    for number in range(len(words) - length + 1):
        run = words[number : number + length]
        begin = run[0].start()
        near = all(after.start() - before.end() <= _LONGEST_GAP for before, after in pairwise(run))
        if length == 1 or (near and text[begin : run[-2].end()] in begun):
            yield text[begin : run[-1].end()]
