"""Keeps the list of operations filled and live.

The natural order is newest first, so the newest is at the top: while the cursor is there and
following is on, new operations push in above; anywhere else nothing moves and the count says
`+3 new`. `g` or `home` goes to the newest, which resumes.
"""

from __future__ import annotations

from collections.abc import Sequence

from memtui.contract import Filter, Invalid, MemtuiError
from memtui.screens.base import MemtuiScreen
from memtui.screens.operations.columns import SORT_KEYS
from memtui.screens.operations.pages import SORTABLE, LogPages, Newest
from memtui.store.operation import Operation
from memtui.widgets import format as fmt
from memtui.widgets.background import Background
from memtui.widgets.rows import PAGE_ROWS, AppendedRows, WindowRows
from memtui.widgets.virtual_list import VirtualList

NEWEST_FIRST = ("when", True)


def operation_key(operation: Operation) -> str:
    """Return what names a row of the log."""
    return operation.operation_id


class LogFeed:
    """Reads the log for one list and says how much of it is shown."""

    def __init__(self, screen: MemtuiScreen) -> None:
        self._screen = screen
        self.rows: WindowRows[Operation] = WindowRows(operation_key, newest_first=True)
        self.following = True
        self._pages: LogPages | None = None
        self._last_seq = 0
        self._logged = 0
        self._seen = 0
        self._problem = ""
        self._head = Background(screen, "log-head")
        self._windows = Background(screen, "log-pages")
        self._tail = Background(screen, "log-tail")

    @property
    def _list(self) -> VirtualList[Operation]:
        return self._screen.query_one(VirtualList)

    @property
    def _in_time_order(self) -> bool:
        return self._list.rows is self.rows

    def load(self) -> None:
        """Read the newest operations that match the filter."""
        door = self._screen.door
        pages = LogPages(door.service, door.caller, self._screen.shared.log_filter)
        self._tail.forget()
        self._windows.forget()
        if not self.rows.count:
            self._list.notice = ("Reading the log …",)
        self._head.latest(pages.newest, lambda found: self._show(pages, found), self._broken)

    def _show(self, pages: LogPages, found: Newest) -> None:
        rows, total, self._logged = found
        self._pages = pages
        self._problem = ""
        self.rows.reset(total)
        if rows:
            number = (total - 1) // PAGE_ROWS
            newest = rows[number * PAGE_ROWS - total :]
            self.rows.put(number, newest)
            pages.learn(number, newest)
        self._last_seq = rows[-1].seq if rows else 0
        self._list.sort = NEWEST_FIRST
        self._list.notice = self._nothing()
        self._list.show(self.rows)
        self.look()

    def _nothing(self) -> tuple[str, ...]:
        if self._screen.shared.log_filter == Filter():
            return (
                "No operations yet.",
                "What reads or changes a memory is logged here; press 3 and ask something.",
            )
        return (
            "No operation matches.",
            "/ changes the filter, ctrl+l takes it away, s widens the scope.",
        )

    def _broken(self, error: MemtuiError) -> None:
        self._pages = None
        self.rows.reset(0)
        self._list.notice = (f"✗ {error}", "r reads the log again.")
        self._list.show(self.rows)
        self._screen.show_count("")

    def fetch(self, wanted: tuple[int, ...]) -> None:
        """Read pages that came into view; a newer wish cancels an older one."""
        pages = self._pages
        if pages is not None and self._in_time_order:
            self._windows.latest(lambda: pages.pages(wanted), self._hold, self._screen.fail)

    def _hold(self, found: dict[int, Sequence[Operation]]) -> None:
        for number, rows in found.items():
            self.rows.put(number, rows)
            if self._pages is not None:
                self._pages.learn(number, rows)
        if self._in_time_order:
            self._list.rows_changed()

    def poll(self) -> None:
        """Look for operations newer than the last one, unless a look is under way."""
        pages = self._pages
        if pages is None or self._head.busy or self._tail.busy:
            return
        last = self._last_seq
        self._tail.latest(lambda: pages.since(last), self._arrived, self._missed)

    def _missed(self, error: MemtuiError) -> None:
        self._problem = str(error)
        self.look()

    def _arrived(self, rows: Sequence[Operation]) -> None:
        self._problem = ""
        if rows:
            self._last_seq = rows[-1].seq
            self._logged = max(self._logged, self._last_seq)
            self.rows.extend(rows, self.rows.count + len(rows))
            if self._in_time_order:
                self._list.rows_changed(added_above=len(rows), follow=self.following)
        self.look()
        if len(rows) == PAGE_ROWS:
            self.poll()

    def turn(self) -> None:
        """Turn following on, and go to the newest, or turn it off."""
        self.following = not self.following
        if self.following:
            self.in_time_order()
            self._list.go_to(0)
            self.poll()
        self.look()

    def in_time_order(self) -> None:
        """Go back from another order to the newest first."""
        self._list.sort = NEWEST_FIRST
        if not self._in_time_order:
            self._list.show(self.rows)

    def sort(self, column: str) -> None:
        """Order by a column, or turn its order around; by time it is always newest first."""
        pages, shown = self._pages, self._list.sort
        if pages is None or column == "when":
            self.in_time_order()
            self.look()
            return
        if self.rows.count > SORTABLE:
            self._screen.fail(
                Invalid(
                    f"{fmt.count(self.rows.count)} operations are too many to sort by {column}; "
                    f"narrow the filter to {fmt.count(SORTABLE)} or fewer."
                )
            )
            return
        descending = not shown[1] if shown is not None and shown[0] == column else True

        def show(rows: Sequence[Operation]) -> None:
            ordered: AppendedRows[Operation] = AppendedRows(operation_key)
            ordered.replace(sorted(rows, key=SORT_KEYS[column], reverse=descending))
            self._list.sort = (column, descending)
            self._list.show(ordered)
            self._list.go_to(0)
            self.look()

        self._windows.latest(pages.everything, show, self._screen.fail)

    def look(self) -> None:
        """Note what has been seen, and say how much there is."""
        in_order = self._in_time_order
        if in_order and self._list.scroll_offset.y == 0:
            self._seen = self.rows.count
        unseen = self.rows.count - self._seen
        words = [fmt.of_total(self.rows.count, self._logged)]
        if self._problem:
            words.append(f"not live: {self._problem}")
        else:
            words.append("● live" if self.following and in_order else "○ paused, F follows")
        if unseen > 0:
            words.append(f"+{fmt.count(unseen)} new")
        self._screen.show_count("  ".join(words))
