"""Reads of a company's log: operations in the database and sealed ones, as one list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from memtui.analytics.archive import refuse_gap
from memtui.analytics.layout import log_ends
from memtui.contract import (
    Filter,
    Invalid,
    NotFound,
    Scope,
    Unavailable,
)
from memtui.store import erasing, journal
from memtui.store.database import Database, DatabaseConnection
from memtui.store.log import (
    UNREADABLE,
    ContextDay,
    LogReader,
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
    from memtui.analytics.sealed import Archive, Sealed
    from memtui.store.erasing import Aim


T = TypeVar("T")

_PAGE = 500
_NEWEST_WORDS = 1_000
"""The newest verdicts on results by which a preamble is ordered."""


@dataclass(frozen=True, slots=True)
class CompanyLog:
    """Reads of a company's log, hot and sealed alike. All are blocking; all raise `Unavailable`.

    Operations outside the `visibility` are left out; None: all are visible.
    """

    _database: Database
    _archive: Archive
    _company_id: str
    _visibility: Visibility | None = None

    @property
    def sealed(self) -> Sealed:
        """The sealed part of the log, as of now."""
        return self._archive.of(self._company_id)

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

        `strict`: a damaged row raises; else it is replaced as `LogReader.by_seqs` describes.
        """
        hot, sealed, read = self._both(
            lambda one: one.page(chosen, limit=limit, before=before, after=after, strict=strict)
        )
        if not sealed.through:
            return hot
        if hot.next_before is not None or (after or 0) >= sealed.through:
            counted, left_out = sealed.ask(
                lambda one: (self._reader(one).count(chosen), self._reader(one).left_out(chosen))
            ) or (0, 0)
            return hot.model_copy(
                update={"total": hot.total + counted, "left_out": hot.left_out + left_out}
            )
        older = sealed.ask(read) or OperationPage(operations=(), total=0)
        total, left_out = hot.total + older.total, hot.left_out + older.left_out
        found = (*hot.operations, *older.operations)
        if after is not None:
            return OperationPage(operations=found[-limit:], total=total, left_out=left_out)
        more = len(found) > limit or older.next_before is not None
        return OperationPage(
            operations=found[:limit],
            total=total,
            left_out=left_out,
            next_before=found[:limit][-1].seq if more else None,
        )

    def each(self, chosen: Filter, *, after: int = 0) -> Iterator[Operation]:
        """Yield the operations that match a filter above a `seq`, oldest first."""
        while found := self.page(chosen, limit=_PAGE, after=after).operations:
            yield from reversed(found)
            after = found[0].seq

    def by_id(self, operation_id: str) -> Sequence[Operation]:
        """Return the operation with this id, else this `seq`, else up to two whose id starts so."""
        hot, sealed, read = self._both(lambda one: one.by_id(operation_id), whole=True)
        if any(one.operation_id == operation_id for one in hot):
            return hot
        found = {one.seq: one for one in (*(sealed.ask(read) or ()), *hot)}
        exact = [one for one in found.values() if operation_id in {one.operation_id, str(one.seq)}]
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
            raise Invalid(f"{asked} is the beginning of several operation ids; give more of it.")
        return found[0]

    def by_ids(
        self, operation_ids: Sequence[str], record_ids: Sequence[str] = (), *, strict: bool = True
    ) -> tuple[Operation, ...]:
        """Return the operations with these ids, newest first.

        With `record_ids`, they have only the handles of these records. `strict` is as in `page`.
        """
        hot, sealed, _ = self._both(
            lambda one: one.by_ids(operation_ids, record_ids, strict=strict), whole=True
        )
        known = {one.operation_id for one in hot}
        missing = [one for one in operation_ids if one not in known]
        if not missing:
            return hot
        older = sealed.ask(lambda one: self._reader(one).by_ids(missing, record_ids, strict=strict))
        return (*hot, *(older or ()))

    def spans(self, chosen: Filter) -> list[TimeSpan]:
        """Return the time span of each operation that matches a filter, by its beginning."""
        hot, sealed, read = self._both(lambda one: one.spans(chosen))
        return sorted((*(sealed.ask(read) or []), *hot), key=lambda span: span.begins)

    def by_seqs(self, seqs: Sequence[int], *, strict: bool = True) -> Sequence[Operation]:
        """Return the operations with these numbers, in no order; `strict` as in `page`."""
        hot, sealed, read = self._both(lambda one: one.by_seqs(seqs, strict=strict), whole=True)
        return [*(sealed.ask(read) or []), *hot] if len(hot) < len(seqs) else hot

    def sealed_at(self, operation_ids: Sequence[str]) -> dict[str, datetime]:
        """Return when each of these operations began, for those that are sealed.

        An operation that left the database before this call is sealed by now.
        """
        if not operation_ids:
            return {}
        found = self.sealed.ask(lambda one: owners(one, operation_ids))
        return {operation_id: at for operation_id, (_, at) in (found or {}).items()}

    def oldest_sealed(self, limit: int) -> Sequence[Operation]:
        """Return the oldest operations that are sealed, newest first, whatever the database has."""
        oldest = range(1, limit + 1)
        found = self.sealed.ask(lambda one: self._reader(one).by_seqs(oldest))
        return sorted(found or (), key=lambda one: -one.seq)

    def sealed_about(self, aim: Aim) -> Iterator[Operation]:
        """Yield the sealed operations that a purge may concern, oldest first."""
        sealed = self.sealed
        if sealed.through:
            with sealed.read() as connection:
                yield from erasing.operations(connection, aim, above=0)

    def latencies(self, binding_key: str, limit: int) -> list[float]:
        """Return the latencies of a binding's newest operations in milliseconds, oldest first."""
        hot, sealed, read = self._both(lambda one: one.latencies(binding_key, limit))
        return hot if len(hot) == limit else [*(sealed.ask(read) or []), *hot][-limit:]

    def retrievals(
        self, binding_key: str, record_id: str, limit: int
    ) -> tuple[int, list[Retrieved]]:
        """Return how many reads returned a record, and the newest of them with rank and score."""
        (count, found), sealed, read = self._both(
            lambda one: one.retrievals(binding_key, record_id, limit)
        )
        older, older_found = sealed.ask(read) or (0, [])
        return count + older, [*found, *older_found][:limit]

    def retrieval_counts(self, binding_key: str, record_ids: Sequence[str]) -> dict[str, Reads]:
        """Return how often each record was returned by a read; those never returned are absent.

        Reads under a former id of the record count too, as in `readers` and `words`.
        """
        before = self._before(binding_key, record_ids)
        names = [*record_ids, *before]
        hot, sealed, read = self._both(lambda one: one.retrieval_counts(binding_key, names))
        found: dict[str, Reads] = {}
        for name, reads in (*(sealed.ask(read) or {}).items(), *hot.items()):
            record_id = before.get(name, name)
            known = found.get(record_id, reads._replace(times=0))
            last = max(known, reads, key=lambda one: one.last_at)
            found[record_id] = last._replace(times=known.times + reads.times)
        return found

    def readers(self, binding_key: str, record_ids: Sequence[str]) -> dict[str, set[str]]:
        """Return the readers of each record, as `LogReader.readers`."""
        before = self._before(binding_key, record_ids)
        hot, sealed, read = self._both(lambda one: one.readers(binding_key, [*record_ids, *before]))
        found: dict[str, set[str]] = {}
        for name, readers in (*(sealed.ask(read) or {}).items(), *hot.items()):
            found.setdefault(before.get(name, name), set()).update(readers)
        return found

    def _before(self, binding_key: str, record_ids: Sequence[str]) -> dict[str, str]:
        """Return the former ids of restored records, with their present ids."""
        with self._database.read() as database:
            return journal.older_ids(database, self._company_id, binding_key, record_ids)

    def sources(self, chosen: Filter, limit: int) -> list[SourceWrites]:
        """Return the sources of writes, the most recently used first."""
        hot, sealed, read = self._both(lambda one: one.sources(chosen, limit=limit))
        if not sealed.through:
            return hot
        newest = sorted((*hot, *(sealed.ask(read) or [])), key=lambda one: -one.last_seq)
        keys = list(dict.fromkeys(one.key for one in newest))[:limit]
        hot, sealed, read = self._both(lambda one: one.sources(chosen, among=keys))
        found: dict[str, SourceWrites] = {}
        for one in (*(sealed.ask(read) or []), *hot):
            older = found.get(one.key)
            found[one.key] = one if older is None else _of_both(older, one)
        return [found[key] for key in keys if key in found]

    def words(self, binding_key: str, record_ids: Sequence[str]) -> list[Word]:
        """Return each caller's last verdict on each result with one of these records."""
        before = self._before(binding_key, record_ids)
        hot, sealed, read = self._both(lambda one: one.words(binding_key, [*record_ids, *before]))
        rows = (*(sealed.ask(read) or []), *hot)
        return _last_words(
            one._replace(record_id=before.get(one.record_id, one.record_id)) for one in rows
        )

    def helped(self, binding_key: str) -> frozenset[str]:
        """Return the ids of records that helped more often than not, by unsealed verdicts."""
        said, _, _ = self._both(lambda one: one.words(binding_key, [*one.judged(_NEWEST_WORDS)]))
        balance = Counter[str]()
        for word in _last_words(said):
            balance[word.record_id] += 1 if word.helped else -1
        return frozenset(name for name, more in balance.items() if more > 0)

    def mutations_of_record(self, binding_key: str, record_id: str) -> list[str]:
        """Return the ids of the mutations that touched a record."""
        hot, sealed, read = self._both(
            lambda one: one.mutations_of_record(binding_key, record_id), whole=True
        )
        return list(dict.fromkeys((*hot, *(sealed.ask(read) or []))))

    def active(self, chosen: Filter, field: str) -> set[str]:
        """Return an id's distinct values among successful operations, as `LogReader.active`."""
        hot, sealed, read = self._both(lambda one: one.active(chosen, field))
        return hot | (sealed.ask(read) or set())

    def scopes(self, newest: int) -> dict[Scope, bool]:
        """Return the scopes of the newest so many operations, as `LogReader.scopes`."""
        hot, sealed, read = self._both(lambda one: one.scopes(newest))
        return hot | (sealed.ask(read) or {}) | hot

    def runs(
        self, chosen: Filter, record: tuple[str, Sequence[str]] | None = None
    ) -> dict[str, int]:
        """Return the runs of the operations that match a filter, as `LogReader.runs`."""
        hot, sealed, read = self._both(lambda one: one.runs(chosen, record))
        return {**(sealed.ask(read) or {}), **hot}

    def run_figures(self, run_ids: Sequence[str]) -> RunFigures:
        """Return the figures of runs."""
        hot, sealed, read = self._both(lambda one: one.run_figures(run_ids))
        older = sealed.ask(read) or RunFigures([], [], [], [])
        return RunFigures(
            parts=older.parts + hot.parts,
            contexts=older.contexts + hot.contexts,
            usage=older.usage + hot.usage,
            damaged=older.damaged + hot.damaged,
        )

    def of_run(self, run_id: str, *, after: int, limit: int) -> tuple[Operation, ...]:
        """Return the first operations of a run above a `seq`, the oldest first."""
        hot, sealed, read = self._both(lambda one: one.of_run(run_id, after=after, limit=limit))
        older = sealed.ask(read) if after < sealed.through else None
        return (*(older or ()), *hot)[:limit]

    def contexts_by_day(self, chosen: Filter) -> list[ContextDay]:
        """Return the days with contexts, the oldest first."""
        hot, sealed, read = self._both(lambda one: one.contexts_by_day(chosen))
        days: dict[int, ContextDay] = {}
        for one in (*(sealed.ask(read) or []), *hot):
            days[one.day] = _joined(days[one.day], one) if one.day in days else one
        return list(days.values())

    def _both(
        self, ask: Callable[[LogReader], T], *, whole: bool = False
    ) -> tuple[T, Sealed, Callable[[DatabaseConnection], T]]:
        """Return the database's result, the sealed log, and the read to repeat on the sealed log.

        The database is read above the sealed `seq`; `whole`: from its beginning. Both are of one
        moment: they are read again where a seal came between.

        Raises:
            Unavailable: a damaged row prevents an answer.
        """

        def read(connection: DatabaseConnection) -> T:
            return ask(self._reader(connection))

        while True:
            sealed = self.sealed
            try:
                with self._database.read() as connection:
                    found = ask(self._reader(connection, 0 if whole else sealed.through))
            except (TypeError, ValueError, ArithmeticError) as error:
                raise Unavailable(UNREADABLE) from error
            ends = log_ends(self._database, self._company_id)
            if (now := self.sealed).through == sealed.through:
                refuse_gap(now.manifest, ends)
                return found, now, read

    def _reader(self, connection: DatabaseConnection, above: int = 0) -> LogReader:
        return LogReader(connection, self._company_id, self._visibility, above)


def _joined(one: ContextDay, other: ContextDay) -> ContextDay:
    """Return the sum of a day's sealed and unsealed figures."""
    return ContextDay(
        one.day,
        one.contexts + other.contexts,
        one.delivered + other.delivered,
        one.over_budget + other.over_budget,
        one.tokens + other.tokens,
        one.budget + other.budget,
        max(one.most_tokens, other.most_tokens),
    )


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
