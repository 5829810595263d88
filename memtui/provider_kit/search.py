"""Search of texts: the words of a query, and an index of records in memory."""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from memtui.contract import Record, Snippet

_MAX_CHARS, _MAX_WORDS = 20_000, 64
_MAX_KEY_WORDS, _MAX_KEY_CHARS = 4, 200
_WORD = re.compile(r"[^\W_]+")
_KEY = re.compile(r"[a-z0-9](?:[a-z0-9_.\-]*[a-z0-9])?")
_CJK = re.compile(
    "[\u2e80-\u2fdf\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003134f]+"
)
_COMMON = (
    "a about above after again all also am an and any are as at be been being both but by can "
    "could did do does doing down during each few for from further had has have having he her "
    "here hers him his how i if in into is it its itself just me more most my no nor not of off "
    "on once only or other our out over own s same she should so some such t than that the their "
    "them then there these they this those through to too under until up very was we were what "
    "when where which while who whom whose why will with would you your"
)
STOPWORDS = frozenset(_COMMON.split())
"""English words that say nothing about what is asked for."""


@dataclass(frozen=True, slots=True)
class Words:
    """A query taken apart."""

    kept: tuple[str, ...]
    """The words that are looked for, each once."""
    dropped: tuple[str, ...]
    """Stopwords, and words beyond the first 64."""
    keys: tuple[str, ...]
    """What the query would be as the key of a fact."""
    pieces: tuple[str, ...]
    """Pairs of characters of text without spaces between words, such as Chinese."""
    literal: str
    """The query itself, for one that has no words."""

    def match(self, *, prefix: bool = False) -> str:
        """Return the words as a full-text expression: any of them, as words or beginnings."""
        star = "*" if prefix else ""
        return " OR ".join(f'"{word}"{star}' for word in self.kept)


def take_apart(query: str) -> Words:
    """Take a query of any length and content apart."""
    text = unicodedata.normalize("NFC", query[:_MAX_CHARS]).casefold()
    found = list(dict.fromkeys(_WORD.findall(text)))
    meant = [word for word in found if word not in STOPWORDS] or found
    kept = tuple(meant[:_MAX_WORDS])
    return Words(
        kept=kept,
        dropped=tuple(word for word in found if word not in kept),
        keys=_keys(text),
        pieces=_pieces(text),
        literal=text.strip()[:200],
    )


def _keys(text: str) -> tuple[str, ...]:
    words = _WORD.findall(text)[:_MAX_WORDS]
    parts = [_KEY.search(part[:_MAX_KEY_CHARS]) for part in text.split()[:_MAX_WORDS]]
    keys = [part.group() for part in parts if part and not part.group().isalnum()]
    if len(words) == 1:
        keys += words
    for size in range(2, _MAX_KEY_WORDS + 1):
        for start in range(len(words) - size + 1):
            run = words[start : start + size]
            keys += [joint.join(run) for joint in "_-."]
    return tuple(dict.fromkeys(keys))


def _pieces(text: str) -> tuple[str, ...]:
    pieces: list[str] = []
    for run in _CJK.findall(text):
        pieces += [run] if len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)]
    return tuple(dict.fromkeys(pieces))[:_MAX_WORDS]


class TextIndex:
    """A full-text index of records in memory, best match first. Used from one thread at a time."""

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self.fill(records)

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
                ((number, *_indexed(record)) for number, record in enumerate(records)),
            )

    def search(self, query: str) -> Iterator[tuple[Record, float | None]]:
        """Yield records and scores, as shares of the best; none where `scored` has 0."""
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


def ranked(records: Sequence[Record], query: str) -> list[Snippet]:
    """Return those of a few records that match, as `TextIndex` finds them."""
    with closing(TextIndex(records)) as index:
        found = index.search(query)
        return [Snippet(**{**dict(record), "score": score}) for record, score in found]


def _indexed(record: Record) -> Iterator[str]:
    labels = " ".join((record.topic or "", record.kind, record.summary or "", *record.tags))
    for text in (record.title or "", record.text, labels):
        yield text.encode("utf-8", "replace").decode()  # SQLite takes no lone surrogates
