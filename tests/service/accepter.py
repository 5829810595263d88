"""Accept what waits for review in a process that is killed around the provider's write."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from memtui.backends.vault import VaultAdapter
from memtui.config import find_paths, load_settings
from memtui.service import Caller, open_service

ANA = Caller(company_id="local", principal="user:ana", channel="test")


def accept_and_die(home: Path, pending_id: str, moment: str) -> None:
    """Accept it; the write never returns, "before" or "after" it was done."""
    asyncio.run(_accept(home, pending_id, moment))


async def _accept(home: Path, pending_id: str, moment: str) -> None:
    write = VaultAdapter.write

    async def dying(self: VaultAdapter, request: Any) -> Any:
        if moment == "after":
            await write(self, request)
        os.kill(os.getpid(), signal.SIGKILL)

    VaultAdapter.write = dying  # type: ignore[method-assign]
    paths = find_paths(home)
    service = await open_service(paths, load_settings(paths, principal="user:ana"))
    await service.review.accept(ANA, pending_id)
