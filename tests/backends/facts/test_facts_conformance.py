from __future__ import annotations

from pathlib import Path

import pytest

from memtui.backends.facts import FactsAdapter
from memtui.contract import Adapter
from memtui.provider_kit import read_only
from memtui.testing import AdapterContract
from tests.backends.facts.kit import seed

_OWN = FactsAdapter.capabilities.model_copy(update={"pin": True, "expiry": True})


class TestSqlite(AdapterContract):
    capabilities = _OWN

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        return await FactsAdapter.open(self.context(tmp_path))


class TestPostgres(AdapterContract):
    """The owner's tables with their foreign keys, and memtui's own beside them."""

    capabilities = _OWN

    @pytest.fixture(autouse=True)
    def _database(self, postgres_url: str) -> None:
        seed(postgres_url, users=("ana",), drives=("apollo", "gemini"))
        self._url = postgres_url

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        return await FactsAdapter.open(self.context(tmp_path, url=self._url, create=True))


class TestReadOnly(AdapterContract):
    capabilities = read_only(_OWN)

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        context = self.context(tmp_path)
        return await FactsAdapter.open(context.model_copy(update={"read_only": True}))
