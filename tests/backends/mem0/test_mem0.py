"""What memtui and other clients of mem0 see of each other, and what goes wrong between them."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memtui.backends.mem0 import Mem0Adapter
from memtui.backends.mem0.config import Mem0Config
from memtui.backends.mem0.stores import Mem0ServerStore
from memtui.contract import (
    BindingContext,
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Denied,
    EraseRequest,
    ForgetRequest,
    Invalid,
    NotFound,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    Unsupported,
    WriteRequest,
)
from memtui.service import Caller, MemoryService
from tests.backends.mem0.servers import OpenServer, Platform
from tests.loopback import Loopback

EVERYBODY = Scope(company_id="acme")
ANN = Scope(company_id="acme", subject_id="ann")
WORK = Scope(
    company_id="acme", subject_id="ann", agent_id="coder", run_id="r-1", project_id="apollo"
)


def context(**config: Any) -> BindingContext:
    return BindingContext(
        company_id="acme",
        binding_key="mem",
        config=config,
        data_dir=Path("/nowhere"),
        secret={"K": "k3y"}.get,
    )


def of_platform(platform: Platform, **config: Any) -> BindingContext:
    return context(url=platform.url, api="platform", api_key_secret="K", **config)


@pytest.fixture
async def on_server(server: OpenServer) -> AsyncIterator[Mem0Adapter]:
    adapter = await Mem0Adapter.open(context(url=server.url))
    yield adapter
    await adapter.close()


@pytest.fixture
async def on_platform(platform: Platform) -> AsyncIterator[Mem0Adapter]:
    adapter = await Mem0Adapter.open(of_platform(platform))
    yield adapter
    await adapter.close()


def request(text: str, scope: Scope = EVERYBODY, **fields: Any) -> WriteRequest:
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id=scope.company_id)
    return WriteRequest(scope=scope, source=source, content=text, **fields)


async def add(
    adapter: Mem0Adapter, text: str, scope: Scope = EVERYBODY, **fields: Any
) -> RecordHandle:
    return (await adapter.write(request(text, scope, **fields))).records[0]


async def listed(adapter: Mem0Adapter, scope: Scope = EVERYBODY) -> dict[str, Record]:
    page = await adapter.browse(BrowseRequest(scope=scope, limit=1000))
    return {record.text: record for record in page.records}


async def test_other_clients_of_the_server_see_what_is_written_as_theirs(
    server: OpenServer, on_server: Mem0Adapter
) -> None:
    metadata = {"stage": "final", "data": "a key of mem0's own"}
    await add(on_server, "Ann likes tea.", WORK, metadata=metadata, topic="drinks")
    await add(on_server, "Everybody's.")
    [mine] = server.memory.get_all(filters={"user_id": "ann"})["results"]
    assert mine["memory"] == "Ann likes tea."
    assert (mine["agent_id"], mine["run_id"]) == ("coder", "r-1")
    assert mine["metadata"]["project_id"] == "apollo"
    assert mine["metadata"]["stage"] == "final"
    [shared] = server.memory.get_all(filters={"user_id": "shared"})["results"]
    assert shared["memory"] == "Everybody's."
    records = await listed(on_server)
    assert records["Ann likes tea."].scope == WORK
    assert records["Ann likes tea."].metadata == metadata
    assert records["Everybody's."].scope == EVERYBODY


async def test_memories_of_other_clients_are_records(
    server: OpenServer, on_server: Mem0Adapter
) -> None:
    for text, owner in (("Ann's.", {"user_id": "ann"}), ("Coder's.", {"agent_id": "coder"})):
        server.memory.add(text, infer=False, metadata={"category": "x"}, **owner)
    told = server.memory.add("Of a run.", infer=False, run_id="r-2", expiration_date="2025-01-01")
    records = await listed(on_server)
    assert records["Ann's."].scope.subject_id == "ann"
    assert records["Ann's."].metadata["category"] == "x"
    assert records["Coder's."].scope.agent_id == "coder"
    assert "Of a run." not in records, "it has expired"
    assert set(await listed(on_server, ANN)) == {"Ann's.", "Coder's."}
    other = Scope(company_id="acme", subject_id="bob")
    assert set(await listed(on_server, other)) == {"Coder's."}
    page = await on_server.browse(BrowseRequest(scope=EVERYBODY, expired=True))
    assert told["results"][0]["id"] in {r.handle.provider_record_id for r in page.records}
    names = {one.name: one.records for one in await on_server.namespaces()}
    assert names == {"user:ann": 1, "agent:coder": 1, "run:r-2": 1}


async def test_a_scope_finds_its_own_behind_many_of_others(
    server: OpenServer, on_server: Mem0Adapter
) -> None:
    for number in range(60):
        server.memory.add("tea " * 9 + f"of bob's {number}", infer=False, user_id="bob")
    handle = await add(on_server, "Ann drinks tea only when she is ill.", ANN)
    found = await on_server.query(QueryRequest(scope=ANN, query="tea", top_k=5))
    assert [snippet.handle for snippet in found.snippets] == [handle]
    explained = await on_server.explain(QueryRequest(scope=ANN, query="tea"))
    stages = {stage.name: stage.scores for stage in explained.stages}
    assert stages["semantic score"] == stages["score"]
    assert set(stages["score"]) == {handle.provider_record_id}


async def test_an_undone_forget_comes_back_under_another_id(
    server: OpenServer, service: MemoryService, caller: Caller
) -> None:
    await service.bindings.add(caller, "mem", "mem0", {"url": server.url})
    scope = WORK.model_copy(update={"company_id": caller.company_id})
    written = await service.write(
        caller, request("Ann likes tea.", scope, tags=("t",), binding_key="mem")
    )
    gone = ForgetRequest(scope=scope, handles=written.handles, binding_key="mem")
    await service.forget(caller, gone)
    undone = await service.undo(caller)
    [old], [new] = written.handles, undone.handles
    assert undone.linked == {old.provider_record_id: new.provider_record_id}
    [record] = undone.records
    assert (record.scope, record.tags) == (scope, ("t",))
    assert [row["id"] for row in server.memory.get_all(filters={"user_id": "ann"})["results"]] == [
        new.provider_record_id
    ]


async def test_one_change_after_another_is_undone(
    server: OpenServer, service: MemoryService, caller: Caller
) -> None:
    await service.bindings.add(caller, "mem", "mem0", {"url": server.url})
    scope = WORK.model_copy(update={"company_id": caller.company_id})
    [handle] = (await service.write(caller, request("One.", scope, binding_key="mem"))).handles
    for text in ("Two.", "Three."):
        change = CorrectRequest(scope=scope, handle=handle, text=text, binding_key="mem")
        await service.correct(caller, change)
    gone = ForgetRequest(scope=scope, handles=(handle,), binding_key="mem")
    await service.forget(caller, gone)
    for text in ("Three.", "Two.", "One."):
        undone = await service.undo(caller)
        assert [one.text for one in undone.records] == [text]
    # What somebody else changed meanwhile is theirs.
    server.memory.update(undone.records[0].handle.provider_record_id, "Theirs.")
    with pytest.raises(Conflict):
        await service.undo(caller)
    assert [
        one["memory"] for one in server.memory.get_all(filters={"user_id": "ann"})["results"]
    ] == ["Theirs."]


async def test_a_correction_keeps_what_other_clients_wrote(
    server: OpenServer, on_server: Mem0Adapter
) -> None:
    told = server.memory.add("Old.", user_id="ann", infer=False, metadata={"category": "x"})
    handle = RecordHandle(provider_key="mem0", provider_record_id=told["results"][0]["id"])
    change = CorrectRequest(scope=ANN, handle=handle, text="New.", tags=("t",))
    assert (await on_server.correct(change)).handle == handle
    row = server.memory.get(handle.provider_record_id)
    assert (row["memory"], row["user_id"], row["metadata"]["category"]) == ("New.", "ann", "x")
    assert [one.text for one in await on_server.history(handle, ANN)] == ["New.", "Old."]
    assert await on_server.history(handle, Scope(company_id="acme", subject_id="bob")) == ()


async def test_a_correction_keeps_the_last_day_that_another_client_set(
    platform: Platform, on_platform: Mem0Adapter
) -> None:
    handles = [await add(on_platform, f"Badger {n}.", ANN) for n in (1, 2)]
    for handle in handles:
        row = platform.rows[handle.provider_record_id]
        row |= {"expiration_date": "2190-01-02", "metadata": {"theirs": 1}}
    ends = datetime(2190, 1, 3, tzinfo=UTC)
    for change, last in (({"text": "New."}, "2190-01-02"), ({"tags": ("t",)}, "2190-01-02"),
                         ({"expires_at": ends + timedelta(days=1)}, "2190-01-03"),
                         ({"text": "Newer."}, "2190-01-03"), ({"never_expires": True}, None),
                         ({"text": "Newest."}, None)):  # fmt: skip
        request = CorrectRequest.model_validate({"scope": ANN, "handle": handles[1], **change})
        await on_platform.correct(request)
        row = platform.rows[handles[1].provider_record_id]
        assert (row["expiration_date"], row["metadata"]["theirs"]) == (last, 1)
    assert platform.rows[handles[0].provider_record_id]["expiration_date"] == "2190-01-02"
    assert (await listed(on_platform))["Badger 1."].expires_at == ends


@pytest.mark.parametrize(
    ("subject", "said"),
    [("*", "takes no user_id"), ("ann b", "takes no user_id"), ("shared", "company's memories")],
)
async def test_ids_that_mem0_takes_for_others_are_refused(
    server: OpenServer, on_server: Mem0Adapter, subject: str, said: str
) -> None:
    await add(on_server, "Ann's.", ANN)
    scope = Scope(company_id="acme", subject_id=subject)
    with pytest.raises(Invalid, match=said):
        await on_server.write(request("x", scope))
    assert await listed(on_server, scope) == {}
    bundle = await on_server.query(QueryRequest(scope=scope, query="ann"))
    assert bundle.snippets == ()


async def test_inferring_without_a_model_says_what_to_do(server: OpenServer) -> None:
    adapter = await Mem0Adapter.open(context(url=server.url, infer=True))
    with pytest.raises(Unavailable, match="turn infer off") as caught:
        await adapter.write(request("Ann likes tea."))
    assert caught.value.sent
    await adapter.close()


async def test_the_model_is_blamed_only_where_it_was_asked(
    server: OpenServer, on_server: Mem0Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no disk")

    monkeypatch.setattr(server.memory, "add", fails)
    with pytest.raises(Unavailable) as stored:
        await on_server.write(request("Ann likes tea."))
    nobody = await Mem0Adapter.open(context(url="http://127.0.0.1:9", infer=True))
    with pytest.raises(Unavailable, match="cannot be reached") as unsent:
        await nobody.write(request("Ann likes tea."))
    await nobody.close()
    assert [(one.value.sent, "infer" in str(one.value)) for one in (stored, unsent)] == [
        (True, False), (False, False),
    ]  # fmt: skip


async def test_a_server_that_refuses_or_is_not_there(server: OpenServer) -> None:
    server.key = "k3y"
    try:
        with_key = await Mem0Adapter.open(context(url=server.url, api_key_secret="K"))
        assert await listed(with_key) == {}
        await with_key.close()
        without = await Mem0Adapter.open(context(url=server.url))
        with pytest.raises(Denied, match="Invalid API key"):
            await listed(without)
        assert (await without.health()).status == "down"
        await without.close()
    finally:
        server.key = None
    nobody = await Mem0Adapter.open(context(url="http://127.0.0.1:9"))
    with pytest.raises(Unavailable, match="cannot be reached"):
        await nobody.write(request("x"))
    await nobody.close()


async def test_what_somebody_else_deletes_meanwhile_is_missing(
    server: OpenServer, on_server: Mem0Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await add(on_server, "Ann likes tea.", ANN)
    drop = Mem0ServerStore.drop

    async def late(store: Mem0ServerStore, memory_id: str) -> None:
        server.memory.delete(memory_id)
        await drop(store, memory_id)

    monkeypatch.setattr(Mem0ServerStore, "drop", late)
    reply = await on_server.forget(ForgetRequest(scope=ANN, handles=(handle,)))
    assert reply.missing == (handle,)


class _Odd(Loopback):
    """A server that cuts its lists in silence, as older ones do, with a row that is none."""

    def answer(self, method: str, path: str, headers: dict[str, str], body: Any) -> tuple[int, Any]:
        rows: list[Any] = [
            {"id": f"00000000-0000-4000-8000-{number:012}", "memory": "m", "user_id": 7}
            for number in range(99)
        ]
        rows[0] |= {"memory": "half \ud83d", "metadata": None, "created_at": 12}
        return 200, {"results": [*rows, {"memory": "without an id"}]}


async def test_a_list_that_may_be_cut_is_at_least() -> None:
    server = _Odd()
    adapter = await Mem0Adapter.open(context(url=server.url))
    page = await adapter.browse(BrowseRequest(scope=EVERYBODY))
    await adapter.close()
    server.stop()
    assert (page.total, page.at_least) == (99, True)
    assert page.records[0].scope.subject_id == "7"
    assert "half \ufffd" in {record.text for record in page.records}
    assert "no pages" in page.unread[0]
    assert page.unread[1].startswith("1 memories of the server could not be read")


async def test_the_platform_is_read_page_by_page(platform: Platform) -> None:
    adapter = await Mem0Adapter.open(of_platform(platform))
    for number in range(230):
        await add(adapter, f"Memory {number}")
    assert len(await listed(adapter)) == 230
    await adapter.close()
    short = await Mem0Adapter.open(of_platform(platform, max_listed=150))
    page = await short.browse(BrowseRequest(scope=EVERYBODY, limit=10))
    assert (page.total, page.at_least) == (150, True)
    assert "max_listed" in page.unread[0]
    asked = len(platform.calls)
    rest = await short.browse(BrowseRequest(scope=EVERYBODY, limit=10, cursor=page.next_cursor))
    assert len(rest.records) == 10
    assert len(platform.calls) == asked, "the second page is of the first one's list"
    await short.close()


async def test_what_the_platform_infers_comes_later(platform: Platform) -> None:
    adapter = await Mem0Adapter.open(of_platform(platform, infer=True))
    assert adapter.capabilities.async_ingestion
    reply = await adapter.write(request("Ann likes tea.", WORK))
    assert reply.records == ()
    assert reply.usage[0].details == {"event_id": "event-1"}
    sent = platform.bodies[-1]
    assert (sent["app_id"], sent["user_id"], sent["infer"]) == ("apollo", "ann", True)
    assert reply.event == "event-1"
    assert await adapter.ingested("event-1", WORK) is None
    platform.events["event-1"]["status"] = "RUNNING"
    assert await adapter.ingested("event-1", WORK) is None
    platform.ingest("event-1", "Ann likes tea", "Ann is no friend of coffee")
    made = await adapter.ingested("event-1", WORK)
    assert made is not None
    assert [one.provider_record_id for one in made.records] == list(platform.rows)
    assert made.before == ()
    texts = {
        (await adapter.get(one, WORK) or pytest.fail("it is gone")).text for one in made.records
    }
    assert texts == {"Ann likes tea", "Ann is no friend of coffee"}
    with pytest.raises(NotFound):
        await adapter.ingested("event-9", WORK)
    await adapter.write(request("Bob.", WORK))
    platform.events["event-2"] |= {"status": "FAILED", "error": "The model is away."}
    with pytest.raises(Invalid, match="mem0 could not store it: The model is away"):
        await adapter.ingested("event-2", WORK)
    platform.refuses_events = True  # which says nothing of the write
    with pytest.raises(Unavailable, match="The project was moved"):
        await adapter.ingested("event-2", WORK)
    await adapter.close()


async def test_a_memory_that_an_inference_changed_has_its_earlier_text(platform: Platform) -> None:
    plain = await Mem0Adapter.open(of_platform(platform))
    old = await add(plain, "Ann likes tea.", WORK)
    await plain.close()
    adapter = await Mem0Adapter.open(of_platform(platform, infer=True))
    await adapter.write(request("Ann came to like coffee.", WORK))
    platform.ingest("event-1", "Ann likes coffee", changes=old.provider_record_id)
    made = await adapter.ingested("event-1", WORK)
    assert made is not None
    assert made.records == (old,)
    [before] = made.before
    assert before.record is not None
    assert before.record.text == "Ann likes tea."
    platform.changes.clear()
    made = await adapter.ingested("event-1", WORK)
    assert made is not None
    assert made.records == (), "an undo would remove what nobody knows how it was"
    await adapter.close()


async def test_profiles_are_the_platforms(
    platform: Platform, on_platform: Mem0Adapter, on_server: Mem0Adapter
) -> None:
    platform.profiles["ann"] = {"drinks": "tea", "visited": ["Uppsala", "Åbo"]}
    told = (await on_platform.profile(ANN)).summary
    assert told == 'drinks: tea\nvisited: ["Uppsala", "Åbo"]'
    for scope in (Scope(company_id="acme", subject_id="bob"), EVERYBODY):
        assert (await on_platform.profile(scope)).summary == "", "there is none yet"
    with pytest.raises(Unsupported):
        await on_server.profile(ANN)


async def test_the_platforms_own_client_reads_what_is_written(
    platform: Platform, on_platform: Mem0Adapter
) -> None:
    """The stand-in answers what mem0's own client asks, so its shapes are the platform's."""
    import mem0

    handle = await add(on_platform, "Ann likes tea.", WORK)
    client = mem0.MemoryClient(api_key="k3y", host=platform.url)
    everything = {"OR": [{"user_id": "*"}]}
    [row] = client.get_all(filters=everything)["results"]
    assert row == client.get(handle.provider_record_id)
    assert (row["memory"], row["app_id"], row["user_id"]) == ("Ann likes tea.", "apollo", "ann")
    client.update(handle.provider_record_id, text="Ann likes coffee.")
    assert set(await listed(on_platform)) == {"Ann likes coffee."}
    assert client.search("coffee", filters=everything, top_k=3)["results"][0]["id"] == row["id"]
    client.delete(handle.provider_record_id)
    assert await on_platform.get(handle, ANN) is None
    client.client.close()


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # qdrant's, of its lock
async def test_a_librarys_store_is_one_programs_at_a_time(library: Path) -> None:
    adapter = await Mem0Adapter.open(context(library=str(library)))
    await add(adapter, "Ann likes tea.", ANN)
    await adapter.close()  # as it does by itself once nobody has called for a while
    holder = (
        "import sys, qdrant_client\n"
        "client = qdrant_client.QdrantClient(path=sys.argv[1])\n"
        "print(client.scroll('memories')[0][0].payload['data'], flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(library.parent / "qdrant")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "Ann likes tea.\n"
        with pytest.raises(Unavailable, match="Another program"):
            await listed(adapter)
        other.communicate("")
    assert set(await listed(adapter)) == {"Ann likes tea."}
    await adapter.close()
    gc.collect()


async def test_a_librarys_history_is_erased_for_good(library: Path, tmp_path: Path) -> None:
    adapter = await Mem0Adapter.open(context(library=str(library)))
    gone, kept = await add(adapter, "A sekret word."), await add(adapter, "Kept.")
    change = CorrectRequest(scope=EVERYBODY, handle=gone, text="Another sekret.")
    await adapter.correct(change)
    await adapter.forget(ForgetRequest(scope=EVERYBODY, handles=(gone,)))
    ids = (gone.provider_record_id, kept.provider_record_id)
    ask = EraseRequest(scope=EVERYBODY, record_ids=ids)
    told = await adapter.erase(ask)
    assert sorted(told.texts) == ["A sekret word.", "Another sekret."]
    history = tmp_path / "history.db"
    assert b"sekret" in history.read_bytes()
    await adapter.erase(ask.model_copy(update={"apply": True}))
    assert b"sekret" not in history.read_bytes()
    assert [one.text for one in await adapter.history(kept, EVERYBODY)] == ["Kept."]
    await adapter.close()


async def test_what_stays_on_this_machine_passes_no_proxy(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Platform()
    try:
        monkeypatch.setenv("http_proxy", elsewhere.url)
        adapter = await Mem0Adapter.open(of_platform(platform))
        await listed(adapter)
        await adapter.close()
    finally:
        elsewhere.stop()
    assert platform.calls
    assert not elsewhere.calls


async def test_a_library_is_imported_before_a_call_has_to_end_in_time(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "mem0.vector_stores.qdrant", raising=False)
    adapter = await Mem0Adapter.open(context(library=str(library)))
    assert "mem0.vector_stores.qdrant" in sys.modules
    assert not (library.parent / "qdrant").exists()
    await adapter.close()


async def test_a_library_that_cannot_be_opened_says_why(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        await Mem0Adapter.open(context(library=str(tmp_path / "none.json")))
    (tmp_path / "list.yaml").write_text("- a\n- b")
    with pytest.raises(Invalid, match="must be an object"):
        await Mem0Adapter.open(context(library=str(tmp_path / "list.yaml")))
    config = json.loads(library.read_text())
    odd = tmp_path / "odd.json"
    odd.write_text(json.dumps({**config, "vector_store": {"provider": "no-such-store"}}))
    adapter = await Mem0Adapter.open(context(library=str(odd)))
    with pytest.raises(Invalid, match="no-such-store"):
        await listed(adapter)
    odd.write_text(json.dumps({**config, "embedder": "openai"}))
    with pytest.raises(Invalid, match="embedder: Input should be"):
        await listed(await Mem0Adapter.open(context(library=str(odd))))
    keyed = {"provider": "qdrant", "config": {"api_key": ["sk-sekret"]}}
    odd.write_text(json.dumps({**config, "vector_store": keyed}))
    with pytest.raises(Invalid, match="vector_store: api_key: Input should be") as caught:
        await listed(await Mem0Adapter.open(context(library=str(odd))))
    assert "sekret" not in str(caught.value)
    monkeypatch.setattr("mem0.__version__", "1.0.5")
    with pytest.raises(Invalid, match=r"is 1\.0\.5 here"):
        await listed(adapter)
    monkeypatch.setitem(sys.modules, "mem0", None)
    with pytest.raises(Invalid, match=r"install memtui\[mem0\]"):
        await listed(adapter)


def test_companies_share_no_store(library: Path, tmp_path: Path) -> None:
    [place] = Mem0Adapter.places(context(library=str(library)))
    assert place[-3:] == (tmp_path.name, "qdrant", "memories")
    [first] = Mem0Adapter.places(context(api_key_secret="A"))
    [second] = Mem0Adapter.places(context(api_key_secret="B"))
    assert first != second, "accounts of the platform are apart"
    assert first[:2] == ("url", "api.mem0.ai:443")
    local = [
        Mem0Adapter.places(context(url=url))
        for url in ("http://localhost:8", "http://127.0.0.1:8/")
    ]
    assert local[0] == local[1]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "wants an API key"),
        ({"url": "http://mem0.example", "api_key_secret": "K"}, "unencrypted"),
        ({"url": "mem0"}, "address"),
        ({"url": "http://127.0.0.1:9", "api_key_secret": "NONE"}, "no secret NONE"),
        ({"shared_user": "*"}, "shared_user"),
    ],
)
async def test_a_config_that_cannot_work_says_so(config: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        await Mem0Adapter.open(context(**config))


def test_the_page_binds_what_can_be_bound() -> None:
    page = (Path(__file__).parents[3] / "docs" / "providers.md").read_text("utf-8")
    shown = re.findall(r"bindings add \S+ mem0 --set (\w+)=(\S+)", page)
    configs = [Mem0Config.of(context(**{name: value})) for name, value in shown]
    assert [config.is_platform for config in configs] == [True, False, False]
    assert [config.library is not None for config in configs] == [False, False, True]


async def test_a_server_that_lists_a_thousand_at_once_is_asked_for_as_many(
    on_server: Mem0Adapter, server: OpenServer
) -> None:
    await add(on_server, "Ann drinks tea", ANN)
    assert list(await listed(on_server, ANN)) == ["Ann drinks tea"]
    server.calls.clear()
    assert (await on_server.health()).status == "ok"
    assert list(await listed(on_server, ANN)) == ["Ann drinks tea"]
    assert all("top_k=1000" in str(call) for call in server.calls)


async def test_a_server_that_refuses_every_list_is_not_well(
    on_server: Mem0Adapter, server: OpenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "most_listed", 100)
    assert (await on_server.health()).status == "down"
