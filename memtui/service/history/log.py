"""The operation log, sealed part included: operations, their changes, and reads of records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from memtui.analytics.company_log import CompanyLog
from memtui.contract import (
    EVERYTHING,
    Filter,
    OperationStatus,
    OperationType,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
)
from memtui.service.answers import (
    Change,
    Erasure,
    Provenance,
    Retrieval,
    RetrievalCount,
    TakenBackBy,
    WriteSource,
)
from memtui.service.history.narrowing import operations_asked
from memtui.service.operations.reading import change_of, received
from memtui.service.runtime import ServiceModule
from memtui.service.visibility import Caller
from memtui.store.database import DatabaseConnection
from memtui.store.details import Details
from memtui.store.digest import is_intact
from memtui.store.erasing import purged
from memtui.store.journal import Journal, OutcomeCheck
from memtui.store.limits import last_seq
from memtui.store.log import SOURCE_IDS, SourceWrites, company_salt, known
from memtui.store.operation import Operation, OperationPage, Parts, as_member, why_altered
from memtui.threads import in_thread

T = TypeVar("T")


_SHOWN_RETRIEVALS = 20
_CONTEXT = "the context of a run"
_ERASED = "erased"


class LoggedOperations(ServiceModule):
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
        folded: bool = False,
    ) -> OperationPage:
        """Return a page of the log, newest first; `after` gives the oldest ones above a `seq`.

        `chosen` None: everything, including memtui's internal operations. A placeholder stands for
        a damaged row (`Operation.damaged`). `folded`: as in `operations_asked`.
        """
        asked = operations_asked(self._runtime, caller, chosen, folded=folded)
        return self._of(caller).page(asked, limit=limit, before=before, after=after, strict=False)

    @in_thread
    def scopes(self, caller: Caller, newest: int, *, removed: bool = False) -> list[Scope]:
        """Return the scopes of the `newest` last operations, the last used first.

        `removed`: also scopes whose namespace was removed and not written to since.
        """
        found = self._of(caller).scopes(newest)
        return [scope for scope, is_there in found.items() if is_there or removed]

    @in_thread
    def newest(self, caller: Caller) -> int:
        """Return the `seq` of the company's newest operation, visible or not; 0: none yet.

        Reads one row, so following the log can poll it.
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
            NotFound: none matches.
            Invalid: several match.
        """
        return self._get(caller, operation_id)

    def _get(self, caller: Caller, operation_id: str) -> Operation:
        return self._of(caller).named(operation_id)

    @in_thread
    def by_ids(self, caller: Caller, operation_ids: Sequence[str]) -> tuple[Operation, ...]:
        """Return the visible operations with these ids, newest first; damaged ones as in `page`."""
        return self._of(caller).by_ids(operation_ids, strict=False)

    @in_thread
    def parts(self, caller: Caller, operations: Iterable[Operation]) -> dict[str, Parts]:
        """Return the questions over several bindings among `operations`, by operation id.

        They have the operations that the caller may see.
        """
        asked = [one for one in operations if one.part_of is None]
        found = self._of(caller).parts(asked)
        firsts = (one for one in asked if one.operation_id in found)
        return {one.operation_id: Parts.of([one, *found[one.operation_id]]) for one in firsts}

    @in_thread
    def problem(self, caller: Caller, operation_id: str) -> str | None:
        """Return why an operation's row in the log is damaged; None: it is not."""
        found = self._get(caller, operation_id)
        with self._runtime.database.read() as database:
            salt = company_salt(database, caller.company_id)
        return _problem(found, salt)

    @in_thread
    def problems(self, caller: Caller, newest: int) -> list[str]:
        """Return the damages among the `newest` last operations, newest first."""
        found = self._of(caller).page(EVERYTHING, limit=newest, strict=False).operations
        with self._runtime.database.read() as database:
            salt = company_salt(database, caller.company_id)
        return [problem for one in found if (problem := _problem(one, salt))]

    @in_thread
    def changes(self, caller: Caller, operation_id: str) -> tuple[Change, ...]:
        """Return each record before and after an operation."""
        found = self._get(caller, operation_id)
        with self._runtime.database.read() as database:
            steps = Journal(database, caller.company_id).record_steps(found)
            if caller.as_of is not None and found.status is OperationStatus.UNKNOWN:
                check = _found_of(database, caller, found)
                if check is None or check.happened is None:  # a later one found what it changed
                    steps = [(before, None) for before, _ in steps if before.record is not None]
        visibility = self._runtime.visibility(caller)
        return tuple(received(caller, change_of(found, step, visibility)) for step in steps)

    @in_thread
    def found_outcome(self, caller: Caller, operation_id: str) -> OutcomeCheck | None:
        """Return the finding of a check of an operation of unknown outcome; None: none yet."""
        asked = self._get(caller, operation_id)
        with self._runtime.database.read() as database:
            return _found_of(database, caller, asked)

    @in_thread
    def found_outcomes(
        self, caller: Caller, operations: Iterable[Operation]
    ) -> dict[str, OutcomeCheck]:
        """Return the findings of checks of `operations` of unknown outcome, by operation id."""
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

    async def with_found(
        self, caller: Caller, operations: Iterable[Operation], found: Mapping[str, OutcomeCheck]
    ) -> tuple[Operation, ...]:
        """Return operations with the records that checks found, where their outcome was unknown."""
        asked = [one.check_id for one in found.values() if one.happened]
        checks = {one.operation_id: one for one in await self.by_ids(caller, asked)}
        handles = {
            name: checks[one.check_id].handles
            for name, one in found.items()
            if one.check_id in checks
        }
        return tuple(
            one.model_copy(update={"handles": one.handles or handles.get(one.operation_id, ())})
            for one in operations
        )

    @in_thread
    def undone(self, caller: Caller, operation_ids: Sequence[str]) -> dict[str, TakenBackBy]:
        """Return by id what was undone of operations, now or at `as_of`; visible ones only."""
        log = self._of(caller)
        with self._runtime.database.read() as database:
            journal = Journal(database, caller.company_id)
            found = journal.taken_back(operation_ids, caller.as_of)
        named = [*found, *(back.undo_id for back in found.values())]
        seen = {one.operation_id: one for one in log.by_ids(named, strict=False)} if found else {}
        return {
            name: TakenBackBy.like(back, operation=seen[back.undo_id])
            for name, back in found.items()
            if name in seen and back.undo_id in seen
        }

    @in_thread
    def erasures(self, caller: Caller, found: Operation) -> tuple[Erasure, ...]:
        """Return the purges that erased values of an operation, oldest first."""
        found = self._get(caller, found.operation_id)
        gone = {
            path
            for path, absent in found.absent.items()
            if not (absent.withheld and path in found.salts)
        }
        result: list[Erasure] = []
        # Whoever may see an operation may also see who erased its values.
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
            journal = Journal(database, caller.company_id)
            ids = journal.ids_of(*place)
            # A write that was stored later has no handles in the log.
            stored = [journal.stored_by(binding_key, one) for one in ids]
        changes = (change for one in ids for change in own.mutations_of_record(binding_key, one))
        made = [one for one in stored if one is not None]
        mutations = own.by_ids(list(dict.fromkeys((*changes, *made))), ids)
        found = [own.retrievals(binding_key, one, _SHOWN_RETRIEVALS) for one in ids]
        reads = [one for _, some in found for one in some]
        reads.sort(key=lambda one: -one.operation.seq)
        said = Counter(word.helped for word in own.words(binding_key, ids[:1]))
        written = (
            one
            for one in reversed(mutations)
            if one.operation_type is OperationType.WRITE
            and (one.status is OperationStatus.OK or one.operation_id in made)
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
        """Return the sources of recent writes (runs, issues, comments, documents), newest first.

        `chosen` filters the writes.
        """
        log = self._of(caller)
        found = log.sources(operations_asked(self._runtime, caller, chosen), limit)
        numbers = [one.last_seq for one in found]
        last = {one.seq: one for one in log.by_seqs(numbers)}
        return tuple(
            _write_source(one, last[one.last_seq]) for one in found if one.last_seq in last
        )

    @in_thread
    def retrieval_stats(
        self, caller: Caller, binding_key: str, record_ids: Sequence[str]
    ) -> dict[str, RetrievalCount]:
        """Return how often queries returned each record, when last, and whether it helped.

        Records that were never returned are missing.
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
    return Journal(database, caller.company_id).found_of(one.operation_id, until=caller.as_of)


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
    return WriteSource.like(
        last,
        source=source,
        run_id=run_id if last.damaged else last.scope.run_id,
        writes=one.writes,
        records=one.records,
        first_at=min(known([one.first_at])),
        last_at=max(known([one.last_at])),
        agent_id=last.scope.agent_id,
        problem=last.error_message if last.damaged else None,
    )


def _asked(request: Details) -> str:
    return str(request["query"] or _ERASED) if "query" in request else _CONTEXT
