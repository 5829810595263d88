"""A list of any length: it draws the rows it is given and asks for the rest, never fetching itself.

It is written by hand because Textual's DataTable and OptionList hold every row that they list.
Give it `columns` and a model (`WindowRows` or `AppendedRows`). When lines come into view that the
model does not hold it posts `PagesWanted`; the owner fetches them, puts them into the model and
calls `rows_changed()`. Cursor, marks and a range are pinned to row keys, so that rows may come,
go and change places under them. The natural order of a growing list is newest first: `top` (`g`,
`home`) goes to the newest row and resumes following.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar, Generic, TypeVar, get_args

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from memtui.visible import visible
from memtui.widgets.columns import GAP, GUTTER, Column, Tone, cells_of, fit_cell, share_width
from memtui.widgets.keys import bindings_for
from memtui.widgets.panes import ListMoves
from memtui.widgets.rows import Rows, Selection

R = TypeVar("R")

_WIDEST = 200
"""Cells of a column that are counted; no list is much wider."""
MARK = "mark"
"""The key of a column that shows marks, where they do not stand before the first column.

It is always seen, also while nothing is marked.
"""
_PARTS = ("header", "cursor", "cursor-blurred", "selected", "placeholder", *get_args(Tone)[1:])


class ListMessage(Message):
    """What a list tells its owner; of those that come in bursts only the newest stays."""

    bursts: ClassVar[bool] = False

    def __init__(self, rows_list: VirtualList[Any]) -> None:
        super().__init__()
        self.rows_list = rows_list

    @property
    def control(self) -> VirtualList[Any]:
        """The list, for selectors of `@on`."""
        return self.rows_list

    def can_replace(self, message: Message) -> bool:
        """Let a newer one replace one that nobody has answered yet."""
        return self.bursts and type(message) is type(self) and message.control is self.rows_list


class PagesWanted(ListMessage):
    """Lines came into view that the model does not hold."""

    bursts = True

    def __init__(self, rows_list: VirtualList[Any], pages: tuple[int, ...]) -> None:
        super().__init__(rows_list)
        self.pages = pages


class Highlighted(ListMessage):
    """The cursor stands on another row, or the row under it has changed."""

    bursts = True


class Opened(ListMessage):
    """A row was chosen, with the key or a second click."""


class MarkAsked(ListMessage):
    """The person clicked where the mark of the row under the cursor stands."""


class SelectionChanged(ListMessage):
    """Marks or the range changed."""


class Scrolled(ListMessage):
    """The view moved; whether it is at the top may be different now."""

    bursts = True


class ColumnsAsked(ListMessage):
    """The person wants to choose the columns."""


class OrderAsked(ListMessage):
    """The person wants to choose the column that orders the rows."""


class SortAsked(ListMessage):
    """The person wants the rows ordered by a column; asked again, the other way round."""

    def __init__(self, rows_list: VirtualList[Any], column: str) -> None:
        super().__init__(rows_list)
        self.column = column


class VirtualList(ListMoves, ScrollView, Generic[R], can_focus=True):
    """A table drawn line by line from a model of rows."""

    ACTION_GROUP = "list"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("list")
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"virtual-list--{part}" for part in _PARTS}

    sort: reactive[tuple[str, bool] | None] = reactive(None)
    """The column the rows are ordered by, and whether from high to low."""
    columns: reactive[tuple[Column[Any], ...]] = reactive(())
    hidden: reactive[frozenset[str]] = reactive(frozenset())
    """Columns that a person does not want to see."""
    wanted: reactive[frozenset[str]] = reactive(frozenset())
    """Columns that a person chose to see, whatever else has to go for them."""
    notice: reactive[tuple[str, ...]] = reactive(())
    """What to say instead of rows while there are none: what is the case, and what to do next."""

    def __init__(
        self, columns: Sequence[Column[R]], rows: Rows[R], *, name: str | None = None
    ) -> None:
        super().__init__(name=name, id=name, classes="split-list")
        self.rows = rows
        self.selection: Selection[R] = Selection(rows)
        self.wider: dict[str, int] = {}
        self.times_put = 0
        """How often the cursor was put on a line; rows that come and go do not count."""
        self._content: dict[str, int] = {}
        """The widest cell of each column among the rows that were in view."""
        self._said: dict[str, set[str]] = {}
        """What each column says in these rows, two texts at most."""
        self._measured = range(0)
        """The lines whose cells are in it."""
        self.set_reactive(VirtualList.columns, tuple(columns))
        self._cursor = 0
        self._cursor_key: str | None = None
        self._is_new = True
        """Whether nobody went to a row yet: until then the cursor is on the first, whichever."""
        self._asked: tuple[int, ...] = ()
        self._same: tuple[Style, list[tuple[Column[R], int]]] | None = None
        """The list's own style and its columns, while lines are drawn."""
        self._sorted = False
        """Whether the rows are about to come in another order."""

    # The cursor and what it stands on.

    @property
    def cursor(self) -> int:
        """Where the cursor stands, from 0."""
        return self._cursor

    @property
    def current(self) -> R | None:
        """The row under the cursor; None while it is not held, or there is none."""
        return self.rows.row(self._cursor)

    @property
    def gone_to(self) -> str | None:
        """The key of the row that somebody went to; None while nobody went to any."""
        return None if self._is_new else self._cursor_key

    @property
    def chosen(self) -> list[R]:
        """The marked rows and those of the range; the row under the cursor where there are none."""
        picked = self.selection.rows(self._cursor)
        if picked:
            return picked
        return [self.current] if self.current is not None else []

    @property
    def at_top(self) -> bool:
        """Whether the first row is in view and the cursor is on it."""
        return self.scroll_offset.y == 0 and self._cursor == 0

    def go_to(self, index: int, *, in_the_middle: bool = False) -> None:
        """Put the cursor on a line and bring it into view, with as much above it as below."""
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
        """Put the cursor on a row by its key; False where the row is not held."""
        index = self.rows.index_of(key)
        if index is None:
            return False
        self.go_to(index)
        return True

    def ordered(self, rows: Iterable[R]) -> list[R]:
        """Return rows in the order that `sort` names, or as they come where it names none."""
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
        """The keys of the columns that are drawn: neither hidden, nor left out for want of room."""
        return [column.key for column, _ in self._shown]

    # What the owner tells.

    def show(self, rows: Rows[R], *, added_above: int = 0) -> None:
        """Draw from another model; the cursor stays on its row where the model has it.

        A row that the model does not hold stands `added_above` lines lower; at the top stays what
        is newest.
        """
        if rows is not self.rows:
            self._unlearn()
        self.rows = rows
        self.selection.model = rows
        self.rows_changed(added_above=added_above, follow=added_above > 0)

    def begin_anew(self) -> None:
        """Begin at the first row, with the widths that the rows to come need."""
        self._is_new = True
        self._unlearn()
        self.scroll_to(y=0, animate=False, force=True)

    def rows_changed(self, *, added_above: int = 0, follow: bool = False) -> None:
        """Draw again after the model changed; `added_above` rows came in above the view.

        With `follow` a cursor at the top stays at the top, on what is newest, and so does one that
        nobody moved. Otherwise the view stays on what it shows, and cursor and marks on their rows;
        where the cursor's row was in view it is so still.
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
        """Draw the rows again where their cells say something else by now, such as an age."""
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
        """Ask for the choice of the column that orders the rows."""
        self.post_message(OrderAsked(self))

    def action_reverse(self) -> None:
        """Turn the order around."""
        if self.sort is not None:
            self.post_message(SortAsked(self, self.sort[0]))

    def action_columns(self) -> None:
        """Ask for the choice of columns."""
        self.post_message(ColumnsAsked(self))

    def action_wider(self) -> None:
        """Give the column that orders the list one more cell."""
        self._widen(2)

    def action_narrower(self) -> None:
        """Take a cell off the column that orders the list."""
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
        """Begin a range at the cursor, or take it into the marks."""
        self.selection.toggle_range(self._cursor)
        self._is_new = False
        self._changed_selection()

    def action_mark_all(self) -> None:
        """Mark all rows that are held."""
        self.selection.mark_all()
        self._changed_selection()

    def action_unmark(self) -> None:
        """Take away the range, else all marks."""
        self.selection.clear()
        self._changed_selection()

    # Mouse.

    def on_click(self, event: events.Click) -> None:
        """Sort by a header, turn a mark, or go to a row; a second click on that opens it."""
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
        """Draw the cursor another way; no rule asks a list for the focus, so none is matched."""
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw lines; what is the same for each of them is found once."""
        self._same = self.rich_style, self._shares()
        try:
            return super().render_lines(crop)
        finally:
            self._same = None

    def render_line(self, y: int) -> Strip:
        """Draw one line of the view from what is held; nothing is fetched here."""
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
        # Bar and mark: nothing is told by colour alone.
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
            segments.append(Segment(fit_cell(cell.text, cells, column.align), tone))
        return _strip(segments, width, style)

    def _titles(self) -> str:
        """Return the header; an arrow shows which column orders the rows, and which way."""
        titles = []
        for column, cells in self._shown:
            title = column.title
            if self.sort is not None and self.sort[0] == column.key:
                arrow = "↓" if self.sort[1] else "↑"
                title = arrow + title if column.align == "right" else title + arrow
            titles.append(fit_cell(title, cells, column.align))
        return " " * GUTTER + (" " * GAP).join(titles)

    def _notice_line(self, line: int) -> Strip:
        """Draw a line of the words that stand where rows would be, in the upper third."""
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
            hidden=self.hidden,
            wanted=self.wanted | {MARK},
            wider=self.wider,
            content=self._content,
            alike=self._alike,
        )

    @property
    def _alike(self) -> set[str]:
        """The columns that tell no row in view from another, but for the one that orders them."""
        if self.rows.count < 2:
            return set()
        kept = {column.key for column in self.columns if column.late}
        kept.add(self.sort[0] if self.sort else "")
        return {key for key, said in self._said.items() if len(said) == 1 and key not in kept}

    def _measure_again(self) -> None:
        self._measured = range(0)
        self._measure()

    def _measure(self) -> None:
        """Learn how wide the cells are of the lines that came into view.

        A column only grows while some of the rows stay in view, and one that went as it said the
        same in each comes back once: it does not move under the eye. After a jump to other rows it
        is as wide as they need, so that one long row does not hide a column for good.
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
                title = cell_len(column.title) + 1  # and the arrow of an order
                self._content[column.key] = max(self._content.get(column.key, title), widest)
                said = self._said.setdefault(column.key, set())
                said.update(islice((text for text in texts if text not in said), 2 - len(said)))

    def _unlearn(self) -> None:
        """Forget what the columns held, as other rows or columns come."""
        self._content.clear()
        self._said.clear()

    # Keeping things in their place.

    @property
    def _cells(self) -> int:
        """Cells for a line, the scrollbar's taken off."""
        return self.scrollable_content_region.width

    @property
    def page_lines(self) -> int:
        """Lines for rows in the view; the header takes the first."""
        return max(1, self.size.height - 1)

    def on_resize(self) -> None:
        """Keep the cursor in view and ask for what has come into it."""
        self._fit()
        self._reveal()
        self._measure()
        self._ask()

    def watch_sort(self) -> None:
        """Keep the cursor's row in view once the rows are in their new order."""
        self._sorted = True

    def watch_columns(self) -> None:
        """Begin with the widths of other columns."""
        self._unlearn()
        self._measure_again()

    def watch_hidden(self) -> None:
        """Learn how wide the columns are that are shown now."""
        self._measure_again()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Ask for the lines that came into view."""
        super().watch_scroll_y(old_value, new_value)
        if round(old_value) != round(new_value):
            self._measure()
            self._ask()
            self.post_message(Scrolled(self))

    def _fit(self) -> None:
        lines = self.rows.count + 1
        # Textual would find out after it laid out and drew all, and do both again.
        self.show_vertical_scrollbar = 0 < self.container_size.height < lines
        self.virtual_size = Size(self._cells, lines)

    def _pin(self) -> None:
        """Put the cursor back on its row, wherever that stands now."""
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
    """Return the lines of a notice, and whether each is of its first text."""
    return [
        (part, place == 0)
        for place, text in enumerate(notice)
        for part in textwrap.wrap(visible(text, limit=2_000), width) or [""]
    ]


def _strip(segments: list[Segment], width: int, style: Style) -> Strip:
    return Strip(segments).adjust_cell_length(width, style)
