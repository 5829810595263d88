"""An index of records in memory, searched by words."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing

from memtui.contract import Record, Snippet
from memtui.text_analysis import DATED, TOKENIZER, folded, indexed, take_apart


class TextIndex:
    """A full-text index of records in memory, best match first. Used from one thread at a time."""

    def __init__(
        self,
        records: Sequence[Record] = (),
        watched: Callable[[Iterable[Record]], Iterable[Record]] = iter,
    ) -> None:
        """Index records. `watched` yields each again, so that its caller sees the progress."""
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._watched = watched
        self.fill(records)

    def fill(self, records: Sequence[Record]) -> None:
        """Replace the indexed records."""
        self._records = records
        with self._database as database:
            database.execute("DROP TABLE IF EXISTS entry")
            database.execute(
                "CREATE VIRTUAL TABLE entry USING fts5(title, text, labels, dates, content='', "
                f'tokenize="{TOKENIZER}")'
            )
            database.executemany(
                "INSERT INTO entry (rowid, title, text, labels, dates) VALUES (?, ?, ?, ?, ?)",
                (
                    (number, *_indexed(record))
                    for number, record in enumerate(self._watched(records))
                ),
            )

    def search(self, query: str) -> Iterator[tuple[Record, float | None]]:
        """Yield records and scores relative to the best (1.0); None where `scored` yields 0."""
        best = 0.0
        for record, score in self.scored(query):
            best = best or score
            yield record, score / best if best else None

    def scored(self, query: str) -> Iterator[tuple[Record, float]]:
        """Yield records and scores by BM25, higher is better; any word may match.

        Where the index knows no word of the query (text without spaces, parts of words), the
        records that contain every word follow, all with the score 0.
        """
        words = take_apart(query)
        matched = self._matched(words.match()) if words.terms else []
        for number, score in matched:
            yield self._records[number], score
        if matched or not words.literal:
            return
        needles = words.terms or (words.literal,)
        for record in self._records:
            text = folded(f"{record.title or ''}\n{record.text}")
            if all(needle in text for needle in needles):
                yield record, 0.0

    def _matched(self, expression: str) -> list[tuple[int, float]]:
        return self._database.execute(
            "SELECT rowid, -bm25(entry, 3.0, 1.0, 1.0, 2.0) AS score FROM entry "
            "WHERE entry MATCH ? ORDER BY score DESC, rowid",
            (expression,),
        ).fetchall()

    def close(self) -> None:
        """Free the memory."""
        self._database.close()


def ranked(records: Sequence[Record], query: str) -> list[Snippet]:
    """Return the records that match, as `TextIndex` ranks them; for a few records."""
    with closing(TextIndex(records)) as index:
        found = index.search(query)
        return [Snippet(**{**dict(record), "score": score}) for record, score in found]


def _indexed(record: Record) -> Iterator[str]:
    labels = " ".join((record.topic or "", record.kind, record.summary or "", *record.tags))
    for text in (record.title or "", record.text, labels):
        yield indexed(text) or ""
    yield record.created_at.strftime(DATED) if record.created_at else ""
