"""The contract's checks on mem0's platform, its open server and its library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memtui.backends.mem0 import Mem0Adapter
from memtui.contract import Adapter, BindingContext
from memtui.testing import AdapterContract
from tests.backends.mem0.servers import Embeddings, OpenServer, Platform


class Mem0Contract(AdapterContract):
    capabilities = Mem0Adapter.capabilities

    def context(self, tmp_path: Path, **config: Any) -> BindingContext:
        return super().context(tmp_path, **config).model_copy(update={"secret": {"K": "k3y"}.get})


class TestServer(Mem0Contract):
    @pytest.fixture(autouse=True)
    def _running(self, server: OpenServer) -> None:
        self.url = server.url

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        return await Mem0Adapter.open(self.context(tmp_path, url=self.url))


class TestPlatform(Mem0Contract):
    @pytest.fixture(autouse=True)
    def _running(self, platform: Platform) -> None:
        self.url = platform.url

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        config = {"url": self.url, "api": "platform", "api_key_secret": "K"}
        return await Mem0Adapter.open(self.context(tmp_path, **config))


class TestPlatformLater(Mem0Contract):
    """Its model makes memories of a text, later."""

    capabilities = Mem0Adapter.capabilities.model_copy(
        update={"async_ingestion": True, "provider_managed_extraction": True, "profile": True}
    )
    has_events = True

    @pytest.fixture(autouse=True)
    def _running(self, platform: Platform) -> None:
        self.platform = platform

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        config = {"url": self.platform.url, "api": "platform", "api_key_secret": "K"}
        return await Mem0Adapter.open(self.context(tmp_path, **config, infer=True))

    async def settle(self, adapter: Adapter) -> None:
        del adapter
        for name, event in self.platform.events.items():
            if event["status"] == "PENDING":
                text = event["said"]["messages"][0]["content"]
                self.platform.ingest(name, text)


class TestLibrary(Mem0Contract):
    @pytest.fixture(autouse=True)
    def _running(self, embeddings: Embeddings) -> None:
        self.embeddings = embeddings

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        path = tmp_path / "mem0.json"
        path.write_text(json.dumps(self.embeddings.config(tmp_path)))
        return await Mem0Adapter.open(self.context(tmp_path, library=str(path)))
