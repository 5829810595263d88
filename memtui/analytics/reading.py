"""Read a company's whole log, however much of it is sealed: open a view, take windows of it.

Hot rows are read and filtered in the database, sealed ones by DuckDB, which starts only when it is
needed: where something is sealed, or for an order that is not the log's own.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from memtui.analytics.conditions import condition, ordering
from memtui.analytics.engine import MEMORY_MB, Engine, guarded, quoted
from memtui.analytics.layout import Manifest, Segment
from memtui.analytics.rows import Rows
from memtui.contract import Filter, Unavailable
from memtui.store import log
from memtui.store.database import Database
from memtui.store.operation import Operation

if TYPE_CHECKING:
    import duckdb

TAIL = 1000
"""The most operations that one `tail` returns."""

_MATCHES = 2
_ALL = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOT_ROWS = 50_000
"""Hot rows that are filtered at a time; between two times an opening can be stopped."""


class Interrupted(Unavailable):
    """A newer question took the place of this one."""

    def __init__(self) -> None:
        super().__init__("A newer question took the place of this one.")


class Stop:
    """Stops an opening from another thread, which then raises `Interrupted`."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._cursor: duckdb.DuckDBPyConnection | None = None

    def stop(self) -> None:
        """Stop it now, or as soon as it begins."""
        self._stopped.set()
        if self._cursor is not None:
            self._cursor.interrupt()

    def check(self) -> None:
        """Raise `Interrupted` if it was stopped."""
        if self._stopped.is_set():
            raise Interrupted

    @contextmanager
    def reaching(self, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Let `stop` reach what the cursor does in the block."""
        import duckdb

        self._cursor = cursor
        self.check()
        try:
            with guarded():
                yield
        except Unavailable as error:
            if isinstance(error.__cause__, duckdb.InterruptException):
                raise Interrupted from error
            raise
        finally:
            self._cursor = None
        self.check()


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


class OperationLog:
    """One company's operations, hot and sealed. Blocking; close it when done."""

    def __init__(
        self, database: Database, root: Path, company_id: str, *, memory_mb: int = MEMORY_MB
    ) -> None:
        self._database = database
        self._engine = Engine(memory_mb=memory_mb)
        self._rows = Rows(database, root, company_id, self._engine)

    def open(
        self, chosen: Filter | None = None, sort: str = "-seq", *, stop: Stop | None = None
    ) -> View:
        """Open a view. Without a filter and in the log's own order nothing is computed.

        Args:
            chosen: What to let through; None is everything.
            sort: A name of `memtui.analytics.conditions.SORTS`, `-` in front for descending.
            stop: Stops the opening.

        Raises:
            Invalid: operations cannot be sorted so.
            Interrupted: it was stopped.
            Unavailable: the log cannot be read.
        """
        chosen, stop = chosen or Filter(), stop or Stop()
        if sort not in {"seq", "-seq"}:
            return self._sorted(chosen, sort, stop)
        _, ends = self._rows.place()
        view = (
            self._filtered(chosen, ends.head, stop)
            if condition(chosen)
            else _WholeView(self, ends.head)
        )
        return view if sort == "seq" else _Reversed(view)

    def _filtered(self, chosen: Filter, last: int, stop: Stop) -> View:
        manifest, hot = self._hot(chosen, 0, last, stop)
        if not manifest.segments:
            return _NumberedView(self, chosen, hot, last)
        sealed = self._rows.sealed(manifest.segments, "operations")
        numbers = f"SELECT seq FROM {sealed} WHERE {condition(chosen)} ORDER BY seq"
        table = self._table(stop, f"CREATE TEMP TABLE view AS {numbers}")
        return _NumberedView(self, chosen, hot, last, table)

    def _hot(
        self, chosen: Filter, after: int, last: int, stop: Stop, most: int = _ALL
    ) -> tuple[Manifest, array[int]]:
        """Return what is sealed, and the hot numbers that match; it ends soon after `most`."""
        manifest, _ = self._rows.place()
        while True:
            found: array[int] = array("q")
            for first in range(max(after, manifest.sealed_through) + 1, last + 1, _HOT_ROWS):
                stop.check()
                if len(found) >= most:
                    break
                end = min(first + _HOT_ROWS - 1, last)
                with self._database.read() as connection:
                    company_id = self._rows.company_id
                    found.extend(log.seqs(connection, company_id, chosen, first, end))
            # What was sealed meanwhile may have gone before it was read.
            before, (manifest, _) = manifest, self._rows.place()
            if manifest.sealed_through == before.sealed_through:
                return manifest, found

    def _sorted(self, chosen: Filter, sort: str, stop: Stop) -> View:
        key, by = ordering(sort)
        stop.check()
        manifest, last = self._rows.refresh()
        matching = self._rows.everything(manifest, "operations", f"seq, {key}", condition(chosen))
        table = self._table(
            stop,
            # Sorted as they come from both, ten million of them do not fit into the memory.
            f"CREATE TEMP TABLE keys AS SELECT * FROM ({matching}) WHERE seq <= {last}",
            f"CREATE TEMP TABLE view AS SELECT seq FROM keys ORDER BY {by}",
            "DROP TABLE keys",
        )
        return _NumberedView(self, chosen, array("q"), last, table)

    def _table(self, stop: Stop, *statements: str) -> _Numbers:
        """Carry out statements that make the table `view`, in which a position is a rowid."""
        cursor = self._engine.cursor()
        try:
            for statement in statements:
                with stop.reaching(cursor):
                    cursor.execute(statement)
            return _Numbers(cursor)
        except BaseException:
            cursor.close()
            raise

    def close(self) -> None:
        """Free the memory."""
        self._engine.close()

    @contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor for the block."""
        cursor = self._engine.cursor()
        try:
            with guarded():
                yield cursor
        finally:
            cursor.close()

    def operations(self, seqs: Sequence[int]) -> tuple[Operation, ...]:
        """Return the operations with these numbers, in this order."""
        found: dict[int, Operation] = {}
        missing: Sequence[int] = seqs
        while missing:
            manifest, _ = self._rows.place()
            sealed = [seq for seq in missing if seq <= manifest.sealed_through]
            with self._database.read() as connection:
                hot = [seq for seq in missing if seq > manifest.sealed_through]
                for operation in log.by_seqs(connection, self._rows.company_id, hot):
                    found[operation.seq] = operation
            if sealed:
                with self.cursor() as cursor:
                    found |= self._rows.sealed_operations(cursor, manifest, sealed)
            # What was sealed between the two reads is read again, from where it is now.
            missing = [seq for seq in seqs if seq not in found]
        return tuple(found[seq] for seq in seqs)

    def last_begun(self, chosen: Filter, by: datetime, last: int) -> int | None:
        """Return the number of the last operation to begin by a moment, of those that match."""
        with self._database.read() as connection:
            hot = log.last_begun(connection, self._rows.company_id, chosen, by, last)
        manifest, _ = self._rows.place()
        matching = condition(chosen)
        segments = _begun(manifest.segments, by, all_of_them=bool(matching))
        if segments and (hot is None or hot[0] <= max(one.started_to for one in segments)):
            where = f"started_at <= {quoted(by.isoformat())}::TIMESTAMPTZ AND seq <= {last}"
            where += f" AND {matching}" if matching else ""
            with self.cursor() as cursor:
                rows = cursor.execute(
                    "SELECT epoch_us(started_at), seq "
                    f"FROM {self._rows.sealed(segments, 'operations')} WHERE {where} "
                    "ORDER BY started_at DESC, seq DESC LIMIT 1"
                ).fetchall()
            for microseconds, seq in rows:
                begun = (_EPOCH + timedelta(microseconds=microseconds), seq)
                hot = max(hot or begun, begun)
        return None if hot is None else hot[1]

    def newer(self, chosen: Filter, after: int) -> tuple[Operation, ...]:
        """Return what matches above `after`, oldest first, up to `TAIL`."""
        _, ends = self._rows.place()
        manifest, hot = self._hot(chosen, after, ends.head, Stop(), TAIL)
        found: list[int] = []
        if after < manifest.sealed_through:
            sealed = self._rows.sealed(manifest.holding(after + 1, ends.head), "operations")
            where = f"seq > {after} AND {condition(chosen) or 'true'}"
            with self.cursor() as cursor:
                rows = cursor.execute(
                    f"SELECT seq FROM {sealed} WHERE {where} ORDER BY seq LIMIT {TAIL}"
                ).fetchall()
            found.extend(seq for (seq,) in rows)
        return self.operations([*found, *hot][:TAIL])


def _begun(segments: Sequence[Segment], by: datetime, *, all_of_them: bool) -> tuple[Segment, ...]:
    """Return the segments that began by a moment, or those that can hold the last to begin."""
    begun = tuple(one for one in segments if one.started_from <= by)
    if all_of_them or not begun:
        return begun
    latest = max(one.started_from for one in begun)
    return tuple(one for one in begun if one.started_to >= latest)


class _Numbers:
    """The numbers of operations in the order asked for, in a private table of DuckDB."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor
        self._lock = threading.Lock()
        self.count, self.least = self._ask("SELECT count(*), min(seq) FROM view")[0]

    def at(self, start: int, n: int) -> list[int]:
        """Return up to `n` numbers from a position on."""
        rows = self._ask(
            "SELECT seq FROM view WHERE rowid BETWEEN $1 AND $2 ORDER BY rowid",
            [start, start + n - 1],
        )
        return [seq for (seq,) in rows]

    def position(self, seq: int) -> int:
        """Return where a number that is there stands."""
        [(position,)] = self._ask("SELECT rowid FROM view WHERE seq = $1", [seq])
        return int(position)

    def close(self) -> None:
        """Free the table."""
        self._cursor.close()

    def _ask(self, question: str, values: Sequence[int] = ()) -> list[tuple[int, ...]]:
        with self._lock, guarded():
            return self._cursor.execute(question, values).fetchall()


class _WholeView:
    """The whole log, oldest first: a position is one less than a `seq`."""

    def __init__(self, operations: OperationLog, head: int) -> None:
        self.count = self.last = head
        self._operations = operations

    def window(self, start: int, n: int) -> tuple[Operation, ...]:
        return self._operations.operations(range(start + 1, min(start + n, self.count) + 1))

    def position(self, moment: datetime) -> int:
        seq = self._operations.last_begun(Filter(), moment, self.last)
        return 0 if seq is None else seq - 1

    def tail(self, after: int) -> tuple[Operation, ...]:
        return self._operations.newer(Filter(), after)

    def close(self) -> None:
        return


class _NumberedView:
    """The numbers of the operations that a filter let through: a table of them, then a list."""

    def __init__(
        self,
        operations: OperationLog,
        chosen: Filter,
        hot: array[int],
        last: int,
        table: _Numbers | None = None,
    ) -> None:
        self._operations = operations
        self._chosen = chosen
        self._table = table
        self._held = 0 if table is None else table.count
        self._hot = hot
        self.count = self._held + len(hot)
        self.last = last

    def window(self, start: int, n: int) -> tuple[Operation, ...]:
        seqs: list[int] = []
        if self._table is not None and start < self._held:
            seqs.extend(self._table.at(start, n))
        after = start - self._held
        seqs.extend(self._hot[max(0, after) : max(0, after + n)])
        return self._operations.operations(seqs)

    def position(self, moment: datetime) -> int:
        seq = self._operations.last_begun(self._chosen, moment, self.last)
        if seq is None:
            seq = self._least
        if seq is None:
            return 0
        if self._hot and seq >= self._hot[0]:
            return self._held + bisect_left(self._hot, seq)
        return 0 if self._table is None else self._table.position(seq)

    @property
    def _least(self) -> int | None:
        if self._table is not None and self._held:
            return self._table.least
        return self._hot[0] if self._hot else None

    def tail(self, after: int) -> tuple[Operation, ...]:
        return self._operations.newer(self._chosen, after)

    def close(self) -> None:
        if self._table is not None:
            self._table.close()


class _Reversed:
    """Another view from its end."""

    def __init__(self, view: View) -> None:
        self.count, self.last = view.count, view.last
        self._view = view

    def window(self, start: int, n: int) -> tuple[Operation, ...]:
        end = self.count - start
        first = max(0, end - n)
        return self._view.window(first, end - first)[::-1] if end > first else ()

    def position(self, moment: datetime) -> int:
        return max(0, self.count - 1 - self._view.position(moment))

    def tail(self, after: int) -> tuple[Operation, ...]:
        return self._view.tail(after)

    def close(self) -> None:
        self._view.close()
