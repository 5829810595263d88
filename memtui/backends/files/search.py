"""A full-text index in memory that lasts as long as the loaded records."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from memtui.backends.vault.words import take_apart
from memtui.contract import Record


class TextIndex:
    """SQLite FTS5 over records, best match first. Used from one thread at a time."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._records: Sequence[Record] = ()

    def fill(self, records: Sequence[Record]) -> None:
        """Replace what is indexed."""
        self._records = records
        with self._database as database:
            database.execute("DROP TABLE IF EXISTS entry")
            database.execute(
                "CREATE VIRTUAL TABLE entry USING fts5(title, text, labels, content='', "
                "tokenize='porter unicode61 remove_diacritics 2')"
            )
            database.executemany(
                "INSERT INTO entry (rowid, title, text, labels) VALUES (?, ?, ?, ?)",
                (
                    (number, _clean(record.title), _clean(record.text), _labels(record))
                    for number, record in enumerate(records)
                ),
            )

    def search(self, query: str) -> Iterator[tuple[Record, float]]:
        """Yield records and scores, higher is better; any word may match.

        Where the index knows no word of the query (text without spaces, parts of words), the
        records that contain every word follow, all with the score 0.
        """
        words = take_apart(query)
        matched = self._matched(words.match()) if words.kept else []
        for number, score in matched:
            yield self._records[number], score
        if matched or not words.literal:
            return
        needles = words.kept or (words.literal,)
        for record in self._records:
            held = f"{record.title or ''}\n{record.text}".casefold()
            if all(needle in held for needle in needles):
                yield record, 0.0

    def _matched(self, expression: str) -> list[tuple[int, float]]:
        return self._database.execute(
            "SELECT rowid, -bm25(entry, 3.0, 1.0, 1.0) FROM entry WHERE entry MATCH ? "
            "ORDER BY bm25(entry, 3.0, 1.0, 1.0), rowid",
            (expression,),
        ).fetchall()

    def close(self) -> None:
        """Free the memory."""
        self._database.close()


def _labels(record: Record) -> str:
    return _clean(" ".join((record.topic or "", record.kind, record.summary or "", *record.tags)))


def _clean(text: str | None) -> str:
    # SQLite takes no lone surrogates.
    return (text or "").encode("utf-8", "replace").decode()
