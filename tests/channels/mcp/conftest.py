"""The MCP server on a loopback port over the real service, and the official client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol, TypeVar

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from memtui.channels.listening import on_port
from memtui.channels.mcp.over_http import PATH, HttpServer
from memtui.service import Caller, MemoryService
from tests.serving import make_server

COMPANY = "local"
PROJECT = "apollo"


@asynccontextmanager
async def serving(served: HttpServer) -> AsyncIterator[str]:
    """Serve a company to agents; gives the address."""
    with on_port("127.0.0.1", 0) as listener:
        async with served.app(listener.names) as app:
            server = make_server(app)
            running = asyncio.create_task(server.serve(sockets=[listener.socket]))
            try:
                yield listener.url + PATH
            finally:
                server.should_exit = True
                await running


T = TypeVar("T")


@asynccontextmanager
async def in_own_task(opened: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """Open and close in one task, as anyio's scopes want it; a fixture's two ends run in two."""
    ready: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    done = asyncio.Event()

    async def hold() -> None:
        async with opened as value:
            ready.set_result(value)
            await done.wait()

    task = asyncio.create_task(hold())
    waited: set[asyncio.Future[Any]] = {ready, task}
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    try:
        yield ready.result()
    finally:
        done.set()
        await task


class Connect(Protocol):
    """Makes a token of a principal, and gives the official client with it."""

    async def __call__(
        self, principal: str = ..., acts_for: str | None = ..., **more: Any
    ) -> Client: ...


@pytest.fixture
async def url(service: MemoryService) -> AsyncIterator[str]:
    """The address of a server that offers every tool, in one project."""
    served = HttpServer(service, COMPANY, run_id="run-1", project_id=PROJECT, may_destroy=True)
    async with in_own_task(serving(served)) as address:
        yield address


@pytest.fixture
async def connect(service: MemoryService, caller: Caller, url: str) -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:
        numbers = iter(range(1000))

        async def client(
            principal: str = "agent:coding", acts_for: str | None = "user:ana", **more: Any
        ) -> Client:
            made = await service.tokens.add(
                caller, f"token {next(numbers)}", principal, acts_for=acts_for
            )
            return await stack.enter_async_context(in_own_task(client_of(url, made.token, **more)))

        yield client


@asynccontextmanager
async def client_of(url: str, token: str, **more: Any) -> AsyncIterator[Client]:
    """Give the official client of a server."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), **more) as client,
    ):
        yield client


def text_of(result: Any) -> str:
    """Return what the model reads of a result."""
    return "\n".join(block.text for block in result.content)


def read_text(result: Any) -> str:
    """Return the text of a resource that was read."""
    [contents] = result.contents
    return str(contents.text)
