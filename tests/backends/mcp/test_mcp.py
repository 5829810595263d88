"""The checks of every adapter, on a server written with the SDK and on the real server-memory."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from memtui.backends.mcp import McpAdapter
from memtui.contract import Adapter, Capabilities
from memtui.testing import AdapterContract
from memtui.testing.checks import WriteChecks
from tests.backends.mcp.conftest import MAPPING
from tests.node import NodeProgram

ABLE = Capabilities(browse=True, correction=True, full_text=True, chosen_owners=True)


class TestOverHttp(AdapterContract):
    capabilities = ABLE

    @pytest.fixture(autouse=True)
    def empty(self, over_http: tuple[str, Path]) -> None:
        self.url, file = over_http
        file.unlink(missing_ok=True)

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        return await McpAdapter.open(self.context(tmp_path, url=self.url, mapping=MAPPING))


@pytest.mark.asyncio
class TestOverStdio(WriteChecks):
    capabilities = ABLE

    @pytest.fixture(autouse=True)
    def forked(self, forked_notes: Callable[[Path], str]) -> None:
        self.notes_command = forked_notes

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        command = self.notes_command(tmp_path / "notes.json")
        return await McpAdapter.open(self.context(tmp_path, command=command, mapping=MAPPING))


class TestServerMemory(AdapterContract):
    capabilities = ABLE.model_copy(update={"agents_search": True})
    has_each_text_once = True

    @pytest.fixture(autouse=True)
    def program(self, memory_server: NodeProgram) -> None:
        self.command = shlex.join(map(str, memory_server))

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        config = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
        given = {"command": self.command, "mapping": "server-memory", "env": config}
        return await McpAdapter.open(self.context(tmp_path, **given))
