"""Kill a writer at any moment, and let many write at once: nothing acknowledged is ever lost."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from memtui.config import Paths, Settings
from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    OperationStatus,
    Scope,
    SourceRef,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, Operation, open_service
from memtui.store import appending
from memtui.store.digest import is_intact
from tests.journeys.writer import work
from tests.processes import heard_to_its_end, speaking

pytestmark = pytest.mark.slow

KILLS = 15
WRITERS = 8
ROUNDS = 15


class Ledger:
    """What a writer was told, and what it was in the middle of."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.forgotten: set[str] = set()
        self.acknowledged = 0

    def read(self, facts: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
        """Take in a writer's words; returns what it was trying when they ended."""
        trying: dict[str, Any] | None = None
        for fact in facts:
            if "trying" in fact:
                trying = fact
            elif "done" in fact:
                trying = None
                self.acknowledged += 1
                if fact["done"] == "forget":
                    self.held.pop(fact["id"], None)
                    self.forgotten.add(fact["id"])
                else:
                    self.held[fact["id"]] = fact["text"]
        return trying

    def set_aside(self, trying: dict[str, Any] | None) -> None:
        """A record in the middle of a change may be either way."""
        if trying is not None and "id" in trying:
            self.held.pop(trying["id"], None)


async def everything(service: MemoryService, caller: Caller) -> dict[str, str]:
    scope = Scope(company_id="local")
    found: dict[str, str] = {}
    cursor = None
    while True:
        page = await service.browse(caller, BrowseRequest(scope=scope, limit=500, cursor=cursor))
        found |= {record.handle.provider_record_id: record.text for record in page.records}
        cursor = page.next_cursor
        if cursor is None:
            return found


async def whole_log(service: MemoryService, caller: Caller) -> list[Operation]:
    page = await service.log.page(caller, limit=100_000)
    return list(page.operations)[::-1]


async def test_a_killed_writer_leaves_nothing_half_done(
    paths: Paths, settings: Settings, caller: Caller
) -> None:
    chance = random.Random(20)
    ledger = Ledger()
    mutations = 0
    for kill in range(KILLS):
        writer, said = speaking(work, paths.data, f"w{kill}", None)
        assert said.recv() == {"ready": True}
        facts = [said.recv() for _ in range(chance.randint(1, 8))]
        time.sleep(chance.uniform(0.0, 0.02))
        writer.kill()
        trying = ledger.read([*facts, *heard_to_its_end(said)])
        writer.join()
        ledger.set_aside(trying)
        mutations += trying is not None

    service = await open_service(paths, settings)
    try:
        found = await everything(service, caller)
        assert {record_id: found.get(record_id) for record_id in ledger.held} == ledger.held
        assert not ledger.forgotten & found.keys()
        assert ledger.acknowledged > KILLS
        log = await whole_log(service, caller)
        assert [operation.seq for operation in log] == list(range(1, len(log) + 1))
        assert all(is_intact(operation) for operation in log)
        unknown = [one for one in log if one.status == OperationStatus.UNKNOWN]
        changes = [one for one in log if one.operation_type in {"write", "correct", "forget"}]
        assert 0 < len(unknown) <= mutations
        assert len(changes) - len(unknown) >= ledger.acknowledged
        for operation in unknown:
            outcome = await service.check_outcome(caller, operation.operation_id)
            assert outcome.happened is not None
        health = (await service.bindings.health(caller, "default")).health
        assert health.problems == ()
        assert await service.runtime.ask(appending.open_intents, caller.company_id) == []
    finally:
        await service.close()
    leftovers = [path for path in paths.data.rglob("projects/**/*") if path.name.startswith(".")]
    assert leftovers == []


async def test_many_writers_at_once(paths: Paths, settings: Settings, caller: Caller) -> None:
    first = await open_service(paths, settings)
    await first.close()
    writers = [speaking(work, paths.data, f"w{number}", ROUNDS) for number in range(WRITERS)]
    ledger = Ledger()
    for writer, said in writers:
        ledger.read(heard_to_its_end(said))
        writer.join()
        assert writer.exitcode == 0
    service = await open_service(paths, settings)
    try:
        found = await everything(service, caller)
        assert {record_id: found.get(record_id) for record_id in ledger.held} == ledger.held
        assert len(found) == len(ledger.held)
        log = await whole_log(service, caller)
        assert [operation.seq for operation in log] == list(range(1, len(log) + 1))
        assert all(is_intact(operation) for operation in log)
        mutations = [one for one in log if one.operation_type in {"write", "correct", "forget"}]
        assert len(mutations) == WRITERS * ROUNDS
        assert {one.status for one in mutations} == {OperationStatus.OK}
    finally:
        await service.close()


async def test_a_file_changed_on_disk_meanwhile_is_a_conflict(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    scope = Scope(company_id="local", project_id="p")
    source = SourceRef(kind="manual_note", company_id="local")
    request = WriteRequest(scope=scope, source=source, content="Deploys happen from main")
    [record] = (await service.write(caller, request)).records
    assert record.location is not None
    file = Path(record.location.path)
    file.write_text(file.read_text().replace("main", "release"))
    with pytest.raises(Conflict) as caught:
        await service.correct(
            caller,
            CorrectRequest(
                scope=scope, handle=record.handle, text="Deploys are gone", revision=record.revision
            ),
        )
    assert caught.value.current is not None
    assert caught.value.current.text == "Deploys happen from release"
    assert caught.value.proposed == "Deploys are gone"
    assert file.read_text().endswith("Deploys happen from release\n")
