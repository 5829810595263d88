"""Files of other programs keep their mode and owner when memtui makes them again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from memtui.backends.claude_memory import ClaudeMemoryAdapter
from memtui.backends.codex_memory import CodexMemoryAdapter
from memtui.backends.letta import LettaAdapter
from memtui.contract import (
    BindingContext,
    BrowseRequest,
    ForgetRequest,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.provider_kit.files.adapter import FilesAdapter

SCOPE = Scope(company_id="local")
SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
PLACES: dict[str, tuple[type[FilesAdapter[Any]], str]] = {
    "codex": (CodexMemoryAdapter, "extensions/ad_hoc/notes/a.md"),
    "claude": (ClaudeMemoryAdapter, "a.md"),
    "letta": (LettaAdapter, "reference/a.md"),
}


async def opened(kind: type[FilesAdapter[Any]], folder: Path) -> FilesAdapter[Any]:
    context = BindingContext(
        company_id="local",
        binding_key="m",
        config={"path": str(folder)},
        data_dir=folder.parent / "data",
    )
    return await kind.open(context)


def rights(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_mode & 0o7777, found.st_uid, found.st_gid


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
@pytest.mark.parametrize("name", PLACES)
async def test_a_file_comes_back_as_it_was_and_a_new_one_is_like_it(
    tmp_path: Path, name: str, mode: int
) -> None:
    kind, inside = PLACES[name]
    path = tmp_path / "memory" / inside
    path.parent.mkdir(parents=True)
    path.write_text("Deploys leave main.\n")
    if os.geteuid() == 0:
        os.chown(path, 12345, 12346)
    path.chmod(mode)
    before = rights(path)
    adapter = await opened(kind, tmp_path / "memory")
    try:
        [record] = (await adapter.browse(BrowseRequest(scope=SCOPE))).records
        request = WriteRequest(scope=SCOPE, source=SOURCE, content="Tabs, not blanks.")
        await adapter.write(request)
        [new] = {*path.parent.glob("*.md")} - {path, path.with_name("MEMORY.md")}
        assert rights(new) == before
        new.unlink()
        taken = await adapter.snapshot([record.handle], SCOPE)
        await adapter.forget(ForgetRequest(scope=SCOPE, handles=(record.handle,)))
        assert not path.exists()
        await adapter.restore(taken, SCOPE)
        assert rights(path) == before
        assert path.read_text() == "Deploys leave main.\n"
    finally:
        await adapter.close()
