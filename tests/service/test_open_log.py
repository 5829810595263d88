"""Views of the operation log through the service."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from memtui.analytics.reading import Progress
from memtui.contract import Filter, Invalid, OperationType, WriteRequest
from memtui.service import Caller, MemoryService
from memtui.service.history.analysis import Analysis


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
    assert {one.request["content"] for one in await asyncio.to_thread(view.window, 0, 9)} == {
        "one",
        "two",
    }
    assert (await asyncio.to_thread(view.tail, view.last)).operations == ()
    await service.write(caller, note.model_copy(update={"content": "three"}))
    assert [
        one.request["content"] for one in (await asyncio.to_thread(view.tail, view.last)).operations
    ] == ["three"]
    assert view.count == 2
    view.close()


async def test_an_order_that_is_none_is_refused(service: MemoryService, caller: Caller) -> None:
    with pytest.raises(Invalid, match="cannot be sorted by colour"):
        await service.analysis.open_log(caller, sort="colour")


async def test_the_newest_are_told_of_in_the_loop_and_not_after_a_cancelling(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    await service.write(caller, note)
    await service.analysis.seal(caller, everything=True)
    await service.write(caller, note)
    writes = Filter(operation_type=OperationType.WRITE)
    told: list[Progress] = []

    async def opened() -> None:
        view = await service.analysis.open_log(caller, writes, early=told.append)
        assert view.count == 2
        view.close()

    await opened()
    assert [found.matches for found in told] == [1]
    assert told[0].newest[0].seq > 1
    opening = asyncio.create_task(opened())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await opened()
    assert [found.matches for found in told] == [1, 1]


async def test_closing_frees_the_engines_that_another_module_started(
    service: MemoryService, caller: Caller, note: WriteRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.write(caller, note)
    analysis = service.runtime.module(Analysis)
    (await analysis.open_log(caller, sort="-cost_usd")).close()
    [engine] = analysis._engines.values()
    freed: list[bool] = []
    monkeypatch.setattr(engine, "close", partial(freed.append, True))
    await service.close()
    assert freed == [True]
