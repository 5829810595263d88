"""Aligned columns for people, as wide as the terminal where there is one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from memtui.doors.cli.output import Dim, Line

_GAP = "  "
_CELL_LIMIT = 200


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, and whether its cells are numbers or take the room that is left."""

    title: str
    right: bool = False
    stretch: bool = False


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Iterator[Line]:
    """Yield the title line and one line a row, made safe to show.

    Without a terminal no cell is cut to a width, and every cell ends at 200 characters.
    """
    from memtui.visible import visible

    shown = [[visible(cell, limit=_CELL_LIMIT) for cell in row] for row in rows]
    titles = [column.title for column in columns]
    widths = [max(map(_width, cells)) for cells in zip(titles, *shown, strict=True)]
    _fit(columns, widths)
    yield Dim(_join(columns, titles, widths))
    for row in shown:
        yield _join(columns, row, widths)


def facts(pairs: Iterable[tuple[str, str]]) -> Iterator[Line]:
    """Yield `name  value` lines with the values aligned; empty values are left out."""
    kept = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    for name, value in kept:
        yield f"{name:<{width}}{_GAP}{value}"


def _fit(columns: Sequence[Column], widths: list[int]) -> None:
    """Cut the stretching column so that a line fits the terminal."""
    if not sys.stdout.isatty():
        return
    room = shutil.get_terminal_size().columns - len(_GAP) * (len(columns) - 1)
    for place, column in enumerate(columns):
        if column.stretch:
            others = sum(widths) - widths[place]
            widths[place] = max(20, min(widths[place], room - others))


def _join(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> str:
    from rich.cells import cell_len, set_cell_size

    parts = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        size = cell_len(cell)
        if size > width:
            parts.append(set_cell_size(cell, width - 1) + "…")
        else:
            pad = " " * (width - size)
            parts.append(pad + cell if column.right else cell + pad)
    return _GAP.join(parts).rstrip()


def _width(cell: str) -> int:
    from rich.cells import cell_len

    return cell_len(cell)
