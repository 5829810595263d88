"""Readable text on terminals with 16 colours."""

from functools import lru_cache

from rich.color import Color as TerminalColor
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

_BLACK, _WHITE = Style(color="color(0)", dim=False), Style(color="color(15)", dim=False)
_GREY, _SILVER = Color.parse("#555555"), Color.parse("#aaaaaa")
"""The two greys between black and white, to dim text; see `dimmed_on`."""
_DARK_GROUNDS = {0, 1, 4, 5, 8, 12}
"""Black, red, blue, magenta, grey and bright blue, as terminals number them."""


def dimmed_on(ground: Color) -> Color:
    """Return the grey for dimmed text: grey, but silver on a grey ground."""
    return _SILVER if _shown(ground.rich_color) == _shown(_GREY.rich_color) else _GREY


class PlainOnGround(LineFilter):
    """Draws text on a coloured ground, such as the chosen row, in white or black only.

    No tone is readable on each of the 16 grounds.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return a line's segments in readable colours; `background` is the widget's."""
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
