"""An import that is killed: nothing of the file is left about, and the next one goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memtui.config import Paths
from memtui.service import Caller, MemoryService
from tests.importing.conftest import json_lines, log_of, row
from tests.importing.importer import BATCH

THEIRS = Caller(company_id="theirs", principal="user:ana", channel="test")
ROWS = 1_000
LONG = "marmalade " * 80
"""With it, more waits than the importer of these tests keeps in memory."""


@pytest.mark.slow
async def test_nothing_is_left_but_what_was_imported(
    service: MemoryService, paths: Paths, tmp_path: Path
) -> None:
    file = json_lines(tmp_path / "a.jsonl", (row(operation_id=n, query=LONG) for n in range(ROWS)))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    kill(paths, file, temporary, when=f"read {ROWS}\n")
    assert [one.company_id for one in await service.companies.all()] == ["local"]
    assert not any("marmalade" in path.read_text("latin-1") for path in files_of(paths))
    kill(paths, file, temporary, when=f"gone through {BATCH}\n")
    held = (await service.log.page(THEIRS, limit=1)).total
    assert held in {BATCH, ROWS}  # whole batches, each of them one transaction
    last = start(paths, file, temporary)
    output, errors = last.communicate(timeout=120)
    assert last.returncode == 0, errors
    assert output.splitlines()[-1] == f"done {ROWS - held} {held}"
    assert (await service.log.page(THEIRS, limit=1)).total == ROWS
    assert len({one.operation_id for one in await log_of(service)}) == 1000
    assert (await service.analysis.verify_chain(THEIRS)).problem is None


def kill(paths: Paths, file: Path, temporary: Path, *, when: str) -> None:
    """Kill an import as it says this; what it has open has no name, so that all of it goes."""
    process = start(paths, file, temporary)
    assert process.stdout is not None
    while (line := process.stdout.readline()) != when:
        assert line, "it ended before"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert list(temporary.iterdir()) == []


def start(paths: Paths, file: Path, temporary: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.importing.importer", str(paths.data), str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(temporary), "SQLITE_TMPDIR": str(temporary)},
    )


def files_of(paths: Paths) -> list[Path]:
    return [path for path in paths.data.rglob("*") if path.is_file()]
