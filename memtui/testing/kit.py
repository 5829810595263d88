"""What the conformance checks share: opening, requests, and shorthands."""

# ruff: noqa: S101  # an assertion is what a check is made of
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from memtui.contract import (
    Adapter,
    BindingContext,
    BrowseRequest,
    Filter,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)

COMPANY = "conformance"


class Kit(ABC):
    """Base of the checks; a subclass opens the adapter under test."""

    is_durable = True
    """Whether a record must outlive `close` and a second `open_adapter` on the same folder."""

    @abstractmethod
    async def open_adapter(self, tmp_path: Path) -> Adapter:
        """Open the adapter under test over `tmp_path`, empty at first, for `self.context`."""

    async def settle(self, adapter: Adapter) -> None:  # noqa: B027  # nothing is the usual answer
        """Wait until earlier writes are searchable; only `async_ingestion` needs an override."""

    @pytest_asyncio.fixture
    async def adapter(self, tmp_path: Path) -> AsyncIterator[Adapter]:
        """An open adapter, closed when the check is over."""
        adapter = await self.open_adapter(tmp_path)
        yield adapter
        await adapter.close()

    def context(self, tmp_path: Path, **config: Any) -> BindingContext:
        """Return what to open an adapter with."""
        return BindingContext(
            company_id=COMPANY, binding_key="under-test", config=config, data_dir=tmp_path / "data"
        )

    def scope(self, **ids: str) -> Scope:
        """Return a scope of the checks' company, of one project unless told otherwise."""
        return Scope(company_id=COMPANY, **({"project_id": "apollo"} | ids))

    def source(self, kind: SourceKind = SourceKind.ISSUE_COMMENT, **ids: str) -> SourceRef:
        """Return a source reference."""
        known = {"issue_id": "ISS-7", "comment_id": "c-3"} | ids
        return SourceRef(kind=kind, company_id=COMPANY, **known)

    async def write(self, adapter: Adapter, content: str, **fields: Any) -> RecordHandle:
        """Write one record and return its handle."""
        request = WriteRequest(
            **({"scope": self.scope(), "source": self.source(), "content": content} | fields)
        )
        reply = await adapter.write(request)
        await self.settle(adapter)
        assert reply.records, "write returned no handle; only async ingestion may leave it out"
        handle = reply.records[0]
        assert handle.provider_key == adapter.key, (
            f"the handle's provider_key is {handle.provider_key!r}, not the key {adapter.key!r}"
        )
        return handle

    async def found(self, adapter: Adapter, query: str, **fields: Any) -> list[str]:
        """Return the ids that a query answers, best first."""
        request = QueryRequest(**({"scope": self.scope(), "query": query} | fields))
        bundle = await adapter.query(request)
        return [snippet.handle.provider_record_id for snippet in bundle.snippets]

    async def listed(self, adapter: Adapter, **fields: Any) -> list[str]:
        """Return the ids of a first page, filtered by `fields`."""
        wanted = Filter(**fields)
        request = BrowseRequest(scope=self.scope(), filter=wanted, limit=1000)
        page = await adapter.browse(request)
        return [record.handle.provider_record_id for record in page.records]

    async def read(self, adapter: Adapter, handle: RecordHandle) -> Record:
        """Return a record that must be there."""
        record = await adapter.get(handle, self.scope())
        assert record is not None, f"get does not find the record {handle.provider_record_id!r}"
        return record

    def unknown(self, adapter: Adapter, record_id: str = "no-such-record") -> RecordHandle:
        """Return a handle that names nothing."""
        return RecordHandle(provider_key=adapter.key, provider_record_id=record_id)


def need(adapter: Adapter, *abilities: str) -> None:
    """Skip the check unless the adapter says that it has these abilities."""
    for ability in abilities:
        if not getattr(adapter.capabilities, ability):
            pytest.skip(f"the adapter does not offer {ability}")


def need_exact(adapter: Adapter) -> None:
    """Skip the check unless what is written is what is stored, at once."""
    need(adapter, "writable")
    if adapter.capabilities.provider_managed_extraction:
        pytest.skip("the provider stores its own extraction")


def day(number: int) -> datetime:
    """Return a day of the past, counted from the first of January 2025, in UTC."""
    return datetime.fromordinal(datetime(2025, 1, 1, tzinfo=UTC).toordinal() + number).replace(
        tzinfo=UTC
    )
