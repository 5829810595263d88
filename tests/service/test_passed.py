"""Calls that passed to another server, as the log has them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from memtui.contract import (
    Filter,
    OperationStatus,
    OperationType,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.service import Caller, MemoryService
from memtui.service.home.survey import PurgeRequest
from memtui.service.operations.passed import LongText, PassedCall
from memtui.store.unlogged import UnloggedCalls

KEY = "default"
AGENT = Caller(company_id="acme", principal="agent:coding", acts_for="user:ana", channel="wrap")
SCOPE = Scope(company_id="acme", agent_id="coding", project_id="apollo")
AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
TOKEN = "ghp_" + "a1B2" * 9


def call(does: OperationType, asked: str, returned: str, *ids: str) -> PassedCall:
    """Return a call that ended well."""
    return PassedCall(
        operation_type=does,
        tool="t",
        started_at=AT,
        latency_ms=4.0,
        asked=LongText.of(asked),
        arguments=LongText.of(asked),
        returned=LongText.of(returned),
        records=tuple((one, 0.5) for one in ids),
        status=OperationStatus.OK,
        error=None,
        hint=None,
    )


async def test_who_was_told_a_memory_counts_what_passed(
    service: MemoryService, caller: Caller
) -> None:
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="acme")
    request = WriteRequest(scope=SCOPE, source=source, content="quince jam", binding_key=KEY)
    written = (await service.write(caller, request)).handles[0]
    name = written.provider_record_id
    told = call(OperationType.QUERY, "jam", "quince jam", name)
    await service.passed.log(AGENT, SCOPE, KEY, [replace(told, run_id="r7")])
    stats = await service.log.retrieval_stats(caller, KEY, [name])
    assert stats[name].count == 1
    [run] = (await service.runs.page(caller)).runs
    assert run.run_id == "r7"
    story = await service.log.provenance(caller, KEY, written)
    assert story.retrieval_count == 1

    await service.purging.apply(caller, PurgeRequest(record_id=name, binding_key=KEY, forget=True))
    [one] = (await service.log.page(caller, Filter(channel="wrap"), limit=9)).operations
    assert "quince" not in one.model_dump_json()


async def test_secrets_and_long_texts_are_not_kept(service: MemoryService, caller: Caller) -> None:
    long = call(OperationType.GET, "x" * 3_990 + TOKEN, "y" * 1_000_000)
    await service.passed.log(AGENT, SCOPE, KEY, [long])
    [one] = (await service.log.page(caller, Filter(channel="wrap"), limit=9)).operations
    said = one.model_dump_json()
    assert TOKEN[:12] not in said
    assert len(said) < 20_000
    assert one.usage[0].input_tokens > 100_000


async def test_calls_and_gaps_are_logged_together_or_not_at_all(
    service: MemoryService, caller: Caller
) -> None:
    gap = UnloggedCalls(3, AT.timestamp(), AT.timestamp())
    await service.passed.log(AGENT, SCOPE, KEY, [gap, call(OperationType.WRITE, "a", "")])
    write, first = (await service.log.page(caller, Filter(channel="wrap"), limit=9)).operations
    assert (first.operation_type, first.status) == (OperationType.GAP, OperationStatus.ERROR)
    assert first.error_kind == "unavailable"
    assert write.source is not None
    assert write.source.kind is SourceKind.RUN
