"""Fields that keep every character of a foreign text and show none of them raw."""

from __future__ import annotations

import unicodedata
from typing import Any

from rich.highlighter import Highlighter
from rich.text import Text
from textual.widgets import Input, TextArea

LONGEST_IN_PLACE = 200_000
"""Characters that are edited in place; longer texts go to the person's own editor."""

_CONTROL_PICTURES = 0x2400
_STAND_IN = "\ufffd"


def stand_in(char: str) -> str:
    """Return one visible character for one that a terminal would obey or hide."""
    code = ord(char)
    if code == 0x7F:
        return "\u2421"
    if code < 0x20:
        return char if char == "\t" else chr(_CONTROL_PICTURES + code)
    hidden = unicodedata.category(char) in {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}
    return _STAND_IN if hidden and char not in "\u200c\u200d" else char


def keeps(text: str) -> bool:
    """Return whether a text area would give a text back as it got it."""
    if len(text) > LONGEST_IN_PLACE:
        return False
    return TextArea(text).text == text


class ForeignTextArea(TextArea):
    """Edits the exact text; what is drawn stands in, character for character."""

    def get_line(self, line_index: int) -> Text:
        """Return a line as it is drawn."""
        line = self.document.get_line(line_index)
        if not (line.isascii() and line.isprintable()):
            line = "".join(map(stand_in, line))
        return Text(line, end="", no_wrap=True)


class _StandIns(Highlighter):
    def highlight(self, text: Text) -> None:
        """Put stand-ins into what is drawn of a value."""
        if not (text.plain.isascii() and text.plain.isprintable()):
            text.plain = "".join(map(stand_in, text.plain))


class ForeignInput(Input):
    """Holds the exact value; what is drawn stands in, as in `ForeignTextArea`."""

    def __init__(self, value: str | None = None, **options: Any) -> None:
        super().__init__(value, highlighter=_StandIns(), **options)
