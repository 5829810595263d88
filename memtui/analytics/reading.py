"""Reads a company's whole log, hot and sealed: opens views, finds operations.

The newest hot operations are filtered in the database, older hot ones in a copy in DuckDB, and
sealed ones in their files. DuckDB starts only when needed: if something is sealed, if much is hot,
or for an order other than the log's.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, overload

from memtui.analytics.engine import Stop, guarded
from memtui.analytics.layout import TABLES, Segment
from memtui.analytics.rows import LogEngine, among, fetch
from memtui.contract import EVERYTHING, Filter
from memtui.store.conditions import condition, ordering
from memtui.store.database import DatabaseConnection, quoted
from memtui.store.log import LogReader
from memtui.store.operation import INTERNAL, Operation

if TYPE_CHECKING:
    import duckdb

TAIL = 1000
"""The most operations that one `tail` returns."""
EARLY = 60
"""The most operations passed to `early` before all are found: a screenful."""

_ALL = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RECENT = 10_000
"""How many of the newest hot rows are filtered in the database, without the copy."""

Tell = Callable[[tuple[Operation, ...]], None]


class OperationLog(LogEngine):
    """A company's visible operations, hot and sealed. Blocking; close it when done."""

    _own_sealed: tuple[str, array[int]] = ("", array("q"))
    """Cache: the last digest of the sealed operations, and the numbers of memtui's own reads among
    them."""

    def open(
        self,
        chosen: Filter | None = None,
        sort: str = "-seq",
        *,
        stop: Stop | None = None,
        early: Tell | None = None,
    ) -> View:
        """Open a view. Without a filter and in the log's order nothing is computed.

        Args:
            chosen: The filter; None is everything.
            sort: A name of `memtui.store.conditions.SORTS`, `-` in front for descending.
            stop: Stops the opening.
            early: Called from this thread while a filter still looks for older operations, in the
                log's order only: with the newest matches, newest first, whenever there are more
                of them, up to `EARLY`.

        Raises:
            Invalid: there is no such sort.
            Interrupted: it was stopped.
            Unavailable: the log cannot be read.
        """
        chosen, stop = chosen or EVERYTHING, stop or Stop()
        if sort not in {"seq", "-seq"}:
            return self._sorted(chosen, sort, stop)
        last, turned = self.place()[1].head, sort == "-seq"
        if not self._narrows(chosen.with_internal()):
            internal = self._internal(last) if chosen.excludes_internal else array("q")
            rest = Without(last, internal)
            counts = len(internal), len(rest)
            return View(self, chosen, last, None, rest, turned=turned, counts=counts)
        return self._filtered(chosen, last, stop, _Early(self, early), turned=turned)

    def _narrows(self, chosen: Filter) -> bool:
        return bool(self.visible or condition(chosen))

    def _internal(self, last: int) -> array[int]:
        """Return the numbers up to `last` of memtui's own reads."""
        while True:
            manifest, _ = self.place()
            sealed = manifest.sealed_through
            with self._database.read() as connection:
                hot = self._reader(connection).internal_seqs(sealed + 1, last)
            # By digest, not by number: another log may have replaced this one.
            digest = manifest.segments[-1].last_digest if sealed else ""
            older = self._own_sealed
            if not digest:
                older = "", array("q")
            elif digest != older[0]:
                files = self.sealed(manifest.segments, "operations")
                with self.asking() as cursor:
                    rows = cursor.execute(f"SELECT seq FROM {files} WHERE {INTERNAL} ORDER BY seq")
                    older = digest, array("q", (seq for (seq,) in rows.fetchall()))
            if self.stood_still(manifest):
                self._own_sealed = older
                return array("q", (*older[1], *hot))

    def left_out(self, chosen: Filter, last: int) -> int:
        """Count the matches that are hidden as memtui's own reads, up to `last`."""
        if not chosen.excludes_internal:
            return 0
        while True:
            manifest, _ = self.place()
            with self._database.read() as connection:
                found = self._reader(connection, manifest.sealed_through).left_out(chosen, last)
            if manifest.segments:
                files = self.sealed(manifest.segments, "operations")
                parts = (INTERNAL, f"seq <= {last}", condition(chosen.with_internal()))
                where = " AND ".join(filter(None, parts))
                with self.asking() as cursor:
                    rows = cursor.execute(f"SELECT count(*) FROM {files} WHERE {where}").fetchall()
                found += rows[0][0]
            if self.stood_still(manifest):
                return found

    def logged(self, chosen: Filter, after: int, last: int) -> int:
        """Return how many operations are visible above `after`, up to `last`, whatever the filter.

        Of the filter only `excludes_internal` counts: it leaves memtui's own reads out.
        """
        every = Filter() if chosen.excludes_internal else EVERYTHING
        if not after and not self._narrows(EVERYTHING):
            return last - (len(self._internal(last)) if every.excludes_internal else 0)
        while True:
            manifest, _ = self.place()
            above = max(after, manifest.sealed_through)
            with self._database.read() as connection:
                found = self._reader(connection, above).count(every, last)
            if after < manifest.sealed_through:
                files = self.sealed(manifest.holding(after + 1, last), "operations")
                where = f"seq > {after} AND seq <= {last} AND {condition(every) or 'true'}"
                with self.asking() as cursor:
                    rows = cursor.execute(f"SELECT count(*) FROM {files} WHERE {where}").fetchall()
                found += rows[0][0]
            if self.stood_still(manifest):
                return found

    def _filtered(
        self, chosen: Filter, last: int, stop: Stop, early: _Early, *, turned: bool
    ) -> View:
        where = condition(chosen.with_internal()) or "true"
        columns = f"seq, {INTERNAL if chosen.excludes_internal else 'false'} AS internal"
        while True:
            manifest, _ = self.place()
            sealed = manifest.sealed_through
            through = max(sealed, last - _RECENT, min(self.through, last))
            recent = self._recent(chosen, through + 1, last, stop)
            if through:
                early.begin(recent)
            parts = []
            if through > sealed:
                self.copy(manifest, through, stop)
                parts.append(self.hot("operations", columns, where, sealed, through))
            begun = self.begun
            for segments in _newest_first(manifest.segments):
                files = self.sealed(segments, "operations")
                parts.append(f"SELECT {columns} FROM {files} WHERE {where}")
            table, internal = self._found(parts, stop, early) if parts else (None, 0)
            with self._database.read() as connection:
                internal += self._reader(connection, through).left_out(chosen, last)
            if self.stood_still(manifest) and self.begun == begun:
                counts = internal, self.logged(chosen, 0, last)
                return View(self, chosen, last, table, recent, turned=turned, counts=counts)
            if table is not None:
                table.close()

    def _recent(
        self, chosen: Filter, first: int, last: int, stop: Stop, most: int = _ALL
    ) -> array[int]:
        """Return the matching numbers in the database, ends included; stops once it has `most`."""
        found: array[int] = array("q")
        for start in range(first, last + 1, _RECENT):
            stop.check()
            if len(found) >= most:
                break
            end = min(start + _RECENT - 1, last)
            with self._database.read() as connection:
                found.extend(self._reader(connection).seqs(chosen, start, end))
        return found

    def _found(self, parts: Sequence[str], stop: Stop, early: _Early) -> tuple[_Numbers, int]:
        """Return the numbers that the parts' queries find, and the count of memtui's own matches.

        Parts are ordered from the newest to the oldest.
        """
        internal = 0
        with self._numbering(stop) as cursor:
            cursor.execute("CREATE TEMP TABLE view (seq BIGINT)")
            for part in parts:
                early.look(cursor)
                with stop.reaching(cursor):
                    cursor.execute(f"CREATE OR REPLACE TEMP TABLE part AS {part}")
                    cursor.execute(
                        "INSERT INTO view SELECT seq FROM part WHERE NOT internal ORDER BY seq DESC"
                    )
                    [(more,)] = cursor.execute(
                        "SELECT count(*) FROM part WHERE internal"
                    ).fetchall()
                internal += more
            cursor.execute("DROP TABLE part")
            return _Numbers(cursor, newest_first=True), internal

    def _sorted(self, chosen: Filter, sort: str, stop: Stop) -> View:
        key, by = ordering(sort)
        where, columns = condition(chosen), f"seq, {key}"
        while True:
            stop.check()
            manifest, ends = self.place()
            sealed, last = manifest.sealed_through, ends.head
            parts = []
            if last > sealed:
                self.copy(manifest, last, stop)
                parts.append(self.hot("operations", columns, where, sealed, last))
            begun = self.begun
            if sealed:
                files = self.sealed(manifest.segments, "operations")
                parts.append(f"SELECT {columns} FROM {files} WHERE {where or 'true'}")
            table = self._ordered(" UNION ALL ".join(parts), by, stop) if parts else None
            if self.stood_still(manifest) and self.begun == begun:
                return View(self, chosen, last, table, (), turned=False)
            if table is not None:
                table.close()

    def _ordered(self, matching: str, by: str, stop: Stop) -> _Numbers:
        with self._numbering(stop) as cursor:
            for statement in (
                # Stored first: sorting ten million straight from both sources exceeds the memory.
                f"CREATE TEMP TABLE keys AS {matching}",
                f"CREATE TEMP TABLE view AS SELECT seq FROM keys ORDER BY {by}",
                "DROP TABLE keys",
            ):
                with stop.reaching(cursor):
                    cursor.execute(statement)
            return _Numbers(cursor)

    @contextmanager
    def _numbering(self, stop: Stop) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor for the table `view`; it is closed only if the block fails."""
        stop.check()
        with guarded():
            cursor = self.cursor()
            try:
                yield cursor
            except BaseException:
                cursor.close()
                raise

    def operations(self, seqs: Sequence[int]) -> tuple[Operation, ...]:
        """Return the operations with these numbers, in this order.

        A placeholder stands for a damaged row (`Operation.damaged`).
        """
        found: dict[int, Operation] = {}
        missing: Sequence[int] = seqs
        while missing:
            manifest, _ = self.place()
            sealed = [seq for seq in missing if seq <= manifest.sealed_through]
            with self._database.read() as connection:
                hot = [seq for seq in missing if seq > manifest.sealed_through]
                read = self._reader(connection).by_seqs(hot, strict=False)
                found |= {one.seq: one for one in read}
            if sealed:
                segments = [
                    one
                    for one in manifest.segments
                    if any(one.first_seq <= seq <= one.last_seq for seq in sealed)
                ]
                sources = {table: self.sealed(segments, table) for table in TABLES}
                with self.asking() as cursor:
                    found |= fetch(cursor, sources, among(sealed))
            # Operations sealed between the two reads are read again, from the archive.
            missing = [seq for seq in seqs if seq not in found]
        return tuple(found[seq] for seq in seqs)

    def last_begun(self, chosen: Filter, by: datetime, last: int) -> int | None:
        """Return the number of the last matching operation to begin by a moment."""
        with self._database.read() as connection:
            hot = self._reader(connection).last_begun(chosen, by, last)
        manifest, _ = self.place()
        segments = _begun(manifest.segments, by, all_of_them=self._narrows(chosen))
        if segments and (hot is None or hot[0] <= max(one.started_to for one in segments)):
            where = f"started_at <= {quoted(by.isoformat())}::TIMESTAMPTZ AND seq <= {last}"
            where += f" AND {condition(chosen) or 'true'}"
            with self.asking() as cursor:
                rows = cursor.execute(
                    "SELECT epoch_us(started_at), seq "
                    f"FROM {self.sealed(segments, 'operations')} WHERE {where} "
                    "ORDER BY started_at DESC, seq DESC LIMIT 1"
                ).fetchall()
            for microseconds, seq in rows:
                begun = (_EPOCH + timedelta(microseconds=microseconds), seq)
                hot = max(hot or begun, begun)
        return None if hot is None else hot[1]

    def _reader(self, connection: DatabaseConnection, above: int = 0) -> LogReader:
        return LogReader(connection, self.folder.company_id, self.visibility, above)

    def newer(self, chosen: Filter, after: int) -> tuple[tuple[Operation, ...], int]:
        """Return up to `TAIL` matches above `after`, oldest first, and the last number examined."""
        _, ends = self.place()
        while True:
            manifest, _ = self.place()
            first = max(after, manifest.sealed_through) + 1
            hot = self._recent(chosen, first, ends.head, Stop(), TAIL)
            if self.stood_still(manifest):
                break
        found: list[int] = []
        if after < manifest.sealed_through:
            sealed = self.sealed(manifest.holding(after + 1, ends.head), "operations")
            where = f"seq > {after} AND {condition(chosen) or 'true'}"
            with self.asking() as cursor:
                rows = cursor.execute(
                    f"SELECT seq FROM {sealed} WHERE {where} ORDER BY seq LIMIT {TAIL}"
                ).fetchall()
            found.extend(seq for (seq,) in rows)
        seqs = [*found, *hot][:TAIL]
        last = max([after, *seqs, *([ends.head] if len(seqs) < TAIL else [])])
        return self.operations(seqs), last


class Tail(NamedTuple):
    """Operations appended since a view was opened, up to `TAIL`."""

    operations: tuple[Operation, ...]
    """Oldest first."""
    left_out: int
    """How many of memtui's own were appended too."""
    logged: int
    """How many visible ones were appended, matching or not (`OperationLog.logged`)."""
    last: int
    """The number to go on from."""


class Without(Sequence[int]):
    """The numbers from 1 to `last` except those of `left_out`, which is sorted."""

    def __init__(self, last: int, left_out: array[int]) -> None:
        self._left_out = left_out
        self._before = array("q", (seq - place for place, seq in enumerate(left_out, start=1)))
        """For each number left out, how many remain before it."""
        self._count = last - len(left_out)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> list[int]: ...
    def __getitem__(self, place: int | slice) -> int | list[int]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(self._count))]
        if not 0 <= place < self._count:
            raise IndexError(place)
        return place + 1 + bisect_right(self._before, place)


class View:
    """The operations that matched a filter when the view was opened, in the chosen order.

    Numbers of older operations, or of all in a sorted view, are in a DuckDB table; the others
    follow in a list.
    """

    def __init__(
        self,
        log: OperationLog,
        chosen: Filter,
        last: int,
        table: _Numbers | None,
        recent: Sequence[int],
        *,
        turned: bool,
        counts: tuple[int, int] | None = None,
    ) -> None:
        """Take the numbers found; without `counts`, operations left out are counted here."""
        self._log = log
        self._chosen = chosen
        self._table = table
        self._pending = 0 if table is None else table.count
        self._recent = recent
        self._turned = turned
        self.count = self._pending + len(recent)
        """How many there are."""
        if counts is None:
            counts = log.left_out(chosen, last), log.logged(chosen, 0, last)
        self.left_out, self.logged = counts
        """How many more match that are memtui's own, and how many there would be without the
        filter (`OperationLog.logged`)."""
        self.last = last
        """The log's newest `seq` when the view was opened; `tail(last)` returns newer ones."""

    def window(self, start: int, n: int) -> tuple[Operation, ...]:
        """Return up to `n` of them from position `start` on, counted from 0. Blocking."""
        end = min(start + n, self.count)
        low, high = (self.count - end, self.count - start) if self._turned else (start, end)
        seqs: list[int] = []
        if self._table is not None and low < self._pending:
            seqs.extend(self._table.at(low, high - low))
        seqs.extend(self._recent[max(0, low - self._pending) : max(0, high - self._pending)])
        return self._log.operations(seqs[::-1] if self._turned else seqs)

    def position(self, moment: datetime) -> int:
        """Return the position of the last operation to begin by a moment. Blocking.

        If all of them began later, the position of the oldest.
        """
        seq = self._log.last_begun(self._chosen, moment, self.last)
        place = self._place_of(seq)
        return max(0, self.count - 1 - place) if self._turned else place

    def _place_of(self, seq: int | None) -> int:
        if seq is None and self._table is not None and self._pending:
            seq = self._table.least
        if seq is None or (self._recent and seq >= self._recent[0]):
            return 0 if seq is None else self._pending + bisect_left(self._recent, seq)
        return 0 if self._table is None else self._table.position(seq) or 0

    def place_of(self, seq: int) -> int | None:
        """Return the position of an operation; None if it is absent or finding it takes a query."""
        if self._table is not None or self._turned:
            return None
        place = bisect_left(self._recent, seq)
        return place if place < self.count and self._recent[place] == seq else None

    def find(self, seq: int) -> int | None:
        """Return the position of an operation; None if it is absent. Blocking."""
        near = bisect_left(self._recent, seq)
        place: int | None = None
        if list(self._recent[near : near + 1]) == [seq]:
            place = self._pending + near
        elif self._table is not None:
            place = self._table.position(seq)
        return self.count - 1 - place if self._turned and place is not None else place

    def tail(self, after: int) -> Tail:
        """Return the operations appended above `seq` `after`. Blocking."""
        found, last = self._log.newer(self._chosen.with_internal(), after)
        shown = found
        if self._chosen.excludes_internal:
            shown = tuple(one for one in found if not one.internal)
        logged = self._log.logged(self._chosen, after, last) if last > after else 0
        return Tail(shown, len(found) - len(shown), logged, last)

    def close(self) -> None:
        """Free the view's table."""
        if self._table is not None:
            self._table.close()


class _Numbers:
    """The numbers of operations in order, in the private table `view` of a DuckDB cursor."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, *, newest_first: bool = False) -> None:
        """Count them; a position is a rowid, or with `newest_first` counted from the end."""
        self._cursor = cursor
        self._newest_first = newest_first
        self._lock = threading.Lock()
        self.count, self.least = self._ask("SELECT count(*), min(seq) FROM view")[0]

    def at(self, start: int, n: int) -> list[int]:
        """Return up to `n` numbers from a position on."""
        end = min(start + n, self.count)
        low, high = (self.count - end, self.count - start) if self._newest_first else (start, end)
        rows = self._ask(
            "SELECT seq FROM view WHERE rowid >= $1 AND rowid < $2 ORDER BY rowid", [low, high]
        )
        found = [seq for (seq,) in rows]
        return found[::-1] if self._newest_first else found

    def position(self, seq: int) -> int | None:
        """Return the position of a number; None if it is absent."""
        for (row,) in self._ask("SELECT rowid FROM view WHERE seq = $1", [seq]):
            return self.count - 1 - row if self._newest_first else int(row)
        return None

    def close(self) -> None:
        """Free the table."""
        self._cursor.close()

    def _ask(self, question: str, values: Sequence[int] = ()) -> list[tuple[int, ...]]:
        with self._lock, guarded():
            return self._cursor.execute(question, values).fetchall()


class _Early:
    """Passes the newest matches to a callback while older ones are looked for."""

    def __init__(self, log: OperationLog, tell: Tell | None) -> None:
        self._log = log
        self._tell = tell
        self._recent: list[int] = []
        self._passed_on = 0

    def begin(self, recent: Sequence[int]) -> None:
        """Pass on the matches in the database, whose numbers are given oldest first."""
        self._recent = list(recent[-EARLY:])[::-1]
        self._look(self._recent)

    def look(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Pass on the matches in the table `view` too, newest first, if there are more now."""
        missing = EARLY - len(self._recent)
        if self._tell is not None and missing > 0:
            rows = cursor.execute(
                "SELECT seq FROM view WHERE rowid < $1 ORDER BY rowid", [missing]
            ).fetchall()
            self._look([*self._recent, *(seq for (seq,) in rows)])

    def _look(self, found: Sequence[int]) -> None:
        if self._tell is not None and len(found) > self._passed_on:
            self._passed_on = len(found)
            self._tell(self._log.operations(found))


def _newest_first(segments: Sequence[Segment]) -> Iterator[tuple[Segment, ...]]:
    """Yield the newest segment, then groups of older ones, each twice as large."""
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
