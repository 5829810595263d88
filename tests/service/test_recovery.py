"""What a process that was killed in the middle of a mutation leaves behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from multiprocessing.context import ForkServerProcess
from typing import Any

import pytest

from memtui.backends.mcp_memory import McpMemoryAdapter
from memtui.config import Paths, Settings
from memtui.contract import (
    CorrectRequest,
    Filter,
    ForgetRequest,
    Invalid,
    MemtuiError,
    OperationStatus,
    Record,
    Scope,
    Snapshot,
    SourceRef,
    Unavailable,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, Operation, open_service
from memtui.store import appending
from memtui.store.digest import is_intact
from tests.databases import ON_BOTH
from tests.processes import speaking
from tests.service import hanging
from tests.service.conftest import start
from tests.service.fake import FakeAdapter
from tests.service.hanging import BEFORE, SCOPE, TEXT

Hang = Callable[[str], ForkServerProcess]
UNKNOWN = Filter(status=OperationStatus.UNKNOWN)


@pytest.fixture
def hang(paths: Paths, settings: Settings) -> Iterator[Hang]:
    """Start a process that is inside of a mutation once this returns."""
    children: list[ForkServerProcess] = []

    def spawn(kind: str) -> ForkServerProcess:
        child, said = speaking(hanging.hang, paths.data, settings.database_url, kind)
        children.append(child)
        with said:
            assert said.recv() == "inside"
        return child

    yield spawn
    for child in children:
        die(child)


def die(child: ForkServerProcess) -> None:
    child.kill()
    child.join()


async def unknown(service: MemoryService, caller: Caller) -> list[Operation]:
    return list((await service.log.page(caller, UNKNOWN)).operations)


def held(*records: Record) -> None:
    store = FakeAdapter.records.setdefault("acme/default", {})
    store.clear()
    store.update({record.handle.provider_record_id: record for record in records})


@ON_BOTH
@pytest.mark.slow
@pytest.mark.parametrize("did", [False, True])
@pytest.mark.parametrize(
    ("kind", "before", "happened"),
    [
        ("forget", (BEFORE,), ()),
        ("correct", (BEFORE,), (BEFORE.model_copy(update={"text": TEXT, "revision": "2"}),)),
        ("write", (), (BEFORE.model_copy(update={"text": TEXT}),)),
    ],
)
async def test_a_killed_mutation_shows_once_as_unknown_and_can_be_checked(
    paths: Paths, settings: Settings, caller: Caller, fake, hang: Hang,
    kind: str, before: tuple[Record, ...], happened: tuple[Record, ...], *, did: bool,
) -> None:  # fmt: skip
    die(hang(kind))
    for _ in range(2):
        service = await start(paths, settings, caller)
        [operation] = await unknown(service, caller)
        assert await service.runtime.ask(appending.open_intents, caller.company_id) == []
        await service.close()
    assert (operation.operation_type, operation.error_kind) == (kind, "interrupted")
    assert (operation.principal, operation.channel) == ("agent:coding", "mcp")
    assert (operation.asked_scope, operation.binding_key) == (SCOPE, "default")
    assert is_intact(operation)

    service = await start(paths, settings, caller)
    try:
        changes = await service.log.changes(caller, operation.operation_id)
        assert [(change.before, change.after) for change in changes] == [
            (record, None) for record in before
        ]
        with pytest.raises(Invalid, match="outcome is unknown"):
            await service.undo(caller, operation.operation_id)
        with pytest.raises(Invalid, match=r"last change, .* cannot be undone\. .*ops check"):
            await service.undo(caller)
        held(*(happened if did else before))
        found = await service.check_outcome(caller, operation.operation_id)
        assert found.happened is did
        held(*(before if did else happened))
        assert await service.check_outcome(caller, operation.operation_id) == found
        candidates = await service.undoable(caller)
        named = [one.operation.operation_id for one in candidates]
        assert named == ([operation.operation_id] if did else [])
        assert [one.why_not for one in candidates if one.why_not] == []
        log = await service.log.page(caller)
        assert [o.seq for o in log.operations] == list(range(log.total, 0, -1))
    finally:
        await service.close()


@pytest.mark.slow
async def test_what_a_living_process_does_is_left_to_it(
    paths: Paths, settings: Settings, caller: Caller, fake, hang: Hang
) -> None:
    child = hang("forget")
    for _ in range(2):
        service = await start(paths, settings, caller)
        assert await unknown(service, caller) == []
        assert len(await service.runtime.ask(appending.open_intents, caller.company_id)) == 1
        await service.close()
    die(child)
    service = await start(paths, settings, caller)
    assert len(await unknown(service, caller)) == 1
    await service.close()


@ON_BOTH
@pytest.mark.slow
async def test_services_that_open_at_once_recover_once(
    paths: Paths, settings: Settings, caller: Caller, fake, hang: Hang
) -> None:
    die(hang("forget"))
    services = await asyncio.gather(*(start(paths, settings, caller) for _ in range(4)))
    assert len(await unknown(services[0], caller)) == 1
    for service in services:
        await service.close()


@ON_BOTH
async def test_the_first_start_may_happen_twice_at_once(
    paths: Paths, settings: Settings, fake
) -> None:
    services = await asyncio.gather(
        *(open_service(paths, settings, providers={"vault": FakeAdapter}) for _ in range(3))
    )
    local = Caller(company_id="local", principal="p", channel="test")
    assert [company.company_id for company in await services[0].companies.all()] == ["local"]
    assert [binding.key for binding in await services[1].bindings.all(local)] == ["default"]
    for service in services:
        await service.close()


async def test_a_service_that_closes_waits_for_its_mutations(
    paths: Paths, settings: Settings, caller: Caller, fake, note: WriteRequest, monkeypatch
) -> None:
    service = await start(paths, settings, caller)
    inside, release = asyncio.Event(), asyncio.Event()
    plain = FakeAdapter.write

    async def write(self, request):
        inside.set()
        await release.wait()
        return await plain(self, request)

    monkeypatch.setattr(FakeAdapter, "write", write)
    task = asyncio.ensure_future(service.write(caller, note))
    await inside.wait()
    assert len(await service.runtime.ask(appending.open_intents, caller.company_id)) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    closing = asyncio.ensure_future(service.close())
    await asyncio.sleep(0)
    assert not closing.done()
    release.set()
    await closing
    again = await start(paths, settings, caller)
    [operation] = (await again.log.page(caller, limit=1)).operations
    assert (operation.operation_type, operation.status) == ("write", "ok")
    assert len(await again.undoable(caller)) == 1
    await again.close()


class Clock:
    now = datetime(2026, 3, 9, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@ON_BOTH
async def test_an_intent_of_another_machine_is_left_until_it_is_old(
    paths: Paths, settings: Settings, caller: Caller, fake, note: WriteRequest, monkeypatch
) -> None:
    """And should its process live after all, the outcome is logged as well."""
    settings = settings.model_copy(update={"provider_timeout_ms": 60_000})
    await (await start(paths, settings, caller)).close()
    clock = Clock()

    async def opened(home: Paths) -> MemoryService:
        return await open_service(
            home, settings, clock=clock, providers={"fake": FakeAdapter}, first_company=False
        )

    elsewhere = await opened(paths)
    sessions = elsewhere._runtime.recorder.sessions
    monkeypatch.setattr(type(sessions), "place", property(lambda self: f"host of {id(self)}"))
    here: list[MemoryService] = []
    found: list[int] = []
    plain = FakeAdapter.write

    async def write(self, request):
        for minutes in (0, 14, 16):
            clock.now = Clock.now + timedelta(minutes=minutes)
            here.append(await opened(paths))
            found.append(len(await unknown(here[-1], caller)))
        return await plain(self, request)

    monkeypatch.setattr(FakeAdapter, "write", write)
    answer = await elsewhere.write(caller, note)
    assert found == [0, 0, 1]
    [lost] = await unknown(elsewhere, caller)
    assert lost.operation_id != answer.operation_id
    kept = await elsewhere.log.get(caller, answer.operation_id)
    assert kept.status == "ok"
    for service in (elsewhere, *here):
        await service.close()


async def test_an_intent_that_cannot_be_written_stops_the_mutation(
    paths: Paths, settings: Settings, caller: Caller, fake, note: WriteRequest, monkeypatch
) -> None:
    service = await start(paths, settings, caller)
    try:
        with service._runtime.database.write() as connection:
            connection.exec_driver_sql("DROP TABLE memory_intents")
        fake.calls.clear()
        with pytest.raises(MemtuiError, match="made by another version of memtui"):
            await service.write(caller, note)
        assert "write" not in fake.calls
    finally:
        await service.close()


@ON_BOTH
async def test_the_journal_and_the_intent_go_or_stay_together(
    paths: Paths, settings: Settings, caller: Caller, fake, note: WriteRequest, monkeypatch
) -> None:
    """A log that cannot be written keeps the intent, so that the next start tells of it."""
    service = await start(paths, settings, caller)
    handle = (await service.write(caller, note)).handles[0]
    record = FakeAdapter.records["acme/default"][handle.provider_record_id]

    def fail(*_args: object) -> None:
        raise MemtuiError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr("memtui.store.appending.record", fail)
        with pytest.raises(MemtuiError, match="disk is full"):
            await service.write(
                caller, note.model_copy(update={"record_id": handle.provider_record_id})
            )
    with service._runtime.database.read() as connection:
        [intent] = appending.open_intents(connection, "acme")
    assert [Snapshot.model_validate(value).record for value in intent.before] == [record]
    await service.close()
    again = await start(paths, settings, caller)
    [operation] = await unknown(again, caller)
    [change] = await again.log.changes(caller, operation.operation_id)
    assert change.before == record
    await again.close()


@pytest.mark.parametrize("change", ["correct", "write again"])
async def test_what_an_id_that_says_its_text_has_done_is_found_and_taken_back(
    new_paths: Paths, settings: Settings, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    scope = Scope(company_id="local", project_id="web")
    file = new_paths.data.parent / "memory.jsonl"
    source = SourceRef(kind="manual_note", company_id="local")
    note = WriteRequest(scope=scope, source=source, content="Deploys leave main", binding_key="m")
    service = await open_service(new_paths, settings)
    try:
        file.touch()
        await service.bindings.add(caller, "m", "mcp-memory", {"path": str(file), "settle_ms": 0})
        [handle] = (await service.write(caller, note)).handles
        if change == "write again":
            forget = ForgetRequest(scope=scope, handles=(handle,), binding_key="m")
            await service.forget(caller, forget)
        before = file.read_bytes()
        name = change.partition(" ")[0]

        async def do() -> None:
            if change != "correct":
                await service.write(caller, note)
                return
            request = CorrectRequest(scope=scope, handle=handle, text="From release")
            await service.correct(caller, request.model_copy(update={"binding_key": "m"}))

        real = getattr(McpMemoryAdapter, name)

        async def interrupted(self: McpMemoryAdapter, request: Any) -> Any:
            await real(self, request)
            raise RuntimeError("interrupted")

        with monkeypatch.context() as patched:
            patched.setattr(McpMemoryAdapter, name, interrupted)
            with pytest.raises(Unavailable, match="Outcome unknown") as failed:
                await do()
        operation_id = str(failed.value.operation_id)
        assert (await service.check_outcome(caller, operation_id)).happened
        assert file.read_bytes() != before
        if change == "correct":
            assert (await service.get(caller, handle, scope, binding_key="m")).record.text == (
                "From release"
            )
        await service.undo(caller, operation_id)
        assert file.read_bytes() == before
        [known] = new_paths.data.glob("bindings/*/m/known.json")
        assert len(json.loads(known.read_bytes())) == (2 if change == "correct" else 0)
    finally:
        await service.close()
