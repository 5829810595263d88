"""The columns of the review, and of its diff."""

from __future__ import annotations

from collections.abc import Callable

from memtui.screens.prune.review import Line, Review, Sort
from memtui.widgets import format as fmt
from memtui.widgets.columns import Cell, Column


def review_columns(review: Callable[[], Review]) -> list[Column[Line]]:
    """Return the columns of the candidates, marked as in the review there is now."""
    return [
        Column("mark", "", lambda line: _mark(line, review()), 3, keep=100),
        Column("tokens", "tok", _tokens, 5, "right", keep=90),
        Column("text", "fact", lambda line: _text(line, review()), 24, flexible=True, keep=99,
               share=0.5),
        Column("why", "why", _why, 30, flexible=True, keep=50),
    ]  # fmt: skip


def diff_columns() -> list[Column[Line]]:
    """Return the columns of the diff."""
    return [
        Column("tokens", "tok", _tokens, 5, "right", keep=90),
        Column("diff", "what goes, and what stays", _diff, 24, flexible=True, keep=100, share=0.5),
        Column("why", "why", lambda line: Cell(line.sentence, "muted"), 30, flexible=True, keep=50),
    ]


def reason_words(line: Line, review: Review) -> str:
    """Return a reason with how many of its candidates are marked."""
    marked, of = review.chosen(line.reason)
    return f"{line.text}, {marked:,} of {of:,} marked"


def _mark(line: Line, review: Review) -> Cell:
    if line.sort is Sort.STAYS:
        return Cell(" · ", "muted")
    if review.is_marked(line):
        return Cell("[x]", "accent")
    if line.sort is Sort.REASON and review.chosen(line.reason)[0]:
        return Cell("[-]", "accent")
    return Cell("[ ]")


def _tokens(line: Line) -> Cell:
    return Cell(fmt.count(line.tokens), "muted" if line.sort is Sort.STAYS else "")


def _text(line: Line, review: Review) -> Cell:
    if line.sort is Sort.REASON:
        return Cell(reason_words(line, review), "accent")
    words = " ".join(line.text[:2_000].split())
    if line.sort is Sort.STAYS:
        return Cell(f"  stays: {words}", "muted")
    pin = "⚑ " if line.record is not None and line.record.pinned else ""
    return Cell(f"  {pin}{words}")


def _why(line: Line) -> Cell:
    return Cell(line.sentence if line.sort is Sort.GOES else "", "muted")


def _diff(line: Line) -> Cell:
    words = " ".join(line.text[:2_000].split())
    return Cell(f"- {words}", "error") if line.sort is Sort.GOES else Cell(f"  {words}", "muted")
