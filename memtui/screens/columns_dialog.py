"""Choose which columns a list shows."""

from __future__ import annotations

from typing import Any

from memtui.screens.base import MemtuiScreen
from memtui.screens.dialogs.choose import Choice, Choose
from memtui.widgets.virtual_list import VirtualList


def choose_columns(screen: MemtuiScreen, rows_list: VirtualList[Any]) -> None:
    """Offer to hide or show one column; the last one that is shown stays."""
    hidden = rows_list.hidden
    shown = [column.key for column in rows_list.columns if column.key not in hidden]
    choices = [
        Choice(column.key, column.title, "show" if column.key in hidden else "hide")
        for column in rows_list.columns
        if column.key in hidden or len(shown) > 1
    ]

    def turn(key: str | None) -> None:
        if key is not None:
            rows_list.hidden = rows_list.hidden ^ {key}
            rows_list.refresh()

    screen.app.push_screen(Choose("Columns", choices), turn)
