"""Which rows of a list are marked, by key, and the range that is being drawn; no widget."""

from __future__ import annotations

from typing import Generic, TypeVar

from memtui.widgets.rows import Rows

R = TypeVar("R")


class Selection(Generic[R]):
    """Marks stay on their rows when rows come, go or change places."""

    def __init__(self, rows: Rows[R]) -> None:
        self.rows_model = rows
        self.marks: dict[str, R] = {}
        """Marked rows by key, as they were when they were marked."""
        self._anchor: str | None = None

    @property
    def ranging(self) -> bool:
        """Whether a range is being drawn."""
        return self._anchor is not None

    @property
    def active(self) -> bool:
        """Whether anything is marked or a range is being drawn."""
        return bool(self.marks) or self.ranging

    def span(self, cursor: int) -> range:
        """Return the lines of the range between its begin and the cursor; empty without one."""
        if self._anchor is None:
            return range(0)
        begin = self.rows_model.index_of(self._anchor)
        if begin is None:
            return range(0)
        return range(min(begin, cursor), max(begin, cursor) + 1)

    def rows(self, cursor: int) -> list[R]:
        """Return the marked rows as they are now, and those of the range, top first."""
        keys = dict(self.marks)
        for index in self.span(cursor):
            row = self.rows_model.row(index)
            if row is not None:
                keys.setdefault(self.rows_model.key(row), row)
        placed = [(self.rows_model.index_of(key), row) for key, row in keys.items()]
        held = sorted(index for index, _ in placed if index is not None)
        now = [row for index in held if (row := self.rows_model.row(index)) is not None]
        return now + [row for index, row in placed if index is None]

    def toggle(self, cursor: int) -> bool:
        """Mark or unmark the row at the cursor, or mark the range; whether it was one row."""
        if self.ranging:
            self.toggle_range(cursor)
            return False
        row = self.rows_model.row(cursor)
        if row is None:
            return False
        key = self.rows_model.key(row)
        if self.marks.pop(key, None) is None:
            self.marks[key] = row
        return True

    def toggle_range(self, cursor: int) -> None:
        """Begin a range at the cursor, or end it and mark its rows."""
        if self.ranging:
            for index in self.span(cursor):
                self._mark(self.rows_model.row(index))
            self._anchor = None
            return
        row = self.rows_model.row(cursor)
        self._anchor = None if row is None else self.rows_model.key(row)

    def mark_all(self) -> None:
        """Mark all rows that are held."""
        self._anchor = None
        for _, row in self.rows_model.held():
            self._mark(row)

    def clear(self) -> None:
        """Take away the range if one is being drawn, else all marks."""
        if self.ranging:
            self._anchor = None
        else:
            self.marks.clear()

    def drop(self, keys: set[str]) -> None:
        """Unmark rows that are gone."""
        self.marks = {key: row for key, row in self.marks.items() if key not in keys}
        if self._anchor in keys:
            self._anchor = None

    def _mark(self, row: R | None) -> None:
        if row is not None:
            self.marks[self.rows_model.key(row)] = row
