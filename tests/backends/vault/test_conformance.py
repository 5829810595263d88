from __future__ import annotations

from pathlib import Path

from memtui.backends.vault import VaultAdapter
from memtui.contract import Adapter
from memtui.provider_kit import read_only
from memtui.testing import AdapterContract


class TestVault(AdapterContract):
    capabilities = VaultAdapter.capabilities

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        return await VaultAdapter.open(self.context(tmp_path))


class TestReadOnlyVault(AdapterContract):
    capabilities = read_only(VaultAdapter.capabilities)

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        context = self.context(tmp_path, path=str(tmp_path))
        return await VaultAdapter.open(context.model_copy(update={"read_only": True}))
