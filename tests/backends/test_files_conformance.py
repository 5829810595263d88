from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memtui.backends.basic_memory import BasicMemoryAdapter
from memtui.backends.claude_memory import ClaudeMemoryAdapter
from memtui.backends.codex_memory import CodexMemoryAdapter
from memtui.backends.gemini import GeminiAdapter
from memtui.backends.hermes import HermesAdapter
from memtui.backends.instructions import InstructionsAdapter
from memtui.backends.letta import LettaAdapter
from memtui.backends.mcp_memory import McpMemoryAdapter
from memtui.backends.memsearch import MemsearchAdapter
from memtui.backends.openclaw import OpenclawAdapter
from memtui.contract import Adapter, Invalid
from memtui.provider_kit import read_only
from memtui.testing import AdapterContract

_MEMSEARCH = f"""#!{sys.executable}
import json, pathlib, sys
found = []
for file in pathlib.Path.cwd().glob("*.md"):
    for number, line in enumerate(file.read_text().split("\\n"), 1):
        if sys.argv[-1] in line:
            found.append(dict(content=line, source=str(file), start_line=number, end_line=number))
print(json.dumps(found))
"""
"""A stand-in for memsearch, which is half a gigabyte: it finds lines that hold the query."""


class TestMemsearch(AdapterContract):
    capabilities = MemsearchAdapter.capabilities

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        memory, program = tmp_path / "memory", tmp_path / "memsearch"
        memory.mkdir(exist_ok=True)
        program.write_text(_MEMSEARCH)
        program.chmod(0o700)
        config = {"path": str(memory), "command": str(program)}
        adapter = await MemsearchAdapter.open(self.context(tmp_path, **config))
        adapter.settle_seconds = 0.0  # no other program writes here
        return adapter


class TestReadOnlyMemsearch(AdapterContract):
    capabilities = read_only(MemsearchAdapter.capabilities)

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        write(tmp_path / "2026-01-01.md", "### 10:00\n- The user asked for a branch\n")
        context = self.context(tmp_path, path=str(tmp_path))
        return await MemsearchAdapter.open(context.model_copy(update={"read_only": True}))


class TestClaudeMemory(AdapterContract):
    capabilities = ClaudeMemoryAdapter.capabilities

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        folder = tmp_path / "memory"
        folder.mkdir(exist_ok=True)
        return await ClaudeMemoryAdapter.open(self.context(tmp_path, path=str(folder)))


class TestReadOnlyClaudeMemory(AdapterContract):
    capabilities = read_only(ClaudeMemoryAdapter.capabilities)

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        write(tmp_path / "memory" / "MEMORY.md", "- [Branch](branch.md) — main\n")
        write(tmp_path / "memory" / "branch.md", "---\nname: Branch\n---\nDeploys leave main.\n")
        context = self.context(tmp_path, path=f"{tmp_path}/memory")
        return await ClaudeMemoryAdapter.open(context.model_copy(update={"read_only": True}))


class TestCodexMemory(AdapterContract):
    capabilities = CodexMemoryAdapter.capabilities

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        (tmp_path / "memories").mkdir(exist_ok=True)
        return await CodexMemoryAdapter.open(self.context(tmp_path, path=f"{tmp_path}/memories"))


class TestReadOnlyCodexMemory(AdapterContract):
    capabilities = read_only(CodexMemoryAdapter.capabilities)

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        write(tmp_path / "MEMORY.md", "# Task Group: x\n\n## Reusable knowledge\n- Run pytest.\n")
        context = self.context(tmp_path, path=str(tmp_path))
        return await CodexMemoryAdapter.open(context.model_copy(update={"read_only": True}))


class TestLetta(AdapterContract):
    capabilities = LettaAdapter.capabilities

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        folder = tmp_path / "memory"
        subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
        return await LettaAdapter.open(self.context(tmp_path, path=str(folder)))


class TestReadOnlyLetta(AdapterContract):
    capabilities = read_only(LettaAdapter.capabilities)

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        write(tmp_path / "memory" / "system" / "human.md", "---\ndescription: x\n---\nAna.\n")
        context = self.context(tmp_path, path=f"{tmp_path}/memory")
        return await LettaAdapter.open(context.model_copy(update={"read_only": True}))


class TestHermes(AdapterContract):
    capabilities = HermesAdapter.capabilities
    has_each_text_once = True

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        folder = tmp_path / "memories"
        folder.mkdir(exist_ok=True)
        config = {"path": str(folder), "memory_chars": 1_000_000}
        return await HermesAdapter.open(self.context(tmp_path, **config))


class TestReadOnlyHermes(AdapterContract):
    capabilities = read_only(HermesAdapter.capabilities)

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        write(tmp_path / "MEMORY.md", "Deploys leave main.\n§\nThe printer\nis upstairs.")
        write(tmp_path / "USER.md", "Ana likes short answers.")
        context = self.context(tmp_path, path=str(tmp_path))
        return await HermesAdapter.open(context.model_copy(update={"read_only": True}))


class TestBasicMemory(AdapterContract):
    capabilities = BasicMemoryAdapter.capabilities
    has_each_text_once = True

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        (tmp_path / "notes").mkdir(exist_ok=True)
        return await BasicMemoryAdapter.open(self.context(tmp_path, path=f"{tmp_path}/notes"))


class TestOpenclaw(AdapterContract):
    capabilities = OpenclawAdapter.capabilities
    has_each_text_once = True

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        folder = tmp_path / "workspace"
        folder.mkdir(exist_ok=True)
        config = {"path": str(folder), "state": str(tmp_path), "settle_ms": 0}
        return await OpenclawAdapter.open(self.context(tmp_path, **config))


class TestInstructions(AdapterContract):
    capabilities = InstructionsAdapter.capabilities

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        (tmp_path / "web").mkdir(exist_ok=True)
        return await InstructionsAdapter.open(self.context(tmp_path, path=f"{tmp_path}/web"))


class TestReadOnlyInstructions(AdapterContract):
    capabilities = read_only(InstructionsAdapter.capabilities)

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        write(tmp_path / "CLAUDE.md", "# Tests\nRun pytest.\n")
        context = self.context(tmp_path, path=str(tmp_path))
        return await InstructionsAdapter.open(context.model_copy(update={"read_only": True}))


class TestMcpMemory(AdapterContract):
    capabilities = McpMemoryAdapter.capabilities

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        path = tmp_path / "memory.jsonl"
        if not path.exists():
            path.touch()
            os.utime(path, (0, 0))  # nobody is in the middle of writing it
        return await McpMemoryAdapter.open(self.context(tmp_path, path=str(path), settle_ms=0))


class TestReadOnlyMcpMemory(AdapterContract):
    capabilities = read_only(McpMemoryAdapter.capabilities)

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        path = tmp_path / "memory.jsonl"
        write(path, '{"type":"entity","name":"vim","entityType":"tool","observations":["edits"]}\n')
        context = self.context(tmp_path, path=str(path))
        return await McpMemoryAdapter.open(context.model_copy(update={"read_only": True}))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class TestGemini(AdapterContract):
    capabilities = GeminiAdapter.capabilities
    has_each_text_once = True

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        folder = tmp_path / ".gemini"
        folder.mkdir(exist_ok=True)
        adapter = await GeminiAdapter.open(self.context(tmp_path, path=str(folder)))
        adapter.settle_seconds = 0.0
        return adapter


@pytest.mark.parametrize(
    ("adapter", "folder", "file"),
    [
        (HermesAdapter, "memories", "MEMORY.md"),
        (CodexMemoryAdapter, "memories", "MEMORY.md"),
        (GeminiAdapter, "memory", "MEMORY.md"),
        (ClaudeMemoryAdapter, "memory", "MEMORY.md"),
        (OpenclawAdapter, "workspace", "MEMORY.md"),
        (LettaAdapter, "memory", ".git"),
    ],
)
async def test_the_folder_of_the_program_itself_is_refused(
    tmp_path: Path, open_adapter: Any, adapter: type[Adapter], folder: str, file: str
) -> None:
    """What is written there, the program never reads."""
    memories = tmp_path / folder
    memories.mkdir()
    (memories / file).touch()
    with pytest.raises(Invalid, match=f"not in {tmp_path} but in {memories}; set path to"):
        await open_adapter(adapter, path=tmp_path)
    await open_adapter(adapter, path=memories)
