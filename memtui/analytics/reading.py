"""An opened view of a company's log: which operations matched a filter, in a chosen order.

The newest hot operations are filtered in the database, older hot ones in a copy in DuckDB, and
sealed ones in their files. DuckDB starts only when needed: if something is sealed, if much is hot,
or for an order other than the log's.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, overload

from memtui.analytics.engine import Stop, guarded
from memtui.analytics.layout import Segment
from memtui.analytics.rows import LogDatabase
from memtui.contract import EVERYTHING, Filter
from memtui.store.conditions import condition, ordering
from memtui.store.operation import INTERNAL, LogFilter, Operation, apart, is_folded

if TYPE_CHECKING:
    import duckdb

TAIL = 1000
"""The most operations that one `tail` returns."""
EARLY = 60
"""The most operations passed to `early` before all are found: a screenful."""

_RECENT = 10_000
"""How many of the newest hot rows are filtered in the database, without the copy."""

Tell = Callable[[tuple[Operation, ...]], None]


class Appended(NamedTuple):
    """Operations appended since a view was opened, up to `TAIL`."""

    operations: tuple[Operation, ...]
    """Oldest first."""
    left_out: int
    """How many of memtui's own were appended too."""
    folded: int
    """How many matching ones are part of another one, and not among `operations`."""
    logged: int
    """How many visible ones were appended, matching or not (`LogView.logged`)."""
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


class LogView:
    """The operations that matched a filter when the view was opened, in the chosen order. Blocking.

    Numbers of older operations, or of all in a sorted view, are in a DuckDB table; the others
    follow in a list.
    """

    def __init__(
        self,
        duck: LogDatabase,
        chosen: Filter | None = None,
        sort: str = "-seq",
        *,
        stop: Stop | None = None,
        early: Tell | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Open it; nothing is computed if everything is visible, matches and keeps its order.

        Args:
            duck: The database of the log.
            chosen: The filter; None: everything.
            sort: A name of `memtui.store.conditions.SORTS`, `-` in front for descending.
            stop: Stops the opening.
            early: Called from this thread while a filter still looks for older operations, in the
                log's order only: with the newest matches, newest first, whenever there are more
                of them, up to `EARLY`.
            check: Called before operations are read; raises if they may no longer be read.

        Raises:
            Invalid: there is no such sort.
            Interrupted: it was stopped.
            Unavailable: the log cannot be read.
        """
        self._duck, self._log, self._check = duck, duck.log, check
        self._chosen = chosen or EVERYTHING
        if sort not in {"seq", "-seq"}:
            self._chosen = apart(self._chosen)
        self.folded = is_folded(self._chosen)
        """Whether a question over several bindings is one operation in it."""
        self._has_parts = False
        self._turned = sort == "-seq"
        self._stop = stop or Stop()
        self._early, self._passed_on = early, 0
        self._table: _Numbers | None = None
        self._recent: Sequence[int] = ()
        self.last = 0
        """The log's newest `seq` when the view was opened; `tail(last)` returns newer ones."""
        self.left_out = 0
        """How many matches are left out as memtui's own reads."""
        self.folded_count = 0
        """How many matches are part of another one, and not in the view."""
        narrows = True
        if sort not in {"seq", "-seq"}:
            self._sort(sort)
        else:
            self.last = duck.place()[1].head
            self._has_parts = self.folded and duck.has_parts()
            if duck.visible or condition(self._chosen.with_internal()):
                self._filter()
            else:
                internal, folded = self._hidden()
                left_out = array("q", sorted((*internal, *folded)))
                self.left_out, self._recent = len(internal), Without(self.last, left_out)
                self.folded_count = len(folded)
                narrows = False
        self._pending = 0 if self._table is None else self._table.count
        self.count = self._pending + len(self._recent)
        """The number of operations in the view."""
        self.logged = self._logged() if narrows else self.count
        """Their number without the filter, which still says whether memtui's own reads count."""

    @property
    def _every(self) -> Filter:
        """The filter without what narrows it."""
        internal = not self._chosen.excludes_internal
        return LogFilter(internal=internal, folded=self.folded)

    def _hidden(self) -> tuple[array[int], array[int]]:
        """Return the numbers of memtui's own reads, and of parts of other operations, in the log.

        None of its own reads where the filter includes these.
        """
        every, duck = self._every, self._duck
        internal = array("q") if every.internal else duck.internal(self.last)
        name = f"folded {every.internal}"
        folded = duck.folded(every, self.last, known_as=name) if self._has_parts else array("q")
        return internal, folded

    def _logged(self) -> int:
        if self._duck.visible:
            return self._log.count(self._every, through=self.last)
        return self.last - sum(map(len, self._hidden()))

    def _filter(self) -> None:
        """Find the matching operations, in the log's order."""
        duck, last = self._duck, self.last
        where = condition(self._chosen.with_internal()) or "true"
        columns = f"seq, {INTERNAL if self._chosen.excludes_internal else 'false'} AS internal"
        while True:
            manifest, _ = duck.place()
            sealed = manifest.sealed_through
            through = max(sealed, last - _RECENT, min(duck.through, last))
            folded = duck.folded(self._chosen, last) if self._has_parts else array("q")
            self._recent = self._matching(through + 1, frozenset(folded))
            if through:
                self._show(self._recent[-EARLY:][::-1])
            parts = []
            if through > sealed:
                duck.copy(manifest, through, self._stop)
                parts.append(duck.hot("operations", columns, where, sealed, through))
            begun = duck.begun
            for segments in _newest_first(manifest.segments):
                files = duck.sealed(segments, "operations")
                parts.append(f"SELECT {columns} FROM {files} WHERE {where}")
            internal = self._find_in(parts, folded) if parts else 0
            with duck.database.read() as connection:
                internal += duck.store(connection, through).left_out(self._chosen, last)
            # Otherwise a seal moved rows, or the copy was started again: all is read once more.
            if duck.stood_still(manifest) and duck.begun == begun:
                self.left_out, self.folded_count = internal, len(folded)
                return
            if self._table is not None:
                self._table.close()
                self._table = None

    def _matching(self, first: int, folded: Collection[int]) -> array[int]:
        """Return the matching numbers in the database from `first` on, but those in `folded`."""
        chosen = apart(self._chosen)
        found: array[int] = array("q")
        for start in range(first, self.last + 1, _RECENT):
            self._stop.check()
            end = min(start + _RECENT - 1, self.last)
            with self._duck.database.read() as connection:
                seqs = self._duck.store(connection).seqs(chosen, start, end)
                found.extend(seq for seq in seqs if seq not in folded)
        return found

    def _find_in(self, parts: Sequence[str], folded: array[int]) -> int:
        """Put the numbers that the queries find into the table; return how many are memtui's own.

        The queries are ordered from the newest part of the log to the oldest. Numbers in `folded`
        are left out.
        """
        internal = 0
        with self._numbering() as cursor:
            cursor.execute("CREATE TEMP TABLE view (seq BIGINT)")
            less = ""
            if folded:
                numbers = "CREATE TEMP TABLE folded AS SELECT unnest($1::BIGINT[]) AS seq"
                cursor.execute(numbers, [folded.tolist()])
                less = "ANTI JOIN folded USING (seq) "
            for part in parts:
                self._show_more(cursor)
                with self._stop.reaching(cursor):
                    cursor.execute(f"CREATE OR REPLACE TEMP TABLE part AS {part}")
                    cursor.execute(
                        f"INSERT INTO view SELECT seq FROM part {less}"
                        "WHERE NOT internal ORDER BY seq DESC"
                    )
                    [(more,)] = cursor.execute(
                        "SELECT count(*) FROM part WHERE internal"
                    ).fetchall()
                internal += more
            cursor.execute("DROP TABLE part; DROP TABLE IF EXISTS folded")
            self._table = _Numbers(cursor, newest_first=True)
        return internal

    def _show_more(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Show the matches in the table `view` too, newest first."""
        recent = self._recent[-EARLY:][::-1]
        if self._early is not None and (missing := EARLY - len(recent)):
            rows = cursor.execute(
                "SELECT seq FROM view WHERE rowid < $1 ORDER BY rowid", [missing]
            ).fetchall()
            self._show([*recent, *(seq for (seq,) in rows)])

    def _show(self, found: Sequence[int]) -> None:
        """Pass on the newest matches, if there are more than before."""
        if self._early is not None and len(found) > self._passed_on:
            self._passed_on = len(found)
            self._early(self._log.by_seqs(found))

    def _sort(self, sort: str) -> None:
        """Find the matching operations, in another order than the log's."""
        duck, (key, by) = self._duck, ordering(sort)
        where, columns = condition(self._chosen), f"seq, {key}"
        while True:
            self._stop.check()
            manifest, ends = duck.place()
            sealed, self.last = manifest.sealed_through, ends.head
            parts = []
            if self.last > sealed:
                duck.copy(manifest, self.last, self._stop)
                parts.append(duck.hot("operations", columns, where, sealed, self.last))
            begun = duck.begun
            if sealed:
                files = duck.sealed(manifest.segments, "operations")
                parts.append(f"SELECT {columns} FROM {files} WHERE {where or 'true'}")
            if parts:
                self._order(" UNION ALL ".join(parts), by)
            if duck.stood_still(manifest) and duck.begun == begun:
                self.left_out = self._log.left_out(self._chosen, self.last)
                return
            if self._table is not None:
                self._table.close()
                self._table = None

    def _order(self, matching: str, by: str) -> None:
        with self._numbering() as cursor:
            for statement in (
                # Stored first: sorting ten million straight from both sources exceeds the memory.
                f"CREATE TEMP TABLE keys AS {matching}",
                f"CREATE TEMP TABLE view AS SELECT seq FROM keys ORDER BY {by}",
                "DROP TABLE keys",
            ):
                with self._stop.reaching(cursor):
                    cursor.execute(statement)
            self._table = _Numbers(cursor)

    @contextmanager
    def _numbering(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a cursor for the table `view`; it is closed only if the block fails."""
        self._stop.check()
        with guarded():
            cursor = self._duck.cursor()
            try:
                yield cursor
            except BaseException:
                cursor.close()
                raise

    def window(self, start: int, n: int) -> tuple[Operation, ...]:
        """Return up to `n` operations from position `start` on, counted from 0."""
        self._check()
        end = min(start + n, self.count)
        low, high = (self.count - end, self.count - start) if self._turned else (start, end)
        seqs: list[int] = []
        if self._table is not None and low < self._pending:
            seqs.extend(self._table.at(low, high - low))
        seqs.extend(self._recent[max(0, low - self._pending) : max(0, high - self._pending)])
        return self._log.by_seqs(seqs[::-1] if self._turned else seqs)

    def position(self, moment: datetime) -> int:
        """Return the position of the last operation to begin by a moment, or of its first one.

        If all of them began later, the position of the oldest.
        """
        seq = self._log.last_begun(apart(self._chosen), moment, self.last)
        if seq is not None and self.folded and self.find(seq) is None:
            part_of = [one.part_of or "" for one in self._log.by_seqs([seq])]
            seq = next((one.seq for one in self._log.by_ids(part_of, strict=False)), seq)
        place = self._place_of(seq)
        return max(0, self.count - 1 - place) if self._turned else place

    def _place_of(self, seq: int | None) -> int:
        if seq is None and self._table is not None and self._pending:
            seq = self._table.least
        if seq is None or (self._recent and seq >= self._recent[0]):
            return 0 if seq is None else self._pending + bisect_left(self._recent, seq)
        return 0 if self._table is None else self._table.position(seq) or 0

    def place_of(self, seq: int) -> int | None:
        """Return the position of an operation; None if it is absent or only `find` can tell.

        It never blocks.
        """
        if self._table is not None or self._turned:
            return None
        place = bisect_left(self._recent, seq)
        return place if place < self.count and self._recent[place] == seq else None

    def find(self, seq: int) -> int | None:
        """Return the position of an operation; None if it is absent."""
        near = bisect_left(self._recent, seq)
        place: int | None = None
        if list(self._recent[near : near + 1]) == [seq]:
            place = self._pending + near
        elif self._table is not None:
            place = self._table.position(seq)
        return self.count - 1 - place if self._turned and place is not None else place

    def tail(self, after: int) -> Appended:
        """Return the first matching operations above `after`, at most `TAIL`."""
        self._check()
        head = self._duck.place()[1].head
        found = self._log.newer(apart(self._chosen).with_internal(), after, TAIL)
        # Fewer than `TAIL` matches: all operations up to the head were looked at.
        last = max([after, *(one.seq for one in found), *([head] if len(found) < TAIL else [])])
        internal = {one.seq for one in found if one.internal} if not self._every.internal else set()
        shown = tuple(one for one in found if one.seq not in internal)
        matching = len(shown)
        if self.folded and any(one.part_of for one in shown):
            listed = {one.seq for one in self._log.newer(self._chosen, after, TAIL)}
            shown = tuple(one for one in shown if one.seq in listed)
        logged = self._log.count(self._every, after=after, through=last) if last > after else 0
        return Appended(shown, len(internal), matching - len(shown), logged, last)

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


def _newest_first(segments: Sequence[Segment]) -> Iterator[tuple[Segment, ...]]:
    """Yield the newest segment, then groups of older ones, each twice as large."""
    end, many = len(segments), 1
    while end > 0:
        yield tuple(segments[max(0, end - many) : end])
        end, many = end - many, 2 * many
