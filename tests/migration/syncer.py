"""A process that syncs two bindings, to be killed: says `ready`, then `done`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from memtui.config import find_paths, load_settings
from memtui.migration.ends import open_ends
from memtui.migration.syncing import sync
from memtui.service import Caller, open_service


async def work(home: Path, left: str, right: str) -> None:
    paths = find_paths(home)
    caller = Caller(company_id="local", principal="user:ana", door="test")
    service = await open_service(paths, load_settings(paths, fact_max_count=0))
    ends = await open_ends(service, caller, left, right)
    print("ready", flush=True)
    done = await sync(ends, paths.data)
    print("done", done.failed, len(done.conflicts), flush=True)
    await service.close()


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
