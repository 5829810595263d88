"""Regular expressions that are compiled when they are first used.

A query uses 6 of the 78 in the modules that it imports; compiling the others took two or three
hundredths of its CPU.
"""

from __future__ import annotations

import re
from typing import Any, cast


class _LatePattern:
    """Has what the compiled pattern has; each attribute is looked up there once."""

    def __init__(self, text: str, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, value)
        return value


def late_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return the pattern, not compiled yet; a match's `re` is another object.

    Not for what is compiled a moment later anyhow, nor for a text that may be no pattern.
    """
    return cast("re.Pattern[str]", _LatePattern(text, flags))
