"""Read a company's whole log, however much of it is sealed: open views, find operations.

The newest hot operations are filtered in the database, older ones in a copy of them, and sealed
ones in their files. DuckDB starts only when it is needed: where something is sealed or much is
hot, or for an order that is not the log's own.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from memtui.analytics.conditions import condition, ordering
from memtui.analytics.engine import MEMORY_MB, Engine, guarded, quoted
from memtui.analytics.hot import HotCopy
from memtui.analytics.layout import Manifest, Segment
from memtui.analytics.rows import Rows
from memtui.analytics.stopping import Stop
from memtui.analytics.windows import NumberedView, Numbers, Reversed, View, WholeView
from memtui.contract import Filter
from memtui.store import log
from memtui.store.database import Database
from memtui.store.operation import Operation
from memtui.store.sight import Sight

if TYPE_CHECKING:
    import duckdb

TAIL = 1000
"""The most operations that one `tail` returns."""
EARLY = 60
"""The most operations that are told of before all are found: a screenful."""

_ALL = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RECENT = 10_000
"""The newest hot rows, which are filtered in the database and need not be in the copy."""


class OperationLog:
    """What may be seen of a company's operations, hot and sealed. Blocking; close it when done."""

    def __init__(
        self,
        database: Database,
        root: Path,
        company_id: str,
        *,
        sight: Sight | None = None,
        memory_mb: int = MEMORY_MB,
    ) -> None:
        self._database = database
        self._sight = sight
        self._engine = Engine(memory_mb=memory_mb)
        self._rows = Rows(database, root, company_id, self._engine, sight=sight)
        self._hot = HotCopy(database, company_id, self._engine, sight=sight)

    def open(
        self,
        chosen: Filter | None = None,
        sort: str = "-seq",
        *,
        stop: Stop | None = None,
        early: Callable[[tuple[Operation, ...]], None] | None = None,
    ) -> View:
        """Open a view. Without a filter and in the log's own order nothing is computed.

        Args:
            chosen: What to let through; None is everything.
            sort: A name of `memtui.analytics.conditions.SORTS`, `-` in front for descending.
            stop: Stops the opening.
            early: Called from this thread, in the log's own order only, while a filter still
                looks for older operations: with the newest that match, newest first, each time
                there are more of them, until there are `EARLY`.

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
            self._filtered(chosen, ends.head, stop, _Early(self, early))
            if self._sight is not None or condition(chosen)
            else WholeView(self, ends.head)
        )
        return view if sort == "seq" else Reversed(view)

    def _filtered(self, chosen: Filter, last: int, stop: Stop, early: _Early) -> View:
        where = condition(chosen) or "true"
        while True:
            manifest, _ = self._rows.place()
            sealed = manifest.sealed_through
            through = max(sealed, last - _RECENT, min(self._hot.through, last))
            recent = self._recent(chosen, through + 1, last, stop)
            if through:
                early.begin(recent)
            parts = []
            if through > sealed:
                self._hot.refresh(manifest, through, stop)
                parts.append(self._hot.query("seq", sealed, through, where))
            begun = self._hot.begun
            for segments in _newest_first(manifest.segments):
                files = self._rows.sealed(segments, "operations")
                parts.append(f"SELECT seq FROM {files} WHERE {where}")
            table = self._found(parts, stop, early) if parts else None
            if self._stood_still(manifest, begun):
                return NumberedView(self, chosen, last, table, recent)
            if table is not None:
                table.close()

    def _recent(
        self, chosen: Filter, first: int, last: int, stop: Stop, most: int = _ALL
    ) -> array[int]:
        """Return the numbers that match in the database, ends included; it ends after `most`."""
        found: array[int] = array("q")
        for start in range(first, last + 1, _RECENT):
            stop.check()
            if len(found) >= most:
                break
            end = min(start + _RECENT - 1, last)
            with self._database.read() as connection:
                found.extend(
                    log.seqs(
                        connection,
                        self._rows.company_id,
                        chosen,
                        start,
                        end,
                        sight=self._sight,
                    )
                )
        return found

    def _found(self, parts: Sequence[str], stop: Stop, early: _Early) -> Numbers:
        """Return what queries of the log's parts find, of which each is older than those before."""
        with self._numbering(stop) as cursor:
            cursor.execute("CREATE TEMP TABLE view (seq BIGINT)")
            for part in parts:
                early.look(cursor)
                with stop.reaching(cursor):
                    cursor.execute(f"INSERT INTO view {part} ORDER BY seq DESC")
            return Numbers(cursor, turned=True)

    def _sorted(self, chosen: Filter, sort: str, stop: Stop) -> View:
        key, by = ordering(sort)
        where, columns = condition(chosen), f"seq, {key}"
        while True:
            stop.check()
            manifest, ends = self._rows.place()
            sealed, last = manifest.sealed_through, ends.head
            parts = []
            if last > sealed:
                self._hot.refresh(manifest, last, stop)
                parts.append(self._hot.query(columns, sealed, last, where))
            begun = self._hot.begun
            if sealed:
                files = self._rows.sealed(manifest.segments, "operations")
                parts.append(f"SELECT {columns} FROM {files} WHERE {where or 'true'}")
            table = self._ordered(" UNION ALL ".join(parts), by, stop) if parts else None
            if self._stood_still(manifest, begun):
                return NumberedView(self, chosen, last, table, array("q"))
            if table is not None:
                table.close()

    def _ordered(self, matching: str, by: str, stop: Stop) -> Numbers:
        with self._numbering(stop) as cursor:
            for statement in (
                # Sorted as they come from both, ten million of them do not fit into the memory.
                f"CREATE TEMP TABLE keys AS {matching}",
                f"CREATE TEMP TABLE view AS SELECT seq FROM keys ORDER BY {by}",
                "DROP TABLE keys",
            ):
                with stop.reaching(cursor):
                    cursor.execute(statement)
            return Numbers(cursor)

    @contextmanager
    def _numbering(self, stop: Stop) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor for the table `view`, which the block hands on unless it fails."""
        stop.check()
        with guarded():
            cursor = self._engine.cursor()
            try:
                yield cursor
            except BaseException:
                cursor.close()
                raise

    def _stood_still(self, manifest: Manifest, begun: int) -> bool:
        """Whether nothing was sealed, or the copy begun anew, while it was read."""
        now, _ = self._rows.place()
        return now.sealed_through == manifest.sealed_through and self._hot.begun == begun

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
            hot = log.last_begun(
                connection, self._rows.company_id, chosen, by, last, sight=self._sight
            )
        manifest, _ = self._rows.place()
        matching = condition(chosen)
        narrowed = bool(matching) or self._sight is not None
        segments = _begun(manifest.segments, by, all_of_them=narrowed)
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
        while True:
            manifest, _ = self._rows.place()
            first = max(after, manifest.sealed_through) + 1
            hot = self._recent(chosen, first, ends.head, Stop(), TAIL)
            if self._stood_still(manifest, self._hot.begun):
                break
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


class _Early:
    """Tells of the newest operations that match while older ones are looked for."""

    def __init__(
        self, log: OperationLog, tell: Callable[[tuple[Operation, ...]], None] | None
    ) -> None:
        self._log = log
        self._tell = tell
        self._recent: list[int] = []
        self._told = 0

    def begin(self, recent: Sequence[int]) -> None:
        """Tell of the numbers that the database had; they are given oldest first."""
        self._recent = list(recent[-EARLY:])[::-1]
        self._look(self._recent)

    def look(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Tell of what is in the table `view` too, which is newest first, if there is more now."""
        missing = EARLY - len(self._recent)
        if self._tell is not None and missing > 0:
            rows = cursor.execute(
                "SELECT seq FROM view WHERE rowid < $1 ORDER BY rowid", [missing]
            ).fetchall()
            self._look([*self._recent, *(seq for (seq,) in rows)])

    def _look(self, found: Sequence[int]) -> None:
        if self._tell is not None and len(found) > self._told:
            self._told = len(found)
            self._tell(self._log.operations(found))


def _newest_first(segments: Sequence[Segment]) -> Iterator[tuple[Segment, ...]]:
    """Yield the newest segment, then twice as many each time."""
    end, many = len(segments), 1
    while end > 0:
        yield tuple(segments[max(0, end - many) : end])
        end, many = end - many, 2 * many


def _begun(segments: Sequence[Segment], by: datetime, *, all_of_them: bool) -> tuple[Segment, ...]:
    """Return the segments that began by a moment, or those that can hold the last to begin."""
    begun = tuple(one for one in segments if one.started_from <= by)
    if all_of_them or not begun:
        return begun
    latest = max(one.started_from for one in begun)
    return tuple(one for one in begun if one.started_to >= latest)
