"""Look into the log: operations, what they changed, where a record came from and who read it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memtui.contract import Filter, Json, OperationStatus, OperationType, RecordHandle, SourceRef
from memtui.service.answers import (
    Caller,
    Change,
    CompanyView,
    Erasure,
    Provenance,
    Retrieval,
    RetrievalCount,
)
from memtui.service.core import Core
from memtui.service.reads import change_of
from memtui.service.undo import one
from memtui.store import intents, journal
from memtui.store.erasing import purged
from memtui.store.journal import Found
from memtui.store.operation import Operation, OperationDraft, OperationPage

_SHOWN_RETRIEVALS = 20
_PURGES = 200
_CONTEXT = "the context of a run"
_ERASED = "erased"
_PLACE = re.compile(r"\{(\w+)\}")


def operations(
    core: Core,
    caller: Caller,
    chosen: Filter,
    *,
    limit: int,
    before: int | None,
    after: int | None,
) -> OperationPage:
    """Return one page of the caller's log. Blocking."""
    return core.log.page(
        caller.company_id,
        chosen,
        limit=limit,
        before=before,
        after=after,
        sight=core.sight(caller),
    )


def operation(core: Core, caller: Caller, operation_id: str) -> Operation:
    """Return the operation that an id, its beginning or a `seq` names. Blocking."""
    found = core.log.by_id(caller.company_id, operation_id, core.sight(caller))
    return one(found, operation_id)


def changes_of(core: Core, caller: Caller, operation_id: str) -> tuple[Change, ...]:
    """Return each record before and after an operation. Blocking."""
    found = operation(core, caller, operation_id)
    with core.database.read() as database:
        steps = journal.steps(database, caller.company_id, found.operation_id)
    sight = core.sight(caller)
    return tuple(change_of(found, step, sight) for step in steps)


def found_of(core: Core, caller: Caller, operation_id: str) -> Found | None:
    """Return what a check found of an operation of unknown outcome. Blocking."""
    asked = operation(core, caller, operation_id)
    with core.database.read() as database:
        return journal.found_of(database, caller.company_id, asked.operation_id)


def erasures(core: Core, caller: Caller, found: Operation) -> tuple[Erasure, ...]:
    """Return the purges that took values out of an operation, the oldest first. Blocking."""
    found = operation(core, caller, found.operation_id)
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
        page = core.log.page(
            caller.company_id, chosen, limit=_PURGES, before=None, after=after, sight=None
        )
        if not page.operations:
            break
        for purge in reversed(page.operations):
            named = {
                path for seqs, paths in purged(purge) if found.seq in seqs for path in paths & gone
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


def provenance(core: Core, caller: Caller, binding_key: str, handle: RecordHandle) -> Provenance:
    """Return who wrote and changed a record, and which queries returned it. Blocking."""
    sight = core.sight(caller)
    place = caller.company_id, binding_key, handle.provider_record_id
    touched = core.log.mutations_of_record(*place, sight)
    mutations = core.log.by_ids(caller.company_id, touched, sight)
    count, rows = core.log.retrievals(*place, _SHOWN_RETRIEVALS, sight)
    writes = [
        mutation
        for mutation in mutations
        if mutation.operation_type is OperationType.WRITE and mutation.status is OperationStatus.OK
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


def _asked(request: Json) -> str:
    return str(request["query"] or _ERASED) if "query" in request else _CONTEXT


def retrieval_stats(
    core: Core, caller: Caller, binding_key: str, record_ids: Sequence[str]
) -> dict[str, RetrievalCount]:
    """Return how often each record was returned by a query, when last and at which rank.

    Records that were never returned are absent. Blocking.
    """
    if not record_ids:
        return {}
    counts = core.log.retrieval_counts(
        caller.company_id, binding_key, record_ids, core.sight(caller)
    )
    return {
        record_id: RetrievalCount(
            count=reads.times, last_at=reads.last_at, last_rank=reads.last_rank
        )
        for record_id, reads in counts.items()
    }


def in_flight(core: Core, caller: Caller) -> int:
    """Return how many of the company's mutations that the caller may see run now. Blocking."""
    sight = core.sight(caller)
    with core.database.read() as database:
        waiting = intents.pending(database, caller.company_id)
    drafts = (OperationDraft.model_validate(row.draft) for row in waiting)
    return sum(sight is None or sight.sees(draft) for draft in drafts)


def link(source: SourceRef, company: CompanyView) -> str | None:
    """Return the URL or path that a source opens at: the company's template, else its reference.

    None where the template's places cannot all be filled.
    """
    template = company.link_templates.get(source.kind)
    if template is None:
        return source.external_ref
    values = source.model_dump()
    if any(values.get(name) is None for name in _PLACE.findall(template)):
        return source.external_ref
    return _PLACE.sub(lambda match: _in_url(str(values[match[1]])), template)


def _in_url(value: str) -> str:
    from urllib.parse import quote

    return quote(value, safe="", errors="replace")
