"""Words of a text by which a full-text search finds it again."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import pairwise

_TELLING = 5
_ANY_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}|[^\W_]{2,40}")
"""Scripts without spaces are cut in pairs: a search for a part of a text finds those."""
_LONGEST_GAP = 3
_WORD = re.compile(r"(?<![\w./@:'-])[A-Za-z]{4,24}(?![\w/@:'-]|\.\w)", re.ASCII)
_SCANNED = 20_000


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
