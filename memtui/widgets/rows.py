"""Models of partly loaded rows, and their marks; without widgets or I/O."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

R = TypeVar("R")

PAGE_ROWS = 256
"""Rows of one page."""


class Rows(Protocol[R]):
    """The model of a list. An index counts from the top; a row not loaded is None."""

    @property
    def count(self) -> int:
        """Lines of the list, including rows not loaded."""

    def key(self, row: R, /) -> str:
        """Return the row's key, which does not depend on its index."""

    def row(self, index: int) -> R | None:
        """Return the row at an index; None: it is not loaded."""

    def index_of(self, key: str) -> int | None:
        """Return the index of a loaded row; None: it is not loaded."""

    def wanted(self, first: int, last: int) -> tuple[int, ...]:
        """Return the pages to fetch for the lines `first` to `last`, the most urgent first."""

    def held(self) -> list[tuple[int, R]]:
        """Return the loaded rows with their indexes, from the top."""


class WindowRows(Generic[R]):
    """Rows of a known number, fetched by page; the least recently used pages are dropped.

    Pages are counted by *ordinal*, a row's place in order of creation. With `newest_first` the
    list shows them in reverse, so that a new row shifts no page.
    """

    def __init__(
        self,
        key: Callable[[R], str],
        *,
        newest_first: bool = False,
        page_rows: int = PAGE_ROWS,
        max_pages: int = 64,
    ) -> None:
        self.key = key
        self._newest_first = newest_first
        self._page_rows = page_rows
        self._max_pages = max_pages
        self._count = 0
        self._pages: OrderedDict[int, list[R]] = OrderedDict()
        self._ordinals: dict[str, int] = {}

    @property
    def count(self) -> int:
        """Number of rows, loaded or not."""
        return self._count

    def reset(self, count: int) -> None:
        """Drop all pages; there are now `count` rows."""
        self._count = count
        self._pages.clear()
        self._ordinals.clear()

    def put(self, page: int, rows: Sequence[R]) -> None:
        """Store a page, its rows in ordinal order; may drop the least recently drawn page."""
        self._drop(page)
        self._pages[page] = list(rows)
        for offset, row in enumerate(rows):
            self._ordinals[self.key(row)] = page * self._page_rows + offset
        while len(self._pages) > self._max_pages:
            self._drop(next(iter(self._pages)))

    def extend(self, rows: Sequence[R], count: int) -> None:
        """Append rows after the last ordinal, in ordinal order; `count` is the new total.

        Rows that do not continue a loaded page are skipped, and fetched when needed.
        """
        start = count - len(rows)
        gap = start != self._count
        self._count = count
        for ordinal, row in enumerate(rows, start):
            page, offset = divmod(ordinal, self._page_rows)
            page_rows = self._pages.get(page)
            if page_rows is None and offset == 0:
                self.put(page, [row])
            elif page_rows is not None and len(page_rows) == offset and not gap:
                page_rows.append(row)
                self._ordinals[self.key(row)] = ordinal

    def row(self, index: int) -> R | None:
        """Return the row at an index from the top; None: its page is not loaded."""
        if not 0 <= index < self._count:
            return None
        page, offset = divmod(self._turn(index), self._page_rows)
        rows = self._pages.get(page)
        if rows is None or offset >= len(rows):
            return None
        self._pages.move_to_end(page)
        return rows[offset]

    def index_of(self, key: str) -> int | None:
        """Return the index of a loaded row; None: it is not loaded."""
        ordinal = self._ordinals.get(key)
        return None if ordinal is None else self._turn(ordinal)

    def wanted(self, first: int, last: int) -> tuple[int, ...]:
        """Return the pages of these lines that are not fully loaded, from the top down."""
        if not self._count:
            return ()
        bounds = (max(0, first), min(last, self._count - 1))
        pages = [self._turn(index) // self._page_rows for index in bounds]
        step = 1 if pages[0] <= pages[1] else -1
        return tuple(
            page for page in range(pages[0], pages[1] + step, step) if not self._whole(page)
        )

    def held(self) -> list[tuple[int, R]]:
        """Return the loaded rows with their indexes, from the top."""
        pairs = [
            (self._turn(page * self._page_rows + offset), row)
            for page, rows in self._pages.items()
            for offset, row in enumerate(rows)
        ]
        return sorted(pairs, key=lambda pair: pair[0])

    def page_bounds(self, page: int) -> tuple[int, int]:
        """Return the first ordinal of a page and the one after its last."""
        first = page * self._page_rows
        return first, min(first + self._page_rows, self._count)

    def _whole(self, page: int) -> bool:
        first, end = self.page_bounds(page)
        return len(self._pages.get(page, ())) >= end - first

    def _turn(self, index: int) -> int:
        return self._count - 1 - index if self._newest_first else index

    def _drop(self, page: int) -> None:
        for row in self._pages.pop(page, ()):
            self._ordinals.pop(self.key(row), None)


class AppendedRows(Generic[R]):
    """Rows fetched page after page with a cursor; all fetched rows stay loaded.

    While there are more, one line after the last row stands for them; scrolling near it asks for
    the next page. A list that is narrowed to some of the loaded rows asks for no page.
    """

    def __init__(self, key: Callable[[R], str]) -> None:
        self.key = key
        self._passes: Callable[[R], bool] | None = None
        self._hold([])
        self._pages = 0
        self.more = False

    @property
    def count(self) -> int:
        """Number of shown rows, plus one line if there are more."""
        return len(self._shown) + self._goes_on

    @property
    def _goes_on(self) -> bool:
        return self.more and self._passes is None

    @property
    def loaded(self) -> int:
        """Number of loaded rows."""
        return len(self._rows)

    def replace(self, rows: Sequence[R], *, more: bool = False) -> None:
        """Replace all rows; of rows with the same key only the first is taken."""
        self._hold([])
        self._pages = 0
        self.append(rows, more=more)

    def append(self, rows: Sequence[R], *, more: bool) -> None:
        """Add the next page; rows with a loaded key are skipped."""
        for row in rows:
            key = self.key(row)
            if key not in self._places:
                self._places[key] = len(self._rows)
                self._rows.append(row)
        self.narrow(self._passes)
        self.more = more
        self._pages += 1

    def narrow(self, passes: Callable[[R], bool] | None) -> None:
        """Show only the loaded rows that pass; None: all."""
        self._passes = passes
        self._shown, self._indexes = self._rows, self._places
        if passes is not None:
            self._shown = list(filter(passes, self._rows))
            self._indexes = self._numbered(self._shown)

    def has(self, key: str) -> bool:
        """Whether a row is loaded, shown or not."""
        return key in self._places

    def change(self, changed: Mapping[str, R]) -> None:
        """Replace the rows with these keys; a row with a new key goes to the top."""
        rows, new = list(self._rows), []
        for key, row in changed.items():
            if (index := self._places.get(key)) is None:
                new.append(row)
            else:
                rows[index] = row
        self._hold([*reversed(new), *rows])

    def remove(self, keys: Collection[str]) -> None:
        """Remove the rows with these keys."""
        self._hold([row for row in self._rows if self.key(row) not in keys])

    def order(self, by: Callable[[R], Any], *, descending: bool) -> None:
        """Sort the loaded rows."""
        self._hold(sorted(self._rows, key=by, reverse=descending))

    def _hold(self, rows: list[R]) -> None:
        self._rows, self._places = rows, self._numbered(rows)
        self.narrow(self._passes)

    def _numbered(self, rows: Sequence[R]) -> dict[str, int]:
        return {self.key(row): index for index, row in enumerate(rows)}

    def row(self, index: int) -> R | None:
        """Return the row at an index; None: it is not shown."""
        return self._shown[index] if 0 <= index < len(self._shown) else None

    def index_of(self, key: str) -> int | None:
        """Return the index of a row; None: it is not shown."""
        return self._indexes.get(key)

    def wanted(self, first: int, last: int) -> tuple[int, ...]:
        """Return the next page's number once the lines reach the end, if there are more."""
        del first
        return (self._pages,) if self._goes_on and last >= len(self._shown) else ()

    def held(self) -> list[tuple[int, R]]:
        """Return the shown rows with their indexes."""
        return list(enumerate(self._shown))


class Selection(Generic[R]):
    """Marks and a range, which stay on their rows when rows are added, removed or moved."""

    def __init__(self, rows: Rows[R]) -> None:
        self.model = rows
        self.marks: dict[str, R] = {}
        """Marked rows by key, each as it was when it was marked."""
        self._anchor: str | None = None

    @property
    def ranging(self) -> bool:
        """Whether a range is being drawn."""
        return self._anchor is not None

    @property
    def active(self) -> bool:
        """Whether anything is marked or a range is being drawn."""
        return bool(self.marks) or self.ranging

    @property
    def hidden(self) -> int:
        """Number of marked rows that are not loaded."""
        return sum(self.model.index_of(key) is None for key in self.marks)

    def span(self, cursor: int) -> range:
        """Return the lines from the range's begin to the cursor; empty: there is no range."""
        if self._anchor is None:
            return range(0)
        begin = self.model.index_of(self._anchor)
        if begin is None:
            return range(0)
        return range(min(begin, cursor), max(begin, cursor) + 1)

    def rows(self, cursor: int) -> list[R]:
        """Return the rows marked or in the range, from the top; those not loaded come last."""
        keys = dict(self.marks)
        for index in self.span(cursor):
            row = self.model.row(index)
            if row is not None:
                keys.setdefault(self.model.key(row), row)
        placed = [(self.model.index_of(key), row) for key, row in keys.items()]
        indexes = sorted(index for index, _ in placed if index is not None)
        now = [row for index in indexes if (row := self.model.row(index)) is not None]
        return now + [row for index, row in placed if index is None]

    def toggle(self, cursor: int) -> bool:
        """Mark or unmark the cursor's row, or mark the range; return whether it was one row."""
        if self.ranging:
            self.toggle_range(cursor)
            return False
        row = self.model.row(cursor)
        if row is None:
            return False
        key = self.model.key(row)
        if self.marks.pop(key, None) is None:
            self.marks[key] = row
        return True

    def toggle_range(self, cursor: int) -> None:
        """Begin a range at the cursor, or end it and mark its rows."""
        if self.ranging:
            for index in self.span(cursor):
                self._mark(self.model.row(index))
            self._anchor = None
            return
        row = self.model.row(cursor)
        self._anchor = None if row is None else self.model.key(row)

    def mark_all(self) -> None:
        """Mark all loaded rows."""
        self.mark(row for _, row in self.model.held())

    def mark(self, rows: Iterable[R]) -> None:
        """Mark rows, loaded or not, and end the range."""
        self._anchor = None
        for row in rows:
            self._mark(row)

    def clear(self) -> None:
        """Clear the range if one is being drawn, else all marks."""
        if self.ranging:
            self._anchor = None
        else:
            self.marks.clear()

    def reset(self) -> None:
        """Clear all marks and the range."""
        self.marks.clear()
        self._anchor = None

    def keep_held(self) -> None:
        """Unmark rows that are not loaded any more."""
        self.drop({key for key in self.marks if self.model.index_of(key) is None})

    def drop(self, keys: set[str]) -> None:
        """Unmark the rows with these keys."""
        self.marks = {key: row for key, row in self.marks.items() if key not in keys}
        if self._anchor in keys:
            self._anchor = None

    def _mark(self, row: R | None) -> None:
        if row is not None:
            self.marks[self.model.key(row)] = row
