"""From rows and widths to strips of exactly the list's width; no state, no I/O."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from memtui.visible import visible
from memtui.widgets.columns import GAP, GUTTER, Column, fit_cell

R = TypeVar("R")
Shown = Sequence[tuple[Column[R], int]]


@dataclass(frozen=True, slots=True)
class RowState:
    """What holds for one line apart from what it shows."""

    cursor: bool = False
    marked: bool = False
    in_range: bool = False

    @property
    def gutter(self) -> str:
        """Bar, mark and blank: nothing is told by colour alone."""
        bar = "▌" if self.cursor else " "
        mark = "●" if self.marked else "○" if self.in_range else " "
        return bar + mark + " "


class ListPainter(Generic[R]):
    """Draws the lines of a list."""

    def header(
        self, shown: Shown[R], sort: tuple[str, bool] | None, width: int, style: Style
    ) -> Strip:
        """Draw the titles; an arrow shows which column orders the rows, and which way."""
        parts = [" " * GUTTER]
        for place, (column, cells) in enumerate(shown):
            title = column.title
            if sort is not None and sort[0] == column.key:
                arrow = "↓" if sort[1] else "↑"
                title = arrow + title if column.align == "right" else title + arrow
            parts.append((" " * GAP if place else "") + fit_cell(title, cells, column.align))
        return _strip([Segment("".join(parts), style)], width, style)

    def row(
        self,
        row: R,
        shown: Shown[R],
        *,
        state: RowState,
        width: int,
        style: Style,
        tone: Callable[[str], Style],
    ) -> Strip:
        """Draw one row; every cell keeps to its column whatever it holds."""
        segments = [Segment(state.gutter, style + tone("accent"))]
        for place, (column, cells) in enumerate(shown):
            if place:
                segments.append(Segment(" " * GAP, style))
            cell = column.cell(row)
            cell_style = style + tone(cell.tone) if cell.tone else style
            segments.append(Segment(fit_cell(cell.text, cells, column.align), cell_style))
        return _strip(segments, width, style)

    def placeholder(self, index: int, state: RowState, width: int, style: Style) -> Strip:
        """Draw a line that is on its way."""
        text = f"{state.gutter}{index + 1:,} …"
        return _strip([Segment(fit_cell(text, width), style)], width, style)

    def notice(
        self,
        words: Sequence[str],
        line: int,
        *,
        height: int,
        width: int,
        base: Style,
        dim: Style,
    ) -> Strip:
        """Draw one line of the words that stand where rows would be, in the upper third."""
        wrapped: list[tuple[str, Style]] = []
        for place, text in enumerate(words):
            style = base if place == 0 else base + dim
            room = max(8, width - 8)
            parts = textwrap.wrap(visible(text, limit=2_000), room) or [""]
            wrapped.extend((part, style) for part in parts)
        start = max(0, (height - len(wrapped)) // 3)
        if not start <= line < start + len(wrapped):
            return Strip.blank(width, base)
        text, style = wrapped[line - start]
        left = max(0, (width - cell_len(text)) // 2)
        return _strip([Segment(" " * left + text, style)], width, base)

    def column_at(self, x: int, shown: Shown[R]) -> str | None:
        """Return the key of the column at a cell of the header."""
        left = GUTTER
        for column, cells in shown:
            if left <= x < left + cells + GAP:
                return column.key
            left += cells + GAP
        return None


def _strip(segments: list[Segment], width: int, style: Style) -> Strip:
    return Strip(segments).adjust_cell_length(width, style)
