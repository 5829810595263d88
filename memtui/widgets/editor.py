"""Fields that keep every character of a foreign text and show none of them raw."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any

from rich.cells import cell_len
from rich.highlighter import Highlighter
from rich.text import Text
from textual.events import Key, Resize
from textual.message import Message
from textual.widgets import Input, TextArea
from textual.widgets.text_area import Edit, EditResult

LONGEST_IN_PLACE = 200_000
"""Characters that are edited in place; longer texts go to the person's own editor."""

LONGEST_LINE = 10_000
"""Characters that a line takes: it is drawn anew with each that is written."""
_LONGEST_WRAPPED = 10_000
"""Characters of a line that is wrapped."""
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


@lru_cache(64)
def _stood_in(line: str) -> str:
    """Return a line as it is drawn; it is drawn in many parts, and again with each blink."""
    if line.isascii() and line.isprintable():
        return line
    return "".join(map(stand_in, line))


def keeps(text: str) -> bool:
    """Return whether a text area would give a text back as it got it."""
    if len(text) > LONGEST_IN_PLACE:
        return False
    return TextArea(text).text == text


class ForeignTextArea(TextArea):
    """Edits the exact text; what is drawn stands in, character for character.

    A very long line is not wrapped: drawing it takes a second, for each line that it is wrapped to.
    """

    def edit(self, edit: Edit) -> EditResult:
        """Change the text."""
        if max(map(len, edit.text.splitlines()), default=0) > _LONGEST_WRAPPED:
            self.soft_wrap = False
        return super().edit(edit)

    def get_line(self, line_index: int) -> Text:
        """Return a line as it is drawn."""
        return Text(_stood_in(self.document.get_line(line_index)), end="", no_wrap=True)


class OneLineArea(ForeignTextArea):
    """Edits a text that has no line breaks: `enter` is left to the screen, a pasted one a space.

    While `one_line` is off it takes them as any other area does.
    """

    one_line = True

    def edit(self, edit: Edit) -> EditResult:
        """Change the text, by no line break."""
        if self.one_line:
            edit.text = " ".join(edit.text.splitlines())
        return super().edit(edit)

    async def _on_key(self, event: Key) -> None:
        if self.one_line and event.key == "enter":
            event.prevent_default()


def whole_words(text: str, width: int) -> str:
    """Return `text`, without its last words and with "…" for them where it is wider than that."""
    if cell_len(text) <= width:
        return text
    words = text.split()
    while words and cell_len(" ".join(words)) > width - 2:
        words.pop()
    return " ".join([*words, "…"])


class _StandIns(Highlighter):
    def highlight(self, text: Text) -> None:
        """Put stand-ins into what is drawn of a value."""
        if (shown := _stood_in(text.plain)) != text.plain:
            text.plain = shown


class ForeignInput(Input):
    """Holds the exact value; what is drawn stands in, as in `ForeignTextArea`."""

    class Changed(Input.Changed, namespace="input"):
        """The value changed; of many that wait only the last one is told."""

        def can_replace(self, message: Message) -> bool:
            """Return whether a later message says what this one would."""
            return isinstance(message, ForeignInput.Changed) and message.input is self.input

    def __init__(self, value: str | None = None, placeholder: str = "", **options: Any) -> None:
        options = {"max_length": LONGEST_LINE, **options}
        super().__init__(value, placeholder, highlighter=_StandIns(), **options)
        self._hint = placeholder

    def on_resize(self, event: Resize) -> None:
        """Show of the placeholder the words that fit."""
        del event
        self.placeholder = whole_words(self._hint, self.scrollable_content_region.width)

    def on_blur(self) -> None:
        """Show the beginning of what is written, but where the whole terminal was left for once."""
        if self.app.app_focus:
            self.scroll_to(x=0, animate=False, force=True)
