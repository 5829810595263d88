"""Text folding and splitting for comparison and search, the same for every provider.

Folding replaces compatibility forms (full-width letters, half-width kana, ligatures) by plain
characters, removes case, diacritics, vowel marks and invisible characters, and replaces letters
that Unicode does not decompose (ł, ø, æ) by plain ones. Scripts without spaces between words, such
as Chinese, Japanese and Thai, are searched by pairs of neighbouring characters.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
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
    "[\u0e00-\u0e3e\u0e40-\u0e4e\u0e50-\u0e59\u0e5c-\u0eff\u1000-\u1049\u1050-\u109d\u1780-\u17d3"
    "\u17d7\u17dc-\u17ff\u2e9f\u2ef3\u2f00-\u2fdf\u3005-\u3007\u3041-\u3096\u3099-\u309a"
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


def words_in_order(text: str) -> list[str]:
    """Return the folded words of a text; where it has no spaces, each character is one."""
    plain = _PAIRED.sub(lambda run: f" {' '.join(run[0])} ", folded(text))
    return plain.translate(_SPACES).split()


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


_NAMES_OF_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_MONTHS = {
    name[:size]: number
    for number, name in enumerate(_NAMES_OF_MONTHS, 1)
    for size in (3, 4, len(name))
}
_BEFORE_MONTH = frozenset(["during", "early", "in", "last", "late", "since", "this", "until"])
DATED = "d%Y%m%d d%m%d"
"""Format for `strftime` of the words that begin like one of `dates_of` if they are of that time."""


def dates_of(words: Sequence[str]) -> tuple[str, ...]:
    """Return the days and months named by folded words, each as the beginning of a word of `DATED`.

    They are `d20260516`, `d202605`, `d0516` and `d05`.
    """
    rest = [word for word in words if word != "of"]
    found = []
    near = zip(["", *rest], rest, [*rest[1:], ""], [*rest[2:], "", ""], strict=False)
    for before, word, one, two in near:
        if month := _MONTHS.get(word):
            day, year = _day(before), one
            if not day and (day := _day(one)):
                year = two
            year = year if _is_number(year, 4) else ""
            if day or year or before in _BEFORE_MONTH:  # "may" alone is a verb
                found.append(f"d{year}{month:02}{day}")
        elif _is_number(word, 4) and _is_number(one, 2):
            found.append(f"d{word}{one}{two if _is_number(two, 2) else ''}")
    return tuple(dict.fromkeys(found))


def _is_number(word: str, digits: int) -> bool:
    return len(word) == digits and word.isdecimal()


def _day(word: str) -> str:
    """Return the two digits of a day such as 3, 03 or 3rd; empty: the word is none."""
    number = word[:-2] if word.endswith(("st", "nd", "rd", "th")) else word
    return number.zfill(2) if len(number) <= 2 and number.isdecimal() else ""


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
    dates: tuple[str, ...]
    """The days and months that it names; see `dates_of`."""
    literal: str
    """The query itself, for a query without words."""

    @property
    def terms(self) -> tuple[str, ...]:
        """All search terms: words and pairs."""
        return self.kept + self.pieces

    def match(self) -> str:
        """Return a full-text expression for any of the terms.

        The days and months are looked up in the column `dates`.
        """
        words = (f'"{word}"' for word in self.kept)
        return " OR ".join((*words, *self._pairs_and_dates))

    def match_prefixes(self) -> str:
        """Return a full-text expression for words that begin like one of `kept`, pairs and dates.

        The columns `dates` and `places` are left out for words: there every record has a number.
        """
        words = " OR ".join(f'"{word}" *' for word in self.kept)
        return " OR ".join((f"(- {{dates places}} : ({words}))", *self._pairs_and_dates))

    @property
    def _pairs_and_dates(self) -> tuple[str, ...]:
        pairs = (f'"{pair}"{"*" * (len(pair) == 1)}' for pair in self.pieces)
        dates = (f'dates : "{date}" *' for date in self.dates)
        return (*pairs, *dates)


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
        dates=dates_of(words)[:_MAX_WORDS],
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
