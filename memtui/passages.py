"""The part of a long text that answers a question, or that another text repeats."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from memtui.patterns import late_pattern
from memtui.text_analysis import STOPWORDS, Words, folded_in_place, take_apart, terms_of

PASSAGE_CHARS = 600
_MOST_MATCHES = 500
_LEAD_SHARE = 5
"""The passage begins a fifth of its length before the first match."""
_WORD_ENDING, _LEAST_STEM = 3, 4
_LONGEST_ENDING = 4
_BREAK = late_pattern(r"\n+|(?<=[.!?。！？])\s*|\s+")
_CUT = "…"
_PHRASE = 4
_GAP = 3
"""At most so many words may differ within a repeated passage, between two equal phrases."""
_LEAST_WORDS, _LEAST_MEANT, _LEAST_CHARS = 8, 5, 32
"""A shorter passage is no sign that one text came of another: its words, those of them that are no
stopwords, and its letters."""

Phrase = tuple[str, ...]


class Passage(NamedTuple):
    """A part of a text, with an ellipsis where it was cut."""

    text: str
    is_cut: bool


def passage(text: str, query: str, characters: int = PASSAGE_CHARS) -> Passage:
    """Return the part of a text with most of a query's words, at most `characters` long.

    Where no word of the query is found, as in a match by meaning, it is the beginning.
    """
    if len(text) <= characters:
        return Passage(text, is_cut=False)
    size = max(characters - 2 * len(_CUT), 1)
    found = _matches(text, take_apart(query))
    first = _densest(found, size - size // _LEAD_SHARE)
    start = _begin(text, max(0, min(first - size // _LEAD_SHARE, len(text) - size)), first)
    end = _finish(text, start, min(start + size, len(text)))
    part = text[start:end].strip()
    before, after = _CUT if start else "", _CUT if end < len(text) else ""
    return Passage(f"{before}{part}{after}", is_cut=True)


def words_in(text: str, query: str) -> list[str]:
    """Return the words of a query that a text has, folded, in any form: `deploy` for `deploys`."""
    asked, own = take_apart(query), terms_of(text)
    return [
        *(one for one in asked.kept if any(_are_forms(one, other) for other in own.words)),
        *(one for one in asked.pieces if one in own.pairs),
    ]


def _are_forms(one: str, other: str) -> bool:
    """Whether two words are the same but for a short ending."""
    short, long = sorted((one, other), key=len)
    if len(short) < _LEAST_STEM:
        return short == long
    stem = short.removesuffix("e")
    return long.startswith(stem) and len(long) - len(stem) <= _LONGEST_ENDING


def _matches(text: str, words: Words) -> list[tuple[int, int, str]]:
    """Return the matches as (start, end, word), in the order of the text."""
    stems = {word[: max(_LEAST_STEM, len(word) - _WORD_ENDING)]: word for word in words.kept}
    needles = [rf"\b{re.escape(stem)}" for stem in sorted(stems, key=len, reverse=True)]
    needles += map(re.escape, words.pieces)
    if not needles:
        return []
    pattern = re.compile("|".join(needles))
    plain, places = folded_in_place(text)
    found = []
    for match in pattern.finditer(plain):
        found.append((places[match.start()], places[match.end() - 1] + 1, match[0]))
        if len(found) == _MOST_MATCHES:
            break
    return found


def _densest(found: list[tuple[int, int, str]], size: int) -> int:
    """Return the start of the stretch with most distinct words; rare words weigh more."""
    counts = Counter(word for *_, word in found)
    best, begin = 0.0, 0
    for number, (start, _, _) in enumerate(found):
        inside = set()
        for _, end, word in found[number:]:
            if end - start > size:
                break
            inside.add(word)
        weight = sum(1 + 1 / counts[word] for word in inside)
        if weight > best:
            best, begin = weight, start
    return begin


def _begin(text: str, start: int, first: int) -> int:
    """Return the start of a line, else a sentence, else a word, at or after `start`."""
    if start == 0:
        return 0
    breaks = [one.end() for one in _BREAK.finditer(text, start, first)]
    lines = [one for one in breaks if "\n" in text[one - 1 : one]]
    sentences = [one for one in breaks if text[:one].rstrip()[-1:] in ".!?。！？"]
    return (lines or sentences or breaks or [start])[0]


def _finish(text: str, start: int, end: int) -> int:
    """Return the end of the last whole word, at or before `end`."""
    if end == len(text):
        return end
    space = max(text.rfind(" ", start, end + 1), text.rfind("\n", start, end + 1))
    return space if space - start > (end - start) // 2 else end


def phrases_of(words: Sequence[str]) -> set[Phrase]:
    """Return each four neighbouring words of a text, as `words_in_order` returns them."""
    return {tuple(words[at : at + _PHRASE]) for at in range(len(words) - _PHRASE + 1)}


def repeated(words: Sequence[str], phrases: Collection[Phrase]) -> str:
    """Return the longest passage of a text that consists of known phrases, but for a few words.

    Empty: it has none, or none that is longer than a common sentence.
    """
    equal: set[int] = set()
    for at in range(len(words) - _PHRASE + 1):
        if tuple(words[at : at + _PHRASE]) in phrases:
            equal.update(range(at, at + _PHRASE))
    stretches: list[list[int]] = [[]]
    for at in sorted(equal):
        if stretches[-1] and at - stretches[-1][-1] > _GAP + 1:
            stretches.append([])
        stretches[-1].append(at)
    longest = max(stretches, key=len)
    said = [words[at] for at in longest]
    meant = {one for one in said if one not in STOPWORDS}
    letters = sum(len(one) if one.isascii() else 3 * len(one) for one in said)
    if len(said) < _LEAST_WORDS or len(meant) < _LEAST_MEANT or letters < _LEAST_CHARS:
        return ""
    return " ".join(words[longest[0] : longest[-1] + 1])
