from __future__ import annotations

from pathlib import Path

from memtui.backends.milvus import MilvusAdapter
from memtui.contract import Adapter
from memtui.testing import AdapterContract


class TestFile(AdapterContract):
    async def open_adapter(self, tmp_path: Path) -> Adapter:
        return await MilvusAdapter.open(self.context(tmp_path, path=str(tmp_path / "milvus.db")))
