"""A pane of details that scrolls with the keys of a list."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.containers import VerticalScroll

from memtui.widgets.keys import bindings_for
from memtui.widgets.list_moves import ListMoves


class DetailPane(ListMoves, VerticalScroll, can_focus=True):
    """Base of the panes beside a list."""

    ACTION_GROUP = "list"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("list")

    @property
    def _cells(self) -> int:
        """Cells of a line, whether or not there is a scrollbar."""
        return max(0, self.content_size.width - self.styles.scrollbar_size_vertical)

    @property
    def page_lines(self) -> int:
        """Lines in view."""
        return self.size.height

    def move(self, lines: int) -> None:
        """Scroll by so many lines."""
        self.scroll_relative(y=lines, animate=False)

    def action_top(self) -> None:
        """Scroll to the first line."""
        self.scroll_home(animate=False)

    def action_bottom(self) -> None:
        """Scroll to the last line."""
        self.scroll_end(animate=False)
