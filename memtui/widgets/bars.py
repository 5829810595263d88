"""Bars that show a count against a budget; pure."""

from __future__ import annotations

from textual.content import Content

from memtui.widgets.display import BAD, DIM, OK, WARN
from memtui.widgets.format import count

FULL, EMPTY, OVER = "▓", "░", "▲"
_NEARLY = 0.9


def bar(value: float, limit: float, cells: int) -> str:
    """Return a bar of `cells` cells; anything above nothing fills one, over the limit fills all."""
    if cells <= 0:
        return ""
    part = value / limit if limit > 0 else float(value > 0)
    filled = min(cells, max(round(part * cells), int(value > 0)))
    return FULL * filled + EMPTY * (cells - filled)


def budget_bar(value: int, limit: int, cells: int, *, numbers: int = 0) -> Content:
    """Return a bar and `212 / 250` behind it, with ▲ where it is over its budget.

    `numbers` is how many cells the value takes at least, so that bars stand under each other.
    """
    style = BAD if value > limit else WARN if value > _NEARLY * limit else OK
    drawn = bar(value, limit, cells)
    filled = drawn.count(FULL)
    words = f"{count(value):>{numbers}} / {count(limit)}"
    over = Content.styled(f" {OVER}", BAD) if value > limit else Content("  ")
    return (
        Content.styled(drawn[:filled], style)
        + Content.styled(drawn[filled:], DIM)
        + Content(f" {words}")
        + over
    )


def numbers_width(values: list[int]) -> int:
    """Return the cells that the widest of some counts takes."""
    return max((len(count(value)) for value in values), default=1)
