"""The columns of a list and how they share the width; pure functions."""

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
    """The content of a cell: foreign text and its tone."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """One column; `width` is what it gets before the columns share what is left over.

    The last flexible column takes the rest of the line.

    `cell` returns the content for a row: any value, shown in the column's tone; a `Cell` with its
    tone; or None for a dim dash.
    """

    key: str
    title: str
    cell: Callable[[R], object]
    width: int
    align: Literal["left", "right", "point"] = "left"
    """`point`: at the right, with the decimal points of the rows in view below each other."""
    flexible: bool = False
    keep: int = 0
    """Where the width is short, the column with the lowest number is left out first."""
    share: float = 0.0
    """The least part of the list's width, 0 to 1, while its content needs that much."""
    tone: Tone = ""
    whole: bool = False
    """Whether its content, up to twice `width`, is shown whole before columns of less `keep`."""
    order: Callable[[R], Any] | None = None
    """Returns the sort key of a row, where that is not the shown text."""

    def rank(self, row: R) -> Any:
        """Return the sort key of a row in this column."""
        return self.of(row).text if self.order is None else self.order(row)

    def of(self, row: R) -> Cell:
        """Return the cell to draw for a row."""
        found = self.cell(row)
        if isinstance(found, Cell):
            return found
        return Cell("–", "muted") if found is None else Cell(str(found), self.tone)


def share_width(
    columns: Sequence[Column[R]],
    width: int,
    *,
    hidden: Collection[str] = (),
    wanted: Collection[str] = (),
    wider: Mapping[str, int] | None = None,
    content: Mapping[str, int] | None = None,
) -> list[tuple[Column[R], int]]:
    """Return the columns that fit into `width` cells, each with its width.

    Args:
        columns: All columns, from the left.
        width: Cells of the list.
        hidden: Columns that are not shown.
        wanted: Columns that a person chose to see; they are left out last.
        wider: Cells that a person added to a column's width, or removed from it.
        content: The widest cell of each column among the rows in view. No column gets more before
            the others have what they need; the last flexible one gets the rest.
    """
    seen, extra = content or {}, wider or {}
    least = {
        one.key: max(2, _least(one, width, seen.get(one.key)) + extra.get(one.key, 0))
        for one in columns
    }
    shown = [column for column in columns if column.key not in hidden]

    def needed() -> int:
        return sum(least[column.key] for column in shown) + GAP * (len(shown) - 1)

    def worth(column: Column[R]) -> tuple[bool, int]:
        return column.key in wanted, column.keep

    room = width - GUTTER
    while len(shown) > 1 and needed() > room:
        shown.remove(min(shown, key=worth))
    rest = room - needed()
    widths = dict(least)
    if len(shown) == 1:
        widths[shown[0].key] = max(1, min(needed(), room))
    lacks = {
        column.key: min(seen[column.key], width if column.flexible else 2 * column.width)
        - least[column.key]
        for column in shown
        if column.key in seen and not extra.get(column.key)
    }
    for place, (key, cells) in enumerate(sorted(lacks.items(), key=lambda one: one[1])):
        given = max(0, min(cells, rest // (len(lacks) - place)))
        widths[key] += given
        rest -= given
    if flexible := [column for column in shown if column.flexible]:
        widths[flexible[-1].key] += max(0, rest)
    return [(column, widths[column.key]) for column in shown]


def _least(column: Column[R], width: int, content: int | None) -> int:
    # One cell is for the arrow that shows the order.
    wanted = max(column.width, len(column.title) + 1, int(-(-width * column.share // 1)))
    return wanted if content is None else min(2 * wanted if column.whole else wanted, content)


def cells_of(text: str, limit: int) -> int:
    """Return the width in cells of a text as it is shown, at most `limit`."""
    if len(text) < limit and text.isascii() and text.isprintable():
        return len(text)
    return min(limit, cell_len(visible(text, limit=limit)))


def after_point(text: str) -> int:
    """Return the cells of a number from its decimal point on."""
    return len(text) - text.index(".") if "." in text else 0


def fit_cell(text: str, width: int, align: Literal["left", "right", "point"] = "left") -> str:
    """Return `text` made visible and cut or padded to exactly `width` terminal cells."""
    if width <= 0:
        return ""
    if len(text) <= width and text.isascii() and text.isprintable():
        return text.ljust(width) if align == "left" else text.rjust(width)
    shown = visible(text, limit=width * 4 + 16)
    length = cell_len(shown)
    if length > width:
        return set_cell_size(set_cell_size(shown, width - 1).rstrip() + "…", width)
    gap = " " * (width - length)
    return shown + gap if align == "left" else gap + shown


def by_cell(principal: str, agent_id: str | None) -> Cell:
    """Return who acted, for a column beside the agent's: `itself` where it was the agent."""
    if agent_id is not None and principal == f"agent:{agent_id}":
        return Cell("itself", "muted")
    return Cell(principal, "muted" if principal.startswith("user:") else "")
