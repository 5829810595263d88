"""The providers of tables keep the contract, on tables that the real packages made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memtui.backends.agno_memory import AgnoAdapter
from memtui.backends.hermes_facts import HermesFactsAdapter
from memtui.backends.langgraph_store import LanggraphAdapter
from memtui.contract import Adapter
from memtui.provider_kit import read_only
from memtui.testing import AdapterContract
from tests.backends.hermes import hermes_facts
from tests.backends.tables.kit import NAMESPACES, agno, drop_agno, langgraph


class TestLanggraphSqlite(AdapterContract):
    capabilities = LanggraphAdapter.capabilities

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        path = tmp_path / "store.db"
        with langgraph(str(path)):
            pass
        context = self.context(tmp_path, path=str(path), namespaces=NAMESPACES)
        return await LanggraphAdapter.open(context)


class TestLanggraphPostgres(AdapterContract):
    capabilities = LanggraphAdapter.capabilities

    @pytest.fixture(autouse=True)
    def _store(self, postgres_url: str) -> None:
        with langgraph(postgres_url):
            pass
        self._url = postgres_url

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        context = self.context(tmp_path, url=self._url, namespaces=NAMESPACES)
        return await LanggraphAdapter.open(context)


class TestAgnoSqlite(AdapterContract):
    capabilities = AgnoAdapter.capabilities

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        path = tmp_path / "agno.db"
        with agno(str(path)):
            pass
        return await AgnoAdapter.open(self.context(tmp_path, path=str(path)))


class TestAgnoPostgres(AdapterContract):
    capabilities = AgnoAdapter.capabilities

    @pytest.fixture(autouse=True)
    def _store(self, postgres_url: str) -> Iterator[None]:
        with agno(postgres_url):
            pass
        self._url = postgres_url
        yield
        drop_agno(postgres_url)

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        return await AgnoAdapter.open(self.context(tmp_path, url=self._url))


class TestHermesFacts(AdapterContract):
    capabilities = HermesFactsAdapter.capabilities
    has_each_text_once = True
    has_one_owner = True

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        path = tmp_path / "memory_store.db"
        if not path.exists():
            with hermes_facts(str(path)):
                pass
        context = self.context(tmp_path, path=str(path), project_id="apollo")
        return await HermesFactsAdapter.open(context)


class TestAgnoReadOnly(AdapterContract):
    capabilities = read_only(AgnoAdapter.capabilities)

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        path = tmp_path / "agno.db"
        with agno(str(path)):
            pass
        context = self.context(tmp_path, path=str(path))
        return await AgnoAdapter.open(context.model_copy(update={"read_only": True}))
