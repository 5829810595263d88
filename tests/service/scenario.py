"""A little of everything that a log can hold, and everything that it is asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from memtui.contract import (
    CorrectRequest,
    Filter,
    ForgetRequest,
    OperationType,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceRef,
    WriteRequest,
)
from memtui.service import Caller, MemoryService
from memtui.service.context.contexts import ContextRequest

ANA = Caller(company_id="local", principal="user:ana", channel="test")
FIRST, LAST = (ANA.model_copy(update={"run_id": one}) for one in ("run-1", "run-2"))
SCOPE = Scope(company_id="local", project_id="apollo", subject_id="ana")
SOURCE = SourceRef(kind="manual_note", company_id="local")
START = datetime(2026, 5, 1, 12, tzinfo=UTC)


async def play(service: MemoryService) -> list[RecordHandle]:
    """Do a little of everything, and return the records that are left."""
    kept = []
    for text in ("deploy_branch: release", "Prefers tabs", "A note of {operations} and 'quotes'"):
        request = WriteRequest(scope=SCOPE, source=SOURCE, content=text, kind="fact")
        kept.append((await service.write(ANA, request)).handles[0])
    for asked in ("deploy", "tabs", "note", "deploy branch", "nothing at all"):
        await service.query(FIRST, QueryRequest(scope=SCOPE, query=asked))
    fixed = CorrectRequest(scope=SCOPE, handle=kept[1], text="Prefers spaces")
    kept[1] = (await service.correct(FIRST, fixed)).handles[0]
    await service.forget(ANA, ForgetRequest(scope=SCOPE, handles=(kept.pop(),)))
    await service.context(LAST, ContextRequest(scope=SCOPE, delivered=True))
    await service.query(FIRST, QueryRequest(scope=SCOPE, query="deploy"))
    await service.context(ANA, ContextRequest(scope=SCOPE))
    return kept


async def pages(service: MemoryService, chosen: Filter) -> list[Any]:
    """Walk the log down and up in pages of three."""
    found: list[Any] = []
    before = None
    while True:
        page = await service.log.page(ANA, chosen, limit=3, before=before)
        found.append(page)
        if (before := page.next_before) is None:
            break
    found.extend([await service.log.page(ANA, chosen, limit=3, after=seq) for seq in (0, 2, 5, 9)])
    return found


async def told(service: MemoryService, kept: list[RecordHandle]) -> dict[str, Any]:
    """Everything that the log is asked for, without leaving anything in it."""
    whole = await service.log.page(ANA)
    ids = [one.provider_record_id for one in kept]
    until = START + timedelta(days=30)
    return {
        "whole": await pages(service, Filter(until=until)),
        "queries": await pages(service, Filter(operation_type=OperationType.QUERY, until=until)),
        "text": await pages(service, Filter(text="{operations} 'quotes'", until=until)),
        "provenance": [await service.log.provenance(ANA, "default", one) for one in kept],
        "retrieval": await service.log.retrieval_stats(ANA, "default", ids),
        "runs": [
            await service.runs.page(ANA, chosen, delivered=record, limit=limit)
            for chosen, record, limit in (
                (Filter(), None, 1),
                (Filter(operation_type=OperationType.CORRECT), None, 9),
                (Filter(run_id="run-2"), None, 9),
                *((Filter(), ("default", one), 9) for one in ids[:1]),
            )
        ],
        "undoable": await service.undoable(ANA),
        "metrics": await service.metrics.facts(ANA, START, until),
        "by id": [
            await service.log.get(ANA, one.operation_id[:20]) for one in whole.operations[-8:]
        ],
        "by seq": [await service.log.get(ANA, str(seq)) for seq in (1, 4, 9)],
        "changes": [
            await service.log.changes(ANA, one.operation_id) for one in whole.operations[-12:]
        ],
    }
