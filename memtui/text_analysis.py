"""Text folding and splitting for comparison and search, the same for every provider.

Folding replaces compatibility forms (full-width letters, half-width kana, ligatures) by plain
characters, removes case, diacritics, vowel marks and invisible characters, and replaces letters
that Unicode does not decompose (ł, ø, æ) by plain ones. Scripts without spaces between words, such
as Chinese, Japanese and Thai, are searched by pairs of neighbouring characters.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from memtui.patterns import late_pattern

FOLDED_AWAY = (
    "\u00ad\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u061c\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8"
    "\u06ea-\u06ed\u0711\u0730-\u074a\u08d3-\u08e1\u08e3-\u08ff\u180b-\u180e\u1ab0-\u1aff"
    "\u1dc0-\u1dff\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20d0-\u20ff\ufe00-\ufe0f"
    "\ufe20-\ufe2f\ufeff\U000e0000-\U000e01ef"
)
"""Diacritics, vowel marks and invisible characters, as ranges of a regular expression's class.

Marks that distinguish words, as in kana and Indic scripts, are not included."""
LETTERS = dict(
    zip(
        "łđøıðħŧŋĸςىیکةٱ٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹‘’‚‛ʼ“”„‟‐‒–—―−",
        "ldoidhtnkσييكها01234567890123456789'''''\"\"\"\"------",
        strict=True,
    )
)
"""Letters and signs that Unicode does not decompose, and the plain one of each."""
SPELLED_OUT = {"æ": "ae", "œ": "oe", "ß": "ss", "þ": "th"}
"""Letters replaced by two plain ones."""
_PAIRED = late_pattern(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3041-\u3096\u3099-\u309a"
    "\u309d-\u309f\u30a1-\u30fa\u30fc-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7fb\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U000323af]+"
)
_AWAY = late_pattern(f"[{FOLDED_AWAY}]")
_COMMON = (
    "a about above after again all also am an and any are as at be been being both but by can "
    "could did do does doing down during each few for from further had has have having he her "
    "here hers him his how i if in into is it its itself just me more most my no nor not of off "
    "on once only or other our out over own s same she should so some such t than that the their "
    "them then there these they this those through to too under until up very was we were what "
    "when where which while who whom whose why will with would you your"
)
STOPWORDS = frozenset(_COMMON.split())
"""English words that a search ignores."""


class _Folds(dict[int, str]):
    """Translation table for decomposed text, filled as characters are first met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if _AWAY.match(char):
            plain = ""
        else:
            plain = "".join(
                SPELLED_OUT.get(one) or LETTERS.get(one, one) for one in char.casefold()
            )
        self[code] = plain
        return plain


class _Spaces(dict[int, str]):
    """Translation table that replaces characters between words by a space."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        is_kept = char.isalnum() or unicodedata.category(char)[0] == "M"
        self[code] = kept = char if is_kept else " "
        return kept


_FOLDS, _SPACES = _Folds(), _Spaces()


class Terms(NamedTuple):
    """The search terms of a text."""

    words: list[str]
    """Folded, in the order of the text."""
    pairs: list[str]
    """Pairs of neighbouring characters in text without spaces; or a single, lone character."""


def folded(text: str) -> str:
    """Return the folded text; texts that differ only in case, marks or forms become equal."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKD", text).translate(_FOLDS)
    return plain if plain.isascii() else unicodedata.normalize("NFC", plain)


def folded_in_place(text: str) -> tuple[str, list[int] | range]:
    """Return a folded text, and for each of its characters the index in the given text.

    Letters written as several characters are not composed.
    """
    if text.isascii():
        return text.lower(), range(len(text))
    parts = [folded(char) for char in text]
    return "".join(parts), [place for place, part in enumerate(parts) for _ in part]


def terms_of(text: str) -> Terms:
    """Return the words of a text, and the pairs of characters where it has no spaces."""
    plain = folded(text)
    pairs: list[str] = []
    if not plain.isascii():
        for run in _PAIRED.findall(plain):
            pairs += [run[at : at + 2] for at in range(max(1, len(run) - 1))]
        plain = _PAIRED.sub(" ", plain)
    return Terms(plain.translate(_SPACES).split(), pairs)


TOKENIZER = "porter unicode61 remove_diacritics 0 categories 'L* M* N* Co'"
"""SQLite's full-text tokenizer for the texts that `indexed` returns."""


def indexed(text: str | None) -> str | None:
    """Return a text prepared for full-text search with `TOKENIZER`."""
    if text is None or text.isascii():
        return text
    plain = folded(text).encode(errors="replace").decode()  # SQLite refuses lone surrogates
    return _PAIRED.sub(_spread, plain)


def _spread(run: re.Match[str]) -> str:
    """Return the pairs of a run and its last character, so each character starts a word."""
    text = run[0]
    return f" {' '.join(text[at : at + 2] for at in range(len(text)))} "
