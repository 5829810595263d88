"""Dialogs that show the screen below them, dimmed.

Textual computes every dimmed style again for each painting of the dialog, which took a third of
the time to open one; here the styles are cached.
"""

from functools import lru_cache
from math import inf
from typing import Any

from rich.color import Color as TerminalColor
from rich.segment import Segment
from rich.style import Style as TerminalStyle
from textual.color import Color
from textual.css.styles import RulesMap
from textual.message import Message
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import ModalScreen, Screen, ScreenResultType
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual

from memtui.widgets.few_colours import dimmed_on
from memtui.widgets.sized import SizedScreen


class DimmingScreen(ModalScreen[ScreenResultType], SizedScreen[ScreenResultType]):
    """A dialog around which the screen below shows.

    Keys typed before a dialog opened go to it, except to a `final` one, which asks for something
    irreversible: nobody may confirm that without having seen it.
    """

    final: bool = False
    _seen_at = inf

    @property
    def takes_since(self) -> float:
        """Earliest time of the keys that it accepts, by the clock of events."""
        return self._seen_at if self.final else 0.0

    def on_mount(self) -> None:
        """Note when a `final` dialog was first drawn."""
        if self.final:
            self.call_after_refresh(self._seen)

    def _seen(self) -> None:
        self._seen_at = Message().time

    def render(self) -> Any:
        """Return the screen below, dimmed, or Textual's plain background if it does not show."""
        below = super().render()
        if not isinstance(below, BackgroundScreen):
            return below
        plain = None
        if self.app.has_class("-few-colours") and below.color.a:
            ground = self.background_colors[1]
            plain = TerminalStyle(color=dimmed_on(ground).rich_color, bgcolor=ground.rich_color)
        return _Dimmed(below.screen, below.color, plain)


class _Dimmed(Visual):
    def __init__(self, screen: Screen[Any], tint: Color, plain: TerminalStyle | None) -> None:
        """Dim with a tint, or with the one style `plain` where 16 colours have no dim variants."""
        self._screen = screen
        self._tint = tint
        self._plain = plain

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        """Return the lines of the screen below."""
        del width, height, style, options
        below = self._screen._compositor.render_strips()  # noqa: SLF001 - Textual reads it so too
        return [Strip(map(self._dim, strip), strip.cell_length) for strip in below]

    def _dim(self, segment: Segment) -> Segment:
        style = self._plain or _tinted(segment.style or TerminalStyle.null(), self._tint)
        return Segment(segment.text, style)

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        """Return the container's width."""
        del rules
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        """Return the lines of the screen below."""
        del rules, width
        return self._screen.size.height


@lru_cache(4096)
def _tinted(style: TerminalStyle, tint: Color) -> TerminalStyle:
    """Return a style under a tint, without links; a transparent tint changes no colour."""

    def under_tint(one: TerminalColor | None) -> TerminalColor | None:
        return one if one is None or not tint.a else (Color.from_rich_color(one) + tint).rich_color

    return TerminalStyle(
        color=under_tint(style.color),
        bgcolor=under_tint(style.bgcolor),
        bold=style.bold,
        italic=style.italic,
        underline=style.underline,
        strike=style.strike,
        reverse=style.reverse,
    )
