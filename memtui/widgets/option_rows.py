"""A list of a few rows, each a content of one or more lines, with the keys of every list."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from memtui.widgets.keys import bindings_for

_ROW_PADDING = 2


class OptionRows(OptionList):
    """Shows rows given as contents; posts Textual's own `OptionHighlighted` and `OptionSelected`.

    For up to some hundred rows; a list that grows is a `VirtualList`.
    """

    ACTION_GROUP = "list"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("list")

    class WidthChanged(Message):
        """Rows that are laid out for a width have to be given again."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id, compact=True, markup=False)
        self._laid_out = 0

    @property
    def cells(self) -> int:
        """Cells of a row's line."""
        return max(0, self.scrollable_content_region.width - _ROW_PADDING)

    def on_resize(self) -> None:
        """Tell of another width."""
        if self.cells != self._laid_out:
            self._laid_out = self.cells
            self.post_message(self.WidthChanged())

    def show(
        self,
        rows: Sequence[Content],
        highlighted: int | None,
        *,
        passed: Container[int] = frozenset(),
    ) -> None:
        """Show other rows with the cursor on one of them; it passes over those in `passed`."""
        self.clear_options()
        self.add_options([Option(row, disabled=n in passed) for n, row in enumerate(rows)])
        self.highlighted = highlighted if rows else None

    def on_click(self, event: Click) -> None:
        """Put the cursor on the row that was clicked; a double click chooses it."""
        event.prevent_default()
        clicked = event.style.meta.get("option")
        if isinstance(clicked, int) and not self.options[clicked].disabled:
            self.highlighted = clicked
            if event.chain > 1:
                self.action_select()

    def action_down(self) -> None:
        """Move to the next row."""
        self.action_cursor_down()

    def action_up(self) -> None:
        """Move to the row before."""
        self.action_cursor_up()

    def action_top(self) -> None:
        """Move to the first row."""
        self.action_first()

    def action_bottom(self) -> None:
        """Move to the last row."""
        self.action_last()

    def action_half_down(self) -> None:
        """Move down a few rows."""
        self._step(max(self.size.height // 4, 1))

    def action_half_up(self) -> None:
        """Move up a few rows."""
        self._step(-max(self.size.height // 4, 1))

    def action_page_down(self) -> None:
        """Move down about a page; Textual's own fails before the rows were laid out."""
        self._step(max(self.size.height // 2, 1))

    def action_page_up(self) -> None:
        """Move up about a page."""
        self._step(-max(self.size.height // 2, 1))

    def _step(self, by: int) -> None:
        move = self.action_cursor_down if by > 0 else self.action_cursor_up
        last = self.option_count - 1
        for _ in range(abs(by)):
            if self.highlighted != (last if by > 0 else 0):
                move()

    def action_open(self) -> None:
        """Choose the row under the cursor."""
        self.action_select()
