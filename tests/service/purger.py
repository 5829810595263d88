"""Purge in a process that is killed at a step."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from memtui.config import find_paths, load_settings
from memtui.service import Caller, open_service
from memtui.service.home.survey import PurgeRequest


def purge_and_die(home: Path, request: str, stop: str) -> None:
    """Purge what a request in JSON names; die at a step."""
    asyncio.run(_purge(home, request, stop))


async def _purge(home: Path, request: str, stop: str) -> None:
    paths = find_paths(home)
    service = await open_service(paths, load_settings(paths, principal="user:ana"))
    caller = Caller(company_id="local", principal="user:ana", channel="test")

    def step(name: str) -> None:
        if name == stop:
            os.kill(os.getpid(), signal.SIGKILL)

    await service.purging.apply(caller, PurgeRequest.model_validate_json(request), step=step)
    await service.close()
