"""A server that is not ours breaks off at each of a mutation's calls, before it or after it.

What happened is unknown then, is told, and is settled by a check.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from memtui.config import find_paths, load_settings
from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Filter,
    ForgetRequest,
    Invalid,
    MemtuiError,
    OperationStatus,
    RecordHandle,
    Scope,
    SourceRef,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, Operation, open_service
from tests.backends.facts_http.server import Server
from tests.backends.hindsight.server import StandIn as Hindsight
from tests.backends.mcp.conftest import MAPPING
from tests.backends.mcp.loopback import Notes
from tests.backends.mcp_memory_service.server import StandIn
from tests.backends.mem0.servers import Platform
from tests.backends.plugin_v1.servers.loopback import serve, talk
from tests.backends.plugin_v1.servers.reference import Reference

ANA = Caller(company_id="local", principal="user:ana", channel="test")
SCOPE = Scope(company_id="local", subject_id="ana")
SOURCE = SourceRef(kind="manual_note", company_id="local")
KEPT, OLD, NEW = "Never on Fridays", "The port is 5432", "The port is 6000"
UNKNOWN = Filter(status=OperationStatus.UNKNOWN)
_READS = (
    b"GET ",
    b"POST /v1/search",
    b"POST /api/search",
    b"POST /v3/memories/search",
    b"POST /v3/memories/?",
    b"POST /v1/default/banks/b1/memories/recall",
)
_MCP_CHANGE = re.compile(rb'"name":"(add|change|delete)_note"')


@dataclass
class Cut:
    """Passes a server's calls on, and breaks off at one that changes something."""

    port: int
    calls: int = 0
    at: int = 0
    """The number of the call at which it breaks off; 0: at none."""
    applied: bool = False
    """Whether the server still does what it was asked for."""
    at_reads: bool = False
    """Whether it breaks off at a read that follows a change, not at a change."""
    changed: bool = False

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                names = dict(
                    line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line
                )
                body = await reader.readexactly(int(names.get(b"content-length", b"0")))
                is_mcp_read = head.startswith(b"POST / ") and not _MCP_CHANGE.search(body)
                is_read = head.startswith(_READS) or is_mcp_read
                is_counted = is_read and self.changed if self.at_reads else not is_read
                self.changed |= not is_read
                self.calls += is_counted
                is_cut = is_counted and self.at == self.calls
                if is_cut and not self.applied:
                    break
                answer = await self._passed_on(head + body)
                if is_cut:
                    break
                writer.write(answer)
                await writer.drain()
        writer.close()

    async def _passed_on(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        body = await reader.readexactly(int(length or b"0"))
        writer.close()
        return head + body


@asynccontextmanager
async def plugin() -> AsyncIterator[tuple[str, dict[str, Any]]]:
    async with serve(talk(Reference())) as url:
        yield url, {}


@asynccontextmanager
async def threaded(server: Any, config: dict[str, Any]) -> AsyncIterator[tuple[str, Any]]:
    try:
        yield server.url, config
    finally:
        await asyncio.to_thread(server.stop)


SERVERS: dict[str, Callable[[], Any]] = {
    "plugin-v1": plugin,
    "hindsight": lambda: threaded(Hindsight(None, "b1"), {"bank": "b1", "extracts": False}),
    "mcp-memory-service": lambda: threaded(StandIn("k3y"), {"token_secret": "K"}),
    "mcp": lambda: threaded(Notes(), {"mapping": MAPPING}),
    "mem0": lambda: threaded(Platform(), {"api": "platform", "api_key_secret": "K"}),
    "facts-http": lambda: threaded(Server(), {"token_secret": "T", "subject_id": "ana"}),
}


@dataclass
class Place:
    """A home whose binding `far` is a server behind the one that breaks off."""

    service: MemoryService
    cut: Cut
    handles: list[RecordHandle] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)

    @property
    def old(self) -> RecordHandle:
        return self.handles[1]

    async def texts(self) -> list[str]:
        """Return the texts that are there; `handles` are those of the first two from now on."""
        page = await self.service.browse(ANA, BrowseRequest(scope=SCOPE, binding_key="far"))
        found = {one.text: one.handle for one in page.records}
        self.handles = [found[text] for text in (KEPT, OLD) if text in found]
        return sorted(one.text for one in page.records)

    async def newly_unknown(self) -> list[Operation]:
        """Return the operations with an unknown outcome that were not returned before."""
        found = (await self.service.log.page(ANA, UNKNOWN)).operations
        new = [one for one in found if one.operation_id not in self.unknown]
        self.unknown |= {one.operation_id for one in new}
        return new

    async def write(self) -> Any:
        return await self.service.write(ANA, WriteRequest(
            scope=SCOPE, source=SOURCE, content=NEW, kind="fact", binding_key="far",
        ))  # fmt: skip

    async def correct(self) -> Any:
        return await self.service.correct(
            ANA, CorrectRequest(scope=SCOPE, handle=self.old, text=NEW, binding_key="far")
        )

    async def forget(self) -> Any:
        return await self.service.forget(
            ANA, ForgetRequest(scope=SCOPE, handles=(self.old,), binding_key="far")
        )

    async def forget_all(self) -> Any:
        return await self.service.forget(
            ANA, ForgetRequest(scope=SCOPE, handles=tuple(self.handles), binding_key="far")
        )

    async def undo(self) -> Any:
        return await self.service.undo(ANA)


@asynccontextmanager
async def opened(provider: str, home: Path, begun: Path) -> AsyncIterator[Place]:
    shutil.copytree(begun, home)
    paths = find_paths(home)
    settings = load_settings(paths, principal="user:ana")
    async with SERVERS[provider]() as (url, config):
        cut = Cut(int(url.rpartition(":")[2]))
        proxy = await asyncio.start_server(cut, "127.0.0.1", 0)
        mine = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        service = await open_service(paths, settings)
        await service.bindings.add(ANA, "far", provider, {**config, "url": mine})
        place = Place(service, cut)
        for text in (KEPT, OLD):
            asked = WriteRequest(
                scope=SCOPE, source=SOURCE, content=text, kind="fact", binding_key="far"
            )
            await service.write(ANA, asked)
        assert await place.texts() == sorted((KEPT, OLD))
        yield place
        await service.close()
        proxy.close()
        await proxy.wait_closed()


MUTATIONS = {
    "write": ((KEPT, OLD), (KEPT, NEW, OLD)),
    "correct": ((KEPT, OLD), (KEPT, NEW)),
    "forget": ((KEPT, OLD), (KEPT,)),
    "undo a write": ((KEPT, NEW, OLD), (KEPT, OLD)),
    "undo a correct": ((KEPT, NEW), (KEPT, OLD)),
    "undo a forget": ((KEPT,), (KEPT, OLD)),
}


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before a change", "after a change", "at a read after it"])
@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("provider", SERVERS)
async def test_what_broke_off_is_unknown_until_it_is_checked(
    provider: str, mutation: str, where: str, begun: Path, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setenv("K", "k3y")
    monkeypatch.setenv("T", "t0ken")
    before, after = (sorted(one) for one in MUTATIONS[mutation])
    what, _, of = mutation.partition(" a ")
    async with opened(provider, tmp_path / "home", begun) as place:
        if of:
            await getattr(place, of)()
        for at in range(1, 10):
            assert await place.texts() == before
            place.cut.calls, place.cut.at, place.cut.applied = 0, at, where == "after a change"
            place.cut.at_reads, place.cut.changed = where == "at a read after it", False
            told = ""
            try:
                await getattr(place, what)()
            except MemtuiError as error:
                told = str(error)
            place.cut.at = 0
            now = await place.texts()
            if told:
                [unknown] = await place.newly_unknown()
                assert f"ops check {unknown.operation_id}" in told
                assert now in (before, after)
                found = await place.service.check_outcome(ANA, unknown.operation_id)
                assert found.happened is (now == after), found.sentence
                if found.happened:
                    await place.service.undo(ANA, unknown.operation_id)
                    assert await place.texts() == before
                    continue
                await getattr(place, what)()
                now = await place.texts()
            assert now == after
            if not told and place.cut.calls < at:  # all its calls have had their turn
                return
            await getattr(place, of or "undo")()
    pytest.fail("the mutation makes more and more calls")


@pytest.mark.slow
@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("mutation", ["forget", "undo"])
@pytest.mark.parametrize("provider", SERVERS)
async def test_what_broke_off_in_the_middle_is_had_back(
    provider: str, mutation: str, begun: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    *, applied: bool,
) -> None:  # fmt: skip
    monkeypatch.setenv("K", "k3y")
    monkeypatch.setenv("T", "t0ken")
    async with opened(provider, tmp_path / "home", begun) as place:
        for at in range(1, 10):
            gone = ""
            if mutation == "undo":
                gone = (await place.forget_all()).operation_id
            place.cut.calls, place.cut.at, place.cut.applied = 0, at, applied
            with suppress(MemtuiError):
                if mutation == "undo":
                    await place.undo()
                else:
                    gone = (await place.forget_all()).operation_id
            place.cut.at = 0
            there = len(await place.texts())
            done = there if mutation == "undo" else 2 - there
            for one in await place.newly_unknown():
                found = await place.service.check_outcome(ANA, one.operation_id)
                assert (found.happened, "in part" in found.sentence) == (done > 0, done == 1)
                gone = gone or one.operation_id
            with suppress(Conflict, Invalid):  # all of it is undone, or nothing was done
                await place.service.undo(ANA, gone)
            assert await place.texts() == sorted((KEPT, OLD))
            if place.cut.calls < at:  # all its calls have had their turn
                return
    pytest.fail("the mutation makes more and more calls")
