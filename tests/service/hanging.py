"""A process that begins one mutation of `acme` and hangs inside of the provider's call."""

from __future__ import annotations

import asyncio
import sys
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
CALLER = Caller(company_id="acme", principal="agent:coding", door="mcp")
BEFORE = Record(handle=HANDLE, text="We deploy from release", scope=SCOPE, revision="1")
TEXT = "We deploy from main"


async def hang(self: FakeAdapter, _request: object) -> None:
    print("inside", flush=True)
    await asyncio.Event().wait()


async def main(home: Path, database_url: str, kind: str) -> None:
    paths = find_paths(home)
    settings = load_settings(paths, database_url=database_url, provider_timeout_ms=600_000)
    service = await start(paths, settings, CALLER)
    FakeAdapter.records["acme/default"][HANDLE.provider_record_id] = BEFORE
    setattr(FakeAdapter, kind, hang)
    if kind == "write":
        await service.write(CALLER, WriteRequest(scope=SCOPE, source=SOURCE, content=TEXT))
    elif kind == "correct":
        await service.correct(
            CALLER, CorrectRequest(scope=SCOPE, handle=HANDLE, text=TEXT, revision="1")
        )
    else:
        await service.forget(CALLER, ForgetRequest(scope=SCOPE, handles=(HANDLE,)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
