"""Words of a text by which a full-text search finds it again."""

from __future__ import annotations

import re

_TELLING = 5
_WORD = re.compile(r"(?<![\w./@:'-])[A-Za-z]{4,24}(?![\w/@:'-]|\.\w)", re.ASCII)
_SCANNED = 20_000


def plain_words(text: str) -> list[str]:
    """Return the distinct words that every tokeniser cuts out the same way, in order."""
    return list(dict.fromkeys(word.lower() for word in _WORD.findall(text[:_SCANNED])))


def telling_words(text: str) -> list[str]:
    """Return the longest plain words of a text, which are seldom stop words."""
    return sorted(plain_words(text), key=lambda word: (-len(word), word))[:_TELLING]
