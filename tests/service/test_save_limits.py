"""How many memories an agent may write holds over processes, on both databases."""

from __future__ import annotations

import asyncio

import pytest

from memtui.config import Paths, load_settings
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Denied,
    Filter,
    OperationStatus,
    OperationType,
    Scope,
    WriteRequest,
)
from memtui.service import Caller, MemoryService
from tests.databases import ON_BOTH
from tests.service.conftest import start
from tests.service.fake import FakeAdapter

AGENT = Caller(company_id="acme", principal="agent:coding", channel="mcp", run_id="r1")


async def save(service: MemoryService, caller: Caller, note: WriteRequest) -> bool:
    """Whether it was saved; else the limit refused it."""
    try:
        await service.write(caller, note)
    except Denied:
        return False
    return True


@ON_BOTH
async def test_an_agent_saves_so_many_in_a_run_over_processes_and_a_person_any_number(
    paths: Paths,
    database_url: str,
    caller: Caller,
    note: WriteRequest,
    scope: Scope,
    fake: type[FakeAdapter],
) -> None:
    settings = load_settings(paths, saves_per_run=3, database_url=database_url)
    services = [await start(paths, settings, caller) for _ in range(2)]
    try:
        captured = AGENT.model_copy(update={"channel": "hook"})
        assert await save(services[0], captured, note)
        at_once = [save(services[number % 2], AGENT, note) for number in range(8)]
        assert sum(await asyncio.gather(*at_once)) == 3

        service = services[0]
        assert await save(service, AGENT.model_copy(update={"run_id": "r2"}), note)
        assert await save(service, captured, note)
        assert await save(service, caller.model_copy(update={"run_id": "r1"}), note)
        held = (await service.browse(caller, BrowseRequest(scope=scope))).records
        assert len(held) == 7
        changed = CorrectRequest(
            scope=scope, handle=held[0].handle, revision=held[0].revision, text="Now this"
        )
        await service.correct(AGENT, changed)

        refused = await service.log.page(caller, Filter(status=OperationStatus.DENIED))
        assert {one.operation_type for one in refused.operations} == {OperationType.WRITE}
        assert refused.total == 5
        assert refused.operations[0].error_message == (
            "agent:coding has saved 3 memories in this run and may save no more; correct or forget "
            "one that is there instead, or ask a person to raise the setting saves_per_run."
        )
    finally:
        for service in services:
            await service.close()


@pytest.mark.parametrize("undone", [False, True])
async def test_an_agent_saves_so_many_in_an_hour_whatever_its_run(
    paths: Paths, caller: Caller, note: WriteRequest, fake: type[FakeAdapter], undone: bool
) -> None:
    service = await start(paths, load_settings(paths, saves_per_hour=2), caller)
    try:
        assert await save(service, AGENT, note)
        await service.write(AGENT.model_copy(update={"run_id": None}), note)
        if undone:
            await service.undo(caller)
        assert not await save(service, AGENT.model_copy(update={"run_id": "r3"}), note)
        assert await save(service, AGENT.model_copy(update={"principal": "agent:other"}), note)
    finally:
        await service.close()
