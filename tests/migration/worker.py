"""Processes that migrate or sync two bindings, and may be killed in the middle of it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path

from memtui.config import find_paths, load_settings
from memtui.migration import moving, syncing
from memtui.migration.endpoints import Endpoints, open_endpoints
from memtui.service import Caller, open_service


def move(home: Path, killed_at: int | None, told: Connection) -> None:
    """Migrate `default` to `second`; says how many failed."""

    async def work(ends: Endpoints, data: Path) -> int:
        return (await moving.apply(ends, data)).failed

    asyncio.run(_between(home, work, killed_at, told))


def sync(home: Path, killed_at: int | None, told: Connection) -> None:
    """Sync `default` and `second`; says how many failed or are in conflict."""

    async def work(ends: Endpoints, data: Path) -> int:
        done = await syncing.sync(ends, data)
        return done.failed + len(done.conflicts)

    asyncio.run(_between(home, work, killed_at, told))


async def _between(
    home: Path,
    work: Callable[[Endpoints, Path], Awaitable[int]],
    killed_at: int | None,
    told: Connection,
) -> None:
    paths = find_paths(home)
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    service = await open_service(paths, load_settings(paths, fact_max_count=0))
    ends = await open_endpoints(service, caller, "default", "second")
    if killed_at is not None:
        _die_at(killed_at)
    told.send(await work(ends, paths.data))
    await service.close()


def _die_at(left: int) -> None:
    """Die at so many-th of the steps that Python itself tells of, such as opening a file."""

    def step(_event: str, _of: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(step)
