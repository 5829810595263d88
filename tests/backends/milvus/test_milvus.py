"""What is Milvus's own: the seed's schema, other programs' collections, one process, models."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memtui.backends.milvus import MilvusAdapter
from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    EraseRequest,
    Filter,
    ForgetRequest,
    Invalid,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    SourceKind,
    SourceRef,
    Unavailable,
    Unsupported,
    WriteMode,
    WriteRequest,
)
from tests.backends.milvus.conftest import COMPANY, Clock
from tests.loopback import Embeddings

Opened = Callable[..., Awaitable[MilvusAdapter]]
SCOPE = Scope(company_id=COMPANY, project_id="apollo")
SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id=COMPANY)


async def write(adapter: MilvusAdapter, content: str, **fields: Any) -> RecordHandle:
    request = WriteRequest(**({"scope": SCOPE, "source": SOURCE, "content": content} | fields))
    return (await adapter.write(request)).records[0]


async def fact(adapter: MilvusAdapter, content: str, **fields: Any) -> RecordHandle:
    return await write(adapter, content, **({"kind": "fact", "mode": WriteMode.UPSERT} | fields))


async def listed(adapter: MilvusAdapter, scope: Scope = SCOPE, **wanted: Any) -> list[Record]:
    page = await adapter.browse(BrowseRequest(scope=scope, filter=Filter(**wanted), limit=1000))
    return list(page.records)


async def asked(adapter: MilvusAdapter, query: str, **fields: Any) -> list[str]:
    bundle = await adapter.query(QueryRequest(**({"scope": SCOPE, "query": query} | fields)))
    return [snippet.text for snippet in bundle.snippets]


def ask_as_others(adapter: MilvusAdapter, collection: str, expression: str) -> list[dict[str, Any]]:
    """Ask Milvus itself, as another program does."""
    with adapter._store._using() as client:
        return [dict(row) for row in client.query(collection, expression, output_fields=["*"])]


async def test_the_schema_is_the_seeds_and_its_queries_work(opened: Opened, clock: Clock) -> None:
    adapter = await opened()
    began = clock.now
    await fact(adapter, "deploy_branch: main", topic="project")
    changed = clock.tick(days=3, microseconds=7)
    await fact(adapter, "deploy_branch: release", topic="project")
    await fact(adapter, "tech_stack: [Python 3.12, Pygame]", topic="project")
    text = "SQLite is opened in WAL mode by every worker."
    await write(adapter, text, tags=("sqlite",), topic="storage", summary="WAL everywhere")
    with adapter._store._using() as client:
        told = client.describe_collection("aq_project_apollo")
    shape = [(one["name"], one["type"].name) for one in told["fields"]]
    assert shape == [
        ("entry_id", "VARCHAR"), ("entry_type", "VARCHAR"), ("embedding", "FLOAT_VECTOR"),
        ("content", "VARCHAR"), ("original", "VARCHAR"), ("kv_namespace", "VARCHAR"),
        ("kv_key", "VARCHAR"), ("kv_value", "VARCHAR"), ("valid_from", "INT64"),
        ("valid_to", "INT64"), ("topic", "VARCHAR"), ("source", "VARCHAR"), ("tags", "VARCHAR"),
        ("updated_at", "INT64"),
    ]  # fmt: skip
    first, then = int(began.timestamp()), int(changed.timestamp())
    history = ask_as_others(
        adapter, "aq_project_apollo", 'entry_type == "temporal" AND kv_key == "deploy_branch"'
    )
    windows = sorted((one["kv_value"], one["valid_from"], one["valid_to"]) for one in history)
    assert windows == [('"main"', first, then), ('"release"', then, 0)]
    now = then + 60
    [current] = ask_as_others(
        adapter,
        "aq_project_apollo",
        f'entry_type == "temporal" AND kv_key == "deploy_branch" AND valid_from <= {now} '
        f"AND (valid_to == 0 OR valid_to > {now})",
    )
    assert current["kv_value"] == '"release"'
    assert not any(current["embedding"]), "a fact has a vector"
    [stack] = ask_as_others(adapter, "aq_project_apollo", 'kv_key == "tech_stack"')
    assert stack["kv_value"] == '["Python 3.12", "Pygame"]'
    [tagged] = ask_as_others(adapter, "aq_project_apollo", "tags LIKE '%\"sqlite\"%'")
    assert (tagged["content"], tagged["original"]) == ("WAL everywhere", text)
    assert any(tagged["embedding"])


def _make_foreign(path: Path, *, dimensions: int = 8) -> None:
    """Make a collection as another program that keeps to the seed does, and one that does not."""
    from milvus_lite import CollectionSchema, DataType, FieldSchema, MilvusLite

    texts = ("content", "original", "kv_namespace", "kv_key", "kv_value", "topic", "source", "tags")
    numbers = ("valid_from", "valid_to", "updated_at")
    fields = [
        FieldSchema("entry_id", DataType.VARCHAR, is_primary=True, max_length=64),
        FieldSchema("entry_type", DataType.VARCHAR, max_length=64),
        FieldSchema("embedding", DataType.FLOAT_VECTOR, dim=dimensions),
        *(FieldSchema(name, DataType.VARCHAR, max_length=2000) for name in texts),
        *(FieldSchema(name, DataType.INT64) for name in numbers),
        FieldSchema("retrieval_count", DataType.INT64, nullable=True),
    ]
    empty = {**dict.fromkeys(texts, ""), **dict.fromkeys(numbers, 0)}

    def row(entry_id: str, entry_type: str, **given: Any) -> dict[str, Any]:
        vector = [1.0] + [0.0] * (dimensions - 1)
        return {"entry_id": entry_id, "entry_type": entry_type, "embedding": vector,
                "retrieval_count": 5, **empty, **given}  # fmt: skip

    with MilvusLite(str(path)) as database:
        own = database.create_collection("aq_project_apollo", CollectionSchema(fields=fields))
        own.create_index("embedding", {"index_type": "AUTOINDEX", "metric_type": "COSINE"})
        own.insert(
            [
                row("d1", "document", content="Walrus summary", original="The walrus in full.",
                    source="vault/projects/apollo/memory/walrus.md", tags='["sea"]', topic="zoo"),
                row("d2", "document"),
                row("k1", "kv", kv_namespace="project", kv_key="test_command",
                    kv_value='"pytest tests/ -v"'),
                row("t1", "temporal", kv_namespace="project", kv_key="deploy_branch",
                    kv_value='"main"', valid_to=1_710_000_000),
                row("t2", "temporal", kv_namespace="project", kv_key="deploy_branch",
                    kv_value='"release"', valid_from=1_710_000_000),
            ]
        )  # fmt: skip
        odd = CollectionSchema(fields=[
            FieldSchema("chunk_hash", DataType.VARCHAR, is_primary=True, max_length=64),
            FieldSchema("embedding", DataType.FLOAT_VECTOR, dim=4),
        ])  # fmt: skip
        database.create_collection("aq_orchestrator", odd)
        database.create_collection("memsearch_chunks", odd)


async def test_another_programs_collection_is_opened_as_it_is(
    opened: Opened, tmp_path: Path, clock: Clock
) -> None:
    _make_foreign(tmp_path / "milvus.db")
    adapter = await opened()
    records = {one.handle.provider_record_id: one for one in await listed(adapter)}
    assert {name: one.text for name, one in records.items()} == {
        "aq_project_apollo/d1": "The walrus in full.",
        "aq_project_apollo/k1": "test_command: pytest tests/ -v",
        "aq_project_apollo#project/deploy_branch": "deploy_branch: release",
    }
    note = records["aq_project_apollo/d1"]
    assert (note.summary, note.tags, note.topic) == ("Walrus summary", ("sea",), "zoo")
    assert note.source
    assert note.source.external_ref == "vault/projects/apollo/memory/walrus.md"
    assert await asked(adapter, "walrus") == ["The walrus in full."], "words do not stand in"
    said = " ".join(one.message for one in await adapter.problems(SCOPE))
    assert "8 dimensions" in said
    assert "aq_orchestrator has no text key" in said
    assert "chunk" not in said

    with adapter._store._using() as client:
        before = client.describe_collection("aq_project_apollo")
    with pytest.raises(Invalid, match="8 dimensions"):
        await write(adapter, "A document of another model.")
    with pytest.raises(Unsupported, match="no pinned"):
        await fact(adapter, "owner: ana", pinned=True)
    deployed = await fact(adapter, "deploy_branch: develop", topic="project")
    await fact(adapter, "test_command: make test", topic="project")
    versions = await adapter.history(deployed, SCOPE)
    assert [one.text.split(": ")[1] for one in versions] == ["develop", "release", "main"]
    assert versions[1].valid_to == clock.now
    [told] = ask_as_others(adapter, "aq_project_apollo", 'kv_key == "test_command"')
    assert (told["kv_value"], told["entry_type"]) == ('"make test"', "kv"), "a kv has no history"
    kv = RecordHandle(provider_key="milvus", provider_record_id="aq_project_apollo/k1")
    for topic in ("build", "project"):
        request = CorrectRequest(scope=SCOPE, handle=kv, topic=topic, tags=(topic,))
        await adapter.correct(request)
        [corrected] = [one for one in await listed(adapter) if one.handle == kv]
        now = (corrected.text, corrected.topic, corrected.tags)
        assert now == ("test_command: make test", topic, (topic,))
    elsewhere = await fact(adapter, "test_command: tox", topic="release")
    assert elsewhere.provider_record_id.endswith("#release/test_command")
    both = ask_as_others(adapter, "aq_project_apollo", 'kv_key == "test_command"')
    held = {(one["kv_namespace"], one["kv_value"]) for one in both}
    assert held == {("project", '"make test"'), ("release", '"tox"')}, "another namespace's goes"
    kept = ask_as_others(adapter, "aq_project_apollo", 'entry_id == "t2"')
    assert kept[0]["retrieval_count"] == 5, "a field of another program was lost"
    with adapter._store._using() as client:
        assert client.describe_collection("aq_project_apollo") == before


@pytest.mark.parametrize("is_foreign", [False, True])
async def test_changes_within_a_second_stay_in_order(
    opened: Opened, tmp_path: Path, clock: Clock, *, is_foreign: bool
) -> None:
    if is_foreign:
        _make_foreign(tmp_path / "milvus.db")
    adapter = await opened()
    values = ["one", "two", "three", "four"]
    for value in values:
        clock.tick(milliseconds=1)
        handle = await fact(adapter, f"stage: {value}")
    versions = await adapter.history(handle, SCOPE)
    assert [one.text for one in versions] == [f"stage: {one}" for one in reversed(values)]
    record = await adapter.get(handle, SCOPE)
    assert record
    assert record.text == "stage: four"
    if not is_foreign:
        moment = clock.now - timedelta(milliseconds=2)
        assert await asked(adapter, "stage", as_of=moment) == ["stage: two"]


async def test_a_past_is_written_in_any_order(opened: Opened, clock: Clock) -> None:
    adapter, began = await opened(), clock.now
    days = [began + timedelta(days=number) for number in range(6)]
    clock.tick(days=9)
    handle = await fact(adapter, "branch: c", valid_from=days[4])
    await fact(adapter, "branch: a", valid_from=days[0], valid_to=days[2])
    await fact(adapter, "branch: b", valid_from=days[2], valid_to=days[3])
    versions = [(one.text, one.valid_from, one.valid_to) for one in await adapter.versions(SCOPE)]
    assert versions == [
        ("branch: a", days[0], days[2]), ("branch: b", days[2], days[3]),
        ("branch: c", days[4], None),
    ]  # fmt: skip
    assert await asked(adapter, "branch", as_of=days[3]) == []
    record = await adapter.get(handle, SCOPE)
    assert record
    assert record.text == "branch: c"


async def test_a_year_of_changes_is_answered_as_it_was(opened: Opened, clock: Clock) -> None:
    """As-of at any moment equals an account that is kept beside."""
    adapter, draw = await opened(), random.Random(12)
    keys = [f"key_{number}" for number in range(12)]
    account: list[tuple[datetime, str, str | None]] = []
    for _ in range(60):
        moment, key = clock.tick(hours=draw.uniform(1, 140)), draw.choice(keys)
        handle = RecordHandle(
            provider_key="milvus", provider_record_id=f"aq_project_apollo#config/{key}"
        )
        held = await adapter.get(handle, SCOPE)
        if held is not None and draw.random() < 0.2:
            await adapter.forget(ForgetRequest(scope=SCOPE, handles=(handle,)))
            account.append((moment, key, None))
        elif held is not None and draw.random() < 0.4:
            text = f"{key}: {draw.random()}"
            await adapter.correct(CorrectRequest(scope=SCOPE, handle=handle, text=text))
            account.append((moment, key, text))
        else:
            text = f"{key}: {draw.random()}"
            await fact(adapter, text, topic="config")
            account.append((moment, key, text))
    began = account[0][0]
    for _ in range(20):
        moment = began + (clock.now - began) * draw.random()
        known = {key: text for when, key, text in account if when <= moment}
        page = await adapter.browse(BrowseRequest(scope=SCOPE, as_of=moment, limit=1000))
        assert sorted(one.text for one in page.records) == sorted(filter(None, known.values()))


HOSTILE = (
    '"', "'", "\\", "%", "_", "a_b", "aXb", '" or entry_id != "', '\\" or 1 == 1 or "',
    "%' or tags like '%", "line\nbreak", "tab\t", "é 中文", "{x}", "$meta", "nul\0",
)  # fmt: skip


async def test_no_value_becomes_part_of_an_expression(opened: Opened) -> None:
    adapter = await opened()
    known: dict[str, tuple[RecordHandle, RecordHandle]] = {}
    for value in HOSTILE:
        note = await write(adapter, f"Note of {value!r}", tags=(value,), topic=value)
        known[value] = note, await fact(adapter, f"key: {value.strip()!r}", topic=value)
    for value, (note, line) in known.items():
        assert [one.handle for one in await listed(adapter, tag=value)] == [note]
        found = {one.handle for one in await listed(adapter, topic=value)}
        assert found == {note, line}
        record = await adapter.get(line, SCOPE)
        assert record
        assert record.topic == value
        assert await asked(adapter, "note", topic=value, top_k=1) == [f"Note of {value!r}"]
    below = await write(adapter, "A tag below.", tags=("ops/on-call",))
    assert [one.handle for one in await listed(adapter, tag="ops")] == [below]
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(below,)))
    for value in HOSTILE:
        for sign in "/#":
            handle = RecordHandle(
                provider_key="milvus", provider_record_id=f"aq_project_apollo{sign}{value}"
            )
            assert await adapter.get(handle, SCOPE) is None
            reply = await adapter.forget(ForgetRequest(scope=SCOPE, handles=(handle,)))
            assert reply.missing == (handle,)
    for value, (note, line) in known.items():
        reply = await adapter.forget(ForgetRequest(scope=SCOPE, handles=(note, line)))
        assert not reply.missing, f"{value!r} cannot be forgotten"
    assert await listed(adapter) == []


async def test_scopes_are_weighed_and_a_topic_comes_first(opened: Opened) -> None:
    adapter = await opened()
    company = Scope(company_id=COMPANY)
    for scope in (company, SCOPE, Scope(company_id=COMPANY, agent_id="coding"),
                  Scope(company_id=COMPANY, agent_id="orchestrator"),
                  Scope(company_id=COMPANY, project_id="gemini")):  # fmt: skip
        owner = scope.project_id or scope.agent_id or "system"
        await fact(adapter, f"deploy_branch: {owner}", scope=scope)
        await write(adapter, f"Deploys are watched by {owner}", scope=scope, topic="ops")
    within = SCOPE.model_copy(update={"agent_id": "coding"})
    texts = await asked(adapter, "deploy branch", scope=within)
    order = ["apollo", "coding", "orchestrator", "system"]
    assert texts[:4] == [f"deploy_branch: {owner}" for owner in order]
    assert not any("gemini" in text for text in texts)
    request = QueryRequest(scope=SCOPE, query="who watches deploys", topic="ops")
    assert all(one.topic == "ops" for one in (await adapter.query(request)).snippets)
    other = request.model_copy(update={"topic": "cooking"})
    stages = {stage.name: stage for stage in (await adapter.query(other)).stages}
    assert "every topic" in stages["topic"].detail
    found = stages["scope"].scores
    assert sorted(set(found.values()), reverse=True) == [1.0, 0.5, 0.4]


async def test_what_was_read_before_is_a_conflict(opened: Opened, clock: Clock) -> None:
    adapter = await opened()
    handle = await fact(adapter, "owner: ana")
    seen = await adapter.get(handle, SCOPE)
    assert seen
    clock.tick(seconds=1)
    await fact(adapter, "owner: ben")
    change = CorrectRequest(scope=SCOPE, handle=handle, text="owner: eve", revision=seen.revision)
    with pytest.raises(Conflict) as caught:
        await adapter.correct(change)
    assert caught.value.current
    assert caught.value.current.text == "owner: ben"
    taken = await adapter.snapshot([handle], SCOPE)
    renamed = await adapter.correct(
        CorrectRequest(scope=SCOPE, handle=handle, text="maintainer: eve")
    )
    assert renamed.handle.provider_record_id == "aq_project_apollo#maintainer"
    assert [one.text for one in await listed(adapter)] == ["maintainer: eve"]
    nothing = Snapshot(handle=renamed.handle, record=None)
    await adapter.restore([*taken, nothing], SCOPE)
    assert [one.text for one in await listed(adapter)] == ["owner: ben"], "it cannot be undone"
    second = await write(adapter, "owner: cy", kind="fact")
    assert second.provider_record_id == "aq_project_apollo#owner-2"
    assert sorted(one.text for one in await listed(adapter)) == ["owner: ben", "owner: cy"]
    await fact(adapter, "maintainer: dan")
    with pytest.raises(Conflict, match="Another fact"):
        await adapter.correct(CorrectRequest(scope=SCOPE, handle=second, text="maintainer: cy"))


async def test_a_model_that_differs_is_told_before_anything_is_written(
    opened: Opened, embeddings: Embeddings
) -> None:
    adapter = await opened()
    for name in ("pelican", "walrus", "heron"):
        await write(adapter, f"The invoices are archived by the {name} job.")
    owner = await fact(adapter, "owner: ana")
    await fact(adapter, "owner: cy", scope=Scope(company_id=COMPANY, project_id="no-documents"))
    assert (await adapter.embed(0)).embedding.is_done
    await adapter.close()

    other = await opened(embedding=embeddings.embedding)
    health = await other.health()
    assert (health.status, health.embedding and health.embedding.serving) == ("degraded", "static")
    assert "2 collections need a re-index" in health.message
    assert "embedding milvus --build" in health.message
    before = len(embeddings.texts)
    late = await write(other, "Stored befor the build.")
    await other.correct(
        CorrectRequest(scope=SCOPE, handle=late, text="Stored before the build of the osprey.")
    )
    assert len(embeddings.texts) == before, "it is embedded with the others"
    assert (await asked(other, "osprey"))[0] == "Stored before the build of the osprey."
    assert len(await listed(other)) == 5
    assert (await asked(other, "pelican job"))[0] == "The invoices are archived by the pelican job."
    assert (await other.embed(2)).embedding.embedded == 2
    await other.close()  # as a kill does: nothing is told

    again = await opened(embedding=embeddings.embedding)
    assert (await again.embed(0)).embedding.embedded == 2, "a killed re-index begins anew"
    await fact(again, "owner: ben")
    [heron] = await listed(again, text="heron")
    taken = await again.snapshot([heron.handle], SCOPE)
    await again.forget(ForgetRequest(scope=SCOPE, handles=(heron.handle,)))
    before = len(embeddings.texts)
    while not (state := (await again.embed(2)).embedding).is_done:
        pass
    assert (state.texts, state.embedded, state.serving) == (3, 3, embeddings.embedding)
    assert len(embeddings.texts) - before <= 2, "what had a vector was embedded again"
    assert (await again.health()).status == "ok"
    assert (await asked(again, "walrus"))[0] == "The invoices are archived by the walrus job."
    assert (await asked(again, "osprey"))[0] == "Stored before the build of the osprey."
    await again.restore(taken, SCOPE)
    assert (await asked(again, "heron"))[0] == heron.text, "it came back with its old vector"
    versions = await again.history(owner, SCOPE)
    assert [one.text for one in versions] == ["owner: ben", "owner: ana"]
    assert [name for name in again._store.names() if name.startswith("memtui_")] == []

    embeddings.refusals[:] = [503]
    texts = await asked(again, "pelican")
    assert texts == ["The invoices are archived by the pelican job."], "words do not stand in"
    embeddings.refusals[:] = [503]
    told = await again.explain(QueryRequest(scope=SCOPE, query="pelican"))
    assert "aq_project_apollo" in {one.name: one.detail for one in told.stages}["needs re-index"]
    assert "embedding server" in (await again.problems(SCOPE))[0].message, "they do unsaid"
    await again.close()
    back = await opened()
    assert ((await back.sync()).changed, (await back.sync()).changed) == (4, 0)
    await write(back, "Written with the first model again.")


_OTHER = """
import asyncio, os, sys
from pathlib import Path
from memtui.backends.milvus import MilvusAdapter
from memtui.contract import *

async def main(folder):
    context = BindingContext(company_id="acme", binding_key="milvus",
        config={"path": f"{folder}/milvus.db"}, data_dir=Path(folder) / "data")
    adapter = await MilvusAdapter.open(context)
    scope = Scope(company_id="acme", project_id="apollo")
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="acme")
    with adapter._store._using():
        for number in range(50):
            await adapter.write(WriteRequest(
                scope=scope, source=source, content=f"Note {number}", kind="note"))
        links = [os.readlink(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd")
                 if os.path.islink(f"/proc/self/fd/{one}")]
        own = {one[8:-1] for one in links if one.startswith("socket:")}
        rows = [line.split() for name in ("tcp", "tcp6")
                for line in open(f"/proc/net/{name}").read().splitlines()[1:]]
        print(sum(row[9] in own for row in rows), flush=True)
        sys.stdin.read()

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
async def test_one_process_has_the_file_without_a_port_and_a_kill_loses_nothing(
    opened: Opened, tmp_path: Path
) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", _OTHER, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert other.stdout
        assert other.stdout.readline() == "0\n", "it has a TCP socket"
        with pytest.raises(Unavailable, match=rf"process {other.pid} .*only one process can open"):
            await opened(lock_seconds=0)
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.communicate()
    adapter = await opened()
    assert len(await listed(adapter)) == 50


async def test_what_is_no_file_of_this_milvus_lite_is_left_alone(
    opened: Opened, tmp_path: Path
) -> None:
    old, other = tmp_path / "old.db", tmp_path / "notes"
    old.write_bytes(b"SQLite format 3\0")
    other.mkdir()
    (other / "note.md").write_text("Mine.")
    with pytest.raises(Invalid, match="before version 3"):
        await opened(path=str(old))
    with pytest.raises(Invalid, match="not a folder of Milvus Lite"):
        await opened(path=str(other))
    with pytest.raises(Invalid, match="does not exist; create it"):
        await opened(path=str(tmp_path / "missing" / "milvus.db"))
    with pytest.raises(Invalid, match="not both"):
        await opened(uri="http://127.0.0.1:1")
    assert [one.name for one in other.iterdir()] == ["note.md"]
    with pytest.raises(Unavailable, match="can be reached"):
        await opened(path=None, uri="http://127.0.0.1:1", timeout_seconds=1)


async def test_each_of_several_facts_of_one_key_is_a_fact_of_its_own(
    opened: Opened, clock: Clock
) -> None:
    adapter = await opened()
    known: dict[str, RecordHandle] = {}
    for name in ("ana", "bo", "cy", "di", "ed"):
        clock.tick(seconds=1)
        known[name] = await fact(adapter, f"owner: {name}", mode=WriteMode.APPEND)
    assert len(set(known.values())) == len(known)
    assert {one.text: one.handle for one in await listed(adapter)} == {
        f"owner: {name}": handle for name, handle in known.items()
    }
    clock.tick(seconds=1)
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(known["bo"],)))
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=known["di"], text="owner: dora"))
    found = sorted(one.text for one in await listed(adapter))
    assert found == ["owner: ana", "owner: cy", "owner: dora", "owner: ed"]
    assert [one.text for one in await adapter.history(known["bo"], SCOPE)] == ["owner: bo"]


async def test_what_each_stage_of_a_query_gives_is_told_by_record(opened: Opened) -> None:
    adapter = await opened()
    company = Scope(company_id=COMPANY)
    key = (await fact(adapter, "owner: ana")).provider_record_id
    word = (await fact(adapter, "lead: the owner of the walrus")).provider_record_id
    wide = (await fact(adapter, "chair: some owner", scope=company)).provider_record_id
    text = (await write(adapter, "The owner of the walrus job is known.")).provider_record_id
    await write(adapter, "Nothing of the kind.")
    request = QueryRequest(scope=SCOPE, query="owner of the walrus", top_k=4)
    stages = {one.name: one.scores for one in (await adapter.explain(request)).stages}
    assert stages["keys"] == {key: 1.0}
    assert stages["words"].keys() == {key, word, wide}
    assert stages["words"][word] > stages["words"][key] == stages["words"][wide] > 0
    assert stages["meaning"].keys() == {text}
    assert 0 < stages["meaning"][text] <= 1
    assert stages["scope"].keys() == {key, word, wide, text}
    assert stages["scope"][word] == stages["scope"][text] > stages["scope"][wide]
    first = await adapter.explain(request.model_copy(update={"top_k": 1}))
    assert {one.name: list(one.scores) for one in first.stages}["scope"] == [key]
    assert "needs re-index" not in stages
    assert "topic" not in stages


async def test_what_was_once_about_a_subject_is_erased_with_it(
    opened: Opened, clock: Clock
) -> None:
    adapter = await opened()
    about = {who: SCOPE.model_copy(update={"subject_id": who}) for who in ("ana", "bo")}
    gone = [await fact(adapter, "oncall: ana", scope=about["ana"]),
            await fact(adapter, "backup: bo", scope=about["bo"])]  # fmt: skip
    clock.tick(seconds=1)
    await fact(adapter, "oncall: nobody")
    kept = await fact(adapter, "lead: ana", scope=about["ana"])
    clock.tick(seconds=1)
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=tuple(gone)))
    asked = EraseRequest(scope=Scope(company_id=COMPANY, subject_id="ana"), apply=True)
    done = await adapter.erase(asked)
    assert sorted(done.texts) == ["oncall: ana", "oncall: nobody"]
    assert done.record_ids == (gone[0].provider_record_id,)
    assert await adapter.history(gone[0], SCOPE) == []
    assert [one.text for one in await adapter.history(gone[1], SCOPE)] == ["backup: bo"]
    assert [one.handle for one in await listed(adapter)] == [kept]


async def test_of_several_collections_a_purge_takes_what_is_gone_of_what_it_means(
    opened: Opened, clock: Clock
) -> None:
    adapter = await opened()
    company = Scope(company_id=COMPANY)
    web, api = (company.model_copy(update={"project_id": name}) for name in ("web", "api"))
    written = {"a: 1": web, "b: 2": web, "c: 3": web, "a: 4": api}
    handles = {text: await fact(adapter, text, scope=scope) for text, scope in written.items()}
    ids = {text: one.provider_record_id for text, one in handles.items()}
    clock.tick(seconds=1)
    await fact(adapter, "a: 5", scope=web)
    clock.tick(seconds=1)
    gone = tuple(one for text, one in handles.items() if text != "c: 3")
    await adapter.forget(ForgetRequest(scope=company, handles=gone))

    async def erased(scope: Scope, *texts: str, apply: bool = False) -> tuple[Any, ...]:
        named = tuple(ids[text] for text in texts)
        reply = await adapter.erase(EraseRequest(scope=scope, record_ids=named, apply=apply))
        assert not reply.beyond
        return dict(reply.kept), sorted(reply.texts), sorted(reply.record_ids)

    two = sorted([ids["a: 1"], ids["b: 2"]])
    assert await erased(company) == await erased(company, "c: 3") == ({}, [], [])
    both = {"aq_project_web": 1, "aq_project_api": 1}
    assert await erased(company, "b: 2", "a: 4", "c: 3") == (
        both, ["a: 4", "b: 2"], sorted([ids["b: 2"], ids["a: 4"]]),
    )  # fmt: skip
    of_web = ({"aq_project_web": 3}, ["a: 1", "a: 5", "b: 2"], two)
    assert await erased(web) == await erased(web, apply=True) == of_web
    assert await erased(web) == ({}, [], [])
    left = [len(await adapter.history(one, company)) for one in handles.values()]
    assert left == [0, 0, 1, 1]


async def test_what_is_erased_is_in_no_file(opened: Opened, tmp_path: Path, clock: Clock) -> None:
    adapter = await opened()
    gone = await fact(adapter, "pin_code: zebrafinch")
    clock.tick(seconds=1)
    note = await write(adapter, "The zebrafinch is kept in the safe.")
    await write(adapter, "The safe stays.")
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(gone, note)))
    ids = (gone.provider_record_id, note.provider_record_id)
    request = EraseRequest(scope=Scope(company_id=COMPANY), record_ids=ids)
    told = await adapter.erase(request)
    assert (told.kept, told.texts) == ({"aq_project_apollo": 1}, ("pin_code: zebrafinch",))
    done = await adapter.erase(request.model_copy(update={"apply": True}))
    assert not done.beyond
    await adapter.close()
    assert "safe stays" in _everything_in(tmp_path / "milvus.db")
    assert "zebrafinch" not in _everything_in(tmp_path / "milvus.db")
    again = await opened()
    assert [one.text for one in await listed(again)] == ["The safe stays."]


def _everything_in(folder: Path) -> str:
    from pyarrow import parquet

    found = []
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            found.append(str(parquet.read_table(path).to_pylist()))
        elif path.is_file():
            found.append(path.read_bytes().decode("latin-1"))
    return "\n".join(found)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"text": "Gulls dive."}, ("Gulls dive.", "of birds", ("sea",), "zoo")),
        ({"tags": ("air",)}, ("Gulls call.", "of birds", ("air",), "zoo")),
        ({"topic": "port"}, ("Gulls call.", "of birds", ("sea",), "port")),
        ({"summary": "loud"}, ("Gulls call.", "loud", ("sea",), "zoo")),
        ({"summary": ""}, ("Gulls call.", None, ("sea",), "zoo")),
    ],
)
async def test_a_correction_leaves_the_fields_that_it_does_not_name(
    opened: Opened, change: dict[str, Any], fields: tuple[object, ...]
) -> None:
    adapter = await opened()
    handle = await write(adapter, "Gulls call.", summary="of birds", tags=("sea",), topic="zoo")
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=handle, **change))
    found = await adapter.get(handle, SCOPE)
    assert found is not None
    assert (found.text, found.summary, found.tags, found.topic) == fields
