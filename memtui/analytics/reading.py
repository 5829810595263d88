"""Read a company's whole log, however much of it is sealed: open a view, take windows of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from memtui.analytics.conditions import condition, order
from memtui.analytics.engine import MEMORY_MB, Engine, guarded, quoted
from memtui.analytics.rows import Rows
from memtui.analytics.source import stored_text
from memtui.contract import Filter, Unavailable
from memtui.store import log
from memtui.store.database import Database
from memtui.store.operation import Operation

if TYPE_CHECKING:
    import duckdb

TAIL = 1000
"""The most operations that one `tail` returns."""

_MATCHES = 2


class Interrupted(Unavailable):
    """A newer question took the place of this one."""


class View(Protocol):
    """The operations that a filter let through when it was opened, in the order asked for."""

    count: int
    """How many there are."""

    def window(self, start: int, n: int) -> tuple[Operation, ...]:
        """Return up to `n` of them from position `start` on, counted from 0. Blocking."""

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
        self._running: set[duckdb.DuckDBPyConnection] = set()

    def open(self, chosen: Filter | None = None, sort: str = "-seq") -> View:
        """Open a view. Without a filter and in the log's own order nothing is computed.

        Args:
            chosen: What to let through; None is everything.
            sort: A name of `memtui.analytics.conditions.SORTS`, `-` in front for descending.

        Raises:
            Invalid: operations cannot be sorted so.
            Interrupted: `interrupt` was called meanwhile.
            Unavailable: the log cannot be read.
        """
        where, by = condition(chosen or Filter()), order(sort)
        if not where and sort in {"seq", "-seq"}:
            _, ends = self._rows.place()
            return _WholeView(self, ends.head, newest_first=sort == "-seq")
        manifest, last = self._rows.refresh()
        cursor = self._engine.cursor()
        matching = self._rows.everything(manifest, "operations", "*", where)
        with self.asking(cursor):
            # The position of a row is its rowid.
            cursor.execute(
                f"CREATE TEMP TABLE view AS SELECT seq FROM ({matching}) "
                f"WHERE seq <= {last} ORDER BY {by}"
            )
            row = cursor.execute("SELECT count(*) FROM view").fetchone()
        return _MaterialisedView(self, cursor, where, row[0] if row else 0)

    def by_id(self, operation_id: str) -> list[Operation]:
        """Return the operation with this id, else this `seq`, else up to two whose id starts so."""
        if not operation_id:
            return []
        with self._database.read() as connection:
            found = log.by_id(connection, self._rows.company_id, operation_id)
        manifest, _ = self._rows.place()
        if (found and found[0].operation_id == operation_id) or not manifest.segments:
            return found
        with self.cursor() as cursor:
            literal = quoted(stored_text(operation_id))
            sealed = self._rows.sealed(manifest.segments, "operations")
            rows = cursor.execute(
                f"SELECT seq, operation_id = {literal} FROM {sealed} "
                f"WHERE starts_with(operation_id, {literal}) ORDER BY 2 DESC LIMIT {_MATCHES}"
            ).fetchall()
            if rows and rows[0][1]:
                rows, found = rows[:1], []
            elif operation_id.isdecimal() and int(operation_id) <= manifest.sealed_through:
                rows, found = [(int(operation_id), True)], []
            elif found and operation_id == str(found[0].seq):
                return found
            more = self._rows.sealed_operations(cursor, manifest, [seq for seq, _ in rows])
        fresh = {operation.seq: operation for operation in found} | more
        return list(fresh.values())[:_MATCHES]

    def undos_of(self, operation_id: str) -> list[Operation]:
        """Return the operations that took this one back, newest first, sealed ones included."""
        manifest, _ = self._rows.refresh()
        where = f"undoes = {quoted(stored_text(operation_id))}"
        with self.cursor() as cursor:
            rows = self._rows.everything(manifest, "operations", "seq", where)
            seqs = [seq for (seq,) in cursor.execute(f"{rows} ORDER BY seq DESC").fetchall()]
            return self.fetch(cursor, seqs)

    def interrupt(self) -> None:
        """Stop every question that runs; each of them raises `Interrupted`."""
        for cursor in tuple(self._running):
            cursor.interrupt()

    def close(self) -> None:
        """Free the memory."""
        self._engine.close()

    @contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor whose questions can be interrupted."""
        cursor = self._engine.cursor()
        try:
            with self.asking(cursor):
                yield cursor
        finally:
            cursor.close()

    @contextmanager
    def asking(self, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Let `interrupt` reach what the cursor does in the block."""
        import duckdb

        self._running.add(cursor)
        try:
            with guarded():
                yield
        except Unavailable as error:
            if isinstance(error.__cause__, duckdb.InterruptException):
                raise Interrupted("A newer question took the place of this one.") from error
            raise
        finally:
            self._running.discard(cursor)

    def fetch(self, cursor: duckdb.DuckDBPyConnection, seqs: Sequence[int]) -> list[Operation]:
        """Return the operations with these numbers, in this order, after a refresh."""
        manifest, _ = self._rows.place()
        sealed = [seq for seq in seqs if seq <= manifest.sealed_through]
        copied = [seq for seq in seqs if seq > manifest.sealed_through]
        found = self._rows.sealed_operations(cursor, manifest, sealed)
        found |= self._rows.copied_operations(cursor, copied)
        return [found[seq] for seq in seqs]

    def span(self, first: int, last: int) -> list[Operation]:
        """Return the operations from one number to another, ends included, oldest first."""
        found: dict[int, Operation] = {}
        while len(found) <= last - first:
            manifest, _ = self._rows.place()
            hot_first = max(first, manifest.sealed_through + 1)
            if hot_first <= last:
                found |= {operation.seq: operation for operation in self._hot(hot_first, last)}
            missing = [seq for seq in range(first, last + 1) if seq not in found]
            sealed = [seq for seq in missing if seq <= manifest.sealed_through]
            if sealed:
                with self.cursor() as cursor:
                    found |= self._rows.sealed_operations(cursor, manifest, sealed)
        return [found[seq] for seq in range(first, last + 1)]

    def _hot(self, first: int, last: int) -> tuple[Operation, ...]:
        with self._database.read() as connection:
            return log.page(
                connection,
                self._rows.company_id,
                Filter(),
                limit=last - first + 1,
                before=last + 1,
            ).operations

    def newer(self, where: str, after: int) -> tuple[Operation, ...]:
        """Return what is above `after` and lets itself be found by a condition, oldest first."""
        if not where:
            _, ends = self._rows.place()
            return tuple(self.span(after + 1, min(ends.head, after + TAIL)))
        manifest, _ = self._rows.refresh()
        rows = self._rows.everything(manifest, "operations", "seq", f"seq > {after} AND {where}")
        with self.cursor() as cursor:
            found = cursor.execute(f"{rows} ORDER BY seq LIMIT {TAIL}").fetchall()
            return tuple(self.fetch(cursor, [seq for (seq,) in found]))


class _WholeView:
    """The whole log in its own order: a position is a `seq`."""

    def __init__(self, operations: OperationLog, head: int, *, newest_first: bool) -> None:
        self.count = head
        self._operations = operations
        self._newest_first = newest_first

    def window(self, start: int, n: int) -> tuple[Operation, ...]:
        end = min(start + n, self.count)
        if start >= end:
            return ()
        if self._newest_first:
            return tuple(self._operations.span(self.count - end + 1, self.count - start)[::-1])
        return tuple(self._operations.span(start + 1, end))

    def tail(self, after: int) -> tuple[Operation, ...]:
        return self._operations.newer("", after)

    def close(self) -> None:
        return


class _MaterialisedView:
    """The numbers of the operations that a filter let through, in order, in a private table."""

    def __init__(
        self,
        operations: OperationLog,
        cursor: duckdb.DuckDBPyConnection,
        where: str,
        count: int,
    ) -> None:
        self.count = count
        self._operations = operations
        self._cursor = cursor
        self._where = where
        self._lock = threading.Lock()

    def window(self, start: int, n: int) -> tuple[Operation, ...]:
        with self._lock, self._operations.asking(self._cursor):
            rows = self._cursor.execute(
                f"SELECT seq FROM view WHERE rowid BETWEEN {start} AND {start + n - 1} "
                "ORDER BY rowid"
            ).fetchall()
            return tuple(self._operations.fetch(self._cursor, [seq for (seq,) in rows]))

    def tail(self, after: int) -> tuple[Operation, ...]:
        return self._operations.newer(self._where or "true", after)

    def close(self) -> None:
        self._cursor.close()
