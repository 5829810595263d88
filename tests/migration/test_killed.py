"""A migration or a sync killed at any moment and run again: identical, and nothing twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import pytest

from memtui.config import Paths
from memtui.migration.verifying import verify
from memtui.service import Caller, MemoryService
from tests.migration.conftest import ends_of, fill, held, states

pytestmark = pytest.mark.slow

KILLS = 4
RECORDS = 150


async def test_killed_at_random_moments(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", RECORDS)
    before = await states(service, caller, "default")
    chance = random.Random(11)
    cut = 0
    for _ in range(KILLS):
        process = _start(paths)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0.02, 0.4))
        process.send_signal(signal.SIGKILL)
        cut += "done" not in process.communicate()[0]
    assert cut > 1  # the later ones find little left to do
    last = _start(paths)
    output, errors = last.communicate(timeout=120)
    assert last.returncode == 0, errors
    assert output.split()[-1] == "0"
    await service.sync(caller, "second")
    assert await states(service, caller, "second") == before
    found = await verify(await ends_of(service, caller, "default", "second"), paths.data)
    assert found.passed
    assert (found.matched, found.others) == (RECORDS, 0)


async def test_a_sync_killed_at_random_moments_ends_in_step(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", RECORDS // 2)
    chance = random.Random(12)
    cut = 0
    for _ in range(KILLS):
        process = _start(paths, "syncer")
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0.02, 0.3))
        process.send_signal(signal.SIGKILL)
        cut += "done" not in process.communicate()[0]
    assert cut > 1
    last = _start(paths, "syncer")
    output, errors = last.communicate(timeout=120)
    assert last.returncode == 0, errors
    assert output.split() == ["ready", "done", "0", "0"]
    for key in ("default", "second"):
        await service.sync(caller, key)
    said = [
        sorted((one.text, str(one.scope)) for one in await held(service, caller, key))
        for key in ("default", "second")
    ]
    assert len(said[0]) == RECORDS // 2
    assert said[0] == said[1]


def _start(paths: Paths, what: str = "mover") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.migration.{what}", str(paths.data), "default", "second"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
