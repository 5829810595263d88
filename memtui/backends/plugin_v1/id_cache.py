"""What memtui remembers of a plugin that cannot list or look up: a file that may be deleted.

It holds the namespaces met, a few words of each memory seen, by which it is found again, and what
the plugin was seen to do. Every method blocks.
"""

from __future__ import annotations

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

# No SQLModel: a cache that may be deleted, of three tables that only this module reads.
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
"""Scripts without spaces are cut in pairs: a search for a part of a text finds those."""
_LONGEST_GAP = 3
_WORD = re.compile(r"(?<![\w./@:'-])[A-Za-z]{4,24}(?![\w/@:'-]|\.\w)", re.ASCII)
_SCANNED = 20_000


def _notes(path: Path | None) -> DerivedDatabase:
    what = "The file of what memtui remembers of the plugin,"
    return DerivedDatabase(path, _SCHEMA, version=0, what=what, synchronous="OFF")


class IdCache:
    """The file; one that is damaged is begun anew, and where none can be written, memory serves."""

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
        with suppress(Broken):  # what can still be read goes along
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
        """Close the file; again is harmless."""
        self._notes.close()

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
            self._change(work)

    def strike(self, places: Iterable[Place]) -> None:
        """Forget rows that are gone."""
        self._change(
            lambda database: database.executemany(
                "DELETE FROM seen WHERE namespace = ? AND id = ?",
                [place for place in places if _storable(place[1])],
            )
        )

    def scrub(self) -> None:
        """Keep nothing of rows that are gone, also not in freed pages of the file."""
        self._use(scrub)

    def words(self, place: Place) -> str:
        """Return the words that a memory was last seen with, or nothing."""
        if not _storable(place[1]):
            return ""
        found = self._rows("SELECT words FROM seen WHERE namespace = ? AND id = ?", *place)
        return found[0][0] if found else ""

    def homes(self, identity: str) -> list[str]:
        """Return the namespaces that a memory of this id was seen in."""
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
        """Remember a namespace as the plugin described it."""
        ends = found.expires_at and found.expires_at.isoformat()
        values = (found.name, found.kind, ends, json.dumps(found.metadata))
        self._use(
            lambda database: database.execute(
                "INSERT OR REPLACE INTO namespace VALUES (?, ?, ?, ?)", values
            )
        )

    def leave(self, name: str) -> None:
        """Forget a namespace and what was in it."""

        def work(database: sqlite3.Connection) -> None:
            database.execute("DELETE FROM namespace WHERE name = ?", (name,))
            database.execute("DELETE FROM seen WHERE namespace = ?", (name,))

        self._change(work)

    def namespaces(self) -> dict[str, tuple[datetime | None, dict[str, object]]]:
        """Return the namespaces met, with their expiry and metadata where memtui set them."""
        rows = self._rows("SELECT name, expires_at, metadata FROM namespace ORDER BY name")
        return {
            name: (moment(expires_at), json.loads(metadata or "{}"))
            for name, expires_at, metadata in rows
        }

    def fact(self, name: str) -> str | None:
        """Return what was noted about the plugin under a name."""
        found = self._rows("SELECT value FROM fact WHERE name = ?", name)
        return found[0][0] if found else None

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


def plain_words(text: str) -> list[str]:
    """Return the distinct words that every tokeniser cuts out the same way, in order."""
    return list(dict.fromkeys(word.lower() for word in _WORD.findall(text[:_SCANNED])))


def telling_words(text: str) -> list[str]:
    """Return the longest plain words of a text, which are seldom stop words, else any of it."""
    words = plain_words(text) or dict.fromkeys(phrases(text, 1, ()))
    return sorted(words, key=lambda word: (-len(word), word))[:_TELLING]


def phrases(text: str, length: int, begun: Collection[str]) -> Iterator[str]:
    """Yield the phrases of so many words, as they stand; those of several begin with one `begun`.

    So they are found by a search for all their words, and by one for a part of the text.
    """
    text = text[:_SCANNED]
    words = list(_ANY_WORD.finditer(text))
    for number in range(len(words) - length + 1):
        run = words[number : number + length]
        begin = run[0].start()
        near = all(after.start() - before.end() <= _LONGEST_GAP for before, after in pairwise(run))
        if length == 1 or (near and text[begin : run[-2].end()] in begun):
            yield text[begin : run[-1].end()]
