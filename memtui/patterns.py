"""Regular expressions that are compiled at first use.

A query uses 6 of the 78 in the modules that it imports; compiling the others cost 2 to 3 % of its
CPU time.
"""

import re
from typing import Any, cast


class _LatePattern:
    """Proxy of a compiled pattern; each attribute is looked up once, then stored."""

    def __init__(self, text: str, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, value)
        return value


def late_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return the pattern, not compiled yet; the `re` of its matches is another object.

    Not for patterns used right after import, nor for text that may be an invalid pattern.
    """
    return cast("re.Pattern[str]", _LatePattern(text, flags))
