"""Purge in a process of its own that is killed at a step: `purger.py HOME RECORD_ID STEP`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from memtui.config import find_paths, load_settings
from memtui.service import Caller, PurgeRequest, open_service


async def main() -> None:
    home, record_id, stop = sys.argv[1:]
    paths = find_paths(Path(home))
    service = await open_service(paths, load_settings(paths, principal="user:ana"))
    caller = Caller(company_id="local", principal="user:ana", door="test")

    def step(name: str) -> None:
        if name == stop:
            os.kill(os.getpid(), signal.SIGKILL)

    request = PurgeRequest(record_id=record_id, forget=True)
    await service.purging.apply(caller, request, step=step)
    await service.close()


if __name__ == "__main__":
    asyncio.run(main())
