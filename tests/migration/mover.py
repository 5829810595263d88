"""A process that migrates, to be killed: says `ready`, then each page, then `done`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from memtui.config import find_paths, load_settings
from memtui.migration.ends import open_ends
from memtui.migration.moving import apply
from memtui.service import Caller, open_service


async def work(home: Path, source: str, destination: str) -> None:
    paths = find_paths(home)
    caller = Caller(company_id="local", principal="user:ana", door="test")
    service = await open_service(paths, load_settings(paths, fact_max_count=0))
    ends = await open_ends(service, caller, source, destination)
    print("ready", flush=True)
    done = await apply(ends, paths.data)
    print("done", done.written, done.replaced, done.unchanged, done.failed, flush=True)
    await service.close()


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
