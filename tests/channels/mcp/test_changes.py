"""The tools change while the server runs, and clients of both eras are told."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import mcp_types as types
import pytest
from mcp.server.streamable_http_manager import DEFAULT_SESSION_IDLE_TIMEOUT

from memtui.channels.agent import Agent, agent_of
from memtui.channels.mcp import server as mcp_server
from memtui.channels.mcp.server import MemoryServer
from memtui.service import Caller, MemoryService
from tests.channels.mcp.conftest import Connect, text_of


async def test_a_client_of_2025_is_told_that_the_tools_changed(
    connect: Connect,
    service: MemoryService,
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = asyncio.Event()
    clock = [0.0]
    monkeypatch.setattr("memtui.channels.mcp.server.monotonic", lambda: clock[-1])

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


class _Session:
    """A client's session, as the server sees it over HTTP."""

    client_params = None

    def __init__(self, name: str) -> None:
        self.told = 0
        self.context: Any = SimpleNamespace(
            session=self,
            request=SimpleNamespace(headers={"mcp-session-id": name}),
            protocol_version="2025-06-18",
        )

    async def send_tool_list_changed(self) -> None:
        self.told += 1


async def test_tools_are_those_of_the_agents_own_scope(
    service: MemoryService, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(mcp_server, "monotonic", lambda: clock[-1])
    await service.bindings.add(caller, "zeus", "vault", {})
    await service.bindings.set_target(caller, "project", "zeus", "zeus")
    agents = {
        name: await agent_of(
            service, caller, "mcp", name="coding", project_id=name, may_destroy=True
        )
        for name in ("apollo", "zeus")
    }
    sessions = {name: _Session(name) for name in agents}

    async def agent(context: Any) -> Agent:
        return agents[context.request.headers["mcp-session-id"]]

    server = MemoryServer(agent)

    async def offered() -> dict[str, set[str]]:
        return {
            name: {tool.name for tool in (await server._list_tools(one.context, None)).tools}
            for name, one in sessions.items()
        }

    before = await offered()
    await service.bindings.update(caller, "zeus", read_only=True)
    for listeners in server._listeners.values():
        await server._look(listeners)
    assert {name: one.told for name, one in sessions.items()} == {"apollo": 0, "zeus": 1}
    after = await offered()
    assert before["apollo"] == before["zeus"] == after["apollo"] > after["zeus"]
    for idle, left in ((DEFAULT_SESSION_IDLE_TIMEOUT, 1), (DEFAULT_SESSION_IDLE_TIMEOUT + 1, 0)):
        clock.append(float(idle))
        for listeners in server._listeners.values():
            listeners.drop_idle()
            assert len(listeners.sessions) == left
