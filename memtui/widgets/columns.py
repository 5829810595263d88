"""The columns of a list and how they share the width; pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from rich.cells import cell_len, set_cell_size

from memtui.visible import visible

R = TypeVar("R")

GUTTER = 3
"""Cells before the first column: the cursor's bar, the mark and a blank."""
GAP = 2


Tone = Literal["", "muted", "success", "warning", "error", "accent"]


class Cell(NamedTuple):
    """What stands in one place: foreign text, and the tone it is coloured in."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """One column. A flexible one is at least its width and takes what the others leave over.

    `cell` returns what stands there for a row: any value in the column's tone, a `Cell` in a tone
    of its own, or None for a dim dash.
    """

    key: str
    title: str
    cell: Callable[[R], object]
    width: int
    align: Literal["left", "right"] = "left"
    flexible: bool = False
    keep: int = 0
    """Where the width is short, columns with the lowest number go first."""
    share: float = 0.0
    """The part of the list, 0 to 1, that it gets before others are shown beside it."""
    tone: Tone = ""
    order: Callable[[R], Any] | None = None
    """What rows are ordered by under it, where that is not what it shows."""

    def rank(self, row: R) -> Any:
        """Return where a row stands in the order of this column."""
        return self.of(row).text if self.order is None else self.order(row)

    def of(self, row: R) -> Cell:
        """Return what is drawn for a row."""
        found = self.cell(row)
        if isinstance(found, Cell):
            return found
        return Cell("–", "muted") if found is None else Cell(str(found), self.tone)


def share_width(
    columns: Sequence[Column[R]],
    width: int,
    *,
    hidden: Collection[str] = (),
    wider: Mapping[str, int] | None = None,
) -> list[tuple[Column[R], int]]:
    """Return the columns that fit into `width` cells, and how wide each is.

    `wider` is what a person added to a column's width, or took off it.
    """
    extra = dict(wider or {})
    for column in columns:
        if column.share:
            least = int(-(-width * column.share // 1))
            extra[column.key] = max(extra.get(column.key, 0), least - column.width)
    shown = [column for column in columns if column.key not in hidden]
    room = width - GUTTER
    while len(shown) > 1 and _needed(shown, extra) > room:
        shown.remove(min(shown, key=lambda column: column.keep))
    rest = room - _needed(shown, extra)
    widths = [_width(column, extra) for column in shown]
    flexible = [index for index, column in enumerate(shown) if column.flexible]
    if flexible and rest > 0:
        each, left = divmod(rest, len(flexible))
        for place, index in enumerate(flexible):
            widths[index] += each + (left if place == len(flexible) - 1 else 0)
    if len(shown) == 1:
        widths = [max(1, min(widths[0], room))]
    return list(zip(shown, widths, strict=True))


def _needed(columns: Sequence[Column[R]], extra: Mapping[str, int]) -> int:
    return sum(_width(column, extra) for column in columns) + GAP * (len(columns) - 1)


def _width(column: Column[R], extra: Mapping[str, int]) -> int:
    return max(2, column.width + extra.get(column.key, 0))


def fit_cell(text: str, width: int, align: Literal["left", "right"] = "left") -> str:
    """Return `text` made visible and cut or padded to exactly `width` terminal cells."""
    if width <= 0:
        return ""
    shown = visible(text, limit=width * 4 + 16)
    length = cell_len(shown)
    if length > width:
        return set_cell_size(set_cell_size(shown, width - 1).rstrip() + "…", width)
    if align == "right":
        return " " * (width - length) + shown
    return shown + " " * (width - length)
