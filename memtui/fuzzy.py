"""Fuzzy words: what `~word` in a filter line finds, the same in every database and in Python.

Whatever the case, and in memories whatever the diacritics (`memtui.text_analysis`), a word is found

- where its characters stand in this order in one word of the text, with any letters and digits
  between them: `~dply` finds `deploy`, `~dpl-prd` finds `deploy-prod`;
- and, from `SLIP_FROM` characters on, where it stands with one slip after its first character: a
  letter that is wrong or one too many, or two neighbours that changed places: `~relaese` finds
  `release`.

A letter is here whatever is not a space, punctuation or control character of ASCII.
"""

from __future__ import annotations

import re

from memtui.text_analysis import folded

SLIP_FROM = 5
"""The fewest characters of a word that may hold a slip; a shorter one would be found anywhere."""
MOST_CHARACTERS = 32
"""The longest fuzzy word."""

_OTHERS = "\x01-/:-`{-\x7f"
"""What is not a letter, as ranges of a class; capitals are among them, which no lower case has."""
_SPECIAL = frozenset(r"\.^$*+?{}[]()|-")


def pattern(lowered: str) -> str:
    """Return the regular expression that finds a word in a text, both in lower case.

    It means the same to Python, RE2 (DuckDB) and PostgreSQL, and takes none of them longer than
    the text is long: it begins with a word of the text, and no gap holds the character behind it.
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
    """Return the class of all letters but one."""
    return f"[^{_OTHERS}{sign if sign.isalnum() or not sign.isascii() else ''}]"


def finds(word: str, text: str) -> bool:
    """Whether a text has a fuzzy word."""
    return re.search(pattern(folded(word)), folded(text)) is not None
