"""An opened view of a company's log: which operations matched a filter, in a chosen order.

The newest hot operations are filtered in the database, older hot ones in a copy in DuckDB, and
sealed ones in their files. DuckDB starts only when needed: if something is sealed, if much is hot,
or for an order other than the log's.
"""

from __future__ import annotations

import itertools
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, overload

from memtui.analytics.engine import Stop, guarded
from memtui.analytics.layout import Manifest
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
_AT_ONCE = 4
"""Segments that one query filters, once a match was found; ending a search waits for it."""
_FIRST = 512
"""How many operations are found of another order before all are sorted."""
_TABLES = itertools.count()
"""Numbers in the names of tables."""


class Progress(NamedTuple):
    """How far a search of older operations has come."""

    newest: tuple[Operation, ...]
    """The newest matches, newest first, up to `EARLY`."""
    matches: int
    """The number of matches so far."""
    searched: float
    """The part of the log that was searched, from 0 to 1."""


Tell = Callable[[Progress], None]


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

    Numbers of older operations are in a DuckDB table; the others follow in a list. In another order
    than the log's the first ones are in a list; all are sorted into a table when a later one is
    asked for.
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
            stop: Stops the opening, or ends only its search (`Stop.search_ended`).
            early: Called from this thread while older operations are still searched, in the log's
                order only: with the matches so far, after each part of the log.
            check: Called before operations are read; raises if they may no longer be read.

        Raises:
            Invalid: there is no such sort.
            Interrupted: it was stopped.
            Unavailable: the log cannot be read.
        """
        self._duck, self._log, self._check = duck, duck.log, check
        self._chosen = chosen or EVERYTHING
        self._order = "" if sort in {"seq", "-seq"} else sort
        if self._order:
            self._chosen = apart(self._chosen)
        self.folded = is_folded(self._chosen)
        """Whether a question over several bindings is one operation in it."""
        self._has_parts = False
        self._turned = sort == "-seq"
        self._stop = stop or Stop()
        self._early, self._passed_on = early, tuple[Operation, ...]()
        self._table: _Numbers | None = None
        self._first: Sequence[int] = ()
        """The first numbers in another order, if all were not sorted yet."""
        self._working = threading.Lock()
        self._recent: Sequence[int] = ()
        self._pending = 0
        """How many stand before those of `_recent`."""
        self.last = 0
        """The log's newest `seq` when the view was opened; `tail(last)` returns newer ones."""
        self.left_out = 0
        """How many matches are left out as memtui's own reads."""
        self.folded_count = 0
        """How many matches are part of another one, and not in the view."""
        self.searched_from = 1
        """The lowest number that was searched; above 1, the search was ended (`search_on`)."""
        self._narrows = bool(duck.visible or condition(self._chosen.with_internal()))
        self.count = 0
        """The number of operations in the view."""
        try:
            if self._order:
                self._sort()
            else:
                self._open()
        except BaseException:
            self._drop()
            raise
        self.update()
        self.logged = self._logged() if self._narrows and self.searched_from == 1 else self.count
        """Their number without the filter, which still says whether memtui's own reads count."""

    def _open(self) -> None:
        """Find the matching operations, in the log's order."""
        duck = self._duck
        manifest, ends = duck.place()
        self.last = ends.head
        if self._narrows:
            self._filter()
            return
        if self._early is not None:
            first = max(manifest.sealed_through, self.last - 10 * EARLY) + 1
            self._recent = self._matching(first)
            self._show(first)
        self._has_parts = self.folded and duck.has_parts()
        internal, folded = self._hidden()
        self.left_out, self.folded_count = len(internal), len(folded)
        left_out = array("q", sorted((*internal, *folded)))
        self._recent = Without(self.last, left_out)

    def update(self) -> None:
        """Take in what `search_on` found; until then the view stays as it is."""
        if (table := self._table) is not None:
            self._pending = table.take_in()
        if table is not None and not self._order:
            self.left_out, self.searched_from = table.internal, table.searched_from
        self.count = self._pending + len(self._recent)

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
        while True:
            manifest, _ = duck.place()
            sealed = manifest.sealed_through
            through = max(sealed, last - _RECENT, min(duck.through, last))
            self._recent = self._matching(through + 1)
            if through:
                self._show(through + 1)
            self._has_parts = self.folded and duck.has_parts()
            folded = duck.folded(self._chosen, last) if self._has_parts else array("q")
            if through > sealed:
                duck.copy(manifest, through, self._stop)
            begun = duck.begun
            if through:
                self._table = _Numbers(duck, newest_first=True)
                self._search(self._table, manifest, through, folded)
            with duck.database.read() as connection:
                self.left_out = duck.store(connection, through).left_out(self._chosen, last)
            # Otherwise a seal moved rows, or the copy was started again: all is read once more.
            if duck.stood_still(manifest) and duck.begun == begun:
                self.folded_count = len(folded)
                if self._table is not None:
                    self._table.internal += self.left_out
                return
            self._drop()

    def _matching(self, first: int) -> array[int]:
        """Return the numbers in the database from `first` on that are in the view."""
        found: array[int] = array("q")
        for start in range(first, self.last + 1, _RECENT):
            self._stop.check()
            end = min(start + _RECENT - 1, self.last)
            with self._duck.database.read() as connection:
                found.extend(self._duck.store(connection).seqs(self._chosen, start, end))
        return found

    def search_on(self, stop: Stop, early: Tell | None = None) -> None:
        """Search the operations that a search left out when it was ended; then `update`.

        `stop` and `early` are as for opening. If it is stopped, nothing is searched twice later.
        """
        self._check()
        with self._working:  # one that was stopped may not have ended
            if (table := self._table) is not None and table.searched_from > 1:
                self._stop, self._early = stop, early
                last = table.searched_from - 1
                folded = self._duck.folded(self._chosen, last) if self._has_parts else array("q")
                self._search(table, self._duck.place()[0], last, folded)
                if table.searched_from == 1:
                    self.logged = self._logged()

    def _search(
        self, table: _Numbers, manifest: Manifest, through: int, folded: array[int]
    ) -> None:
        """Put the matches up to `through` into the table, except `folded`, until it is ended."""
        less = ""
        with self._cursor() as cursor:
            if folded:
                numbers = "CREATE TEMP TABLE folded AS SELECT unnest($1::BIGINT[]) AS seq"
                cursor.execute(numbers, [folded.tolist()])
                less = "ANTI JOIN folded USING (seq) "
            table.searched_from = min(through, manifest.sealed_through) + 1
            for first, part in self._to_search(manifest, through):
                if self._stop.search_ended and first < table.searched_from:
                    return  # what is not sealed is always searched: it may be sealed meanwhile
                with self._stop.reaching(cursor):
                    cursor.execute(f"CREATE OR REPLACE TEMP TABLE part AS {part}")
                    [(internal,)] = cursor.execute(
                        "SELECT count(*) FROM part WHERE internal"
                    ).fetchall()
                    [(found,)] = cursor.execute(
                        f"INSERT INTO {table.name} SELECT seq FROM part {less}"
                        "WHERE NOT internal ORDER BY seq DESC"
                    ).fetchall()
                    table.searched(first, found, internal)
                if first > 1:
                    self._show(first)
        table.searched_from = 1

    def _to_search(self, manifest: Manifest, through: int) -> Iterator[tuple[int, str]]:
        """Yield queries of the matches up to `through`, newest first, each with its lowest number.

        One segment at a time until there is something to show.
        """
        duck, chosen = self._duck, self._chosen
        where = condition(chosen.with_internal()) or "true"
        columns = f"seq, {INTERNAL if chosen.excludes_internal else 'false'} AS internal"
        if (sealed := manifest.sealed_through) < through:
            yield sealed + 1, duck.hot("operations", columns, where, sealed, through)
        segments = [
            one
            for one in manifest.holding(1, through)
            if (chosen.since is None or one.started_to >= chosen.since)
            and (chosen.until is None or one.started_from < chosen.until)
        ]
        while segments:
            many = 1 if self._early and not self._passed_on else _AT_ONCE
            part, segments = segments[-many:], segments[:-many]
            files = duck.sealed(part, "operations")
            yield part[0].first_seq, f"SELECT {columns} FROM {files} WHERE {where}"

    def _show(self, searched_from: int) -> None:
        """Pass on the newest matches, and how far the search has come."""
        if self._early is None:
            return
        count, found = len(self._recent), list(self._recent[-EARLY:][::-1])
        if (table := self._table) is not None:
            count += table.found
            if len(self._passed_on) < EARLY:
                found += table.newest(EARLY - len(found))
        if len(found) > len(self._passed_on):
            self._passed_on = self._log.by_seqs(found)
        searched = 1 - (searched_from - 1) / self.last if self.last else 1.0
        self._early(Progress(self._passed_on, count, searched))

    def _sort(self, *, to_end: bool = False) -> None:
        """Find the matching operations in another order; if nothing narrows, only the first ones.

        `to_end`: all of them, up to `last`.
        """
        duck, (key, by) = self._duck, ordering(self._order)
        where, columns = condition(self._chosen) or "true", f"seq, {key}"
        first = f" ORDER BY {by} LIMIT {_FIRST}" if not (to_end or self._narrows) else ""
        while True:
            self._stop.check()
            manifest, ends = duck.place()
            sealed, last = manifest.sealed_through, self.last if to_end else ends.head
            parts = []
            if last > sealed:
                duck.copy(manifest, last, self._stop)
                parts.append(duck.hot("operations", columns, where, sealed, last))
            begun = duck.begun
            if sealed:
                files = duck.sealed(manifest.holding(1, last), "operations")
                within = where if sealed <= last else f"({where}) AND seq <= {last}"
                parts.append(f"SELECT {columns} FROM {files} WHERE {within}")
            # Limited each: DuckDB then skips the parts of files whose values come later.
            matching = " UNION ALL ".join(f"(FROM ({part}){first})" for part in parts)
            if parts and first:
                with self._cursor() as cursor, self._stop.reaching(cursor):
                    rows = cursor.execute(f"SELECT seq FROM ({matching}){first}").fetchall()
                    self._first = [seq for (seq,) in rows]
            elif parts:
                self._put_in_order(matching, by)
            if duck.stood_still(manifest) and duck.begun == begun:
                break
            self._drop()
        self.last = last
        if first:
            self.left_out = len(self._hidden()[0])
            self._pending = last - self.left_out
        elif not to_end:
            self.left_out = self._log.left_out(self._chosen, last)

    def _put_in_order(self, matching: str, by: str) -> None:
        table = _Numbers(self._duck)
        try:
            with self._cursor() as cursor:
                for statement in (
                    # Stored first: sorting ten million straight from both exceeds the memory.
                    f"CREATE TEMP TABLE keys AS {matching}",
                    f"INSERT INTO {table.name} SELECT seq FROM keys ORDER BY {by}",
                ):
                    with self._stop.reaching(cursor):
                        cursor.execute(statement)
            self._pending = table.take_in()
        except BaseException:
            table.close()
            raise
        self._table = table

    def _in_order(self) -> _Numbers | None:
        """Return the table; in another order than the log's, all are sorted into it now."""
        if self._order:
            with self._working:
                if self._first:
                    self._sort(to_end=True)
                    self._first = ()
        return self._table

    def _drop(self) -> None:
        if self._table is not None:
            self._table.close()
            self._table = None

    @contextmanager
    def _cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        self._stop.check()
        with guarded(), self._duck.cursor() as cursor:
            yield cursor

    def window(self, start: int, n: int) -> tuple[Operation, ...]:
        """Return up to `n` operations from position `start` on, counted from 0."""
        self._check()
        end = min(start + n, self.count)
        low, high = (self.count - end, self.count - start) if self._turned else (start, end)
        seqs: list[int] = []
        if low < self._pending:
            first = self._first
            if min(high, self._pending) <= len(first):
                seqs.extend(first[low:high])
            elif (table := self._in_order()) is not None:
                seqs.extend(table.at(low, high - low))
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
        table = self._in_order()
        if seq is None and table is not None and self._pending:
            seq = table.least
        if seq is None or (self._recent and seq >= self._recent[0]):
            return 0 if seq is None else self._pending + bisect_left(self._recent, seq)
        return 0 if table is None else table.position(seq) or 0

    def place_of(self, seq: int) -> int | None:
        """Return the position of an operation; None if it is absent or only `find` can tell.

        It never blocks.
        """
        if self._pending or self._turned:
            return None
        place = bisect_left(self._recent, seq)
        return place if place < self.count and self._recent[place] == seq else None

    def find(self, seq: int) -> int | None:
        """Return the position of an operation; None if it is absent."""
        near = bisect_left(self._recent, seq)
        place: int | None = None
        if list(self._recent[near : near + 1]) == [seq]:
            place = self._pending + near
        elif (table := self._in_order()) is not None:
            place = table.position(seq)
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
        """Free the view's table, and stop what still works on it."""
        self._stop.stop()
        self._drop()


class _Numbers:
    """The numbers of operations in order, in a table of their own in DuckDB.

    What is written to it later counts after `take_in`; one thread may write while others read.
    """

    def __init__(self, duck: LogDatabase, *, newest_first: bool = False) -> None:
        """Create it empty; a position is a rowid, or with `newest_first` counted from the end."""
        self.name = f"view_{next(_TABLES)}"
        self.count, self.least = 0, 0
        self.found = self.internal = self.searched_from = 0
        """The numbers of matches and of memtui's own reads so far, and the lowest searched."""
        self._newest_first = newest_first
        self._lock = threading.Lock()
        with guarded():
            self._cursor = duck.cursor()
            self._cursor.execute(f"CREATE TABLE {self.name} (seq BIGINT)")

    def searched(self, first: int, found: int, internal: int) -> None:
        """Count what a part of a search found that begins at number `first`."""
        self.found, self.internal = self.found + found, self.internal + internal
        self.searched_from = first

    def take_in(self) -> int:
        """Count the numbers that were written, and return how many there are."""
        [(self.count, self.least)] = self._ask(f"SELECT count(*), min(seq) FROM {self.name}")
        return self.count

    def newest(self, n: int) -> list[int]:
        """Return the first `n` that were written, whether or not they count yet."""
        rows = self._ask(f"SELECT seq FROM {self.name} WHERE rowid < $1 ORDER BY rowid", [n])
        return [seq for (seq,) in rows]

    def at(self, start: int, n: int) -> list[int]:
        """Return up to `n` numbers from a position on."""
        end = min(start + n, self.count)
        low, high = (self.count - end, self.count - start) if self._newest_first else (start, end)
        rows = self._ask(
            f"SELECT seq FROM {self.name} WHERE rowid >= $1 AND rowid < $2 ORDER BY rowid",
            [low, high],
        )
        found = [seq for (seq,) in rows]
        return found[::-1] if self._newest_first else found

    def position(self, seq: int) -> int | None:
        """Return the position of a number; None if it is absent."""
        found = self._ask(
            f"SELECT rowid FROM {self.name} WHERE seq = $1 AND rowid < $2", [seq, self.count]
        )
        for (row,) in found:
            return self.count - 1 - row if self._newest_first else int(row)
        return None

    def close(self) -> None:
        """Free the table."""
        import duckdb

        with self._lock, suppress(duckdb.ConnectionException):  # all of DuckDB is closed already
            self._cursor.execute(f"DROP TABLE IF EXISTS {self.name}")
            self._cursor.close()

    def _ask(self, question: str, values: Sequence[int] = ()) -> list[tuple[int, ...]]:
        with self._lock, guarded():
            return self._cursor.execute(question, values).fetchall()
