"""Fuzzy words (`~word` in a filter line), with the same matches in every database and in Python.

Matching ignores case, and in memories also diacritics (`memtui.text_analysis`). A word matches

- one word of the text that has its characters in order, with any letters and digits between
  them: `~dply` finds `deploy`, `~dpl-prd` finds `deploy-prod`;
- and, from `SLIP_FROM` characters on, the same text with one slip after its first character: a
  letter that is wrong or one too many, or two swapped neighbours: `~relaese` finds `release`.

A letter here is any character but spaces, punctuation and control characters of ASCII.
"""

import re

from memtui.text_analysis import folded

SLIP_FROM = 5
"""Shortest word that may have a slip; shorter ones would match almost any text."""
MOST_CHARACTERS = 32
"""The longest fuzzy word."""

_OTHERS = "\x01-/:-`{-\x7f"
"""Ranges of non-letters in a character class; capitals are included: texts are lower case."""
_SPECIAL = frozenset(r"\.^$*+?{}[]()|-")


def pattern(lowered: str) -> str:
    """Return the regular expression that finds a word in a text, both in lower case.

    Python, RE2 (DuckDB) and PostgreSQL match it alike, in time linear in the text: a match starts
    at the start of a word, and no gap contains the character after it, so nothing backtracks.
    """
    signs = [f"\\{sign}" if sign in _SPECIAL else sign for sign in lowered]
    gaps = (f"{_letter_but(sign)}*{shown}" for sign, shown in zip(lowered, signs, strict=True))
    found = [f"(?:^|[{_OTHERS}]){''.join(gaps)}"]
    if len(signs) >= SLIP_FROM:
        for place in range(1, len(signs)):
            before, after = signs[:place], signs[place + 1 :]
            found.append("".join((*before, f"[^{_OTHERS}]?", *after)))
            if after:
                found.append("".join((*before, after[0], signs[place], *after[1:])))
    return "|".join(found)


def _letter_but(sign: str) -> str:
    """Return the character class of all letters except one."""
    return f"[^{_OTHERS}{sign if sign.isalnum() or not sign.isascii() else ''}]"


def finds(word: str, text: str) -> bool:
    """Whether a fuzzy word matches a text."""
    return re.search(pattern(folded(word)), folded(text)) is not None
