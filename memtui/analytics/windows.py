"""Views of the log: which operation stands at which position, and windows of them."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from memtui.analytics.engine import guarded
from memtui.contract import Filter
from memtui.store.operation import Operation

if TYPE_CHECKING:
    import duckdb


class View(Protocol):
    """The operations that a filter let through when it was opened, in the order asked for."""

    count: int
    """How many there are."""
    last: int
    """The log's newest `seq` when the view was opened; `tail(last)` is what came since."""

    def window(self, start: int, n: int) -> tuple[Operation, ...]:
        """Return up to `n` of them from position `start` on, counted from 0. Blocking."""

    def position(self, moment: datetime) -> int:
        """Return where the one stands that was the last to begin by a moment. Blocking.

        Where all of them began later it is the place of the log's oldest.
        """

    def tail(self, after: int) -> tuple[Operation, ...]:
        """Return what was appended above `seq` `after`, oldest first, up to `TAIL`. Blocking."""

    def close(self) -> None:
        """Let go of what the view holds."""


class Log(Protocol):
    """What a view asks of the log it is of (`memtui.analytics.reading.OperationLog`)."""

    def operations(self, seqs: Sequence[int]) -> tuple[Operation, ...]:
        """Return the operations with these numbers, in this order."""

    def last_begun(self, chosen: Filter, by: datetime, last: int) -> int | None:
        """Return the number of the last operation to begin by a moment, of those that match."""

    def newer(self, chosen: Filter, after: int) -> tuple[Operation, ...]:
        """Return what matches above `after`, oldest first."""


class Numbers:
    """The numbers of operations in order, in the private table `view` of a DuckDB cursor.

    A position is a rowid; with `turned`, it is counted from the table's end.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection, *, turned: bool = False) -> None:
        self._cursor = cursor
        self._turned = turned
        self._lock = threading.Lock()
        self.count, self.least = self._ask("SELECT count(*), min(seq) FROM view")[0]

    def at(self, start: int, n: int) -> list[int]:
        """Return up to `n` numbers from a position on."""
        end = min(start + n, self.count)
        low, high = (self.count - end, self.count - start) if self._turned else (start, end)
        rows = self._ask(
            "SELECT seq FROM view WHERE rowid >= $1 AND rowid < $2 ORDER BY rowid", [low, high]
        )
        found = [seq for (seq,) in rows]
        return found[::-1] if self._turned else found

    def position(self, seq: int) -> int:
        """Return where a number that is there stands."""
        [(row,)] = self._ask("SELECT rowid FROM view WHERE seq = $1", [seq])
        return self.count - 1 - row if self._turned else int(row)

    def close(self) -> None:
        """Free the table."""
        self._cursor.close()

    def _ask(self, question: str, values: Sequence[int] = ()) -> list[tuple[int, ...]]:
        with self._lock, guarded():
            return self._cursor.execute(question, values).fetchall()


class WholeView:
    """The whole log, oldest first: a position is one less than a `seq`."""

    def __init__(self, log: Log, head: int) -> None:
        self.count = self.last = head
        self._log = log

    def window(self, start: int, n: int) -> tuple[Operation, ...]:
        """See `View`."""
        return self._log.operations(range(start + 1, min(start + n, self.count) + 1))

    def position(self, moment: datetime) -> int:
        """See `View`."""
        seq = self._log.last_begun(Filter(), moment, self.last)
        return 0 if seq is None else seq - 1

    def tail(self, after: int) -> tuple[Operation, ...]:
        """See `View`."""
        return self._log.newer(Filter(), after)

    def close(self) -> None:
        """See `View`."""


class NumberedView:
    """The numbers of the operations that a filter let through: a table of them, then a list."""

    def __init__(
        self, log: Log, chosen: Filter, last: int, table: Numbers | None, recent: array[int]
    ) -> None:
        self._log = log
        self._chosen = chosen
        self._table = table
        self._held = 0 if table is None else table.count
        self._recent = recent
        self.count = self._held + len(recent)
        self.last = last

    def window(self, start: int, n: int) -> tuple[Operation, ...]:
        """See `View`."""
        seqs: list[int] = []
        if self._table is not None and start < self._held:
            seqs.extend(self._table.at(start, n))
        after = start - self._held
        seqs.extend(self._recent[max(0, after) : max(0, after + n)])
        return self._log.operations(seqs)

    def position(self, moment: datetime) -> int:
        """See `View`."""
        seq = self._log.last_begun(self._chosen, moment, self.last)
        if seq is None:
            seq = self._least
        if seq is None:
            return 0
        if self._recent and seq >= self._recent[0]:
            return self._held + bisect_left(self._recent, seq)
        return 0 if self._table is None else self._table.position(seq)

    @property
    def _least(self) -> int | None:
        if self._table is not None and self._held:
            return self._table.least
        return self._recent[0] if self._recent else None

    def tail(self, after: int) -> tuple[Operation, ...]:
        """See `View`."""
        return self._log.newer(self._chosen, after)

    def close(self) -> None:
        """See `View`."""
        if self._table is not None:
            self._table.close()


class Reversed:
    """Another view from its end."""

    def __init__(self, view: View) -> None:
        self.count, self.last = view.count, view.last
        self._view = view

    def window(self, start: int, n: int) -> tuple[Operation, ...]:
        """See `View`."""
        end = self.count - start
        first = max(0, end - n)
        return self._view.window(first, end - first)[::-1] if end > first else ()

    def position(self, moment: datetime) -> int:
        """See `View`."""
        return max(0, self.count - 1 - self._view.position(moment))

    def tail(self, after: int) -> tuple[Operation, ...]:
        """See `View`."""
        return self._view.tail(after)

    def close(self) -> None:
        """See `View`."""
        self._view.close()
