"""The limit of a scope's facts holds between processes that add at the same moment."""

from __future__ import annotations

import asyncio
import contextlib
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from memtui.config import Paths, find_paths, load_settings
from memtui.contract import BrowseRequest, Invalid, Scope, SourceRef, WriteRequest
from memtui.service import Caller, open_service
from tests.processes import prepared_processes

WHO = Caller(company_id="local", principal="user:ana", channel="test")
USERS = [Scope(company_id="local", subject_id=f"user-{number}") for number in range(5)]


def add_facts(home: Path, name: str, together: Barrier) -> None:
    asyncio.run(adding(home, name, together))


async def adding(home: Path, name: str, together: Barrier) -> None:
    paths = find_paths(home)
    service = await open_service(paths, load_settings(paths, fact_max_count=1))
    source = SourceRef(kind="manual_note", company_id="local")
    for user in USERS:
        request = WriteRequest(scope=user, source=source, content=f"By {name}", kind="fact")
        await asyncio.to_thread(together.wait)
        with contextlib.suppress(Invalid):
            await service.write(WHO, request)
    await service.close()


@pytest.mark.slow
async def test_two_processes_never_add_one_too_many(paths: Paths) -> None:
    service = await open_service(paths, load_settings(paths))
    try:
        context = prepared_processes()
        together = context.Barrier(2, timeout=60)
        writers = [
            context.Process(target=add_facts, args=(paths.data, name, together)) for name in "AB"
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            await asyncio.to_thread(writer.join)
        assert [writer.exitcode for writer in writers] == [0, 0]
        pages = [await service.browse(WHO, BrowseRequest(scope=user)) for user in USERS]
        assert [len(page.records) for page in pages] == [1] * len(USERS)
    finally:
        await service.close()
