"""Who made each version of a memory, as the service tells it over mem0's open server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from memtui.config import Paths, Settings
from memtui.contract import CorrectRequest, RecordHandle, Scope, SourceRef, WriteRequest
from memtui.service import Caller, MemoryService, open_service

from .servers import OpenServer

CALLER = Caller(company_id="local", principal="user:ana", channel="test")
BEN = CALLER.model_copy(update={"principal": "user:ben"})
SCOPE = Scope(company_id="local", subject_id="ana")
SOURCE = SourceRef(kind="manual_note", company_id="local")


@pytest.fixture
async def service(
    paths: Paths, settings: Settings, server: OpenServer
) -> AsyncIterator[MemoryService]:
    opened = await open_service(paths, settings)
    await opened.bindings.add(CALLER, "mem0", "mem0", {"url": server.url})
    yield opened
    await opened.close()


async def correct(service: MemoryService, caller: Caller, it: RecordHandle, text: str) -> None:
    change = CorrectRequest(scope=SCOPE, handle=it, binding_key="mem0", text=text)
    await service.correct(caller, change)


async def told(service: MemoryService, it: RecordHandle) -> list[tuple[str, str | None]]:
    """Return the texts of a memory and who made each, the oldest first."""
    found = await service.past.timeline(CALLER, it, SCOPE, binding_key="mem0")
    return [
        (one.text, one.made_by.principal if one.made_by else None)
        for one in reversed(found.timeline)
    ]


async def test_a_text_that_comes_back_is_by_who_brought_it_back(service: MemoryService) -> None:
    note = WriteRequest(scope=SCOPE, source=SOURCE, content="first", binding_key="mem0")
    [it] = (await service.write(CALLER, note)).handles
    await correct(service, BEN, it, "second")
    await correct(service, BEN, it, "first")
    assert await told(service, it) == [
        ("first", "user:ana"), ("second", "user:ben"), ("first", "user:ben"),
    ]  # fmt: skip


async def test_what_another_client_wrote_stays_its_own(
    service: MemoryService, server: OpenServer
) -> None:
    made = server.memory.add("first", user_id="ana", infer=False)
    it = RecordHandle(provider_key="mem0", provider_record_id=made["results"][0]["id"])
    await correct(service, BEN, it, "second")
    await service.undo(CALLER)
    assert await told(service, it) == [
        ("first", None), ("second", "user:ben"), ("first", "user:ana"),
    ]  # fmt: skip
