"""The list of a chooser, with any number of choices; only lines in view are drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.content import Content
from textual.events import Click, Leave, MouseMove
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

from memtui.widgets.display import hanging

_CHOICE = "choice"
"""Key of a choice's index in the style of its lines."""


class ChoiceList(ScrollView, can_focus=False):
    """Shows choices, one of them highlighted; its owner handles the keys."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"choice-list--highlighted", "choice-list--hover"}

    highlighted: reactive[int | None] = reactive(None)
    """Index of the highlighted choice; None: there are no choices."""
    hovered: reactive[int | None] = reactive(None)
    """Index of the choice under the mouse."""

    @dataclass
    class Taken(Message):
        """A choice was clicked."""

        place: int

    def __init__(self) -> None:
        super().__init__()
        self._choices: Sequence[Sequence[Content]] = ()
        self._lead = 0
        self._lines: list[tuple[int, Content]] = []
        """Each line with the index of its choice."""
        self._first: list[int] = []
        """The first line of each choice."""

    def show(
        self, choices: Sequence[Sequence[Content]], *, lead: int = 0, highlighted: int = 0
    ) -> None:
        """Show choices, each given as its lines, and highlight one of them.

        A wrapped line continues indented by `lead` cells.
        """
        self._choices, self._lead = choices, lead
        self._lay_out()
        self.highlighted = highlighted if choices else None
        self.scroll_home(animate=False)
        self._show_highlighted()

    def step(self, by: int) -> None:
        """Move the highlight by `by`; a single step wraps around at the ends."""
        count, now = len(self._choices), self.highlighted or 0
        if count:
            goes_round = abs(by) == 1
            self.highlighted = (
                (now + by) % count if goes_round else max(0, min(now + by, count - 1))
            )

    @property
    def page(self) -> int:
        """About how many choices are in view."""
        each = len(self._lines) / max(1, len(self._choices))
        return max(2, int(self.size.height / max(1.0, each)))

    def on_resize(self) -> None:
        """Wrap again for the new width."""
        self._lay_out()
        self._show_highlighted()

    def _lay_out(self) -> None:
        width = self.scrollable_content_region.width
        lead = min(self._lead, width // 2)
        cuts = self.styles.text_wrap == "nowrap"
        self._lines, self._first = [], []
        for place, parts in enumerate(self._choices if width else ()):
            self._first.append(len(self._lines))
            for part in parts:
                if part.cell_length <= width:
                    self._lines.append((place, part))
                elif cuts:
                    self._lines.append((place, part.truncate(width, ellipsis=True)))
                else:
                    wrapped = hanging(part[:lead], part[lead:], width)
                    self._lines.extend((place, line) for line in wrapped.split("\n"))
        # Set now: Textual would notice after layout and drawing, and do both again.
        self.show_vertical_scrollbar = 0 < self.container_size.height < len(self._lines)
        self.virtual_size = Size(width, len(self._lines))
        self.refresh()

    def watch_highlighted(self) -> None:
        """Keep the highlighted choice in view."""
        self._show_highlighted()

    def _show_highlighted(self) -> None:
        place = self.highlighted
        if place is not None and place < len(self._first):
            first = self._first[place]
            end = self._first[place + 1] if place + 1 < len(self._first) else len(self._lines)
            region = Region(0, first, self.virtual_size.width, end - first)
            self.scroll_to_region(region, animate=False, force=True, immediate=True)

    def render_line(self, y: int) -> Strip:
        """Draw one line of the view."""
        width, line = self.scrollable_content_region.width, self.scroll_offset.y + y
        if line >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        place, content = self._lines[line]
        style = self.visual_style
        if place == self.highlighted:
            style = self.get_visual_style("choice-list--highlighted")
        elif place == self.hovered:
            style = self.get_visual_style("choice-list--hover")
        [strip, *_] = Visual.to_strips(self, content, width, 1, style) or [Strip.blank(width)]
        return strip.extend_cell_length(width, style.rich_style).apply_meta({_CHOICE: place})

    def on_mouse_move(self, event: MouseMove) -> None:
        """Mark the choice under the mouse."""
        self.hovered = event.style.meta.get(_CHOICE)

    def on_leave(self, _: Leave) -> None:
        """Unmark it."""
        self.hovered = None

    def on_click(self, event: Click) -> None:
        """Post `Taken` for a clicked choice."""
        if (place := event.style.meta.get(_CHOICE)) is not None:
            event.stop()
            self.post_message(self.Taken(place))
