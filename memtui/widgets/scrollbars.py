"""Scrollbars of whole cells."""

from __future__ import annotations

from textual.scrollbar import ScrollBarRender


class WholeCells(ScrollBarRender):
    """Draws a thumb without a part of a cell at its ends.

    Such a part is a block in the colour of the ground: where a font does not fill the whole cell,
    as in most pictures, a bar of the thumb's colour stays below it.
    """

    VERTICAL_BARS = [" "]
    HORIZONTAL_BARS = [" "]
