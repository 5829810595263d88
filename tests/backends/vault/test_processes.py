"""Several processes at one vault, and processes that are killed while they write."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtui.backends.vault import markdown
from memtui.backends.vault.history import Ledger
from memtui.contract import BrowseRequest, Problem
from tests.processes import heard_to_its_end, speaking

from .conftest import SCOPE, Open, ask, contents
from .writer import write


@pytest.mark.slow
async def test_eight_processes_lose_nothing(open_vault: Open, root: Path, tmp_path: Path) -> None:
    count = 12
    data = tmp_path / "data"
    writers = [speaking(write, root, data, f"w{number}", count) for number in range(8)]
    ids = [one for _, said in writers for one in heard_to_its_end(said)]
    for writer, said in writers:
        writer.join()
        said.close()
    assert [writer.exitcode for writer, _ in writers] == [0] * 8
    assert len(set(ids)) == len(ids) == 8 * count
    adapter = await open_vault()
    page = await adapter.browse(BrowseRequest(scope=SCOPE, limit=1000))
    assert sorted(r.handle.provider_record_id for r in page.records) == sorted(ids)
    for number in range(8):
        assert await ask(adapter, f"w{number}_{count - 1}", top_k=1)
    assert (await adapter.health()).status == "ok"


@pytest.mark.slow
async def test_a_killed_writer_leaves_whole_files(
    open_vault: Open, root: Path, tmp_path: Path
) -> None:
    acknowledged: list[str] = []
    for number in range(12):
        writer, said = speaking(write, root, tmp_path / "data", f"k{number}", 10_000)
        with said:
            acknowledged += [said.recv() for _ in range(1 + number % 5)]
            writer.kill()
            acknowledged += heard_to_its_end(said)
        writer.join()
    for path, raw in contents(root).items():
        text = raw.decode()
        if path.endswith(".jsonl"):
            assert Ledger(text).problems == []
        elif path.endswith("facts.md"):
            assert text.endswith("\n")
        else:
            document = markdown.split(text)
            assert not isinstance(document, Problem)
            assert document.text.count("word") == 2000
    adapter = await open_vault()
    page = await adapter.browse(BrowseRequest(scope=SCOPE, limit=1000))
    held = {record.handle.provider_record_id for record in page.records}
    assert set(acknowledged) <= held
    assert list(root.rglob(".memtui-*.tmp")) == []
