"""Fields that keep every character of a foreign text but draw no control character raw."""

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
"""Most characters that are edited in place; a longer text opens in the person's own editor."""

LONGEST_LINE = 10_000
"""Most characters of a one-line field: each key stroke draws all of it again."""
_LONGEST_WRAPPED = 10_000
"""Longest line that is wrapped, in characters."""
_CONTROL_PICTURES = 0x2400
_STAND_IN = "\ufffd"


def stand_in(char: str) -> str:
    """Return a visible character in place of one that a terminal would obey or hide."""
    code = ord(char)
    if code == 0x7F:
        return "\u2421"
    if code < 0x20:
        return char if char == "\t" else chr(_CONTROL_PICTURES + code)
    hidden = unicodedata.category(char) in {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}
    return _STAND_IN if hidden and char not in "\u200c\u200d" else char


@lru_cache(64)
def _stood_in(line: str) -> str:
    """Return a line as it is drawn; cached, as each part of it and each blink asks again."""
    if line.isascii() and line.isprintable():
        return line
    return "".join(map(stand_in, line))


def keeps(text: str) -> bool:
    """Return whether a text area would return a text unchanged."""
    if len(text) > LONGEST_IN_PLACE:
        return False
    return TextArea(text).text == text


class ForeignTextArea(TextArea):
    """Edits the exact text and draws each hidden character as one visible stand-in.

    Lines are not wrapped once one is very long: drawing would take a second for each wrapped line.
    """

    def edit(self, edit: Edit) -> EditResult:
        """Change the text, and stop wrapping if a very long line comes."""
        if max(map(len, edit.text.splitlines()), default=0) > _LONGEST_WRAPPED:
            self.soft_wrap = False
        return super().edit(edit)

    def get_line(self, line_index: int) -> Text:
        """Return a line with stand-ins for hidden characters."""
        return Text(_stood_in(self.document.get_line(line_index)), end="", no_wrap=True)


class OneLineArea(ForeignTextArea):
    """Edits a text without line breaks: the screen handles `enter`, a pasted break is a space.

    While `one_line` is off, it accepts line breaks.
    """

    one_line = True

    def edit(self, edit: Edit) -> EditResult:
        """Change the text; while `one_line` is on, line breaks become spaces."""
        if self.one_line:
            edit.text = " ".join(edit.text.splitlines())
        return super().edit(edit)

    async def _on_key(self, event: Key) -> None:
        if self.one_line and event.key == "enter":
            event.prevent_default()


def whole_words(text: str, width: int) -> str:
    """Return `text`; if wider than `width` cells, "…" replaces its last words."""
    if cell_len(text) <= width:
        return text
    words = text.split()
    while words and cell_len(" ".join(words)) > width - 2:
        words.pop()
    return " ".join([*words, "…"])


class _StandIns(Highlighter):
    def highlight(self, text: Text) -> None:
        """Replace hidden characters by stand-ins."""
        if (shown := _stood_in(text.plain)) != text.plain:
            text.plain = shown


class ForeignInput(Input):
    """Holds the exact value and draws hidden characters as `ForeignTextArea` does."""

    class Changed(Input.Changed, namespace="input"):
        """The value changed; a newer message replaces a queued one."""

        def can_replace(self, message: Message) -> bool:
            """Return whether `message`, a later one, makes this one superfluous."""
            return isinstance(message, ForeignInput.Changed) and message.input is self.input

    def __init__(self, value: str | None = None, placeholder: str = "", **options: Any) -> None:
        options = {"max_length": LONGEST_LINE, **options}
        super().__init__(value, placeholder, highlighter=_StandIns(), **options)
        self._hint = placeholder

    def on_resize(self, event: Resize) -> None:
        """Show the words of the placeholder that fit."""
        del event
        self.placeholder = whole_words(self._hint, self.scrollable_content_region.width)

    def on_blur(self) -> None:
        """Scroll to the beginning, unless the whole terminal lost the focus."""
        if self.app.app_focus:
            self.scroll_to(x=0, animate=False, force=True)
