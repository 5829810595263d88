"""Loads the list of operations and keeps it live.

The natural order is newest first. While the cursor is at the top and following is on, new
operations appear above it; elsewhere the rows stay, and the count says `+3 new`. `g` or `home`
goes to the newest and resumes. Any other order is a snapshot; newer operations are only counted.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from memtui.analytics.engine import Stop
from memtui.contract import Filter, MemtuiError
from memtui.presenters import format as fmt
from memtui.screens.list_screen import ListScreen
from memtui.screens.operations.view import SORTS
from memtui.store.operation import Operation, Parts
from memtui.widgets.background import Background
from memtui.widgets.frame import PAST_SIGN
from memtui.widgets.rows import WindowRows

if TYPE_CHECKING:
    from memtui.analytics.reading import Appended, LogView, Progress

NEWEST_FIRST = ("when", True)
_PAGE_ROWS = 64
"""Rows of a page; small, as in other orders each row may be elsewhere in the archive."""
_PAGES = 96
_KEPT = 1_000
"""Most new operations kept in memory; beyond, the view is opened again."""


class _Opened(NamedTuple):
    """An opened view, its order, and its first rows, which begin at page `page`."""

    view: LogView
    order: tuple[str, bool]
    page: int
    rows: Sequence[Operation]


_AT_ONCE = 1_000
"""Operations per read when all are read."""


def operation_key(operation: Operation) -> str:
    """Return the key of an operation's row."""
    return operation.operation_id


class LogFeed:
    """Reads the log for one list, and shows how many operations there are."""

    def __init__(
        self, screen: ListScreen[Operation], whole: Callable[[Operation], Operation | Parts]
    ) -> None:
        """Take the screen, and what returns all operations that a row stands for."""
        self._screen = screen
        self._whole = whole
        self.rows: WindowRows[Operation] = WindowRows(operation_key)
        self.following = True
        self.order = NEWEST_FIRST
        """The wanted order: a column, and whether from high to low."""
        self.chosen = Filter()
        """The filter in force."""
        self._shown_order = NEWEST_FIRST
        """The order of the shown rows; differs from `order` until the new rows come."""
        self._view: LogView | None = None
        """None: none is open yet, or only the newest matches are shown so far."""
        self._progress: Progress | None = None
        """How far the search for matches has come; None: no part of the log was searched yet."""
        self._stop: Stop | None = None
        """Ends the opening under way; None: there is none."""
        self._arrived: list[Operation] = []
        """Operations newer than the view; collected only in the natural order."""
        self._came_since = 0
        self._folded = 0
        """Number of matching operations that are part of another one."""
        self._left_out = 0
        """Number of matching operations hidden as memtui's own."""
        self._logged = 0
        """Number of all operations, matching or not."""
        self._last_seq = 0
        self._seen = 0
        self._problem = ""
        self._added_up: tuple[tuple[int, str], str] = ((0, ""), "")
        """Cost of the marked operations, cached for their number and the last of them."""
        self._sought: tuple[Operation, Callable[[Operation], None]] | None = None
        """The operation to go to once the log is open, and the callback if it is not listed."""
        self._looking = Background(screen, "log-place")
        self._windows = Background(screen, "log-pages")
        self._tail = Background(screen, "log-tail")

    @property
    def count(self) -> int:
        """Number of matching operations, including new ones."""
        return self._view.count + self._came_since if self._view else self.rows.count

    @property
    def each(self) -> int:
        """Number of matching operations, each of a question over several bindings included."""
        return self.count + self._folded

    @property
    def folded(self) -> bool:
        """Whether a row stands for all operations of a question over several bindings."""
        return self._view is not None and self._view.folded

    @property
    def _natural(self) -> bool:
        return self._shown_order == NEWEST_FIRST

    # Opening.

    def load(self, chosen: Filter, *, on: bool = False) -> None:
        """Open the log with a filter, in `order`; cancels an opening under way.

        `on`: where the search with this filter was stopped, it goes on instead.
        """
        for work in (self._tail, self._windows, self._looking):
            work.forget()
        if not self.rows.count:
            self._screen.rows_list.notice = ("Reading the log …",)
        again = chosen == self.chosen
        self.chosen, order = chosen, self.order
        self._screen.rows_list.sort = order
        self._progress, self._stop = None, (stop := Stop())
        early, view = partial(self._tell, again=again), self._view
        search_on = view if on and again and view and view.searched_from > 1 else None
        self._screen.reads.latest(
            lambda: self._open(chosen, order, early, stop, search_on),
            lambda opened: self._show(opened, again=again),
            lambda error: self._broken(error, again=again),
        )
        if order != self._shown_order:
            self.look()

    async def _open(
        self,
        chosen: Filter,
        order: tuple[str, bool],
        early: Callable[[Progress], None] | None = None,
        stop: Stop | None = None,
        search_on: LogView | None = None,
    ) -> _Opened:
        session = self._screen.session
        if order == NEWEST_FIRST:
            # This view is oldest first, as there no operation ever changes its place.
            if search_on and early and stop:
                work = session.service.analysis.search_on(search_on, early=early, stop=stop)
            else:
                work = session.service.analysis.open_log(
                    session.caller, chosen, "seq", early=early, stop=stop, folded=True
                )
            view = await work
            page = max(0, (view.count - 1) // _PAGE_ROWS)
            if view.count - page * _PAGE_ROWS < self._screen.app.size.height:
                page = max(0, page - 1)  # the last may hold a row alone
            rows = await to_thread(view.window, page * _PAGE_ROWS, 2 * _PAGE_ROWS)
            return _Opened(view, order, page, rows)
        sort = f"{'-' if order[1] else ''}{SORTS[order[0]]}"
        view = await session.service.analysis.open_log(session.caller, chosen, sort)
        return _Opened(view, order, 0, await to_thread(view.window, 0, _PAGE_ROWS))

    def _replace(self, view: LogView | None) -> Operation | None:
        """Replace the view; return the operation under the cursor, unless that is at the top."""
        if self._view is not None and self._view is not view:
            close = partial(to_thread, self._view.close)
            self._screen.acts.every(close, lambda _: None, self._screen.fail)
        self._view, self._arrived, self._came_since = view, [], 0
        shown = self._screen.rows_list
        return shown.current if shown.cursor else None

    def _fill(
        self,
        order: tuple[str, bool],
        count: int,
        page: int,
        rows: Sequence[Operation],
        *,
        added: int = 0,
    ) -> None:
        natural = order == NEWEST_FIRST
        self._shown_order = order
        self.rows = WindowRows(
            operation_key,
            newest_first=natural,
            page_rows=_PAGE_ROWS,
            max_pages=_PAGES,
        )
        self.rows.reset(count)
        for number, first in enumerate(range(0, len(rows), _PAGE_ROWS), page):
            self.rows.put(number, rows[first : first + _PAGE_ROWS])
        self._screen.rows_list.show(self.rows, added_above=added)
        self._screen.read_marks(rows)

    def _take_counts(self, view: LogView) -> None:
        self._left_out, self._logged, self._last_seq = view.left_out, view.logged, view.last
        self._folded = view.folded_count

    def _tell(self, progress: Progress, *, again: bool) -> None:
        """Show how far a search has come; with another filter, the newest matches so far too."""
        before, self._progress, found = self._progress, progress, progress.newest
        if not again and (before is None or before.newest is not found):
            was = self._replace(None)
            self._screen.rows_list.notice = ("Searching …",)
            self._fill(NEWEST_FIRST, len(found), 0, found[::-1])
            self._find(was)
        self.look()

    def stop(self) -> bool:
        """End the search, whose matches stay, or the sorting; False: there is none."""
        if self._stop is None:
            return False
        if self.order == NEWEST_FIRST:
            self._stop.search_ended = True
        elif self._view is not None:
            self._stop = None
            self._screen.reads.forget()
            self.order = self._screen.rows_list.sort = self._shown_order
            self.look()
        return True

    def _show(self, opened: _Opened, *, again: bool) -> None:
        self._stop = None
        was, before = self._replace(opened.view), self._shown_order
        # Same filter and order again: each operation is as far from the oldest as before.
        same = again and self._natural and before == opened.order and self.rows.count > 0
        added = max(0, opened.view.count - self.rows.count) if same else 0
        self._problem = ""
        self._take_counts(opened.view)
        shown = self._screen.rows_list
        shown.notice = self._nothing()
        self._fill(opened.order, opened.view.count, opened.page, opened.rows, added=added)
        self._seen = self.count
        if not self._natural or before != opened.order:
            shown.go_to(0)
        elif not again:
            self._find(was)
        self._go_to_sought()
        self.look()

    def _nothing(self) -> tuple[str, str]:
        state = self._screen.state
        if self.chosen != Filter():
            hint = "/ changes the filter, ctrl+l clears it, s widens the scope."
            if state.demo_percent is not None:
                return "No operation matches yet: the demo is still being made.", hint
            return "No operation matches.", hint
        if state.as_of is not None:
            return (
                "Nothing was logged by then.",
                f"{state.keymap.label('app.past')} goes back to now.",
            )
        return (
            "No operations yet.",
            "Reads and changes of records are logged here; press 3 and ask something.",
        )

    def demo_grew(self) -> None:
        """Update the notice of the empty list, if the log was read."""
        if self._view is not None and not self._screen.reads.busy:
            self._screen.rows_list.notice = self._nothing()

    def _find(self, operation: Operation | None) -> None:
        """Go to an operation's line; to the newest if it is None or unknown."""
        shown = self._screen.rows_list
        place = None if operation is None else self._place_of(operation)
        if place is not None:
            shown.go_to(place, in_the_middle=True)
        elif operation is None or self.rows.index_of(operation_key(operation)) is None:
            shown.go_to(0)

    def seek(self, operation: Operation, apart: Callable[[Operation], None]) -> None:
        """Go to an operation once the log is open; if it is not listed, call `apart`."""
        self._sought = operation, apart
        if self._view is not None and not self._screen.reads.busy:
            self._go_to_sought()

    def _go_to_sought(self) -> None:
        if self._sought is None:
            return
        (operation, apart), self._sought = self._sought, None
        shown = self._screen.rows_list
        if shown.go_to_key(operation_key(operation)):
            return
        view, place = self._view, self._place_of(operation)
        if place is not None or view is None:
            self._go_there(operation, place, apart)
            return

        def found(place: int | None) -> None:
            if self._view is view:
                self._go_there(operation, self._line_of(place), apart)

        self._looking.latest(lambda: to_thread(view.find, operation.seq), found, self._screen.fail)

    def _go_there(
        self, operation: Operation, line: int | None, apart: Callable[[Operation], None]
    ) -> None:
        if line is None:
            self._screen.call_after_refresh(apart, operation)  # after the row's own details
        else:
            self._screen.rows_list.go_to(line, in_the_middle=True)

    def _broken(self, error: MemtuiError, *, again: bool) -> None:
        self._sought = self._stop = None
        if again and self._view is not None and self.order != self._shown_order:
            self.order = self._screen.rows_list.sort = self._shown_order
            self._screen.fail(error)
            self.look()
            return
        self._replace(None)
        self._fill(self._shown_order, 0, 0, ())
        if not self._screen.is_current:
            self._screen.reload()  # once it is shown again
        self._screen.show_error(error, "r reads the log again.")

    def fetch(self, wanted: tuple[int, ...]) -> None:
        """Read pages that came into view; a newer request cancels an older one."""
        view, rows, arrived = self._view, self.rows, self._arrived
        if view is None:
            return

        async def pages() -> dict[int, Sequence[Operation]]:
            """Read pages, from the view and from the operations newer than it."""
            found: dict[int, Sequence[Operation]] = {}
            for number in wanted:
                first, end = rows.page_bounds(number)
                is_opened = first < view.count
                loaded = await to_thread(view.window, first, end - first) if is_opened else ()
                past = (max(0, first - view.count), max(0, end - view.count))
                found[number] = [*loaded, *arrived[slice(*past)]]
            return found

        def hold(found: dict[int, Sequence[Operation]]) -> None:
            for number, page in found.items():
                rows.put(number, page)
            if self.rows is rows:
                self._screen.rows_list.rows_changed()
                self._screen.read_marks(chain.from_iterable(found.values()))

        self._windows.latest(pages, hold, self._screen.fail)

    async def all_rows(self) -> list[Operation]:
        """Read all matching operations, in the order of the view."""
        view = self._view
        if view is None:
            return [one for _, one in self.rows.held()]
        found: list[Operation] = []
        while len(found) < view.count and (
            part := await to_thread(view.window, len(found), _AT_ONCE)
        ):
            found += part
        return [*found, *self._arrived]

    # Following.

    def poll(self) -> None:
        """Read newer operations, unless a read is under way."""
        view, last = self._view, self._last_seq
        if view is not None and not self._screen.reads.busy and not self._tail.busy:
            self._tail.latest(lambda: to_thread(view.tail, last), self._came, self._missed)

    def _missed(self, error: MemtuiError) -> None:
        self._problem = str(error)
        self.look()

    def _came(self, tail: Appended) -> None:
        self._problem = ""
        rows, left_out, folded, logged, self._last_seq = tail
        self._left_out += left_out
        self._folded += folded
        self._logged += logged
        if rows:
            self._came_since += len(rows)
            if self._natural:
                self._arrived.extend(rows)
                self._grow(rows)
        self.look()
        if len(self._arrived) > _KEPT:
            self._screen.reads.latest(
                lambda: self._open(self.chosen, NEWEST_FIRST), self._renew, self._missed
            )

    def _renew(self, opened: _Opened) -> None:
        """Replace the view by one that contains the newer operations."""
        self._replace(opened.view)
        self._take_counts(opened.view)
        self._grow(())
        self.look()
        self.poll()

    def _grow(self, rows: Sequence[Operation]) -> None:
        added = self.count - self.rows.count
        self.rows.extend(rows, self.count)
        self._screen.read_marks(rows)
        # Do not follow while details are open: reading their records is logged, too.
        follow = self.following and not self._screen.opened
        self._screen.rows_list.rows_changed(added_above=added, follow=follow)

    def turn(self) -> None:
        """Turn following on or off; when on, go to the newest."""
        self.following = not self.following
        if self.following and not self._natural:
            self.order = NEWEST_FIRST
            self.load(self.chosen)
        elif self.following:
            self._screen.rows_list.go_to(0)
            self.poll()
        self.look()

    def sort(self, column: str) -> None:
        """Sort by a column, from high to low; if it is so already, reverse."""
        self.order = (column, self.order != (column, True))
        self.load(self.chosen)

    async def jump(self, moment: datetime) -> None:
        """Go to the last operation that had begun by a moment; switch to the natural order."""
        screen = self._screen
        if not self._natural:
            screen.reads.forget()
            self.order = screen.rows_list.sort = self._shown_order
            opened = await screen.change(lambda: self._open(self.chosen, NEWEST_FIRST))
            self.order = screen.rows_list.sort = NEWEST_FIRST
            self._show(opened, again=True)
        if (view := self._view) is not None:
            position = await screen.change(lambda: to_thread(view.position, moment))
            screen.rows_list.go_to(self.rows.count - 1 - position, in_the_middle=True)
            self.look()

    def _place_of(self, operation: Operation) -> int | None:
        """Return the line of an operation, loaded or not; None: unknown."""
        if self._view is None or not self._natural:
            return None
        place = self._view.place_of(operation.seq)
        if place is None:
            came = (n for n, one in enumerate(self._arrived) if one.seq == operation.seq)
            place = next((self._view.count + n for n in came), None)
        return self._line_of(place)

    def _line_of(self, place: int | None) -> int | None:
        if place is None or not self._natural:
            return place
        return self.rows.count - 1 - place

    def _cost_of(self, marks: dict[str, Operation]) -> str:
        """Return the total cost of the marked operations; empty: nothing."""
        named = len(marks), next(reversed(marks))
        if self._added_up[0] != named:  # it is asked for at every scroll
            found = [*map(self._whole, marks.values())]
            costs = [one.cost_usd for one in found if one.cost_usd]
            unpriced = any(one.unpriced for one in found)
            words = fmt.short_money(sum(costs, Decimal(0)), unpriced=unpriced)
            self._added_up = named, f" {words}" if costs or unpriced else ""
        return self._added_up[1]

    def _found_words(self) -> list[str]:
        """Return how many match, and of how many."""
        if self._progress and self._view and self._view.searched_from > 1:
            return self._so_far(self._progress)
        count, logged = self.count, self._logged
        is_all = count == logged or self._screen.state.as_of is not None
        return [fmt.count(count) if is_all else fmt.of_total(count, logged)]

    def _so_far(self, progress: Progress) -> list[str]:
        """Return how many matches a search found, how far it is, and the key that ends it."""
        label, count = self._screen.state.keymap.label, self.count
        hint = f"{label('app.refresh')} searches on"
        if self._stop:
            hint, count = f"{label('operations.stop')} stops", progress.matches
        return [f"{fmt.count(count)} so far", f"{progress.searched:.0%} searched", hint]

    def look(self) -> None:
        """Update the count: matches, marks, cost, live state, new and hidden operations."""
        count, shown = self.count, self._screen.rows_list
        if self._progress and self._stop:
            self._screen.show_count("  ".join(self._so_far(self._progress)))
            return
        if self._natural and shown.scroll_offset.y == 0:
            self._seen = count
        as_of = self._screen.state.as_of
        words = self._found_words()
        if marks := shown.selection.marks:
            words.append(f"{fmt.count(len(marks))} marked{self._cost_of(marks)}")
        if as_of is not None:
            words.append(f"{PAST_SIGN} by then")
        elif self.order != self._shown_order:
            words.append(f"ordering by {self.order[0]} …")
        elif self._problem:
            words.append(f"not live: {self._problem}")
        elif problem := self._screen.state.not_live:
            words.append(f"not live: {problem}")
        else:
            words.append("● live" if self.following and self._natural else "○ paused")
        if (unseen := count - self._seen) > 0:
            words.append(f"+{fmt.count(unseen)} new")
        if self._left_out:
            words.append(fmt.left_out(self._left_out, brief=not self._screen.has_class("-wide")))
        self._screen.show_count("  ".join(words))
