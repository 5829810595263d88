"""Dialogs about the columns of a list: which are shown, and by which one the rows are sorted."""

from typing import Any

from textual.screen import Screen

from memtui.screens.dialogs import Choice, Choose
from memtui.widgets.virtual_list import SortAsked, VirtualList


def choose_columns(screen: Screen[Any], rows_list: VirtualList[Any]) -> None:
    """Offer to show or hide one column of a list; the last shown column cannot be hidden.

    A column left out for lack of room can be shown in place of others.
    """
    drawn = rows_list.shown_columns
    if not drawn:
        return

    def state(column: str) -> str:
        if column in drawn:
            return "● shown"
        return "○ hidden" if column in rows_list.hidden else "○ no room"

    choices = [
        Choice(column.key, column.title, state(column.key))
        for column in rows_list.columns
        if drawn != [column.key]
    ]

    def turn(key: str | None) -> None:
        if key is None:
            return
        if key in drawn:
            rows_list.hidden |= {key}
            rows_list.wanted -= {key}
        else:
            _show_column(rows_list, key)

    screen.app.push_screen(Choose("Columns: enter shows or hides one", choices), turn)


def choose_order(screen: Screen[Any], rows_list: VirtualList[Any]) -> None:
    """Offer to sort a list by any column, and show that column; preselect the next one."""
    columns, drawn = [one for one in rows_list.columns if one.title], rows_list.shown_columns
    now, descending = rows_list.sort or ("", True)
    if not columns:
        return

    def state(column: str) -> str:
        if column == now:
            return "↓ now" if descending else "↑ now"
        return "" if column in drawn else "○ not shown"

    def order(key: str | None) -> None:
        if key is None:
            return
        if key not in drawn:
            _show_column(rows_list, key)
        rows_list.post_message(SortAsked(rows_list, key))

    choices = [Choice(one.key, one.title, state(one.key)) for one in columns]
    keys = [one.key for one in columns]
    following = keys[(keys.index(now) + 1) % len(keys)] if now in keys else None
    screen.app.push_screen(Choose("Sort by which column?", choices, now=following), order)


def _show_column(rows_list: VirtualList[Any], key: str) -> None:
    """Show a column, in place of others if there is no room."""
    rows_list.hidden -= {key}
    rows_list.wanted |= {key}
