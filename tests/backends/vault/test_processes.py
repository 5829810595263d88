"""Several processes at one vault, and processes that are killed while they write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memtui.backends.vault import markdown
from memtui.backends.vault.history import Ledger
from memtui.contract import BrowseRequest, Problem

from .conftest import SCOPE, Open, ask, contents

WRITER = """
import asyncio, sys
from pathlib import Path
from memtui.backends.vault import VaultAdapter
from memtui.contract import *

async def main(root, data, name, count):
    scope = Scope(company_id="acme", project_id="web")
    source = SourceRef(kind=SourceKind.RUN, company_id="acme", run_id=name)
    adapter = await VaultAdapter.open(BindingContext(
        company_id="acme", binding_key="v", config={"path": root, "lock_seconds": 60},
        data_dir=Path(data)))
    for number in range(count):
        kind = ("note", "fact")[number % 2]
        text = f"{name}_{number}: " + "word " * (1 if kind == "fact" else 2000)
        reply = await adapter.write(WriteRequest(
            scope=scope, source=source, content=text.strip(), kind=kind, topic=f"T{number % 4}"))
        print(reply.records[0].provider_record_id, flush=True)
    await adapter.close()

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
"""


def start(root: Path, data: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(root), str(data), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
async def test_eight_processes_lose_nothing(open_vault: Open, root: Path, tmp_path: Path) -> None:
    count = 12
    data = tmp_path / "data"
    writers = [start(root, data, f"w{number}", count) for number in range(8)]
    ids = [line for writer in writers for line in writer.communicate()[0].split()]
    assert [writer.returncode for writer in writers] == [0] * 8
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
        writer = start(root, tmp_path / "data", f"k{number}", 10_000)
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(1 + number % 5)]
        os.kill(writer.pid, signal.SIGKILL)
        lines += writer.communicate()[0].splitlines(keepends=True)
        acknowledged += [line.strip() for line in lines if line.endswith("\n")]
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
