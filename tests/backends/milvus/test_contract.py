"""The checks of every provider, over a file; over a server those of what is asked and changed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from memtui.backends.milvus import MilvusAdapter
from memtui.contract import Adapter
from memtui.testing import AdapterContract
from memtui.testing.checks import ChangeChecks, ReadChecks


class TestFile(AdapterContract):
    capabilities = MilvusAdapter.capabilities

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        return await MilvusAdapter.open(self.context(tmp_path, path=str(tmp_path / "milvus.db")))


class TestServer(ReadChecks, ChangeChecks):
    capabilities = MilvusAdapter.capabilities

    @pytest.fixture(autouse=True)
    def _running(self, server: str) -> None:
        self.uri = server

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        prefix = f"t{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]}_"
        return await MilvusAdapter.open(self.context(tmp_path, uri=self.uri, prefix=prefix))
