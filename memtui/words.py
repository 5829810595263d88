"""A query's words: which count, which are dropped, and how the index is asked for them."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

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
