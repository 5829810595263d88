"""The tools change while the server runs, and clients of both eras are told."""

from __future__ import annotations

import asyncio

import mcp_types as types
import pytest

from memtui.service import Caller, MemoryService
from tests.doors.mcp.conftest import Connect, text_of


async def test_a_client_of_2025_is_told_that_the_tools_changed(
    connect: Connect,
    service: MemoryService,
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = asyncio.Event()
    clock = [0.0]
    monkeypatch.setattr("memtui.doors.mcp.server.monotonic", lambda: clock[-1])

    async def heard(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    client = await connect(mode="legacy", message_handler=heard)
    assert client.server_capabilities.tools
    assert client.server_capabilities.tools.list_changed
    before = {tool.name for tool in (await client.list_tools()).tools}
    for now in (1_000.0, 2_000.0):  # a session counts from what it asked last, whatever that was
        clock.append(now)
        await client.call_tool("memory_browse", {})
    await service.bindings.update(caller, "default", read_only=True)
    async with asyncio.timeout(20):
        await told.wait()
    after = {tool.name for tool in (await client.list_tools()).tools}
    assert before - after == {
        "memory_note",
        "save_memory",
        "memory_correct",
        "memory_forget",
        "remove_memory",
    }
    assert after == {"memory_search", "memory_browse", "memory_get", "memory_feedback"}


async def test_a_later_client_hears_it_where_it_listens(
    connect: Connect, service: MemoryService, caller: Caller
) -> None:
    client = await connect(mode="auto")
    await client.list_tools()
    async with asyncio.timeout(20), client.listen(tools_list_changed=True) as events:
        await service.bindings.update(caller, "default", read_only=True)
        async for _ in events:
            break
    tools = {tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools}
    assert tools == {"memory_search", "memory_browse", "memory_get", "memory_feedback"}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_call_that_is_no_longer_offered_says_why(
    connect: Connect, service: MemoryService, caller: Caller, mode: str
) -> None:
    client = await connect(mode=mode)
    await service.bindings.update(caller, "default", read_only=True)
    answer = await client.call_tool("memory_note", {"text": "Too late."})
    assert answer.is_error
    assert "read-only" in text_of(answer)
