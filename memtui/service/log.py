"""The operation log: hot and sealed operations as one, what they changed, and who read a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from memtui.analytics.archive import refuse_gap
from memtui.analytics.layout import log_ends
from memtui.contract import (
    EVERYTHING,
    Filter,
    Invalid,
    Json,
    NotFound,
    OperationStatus,
    OperationType,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
)
from memtui.service.answers import (
    Change,
    Erasure,
    Provenance,
    Retrieval,
    RetrievalCount,
    WriteSource,
)
from memtui.service.operations import change_of, received
from memtui.service.runtime import ServiceModule, in_thread
from memtui.service.visibility import Caller
from memtui.store import erasing, journal
from memtui.store.database import Database, DatabaseConnection
from memtui.store.digest import is_intact
from memtui.store.erasing import purged
from memtui.store.journal import OutcomeCheck
from memtui.store.limits import last_seq
from memtui.store.log import (
    SOURCE_IDS,
    UNREADABLE,
    ContextDay,
    LogReader,
    Reads,
    Retrieved,
    RunFigures,
    SourceWrites,
    TimeSpan,
    Word,
    company_salt,
    known,
    owners,
)
from memtui.store.operation import Operation, OperationPage, as_member, why_altered
from memtui.store.visibility import Visibility

if TYPE_CHECKING:
    from memtui.analytics.sealed import Archive, Sealed
    from memtui.store.erasing import Aim


T = TypeVar("T")

_PAGE = 500


@dataclass(frozen=True, slots=True)
class CompanyLog:
    """Reads of a company's log, hot and sealed alike. All are blocking; all raise `Unavailable`.

    What is out of a reader's `visibility` is as if it were not there; None sees everything.
    """

    _database: Database
    _archive: Archive
    _company_id: str
    _visibility: Visibility | None = None

    @property
    def sealed(self) -> Sealed:
        """What is sealed of it now."""
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

        `strict`: a damaged row refuses the page; else `LogReader.by_seqs` says what stands for it.
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
        """Yield the operations of a filter above a `seq`, oldest first."""
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
        """Return the only operation that a person's id, the beginning of one, or number names.

        Raises:
            NotFound: none does.
            Invalid: several do.
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

        Where `record_ids` are given, their handles are those of these records alone. `strict` is as
        in `page`.
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
        """Return when each operation of a filter was under way, the first to begin first."""
        hot, sealed, read = self._both(lambda one: one.spans(chosen))
        return sorted((*(sealed.ask(read) or []), *hot), key=lambda span: span.begins)

    def by_seqs(self, seqs: Sequence[int], *, strict: bool = True) -> Sequence[Operation]:
        """Return the operations with these numbers, in no order; `strict` as in `page`."""
        hot, sealed, read = self._both(lambda one: one.by_seqs(seqs, strict=strict), whole=True)
        return [*(sealed.ask(read) or []), *hot] if len(hot) < len(seqs) else hot

    def sealed_at(self, operation_ids: Sequence[str]) -> dict[str, datetime]:
        """Return when each of these operations began, those that are sealed.

        What the database held before this is asked, and holds no more, is sealed by now.
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
        """Return the sealed operations that a purge may be about, oldest first."""
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

        What returned it under an id that it had before counts too, and so it does for `readers` and
        `words`.
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
        """Return who read each record, as `LogReader.readers`."""
        before = self._before(binding_key, record_ids)
        hot, sealed, read = self._both(lambda one: one.readers(binding_key, [*record_ids, *before]))
        found: dict[str, set[str]] = {}
        for name, readers in (*(sealed.ask(read) or {}).items(), *hot.items()):
            found.setdefault(before.get(name, name), set()).update(readers)
        return found

    def _before(self, binding_key: str, record_ids: Sequence[str]) -> dict[str, str]:
        """Return the ids that records had before they came back under another, with that."""
        with self._database.read() as database:
            return journal.older_ids(database, self._company_id, binding_key, record_ids)

    def sources(self, chosen: Filter, limit: int) -> list[SourceWrites]:
        """Return what writes came from, the last to write first."""
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
        """Return everybody's last word of each result that was a record, whether it helped."""
        before = self._before(binding_key, record_ids)
        hot, sealed, read = self._both(lambda one: one.words(binding_key, [*record_ids, *before]))
        told = (*(sealed.ask(read) or []), *hot)
        return _last_words(
            one._replace(record_id=before.get(one.record_id, one.record_id)) for one in told
        )

    def helped(self, binding_key: str) -> frozenset[str]:
        """Return the ids of records that helped more often than not, by what is not sealed."""
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

    def runs(self, chosen: Filter, told: tuple[str, Sequence[str]] | None = None) -> dict[str, int]:
        """Return the runs that an operation of a filter is of, as `LogReader.runs`."""
        hot, sealed, read = self._both(lambda one: one.runs(chosen, told))
        return {**(sealed.ask(read) or {}), **hot}

    def run_figures(self, run_ids: Sequence[str]) -> RunFigures:
        """Return what runs come to."""
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
        """Return what is found in the database, what is sealed, and the read to ask that with.

        In the database it looks above what is sealed; `whole`: in all of it. The two are of one
        moment: where a seal came between them, they are read again.

        Raises:
            Unavailable: a row that is damaged leaves no answer.
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
    """A day that is sealed in part."""
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
    """Return everybody's last word of each result, without those that were withdrawn."""
    ordered = sorted(said, key=lambda word: word.seq)
    last = {(word.record_id, word.judged, word.principal): word for word in ordered}
    return [word for word in last.values() if word.helped is not None]


def _of_both(older: SourceWrites, newer: SourceWrites) -> SourceWrites:
    """A source whose writes are sealed in part."""
    return newer._replace(
        writes=older.writes + newer.writes,
        records=older.records + newer.records,
        first_at=min(known([older.first_at, newer.first_at])),
        last_at=max(known([older.last_at, newer.last_at])),
    )


_SHOWN_RETRIEVALS = 20
_NEWEST_WORDS = 1_000
"""Of so many words on results, the newest, a preamble is ordered."""
_CONTEXT = "the context of a run"
_ERASED = "erased"


class Log(ServiceModule):
    """A company's operation log, as a caller may see it."""

    @in_thread
    def page(
        self,
        caller: Caller,
        chosen: Filter | None = None,
        *,
        limit: int = 100,
        before: int | None = None,
        after: int | None = None,
    ) -> OperationPage:
        """Return a page of the log, newest first; `after` gives the oldest ones above a `seq`.

        `chosen` None is everything, what is memtui's own too. For a row that
        is damaged stands one that only says so (`Operation.damaged`).
        """
        return self._of(caller).page(
            chosen or EVERYTHING, limit=limit, before=before, after=after, strict=False
        )

    @in_thread
    def scopes(self, caller: Caller, newest: int, *, removed: bool = False) -> list[Scope]:
        """Return the scopes that the newest so many operations had, the last used first.

        `removed`: also those whose namespace was removed, with no write since.
        """
        found = self._of(caller).scopes(newest)
        return [scope for scope, is_there in found.items() if is_there or removed]

    @in_thread
    def newest(self, caller: Caller) -> int:
        """Return the number of the company's newest operation, whoever may see that; 0: none yet.

        It costs one row, so that who follows the log may ask often.
        """
        self._runtime.visibility(caller)
        with self._runtime.database.read() as database:
            return last_seq(database, caller.company_id)

    def _of(self, caller: Caller) -> CompanyLog:
        return self._runtime.log_of(caller)

    @in_thread
    def get(self, caller: Caller, operation_id: str) -> Operation:
        """Return an operation by its id, the beginning of it, or its `seq`.

        Raises:
            NotFound: none is named so.
            Invalid: several are.
        """
        return self._get(caller, operation_id)

    def _get(self, caller: Caller, operation_id: str) -> Operation:
        return self._of(caller).named(operation_id)

    @in_thread
    def by_ids(self, caller: Caller, operation_ids: Sequence[str]) -> tuple[Operation, ...]:
        """Return the operations with these ids that the caller sees, newest first; as `page`."""
        return self._of(caller).by_ids(operation_ids, strict=False)

    @in_thread
    def problem(self, caller: Caller, operation_id: str) -> str | None:
        """Return what is wrong with an operation as it stands in the log; None: nothing."""
        found = self._get(caller, operation_id)
        with self._runtime.database.read() as database:
            salt = company_salt(database, caller.company_id)
        return _problem(found, salt)

    @in_thread
    def problems(self, caller: Caller, newest: int) -> list[str]:
        """Return what is wrong with some of the newest so many operations, newest first."""
        found = self._of(caller).page(EVERYTHING, limit=newest, strict=False).operations
        with self._runtime.database.read() as database:
            salt = company_salt(database, caller.company_id)
        return [problem for one in found if (problem := _problem(one, salt))]

    @in_thread
    def changes(self, caller: Caller, operation_id: str) -> tuple[Change, ...]:
        """Return each record before and after an operation."""
        found = self._get(caller, operation_id)
        with self._runtime.database.read() as database:
            steps = journal.record_steps(database, found)
        visibility = self._runtime.visibility(caller)
        return tuple(received(caller, change_of(found, step, visibility)) for step in steps)

    @in_thread
    def found_outcome(self, caller: Caller, operation_id: str) -> OutcomeCheck | None:
        """Return what a check found of an operation of unknown outcome; None: nothing yet."""
        asked = self._get(caller, operation_id)
        with self._runtime.database.read() as database:
            return _found_of(database, caller, asked)

    @in_thread
    def found_outcomes(
        self, caller: Caller, operations: Iterable[Operation]
    ) -> dict[str, OutcomeCheck]:
        """Return what checks found of those of unknown outcome among `operations`, by their id."""
        asked = [one.operation_id for one in operations if one.status is OperationStatus.UNKNOWN]
        if not asked:
            return {}
        seen = self._of(caller).by_ids(asked, strict=False)
        with self._runtime.database.read() as database:
            return {
                one.operation_id: found
                for one in seen
                if (found := _found_of(database, caller, one)) is not None
            }

    @in_thread
    def undone_by(self, caller: Caller, operation_id: str) -> Operation | None:
        """Return what took a change back and is, or was then, in force; None: nothing it sees."""
        asked = self._get(caller, operation_id)
        with self._runtime.database.read() as database:
            found = journal.undone_by(
                database, caller.company_id, asked.operation_id, until=caller.as_of
            )
        return next(iter(self._of(caller).by_ids([found], strict=False)), None) if found else None

    @in_thread
    def erasures(self, caller: Caller, found: Operation) -> tuple[Erasure, ...]:
        """Return the purges that took values out of an operation, the oldest first."""
        found = self._get(caller, found.operation_id)
        gone = {
            path
            for path, absent in found.absent.items()
            if not (absent.withheld and path in found.salts)
        }
        result: list[Erasure] = []
        # Who erased a value is told to whoever may see the operation that it was in.
        whole = self._runtime.log(caller.company_id)
        purges = Filter(operation_type=OperationType.PURGE)
        for purge in whole.each(purges, after=found.seq) if gone else ():
            named = {
                path for seqs, paths in purged(purge) if found.seq in seqs for path in paths & gone
            }
            if named:
                fields = tuple(sorted(named))
                result.append(Erasure.like(purge, fields=fields, at=purge.started_at))
            gone -= named
            if not gone:
                break
        return tuple(result)

    @in_thread
    def provenance(self, caller: Caller, binding_key: str, handle: RecordHandle) -> Provenance:
        """Return who wrote and changed a record, and which queries returned it."""
        own, place = self._of(caller), (binding_key, handle.provider_record_id)
        with self._runtime.database.read() as database:
            ids = journal.ids_of(database, caller.company_id, *place)
        changes = (change for one in ids for change in own.mutations_of_record(binding_key, one))
        mutations = own.by_ids(list(dict.fromkeys(changes)), ids)
        found = [own.retrievals(binding_key, one, _SHOWN_RETRIEVALS) for one in ids]
        reads = [one for _, some in found for one in some]
        reads.sort(key=lambda one: -one.operation.seq)
        said = Counter(word.helped for word in own.words(binding_key, ids[:1]))
        written = (
            one
            for one in reversed(mutations)
            if (one.operation_type, one.status) == (OperationType.WRITE, OperationStatus.OK)
        )
        return Provenance(
            handle=handle,
            written=next(written, None),
            mutations=mutations,
            retrieval_count=sum(count for count, _ in found),
            helped=said[True],
            not_helped=said[False],
            retrievals=tuple(
                Retrieval.like(
                    read.operation,
                    at=read.operation.started_at,
                    rank=read.rank,
                    score=read.score,
                    query=_asked(read.operation.request),
                    run_id=read.operation.scope.run_id,
                )
                for read in reads[:_SHOWN_RETRIEVALS]
            ),
        )

    @in_thread
    def sources(
        self, caller: Caller, chosen: Filter | None = None, *, limit: int = 100
    ) -> tuple[WriteSource, ...]:
        """Return what wrote memories lately: runs, issues, comments, documents; the newest first.

        `chosen` narrows the writes that count.
        """
        log = self._of(caller)
        found = log.sources(caller.by_then(chosen), limit)
        numbers = [one.last_seq for one in found]
        last = {one.seq: one for one in log.by_seqs(numbers, strict=False)}
        return tuple(
            _write_source(one, last[one.last_seq]) for one in found if one.last_seq in last
        )

    @in_thread
    def retrieval_stats(
        self, caller: Caller, binding_key: str, record_ids: Sequence[str]
    ) -> dict[str, RetrievalCount]:
        """Return how often each record was returned by a query, when last, and whether it helped.

        Records that were never returned are absent.
        """
        if not record_ids:
            return {}
        log = self._of(caller)
        counts = log.retrieval_counts(binding_key, record_ids)
        said = Counter((word.record_id, word.helped) for word in log.words(binding_key, [*counts]))
        return {
            record_id: RetrievalCount.like(
                reads,
                count=reads.times,
                helped=said[record_id, True],
                not_helped=said[record_id, False],
            )
            for record_id, reads in counts.items()
        }


def _found_of(database: DatabaseConnection, caller: Caller, one: Operation) -> OutcomeCheck | None:
    return journal.found_of(database, caller.company_id, one.operation_id, until=caller.as_of)


def _problem(one: Operation, salt: bytes) -> str | None:
    if one.damaged:
        return one.error_message
    return None if is_intact(one, salt) else why_altered(one.seq)


def _write_source(one: SourceWrites, last: Operation) -> WriteSource:
    kind, *ids, run_id = one.named
    source = last.source or SourceRef(
        kind=as_member(SourceKind, kind),
        company_id=last.scope.company_id,
        **dict(zip(SOURCE_IDS, ids, strict=True)),
    )
    return WriteSource(
        source=source,
        run_id=run_id if last.damaged else last.scope.run_id,
        writes=one.writes,
        records=one.records,
        first_at=min(known([one.first_at])),
        last_at=max(known([one.last_at])),
        operation_id=last.operation_id,
        principal=last.principal,
        channel=last.channel,
        agent_id=last.scope.agent_id,
        binding_key=last.binding_key,
        problem=last.error_message if last.damaged else None,
    )


def _asked(request: Json) -> str:
    return str(request["query"] or _ERASED) if "query" in request else _CONTEXT
