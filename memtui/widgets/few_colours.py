"""What 16 colours can show so that it can be read."""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color as TerminalColor
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

_BLACK, _WHITE = Style(color="color(0)", dim=False), Style(color="color(15)", dim=False)
_GREY, _SILVER = Color.parse("#555555"), Color.parse("#aaaaaa")
"""The two greys between them; silver is hardly seen on white, grey not at all on itself."""
_DARK_GROUNDS = {0, 1, 4, 5, 8, 12}
"""Black, red, blue, magenta, grey and bright blue, as terminals number them."""


def dimmed_on(ground: Color) -> Color:
    """Return the grey in which text on a ground is dimmed and can still be read."""
    return _SILVER if _shown(ground.rich_color) == _shown(_GREY.rich_color) else _GREY


class PlainOnGround(LineFilter):
    """Draws text on a ground of its own, as that of the chosen row, in white or in black alone.

    No tone can be read on every ground that 16 colours have.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return a line's pieces so that each can be read; `background` is the widget's."""
        page = background.rich_color
        return [
            Segment(text, style and _readable(style, page), control)
            for text, style, control in segments
        ]


@lru_cache(1024)
def _readable(style: Style, page: TerminalColor) -> Style:
    if style.bgcolor is None or style.reverse:
        return style
    ground = _shown(style.bgcolor)
    if style.bgcolor.is_default or ground == _shown(page):
        return style
    return style + (_WHITE if ground in _DARK_GROUNDS else _BLACK)


def _shown(colour: TerminalColor) -> int | None:
    return colour.downgrade(ColorSystem.STANDARD).number
