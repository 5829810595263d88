"""A process that imports into `theirs`, to be killed: says how far it has come.

It keeps little in memory and adds few at once, so that few rows are as many.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from memtui.config import find_paths, load_settings
from memtui.importing import staging
from memtui.importing.importer import Import
from memtui.service import Caller, open_service
from memtui.service.home import imports

BATCH = 600


async def work(home: Path, file: Path) -> None:
    paths = find_paths(home)
    service = await open_service(paths, load_settings(paths))
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    done = await Import([file], "theirs", {}).run(
        service, caller, report=lambda what, count: print(what, count, flush=True)
    )
    print("done", done.added, done.known, flush=True)
    await service.close()


if __name__ == "__main__":
    imports._BATCH = BATCH
    staging._CACHE_KIB = 64
    asyncio.run(work(Path(sys.argv[1]), Path(sys.argv[2])))
