from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from memtui.backends.plugin_v1 import PluginAdapter
from memtui.backends.plugin_v1.plugin import Abilities
from memtui.contract import Adapter
from memtui.provider_kit import read_only
from memtui.testing import AdapterContract
from memtui.testing.checks import ChangeChecks, WriteChecks

from .servers.loopback import serve, talk
from .servers.minimal import Minimal
from .servers.reference import CAPABILITIES, Reference

_OF_REFERENCE = Abilities(frozenset(CAPABILITIES)).capabilities


class TestReference(AdapterContract):
    capabilities = _OF_REFERENCE

    @pytest_asyncio.fixture(autouse=True)
    async def _server(self) -> AsyncIterator[None]:
        async with serve(talk(Reference())) as self.url:
            yield

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        return await PluginAdapter.open(self.context(tmp_path, url=self.url))


@pytest.mark.asyncio
class TestReferenceOverUnixSocket(WriteChecks, ChangeChecks):
    """A socket carries the same requests, so what reads alone is asked above."""

    capabilities = _OF_REFERENCE

    @pytest_asyncio.fixture(autouse=True)
    async def _server(self, tmp_path: Path) -> AsyncIterator[None]:
        async with serve(talk(Reference()), tmp_path / "plugin.sock") as self.uds:
            yield

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        return await PluginAdapter.open(self.context(tmp_path, uds=self.uds))


class TestMinimal(AdapterContract):
    """A plugin that stores what it is sent, under ids of its own."""

    capabilities = Abilities().capabilities

    @pytest_asyncio.fixture(autouse=True)
    async def _server(self) -> AsyncIterator[None]:
        async with serve(talk(Minimal("propagation", "pin"))) as self.url:
            yield

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        return await PluginAdapter.open(self.context(tmp_path, url=self.url))


class TestReadOnly(AdapterContract):
    capabilities = read_only(_OF_REFERENCE)

    @pytest_asyncio.fixture(autouse=True)
    async def _server(self) -> AsyncIterator[None]:
        async with serve(talk(Reference())) as self.url:
            yield

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        context = self.context(tmp_path, url=self.url)
        return await PluginAdapter.open(context.model_copy(update={"read_only": True}))
