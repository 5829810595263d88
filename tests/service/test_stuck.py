"""Providers whose calls cannot be ended: the caller goes on, the others serve, quitting works."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memtui.backends.vault.index import VaultIndex
from memtui.config import Paths, load_settings
from memtui.contract import BrowseRequest, QueryRequest, Scope, Unavailable
from memtui.service import Caller, MemoryService, open_service

CALLER = Caller(company_id="local", principal="user:ana", channel="test")
SCOPE = Scope(company_id="local")


@pytest.fixture
async def service(paths: Paths, tmp_path: Path) -> AsyncIterator[MemoryService]:
    settings = load_settings(paths, principal="user:ana", provider_timeout_ms=100)
    opened = await open_service(paths, settings)
    await opened.bindings.add(CALLER, "other", "vault", {"path": str(tmp_path / "other")})
    yield opened
    await opened.close()


async def test_a_vault_that_hangs_in_a_thread_stops_nothing_else(
    service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.query(CALLER, QueryRequest(scope=SCOPE, query="gecko", binding_key="other"))
    stuck, asked = threading.Event(), QueryRequest(scope=SCOPE, query="gecko")
    await service.query(CALLER, asked)
    refresh = VaultIndex.refresh

    def hang(self: VaultIndex, *, force: bool = False) -> None:
        if "other" not in str(self._folder.root):
            stuck.wait()
        refresh(self, force=force)

    monkeypatch.setattr(VaultIndex, "refresh", hang)
    try:
        calls = [service.query(CALLER, asked) for _ in range(40)]
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, Unavailable)
        page = await service.browse(CALLER, BrowseRequest(scope=SCOPE, binding_key="other"))
        assert page.total == 0
        async with asyncio.timeout(30):
            await service.close()
    finally:
        stuck.set()
