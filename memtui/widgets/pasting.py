"""What is pasted comes as one event, whatever stands in it.

Textual's parser looks at it character by character, and takes the escape codes in it for keys that
were pressed: 100 KB of a coloured log kept the app busy for twenty seconds, and could have answered
questions.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from typing import Any

from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.events import Paste
from textual.message import Message

_LONGEST_END = len(BRACKETED_PASTE_END) - 1


class PasteParser(XTermParser):
    """Reads what the terminal sends, and what is pasted as it is."""

    _pasted: list[str] | None = None
    """What came of a paste whose end is still to come."""

    def feed(self, data: str) -> Iterable[Message]:
        """Yield what some characters mean; none are the end of all."""
        if not data:
            yield from super().feed(data)
        while data:
            if self._pasted is None:
                before, start, data = data.partition(BRACKETED_PASTE_START)
                if before:
                    yield from super().feed(before)
                self._pasted = [] if start else None
            else:
                data = yield from self._paste(self._pasted, data)

    def _paste(self, pasted: list[str], data: str) -> Generator[Message, None, str]:
        """Take characters of a paste, and return those that came after its end."""
        # The end may have come in two parts.
        begun = "".join(pasted[-_LONGEST_END:])[-_LONGEST_END:]
        pasted.append(data)
        if BRACKETED_PASTE_END not in begun + data:
            return ""
        text, _, rest = "".join(pasted).partition(BRACKETED_PASTE_END)
        self._pasted = None
        yield Paste(text.replace("\x00", ""))
        return rest


def use_in(driver: type[Any]) -> None:
    """Let a driver read what the terminal sends with this parser."""
    module = vars(sys.modules[driver.__module__])
    if "XTermParser" in module:
        module["XTermParser"] = PasteParser
