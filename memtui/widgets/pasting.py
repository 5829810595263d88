"""A parser that turns each paste into one event, whatever it contains.

Textual's parser reads a paste character by character, and takes escape codes in it for pressed
keys: 100 KB of a coloured log kept the app busy for twenty seconds, and could answer questions.
"""

import sys
from codecs import getincrementaldecoder
from collections.abc import Generator, Iterable
from functools import partial
from typing import Any

from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.events import Paste
from textual.message import Message

_LONGEST_END = len(BRACKETED_PASTE_END) - 1


class PasteParser(XTermParser):
    """Parses the terminal's input, but passes pasted text on unparsed."""

    _pasted: list[str] | None = None
    """The parts so far of a paste without its end; None: no paste is under way."""

    def feed(self, data: str) -> Iterable[Message]:
        """Yield the messages for some input; empty input ends the stream."""
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
        """Collect input of a paste; return the rest after its end."""
        # The end marker may come in two parts.
        begun = "".join(pasted[-_LONGEST_END:])[-_LONGEST_END:]
        pasted.append(data)
        if BRACKETED_PASTE_END not in begun + data:
            return ""
        text, _, rest = "".join(pasted).partition(BRACKETED_PASTE_END)
        self._pasted = None
        yield Paste(text.replace("\x00", ""))
        return rest


def use_in(driver: type[Any]) -> None:
    """Make a driver use this parser, and read a byte that is not UTF-8 as U+FFFD."""
    module = vars(sys.modules[driver.__module__])
    if "XTermParser" in module:
        module["XTermParser"] = PasteParser
        module["getincrementaldecoder"] = lambda encoding: partial(
            getincrementaldecoder(encoding), errors="replace"
        )
