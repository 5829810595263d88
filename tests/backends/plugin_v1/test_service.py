"""The adapter behind the service: undo, ghosts, unknown outcomes, and a plugin that is down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from memtui.backends.plugin_v1 import PluginAdapter
from memtui.config import Paths, Settings
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    ForgetRequest,
    Invalid,
    OperationStatus,
    QueryRequest,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteMode,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, open_service

from .conftest import Serve
from .servers.loopback import talk
from .servers.minimal import Minimal
from .servers.nasty import TRICKS, Nasty

SCOPE = Scope(company_id="local", project_id="web")
SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")


@pytest_asyncio.fixture
async def service(paths: Paths, settings: Settings) -> AsyncIterator[MemoryService]:
    opened = await open_service(paths, settings, providers={PluginAdapter.key: PluginAdapter})
    yield opened
    await opened.close()


async def bind(service: MemoryService, caller: Caller, url: str, *, seconds: float = 10) -> None:
    config = {"url": url, "timeout_seconds": seconds}
    await service.bindings.add(caller, "plugin", PluginAdapter.key, config)
    await service.bindings.set_target(caller, "company", "local", "plugin")


def request(content: str, **fields: object) -> WriteRequest:
    values = {"scope": SCOPE, "source": SOURCE, "content": content, **fields}
    return WriteRequest.model_validate(values)


async def texts(service: MemoryService, caller: Caller) -> list[str]:
    page = await service.browse(caller, BrowseRequest(scope=SCOPE, sort="created_at"))
    return [record.text for record in page.records]


async def test_everything_can_be_undone(
    service: MemoryService, caller: Caller, serving: Serve
) -> None:
    await bind(service, caller, await serving(Nasty()))
    written = await service.write(caller, request("One.", record_id="notes/one"))
    record = written.records[0]
    await service.write(
        caller, request("One, replaced.", record_id="notes/one", mode=WriteMode.UPSERT)
    )
    await service.undo(caller)
    assert await texts(service, caller) == ["One."]
    await service.correct(caller, CorrectRequest(scope=SCOPE, handle=record.handle, text="Two."))
    assert await texts(service, caller) == ["Two."]
    await service.undo(caller)
    assert await texts(service, caller) == ["One."]
    await service.forget(caller, ForgetRequest(scope=SCOPE, handles=(record.handle,)))
    assert await texts(service, caller) == []
    undone = await service.undo(caller)
    assert undone.handles == (record.handle,)
    assert (await service.get(caller, record.handle, SCOPE)).record.created_at == record.created_at


async def test_where_ids_are_not_kept_the_new_one_is_linked(
    service: MemoryService, caller: Caller, serving: Serve
) -> None:
    await bind(service, caller, await serving(talk(Minimal("propagation"))))
    old = (await service.write(caller, request("Old."))).handles[0]
    answer = await service.correct(caller, CorrectRequest(scope=SCOPE, handle=old, text="New."))
    assert answer.linked == {old.provider_record_id: answer.handles[0].provider_record_id}
    assert answer.ghosts == ()
    assert (await service.get(caller, old, SCOPE)).record.text == "New."
    await service.correct(caller, CorrectRequest(scope=SCOPE, handle=old, text="Newest."))
    for text, replaced in (("New.", "Newest."), ("Old.", "New.")):
        [asked, *_] = await service.undoable(caller)
        undone = await service.undo(caller)
        redo = await service.undo_candidate(caller, undone.operation_id)
        assert await texts(service, caller) == [text]
        for one, (before, after) in ((asked, (text, replaced)), (redo, (replaced, text))):
            assert one.records == 1  # whatever ids it had
            assert one.before is not None
            assert one.record is not None
            assert (one.before.text, one.record.text) == (before, after)
            [change] = await service.log.changes(caller, one.operation.operation_id)
            assert (change.before, change.after) == (one.before, one.record)
    await service.undo(caller)
    assert await texts(service, caller) == []


async def test_a_record_that_stays_is_a_ghost(
    service: MemoryService, caller: Caller, serving: Serve
) -> None:
    nasty = Nasty(path="/v1/memories")
    await bind(service, caller, await serving(nasty))
    handle = (await service.write(caller, request("Haunts."))).handles[0]
    nasty.trick = TRICKS["a list"]
    answer = await service.forget(caller, ForgetRequest(scope=SCOPE, handles=(handle,)))
    assert answer.ghosts == (handle,)


async def test_a_write_without_an_answer_can_be_checked(
    service: MemoryService, caller: Caller, serving: Serve
) -> None:
    nasty = Nasty(path="/v1/", acts=True)
    await bind(service, caller, await serving(nasty), seconds=0.8)
    await service.write(caller, request("Makes the namespace."))
    nasty.trick = TRICKS["never answers"]
    with pytest.raises(Unavailable):
        await service.write(caller, request("Nobody knows about the pangolin."))
    nasty.trick = None
    operation = (await service.log.page(caller, limit=1)).operations[0]
    assert operation.status is OperationStatus.UNKNOWN
    assert (await service.check_outcome(caller, operation.operation_id)).happened


async def test_a_plugin_that_is_down_is_left_alone_after_three_failures(
    service: MemoryService, caller: Caller, serving: Serve
) -> None:
    nasty = Nasty(TRICKS["500 text"], path="/v1/search")
    await bind(service, caller, await serving(nasty))
    query = QueryRequest(scope=SCOPE, query="x")
    for _ in range(3):
        with pytest.raises(Unavailable, match="answered 500"):
            await service.query(caller, query)
    with pytest.raises(Unavailable, match="tried again in"):
        await service.query(caller, query)
    health = await service.bindings.health(caller, "plugin")
    assert health.breaker_open


@pytest.mark.parametrize("name", ["100 MB", "gzip bomb"])
async def test_a_reply_that_is_too_long_is_not_read_again(
    name: str, service: MemoryService, caller: Caller, serving: Serve
) -> None:
    sent = list[str]()

    async def counted(writer: asyncio.StreamWriter) -> bool:
        sent.append(name)
        return await TRICKS[name](writer)

    await bind(service, caller, await serving(Nasty(counted)))
    with pytest.raises(Unavailable, match="unreadable"):
        await service.query(caller, QueryRequest(scope=SCOPE, query="x"))
    assert sent == [name]


async def test_a_callers_mistake_opens_no_breaker(
    service: MemoryService, caller: Caller, serving: Serve
) -> None:
    await bind(service, caller, await serving(Nasty()))
    for _ in range(4):
        with pytest.raises(Invalid, match="NUL"):
            await service.write(caller, request("a\0b"))
    await service.write(caller, request("Fine."))
    assert await texts(service, caller) == ["Fine."]
