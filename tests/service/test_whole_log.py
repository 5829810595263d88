"""What the service answers is the same however much of the log is sealed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from memtui.config import Paths, load_settings
from memtui.contract import (
    Filter,
    Invalid,
    NotFound,
    OperationStatus,
    OperationType,
    Scope,
    Usage,
)
from memtui.service import MemoryService, open_service
from memtui.service.home.imports import ForeignOperation
from memtui.store.operation import OperationDraft, OperationHandle
from tests.analytics.logs import seal_unlogged as seal
from tests.databases import ON_BOTH
from tests.service.scenario import ANA, SCOPE, START, play, told


class Clock:
    now = START

    def __call__(self) -> datetime:
        self.now += timedelta(hours=1)
        return self.now


@pytest.fixture
async def service(paths: Paths, database_url: str) -> AsyncIterator[MemoryService]:
    settings = load_settings(paths, database_url=database_url)
    opened = await open_service(paths, settings, clock=Clock())
    yield opened
    await opened.close()


@ON_BOTH
async def test_every_answer_is_the_same_however_much_is_sealed(
    service: MemoryService, paths: Paths, database_url: str
) -> None:
    kept = await play(service)
    before = await told(service, kept)
    assert before["retrieval"]
    assert before["metrics"].contexts == 2
    for part in (9,) if database_url else (4, 9):
        moment = (await service.log.get(ANA, str(part + 1))).started_at
        database = service.analysis.database
        report = seal(database, paths.archive, "local", before=moment)
        assert report.sealed_through == part
        after = await told(service, kept)
        for name, answer in before.items():
            assert after[name] == answer, f"{name}, {part} sealed"


@ON_BOTH
async def test_what_is_sealed_can_be_taken_back(service: MemoryService) -> None:
    kept = await play(service)
    forget = (await service.log.page(ANA, Filter(operation_type=OperationType.FORGET))).operations
    await service.analysis.seal(ANA, everything=True)
    answer = await service.undo(ANA, forget[0].operation_id)
    assert answer.records[0].text == "A note of {operations} and 'quotes'"
    history = await service.history(ANA, kept[1], SCOPE)
    assert [change.operation.operation_type for change in history.changes] == ["correct", "write"]
    await service.analysis.seal(ANA, everything=True)
    undone = await service.undoable(ANA)
    assert forget[0].operation_id not in [one.operation.operation_id for one in undone]
    redone = await service.undo(ANA, answer.operation_id)
    assert redone.undoes == answer.operation_id


async def test_what_nobody_logged_is_not_found_in_the_archive(service: MemoryService) -> None:
    await play(service)
    await service.analysis.seal(ANA, everything=True)
    for asked in ("nothing-like-this", "99999", "' OR true --"):
        with pytest.raises(NotFound):
            await service.log.get(ANA, asked)


async def test_an_imported_context_may_say_anything(service: MemoryService) -> None:
    handle = OperationHandle(rank=1, provider_key="theirs", provider_record_id="r1")
    said: list[dict[str, object]] = [
        {"delivered": True, "tokens": "many", "model": 7, "budget": [], "sections": "x"},
        {"delivered": True, "tokens": 10**30, "text": {"a": 1}, "sections": {"a": "b"}},
        {"delivered": "\x00\ud800", "tokens": {"a": 1}, "text": "told", "budget": "none"},
        {"delivered": False, "tokens": 7},
        {"tokens": 40, "delivered": True, "text": "told", "topic": [1]},
    ]
    drafts = [
        OperationDraft(
            operation_id="",
            operation_type=OperationType.CONTEXT,
            status=OperationStatus.OK,
            scope=Scope(company_id="theirs", agent_id="a", run_id="r-1"),
            principal="agent:a",
            channel="import",
            request={"imported": {"line": number}, **one},
            handles=(handle,),
            usage=(Usage(provider="p", cost_usd=Decimal(9_000_000)),),
            started_at=datetime(2026, 3, 1, 12, number, tzinfo=UTC),
            latency_ms=None,
        )
        for number, one in enumerate(said)
    ]
    given = [ForeignOperation(one, f"own-id-{number:016}") for number, one in enumerate(drafts)]
    await service.imports.append(ANA, "theirs", given, name="Theirs", asked={})
    reader = ANA.model_copy(update={"company_id": "theirs"})
    for _ in range(2):
        [run] = (await service.runs.page(reader)).runs
        assert (run.contexts, run.tokens_given, run.cost_usd) == (4, 40, Decimal(45_000_000))
        days = await service.metrics.facts(reader, datetime(2026, 3, 1, tzinfo=UTC))
        assert (days.contexts, days.contexts_delivered, days.most_context_tokens) == (2, 1, 40)
        steps = (await service.runs.replay(reader, "r-1")).steps
        assert [one.context and one.context.text for one in steps] == [
            None, None, "told", None, "told",
        ]  # fmt: skip
        assert {(one.state, one.why) for step in steps for one in step.records} == {
            ("unread", "No binding of this company holds it.")
        }
        with pytest.raises(Invalid, match="not a request to memtui"):
            await service.runs.assembled_now(reader, steps[-1].operation.operation_id)
        seal(service.analysis.database, service.paths.archive, "theirs")
