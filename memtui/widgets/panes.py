"""Panes that move with the list keys, and contents drawn for their width."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual.binding import BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.css.styles import RulesMap
from textual.events import Click, MouseDown, MouseMove
from textual.geometry import Size
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widget import Widget
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from memtui.widgets.display import BAD, DIM, LEADS, STRONG, display, lines
from memtui.widgets.keys import bindings_for

_ROW_PADDING = 2
_SPLIT_STEP = 5
_LEAST_SHARE = 15
"""Least percentage of the room that a list, or its details, can have."""


class ListMoves:
    """Runs the moving actions of the group `list` for a widget that implements `move`."""

    ACTION_GROUP = "list"
    BINDINGS: ClassVar[list[BindingType]]

    def __init_subclass__(cls, **options: Any) -> None:
        """Bind the actions of the group."""
        cls.BINDINGS = bindings_for(cls.ACTION_GROUP)
        super().__init_subclass__(**options)

    @abstractmethod
    def move(self, lines: int) -> None:
        """Move by so many lines, down if positive, at most to the end."""

    @property
    @abstractmethod
    def page_lines(self) -> int:
        """Number of lines in a page."""

    def action_down(self) -> None:
        """Move down one row."""
        self.move(1)

    def action_up(self) -> None:
        """Move up one row."""
        self.move(-1)

    def action_page_down(self) -> None:
        """Move down a page."""
        self.move(max(1, self.page_lines - 1))

    def action_page_up(self) -> None:
        """Move up a page."""
        self.move(-max(1, self.page_lines - 1))

    def action_half_down(self) -> None:
        """Move down half a page."""
        self.move(max(1, self.page_lines // 2))

    def action_half_up(self) -> None:
        """Move up half a page."""
        self.move(-max(1, self.page_lines // 2))

    def action_grow(self) -> None:
        """Give the list more of the room, and its details less."""
        self._split(_SPLIT_STEP)

    def action_shrink(self) -> None:
        """Give the list less of the room, and its details more."""
        self._split(-_SPLIT_STEP)

    def _split(self, by: int) -> None:
        for around in self.ancestors if isinstance(self, Widget) else ():
            if isinstance(around, Split):
                around.give(around.share + by)


class Split(Container):
    """A list with its details beside or below it; the border between them can be moved.

    `shares` has the saved percentages of the room for the list, by `name` and orientation
    ("records beside"). Without one, the styles decide.
    """

    @dataclass
    class Moved(Message):
        """The border was moved; `share` None: back to the default."""

        place: str
        share: int | None

    def __init__(
        self,
        name: str,
        shares: Mapping[str, int],
        *,
        id: str | None = None,  # noqa: A002 - Textual's own name
        classes: str | None = "split",
    ) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._shares = dict(shares)
        self._dragged = False
        self._given: tuple[bool, int] | None = None
        """Applied orientation (beside or not) and share of the list; None: the styles decide."""

    @property
    def _beside(self) -> bool:
        return self.layout.name == "horizontal"

    @property
    def _place(self) -> str:
        return f"{self.name} {'beside' if self._beside else 'below'}"

    @property
    def _both(self) -> tuple[Widget, Widget] | None:
        """List and details; None: they are not both shown."""
        shown = [child for child in self.children if child.display]
        return (shown[0], shown[1]) if len(shown) == 2 else None

    @property
    def share(self) -> int:
        """Percent of the room that the list has."""
        if self._both is None:
            return 100
        sizes = [one.outer_size for one in self._both]
        first, second = (one.width if self._beside else one.height for one in sizes)
        return round(100 * first / max(1, first + second))

    def give(self, share: int | None) -> None:
        """Give the list a percentage of the room, within limits; None: the default."""
        if self._both is None:
            return
        if share is None:
            self._shares.pop(self._place, None)
        else:
            share = max(_LEAST_SHARE, min(100 - _LEAST_SHARE, share))
            self._shares[self._place] = share
        self._apply()
        self.post_message(self.Moved(self._place, share))

    def on_mount(self) -> None:
        """Put the border at its saved position."""
        self._apply()

    def on_resize(self) -> None:
        """Put the border at its saved position for the new orientation."""
        self._apply()

    def _apply(self) -> None:
        share = self._shares.get(self._place)
        given = None if share is None else (self._beside, share)
        if given == self._given:  # setting styles would lay out and paint again
            return
        self._given = given
        for part, percent in zip(self.children, (share, share and 100 - share), strict=False):
            size = None if percent is None else f"{percent}fr"
            part.styles.width = size if self._beside else None
            part.styles.height = None if self._beside else size

    def _is_border(self, x: int, y: int) -> bool:
        if self._both is None:
            return False
        edge = self._both[1].region
        return edge.contains(x, y) and (x == edge.x if self._beside else y == edge.y)

    def on_mouse_down(self, event: MouseDown) -> None:
        """Begin to drag the border."""
        if self._is_border(event.screen_x, event.screen_y):
            event.stop()
            self._dragged = True
            self.capture_mouse()

    def on_mouse_move(self, event: MouseMove) -> None:
        """Move the border with the mouse while it is dragged."""
        if self._dragged:
            event.stop()
            at, whole = (event.screen_x - self.region.x, self.size.width)
            if not self._beside:
                at, whole = (event.screen_y - self.region.y, self.size.height)
            self.give(round(100 * at / max(1, whole)))

    def on_mouse_up(self) -> None:
        """End the drag."""
        if self._dragged:
            self._dragged = False
            self.release_mouse()

    def on_click(self, event: Click) -> None:
        """Reset the border to its default on a double click."""
        if event.chain > 1 and self._is_border(event.screen_x, event.screen_y):
            event.stop()
            self.give(None)


if TYPE_CHECKING:
    _Part = Widget
else:
    _Part = object  # Textual takes styles from the first base that is a widget


class LaidOutOnce(_Part):
    """Widget that is laid out and painted once when its content changes.

    Textual does both a second time whenever the content's size changes.
    """

    def _size_updated(
        self,
        size: Size,
        virtual_size: Size,
        container_size: Size,
        layout: bool = True,  # noqa: FBT001, FBT002 - Textual's
    ) -> bool:
        del layout
        return super()._size_updated(size, virtual_size, container_size, layout=False)


class DetailPane(LaidOutOnce, ListMoves, VerticalScroll, can_focus=True):
    """The pane beside a list; it scrolls with the list's keys."""

    @property
    def page_lines(self) -> int:
        """Lines in view."""
        return self.size.height

    def focus_on_click(self) -> bool:
        """Leave the focus where it is while the border is dragged."""
        mouse = self.app.mouse_position
        return self.region.shrink(self.styles.border.spacing).contains(int(mouse.x), int(mouse.y))

    def enter(self) -> None:
        """Take the focus."""
        self.focus()

    def move(self, lines: int) -> None:
        """Scroll by so many lines."""
        self.scroll_relative(y=lines, animate=False)

    def action_top(self) -> None:
        """Scroll to the first line."""
        self.scroll_home(animate=False)

    def action_bottom(self) -> None:
        """Scroll to the last line."""
        self.scroll_end(animate=False)


class OptionRows(ListMoves, OptionList):
    """Shows rows given as contents; posts Textual's own `OptionHighlighted` and `OptionSelected`.

    For up to some hundred rows; a list that grows is a `VirtualList`.
    """

    class WidthChanged(Message):
        """The width changed, so the owner must give the rows again."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id, compact=True, markup=False)
        self._laid_out = 0

    @property
    def cells(self) -> int:
        """Cells of a row's line."""
        return max(0, self.scrollable_content_region.width - _ROW_PADDING)

    @property
    def page_lines(self) -> int:
        """Rows in a page, of two lines each; Textual's own page fails before the first layout."""
        return self.size.height // 2 + 1

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the lines of all rows; store the size now, since doing so later lays out again."""
        height = super().get_content_height(container, viewport, width)
        self.set_reactive(OptionRows.virtual_size, Size(width, height))
        return height

    def on_resize(self) -> None:
        """Post `WidthChanged` if the width changed."""
        if self.cells != self._laid_out:
            self._laid_out = self.cells
            self.post_message(self.WidthChanged())

    def show(
        self,
        rows: Sequence[Content],
        highlighted: int | None,
        *,
        passed: Collection[int] = frozenset(),
    ) -> None:
        """Show rows with the cursor on one of them; rows in `passed` cannot be selected."""
        self.clear_options()
        self.add_options([Option(row, disabled=n in passed) for n, row in enumerate(rows)])
        self.highlighted = highlighted if rows else None

    def on_click(self, event: Click) -> None:
        """Put the cursor on the clicked row; a double click selects it."""
        event.prevent_default()
        clicked = event.style.meta.get("option")
        if isinstance(clicked, int) and not self.options[clicked].disabled:
            self.highlighted = clicked
            if event.chain > 1:
                self.action_select()

    def move(self, lines: int) -> None:
        """Move by so many selectable rows; a single step wraps around at the ends."""
        step = self.action_cursor_down if lines > 0 else self.action_cursor_up
        end = self.option_count - 1 if lines > 0 else 0
        for _ in range(abs(lines)):
            if abs(lines) == 1 or self.highlighted != end:
                step()

    def action_top(self) -> None:
        """Move to the first row."""
        self.action_first()

    def action_bottom(self) -> None:
        """Move to the last row."""
        self.action_last()

    def action_open(self) -> None:
        """Choose the row under the cursor."""
        self.action_select()


Drawn = Content | Callable[[int], Content]
"""A content, or what draws it for a width in cells."""


class Fitted(LaidOutOnce, Static):
    """Draws a content for the width that the layout gives it.

    A click on a linked part (`display.leading`) posts `Clicked`.
    """

    @dataclass
    class Clicked(Message):
        """A linked part was clicked; its target has this sort and name."""

        sort: str
        name: str

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._drawn = _FittedContent(Content(""))

    def fit(self, drawn: Drawn) -> None:
        """Show a content, drawn for the width."""
        self._drawn, (width, height) = _FittedContent(drawn), self.content_size
        rules = self.styles.get_render_rules()
        fits = width and self._drawn.get_height(rules, width) == height
        self.update(self._drawn, layout=self.styles.auto_dimensions and not fits)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the text selected with the mouse, and its line end."""
        return selection.extract(self._drawn.at(self.content_size.width).plain), "\n"

    def on_click(self, event: Click) -> None:
        """Post `Clicked` for a click on a linked part."""
        if leads := event.style.meta.get(LEADS):
            self.post_message(self.Clicked(*leads))


class _FittedContent(Visual):
    """A visual drawn for the layout's width, which caches two widths."""

    def __init__(self, drawn: Drawn) -> None:
        self._draw = lru_cache(2)(drawn if callable(drawn) else lambda _: drawn)
        self._cells = 0

    def __str__(self) -> str:
        """Return the text as last laid out."""
        return self._draw(self._cells).plain

    def at(self, width: int) -> Content:
        """Return the content for a width."""
        self._cells = width
        return self._draw(width)

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        """Return the lines of the content."""
        return self.at(width).render_strips(width, height, style, options)

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        """Return the container's width."""
        del rules
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        """Return how many lines the content takes."""
        return self.at(width).get_height(rules, width)


State = Literal["loading", "empty", "error"]

_MARKS: dict[State, tuple[str, str]] = {
    "loading": ("…", DIM),
    "empty": ("○", DIM),
    "error": ("✗", BAD),
}


class Notice(Static):
    """Shows in the middle of a pane why it has no rows: it is loading, empty, or broken."""

    def show(self, state: State, title: str, hint: str = "") -> None:
        """Show a state: `title` describes it, `hint` says what to do next."""
        mark, style = _MARKS[state]
        head = Content.styled(f"{mark} ", style) + display(title, limit=400, style=STRONG)
        said = [head, Content(""), display(hint, limit=400, style=DIM)] if hint else [head]
        self.update(lines(said))
        self.display = True

    def hide(self) -> None:
        """Hide the notice, so that the rows show."""
        self.display = False
