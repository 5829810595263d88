"""Names of records across all bindings, and the column of their reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from memtui.presenters import format as fmt
from memtui.presenters.risks import sign
from memtui.service.answers import RetrievalCount
from memtui.widgets.columns import Cell, Column

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
    """Return a text, after `!` where one of its records has a risk that nobody dismissed."""
    risky = any(found.reasons for name in names if (found := marks.get(name)))
    return Cell(f"! {text}", "warning") if risky else Cell(text)


def risk_column(
    name_of: Callable[[R], RecordName], marks: Mapping[RecordName, RiskMark]
) -> Column[R]:
    """Return the column of a record's risks: `!` one that nobody dismissed, `?` not checked."""

    def risk(row: R) -> Cell:
        found = marks.get(name_of(row))
        return Cell(sign(found) if found else "", "warning" if found and found.risks else "muted")

    def count(row: R) -> int:
        return len(found.reasons) if (found := marks.get(name_of(row))) else 0

    return Column("risk", "!", risk, 1, keep=92, order=count)
