"""Names of records across all bindings, and the column of their reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from memtui.contract import RISKS, severity_of
from memtui.presenters import format as fmt
from memtui.presenters.risks import SIGNS, sign
from memtui.service.answers import RetrievalCount
from memtui.widgets.columns import Cell, Column, Tone

if TYPE_CHECKING:
    from memtui.service.review.known_risks import RiskMark

R = TypeVar("R")


class RecordName(NamedTuple):
    """Identifies a record across all bindings."""

    binding_key: str
    record_id: str


def read_column(
    name_of: Callable[[R], RecordName],
    stats: Mapping[RecordName, RetrievalCount],
    now: Callable[[], datetime],
) -> Column[R]:
    """Return the column of how often each record was read; `name_of` identifies a row's record."""

    def read(row: R) -> Cell:
        if (found := stats.get(name_of(row))) is None:
            return Cell("never", "muted")
        return Cell(fmt.reads(found.count, found.last_at, now()))

    def times(row: R) -> int:
        return found.count if (found := stats.get(name_of(row))) else 0

    return Column("read", "read", read, 10, keep=80, order=times)


def risky_cell(
    text: str, names: Iterable[RecordName], marks: Mapping[RecordName, RiskMark]
) -> Cell:
    """Return a text, after the mark of the worst risk of its records that nobody dismissed."""
    known = filter(None, map(marks.get, names))
    worst = severity_of(reason for one in known for reason in one.reasons)
    return Cell(f"{SIGNS[worst]} {text}", _tone(worst)) if worst else Cell(text)


def risk_column(
    name_of: Callable[[R], RecordName], marks: Mapping[RecordName, RiskMark]
) -> Column[R]:
    """Return the column of a record's worst risk that nobody dismissed; `?` is not checked.

    One that is held for review has that mark instead, and comes first.
    """

    def risk(row: R) -> Cell:
        found = marks.get(name_of(row))
        if found and found.held:
            return Cell(sign(found), "warning")
        return Cell(sign(found), _tone(found.severity)) if found else Cell("")

    def badness(row: R) -> int:
        found = marks.get(name_of(row))
        if found and found.held:
            return len(RISKS) + 1
        return len(RISKS) - RISKS.index(found.reasons[0]) if found and found.reasons else 0

    return Column("risk", "!", risk, 1, keep=92, order=badness)


def _tone(severity: str | None) -> Tone:
    if severity is None:
        return "muted"
    return "error" if severity == "dangerous" else "warning"
