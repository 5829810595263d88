"""mcp-memory-service: its own rules about texts, tags, types and uses, and trouble on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from memtui.backends.mcp_memory_service import McpMemoryServiceAdapter, hash_of
from memtui.contract import (
    Adapter,
    BindingContext,
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Denied,
    ForgetRequest,
    Invalid,
    Json,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Unavailable,
    Unsupported,
    WriteRequest,
)
from memtui.testing import AdapterContract
from tests.backends.damaged import DAMAGED, WHOLE, hidden
from tests.backends.mcp_memory_service.conftest import Server
from tests.backends.mcp_memory_service.server import KEY, StandIn, exchanges, without_times

ACME = Scope(company_id="acme")
Opened = Callable[..., Awaitable[McpMemoryServiceAdapter]]


class TestContract(AdapterContract):
    capabilities = McpMemoryServiceAdapter.capabilities
    has_each_text_once = True
    finds_neighbours = True

    @pytest.fixture(autouse=True)
    def _running(self, server: Server) -> None:
        self.url = server.url

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        context = self.context(tmp_path, url=self.url, token_secret="MEMORY_KEY")
        secret = {"MEMORY_KEY": KEY}.get
        return await McpMemoryServiceAdapter.open(context.model_copy(update={"secret": secret}))


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    adapters: list[McpMemoryServiceAdapter] = []

    async def open_one(url: str, *, key: str = KEY, **config: Any) -> McpMemoryServiceAdapter:
        context = BindingContext(
            company_id="acme",
            binding_key="memories",
            config={"url": url, "token_secret": "MEMORY_KEY", **config},
            data_dir=tmp_path,
            secret={"MEMORY_KEY": key}.get,
        )
        adapters.append(await McpMemoryServiceAdapter.open(context))
        return adapters[-1]

    yield open_one
    for adapter in adapters:
        await adapter.close()


def api(server: Server, method: str, path: str, body: Json | None = None, key: str = KEY) -> Any:
    """Ask the server as another program does."""
    headers = {"X-API-Key": key}
    return httpx.request(method, server.url + path, json=body, headers=headers, timeout=30)


async def write(adapter: McpMemoryServiceAdapter, text: str, **fields: Any) -> RecordHandle:
    request = WriteRequest(**{"scope": ACME, "source": None, "content": text, **fields})
    return (await adapter.write(request)).records[0]


async def read(adapter: McpMemoryServiceAdapter, handle: RecordHandle) -> Record:
    record = await adapter.get(handle, ACME)
    assert record is not None
    return record


async def correct(
    adapter: McpMemoryServiceAdapter, handle: RecordHandle, **changes: Any
) -> RecordHandle:
    return (await adapter.correct(CorrectRequest(scope=ACME, handle=handle, **changes))).handle


async def listed(adapter: McpMemoryServiceAdapter) -> list[str]:
    page = await adapter.browse(BrowseRequest(scope=ACME, limit=1000))
    return sorted(record.text for record in page.records)


def test_it_answers_as_recorded(server: Server) -> None:
    for told in exchanges():
        reply = api(server, told["method"], told["path"], told["body"], told.get("key", KEY))
        assert reply.status_code == told["status"], told
        assert without_times(reply.json()) == without_times(told["reply"]), told


async def test_what_another_program_stored(server: Server, opened: Opened) -> None:
    metadata = {"quality_score": 0.5, "agent_id": "scout"}
    body = {"content": "Kept.", "tags": ["a", "b"], "memory_type": "decision", "metadata": metadata}
    api(server, "POST", "/api/memories", body)
    api(server, "POST", "/api/memories", {"content": "Untyped."})
    adapter = await opened(server.url)
    page = await adapter.browse(BrowseRequest(scope=ACME, sort="created_at"))
    kept, untyped = page.records
    assert (kept.kind, kept.tags, kept.created_by) == ("decision", ("a", "b"), "scout")
    assert kept.metadata == metadata
    assert (untyped.kind, untyped.tags) == ("memory", ())
    assert page.total == 2
    assert not page.at_least


async def test_a_memory_whose_owner_cannot_be_read_is_nobodys(
    server: Server, opened: Opened
) -> None:
    for number, part in enumerate((*DAMAGED, *WHOLE)):
        body = {"content": f"Otter {number}.", "metadata": {"memtui": part}, "conversation_id": "c"}
        assert api(server, "POST", "/api/memories", body).json()["success"]
    adapter = await opened(server.url)
    records = await hidden(adapter, "otter")
    assert [one.scope.subject_id for one in records] == ["ana"] * len(WHOLE)
    damaged = adapter.handle_of(hash_of("Otter 0."))
    with pytest.raises(Unavailable, match="memtui's part of its metadata is damaged"):
        await adapter.get(damaged, ACME)
    with pytest.raises(Unavailable, match="memtui's part"):
        await adapter.forget(ForgetRequest(scope=ACME, handles=(damaged,)))


async def test_every_field_of_a_write_comes_back(server: Server, opened: Opened) -> None:
    adapter = await opened(server.url)
    scope = Scope(company_id="acme", project_id="web", subject_id="ana", run_id="r-1")
    fields: dict[str, Any] = {
        "title": "T", "kind": "Guidance", "topic": "deploys", "tags": ("Ops", "a,b"),
        "metadata": {"tags": "mine", "access_count": 7, "memtui": "no", "x": None},
        "created_by": "user:ana",
    }  # fmt: skip
    record = await read(adapter, await write(adapter, "Deploys.", scope=scope, **fields))
    assert {name: getattr(record, name) for name in fields} == fields
    assert record.scope == scope
    after = await read(adapter, await correct(adapter, record.handle, text="No deploys."))
    assert {name: getattr(after, name) for name in fields if name != "metadata"} == {
        name: value for name, value in fields.items() if name != "metadata"
    }
    assert after.created_at == record.created_at


async def test_a_search_is_no_change_of_what_it_finds(server: Server, opened: Opened) -> None:
    adapter = await opened(server.url)
    handle = await write(adapter, "The pelican job archives invoices.")
    before = await read(adapter, handle)
    found = await adapter.query(QueryRequest(scope=ACME, query="pelican"))
    assert found.snippets[0].handle == handle
    assert (found.snippets[0].score or 0) > 0
    stored = api(server, "GET", f"/api/memories/{handle.provider_record_id}").json()
    assert stored["metadata"]["access_count"] == 1
    assert await read(adapter, handle) == before


async def test_a_near_duplicate_is_a_conflict_with_it(server: Server, opened: Opened) -> None:
    adapter = await opened(server.url)
    first = await write(adapter, "one two three four five six")
    with pytest.raises(Conflict, match="says nearly the same") as caught:
        await write(adapter, "One two three: four five six!")
    assert caught.value.current == await read(adapter, first)
    lenient = await opened(server.url, near_duplicates=True)
    await write(lenient, "One two three: four five six!")
    assert len(await listed(adapter)) == 2


async def test_a_small_correction_is_no_near_duplicate(server: Server, opened: Opened) -> None:
    adapter = await opened(server.url)
    first = await write(adapter, "one two three four five six", tags=("t",))
    second = await correct(adapter, first, text="one two three four five six.")
    assert await listed(adapter) == ["one two three four five six."]
    back = await correct(adapter, second, text="one two three four five six")
    assert back == first
    assert (await read(adapter, back)).tags == ("t",)


async def test_case_alone_cannot_be_corrected(server: Server, opened: Opened) -> None:
    adapter = await opened(server.url)
    handle = await write(adapter, "main")
    with pytest.raises(Unsupported, match="without case"):
        await correct(adapter, handle, text="Main ")
    assert await listed(adapter) == ["main"]


async def test_tags_that_another_program_changed_hold(server: Server, opened: Opened) -> None:
    adapter = await opened(server.url)
    handle = await write(adapter, "Tagged.", tags=("Ops",))
    before = await read(adapter, handle)
    path = f"/api/memories/{handle.provider_record_id}"
    api(server, "PUT", path, {"tags": ["theirs"]})
    after = await read(adapter, handle)
    assert after.tags == ("theirs",)
    assert after.revision != before.revision
    with pytest.raises(Conflict):
        await correct(adapter, handle, tags=("mine",), revision=before.revision)
    with pytest.raises(Invalid, match="at most 100 tags"):
        await correct(adapter, handle, tags=("x" * 101,))


async def test_a_thousand_records(server: Server, opened: Opened) -> None:
    for number in range(1_000):
        body = {"content": f"w{number} x{number * 7}", "conversation_id": "c"}
        assert api(server, "POST", "/api/memories", body).json()["success"]
    adapter = await opened(server.url)
    first = await adapter.browse(BrowseRequest(scope=ACME, limit=300))
    assert (first.total, len(first.records), first.at_least) == (1_000, 300, False)
    assert len(await listed(adapter)) == 1_000
    short = await opened(server.url, max_listed=250)
    page = await short.browse(BrowseRequest(scope=ACME, limit=1000))
    assert (len(page.records), page.at_least) == (250, True)
    assert page.unread == (
        "250 memories were read; raise the binding's max_listed to read further.",
    )
    handles = tuple(record.handle for record in first.records[:50])
    assert (await adapter.forget(ForgetRequest(scope=ACME, handles=handles))).missing == ()
    assert len(await listed(adapter)) == 950


async def test_a_wrong_token(server: Server, opened: Opened) -> None:
    adapter = await opened(server.url, key="wrong")
    with pytest.raises(Denied, match="check the token"):
        await adapter.browse(BrowseRequest(scope=ACME))
    health = await adapter.health()
    assert health.status == "down"
    assert "wrong" not in health.message


async def test_health(server: Server, opened: Opened) -> None:
    health = await (await opened(server.url)).health()
    assert (health.status, health.version) == ("ok", "12.4.0")


async def test_a_server_that_is_down(opened: Opened) -> None:
    stopped = StandIn()
    stopped.stop()
    adapter = await opened(stopped.url)
    with pytest.raises(Unavailable, match="cannot be reached") as caught:
        await write(adapter, "Anything.")
    assert not caught.value.sent
    assert (await adapter.health()).status == "down"


async def test_a_slow_server(opened: Opened) -> None:
    server = StandIn()
    try:
        adapter = await opened(server.url, timeout_seconds=0.2)
        with server.turn, pytest.raises(Unavailable, match="did not answer within") as caught:
            await write(adapter, "Anything.")
        assert caught.value.sent
    finally:
        server.stop()


@pytest.mark.parametrize("broken", ["delete fails", "deleted meanwhile"])
async def test_a_correction_that_breaks_off_loses_nothing(opened: Opened, broken: str) -> None:
    class Breaking(StandIn):
        is_broken = False

        def answer(self, method: str, path: str, headers: dict[str, str], body: Any) -> Any:
            if method == "DELETE" and self.is_broken:
                self.is_broken = False
                if broken == "delete fails":
                    return 500, {"detail": "Failed to delete memory. Please try again."}
                super().answer(method, path, headers, body)
            return super().answer(method, path, headers, body)

    server = Breaking()
    try:
        adapter = await opened(server.url)
        handle = await write(adapter, "Old words.")
        server.is_broken = True
        expected = Unavailable if broken == "delete fails" else Conflict
        with pytest.raises(expected) as caught:
            await correct(adapter, handle, text="New sentence.")
        assert await listed(adapter) == (["Old words."] if broken == "delete fails" else [])
        if isinstance(caught.value, Unavailable):
            assert await adapter.get(handle, ACME) is not None
    finally:
        server.stop()


async def test_a_text_that_was_split_is_told(opened: Opened) -> None:
    class Splitting(StandIn):
        def answer(self, method: str, path: str, headers: dict[str, str], body: Any) -> Any:
            if method != "POST":
                return super().answer(method, path, headers, body)
            piece = {**body, "content": body["content"][:5]}
            status, reply = super().answer(method, path, headers, piece)
            return status, {**reply, "message": "Memory stored as 2 chunks"}

    server = Splitting()
    try:
        adapter = await opened(server.url)
        with pytest.raises(Unavailable, match="in pieces") as caught:
            await write(adapter, "A long text.")
        assert caught.value.sent
    finally:
        server.stop()


async def test_read_only(server: Server, opened: Opened, tmp_path: Path) -> None:
    del opened
    context = BindingContext(
        company_id="acme", binding_key="b", config={"url": server.url}, read_only=True,
        data_dir=tmp_path,
    )  # fmt: skip
    adapter = await McpMemoryServiceAdapter.open(context)
    assert not adapter.capabilities.writable
    with pytest.raises(Unsupported):
        await write(adapter, "No.")
    await adapter.close()


def test_each_store_is_a_place_of_its_own(tmp_path: Path) -> None:
    def places(**config: str) -> Any:
        config = {"url": "http://127.0.0.1:8000/", **config}
        context = BindingContext(company_id="a", binding_key="b", config=config, data_dir=tmp_path)
        return McpMemoryServiceAdapter.places(context)

    assert places() == [("url", "localhost:8000", "store", "default")]
    assert places() != places(store="other")


async def test_a_token_stays_off_unencrypted_ways(opened: Opened) -> None:
    with pytest.raises(Invalid, match="unencrypted"):
        await opened("http://memories.example")
    with pytest.raises(Invalid, match="no token can have"):
        await opened("https://memories.example", key="two words")


async def test_writes_beside_a_list_that_changes(opened: Opened) -> None:
    """A list read while it grows is read again, so that no record is missed."""

    class Growing(StandIn):
        def answer(self, method: str, path: str, headers: dict[str, str], body: Any) -> Any:
            if "page=2" in path and len(self.memories) == 150:
                self._store({"content": "added meanwhile"})
            return super().answer(method, path, headers, body)

    server = Growing()
    try:
        for number in range(150):
            server._store({"content": f"w{number} x{number * 7}", "conversation_id": "c"})
        adapter = await opened(server.url)
        assert len(await listed(adapter)) == 151
        await asyncio.sleep(0)
    finally:
        server.stop()
