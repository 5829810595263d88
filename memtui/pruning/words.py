"""A text as the words that carry its meaning, whatever its case, punctuation and spacing."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from memtui.pruning.lexicon import FILLERS, NUMBER_WORDS, SPEAKERS

MAX_CHARACTERS = 4_000
"""A longer text is only held against copies in another case or spacing: likeness is for facts."""
SLIP_LENGTH = 6
"""Letters from which on a word may hold a spelling slip; shorter ones are too alike as they are."""

_KEPT = frozenset(".,:/-_#%")
"""Punctuation that can belong to a number or a name (3.11, 10:30, -5, 50%, C#, snake_case)."""
_DROPPED = frozenset("'’‘ʼ＇\ufe0e\ufe0f")
_SEPARATORS = frozenset("|`´^¨")
_REPLACED = {"\u2212": "-", "ё": "е"}
_CHAR = r"[^\s.,:/\-_#%]"
_ATOM = re.compile(rf"(?:(?<!\S)-(?=\d))?{_CHAR}+(?:(?:_+|(?<=\d)[.,:/\-](?=\d)){_CHAR}+)*[#%]*")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"
    "|[^\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+"
)
"""Scripts written without spaces (Han, Kana, Thai, Lao, Burmese, Khmer) are taken by character."""
_KEY = re.compile(r"\s*([\w.\-]+):\s", re.ASCII)
_DIGIT = re.compile(r"\d")


class _Table(dict[int, str]):
    """What a character becomes, worked out once a character."""

    def __missing__(self, code: int) -> str:
        self[code] = kept = _kept(chr(code))
        return kept


def _kept(char: str) -> str:
    if char in _KEPT or char in _REPLACED:
        return _REPLACED.get(char, char)
    category = unicodedata.category(char)
    if char in _DROPPED or category == "Cf":
        return ""
    separates = category[0] in "PZ" or category in {"Cc", "Sk"} or char in _SEPARATORS
    return " " if separates else char


_TABLE = _Table()


@dataclass(frozen=True, slots=True)
class Form:
    """A text reduced to words. Two texts of the same `words` are the same but for their dress."""

    text: str
    words: tuple[str, ...]
    """Every word, in order."""
    content: tuple[str, ...]
    """The words without fillers such as "the"; none where the text is too long to liken."""
    key: str | None
    """The key of a `key: value` fact (seed 002 §7)."""
    blocks: tuple[str, ...]
    """Two texts that may be alike share one of these: the same letters and numbers, whatever their
    order and spacing, or the same words but for what a spelling slip changes."""


def form_of(text: str) -> Form:
    """Reduce a text to its words.

    NFKC, case and apostrophes are folded; punctuation and spacing separate words, except inside a
    number. A sign, a decimal point, a percent sign and symbols such as `$`, `+` or `C#` stay: they
    change the meaning.
    """
    key = _KEY.match(text)
    folded_key = key[1].casefold() if key else None
    if len(text) > MAX_CHARACTERS:
        return Form(text, tuple(text.casefold().split()), (), folded_key, ())
    words = tuple(_words(text)) or (text.strip(),)
    content = _content(words)
    return Form(text, words, content, folded_key, _blocks(content))


@lru_cache(maxsize=1 << 16)
def slip_key(word: str) -> str:
    """Return what a word and the same word with a spelling slip have in common."""
    if len(word) < SLIP_LENGTH or is_number(word):
        return word
    stem = word.rstrip("s")
    return f"{stem[:2]}…{stem[-1:]}"


@lru_cache(maxsize=1 << 16)
def is_number(word: str) -> bool:
    """Whether a word is or holds a number."""
    return word in NUMBER_WORDS or _DIGIT.search(word) is not None


def names_in(text: str) -> frozenset[str]:
    """Return the words that are written with a capital letter, in their reduced form."""
    return frozenset(
        reduced for word in text.split() if word != word.lower() for reduced in _words(word)
    )


def _blocks(content: tuple[str, ...]) -> tuple[str, str]:
    numbers = sorted(word for word in content if is_number(word))
    letters = sorted("".join(word for word in content if not is_number(word)))
    return f"{' '.join(numbers)}\n{''.join(letters)}", " ".join(sorted(map(slip_key, content)))


def _words(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    atoms = _ATOM.findall(folded.translate(_TABLE))
    words: list[str] = []
    for atom in atoms:
        if atom.isascii():
            words.append(_THOUSANDS.sub("", atom) if "," in atom else atom)
        else:
            words.extend(_UNSPACED.findall(atom))
    return words


def _content(words: tuple[str, ...]) -> tuple[str, ...]:
    kept = [word for word in words if word not in FILLERS]
    if len(kept) > 1 and kept[0] in SPEAKERS:
        kept = kept[1:]
    return words if len(kept) in {0, len(words)} else tuple(kept)
