"""Fetches the operation log page by page, for a list that shows it newest first.

An operation's natural place is its ordinal among those that match the filter, counted from the
oldest: the log is append-only, so it never changes. Without a filter the ordinal is `seq - 1` and
any page is one read away. With one, a page is reached from the nearest page whose border is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from memtui.contract import Filter
from memtui.store.operation import Operation
from memtui.widgets.rows import PAGE_ROWS

if TYPE_CHECKING:
    from memtui.service import Caller, MemoryService

SORTABLE = 5_000
"""Operations that are read whole to order them otherwise than by time."""


class Newest(NamedTuple):
    """The newest operations that match, oldest first, how many match, and how many are logged."""

    rows: Sequence[Operation]
    matching: int
    logged: int


class LogPages:
    """Reads pages of the operations that match one filter."""

    def __init__(
        self,
        service: MemoryService,
        caller: Caller,
        chosen: Filter,
        *,
        page_rows: int = PAGE_ROWS,
    ) -> None:
        self._page_rows = page_rows
        self._service = service
        self._caller = caller
        self._filter = chosen
        self._whole_log = chosen == Filter()
        self._after: dict[int, int] = {0: 0}
        """Page to the `seq` of the operation before its first."""
        self._before: dict[int, int] = {}
        """Page to the `seq` of the operation behind its last."""

    async def newest(self) -> Newest:
        """Return the newest operations and how many there are."""
        page = await self._service.operations(self._caller, self._filter, limit=self._page_rows)
        logged = page.total
        if not self._whole_log:
            logged = (await self._service.operations(self._caller, limit=1)).total
        return Newest(page.operations[::-1], page.total, logged)

    async def since(self, seq: int) -> Sequence[Operation]:
        """Return operations newer than `seq`, oldest first, a page at most."""
        page = await self._service.operations(
            self._caller, self._filter, after=seq, limit=self._page_rows
        )
        return page.operations[::-1]

    async def pages(self, wanted: Sequence[int]) -> dict[int, Sequence[Operation]]:
        """Return the pages that were asked for, each oldest first."""
        return {number: await self._page(number) for number in wanted}

    async def everything(self) -> list[Operation]:
        """Return all operations that match, newest first; for no more than `SORTABLE`."""
        found: list[Operation] = []
        before: int | None = None
        while True:
            page = await self._service.operations(
                self._caller, self._filter, limit=self._page_rows, before=before
            )
            found.extend(page.operations)
            before = page.next_before
            if before is None or len(found) >= SORTABLE:
                return found

    def learn(self, number: int, rows: Sequence[Operation]) -> None:
        """Remember the borders of a page, given oldest first; it need not be full."""
        if rows:
            self._before[number - 1] = rows[0].seq
        if len(rows) == self._page_rows:
            self._after[number + 1] = rows[-1].seq

    async def _page(self, number: int) -> Sequence[Operation]:
        if self._whole_log:
            return await self.since(number * self._page_rows)
        below = max(page for page in self._after if page <= number)
        above = min((page for page in self._before if page >= number), default=None)
        if above is not None and above - number < number - below:
            return await self._down(above, number)
        return await self._up(below, number)

    async def _up(self, page: int, number: int) -> Sequence[Operation]:
        while True:
            rows = await self.since(self._after[page])
            self.learn(page, rows)
            if page == number or len(rows) < self._page_rows:
                return rows if page == number else ()
            page += 1

    async def _down(self, page: int, number: int) -> Sequence[Operation]:
        while True:
            found = await self._service.operations(
                self._caller, self._filter, before=self._before[page], limit=self._page_rows
            )
            rows = found.operations[::-1]
            self.learn(page, rows)
            if page == number or not rows:
                return rows
            page -= 1
