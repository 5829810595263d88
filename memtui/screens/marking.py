"""Marking rows, on every screen that has a list of them."""

from __future__ import annotations

from typing import Any

from memtui.widgets.virtual_list import VirtualList


class Marking:
    """Gives a screen the actions that mark rows of its `_list`; the last of its base classes."""

    @property
    def _list(self) -> VirtualList[Any]:
        raise NotImplementedError

    def action_mark(self) -> None:
        """Mark or unmark the row, or the range."""
        self._list.action_mark()

    def action_range(self) -> None:
        """Begin a range, or mark it."""
        self._list.action_range()

    def action_mark_all(self) -> None:
        """Mark all rows that are loaded."""
        self._list.action_mark_all()
