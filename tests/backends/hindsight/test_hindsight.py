"""Hindsight: facts that are edited, invalidated and brought back, and observations that are not."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from memtui.backends.hindsight import HindsightAdapter
from memtui.contract import (
    Adapter,
    BindingContext,
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Denied,
    EraseRequest,
    ForgetRequest,
    Invalid,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Unavailable,
    Unsupported,
    WriteRequest,
)
from memtui.provider_kit.servers import read_object
from memtui.testing import AdapterContract
from tests.backends.damaged import DAMAGED, WHOLE, hidden
from tests.backends.hindsight.server import (
    KNOWN_ID,
    REAL,
    RealServer,
    StandIn,
    exchanges,
    without_times,
)

ACME = Scope(company_id="acme")
Server = RealServer | StandIn
Opened = Callable[..., Awaitable[HindsightAdapter]]


@pytest.fixture(params=["stand-in", "real"] if REAL else ["stand-in"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    running = RealServer() if request.param == "real" else StandIn()
    yield running
    running.stop()


@pytest.fixture
def bank(server: Server) -> str:
    """A bank that is empty."""
    name = f"b{uuid.uuid4().hex}"
    server.make_bank(name)
    return name


class TestContract(AdapterContract):
    capabilities = HindsightAdapter.capabilities.model_copy(
        update={"provider_managed_extraction": False}
    )

    @pytest.fixture(autouse=True)
    def _running(self, server: Server, bank: str) -> None:
        self.config = {"url": server.url, "bank": bank, "extracts": False}

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        return await HindsightAdapter.open(self.context(tmp_path, **self.config))


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    adapters: list[HindsightAdapter] = []

    async def open_one(url: str, bank: str, *, token: str = "", **config: Any) -> HindsightAdapter:
        secrets = {"token_secret": "H"} if token else {}
        context = BindingContext(
            company_id="acme",
            binding_key="bank",
            config={"url": url, "bank": bank, "extracts": False, **secrets, **config},
            data_dir=tmp_path,
            secret={"H": token}.get,
        )
        adapters.append(await HindsightAdapter.open(context))
        return adapters[-1]

    yield open_one
    for adapter in adapters:
        await adapter.close()


async def write(adapter: HindsightAdapter, text: str, **fields: Any) -> RecordHandle:
    request = WriteRequest(**{"scope": ACME, "source": None, "content": text, **fields})
    return (await adapter.write(request)).records[0]


async def read(adapter: HindsightAdapter, handle: RecordHandle) -> Record:
    record = await adapter.get(handle, ACME)
    assert record is not None
    return record


async def listed(adapter: HindsightAdapter, scope: Scope = ACME) -> list[str]:
    page = await adapter.browse(BrowseRequest(scope=scope, limit=1000))
    return sorted(record.text for record in page.records)


def test_it_answers_as_recorded(server: Server) -> None:
    bank, known = f"b{uuid.uuid4().hex}", KNOWN_ID
    for told in exchanges():
        path = f"{server.url}/v1/default/banks/{bank}{told['path'].replace(KNOWN_ID, known)}"
        reply = httpx.request(told["method"], path, json=told["body"], timeout=30)
        assert reply.status_code == told["status"], told
        if "document_id=d-1" in path:
            known = reply.json()["items"][0]["id"]
        wanted = json.dumps(told["reply"]).replace(KNOWN_ID, known).replace('"b1', f'"{bank}')
        assert without_times(reply.json()) == without_times(json.loads(wanted)), told


async def test_a_memory_whose_owner_cannot_be_read_is_nobodys(
    server: Server, bank: str, opened: Opened
) -> None:
    path = f"{server.url}/v1/default/banks/{bank}/memories"
    for number, part in enumerate((*DAMAGED, *WHOLE)):
        text = part if isinstance(part, str) else json.dumps(part)
        item = {"content": f"Otter {number}.", "metadata": {"memtui": text}}
        assert httpx.post(path, json={"items": [item]}, timeout=30).status_code == 200
    records = await hidden(await opened(server.url, bank), "otter")
    assert [one.scope.subject_id for one in records] == ["ana"] * len(WHOLE)


async def test_every_field_of_a_write_comes_back(server: Server, bank: str, opened: Opened) -> None:
    adapter = await opened(server.url, bank)
    scope = Scope(company_id="acme", project_id="web", run_id="r-1")
    fields: dict[str, Any] = {
        "title": "T", "kind": "guidance", "topic": "deploys", "tags": ("Ops", "a,b"),
        "metadata": {"word": "kept", "number": 7, "memtui": "no"}, "created_by": "user:ana",
    }  # fmt: skip
    record = await read(adapter, await write(adapter, "Deploys.", scope=scope, **fields))
    assert {name: getattr(record, name) for name in fields if name != "metadata"} == {
        name: value for name, value in fields.items() if name != "metadata"
    }
    assert fields["metadata"].items() <= record.metadata.items()
    assert record.scope == scope


async def test_what_is_forgotten_is_invalidated_with_its_reason(
    server: Server, bank: str, opened: Opened
) -> None:
    adapter = await opened(server.url, bank)
    handle = await write(adapter, "Deploys happen from main.", topic="chat")
    taken = await adapter.snapshot([handle], ACME)
    request = CorrectRequest(scope=ACME, handle=handle, text="From trunk.", topic="talk")
    assert (await adapter.correct(request)).handle == handle
    await adapter.forget(ForgetRequest(scope=ACME, handles=(handle,)))
    assert await listed(adapter) == []
    path = f"{server.url}/v1/default/banks/{bank}/memories/{handle.provider_record_id}"
    stored = httpx.get(path, timeout=30).json()
    assert (stored["state"], stored["text"]) == ("invalidated", "From trunk.")
    assert stored["invalidation_reason"] == "forgotten through memtui"
    await adapter.restore(taken, ACME)
    record = await read(adapter, handle)
    assert (record.text, record.topic) == ("Deploys happen from main.", "chat")
    httpx.delete(
        f"{server.url}/v1/default/banks/{bank}/documents/{stored['document_id']}", timeout=30
    ).raise_for_status()
    with pytest.raises(Conflict, match="deleted with its document"):
        await adapter.restore(taken, ACME)
    other = await write(adapter, "Never on Fridays.")
    both = [*await adapter.snapshot([other], ACME), *taken]
    await adapter.forget(ForgetRequest(scope=ACME, handles=(other,)))
    with pytest.raises(Unavailable, match="1 of 2 memories were put back") as failed:
        await adapter.restore(both, ACME)
    assert failed.value.sent
    assert await listed(adapter) == ["Never on Fridays."]


async def test_a_text_that_would_not_be_kept_leaves_nothing(
    server: Server, bank: str, opened: Opened
) -> None:
    adapter = await opened(server.url, bank)
    for text, said in (("a\0b", "NUL"), ("word " * 40_000, "taken out again")):
        with pytest.raises(Invalid, match=said):
            await write(adapter, text)
    assert await listed(adapter) == []
    handle = await write(adapter, "Kept.")
    with pytest.raises(Invalid, match="NUL"):
        await adapter.correct(CorrectRequest(scope=ACME, handle=handle, text="a\0b"))
    with pytest.raises(Unsupported, match="no tags"):
        await adapter.correct(CorrectRequest(scope=ACME, handle=handle, tags=("t",)))


async def test_a_bank_that_is_not_there_yet(server: Server, opened: Opened) -> None:
    adapter = await opened(server.url, f"b{uuid.uuid4().hex}")
    health = await adapter.health()
    assert health.status == "degraded"
    assert "not found" in health.message
    await write(adapter, "The first.")
    assert (await adapter.health()).records == 1
    assert (await adapter.health()).version == "1.1.0"


async def test_an_observation_names_its_facts_and_stays(opened: Opened) -> None:
    server = StandIn()
    try:
        adapter = await opened(server.url, "b1")
        web = Scope(company_id="acme", project_id="web")
        fact = await write(adapter, "Deploys happen from main.", scope=web)
        units = server.banks["b1"]
        name = str(uuid.uuid4())
        sources = [fact.provider_record_id]
        units[name] = {
            **units[fact.provider_record_id], "id": name, "type": "observation", "metadata": {},
            "text": "The team deploys from main.", "source_memory_ids": sources,
        }  # fmt: skip
        server.histories[name] = [
            {"previous_text": "The team deploys.", "changed_at": "2026-01-02T03:04:05+00:00"}
        ]
        handle = RecordHandle(provider_key="hindsight", provider_record_id=name)
        record = await read(adapter, handle)
        assert (record.kind, record.read_only) == ("observation", True)
        assert record.metadata["source_memory_ids"] == sources
        versions = await adapter.history(handle, ACME)
        assert [one.text for one in versions] == [
            "The team deploys from main.",
            "The team deploys.",
        ]
        with pytest.raises(Denied, match="derived"):
            await adapter.correct(CorrectRequest(scope=ACME, handle=handle, text="x"))
        gone = await adapter.forget(ForgetRequest(scope=ACME, handles=(fact, handle)))
        assert list(gone.refused) == [name]
        assert await listed(adapter) == ["The team deploys from main."]
        assert await listed(adapter, web) == [], "it may tell of another project's facts"
        asked = QueryRequest(scope=web, query="team deploys")
        assert (await adapter.query(asked)).snippets == ()
        shared = await opened(server.url, "b1", shared_observations=True)
        assert await listed(shared, web) == ["The team deploys from main."]
    finally:
        server.stop()


async def test_a_refusal_repeats_nothing_of_the_request(
    server: Server, bank: str, opened: Opened
) -> None:
    adapter = await opened(server.url, bank)
    path = f"/v1/default/banks/{bank}/memories/recall"
    with pytest.raises(Invalid, match="query must contain") as caught:
        await adapter.api.ask("POST", path, read_object, {"query": "?!?!"})
    assert "?!?!" not in str(caught.value)


async def test_a_model_makes_several_facts(opened: Opened) -> None:
    server = StandIn()
    try:
        adapter = await opened(server.url, "b1", extracts=True)
        assert adapter.capabilities.provider_managed_extraction
        request = WriteRequest(scope=ACME, source=None, content="word " * 4_000)
        assert len((await adapter.write(request)).records) == 2
    finally:
        server.stop()


async def test_a_thousand_records(server: Server, bank: str, opened: Opened) -> None:
    items = [
        {"content": f"Record {number}.", "document_id": f"d-{number}"} for number in range(1_000)
    ]
    for start in range(0, 1_000, 250):
        body = {"items": items[start : start + 250]}
        path = f"{server.url}/v1/default/banks/{bank}/memories"
        httpx.post(path, json=body, timeout=120).raise_for_status()
    adapter = await opened(server.url, bank)
    page = await adapter.browse(BrowseRequest(scope=ACME, limit=300))
    assert (page.total, len(page.records), page.at_least) == (1_000, 300, False)
    assert len(await listed(adapter)) == 1_000


async def test_a_wrong_token_a_server_that_is_down_and_a_slow_one(opened: Opened) -> None:
    server = StandIn("t0ken")
    server.make_bank("b1")
    wrong = await opened(server.url, "b1", token="wrong")
    with pytest.raises(Denied, match="check the token"):
        await listed(wrong)
    right = await opened(server.url, "b1", token="t0ken", timeout_seconds=0.2)
    assert await listed(right) == []
    with server.turn, pytest.raises(Unavailable, match="did not answer within") as caught:
        await write(right, "Anything.")
    assert caught.value.sent
    server.stop()
    with pytest.raises(Unavailable, match="cannot be reached") as caught:
        await write(right, "Anything.")
    assert not caught.value.sent
    assert (await right.health()).status == "down"


async def test_what_is_forgotten_is_erased_with_its_document_alone(
    opened: Opened, server: Server, bank: str
) -> None:
    adapter = await opened(server.url, bank)
    texts = ("The heron nests under the bridge.", "The ferry leaves at dawn.")
    ids = [await write(adapter, text) for text in texts]
    await adapter.forget(ForgetRequest(scope=ACME, handles=tuple(ids[:1])))
    names = (*(one.provider_record_id for one in ids), "no-id", str(uuid.uuid4()))
    asked = EraseRequest(scope=ACME, record_ids=names)
    for apply in (False, True):
        reply = await adapter.erase(asked.model_copy(update={"apply": apply}))
        assert (reply.kept, reply.texts) == (
            {"invalidated facts": 1}, ("The heron nests under the bridge.",)
        )  # fmt: skip
    assert (await adapter.erase(asked)).kept == {}
    gone = httpx.get(f"{server.url}/v1/default/banks/{bank}/memories/{names[0]}")
    assert gone.status_code == 404
    assert await listed(adapter) == [texts[1]]


async def test_a_fact_whose_document_has_another_stays_and_is_counted(
    opened: Opened, server: Server, bank: str
) -> None:
    if not isinstance(server, StandIn):
        pytest.skip("without a model no document has two facts")
    adapter = await opened(server.url, bank, extracts=True)
    request = WriteRequest(scope=ACME, source=None, content="a long story " * 1_000)
    first, *others = (await adapter.write(request)).records
    assert others
    await adapter.forget(ForgetRequest(scope=ACME, handles=(first,)))
    asked = EraseRequest(scope=ACME, record_ids=(first.provider_record_id,), apply=True)
    reply = await adapter.erase(asked)
    assert reply.kept == {}
    assert "keeps 1 invalidated fact" in reply.beyond[1]
    assert server.banks[bank][first.provider_record_id]
