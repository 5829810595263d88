"""A text that is laid out for the width it has."""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content
from textual.widgets import Static


class Fitted(Static):
    """Draws a content of so many cells a line, and again whenever its width changes."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._draw: Callable[[int], Content] = lambda _: Content("")
        self._cells = 0

    def fit(self, draw: Callable[[int], Content]) -> None:
        """Show what `draw` returns for a width in cells."""
        self._draw = draw
        self._cells = self.content_size.width
        self.update(draw(self._cells))

    def on_resize(self) -> None:
        """Lay the text out anew for another width."""
        if self.content_size.width != self._cells:
            self.fit(self._draw)
