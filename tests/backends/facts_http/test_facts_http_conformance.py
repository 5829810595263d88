from __future__ import annotations

from pathlib import Path

import pytest

from memtui.backends.facts_http import FactsHttpAdapter
from memtui.contract import Adapter, CorrectRequest
from memtui.testing import AdapterContract
from tests.backends.facts_http.server import Server


class TestFactsHttp(AdapterContract):
    """The wire has a text and nothing else, so what else a record carries is not asked here."""

    capabilities = FactsHttpAdapter.capabilities

    @pytest.fixture(autouse=True)
    def _server(self, server: Server) -> None:
        self._url = server.url

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        context = self.context(
            tmp_path, url=self._url, token_secret="T", subject_id="ana", drives=["apollo", "gemini"]
        )
        return await FactsHttpAdapter.open(
            context.model_copy(update={"secret": {"T": "t0ken"}.get})
        )

    async def test_write_then_get(self, adapter: Adapter) -> None:
        handle = await self.write(adapter, "Deploys happen from main.")
        record = await self.read(adapter, handle)
        assert record.text == "Deploys happen from main."
        assert record.scope == self.scope()

    async def test_snippet_is_the_record(self, adapter: Adapter) -> None:
        handle = await self.write(adapter, "Invoices are archived by the pelican job.")
        assert await self.found(adapter, "pelican invoices") == [handle.provider_record_id]

    async def test_metadata_filter(self, adapter: Adapter) -> None:
        kept = await self.write(adapter, "Otter note two.")
        ids = await self.found(adapter, "otter", metadata_filter={"fact_source": "user"})
        assert ids == [kept.provider_record_id]
        assert await self.found(adapter, "otter", metadata_filter={"stage": "final"}) == []

    async def test_creation_time_is_kept(self, adapter: Adapter) -> None:
        handle = await self.write(adapter, "The server says when.")
        assert (await self.read(adapter, handle)).created_at is not None

    async def test_correct(self, adapter: Adapter) -> None:
        handle = await self.write(adapter, "Old heron wording.")
        before = await self.read(adapter, handle)
        reply = await adapter.correct(
            CorrectRequest(
                scope=self.scope(), handle=handle, text="New falcon.", revision=before.revision
            )
        )
        assert reply.handle != handle
        assert await adapter.get(handle, self.scope()) is None
        assert (await self.read(adapter, reply.handle)).text == "New falcon."
