"""Keeps the list of operations filled and live.

The natural order is newest first, so the newest is at the top: while the cursor is there and
following is on, new operations push in above; anywhere else nothing moves and the count says
`+3 new`. `g` or `home` goes to the newest, which resumes. Any other order is that of the moment
in which it was asked for; what came since is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from memtui.contract import Filter, MemtuiError
from memtui.screens.list_screen import ListScreen
from memtui.screens.operations.view import SORTS
from memtui.store.operation import Operation
from memtui.widgets import format as fmt
from memtui.widgets.background import Background
from memtui.widgets.rows import PAGE_ROWS, WindowRows

if TYPE_CHECKING:
    from memtui.service.analysis import LogView

NEWEST_FIRST = ("when", True)
ORDERED_ROWS = 64
"""Rows of a page in another order, where each may lie in another place of the archive."""
_PAGES = 24
_KEPT = 1_000
"""Operations that came since the view was opened and are held; beyond, it is opened again."""


class _Opened(NamedTuple):
    """A view, and the page that is seen first."""

    view: LogView
    number: int
    rows: Sequence[Operation]


def operation_key(operation: Operation) -> str:
    """Return what names a row of the log."""
    return operation.operation_id


class LogFeed:
    """Reads the log for one list and says how much of it is shown."""

    def __init__(self, screen: ListScreen[Operation]) -> None:
        self._screen = screen
        self.rows: WindowRows[Operation] = WindowRows(
            operation_key, newest_first=True, max_pages=_PAGES
        )
        self.following = True
        self.order = NEWEST_FIRST
        """The column that the operations are ordered by, and whether from high to low."""
        self.chosen = Filter()
        """What is let through."""
        self._view: LogView | None = None
        self._ordered: LogView | None = None
        self._arrived: list[Operation] = []
        self._last_seq = 0
        self._seen = 0
        self._problem = ""
        self._ordering = ""
        self._looking = False
        self.head = Background(screen, "log-head")
        """Opens the log."""
        self._orders = Background(screen, "log-order")
        self._windows = Background(screen, "log-pages")
        self._tail = Background(screen, "log-tail")
        self._places = Background(screen, "log-place")
        self._closing = Background(screen, "log-closing")

    @property
    def _in_time_order(self) -> bool:
        return self._screen.rows_list.rows is self.rows

    # Opening.

    def load(self, chosen: Filter) -> None:
        """Open the log with a filter; an opening under way is stopped."""
        self._ordering = ""
        for work in (self._tail, self._windows, self._orders, self._places):
            work.forget()
        if not self.rows.count:
            self._screen.rows_list.notice = ("Reading the log …",)
        again = chosen == self.chosen
        self.chosen = chosen
        self._looking = False
        early = self._show_early if self.order == NEWEST_FIRST and not again else None
        self.head.latest(
            lambda: self._open(chosen, early),
            lambda opened: self._show(opened, again=again),
            self._broken,
        )

    async def _open(
        self, chosen: Filter, early: Callable[[Sequence[Operation]], None] | None = None
    ) -> _Opened:
        # The natural view runs from the oldest on: there no operation ever changes its place.
        session = self._screen.session
        view = await session.service.analysis.open_log(session.caller, chosen, "seq", early=early)
        number = max(0, view.count - 1) // PAGE_ROWS
        return _Opened(view, number, await view.window(number * PAGE_ROWS, PAGE_ROWS))

    def _replace(self, view: LogView | None) -> Operation | None:
        """Put another view in place of those there are; return what the cursor stood on."""
        self._close(self._view, self._ordered)
        self._view, self._ordered = view, None
        self._looking = False
        shown = self._screen.rows_list
        return shown.current if shown.cursor else None

    def _show_early(self, found: Sequence[Operation]) -> None:
        """Show the newest that match while older ones are looked for."""
        was = self._replace(None)
        self._looking = True
        self.rows.reset(len(found))
        self.rows.put(0, found[::-1])
        self._screen.rows_list.show(self.rows)
        self._find(was)
        self.look()

    def _show(self, opened: _Opened, *, again: bool) -> None:
        was = self._replace(opened.view)
        self._arrived = []
        self._problem = ""
        self._last_seq = opened.view.last
        self.rows.reset(opened.view.count)
        self.rows.put(opened.number, opened.rows)
        self._seen = self.rows.count
        shown = self._screen.rows_list
        shown.notice = (
            "No operation matches.",
            "/ changes the filter, ctrl+l takes it away, s widens the scope.",
        )
        if self.chosen == Filter():
            shown.notice = (
                "No operations yet.",
                "What reads or changes a memory is logged here; press 3 and ask something.",
            )
        if self.order == NEWEST_FIRST or self._in_time_order:
            shown.show(self.rows)
            if not again:
                self._find(was)
        shown.sort = self.order
        if self.order != NEWEST_FIRST:
            self._open_order()
        self.look()

    def _find(self, operation: Operation | None) -> None:
        """Go to where an operation is among others now, else to the newest."""
        shown = self._screen.rows_list
        place = None if operation is None else self.place_of(operation)
        if place is not None:
            shown.go_to(place, in_the_middle=True)
        elif operation is None or self.rows.index_of(operation_key(operation)) is None:
            shown.go_to(0)

    def _broken(self, error: MemtuiError) -> None:
        self._replace(None)
        self.rows.reset(0)
        self._screen.rows_list.show(self.rows)
        self._screen.show_error(error, "r reads the log again.")

    def _close(self, *views: LogView | None) -> None:
        for view in views:
            if view is not None:
                self._closing.every(view.close, lambda _: None, self._screen.fail)

    def fetch(self, wanted: tuple[int, ...]) -> None:
        """Read pages that came into view; a newer wish cancels an older one."""
        shown = self._screen.rows_list
        rows, natural = shown.rows, self._in_time_order
        view = self._view if natural else self._ordered
        if view is None or not isinstance(rows, WindowRows):
            return
        arrived = self._arrived if natural else []

        async def pages() -> dict[int, Sequence[Operation]]:
            """Read pages of the view, and of what came since it was opened."""
            found: dict[int, Sequence[Operation]] = {}
            for number in wanted:
                first, end = rows.page_bounds(number)
                held = await view.window(first, end - first) if first < view.count else ()
                past = (max(0, first - view.count), max(0, end - view.count))
                found[number] = [*held, *arrived[slice(*past)]]
            return found

        def hold(found: dict[int, Sequence[Operation]]) -> None:
            for number, page in found.items():
                rows.put(number, page)
            if shown.rows is rows:
                shown.rows_changed()

        self._windows.latest(pages, hold, self._screen.fail)

    # Following.

    def poll(self) -> None:
        """Look for operations newer than the last one, unless a look is under way."""
        view, last = self._view, self._last_seq
        if view is not None and not self.head.busy and not self._tail.busy:
            self._tail.latest(lambda: view.tail(last), self._came, self._missed)

    def _missed(self, error: MemtuiError) -> None:
        self._problem = str(error)
        self.look()

    def _came(self, rows: Sequence[Operation]) -> None:
        self._problem = ""
        if rows:
            self._last_seq = rows[-1].seq
            self._arrived.extend(rows)
            self._grow(rows, self.rows.count + len(rows))
        self.look()
        if len(self._arrived) > _KEPT:
            self.head.latest(lambda: self._open(self.chosen), self._renew, self._missed)

    def _renew(self, opened: _Opened) -> None:
        """Go on with a view that holds what came since the one before was opened."""
        self._close(self._view)
        self._view = opened.view
        self._last_seq = opened.view.last
        self._arrived = []
        self._grow((), opened.view.count)
        self.look()
        self.poll()

    def _grow(self, rows: Sequence[Operation], count: int) -> None:
        added = count - self.rows.count
        self.rows.extend(rows, count)
        if self._in_time_order:
            # Details that a person reads stay: reading their records is logged too.
            follow = self.following and not self._screen.opened
            self._screen.rows_list.rows_changed(added_above=added, follow=follow)

    def turn(self) -> None:
        """Turn following on, and go to the newest, or turn it off."""
        self.following = not self.following
        if self.following:
            self.in_time_order()
            self._screen.rows_list.go_to(0)
            self.poll()
        self.look()

    # Order.

    def in_time_order(self) -> None:
        """Go back from another order to the newest first."""
        self._orders.forget()
        self._ordering = ""
        self.order = self._screen.rows_list.sort = NEWEST_FIRST
        if not self._in_time_order:
            self._windows.forget()
            self._close(self._ordered)
            self._ordered = None
            self._screen.rows_list.show(self.rows)

    def sort(self, column: str) -> None:
        """Order by a column, or turn its order around."""
        self.order = self._screen.rows_list.sort = (column, self.order != (column, True))
        if self.order == NEWEST_FIRST:
            self.in_time_order()
            self._screen.rows_list.go_to(0)
            self.look()
        elif self._view is not None:
            self._open_order()

    def _open_order(self) -> None:
        session, chosen, order = self._screen.session, self.chosen, self.order
        sort = f"{'-' if order[1] else ''}{SORTS[order[0]]}"

        async def open_view() -> _Opened:
            view = await session.service.analysis.open_log(session.caller, chosen, sort)
            return _Opened(view, 0, await view.window(0, ORDERED_ROWS))

        def show(opened: _Opened) -> None:
            self._windows.forget()
            self._close(self._ordered)
            self._ordered = opened.view
            rows: WindowRows[Operation] = WindowRows(
                operation_key, page_rows=ORDERED_ROWS, max_pages=_PAGES
            )
            rows.reset(opened.view.count)
            rows.put(0, opened.rows)
            self._ordering = ""
            self._screen.rows_list.sort = order
            self._screen.rows_list.show(rows)
            self._screen.rows_list.go_to(0)
            self.look()

        def stay(error: MemtuiError) -> None:
            self.in_time_order()
            self._screen.fail(error)
            self.look()

        self._orders.latest(open_view, show, stay)
        self._ordering = order[0]
        self.look()

    def jump(self, moment: datetime) -> None:
        """Go to the last operation that had begun by a moment, in the order of time."""
        view = self._view
        if view is None:
            return

        def go(position: int) -> None:
            self.in_time_order()
            self._screen.rows_list.go_to(self.rows.count - 1 - position, in_the_middle=True)
            self.look()

        self._places.latest(lambda: view.position(moment), go, self._screen.fail)

    def place_of(self, operation: Operation) -> int | None:
        """Return the line of an operation that may not be held; None where it is not known."""
        if self.chosen != Filter() or not self._in_time_order:
            return None
        index = self.rows.count - operation.seq
        return index if index >= 0 else None

    def look(self) -> None:
        """Note what has been seen, and say how much there is."""
        count, logged, shown = self.rows.count, self._last_seq, self._screen.rows_list
        if self._looking:
            self._screen.show_count(f"{fmt.count(count)} so far  looking further …")
            return
        if self._in_time_order and shown.scroll_offset.y == 0:
            self._seen = count
        words = [fmt.count(count) if count == logged else fmt.of_total(count, logged)]
        if marked := len(shown.selection.marks):
            words.append(f"{fmt.count(marked)} marked")
        if self._ordering:
            words.append(f"ordering by {self._ordering} …")
        elif self._problem:
            words.append(f"not live: {self._problem}")
        else:
            words.append("● live" if self.following and self._in_time_order else "○ paused")
        if (unseen := count - self._seen) > 0:
            words.append(f"+{fmt.count(unseen)} new")
        self._screen.show_count("  ".join(words))
