from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest_asyncio

from memtui.backends.plugin_v1 import PluginAdapter
from memtui.contract import (
    BindingContext,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)

from .servers.loopback import Talk, serve, talk
from .servers.reference import Reference

Open = Callable[..., Awaitable[PluginAdapter]]
Server = tuple[Reference, str]
Serve = Callable[..., Awaitable[str]]
SCOPE = Scope(company_id="acme", project_id="web")
COMPANY = Scope(company_id="acme")
SOURCE = SourceRef(kind=SourceKind.ISSUE_COMMENT, company_id="acme", issue_id="I-1", comment_id="c")


@pytest_asyncio.fixture
async def serving() -> AsyncIterator[Serve]:
    """Serve handlers until the test ends."""
    async with AsyncExitStack() as stack:

        async def start(answer: Talk) -> str:
            return await stack.enter_async_context(serve(answer))

        yield start


@pytest_asyncio.fixture
async def open_plugin(tmp_path: Path) -> AsyncIterator[Open]:
    """Open adapters on a plugin's address; closed at the end."""
    async with AsyncExitStack() as stack:

        async def opened(
            url: str, *, read_only: bool = False, data: str = "data", **config: Any
        ) -> PluginAdapter:
            context = BindingContext(
                company_id="acme", binding_key="plugin", read_only=read_only,
                config={"url": url, **config}, data_dir=tmp_path / data,
            )  # fmt: skip
            adapter = await PluginAdapter.open(context)
            stack.push_async_callback(adapter.close)
            return adapter

        yield opened


@pytest_asyncio.fixture
async def reference(serving: Serve) -> Server:
    """A reference server, and its address."""
    server = Reference()
    return server, await serving(talk(server))


async def note(adapter: PluginAdapter, content: str, **fields: Any) -> RecordHandle:
    """Write a record and return its handle."""
    request = WriteRequest(**({"scope": SCOPE, "source": SOURCE, "content": content} | fields))
    return (await adapter.write(request)).records[0]


async def fill(server: Reference, number: int, **fields: Any) -> list[str]:
    """Store memories as another client does."""
    server.namespaces.setdefault("workspace:web", {"name": "workspace:web", "kind": "workspace"})
    for index in range(number):
        body = {"content": f"Filler sentence number {index}.", "kind": "fact", "source": "agent"}
        status, _ = server._write("workspace:web", body | fields)
        assert status == 201
    return list(server.rows)


def handle(record_id: str) -> RecordHandle:
    return RecordHandle(provider_key="plugin-v1", provider_record_id=record_id)


async def ask(adapter: PluginAdapter, query: str, **fields: Any) -> list[str]:
    bundle = await adapter.query(QueryRequest(**({"scope": SCOPE, "query": query} | fields)))
    return [snippet.text for snippet in bundle.snippets]
