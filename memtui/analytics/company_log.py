"""Reads of a company's log: operations in the database and sealed ones, as one list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from memtui.analytics.archive import refuse_gap
from memtui.analytics.layout import Manifest, Segment, log_ends
from memtui.contract import Filter, Invalid, NotFound, Scope, Unavailable
from memtui.store import erasing
from memtui.store.conditions import condition
from memtui.store.database import Database, DatabaseConnection
from memtui.store.journal import Journal
from memtui.store.log import (
    UNREADABLE,
    ContextDay,
    Delivered,
    OperationStore,
    Reads,
    Retrieved,
    RunFigures,
    SourceWrites,
    TimeSpan,
    Word,
    known,
    owners,
)
from memtui.store.operation import Operation, OperationPage
from memtui.store.visibility import Visibility

if TYPE_CHECKING:
    from memtui.analytics.sealed import Archive
    from memtui.store.erasing import Aim


T = TypeVar("T")
Choose = Callable[[Sequence[Segment]], Sequence[Segment]]

_PAGE = 500
_NEWEST_WORDS = 1_000
"""The newest verdicts on results by which a preamble is ordered."""


@dataclass(frozen=True, slots=True)
class CompanyLog:
    """Reads of a company's log, hot and sealed. All are blocking, and may raise `Unavailable`.

    Operations outside the `visibility` are left out; None: all are visible.
    """

    _database: Database
    _archive: Archive
    _company_id: str
    _visibility: Visibility | None = None

    @property
    def sealed_through(self) -> int:
        """The highest sealed `seq`, 0 where nothing is sealed."""
        return self._manifest.sealed_through

    @property
    def _manifest(self) -> Manifest:
        return self._archive.manifest(self._company_id)

    def page(
        self,
        chosen: Filter,
        *,
        limit: int,
        before: int | None = None,
        after: int | None = None,
        strict: bool = True,
    ) -> OperationPage:
        """Return one page, newest first: the newest below `before`, or the oldest above `after`.

        `strict`: a damaged row raises; else it is replaced as `OperationStore.by_seqs` describes.
        """
        found: OperationPage | None = None

        def ask(one: OperationStore) -> OperationPage:
            is_full = found is not None and found.next_before is not None
            most = 0 if is_full else limit  # the archive then only counts
            return one.page(chosen, limit=most, before=before, after=after, strict=strict)

        for part in self._parts(ask):
            found = part if found is None else _one_page(found, part, limit, after)
        return found or OperationPage(operations=(), total=0)

    def each(self, chosen: Filter, *, after: int = 0) -> Iterator[Operation]:
        """Yield the operations that match a filter above a `seq`, oldest first."""
        while found := self.page(chosen, limit=_PAGE, after=after).operations:
            yield from reversed(found)
            after = found[0].seq

    def newer(self, chosen: Filter, after: int, limit: int) -> tuple[Operation, ...]:
        """Return the first operations that match above a `seq`, oldest first, without a count.

        A placeholder stands for a damaged one.
        """
        parts = self._parts(lambda one: one.newer(chosen, after, limit), above=after)
        return tuple(_oldest_first(parts)[:limit])

    def of_run(self, run_id: str, *, after: int, limit: int) -> tuple[Operation, ...]:
        """Return the first operations of a run above a `seq`, as `newer`."""
        parts = self._parts(lambda one: one.of_run(run_id, after, limit), above=after)
        return tuple(_oldest_first(parts)[:limit])

    def count(self, chosen: Filter, *, after: int = 0, through: int | None = None) -> int:
        """Return how many operations match, above one `seq` and up to another."""
        return sum(self._parts(lambda one: one.count(chosen, through), above=after))

    def left_out(self, chosen: Filter, through: int) -> int:
        """Count the matches that are hidden as memtui's own reads, up to `through`."""
        if not chosen.excludes_internal:
            return 0
        return sum(self._parts(lambda one: one.left_out(chosen, through)))

    def last_begun(self, chosen: Filter, by: datetime, last: int) -> int | None:
        """Return the number of the last matching operation to begin by a moment."""
        found: list[tuple[datetime, int]] = []
        # With a filter, the last operation of a segment may not match: then every segment is read.
        whole = self._visibility is not None or bool(condition(chosen))

        def choose(segments: Sequence[Segment]) -> Sequence[Segment]:
            begun = _begun(segments, by, all_of_them=whole)
            is_later = found and all(one.started_to < found[0][0] for one in begun)
            return () if is_later else begun

        for part in self._parts(lambda one: one.last_begun(chosen, by, last), choose=choose):
            found += [part] if part else []
        return max(found)[1] if found else None

    def by_id(self, operation_id: str) -> Sequence[Operation]:
        """Return the operation with this id, else this `seq`, else up to two by an id's start."""
        found: dict[int, Operation] = {}
        for part in self._parts(lambda one: one.by_id(operation_id), whole=True):
            if any(one.operation_id == operation_id for one in part):
                return part
            found = {one.seq: one for one in part} | found
        exact = [one for one in found.values() if operation_id == str(one.seq)]
        return exact[:1] or list(found.values())[:2]

    def named(self, asked: str) -> Operation:
        """Return the one operation with this id, beginning of an id, or number.

        Raises:
            NotFound: there is none.
            Invalid: there are several.
        """
        found = self.by_id(asked)
        if not found:
            raise NotFound(
                f"There is no operation {asked}; `memtui ops list` shows those there are."
            )
        if len(found) > 1:
            raise Invalid(f"Several operation ids begin with {asked}; give more of it.")
        return found[0]

    def by_ids(
        self, operation_ids: Sequence[str], record_ids: Sequence[str] = (), *, strict: bool = True
    ) -> tuple[Operation, ...]:
        """Return the operations with these ids, newest first.

        With `record_ids`, they have only the handles of these records. `strict` is as in `page`.
        """
        found: list[Operation] = []

        def ask(one: OperationStore) -> Sequence[Operation]:
            known_ids = {one.operation_id for one in found}
            missing = [one for one in operation_ids if one not in known_ids]
            return one.by_ids(missing, record_ids, strict=strict)

        for part in self._parts(ask, whole=True):
            found += part
            if len(found) == len(set(operation_ids)):
                break
        return tuple(found)

    def parts(self, firsts: Sequence[Operation]) -> dict[str, list[Operation]]:
        """Return the operations that are part of these, oldest first, by the id of the first.

        One that has none is absent. A placeholder stands for a damaged one.
        """
        seqs = {one.operation_id: one.seq for one in firsts}
        found: dict[str, list[Operation]] = {}
        above = min(seqs.values(), default=0)
        for part_of, one in _oldest_first(self._parts(lambda one: one.parts([*seqs]), above=above)):
            if one.seq > seqs[part_of]:
                found.setdefault(part_of, []).append(one)
        return found

    def by_seqs(self, seqs: Sequence[int]) -> tuple[Operation, ...]:
        """Return the operations with these numbers that exist, in this order.

        A placeholder stands for a damaged row (`Operation.damaged`).
        """
        found: dict[int, Operation] = {}
        missing = seqs

        def holding(segments: Sequence[Segment]) -> Sequence[Segment]:
            return [
                one
                for one in segments
                if any(one.first_seq <= seq <= one.last_seq for seq in missing)
            ]

        def ask(one: OperationStore) -> Sequence[Operation]:
            return one.by_seqs(missing, strict=False)

        for part in self._parts(ask, whole=True, choose=holding):
            found |= {one.seq: one for one in part}
            missing = [seq for seq in seqs if seq not in found]
        return tuple(found[seq] for seq in seqs if seq in found)

    def spans(self, chosen: Filter) -> list[TimeSpan]:
        """Return the time span of each operation that matches a filter, by its beginning."""
        parts = self._parts(lambda one: one.spans(chosen))
        return sorted(_oldest_first(parts), key=lambda span: span.begins)

    def sealed_at(self, operation_ids: Sequence[str]) -> dict[str, datetime]:
        """Return when each of these operations began, for those that are sealed.

        An operation that left the database before this call is sealed by now.
        """
        with self._sealed() as connection:
            found = owners(connection, operation_ids) if connection and operation_ids else {}
        return {operation_id: at for operation_id, (_, at) in found.items()}

    def oldest_sealed(self, limit: int) -> Sequence[Operation]:
        """Return the oldest sealed operations, newest first, without reading the database."""
        oldest = range(1, limit + 1)
        with self._sealed() as connection:
            found = self._store(connection, 0).by_seqs(oldest) if connection else []
        return sorted(found, key=lambda one: -one.seq)

    def sealed_about(self, aim: Aim) -> Iterator[Operation]:
        """Yield the sealed operations that a purge may concern, oldest first."""
        with self._sealed() as connection:
            if connection:
                yield from erasing.operations(connection, aim, above=0)

    def latencies(self, binding_key: str, limit: int) -> list[float]:
        """Return the latencies of a binding's newest operations in milliseconds, oldest first."""
        found: list[float] = []
        for part in self._parts(lambda one: one.latencies(binding_key, limit)):
            found = [*part, *found][-limit:]
            if len(found) == limit:
                break
        return found

    def retrievals(
        self, binding_key: str, record_id: str, limit: int
    ) -> tuple[int, list[Retrieved]]:
        """Return how many reads returned a record, and the newest of them with rank and score."""
        parts = self._parts(lambda one: one.retrievals(binding_key, record_id, limit))
        counts, found = zip(*parts, strict=True)
        return sum(counts), list(chain(*found))[:limit]

    def retrieval_counts(self, binding_key: str, record_ids: Sequence[str]) -> dict[str, Reads]:
        """Return how often each record was returned by a read; those never returned are absent.

        Reads under a former id of the record count too, as in `readers` and `words`.
        """
        before = self._before(binding_key, record_ids)
        names = [*record_ids, *before]
        found: dict[str, Reads] = {}
        for part in self._parts(lambda one: one.retrieval_counts(binding_key, names)):
            for name, reads in part.items():
                record_id = before.get(name, name)
                known = found.get(record_id, reads._replace(times=0))
                last = max(known, reads, key=lambda one: one.last_at)
                found[record_id] = last._replace(times=known.times + reads.times)
        return found

    def readers(self, binding_key: str, record_ids: Sequence[str]) -> dict[str, set[str]]:
        """Return the readers of each record, as `OperationStore.readers`."""
        before = self._before(binding_key, record_ids)
        found: dict[str, set[str]] = {}
        for part in self._parts(lambda one: one.readers(binding_key, [*record_ids, *before])):
            for name, readers in part.items():
                found.setdefault(before.get(name, name), set()).update(readers)
        return found

    def _before(self, binding_key: str, record_ids: Sequence[str]) -> dict[str, str]:
        """Return the former ids of restored records, with their present ids."""
        with self._database.read() as database:
            return Journal(database, self._company_id).older_ids(binding_key, record_ids)

    def sources(self, chosen: Filter, limit: int) -> list[SourceWrites]:
        """Return the sources of writes, the most recently used first."""
        newest = chain(*self._parts(lambda one: one.sources(chosen, limit=limit)))
        keys = [one.key for one in sorted(newest, key=lambda one: -one.last_seq)]
        keys = list(dict.fromkeys(keys))[:limit]
        found: dict[str, SourceWrites] = {}
        for one in chain(*self._parts(lambda one: one.sources(chosen, among=keys))):
            newer = found.get(one.key)
            found[one.key] = one if newer is None else _of_both(one, newer)
        return [found[key] for key in keys if key in found]

    def words(self, binding_key: str, record_ids: Sequence[str]) -> list[Word]:
        """Return each caller's last verdict on each result with one of these records."""
        before = self._before(binding_key, record_ids)
        rows = chain(*self._parts(lambda one: one.words(binding_key, [*record_ids, *before])))
        return _last_words(
            one._replace(record_id=before.get(one.record_id, one.record_id)) for one in rows
        )

    def helped(self, binding_key: str) -> frozenset[str]:
        """Return the ids of records that helped more often than not, by unsealed verdicts."""
        parts = self._parts(lambda one: one.words(binding_key, [*one.judged(_NEWEST_WORDS)]))
        balance = Counter[str]()
        for word in _last_words(next(parts)):
            balance[word.record_id] += 1 if word.helped else -1
        return frozenset(name for name, more in balance.items() if more > 0)

    def mutations_of_record(self, binding_key: str, record_id: str) -> list[str]:
        """Return the ids of the mutations that touched a record."""
        parts = self._parts(lambda one: one.mutations_of_record(binding_key, record_id), whole=True)
        return list(dict.fromkeys(chain(*parts)))

    def mutations(self, binding_key: str, record_ids: Sequence[str]) -> set[int]:
        """Return the `seq` of the mutations that touched records, under any of their ids."""
        names = [*record_ids, *self._before(binding_key, record_ids)]
        parts = self._parts(lambda one: one.mutations(binding_key, names))
        return set(chain.from_iterable(parts))

    def active(self, chosen: Filter, field: str) -> set[str]:
        """Return the distinct values of an id field, as `OperationStore.active`."""
        return set(chain(*self._parts(lambda one: one.active(chosen, field))))

    def scopes(self, newest: int) -> dict[Scope, bool]:
        """Return the scopes of the `newest` latest operations, as `OperationStore.scopes`."""
        found: dict[Scope, bool] = {}
        for part in self._parts(lambda one: one.scopes(newest)):
            found |= {scope: there for scope, there in part.items() if scope not in found}
        return found

    def runs(
        self, chosen: Filter, record: tuple[str, Sequence[str]] | None = None
    ) -> dict[str, int]:
        """Return the runs of the operations that match a filter, as `OperationStore.runs`."""
        found: dict[str, int] = {}
        for part in self._parts(lambda one: one.runs(chosen, record)):
            found = part | found
        return found

    def deliveries(
        self, binding_key: str, spans: Mapping[str, tuple[int, int]], limit: int
    ) -> list[Delivered]:
        """Return the deliveries of records, as `OperationStore.deliveries`."""
        first = min(one for one, _ in spans.values())
        parts = self._parts(lambda one: one.deliveries(binding_key, spans, limit), above=first)
        return _oldest_first(parts)

    def writes(
        self, runs: Sequence[str], agents: Sequence[str], above: int, limit: int
    ) -> tuple[Operation, ...]:
        """Return writes of runs, or else of agents, as `OperationStore.writes`, oldest first."""
        parts = self._parts(lambda one: one.writes(runs, agents, above, limit), above=above)
        return self.by_seqs(sorted(_oldest_first(parts)))

    def run_figures(self, run_ids: Sequence[str]) -> RunFigures:
        """Return the figures of runs."""
        hot, *sealed = self._parts(lambda one: one.run_figures(run_ids))
        return RunFigures(*(list(chain(*lists)) for lists in zip(*sealed, hot, strict=True)))

    def contexts_by_day(self, chosen: Filter) -> list[ContextDay]:
        """Return the days with contexts, the oldest first."""
        days: dict[int, ContextDay] = {}
        for one in _oldest_first(self._parts(lambda one: one.contexts_by_day(chosen))):
            days[one.day] = _joined(days[one.day], one) if one.day in days else one
        return list(days.values())

    def prompt_sizes(self, limit: int) -> list[int]:
        """Return the tokens of the prompts of the newest contexts; 0: not measured."""
        sizes: list[int] = []
        for one in self._parts(lambda store: store.prompt_sizes(limit)):
            sizes += one
            if len(sizes) >= limit:
                break
        return sizes[:limit]

    def _parts(
        self,
        ask: Callable[[OperationStore], T],
        *,
        whole: bool = False,
        above: int = 0,
        choose: Choose | None = None,
    ) -> Iterator[T]:
        """Yield the database's answer above a `seq`, then the archive's, if it has segments there.

        The archive is opened only when its answer is requested. The database is read above the
        sealed `seq`; `whole`: from its beginning. Both answers are consistent: the database is read
        again if a seal came between. `choose` returns the segments that can have an answer.

        Raises:
            Unavailable: a damaged row prevents an answer.
        """
        while True:
            sealed = self.sealed_through
            try:
                with self._database.read() as connection:
                    found = ask(self._store(connection, 0 if whole else max(sealed, above)))
            except (TypeError, ValueError, ArithmeticError) as error:
                raise Unavailable(UNREADABLE) from error
            ends = log_ends(self._database, self._company_id)
            if (manifest := self._manifest).sealed_through == sealed:
                break
        refuse_gap(manifest, ends)
        yield found
        segments: Sequence[Segment] = [one for one in manifest.segments if one.last_seq > above]
        if segments := choose(segments) if choose else segments:
            with self._archive.read(self._company_id, segments) as connection:
                found = ask(self._store(connection, above))
            yield found

    @contextmanager
    def _sealed(self) -> Iterator[DatabaseConnection | None]:
        """Yield a connection to the sealed operations; None: nothing is sealed."""
        if segments := self._manifest.segments:
            with self._archive.read(self._company_id, segments) as connection:
                yield connection
        else:
            yield None

    def _store(self, connection: DatabaseConnection, above: int) -> OperationStore:
        return OperationStore(connection, self._company_id, self._visibility, above)


def _oldest_first(parts: Iterable[Sequence[T]]) -> list[T]:
    """Return the elements of both parts, the archive's before the database's."""
    return list(chain(*reversed([*parts])))


def _one_page(
    newer: OperationPage, older: OperationPage, limit: int, after: int | None
) -> OperationPage:
    """Join a page of the database and one of the archive."""
    found = (*newer.operations, *older.operations)
    has_more = newer.next_before or older.next_before or len(found) > limit
    shown = found[:limit] if after is None else found[-limit:]
    return OperationPage(
        operations=shown,
        total=newer.total + older.total,
        left_out=newer.left_out + older.left_out,
        folded=newer.folded,
        next_before=shown[-1].seq if has_more and after is None else None,
    )


def _joined(one: ContextDay, other: ContextDay) -> ContextDay:
    """Return the sum of a day's sealed and unsealed figures."""
    day, *sums, most = (pair for pair in zip(one, other, strict=True))
    return ContextDay._make((day[0], *map(sum, sums), max(most)))


def _last_words(said: Iterable[Word]) -> list[Word]:
    """Return each caller's last verdict on each result, without withdrawn ones."""
    ordered = sorted(said, key=lambda word: word.seq)
    last = {(word.record_id, word.judged, word.principal): word for word in ordered}
    return [word for word in last.values() if word.helped is not None]


def _of_both(older: SourceWrites, newer: SourceWrites) -> SourceWrites:
    """Return the sum of a source's sealed and unsealed writes."""
    return newer._replace(
        writes=older.writes + newer.writes,
        records=older.records + newer.records,
        first_at=min(known([older.first_at, newer.first_at])),
        last_at=max(known([older.last_at, newer.last_at])),
    )


def _begun(segments: Sequence[Segment], by: datetime, *, all_of_them: bool) -> Sequence[Segment]:
    """Return the segments that began by a moment, or those that may have the last to begin."""
    begun = [one for one in segments if one.started_from <= by]
    if all_of_them or not begun:
        return begun
    latest = max(one.started_from for one in begun)
    return [one for one in begun if one.started_to >= latest]
