"""A real server on a loopback port, over the real service, with people and their tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest

from memtui.channels.http.app import Served
from memtui.channels.http.facts import facts_app
from memtui.channels.listening import on_port
from memtui.service import Caller, MemoryService
from memtui.service.visibility import Membership, Role
from tests.serving import make_server

COMPANY = "local"
DRIVE = "apollo"
USER_PATH = "/api/memory/user"
DRIVE_PATH = f"/api/memory/drive/{DRIVE}"


@asynccontextmanager
async def serving(service: MemoryService, company_id: str = COMPANY) -> AsyncIterator[str]:
    """Serve a company's facts; gives the address."""
    with on_port("127.0.0.1", 0) as listener:
        server = make_server(facts_app(Served(service, company_id), names=listener.names))
        running = asyncio.create_task(server.serve(sockets=[listener.socket]))
        try:
            yield listener.url
        finally:
            server.should_exit = True
            await running


@pytest.fixture(params=["vault", "facts"])
async def memories(
    request: pytest.FixtureRequest, service: MemoryService, caller: Caller
) -> MemoryService:
    """The service with each of the providers that keep facts behind the company."""
    if request.param == "facts":
        await service.bindings.add(caller, "tables", "facts", {})
        await service.bindings.set_target(caller, "company", COMPANY, "tables")
    return service


@pytest.fixture
async def url(memories: MemoryService) -> AsyncIterator[str]:
    async with serving(memories) as address:
        yield address


@pytest.fixture
async def speak(
    memories: MemoryService, caller: Caller, url: str
) -> AsyncIterator[Callable[..., object]]:
    """Give an HTTP client with a token of a principal."""
    async with AsyncExitStack() as clients:
        numbers = iter(range(1000))

        async def client(principal: str, acts_for: str | None = None) -> httpx.AsyncClient:
            made = await memories.tokens.add(
                caller, f"token {next(numbers)}", principal, acts_for=acts_for
            )
            return await clients.enter_async_context(client_of(url, made.token))

        yield client


def client_of(url: str, token: str | None, **more: object) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=30, **more)  # type: ignore[arg-type]


@pytest.fixture
async def members(memories: MemoryService, caller: Caller) -> None:
    """An owner (who is `caller`), an admin and a member of the drive, and one of another drive."""
    for principal, subject_id, project_id, role in (
        ("user:ana", "ana", None, Role.OWNER),
        ("user:adam", "u-adam", DRIVE, Role.ADMIN),
        ("user:mia", "u-mia", DRIVE, Role.MEMBER),
        ("user:eve", "u-eve", "gemini", Role.OWNER),
    ):
        member = Membership(
            principal=principal, subject_id=subject_id, project_id=project_id, role=role
        )
        await memories.members.set(caller, member)
