"""The operation log: hot and sealed operations as one, what they changed, and who read a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from memtui.analytics.archive import log_ends, refuse_gap
from memtui.contract import (
    Filter,
    Invalid,
    Json,
    NotFound,
    OperationStatus,
    OperationType,
    RecordHandle,
)
from memtui.service.answers import Caller, Change, Erasure, Provenance, Retrieval, RetrievalCount
from memtui.service.core import Group, in_thread
from memtui.service.reads import change_of
from memtui.store import appending, erasing, journal, log, metrics
from memtui.store.connection import Connection
from memtui.store.database import Database
from memtui.store.erasing import purged
from memtui.store.journal import Found
from memtui.store.log import Reads, Retrieved
from memtui.store.metrics import ContextDay
from memtui.store.operation import Operation, OperationDraft, OperationPage
from memtui.store.sight import Sight

if TYPE_CHECKING:
    from memtui.analytics.sealed import Archive, Sealed
    from memtui.store.erasing import Aim


T = TypeVar("T")


class WholeLog:
    """Reads of one control plane's log. All are blocking; all raise `Unavailable`.

    What is out of a reader's sight is as if it were not there; None sees everything.
    """

    def __init__(self, database: Database, archive: Archive) -> None:
        self._database = database
        self._archive = archive

    def page(
        self,
        company_id: str,
        chosen: Filter,
        *,
        limit: int,
        before: int | None = None,
        after: int | None = None,
        sight: Sight | None = None,
    ) -> OperationPage:
        """Return one page, newest first: the newest below `before`, or the oldest above `after`."""

        def read(connection: Connection, above: int = 0) -> OperationPage:
            return log.page(
                connection,
                company_id,
                chosen,
                limit=limit,
                before=before,
                after=after,
                above=above,
                sight=sight,
            )

        hot, sealed = self._both(company_id, read)
        if not sealed.through:
            return hot
        if hot.next_before is not None or (after or 0) >= sealed.through:
            counted = sealed.ask(lambda one: log.count(one, company_id, chosen, sight=sight))
            return hot.model_copy(update={"total": hot.total + (counted or 0)})
        older = sealed.ask(read) or OperationPage(operations=(), total=0)
        total = hot.total + older.total
        found = (*hot.operations, *older.operations)
        if after is not None:
            return OperationPage(operations=found[-limit:], total=total)
        more = len(found) > limit or older.next_before is not None
        return OperationPage(
            operations=found[:limit],
            total=total,
            next_before=found[:limit][-1].seq if more else None,
        )

    def by_id(self, company_id: str, operation_id: str, sight: Sight | None) -> Sequence[Operation]:
        """Return the operation with this id, else this `seq`, else up to two whose id starts so."""

        def read(connection: Connection, _above: int = 0) -> tuple[Operation, ...]:
            return log.by_id(connection, company_id, operation_id, sight=sight)

        hot, sealed = self._both(company_id, read)
        if any(one.operation_id == operation_id for one in hot):
            return hot
        found = {one.seq: one for one in (*(sealed.ask(read) or ()), *hot)}
        exact = [one for one in found.values() if operation_id in {one.operation_id, str(one.seq)}]
        return exact[:1] or list(found.values())[:2]

    def by_ids(
        self, company_id: str, operation_ids: Sequence[str], sight: Sight | None
    ) -> tuple[Operation, ...]:
        """Return the operations with these ids, newest first."""
        hot, sealed = self._both(
            company_id, lambda one, _above: log.by_ids(one, company_id, operation_ids, sight=sight)
        )
        known = {one.operation_id for one in hot}
        missing = [one for one in operation_ids if one not in known]
        if not missing:
            return hot
        older = sealed.ask(lambda one: log.by_ids(one, company_id, missing, sight=sight))
        return (*hot, *(older or ()))

    def sealed(self, company_id: str, operation_ids: Sequence[str]) -> dict[str, datetime]:
        """Return when each of these operations began, those that are sealed.

        What the database held before this is asked, and holds no more, is sealed by now.
        """
        if not operation_ids:
            return {}
        found = self._archive.of(company_id).ask(lambda one: log.owners(one, operation_ids))
        return {operation_id: at for operation_id, (_, at) in (found or {}).items()}

    def oldest_sealed(self, company_id: str, limit: int) -> Sequence[Operation]:
        """Return the oldest operations that are sealed, newest first, whatever the database has."""
        oldest = range(1, limit + 1)
        found = self._archive.of(company_id).ask(lambda one: log.by_seqs(one, company_id, oldest))
        return sorted(found or (), key=lambda one: -one.seq)

    def sealed_through(self, company_id: str) -> int:
        """Return the highest sealed `seq`, 0 where nothing is sealed."""
        return self._archive.of(company_id).through

    def sealed_about(self, aim: Aim) -> Iterator[Operation]:
        """Return the sealed operations that a purge may be about, oldest first."""
        sealed = self._archive.of(aim.company_id)
        if sealed.through:
            with sealed.read() as connection:
                yield from erasing.operations(connection, aim, above=0)

    def latencies(
        self, company_id: str, binding_key: str, limit: int, sight: Sight | None
    ) -> list[float]:
        """Return the latencies of a binding's newest operations in milliseconds, oldest first."""

        def read(connection: Connection, above: int = 0) -> list[float]:
            return log.latencies(
                connection, company_id, binding_key, limit, above=above, sight=sight
            )

        hot, sealed = self._both(company_id, read)
        return hot if len(hot) == limit else [*(sealed.ask(read) or []), *hot][-limit:]

    def retrievals(
        self,
        company_id: str,
        binding_key: str,
        record_id: str,
        limit: int,
        sight: Sight | None,
    ) -> tuple[int, list[Retrieved]]:
        """Return how many reads returned a record, and the newest of them with rank and score."""

        def read(connection: Connection, above: int = 0) -> tuple[int, list[Retrieved]]:
            return log.retrievals(
                connection, company_id, binding_key, record_id, limit, above=above, sight=sight
            )

        (count, found), sealed = self._both(company_id, read)
        older, older_found = sealed.ask(read) or (0, [])
        return count + older, [*found, *older_found][:limit]

    def retrieval_counts(
        self,
        company_id: str,
        binding_key: str,
        record_ids: Sequence[str],
        sight: Sight | None,
    ) -> dict[str, Reads]:
        """Return how often each record was returned by a read; those never returned are absent."""

        def read(connection: Connection, above: int = 0) -> dict[str, Reads]:
            return log.retrieval_counts(
                connection, company_id, binding_key, record_ids, above=above, sight=sight
            )

        hot, sealed = self._both(company_id, read)
        older = sealed.ask(read) or {}
        for record_id, reads in hot.items():
            known = older[record_id].times if record_id in older else 0
            older[record_id] = reads._replace(times=reads.times + known)
        return older

    def mutations_of_record(
        self, company_id: str, binding_key: str, record_id: str, sight: Sight | None
    ) -> list[str]:
        """Return the ids of the mutations that touched a record."""

        def read(connection: Connection, _above: int = 0) -> list[str]:
            return log.mutations_of_record(
                connection, company_id, binding_key, record_id, sight=sight
            )

        hot, sealed = self._both(company_id, read)
        return list(dict.fromkeys((*hot, *(sealed.ask(read) or []))))

    def active(self, company_id: str, chosen: Filter, field: str, sight: Sight | None) -> set[str]:
        """Return the distinct values of an id among the successful operations of a filter.

        Configuring is left out.
        """

        def read(connection: Connection, above: int = 0) -> set[str]:
            return metrics.active(connection, company_id, chosen, field, above=above, sight=sight)

        hot, sealed = self._both(company_id, read)
        return hot | (sealed.ask(read) or set())

    def contexts_by_day(
        self, company_id: str, chosen: Filter, sight: Sight | None
    ) -> list[ContextDay]:
        """Return the days with contexts, the oldest first."""

        def read(connection: Connection, above: int = 0) -> list[ContextDay]:
            return metrics.contexts_by_day(connection, company_id, chosen, above=above, sight=sight)

        hot, sealed = self._both(company_id, read)
        days: dict[int, ContextDay] = {}
        for one in (*(sealed.ask(read) or []), *hot):
            days[one.day] = _joined(days[one.day], one) if one.day in days else one
        return list(days.values())

    def close(self) -> None:
        """Free what reading the sealed operations took."""
        self._archive.close()

    def _both(self, company_id: str, read: Callable[[Connection, int], T]) -> tuple[T, Sealed]:
        """Return what `read` finds in the database above what is sealed, and what is sealed.

        The two are of one moment: where a seal came between them, they are read again.
        """
        while True:
            sealed = self._archive.of(company_id)
            with self._database.read() as connection:
                found = read(connection, sealed.through)
            ends = log_ends(self._database, company_id)
            if (now := self._archive.of(company_id)).through == sealed.through:
                refuse_gap(now.manifest, ends)
                return found, now


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


_SHOWN_RETRIEVALS = 20
_PURGES = 200
_CONTEXT = "the context of a run"
_ERASED = "erased"


class Log(Group):
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
        """Return a page of the log, newest first; `after` gives the oldest ones above a `seq`."""
        return self._core.log.page(
            caller.company_id,
            chosen or Filter(),
            limit=limit,
            before=before,
            after=after,
            sight=self._core.sight(caller),
        )

    @in_thread
    def get(self, caller: Caller, operation_id: str) -> Operation:
        """Return an operation by its id, the beginning of it, or its `seq`.

        Raises:
            NotFound: none is named so.
            Invalid: several are.
        """
        return self._get(caller, operation_id)

    def _get(self, caller: Caller, operation_id: str) -> Operation:
        found = self._core.log.by_id(caller.company_id, operation_id, self._core.sight(caller))
        return one(found, operation_id)

    @in_thread
    def changes(self, caller: Caller, operation_id: str) -> tuple[Change, ...]:
        """Return each record before and after an operation."""
        found = self._get(caller, operation_id)
        with self._core.database.read() as database:
            steps = journal.steps(database, caller.company_id, found.operation_id)
        sight = self._core.sight(caller)
        return tuple(change_of(found, step, sight) for step in steps)

    @in_thread
    def found_outcome(self, caller: Caller, operation_id: str) -> Found | None:
        """Return what a check found of an operation of unknown outcome; None: nothing yet."""
        asked = self._get(caller, operation_id)
        with self._core.database.read() as database:
            return journal.found_of(database, caller.company_id, asked.operation_id)

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
        after = found.seq
        while gone:
            chosen = Filter(operation_type=OperationType.PURGE)
            # Who erased a value is told to whoever may see the operation that it was in.
            page = self._core.log.page(
                caller.company_id, chosen, limit=_PURGES, before=None, after=after, sight=None
            )
            if not page.operations:
                break
            for purge in reversed(page.operations):
                named = {
                    path
                    for seqs, paths in purged(purge)
                    if found.seq in seqs
                    for path in paths & gone
                }
                gone -= named
                if named:
                    result.append(
                        Erasure(
                            fields=tuple(sorted(named)),
                            operation_id=purge.operation_id,
                            at=purge.started_at,
                            principal=purge.principal,
                        )
                    )
            after = page.operations[0].seq
        return tuple(result)

    @in_thread
    def provenance(self, caller: Caller, binding_key: str, handle: RecordHandle) -> Provenance:
        """Return who wrote and changed a record, and which queries returned it."""
        sight = self._core.sight(caller)
        place = caller.company_id, binding_key, handle.provider_record_id
        touched = self._core.log.mutations_of_record(*place, sight)
        mutations = self._core.log.by_ids(caller.company_id, touched, sight)
        count, reads = self._core.log.retrievals(*place, _SHOWN_RETRIEVALS, sight)
        writes = [
            mutation
            for mutation in mutations
            if mutation.operation_type is OperationType.WRITE
            and mutation.status is OperationStatus.OK
        ]
        return Provenance(
            handle=handle,
            written=writes[-1] if writes else None,
            mutations=mutations,
            retrieval_count=count,
            retrievals=tuple(
                Retrieval(
                    operation_id=read.operation.operation_id,
                    seq=read.operation.seq,
                    at=read.operation.started_at,
                    rank=read.rank,
                    score=read.score,
                    query=_asked(read.operation.request),
                    principal=read.operation.principal,
                )
                for read in reads
            ),
        )

    @in_thread
    def retrieval_stats(
        self, caller: Caller, binding_key: str, record_ids: Sequence[str]
    ) -> dict[str, RetrievalCount]:
        """Return how often each record was returned by a query, when last and at which rank.

        Records that were never returned are absent.
        """
        if not record_ids:
            return {}
        counts = self._core.log.retrieval_counts(
            caller.company_id, binding_key, record_ids, self._core.sight(caller)
        )
        return {
            record_id: RetrievalCount(
                count=reads.times, last_at=reads.last_at, last_rank=reads.last_rank
            )
            for record_id, reads in counts.items()
        }

    @in_thread
    def in_flight(self, caller: Caller) -> int:
        """Return how many of the company's mutations that the caller may see run now."""
        sight = self._core.sight(caller)
        with self._core.database.read() as database:
            waiting = appending.pending(database, caller.company_id)
        drafts = (OperationDraft.model_validate(row.draft) for row in waiting)
        return sum(sight is None or sight.sees(draft) for draft in drafts)


def one(found: Sequence[Operation], asked: str) -> Operation:
    """Return the only operation that a person's id, prefix or number names.

    Raises:
        NotFound: none does.
        Invalid: several do.
    """
    if not found:
        raise NotFound(f"There is no operation {asked}; `memtui ops list` shows those there are.")
    if len(found) > 1:
        raise Invalid(f"{asked} is the beginning of several operation ids; give more of it.")
    return found[0]


def _asked(request: Json) -> str:
    return str(request["query"] or _ERASED) if "query" in request else _CONTEXT
