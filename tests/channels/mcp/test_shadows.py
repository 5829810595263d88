"""A server over MCP asks shadows what its agents asked."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from memtui.channels.mcp import server
from memtui.contract import Filter
from memtui.service import Caller, MemoryService
from memtui.service.usecases.comparing import agree
from tests.channels.mcp.conftest import PROJECT, Connect


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SHADOW_SECONDS", 0.01)


async def test_a_question_of_an_agent_is_asked_of_the_shadow(
    service: MemoryService, caller: Caller, connect: Connect
) -> None:
    await service.bindings.add(caller, "other", "vault", {})
    terms = {"share": 1.0, "budget_usd": Decimal(1), "most_calls": 10}
    await agree(service, caller, ("default", "other"), [], 1, **terms)
    client = await connect()
    await client.call_tool("memory_search", {"query": "when deploy"})
    asked = Filter(binding_key="other", internal=True)
    while not [
        one
        for one in (await service.log.page(caller, asked, limit=10)).operations
        if one.request.get("purpose") == "shadow"
    ]:
        await asyncio.sleep(0.01)
    [one, *_] = (await service.log.page(caller, asked, limit=1)).operations
    assert (one.principal, one.scope.project_id) == ("agent:coding", PROJECT)
    assert (one.scope.run_id, one.handles) == (None, ())
