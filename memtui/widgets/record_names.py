"""Names of records across all bindings, and the column of their reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple, TypeVar

from memtui.presenters import format as fmt
from memtui.service.answers import RetrievalCount
from memtui.widgets.columns import Cell, Column

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
