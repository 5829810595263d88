"""The screen that shows, dimmed, around what lies over it.

Textual's own way styles every piece of it anew each time the dialog is painted, several times
while it opens, which was a third of what opening one took.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any

from rich.color import Color as TerminalColor
from rich.segment import Segment
from rich.style import Style as TerminalStyle
from textual.color import Color
from textual.message import Message
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import ModalScreen, ScreenResultType
from textual.strip import Strip
from textual.visual import Visual

from memtui.widgets.few_colours import dimmed_on
from memtui.widgets.sized import SizedScreen

if TYPE_CHECKING:
    from textual.css.styles import RulesMap
    from textual.screen import Screen
    from textual.style import Style
    from textual.visual import RenderOptions


class DimmingScreen(ModalScreen[ScreenResultType], SizedScreen[ScreenResultType]):
    """A screen around which the one below it is seen.

    What is typed ahead of a question answers it, but not a `final` one, of what nothing brings
    back: who says yes to that has to have seen it.
    """

    final: bool = False
    _seen_at = inf

    @property
    def takes_since(self) -> float:
        """From when on keys answer it, by the clock of their events."""
        return self._seen_at if self.final else 0.0

    def on_mount(self) -> None:
        """Take note of when it is seen, where that matters."""
        if self.final:
            self.call_after_refresh(self._seen)

    def _seen(self) -> None:
        self._seen_at = Message().time

    def render(self) -> Any:
        """Return the screen below, dimmed, or a plain background where nothing of it is seen."""
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
        """Dim with a tint; with one plain style where 16 colours have no dimmed one of each."""
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
        """Return the width of what it is drawn on."""
        del rules
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        """Return the lines of the screen below."""
        del rules, width
        return self._screen.size.height


@lru_cache(4096)
def _tinted(style: TerminalStyle, tint: Color) -> TerminalStyle:
    """Return a style without what a click on it would do; a transparent tint changes no colour."""

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
