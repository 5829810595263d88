"""Who gets in over HTTP, and the server as a process over stdio."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from memtui.service import Caller, MemoryService
from memtui.service.spending import LimitTarget, SpendingLimit
from tests.channels.mcp.conftest import PROJECT, Connect, client_of, text_of
from tests.service.test_limits import spend, used

_PING = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({}, 401, "Send a token"),
        ({"Authorization": "Bearer wrong"}, 401, "not known"),
        ({"Authorization": "Basic YTpi"}, 401, "Send a token"),
        ({"Host": "evil.example"}, 403, "answers to"),
        ({"Origin": "https://evil.example"}, 403, "other sites"),
        ({"Origin": "null"}, 403, "other sites"),
        ({"Origin": "http://127.0.0.1"}, 403, "other sites"),
        ({"Origin": "http://127.0.0.1:{next_port}"}, 403, "other sites"),
        ({"Origin": "https://127.0.0.1:{port}"}, 403, "other sites"),
        ({"Origin": "http://127.0.0.1:{port}"}, 401, "Send a token"),
    ],
)
async def test_strangers_are_refused(
    url: str, headers: dict[str, str], status: int, words: str
) -> None:
    port = int(url.split(":")[2].split("/", maxsplit=1)[0])
    headers = {name: value.format(port=port, next_port=port + 1) for name, value in headers.items()}
    async with httpx.AsyncClient() as client:
        answer = await client.post(url, json=_PING, headers=headers)
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]


async def test_half_of_a_character_is_replaced(
    url: str, service: MemoryService, caller: Caller
) -> None:
    token = (await service.tokens.add(caller, "t", "agent:coding", acts_for="user:ana")).token
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-06-18",
    }
    client_info = {"name": "t", "version": "1 \ud83d"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client_info}
    asked = json.dumps({**_PING, "id": 7, "method": "initialize", "params": params})
    async with httpx.AsyncClient(headers={**headers, "Content-Type": "application/json"}) as client:
        answer = await client.post(url, content=asked)
    assert answer.status_code == 200
    assert '"id":7' in answer.text


async def test_a_revoked_token_ends(url: str, service: MemoryService, caller: Caller) -> None:
    token = (await service.tokens.add(caller, "short", "agent:coding", acts_for="user:ana")).token
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(headers=headers) as client:
        assert (await client.post(url, json=_PING)).status_code != 401
        await service.tokens.remove(caller, "short")
        assert (await client.post(url, json=_PING)).status_code == 401


async def test_a_session_over_http_is_connected_until_it_ends(
    service: MemoryService, caller: Caller, url: str
) -> None:
    token = (await service.tokens.add(caller, "t", "agent:coding", acts_for="user:ana")).token
    async with client_of(url, token, mode="legacy") as client:
        await client.list_tools()
        [one] = await service.agents.connected(caller)
        assert (one.principal, one.acts_for, one.project_id, one.is_open, one.last_answer) == (
            "agent:coding",
            "user:ana",
            PROJECT,
            True,
            None,
        )
        assert one.client is not None
        assert one.client.startswith("mcp ")
        await client.call_tool("memory_search", {"query": "deploy branch"})
        [one] = await service.agents.connected(caller)
        assert one.last_answer is not None
        assert one.last_answer.asked == "deploy branch"
    assert [one.is_open for one in await service.agents.connected(caller)] == [False]


async def test_a_client_starts_it_over_stdio(tmp_path: Path) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "memtui", "mcp", "--agent", "coding", "--project", "apollo"],
        env={"PATH": os.environ["PATH"], "MEMTUI_HOME": str(tmp_path / "home")},
    )
    # What the hooks join over stdio is a client of the older sort.
    async with Client(stdio_client(server), mode="auto") as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {
            "memory_search",
            "memory_browse",
            "memory_get",
            "memory_feedback",
            "memory_note",
            "save_memory",
        }
        stored = await client.call_tool("memory_note", {"text": "Told over stdio."})
        assert text_of(stored).startswith("Stored in default as ")
        found = await client.call_tool("memory_search", {"query": "stdio"})
        assert found.structured_content["memories"][0]["written_by"] == "agent:coding"


def test_a_client_that_goes_before_its_answer_is_no_failure(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "memtui", "mcp"],
        env={"PATH": os.environ["PATH"], "MEMTUI_HOME": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as server:
        assert server.stdin
        assert server.stdout
        assert server.stderr
        server.stdout.close()
        server.stdin.write(json.dumps({**_PING, "method": "ping"}).encode() + b"\n")
        server.stdin.close()
        [said] = server.stderr.read().splitlines()
        assert said.startswith(b"Made a new home of memtui in ")
    assert server.returncode == 0


async def test_a_passed_limit_is_told_to_the_agent(
    service: MemoryService, caller: Caller, connect: Connect
) -> None:
    client = await connect()
    limit = SpendingLimit(
        target_type=LimitTarget.AGENT, target_id="coding", measure="tokens", amount=1,
        period="day", action="read-only",
    )  # fmt: skip
    await service.limits.set(caller, limit)
    spend(service, used(tokens=2), at=datetime.now(UTC))
    noted = await client.call_tool("memory_note", {"text": "Deploys happen from main"})
    assert text_of(noted).startswith(
        "The agent coding has passed its spending limit of a day, so nothing is written for it"
    )
    assert text_of(noted).endswith("Do not try again; tell the user.")
    assert not (await client.call_tool("memory_search", {"query": "main"})).is_error
