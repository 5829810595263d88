"""Look into the log: operations, what they changed, where a record came from and who read it."""

from __future__ import annotations

from collections.abc import Sequence

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
from memtui.store import appending, journal
from memtui.store.erasing import purged
from memtui.store.journal import Found
from memtui.store.operation import Operation, OperationDraft, OperationPage

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
        count, rows = self._core.log.retrievals(*place, _SHOWN_RETRIEVALS, sight)
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
                    operation_id=row.operation_id,
                    seq=row.seq,
                    at=row.started_at,
                    rank=row.rank,
                    score=row.score,
                    query=_asked(row.request),
                    principal=row.principal,
                )
                for row in rows
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
