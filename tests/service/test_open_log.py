"""Views of the operation log through the service."""

from __future__ import annotations

import asyncio

import pytest

from memtui.contract import Filter, Invalid, OperationType, WriteRequest
from memtui.service import Caller, MemoryService


@pytest.mark.parametrize("sort", ["-seq", "-cost_usd"])
async def test_an_opening_that_is_cancelled_leaves_the_log_readable(
    service: MemoryService, caller: Caller, note: WriteRequest, sort: str
) -> None:
    writes = Filter(operation_type=OperationType.WRITE)
    for content in ("one", "two"):
        await service.write(caller, note.model_copy(update={"content": content}))
    opening = asyncio.create_task(service.analysis.open_log(caller, writes, sort))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    view = await service.analysis.open_log(caller, writes, sort)
    assert {one.request["content"] for one in await view.window(0, 9)} == {"one", "two"}
    assert await view.tail(view.last) == ()
    await service.write(caller, note.model_copy(update={"content": "three"}))
    assert [one.request["content"] for one in await view.tail(view.last)] == ["three"]
    assert view.count == 2
    await view.close()


async def test_an_order_that_is_none_is_refused(service: MemoryService, caller: Caller) -> None:
    with pytest.raises(Invalid, match="cannot be sorted by colour"):
        await service.analysis.open_log(caller, sort="colour")
