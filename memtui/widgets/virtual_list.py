"""A list of any length: it draws loaded rows and asks its owner to fetch the others.

Textual's DataTable and OptionList would keep every row in memory. Give this list `columns` and a
model (`WindowRows` or `AppendedRows`). When lines scroll into view whose rows are not loaded, it
posts `PagesWanted`; the owner fetches them, puts them into the model and calls `rows_changed()`.
Cursor, marks and range are pinned to row keys, so that rows may be added, removed and reordered.
The natural order of a growing list is newest first: `top` (`g`, `home`) goes to the newest row and
resumes following.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Generic, TypeVar, get_args

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from memtui.visible import visible
from memtui.widgets.columns import (
    GAP,
    GUTTER,
    Column,
    Tone,
    after_point,
    cells_of,
    fit_cell,
    share_width,
)
from memtui.widgets.panes import ListMoves
from memtui.widgets.rows import Rows, Selection

R = TypeVar("R")

_WIDEST = 200
"""Cells of a text that are measured; no list is much wider."""
MARK = "mark"
"""The key of a column that shows marks, for lists without marks before the first column.

It is always shown, even while nothing is marked.
"""
_PARTS = ("header", "cursor", "cursor-blurred", "selected", "placeholder", *get_args(Tone)[1:])


class ListMessage(Message):
    """A message of a list to its owner; a newer one replaces a queued one if it `bursts`."""

    bursts: ClassVar[bool] = False

    def __init__(self, rows_list: VirtualList[Any]) -> None:
        super().__init__()
        self.rows_list = rows_list

    @property
    def control(self) -> VirtualList[Any]:
        """The list, for selectors of `@on`."""
        return self.rows_list

    def can_replace(self, message: Message) -> bool:
        """Whether this message replaces a queued one: same type and list, and it `bursts`."""
        return self.bursts and type(message) is type(self) and message.control is self.rows_list


class PagesWanted(ListMessage):
    """Lines came into view whose rows are not loaded."""

    bursts = True

    def __init__(self, rows_list: VirtualList[Any], pages: tuple[int, ...]) -> None:
        super().__init__(rows_list)
        self.pages = pages


class Highlighted(ListMessage):
    """The cursor moved to another row, or its row changed."""

    bursts = True


class Opened(ListMessage):
    """A row was opened, with the key or a second click."""


class MarkAsked(ListMessage):
    """The person clicked on the mark of the row under the cursor."""


class SelectionChanged(ListMessage):
    """Marks or the range changed."""


class Scrolled(ListMessage):
    """The view scrolled, so `at_top` may have changed."""

    bursts = True


class ColumnsAsked(ListMessage):
    """The person wants to choose the columns."""


class OrderAsked(ListMessage):
    """The person wants to choose the column that orders the rows."""


class SortAsked(ListMessage):
    """The person wants to sort by a column; a second time reverses the order."""

    def __init__(self, rows_list: VirtualList[Any], column: str) -> None:
        super().__init__(rows_list)
        self.column = column


class VirtualList(ListMoves, ScrollView, Generic[R], can_focus=True):
    """A table drawn line by line from a model of rows."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"virtual-list--{part}" for part in _PARTS}

    sort: reactive[tuple[str, bool] | None] = reactive(None)
    """The column the rows are ordered by, and whether from high to low."""
    columns: reactive[tuple[Column[Any], ...]] = reactive(())
    hidden: reactive[frozenset[str]] = reactive(frozenset())
    """Columns that the person hid."""
    wanted: reactive[frozenset[str]] = reactive(frozenset())
    """Columns that the person chose to show; others make room for them."""
    fixed: reactive[frozenset[str]] = reactive(frozenset())
    """Columns whose value is the same in each row, as scope or filter say it; not shown."""
    notice: reactive[tuple[str, ...]] = reactive(())
    """Texts shown while there are no rows: the state, and what to do next."""

    def __init__(
        self, columns: Sequence[Column[R]], rows: Rows[R], *, name: str | None = None
    ) -> None:
        super().__init__(name=name, id=name, classes="split-list")
        self.rows = rows
        self.selection: Selection[R] = Selection(rows)
        self.wider: dict[str, int] = {}
        self.times_put = 0
        """How often the cursor was moved by `go_to`; changes of the rows do not count."""
        self._content: dict[str, int] = {}
        """The widest cell of each column among the rows that were in view."""
        self._fractions: dict[str, int] = {}
        """Of numbers with decimals, the most cells from the point on among these rows."""
        self._measured = range(0)
        """The lines measured for `_content`."""
        self.set_reactive(VirtualList.columns, tuple(columns))
        self._cursor = 0
        self._cursor_key: str | None = None
        self._is_new = True
        """Whether the person went to no row yet; until then the cursor stays on the first line."""
        self._asked: tuple[int, ...] = ()
        self._same: tuple[Style, list[tuple[Column[R], int]]] | None = None
        """The list's style and columns, cached while lines are drawn."""
        self._sorted = False
        """Whether the sort changed and the rows in the new order are still to come."""

    # The cursor and its row.

    @property
    def cursor(self) -> int:
        """Index of the cursor's line, from 0."""
        return self._cursor

    @property
    def current(self) -> R | None:
        """The row under the cursor; None: it is not loaded, or there is none."""
        return self.rows.row(self._cursor)

    @property
    def gone_to(self) -> str | None:
        """The key of the row that the person went to; None: none so far."""
        return None if self._is_new else self._cursor_key

    @property
    def chosen(self) -> list[R]:
        """The rows marked or in the range; if there are none, the row under the cursor."""
        picked = self.selection.rows(self._cursor)
        if picked:
            return picked
        return [self.current] if self.current is not None else []

    @property
    def at_top(self) -> bool:
        """Whether the first row is in view and the cursor is on it."""
        return self.scroll_offset.y == 0 and self._cursor == 0

    def go_to(self, index: int, *, in_the_middle: bool = False) -> None:
        """Put the cursor on a line and scroll it into view, or to its middle."""
        self._is_new = False
        self.times_put += 1
        self._cursor = max(0, min(index, self.rows.count - 1))
        self._remember()
        if in_the_middle:
            middle = self._cursor - self.page_lines // 2
            self.scroll_to(y=middle, animate=False, force=True)
        self._reveal()
        self._changed_cursor()

    def move(self, lines: int) -> None:
        """Move the cursor by so many lines."""
        self.go_to(self._cursor + lines)

    def go_to_key(self, key: str) -> bool:
        """Put the cursor on a row by its key; False: the row is not loaded."""
        index = self.rows.index_of(key)
        if index is None:
            return False
        self.go_to(index)
        return True

    def ordered(self, rows: Iterable[R]) -> list[R]:
        """Return rows sorted by `sort`; in the given order where it is None."""
        found = list(rows)
        if self.sort is not None:
            key, descending = self.sort
            found.sort(key=self.column(key).rank, reverse=descending)
        return found

    def column(self, key: str) -> Column[R]:
        """Return a column by its key."""
        return next(column for column in self.columns if column.key == key)

    @property
    def shown_columns(self) -> list[str]:
        """The keys of the drawn columns: not hidden, and with enough room."""
        return [column.key for column, _ in self._shown]

    # Calls of the owner.

    def show(self, rows: Rows[R], *, added_above: int = 0) -> None:
        """Draw from another model; the cursor stays on its row if the model has it.

        If not, the cursor moves down by `added_above` lines; at the top it stays on the newest row.
        """
        if rows is not self.rows:
            self._unlearn()
        self.rows = rows
        self.selection.model = rows
        self.rows_changed(added_above=added_above, follow=added_above > 0)

    def begin_anew(self) -> None:
        """Go to the first row, and measure column widths anew for the next rows."""
        self._is_new = True
        self._unlearn()
        self.scroll_to(y=0, animate=False, force=True)

    def rows_changed(self, *, added_above: int = 0, follow: bool = False) -> None:
        """Draw again after the model changed; `added_above` rows were added above the view.

        With `follow`, a cursor at the top stays there, on the newest row; so does one never moved.
        Otherwise the view keeps its rows, and cursor and marks stay on theirs; a cursor that was
        in view stays in view.
        """
        self._asked = ()
        top = self.scroll_offset.y
        in_view = self._sorted or top <= self._cursor < top + self.page_lines
        self._fit()
        if self._is_new and not added_above:
            self._cursor, self._cursor_key = 0, None
        elif follow and self.at_top:
            self._cursor_key = None
        elif added_above:
            self._cursor += added_above
            self.scroll_to(y=self.scroll_offset.y + added_above, animate=False, force=True)
        self._pin()
        if in_view:
            self._sorted = False
            self._reveal()
        self._measure_again()
        self._ask()
        self._changed_cursor()

    def redraw(self) -> None:
        """Draw the rows again where their cells changed with time, such as an age."""
        self._measure_again()
        self.refresh()

    # Keys.

    def action_top(self) -> None:
        """Go to the first row, which resumes following."""
        self.go_to(0)

    def action_bottom(self) -> None:
        """Go to the last row."""
        self.go_to(self.rows.count - 1)

    def action_open(self) -> None:
        """Open the row under the cursor."""
        if self.current is not None:
            self._is_new = False
            self.post_message(Opened(self))

    def action_sort(self) -> None:
        """Ask the owner to offer the columns to sort by."""
        self.post_message(OrderAsked(self))

    def action_reverse(self) -> None:
        """Reverse the order."""
        if self.sort is not None:
            self.post_message(SortAsked(self, self.sort[0]))

    def action_columns(self) -> None:
        """Ask the owner to offer the columns to show."""
        self.post_message(ColumnsAsked(self))

    def action_wider(self) -> None:
        """Widen the sorting column by two cells."""
        self._widen(2)

    def action_narrower(self) -> None:
        """Narrow the sorting column by two cells."""
        self._widen(-2)

    def action_mark(self) -> None:
        """Mark or unmark the row, or the range; then move on."""
        if self.turn():
            self.move(1)

    def turn(self) -> bool:
        """Mark or unmark the row, or the range; return whether it was one row."""
        was_one = self.selection.toggle(self._cursor)
        self._is_new = False
        self._changed_selection()
        return was_one

    def action_range(self) -> None:
        """Begin a range at the cursor, or add the range to the marks."""
        self.selection.toggle_range(self._cursor)
        self._is_new = False
        self._changed_selection()

    def action_mark_all(self) -> None:
        """Mark all loaded rows."""
        self.selection.mark_all()
        self._changed_selection()

    def action_unmark(self) -> None:
        """Clear the range, or all marks if there is no range."""
        self.selection.clear()
        self._changed_selection()

    # Mouse.

    def on_click(self, event: events.Click) -> None:
        """Sort by a header, toggle a mark, or go to a row; a second click on the row opens it."""
        line = event.y - self.gutter.top
        if line == 0:
            column = self._column_at(event.x)
            if column is not None:
                self.post_message(SortAsked(self, column))
            return
        index = self.scroll_offset.y + line - 1
        if 0 <= index < self.rows.count:
            again = index == self._cursor and event.chain > 1
            self.go_to(index)
            if event.x < GUTTER or self._column_at(event.x) == MARK:
                self.post_message(MarkAsked(self))
            elif again:
                self.action_open()

    # Drawing.

    def watch_has_focus(self, _has_focus: bool) -> None:  # noqa: FBT001 - Textual calls it so
        """Redraw the cursor; skip the style update, since no rule depends on a list's focus."""
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw lines; look up the style and columns once for all of them."""
        self._same = self.rich_style, self._shares()
        try:
            return super().render_lines(crop)
        finally:
            self._same = None

    def render_line(self, y: int) -> Strip:
        """Draw one line of the view from loaded rows; nothing is fetched here."""
        width = self._cells
        if y == 0:
            style = self._base + self.get_component_rich_style("virtual-list--header")
            return _strip([Segment(self._titles(), style)], width, style)
        if not self.rows.count:
            return self._notice_line(y - 1)
        index = self.scroll_offset.y + y - 1
        if index >= self.rows.count:
            return Strip.blank(width, self._base)
        row = self.rows.row(index)
        marked = row is not None and self.rows.key(row) in self.selection.marks
        in_range = index in self.selection.span(self._cursor)
        style = self._row_style(index, chosen=marked or in_range)
        # Bar and mark: colour alone never carries information.
        bar = "▌" if index == self._cursor else " "
        gutter = f"{bar}{'●' if marked else '○' if in_range else ' '} "
        if row is None:
            style += self.get_component_rich_style("virtual-list--placeholder")
            text = fit_cell(f"{gutter}{index + 1:,} …", width)
            return _strip([Segment(text, style)], width, style)
        segments = [Segment(gutter, style + self._tone("accent"))]
        for place, (column, cells) in enumerate(self._shown):
            if place:
                segments.append(Segment(" " * GAP, style))
            cell = column.of(row)
            is_plain = not cell.tone or (cell.tone == "muted" and index == self._cursor)
            tone = style if is_plain else style + self._tone(cell.tone)
            text = cell.text
            if column.align == "point":
                behind = self._fractions.get(column.key, 0) - after_point(text)
                text += " " * min(behind, cells - len(text))
            segments.append(Segment(fit_cell(text, cells, column.align), tone))
        return _strip(segments, width, style)

    def _titles(self) -> str:
        """Return the header; an arrow shows the sorting column and its direction."""
        titles = []
        for column, cells in self._shown:
            title = column.title
            if self.sort is not None and self.sort[0] == column.key:
                arrow = "↓" if self.sort[1] else "↑"
                title = title + arrow if column.align == "left" else arrow + title
            titles.append(fit_cell(title, cells, column.align))
        return " " * GUTTER + (" " * GAP).join(titles)

    def _notice_line(self, line: int) -> Strip:
        """Draw a line of the notice, which stands in the upper third instead of rows."""
        width, base = self._cells, self._base
        said = _wrapped(tuple(self.notice), max(8, width - 8))
        start = max(0, (self.page_lines - len(said)) // 3)
        if not start <= line < start + len(said):
            return Strip.blank(width, base)
        text, is_first = said[line - start]
        style = base if is_first else base + self._tone("muted")
        left = max(0, (width - cell_len(text)) // 2)
        return _strip([Segment(" " * left + text, style)], width, base)

    def _column_at(self, x: int) -> str | None:
        """Return the key of the column at a cell of the header."""
        left = GUTTER
        for column, cells in self._shown:
            if left <= x < left + cells + GAP:
                return column.key
            left += cells + GAP
        return None

    def _row_style(self, index: int, *, chosen: bool) -> Style:
        if index == self._cursor:
            name = "cursor" if self.has_focus else "cursor-blurred"
        elif chosen:
            name = "selected"
        else:
            return self._base
        return self._base + self.get_component_rich_style(f"virtual-list--{name}")

    def _tone(self, name: str) -> Style:
        return Style(color=self.get_component_rich_style(f"virtual-list--{name}").color)

    @property
    def _base(self) -> Style:
        return self._same[0] if self._same else self.rich_style

    @property
    def _shown(self) -> list[tuple[Column[R], int]]:
        return self._same[1] if self._same else self._shares()

    def _shares(self) -> list[tuple[Column[R], int]]:
        return share_width(
            self.columns,
            self._cells,
            hidden=self.hidden | (self.fixed - self.wanted),
            wanted=self.wanted | {MARK, self.sort[0] if self.sort else MARK},
            wider=self.wider,
            content=self._content,
        )

    def _measure_again(self) -> None:
        self._measured = range(0)
        self._measure()

    def _measure(self) -> None:
        """Measure the cells of the lines that came into view.

        While some rows stay in view, columns only grow, so that they do not jump. After a jump to
        other rows they are measured anew, so that one long row does not hide a column for good.
        """
        top = self.scroll_offset.y
        view = range(top, min(top + self.page_lines, self.rows.count))
        known = self._measured
        jumped = bool(known) and (view.start >= known.stop or view.stop <= known.start)
        if jumped or not self.rows.count:
            self._unlearn()
        rows = [row for line in view if line not in self._measured if (row := self.rows.row(line))]
        self._measured = view
        for column in self.columns if rows else ():
            if column.key not in self.hidden:
                texts = [column.of(row).text for row in rows]
                widest = max(cells_of(text, _WIDEST) for text in texts)
                if column.align == "point":
                    behind = max(self._fractions.get(column.key, 0), *map(after_point, texts))
                    self._fractions[column.key] = behind
                    widest = behind + max(len(text) - after_point(text) for text in texts)
                title = cell_len(column.title) + 1  # one cell for the arrow
                self._content[column.key] = max(self._content.get(column.key, title), widest)

    def _unlearn(self) -> None:
        """Forget the measured cells, since other rows or columns come."""
        self._content.clear()
        self._fractions.clear()

    # Keeping things in their place.

    @property
    def _cells(self) -> int:
        """Width of a line in cells, without the scrollbar."""
        return self.scrollable_content_region.width

    @property
    def page_lines(self) -> int:
        """Lines for rows in the view; the header takes the first."""
        return max(1, self.size.height - 1)

    def on_resize(self) -> None:
        """Keep the cursor in view and ask for the rows that came into view."""
        self._fit()
        self._reveal()
        self._measure()
        self._ask()

    def watch_sort(self) -> None:
        """Note that the cursor's row must be in view once the new order arrives."""
        self._sorted = True

    def watch_columns(self) -> None:
        """Measure the new columns."""
        self._unlearn()
        self._measure_again()

    def watch_hidden(self) -> None:
        """Measure the columns shown now."""
        self._measure_again()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Measure, and ask for, the lines that came into view."""
        super().watch_scroll_y(old_value, new_value)
        if round(old_value) != round(new_value):
            self._measure()
            self._ask()
            self.post_message(Scrolled(self))

    def _fit(self) -> None:
        lines = self.rows.count + 1
        # Set now: Textual would notice after layout and drawing, and do both again.
        self.show_vertical_scrollbar = 0 < self.container_size.height < lines
        self.virtual_size = Size(self._cells, lines)

    def _pin(self) -> None:
        """Move the cursor to the current index of its row."""
        if self._cursor_key is not None:
            index = self.rows.index_of(self._cursor_key)
            if index is not None:
                self._cursor = index
        self._cursor = max(0, min(self._cursor, self.rows.count - 1))
        self._remember()

    def _remember(self) -> None:
        row = self.current
        self._cursor_key = None if row is None else self.rows.key(row)

    def _reveal(self) -> None:
        top = self.scroll_offset.y
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False, force=True)
        elif self._cursor >= top + self.page_lines:
            self.scroll_to(y=self._cursor - self.page_lines + 1, animate=False, force=True)

    def _ask(self) -> None:
        top = self.scroll_offset.y
        pages = self.rows.wanted(top, top + self.page_lines)
        if pages and pages != self._asked:
            self._asked = pages
            self.post_message(PagesWanted(self, pages))

    def _widen(self, cells: int) -> None:
        if self.sort is not None:
            self.wider[self.sort[0]] = self.wider.get(self.sort[0], 0) + cells
            self.refresh()

    def _changed_cursor(self) -> None:
        self.refresh()
        self.post_message(Highlighted(self))

    def _changed_selection(self) -> None:
        self.refresh()
        self.post_message(SelectionChanged(self))


@lru_cache(8)
def _wrapped(notice: tuple[str, ...], width: int) -> list[tuple[str, bool]]:
    """Return the lines of a notice, and whether each belongs to the first text."""
    return [
        (part, place == 0)
        for place, text in enumerate(notice)
        for part in textwrap.wrap(visible(text, limit=2_000), width) or [""]
    ]


def _strip(segments: list[Segment], width: int, style: Style) -> Strip:
    return Strip(segments).adjust_cell_length(width, style)
