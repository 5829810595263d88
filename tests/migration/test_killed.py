"""A migration or a sync killed at any moment and run again: identical, and nothing twice."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

import pytest

from memtui.config import Paths
from memtui.migration.verifying import verify
from memtui.service import Caller, MemoryService
from tests.migration import worker
from tests.migration.conftest import ends_of, fill, held, states
from tests.processes import heard_to_its_end, speaking

pytestmark = pytest.mark.slow

KILLS = 4
RECORDS = 60
STEPS = 700
"""The most that a process does before it dies, of some 3,000."""


async def test_killed_at_random_moments(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", RECORDS)
    before = await states(service, caller, "default")
    chance = random.Random(11)
    for _ in range(KILLS):
        assert _run(worker.move, paths, chance.randint(1, STEPS)) == (-signal.SIGKILL, [])
    assert _run(worker.move, paths) == (0, [0])
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
    for _ in range(KILLS):
        assert _run(worker.sync, paths, chance.randint(1, STEPS)) == (-signal.SIGKILL, [])
    assert _run(worker.sync, paths) == (0, [0])
    for key in ("default", "second"):
        await service.sync(caller, key)
    said = [
        sorted((one.text, str(one.scope)) for one in await held(service, caller, key))
        for key in ("default", "second")
    ]
    assert len(said[0]) == RECORDS // 2
    assert said[0] == said[1]


def _run(
    work: Callable[..., None], paths: Paths, killed_at: int | None = None
) -> tuple[int | None, list[object]]:
    """Let a process work, and return how it ended and what it said."""
    process, said = speaking(work, paths.data, killed_at)
    with said:
        heard = list(heard_to_its_end(said))
    process.join()
    return process.exitcode, heard
