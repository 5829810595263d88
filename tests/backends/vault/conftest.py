from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from memtui.backends.vault import VaultAdapter
from memtui.contract import (
    BindingContext,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    WriteMode,
    WriteRequest,
)

Open = Callable[..., Awaitable[VaultAdapter]]
SCOPE = Scope(company_id="acme", project_id="web")
COMPANY = Scope(company_id="acme")
SOURCE = SourceRef(kind=SourceKind.ISSUE_COMMENT, company_id="acme", issue_id="I-1", comment_id="c")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The vault's folder, not made yet."""
    return tmp_path / "vault"


@pytest_asyncio.fixture
async def open_vault(tmp_path: Path, root: Path) -> AsyncIterator[Open]:
    """Open adapters over `root` that see every outside edit at once; closed at the end."""
    async with AsyncExitStack() as stack:

        async def opened(
            *, read_only: bool = False, data: str = "data", **extra: Any
        ) -> VaultAdapter:
            given = {"path": str(root), "refresh_seconds": 0} | extra.pop("config", {})
            context = BindingContext(
                company_id="acme",
                binding_key="vault",
                config=given,
                read_only=read_only,
                data_dir=tmp_path / data,
                **extra,
            )
            adapter = await VaultAdapter.open(context)
            stack.push_async_callback(adapter.close)
            return adapter

        yield opened


async def note(adapter: VaultAdapter, content: str, **fields: Any) -> RecordHandle:
    """Write a record and return its handle."""
    request = WriteRequest(**({"scope": SCOPE, "source": SOURCE, "content": content} | fields))
    return (await adapter.write(request)).records[0]


async def fact(adapter: VaultAdapter, content: str, **fields: Any) -> RecordHandle:
    """Write a fact and return its handle."""
    return await note(adapter, content, kind="fact", **fields)


async def upsert(adapter: VaultAdapter, content: str, **fields: Any) -> RecordHandle:
    """Write a fact over the one of the same key."""
    return await fact(adapter, content, mode=WriteMode.UPSERT, **fields)


async def ask(adapter: VaultAdapter, query: str, **fields: Any) -> list[str]:
    """Return the texts that a query answers."""
    request = QueryRequest(**({"scope": SCOPE, "query": query} | fields))
    return [snippet.text for snippet in (await adapter.query(request)).snippets]


def put(root: Path, path: str, content: str | bytes) -> Path:
    """Write a file of the vault by hand."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return target


def contents(root: Path) -> dict[str, bytes]:
    """Return every visible file of the vault."""
    files = (path for path in root.rglob("*") if path.is_file() and path.name[0] != ".")
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}
