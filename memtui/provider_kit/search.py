"""Text search: splitting a query into words, and an index of records in memory."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from memtui.contract import Record, Snippet
from memtui.text_analysis import STOPWORDS, TOKENIZER, folded, indexed, terms_of

_MAX_CHARS, _MAX_WORDS = 20_000, 64
_MAX_KEY_WORDS, _MAX_KEY_CHARS = 4, 200
_KEY = re.compile(r"[a-z0-9](?:[a-z0-9_.\-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Words:
    """A query split into search terms."""

    kept: tuple[str, ...]
    """The words to search, each once."""
    dropped: tuple[str, ...]
    """Stopwords, and words beyond the first 64."""
    keys: tuple[str, ...]
    """The query's words as possible keys of facts."""
    pieces: tuple[str, ...]
    """Character pairs of text without spaces, such as Chinese; searched too."""
    literal: str
    """The query itself, for a query without words."""

    @property
    def terms(self) -> tuple[str, ...]:
        """All search terms: words and pairs."""
        return self.kept + self.pieces

    def match(self, *, prefix: bool = False) -> str:
        """Return a full-text expression for any of the terms, as words or as prefixes."""
        words = (f'"{word}"{"*" * prefix}' for word in self.kept)
        pairs = (f'"{pair}"{"*" * (len(pair) == 1)}' for pair in self.pieces)
        return " OR ".join((*words, *pairs))


def take_apart(query: str) -> Words:
    """Split a query of any length and content into search terms."""
    text = folded(query[:_MAX_CHARS])
    words, pairs = terms_of(text)
    found = list(dict.fromkeys(words))
    meant = [word for word in found if word not in STOPWORDS] or ([] if pairs else found)
    kept = tuple(meant[:_MAX_WORDS])
    return Words(
        kept=kept,
        dropped=tuple(word for word in found if word not in kept),
        keys=_keys(text, words),
        pieces=tuple(dict.fromkeys(pairs))[:_MAX_WORDS],
        literal=text.strip()[:200],
    )


def _keys(text: str, found: Sequence[str]) -> tuple[str, ...]:
    words = found[:_MAX_WORDS]
    parts = [_KEY.search(part[:_MAX_KEY_CHARS]) for part in text.split()[:_MAX_WORDS]]
    keys = [part.group() for part in parts if part and not part.group().isalnum()]
    if len(words) == 1:
        keys += words
    for size in range(2, _MAX_KEY_WORDS + 1):
        for start in range(len(words) - size + 1):
            run = words[start : start + size]
            keys += [joint.join(run) for joint in "_-."]
    return tuple(dict.fromkeys(keys))


class TextIndex:
    """A full-text index of records in memory, best match first. Used from one thread at a time."""

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self.fill(records)

    def fill(self, records: Sequence[Record]) -> None:
        """Replace the indexed records."""
        self._records = records
        with self._database as database:
            database.execute("DROP TABLE IF EXISTS entry")
            database.execute(
                "CREATE VIRTUAL TABLE entry USING fts5(title, text, labels, content='', "
                f'tokenize="{TOKENIZER}")'
            )
            database.executemany(
                "INSERT INTO entry (rowid, title, text, labels) VALUES (?, ?, ?, ?)",
                ((number, *_indexed(record)) for number, record in enumerate(records)),
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
            "SELECT rowid, -bm25(entry, 3.0, 1.0, 1.0) FROM entry WHERE entry MATCH ? "
            "ORDER BY bm25(entry, 3.0, 1.0, 1.0), rowid",
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
