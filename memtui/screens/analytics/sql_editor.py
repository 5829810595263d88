"""The editor of a statement, with the words that complete what is typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import BindingType
from textual.geometry import Offset
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from memtui.screens.analytics.words import (
    EXAMPLE,
    Completion,
    Words,
    completions,
    emphasised,
    word_before,
)
from memtui.widgets.display import DIM, display, line
from memtui.widgets.editor import ForeignTextArea
from memtui.widgets.keys import bindings_for

_LEAST = 2
"""Letters of a word before its completions come by themselves."""
_SHOWN = 8


class Completions(OptionList, can_focus=False):
    """The words that fit, under the cursor."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id, compact=True, markup=False)
        self.words: tuple[Completion, ...] = ()
        self.moved = False

    def offer(self, words: Sequence[Completion], place: Offset) -> None:
        """Show words at a place of the screen; none hides the list."""
        self.words = tuple(words)
        self.moved = False
        self.display = bool(words)
        self.clear_options()
        if not words:
            return
        wide = max(len(one.word) for one in words)
        self.add_options(
            [
                Option(line(f"{one.word:<{wide}}", display(_note(one), limit=48, style=DIM)))
                for one in words
            ]
        )
        self.highlighted = 0
        self.styles.height = min(_SHOWN, len(words))
        self.absolute_offset = place

    def step(self, by: int) -> None:
        """Move the highlight."""
        self.highlighted = ((self.highlighted or 0) + by) % len(self.words)
        self.moved = True

    @property
    def chosen(self) -> Completion | None:
        """The highlighted word."""
        return self.words[self.highlighted] if self.words and self.highlighted is not None else None


def _note(one: Completion) -> str:
    return f"{one.sort}: {one.meaning}" if one.meaning else one.sort


class SqlEditor(ForeignTextArea):
    """Edits one statement.

    While words are offered, `tab` takes one, the arrows choose, `enter` takes a chosen one and
    `escape` closes them.
    """

    ACTION_GROUP = "sql"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("sql")

    class Asked(Message):
        """An action that the owner carries out, by its verb."""

        def __init__(self, verb: str) -> None:
            super().__init__()
            self.verb = verb

    def __init__(self, offered: Completions, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(EXAMPLE, id=id, soft_wrap=True, show_line_numbers=True)
        self.words = Words({})
        self._offered = offered
        self._by_hand = False

    def on_mount(self) -> None:
        """Select the example, so that the first letter takes its place."""
        self.select_all()

    def get_line(self, line_index: int) -> Text:
        """Return a line as it is drawn, its keywords and texts emphasised."""
        text = super().get_line(line_index)
        for start, end, style in emphasised(text.plain):
            text.stylize(style, start, end)
        return text

    def put(self, statement: str) -> None:
        """Begin with another statement."""
        self._by_hand = False
        self.load_text(statement)
        self.move_cursor(self.document.end)
        self._close()

    def point_at(self, row: int, column: int) -> None:
        """Put the cursor on a place, counted from 0."""
        self.move_cursor((row, column))

    async def _on_key(self, event: events.Key) -> None:
        if self._offered.display and self._with_words(event.key):
            event.stop()
            event.prevent_default()
            return
        self._by_hand = event.is_printable or event.key == "backspace"
        await super()._on_key(event)

    def _with_words(self, key: str) -> bool:
        """Return whether a key was one for the offered words, and do what it asks."""
        if key in {"up", "down"}:
            self._offered.step(1 if key == "down" else -1)
        elif key == "tab" or (key == "enter" and self._offered.moved):
            self._take()
        elif key == "escape":
            self._close()
        else:
            return False
        return True

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Offer what completes the word that is being written."""
        event.stop()
        typed = word_before(self._before)
        if self._by_hand and (len(typed) >= _LEAST or typed.endswith(".")):
            self._offer()
        else:
            self._close()

    def on_text_area_selection_changed(self) -> None:
        """Close the words when the cursor leaves the word."""
        if self._offered.display and not word_before(self._before):
            self._close()

    def on_blur(self) -> None:
        """Close the words."""
        self._close()

    @property
    def _before(self) -> str:
        return self.get_text_range((0, 0), self.cursor_location)

    def _offer(self) -> None:
        before = self._before
        words = completions(self.words, self.text, before)
        typed = word_before(before).rpartition(".")[2]
        place = self.cursor_screen_offset - (len(typed) + 1, -1)
        self._offered.offer(words, place)

    def _close(self) -> None:
        self._offered.offer((), Offset())

    def _take(self) -> None:
        chosen = self._offered.chosen
        if chosen is None:
            return
        row, column = self.cursor_location
        typed = word_before(self._before).rpartition(".")[2]
        self._by_hand = False
        self.replace(chosen.written, (row, column - len(typed)), (row, column))
        self._close()

    def action_complete(self) -> None:
        """Offer words for what is written so far."""
        self._offer()

    def action_run(self) -> None:
        """Run the statement."""
        self._close()
        self.post_message(self.Asked("run"))

    def action_leave(self) -> None:
        """Stop a running statement, or go to the result."""
        self.post_message(self.Asked("leave"))

    def action_save(self) -> None:
        """Keep the statement under a name."""
        self.post_message(self.Asked("save"))

    def action_saved(self) -> None:
        """Open a saved or earlier statement."""
        self.post_message(self.Asked("saved"))

    def action_views(self) -> None:
        """Show the views and their columns."""
        self.post_message(self.Asked("views"))
