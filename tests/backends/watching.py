"""A watch that somebody gives up, as an app does that looks elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from memtui.contract import Adapter, RecordHandle


async def give_up_a_watch(adapter: Adapter) -> None:
    """Begin to watch, and cancel that while it waits for the system."""

    async def watch() -> Sequence[RecordHandle] | None:
        return await anext(adapter.watch(), None)

    waiting = asyncio.ensure_future(watch())
    await asyncio.wait([waiting], timeout=0.5)
    waiting.cancel()
    await asyncio.wait([waiting])
