"""The frame of a numbered screen with a list and the details of one row beside it.

For a screen author. Derive from `ListScreen`, implement what `MemtuiScreen` requires, and:

- `NOUN`: the word for a row, as in "No record is selected.";
- `make_list()`: the list, called once;
- `detail(row, width)`: the full text of a row, drawn beside the list;
- `look()`: show with `show_count` how many rows are shown and marked;
- `sort(column)`: sort by a column, or reverse its order;
- `fetch(pages)`: read pages that came into view, if the list does not load all rows;
- `total()` and `all_rows()`: the number of rows and all rows, if the list does not load all;
- `moved()`: read data for the details after the cursor moved;
- `entered()`: read further data when a person enters the details.
- `try_filter(chosen)`: show rows for a filter that is being typed, without a logged read.
- `names_of(row)`: the records whose risks `read_marks` reads, if the list shows them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.content import Content

from memtui.actions import ACTIONS, Need
from memtui.contract import Filter, Invalid, MemtuiError, NotFound
from memtui.filters import parse_filter
from memtui.presenters import format as fmt
from memtui.screens.base import MemtuiScreen, ServiceScreen
from memtui.screens.kept import SavedView
from memtui.screens.session import ServiceSession
from memtui.screens.state import AppState
from memtui.widgets.background import Background
from memtui.widgets.filter_line import FilterLine
from memtui.widgets.panes import DetailPane, Fitted, Split
from memtui.widgets.record_names import RecordName
from memtui.widgets.virtual_list import (
    Highlighted,
    MarkAsked,
    Opened,
    PagesWanted,
    SelectionChanged,
    SortAsked,
    VirtualList,
)

if TYPE_CHECKING:
    from memtui.service.review.known_risks import RiskMark

R = TypeVar("R")

_AGES_SECONDS = 15
"""Seconds between redraws of ages."""


MOST_MARKED = 20_000
"""The most rows that can be marked at once."""


def too_many(number: str) -> Invalid:
    """Return the error that so many rows cannot be marked at once."""
    return Invalid(
        f"{number} are too many to mark at once; narrow the filter to {fmt.count(MOST_MARKED)}."
    )


class RowsScreen(ServiceScreen, Generic[R]):
    """A screen with a list and the details of its row, numbered or modal."""

    NOUN: ClassVar[str]
    SPLIT: ClassVar[str] = ".split"
    """Selector of the container of list and details."""
    _drawn: str | None = None
    """The key of the row whose details are shown."""

    def __init__(self, state: AppState, **options: Any) -> None:
        super().__init__(state, **options)
        self.marks: dict[RecordName, RiskMark] = {}
        """What is known of the risks of records, once they were looked for."""
        self._marking = Background(self, "risks-of-rows")

    def names_of(self, row: R) -> Iterable[RecordName]:
        """Return the names of the records of a row whose risks are shown."""
        del row
        return ()

    def read_marks(self, rows: Iterable[R]) -> None:
        """Read what is known of the risks of the records of rows in the background."""
        ids: dict[str, list[str]] = defaultdict(list)
        for name in dict.fromkeys(name for row in rows for name in self.names_of(row)):
            ids[name.binding_key].append(name.record_id)
        session = self.state.session
        if session is None or self.state.risks is None or not ids:
            return

        def show(found: Mapping[RecordName, RiskMark]) -> None:
            if session is self.state.session:
                self.marks.update(found)
                self.rows_list.redraw()
                self.draw_detail()

        self._marking.every(partial(self.known_marks, session, ids), show, self.fail)

    async def known_marks(
        self, session: ServiceSession, ids: Mapping[str, Sequence[str]]
    ) -> dict[RecordName, RiskMark]:
        """Return the marks of records by binding; none before risks were looked for."""
        if self.state.risks is None:
            return {}
        found = await session.service.risks.marks(session.caller, ids)
        return {RecordName(*name): one for name, one in found.items()}

    def make_list(self) -> VirtualList[R]:
        """Return the list."""
        raise NotImplementedError

    def make_detail(self) -> DetailPane:
        """Return the pane of the details."""
        return DetailPane(Fitted(id="detail"), id=f"{self.NOUN}-detail", classes="split-detail")

    def detail(self, row: R, width: int) -> Content:
        """Return the details of a row, `width` cells wide."""
        raise NotImplementedError

    @property
    def rows_list(self) -> VirtualList[R]:
        """The list."""
        return self.query_one(VirtualList)

    @property
    def current(self) -> R | None:
        """The row under the cursor, which details and keys work on; None: there is none."""
        return self.rows_list.current

    @property
    def row(self) -> R:
        """The row under the cursor; raises `NotFound` if there is none."""
        if (current := self.current) is None:
            raise NotFound(self.none_selected)
        return current

    @property
    def none_selected(self) -> str:
        """The reason why an action that needs a row cannot run."""
        return f"No {self.NOUN} is selected."

    @property
    def opened(self) -> bool:
        """Whether the details are entered."""
        return self.query_one(self.SPLIT).has_class("-opened")

    def draw_detail(self) -> None:
        """Draw the details of the current row; scroll to the top if the row changed."""
        row = self.current
        key = None if row is None else self.rows_list.rows.key(row)
        self.query_one("#detail", Fitted).fit(
            lambda width: Content("") if row is None else self.detail(row, width)
        )
        if key != self._drawn:
            self._drawn = key
            self.query_one(f"#{self.NOUN}-detail").scroll_home(animate=False)

    def open_row(self) -> None:
        """Go from the list into the details."""
        self.query_one(self.SPLIT).add_class("-opened")
        self.query_one(f"#{self.NOUN}-detail", DetailPane).enter()

    def close_row(self) -> None:
        """Go back from the details to the list."""
        self.query_one(self.SPLIT).remove_class("-opened")
        self.rows_list.focus()

    def turn_mark(self) -> None:
        """Mark or unmark the row whose mark was clicked, if rows can be marked here."""
        if f"{self.ACTION_GROUP}.mark" in ACTIONS:
            self.rows_list.turn()

    @on(Opened)
    def _opened(self) -> None:
        self.open_row()

    @on(MarkAsked)
    def _turn_mark(self) -> None:
        self.turn_mark()

    def action_mark(self) -> None:
        """Mark or unmark the row, or the range."""
        self.rows_list.action_mark()


class ListScreen(MemtuiScreen, RowsScreen[R]):
    """A list and the details of its row; see the module's text for how to write one."""

    typed: Filter | None = None
    """The filter being typed, which the rows are of; None: they are of the one in force."""

    def compose_body(self) -> ComposeResult:
        """Lay out list and details."""
        with Split(self.MODE, self.state.shares):
            yield self.make_list()
            yield self.make_detail()

    def look(self) -> None:
        """Show how many rows are shown and marked."""

    def as_view(self, name: str) -> SavedView:
        """Return the current view as a saved view, with order and columns."""
        shown = self.rows_list
        column, descending = shown.sort or ("", True)
        update = {
            "column": column,
            "descending": descending,
            "hidden": tuple(sorted(shown.hidden)),
            "wider": shown.wider,
        }
        return super().as_view(name).model_copy(update=update)

    def use_view(self, view: SavedView) -> None:
        """Apply a saved view; columns that do not exist are ignored."""
        shown = self.rows_list
        keys = {column.key for column in shown.columns}
        if view.hidden is not None and keys.difference(view.hidden):
            shown.hidden = frozenset(keys.intersection(view.hidden))
        shown.wider = {key: cells for key, cells in view.wider.items() if key in keys}
        if view.column in keys:
            shown.sort = (view.column, view.descending)
        super().use_view(view)

    def sort(self, column: str) -> None:
        """Sort by a column, or reverse its order."""
        raise NotImplementedError

    def total(self) -> int | None:
        """Return how many rows match the filter; None: not known."""
        return self.rows_list.rows.count

    async def all_rows(self) -> Sequence[R]:
        """Return all rows that match the filter.

        Raises:
            Invalid: there are more than `MOST_MARKED`.
        """
        return [row for _, row in self.rows_list.rows.held()]

    def fetch(self, pages: tuple[int, ...]) -> None:
        """Read pages that came into view."""

    def try_filter(self, chosen: Filter) -> None:
        """Show rows for a filter that is being typed, without a logged read."""

    def watch_state(self, before: AppState, now: AppState) -> None:
        """End the trial of a filter that is in force now."""
        super().watch_state(before, now)
        if before.filter != now.filter:
            self.typed = None

    @on(FilterLine.Typed)
    @on(FilterLine.Applied)
    def _try(self, event: FilterLine.Typed | FilterLine.Applied) -> None:
        """Show rows for the typed filter; where that is the one in force, its rows again.

        Another filter that is applied loads the screen once it is in force.
        """
        state = self.state
        chosen = parse_filter(event.line, now=state.clock(), zone=state.zone or UTC)
        if event.line == state.filter_line or chosen == state.filter:
            was, self.typed = self.typed, None
            if was is not None:
                self.try_filter(state.filter)
        elif isinstance(event, FilterLine.Typed):
            self.typed = chosen
            self.try_filter(chosen)

    def moved(self) -> None:
        """Read data for the details of the row under the cursor."""

    def entered(self) -> None:
        """Read further data when a person enters the details."""

    def missing_for(self, row: R | None) -> dict[Need, str]:
        """Return the needs that are not met with the cursor on a row."""
        return {Need.ROW: ""} if row is None else {}

    def open_row(self) -> None:
        """Go into the details, and read further data for them."""
        super().open_row()
        self.entered()

    def show_error(self, error: MemtuiError, hint: str) -> None:
        """Show an error in place of the rows."""
        self.rows_list.notice = (f"✗ {error}", hint)
        self.rows_list.rows_changed()
        self.show_count("")

    def draw_keys(self) -> None:
        """Update which keys are enabled."""
        missing = self.missing_for(self.current)
        if missing != self.missing:
            self.missing = missing

    def on_mount(self) -> None:
        """Focus the list, and redraw ages every `_AGES_SECONDS` in list and details."""
        self.rows_list.focus()
        self.set_interval(_AGES_SECONDS, self._draw_ages)

    def on_screen_resume(self) -> None:
        """Redraw the ages."""
        self._draw_ages()

    def _draw_ages(self) -> None:
        if self.is_current and self.rows_list.rows.count:
            self.rows_list.redraw()
            self.draw_detail()

    @on(PagesWanted)
    def _fetch(self, event: PagesWanted) -> None:
        self.fetch(event.pages)

    @on(SortAsked)
    def _sort(self, event: SortAsked) -> None:
        self.sort(event.column)

    @on(SelectionChanged)
    def _marked(self) -> None:
        self.look()
        self.draw_keys()

    @on(Highlighted)
    def _highlighted(self) -> None:
        self.draw_keys()
        self.draw_detail()
        self.moved()
        if self.rows_list.selection.ranging:
            self.look()

    def action_back(self) -> None:
        """Go back from the details to the list; there, clear range, marks or filter."""
        rows_list = self.rows_list
        if rows_list.has_focus and rows_list.selection.active:
            rows_list.action_unmark()
        elif rows_list.has_focus and not self.query_one(self.SPLIT).has_class("-opened"):
            self.drop_filter()
        self.close_row()

    def action_range(self) -> None:
        """Begin a range, or mark it."""
        self.rows_list.action_range()

    def action_mark_all(self) -> None:
        """Mark all rows that are loaded; asked again, all that the filter lets through."""
        shown, total = self.rows_list, self.total()
        before = set(shown.selection.marks)
        shown.action_mark_all()
        marked = len(shown.selection.marks)
        if total is not None and total <= marked:
            return
        if before and before == set(shown.selection.marks):
            self.talk(self._mark_rest(total))
            return
        key = self.state.keymap.label(f"{self.MODE}.mark_all")
        of = "" if total is None else f" of {fmt.count(total)}"
        self.toast(
            f"Marked {fmt.count(marked)} loaded{of}; {key} again marks all that match the filter."
        )

    async def _mark_rest(self, total: int | None) -> None:
        if total is not None and total > MOST_MARKED:
            raise too_many(fmt.count(total))
        found = await self.wait("reading all that pass the filter", self.all_rows)
        self.rows_list.selection.mark(found)
        self.rows_list.refresh()
        self._marked()
        self.toast(f"Marked all {fmt.count(len(found))}.")
