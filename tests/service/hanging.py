"""A process that begins one mutation of `acme` and hangs inside of the provider's call."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from pathlib import Path

from memtui.config import find_paths, load_settings
from memtui.contract import (
    CorrectRequest,
    ForgetRequest,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.service import Caller
from tests.service.conftest import start
from tests.service.fake import FakeAdapter

SCOPE = Scope(company_id="acme", project_id="p")
SOURCE = SourceRef(kind=SourceKind.RUN, company_id="acme", run_id="r1")
HANDLE = RecordHandle(provider_key="fake", provider_record_id="r1")
CALLER = Caller(company_id="acme", principal="agent:coding", channel="mcp")
BEFORE = Record(handle=HANDLE, text="We deploy from release", scope=SCOPE, revision="1")
TEXT = "We deploy from main"


def hang(home: Path, database_url: str, kind: str, told: Connection) -> None:
    """Begin a mutation of this kind, and say so."""
    asyncio.run(_hang(home, database_url, kind, told))


async def _hang(home: Path, database_url: str, kind: str, told: Connection) -> None:
    async def inside(_self: FakeAdapter, _request: object) -> None:
        told.send("inside")
        await asyncio.Event().wait()

    paths = find_paths(home)
    settings = load_settings(paths, database_url=database_url, provider_timeout_ms=600_000)
    service = await start(paths, settings, CALLER)
    FakeAdapter.records["acme/default"][HANDLE.provider_record_id] = BEFORE
    setattr(FakeAdapter, kind, inside)
    if kind == "write":
        await service.write(CALLER, WriteRequest(scope=SCOPE, source=SOURCE, content=TEXT))
    elif kind == "correct":
        await service.correct(
            CALLER, CorrectRequest(scope=SCOPE, handle=HANDLE, text=TEXT, revision="1")
        )
    else:
        await service.forget(CALLER, ForgetRequest(scope=SCOPE, handles=(HANDLE,)))
