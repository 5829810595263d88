"""The knowledge graph changed through memtui: byte for byte, and beside the server itself."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from memtui.backends.mcp_memory import McpMemoryAdapter
from memtui.contract import (
    BindingContext,
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Denied,
    EraseRequest,
    Filter,
    ForgetRequest,
    Invalid,
    Matching,
    QueryRequest,
    Record,
    Scope,
    Snapshot,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteRequest,
)
from memtui.provider_kit.files import shared
from tests.node import NodeProgram

ACME = Scope(company_id="acme")
SPACED = (
    '{ "entityType" : "tool", "n": 1.10, "name": "vim", '
    '"observations": ["edits", "edits", "\\u00e9 \\u2192"], "type": "entity" }'
)
ODD = [
    '{"type":"entity","name":"d3","entityType":"library","observations":["draws","zooms"]}',
    SPACED,
    "",
    '{"_type":"entity","name":"old","entityType":"x","observations":"one alone","source":"import"}',
    '{"type":"entity","name":"d3","entityType":"library","observations":[{"content":"pans","n":1e3}]}',
    '{"type":"relation","from":"vim","to":"nowhere","relationType":"leads to","weight":0.50}',
    "{broken",
    '{"type":"relation","from":"d3","to":"vim","relationType":"is drawn in"}',
]  # fmt: skip


Opened = Callable[..., Awaitable[McpMemoryAdapter]]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    adapters: list[McpMemoryAdapter] = []

    async def open_one(path: Path, **config: object) -> McpMemoryAdapter:
        os.utime(path, (0, 0))
        context = BindingContext(
            company_id="acme",
            binding_key="graph",
            config={"path": str(path), "settle_ms": 0, **config},
            data_dir=tmp_path / f"state{len(adapters)}",
        )
        adapters.append(await McpMemoryAdapter.open(context))
        return adapters[-1]

    yield open_one
    for adapter in adapters:
        await adapter.close()


async def every(adapter: McpMemoryAdapter) -> list[Record]:
    entities = BrowseRequest(scope=ACME, filter=Filter(kind="entity"))
    pages = [await adapter.browse(one) for one in (BrowseRequest(scope=ACME), entities)]
    return list({r.handle: r for page in pages for r in page.records}.values())


def note(text: str, **fields: object) -> WriteRequest:
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="acme")
    return WriteRequest.model_validate({"scope": ACME, "source": source, "content": text, **fields})


def correction(record: Record, text: str) -> CorrectRequest:
    return CorrectRequest(scope=ACME, handle=record.handle, text=text, revision=record.revision)


@pytest.mark.parametrize(("end", "last"), [("\n", True), ("\r\n", False)])
async def test_every_change_taken_back_leaves_every_byte(
    tmp_path: Path, opened: Opened, end: str, last: bool
) -> None:
    path = tmp_path / "memory.jsonl"
    before = (end.join(ODD) + end * last).encode()
    path.write_bytes(before)
    adapter = await opened(path)
    records = await every(adapter)
    assert {r.kind for r in records} == {"entity", "observation", "relation"}
    for record in records:
        new = {"relation": "a → b → c"}.get(record.kind, f"other {record.text}")
        for change in (
            lambda r=record: adapter.forget(ForgetRequest(scope=ACME, handles=(r.handle,))),
            lambda r=record, t=new: adapter.correct(correction(r, t)),
        ):
            [old] = await adapter.snapshot([record.handle], ACME)
            reply = await change()
            assert path.read_bytes() != before
            made = getattr(reply, "handle", None)
            undone = [old, *([Snapshot(handle=made, record=None)] if made else [])]
            await adapter.restore(undone, ACME)
            assert path.read_bytes() == before, record.text
    handles = [record.handle for record in records]
    taken = await adapter.snapshot(handles, ACME)
    await adapter.forget(ForgetRequest(scope=ACME, handles=tuple(handles)))
    assert path.read_bytes().split() == [b"{broken"]
    await adapter.restore(taken, ACME)
    assert sorted(r.handle.provider_record_id for r in await every(adapter)) == sorted(
        handle.provider_record_id for handle in handles
    )


async def test_a_change_touches_nothing_else(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text("\n".join(ODD))
    adapter = await opened(path, entity="vim")
    there = {record.text: record for record in await every(adapter)}
    await adapter.write(note("stays modal"))
    await adapter.write(note("is small", title="nano", topic="tool"))
    await adapter.write(note("likes otters", title="Ben", kind="person"))
    await adapter.correct(correction(there["zooms"], "zooms out"))
    await adapter.write(note("vim -> inspired -> helix", kind="relation"))
    await adapter.correct(correction(there["old"], "new"))
    expected = list(ODD)
    expected[0] = ODD[0].replace("zooms", "zooms out")
    expected[1] = SPACED.replace('2192"]', '2192", "stays modal"]')
    expected[3] = ODD[3].replace('"old"', '"new"')
    expected += [
        '{"type":"entity","name":"nano","entityType":"tool","observations":["is small"]}',
        '{"type":"entity","name":"Ben","entityType":"person","observations":["likes otters"]}',
        '{"type":"relation","from":"vim","to":"helix","relationType":"inspired"}',
    ]
    assert path.read_text().split("\n") == expected


async def test_a_file_without_the_right_to_write_is_left_alone(
    tmp_path: Path, opened: Opened
) -> None:
    path = tmp_path / "memory.json"
    path.write_text("\n".join(ODD))
    adapter = await opened(path)
    [record, *_] = await every(adapter)
    path.chmod(0o444)
    for change in (
        adapter.write(note("New.", title="d3")),
        adapter.correct(correction(record, "Other.")),
        adapter.forget(ForgetRequest.of([record], ACME)),
    ):
        with pytest.raises(Denied, match="write-protected"):
            await change
    assert path.read_text() == "\n".join(ODD)


async def test_what_is_written_goes_where_it_says(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "memory.jsonl"
    path.touch()
    adapter = await opened(path, project_id="apollo")
    for scope in (ACME, ACME.model_copy(update={"subject_id": "ana", "project_id": "apollo"})):
        await adapter.write(note("says this", scope=scope))
    with pytest.raises(Invalid, match="belongs to the project apollo"):
        await adapter.write(note("says this", scope=Scope(company_id="acme", project_id="x")))
    with pytest.raises(Invalid, match="arrows"):
        await adapter.write(note("says this", kind="relation"))
    await adapter.write(note("ana", kind="entity", topic="person"))
    with pytest.raises(Conflict, match="ana exists already"):
        await adapter.write(note("ana", kind="entity"))
    entities = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(one["name"], one["entityType"]) for one in entities] == [
        ("acme", "company"), ("apollo", "project"), ("ana", "person"),
    ]  # fmt: skip


async def test_an_entity_that_holds_what_is_others_stays(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(ODD[0])
    adapter = await opened(path)
    apollo = ACME.model_copy(update={"project_id": "apollo"})
    await adapter.write(note("is apollo's", title="d3", scope=apollo))
    before = path.read_bytes()
    d3 = next(record for record in await every(adapter) if record.kind == "entity")
    for change in (
        adapter.forget(ForgetRequest(scope=ACME, handles=(d3.handle,))),
        adapter.correct(correction(d3, "d4")),
    ):
        with pytest.raises(Denied, match="belongs to the project apollo"):
            await change
    assert path.read_bytes() == before


async def test_a_change_that_the_server_makes_impossible_is_a_conflict(
    tmp_path: Path, opened: Opened
) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(ODD[0])
    adapter = await opened(path, settle_ms=400)
    [draws, _] = (await adapter.browse(BrowseRequest(scope=ACME, sort="title"))).records
    loop = asyncio.get_running_loop()
    correcting = asyncio.create_task(adapter.correct(correction(draws, "draws lines")))
    while b"draws lines" not in path.read_bytes():
        await asyncio.sleep(0)
    fresh = tmp_path / "fresh"
    fresh.write_text(ODD[0].replace('"draws",', ""))
    await loop.run_in_executor(None, fresh.replace, path)
    with pytest.raises(Conflict, match="removed while you changed it"):
        await correcting
    assert path.read_text() == ODD[0].replace('"draws",', "")


async def test_what_a_program_writes_into_the_replaced_file_counts(
    tmp_path: Path, opened: Opened
) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(ODD[0])
    adapter = await opened(path, settle_ms=400)
    with path.open("r+") as theirs:
        writing = asyncio.create_task(adapter.write(note("ours", title="d3")))
        while "ours" not in path.read_text():
            await asyncio.sleep(0)
        theirs.write(ODD[0].replace("zooms", "theirs"))
        theirs.truncate()
        theirs.flush()
        await writing
    assert json.loads(path.read_text())["observations"] == ["draws", "theirs", "ours"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["memory.jsonl", "state0"]


async def test_what_a_program_has_only_begun_to_write_takes_nothing_out(
    tmp_path: Path, opened: Opened
) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(ODD[0])
    adapter = await opened(path, settle_ms=2_000)
    async with asyncio.timeout(60):
        await _written_meanwhile(path, adapter)
    assert json.loads(path.read_text())["observations"] == ["draws", "theirs", "ours"]


async def _written_meanwhile(path: Path, adapter: McpMemoryAdapter) -> None:
    with path.open("r+") as theirs:
        writing = asyncio.create_task(adapter.write(note("ours", title="d3")))
        while "ours" not in path.read_text():
            await asyncio.sleep(0)
        theirs.truncate()
        while path.read_text():
            await asyncio.sleep(0)
        theirs.write(ODD[0].replace("zooms", "theirs"))
        theirs.flush()
        await writing


async def test_what_others_wrote_comes_back_where_it_cannot_be_read(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, theirs = tmp_path / "memory.jsonl", ODD[0].replace("zooms", "theirs")
    path.write_text(ODD[0])
    adapter = await opened(path)
    exchange = shared._exchange

    def after_theirs(spare: Path, path: Path) -> Path:
        fresh = tmp_path / "fresh"
        fresh.write_text(theirs)
        fresh.replace(path)
        old = exchange(spare, path)
        monkeypatch.setattr(Path, "open", no_more_files)
        return old

    def no_more_files(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(shared, "_exchange", after_theirs)
    with pytest.raises(Unavailable, match="Too many open files"):
        await adapter.write(note("ours", title="d3"))
    monkeypatch.undo()
    assert path.read_text() == theirs


async def test_what_is_somebodys_is_never_shown_to_others(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(ODD[0])
    adapter = await opened(path, settle_ms=400)
    ana, bob = (ACME.model_copy(update={"subject_id": one}) for one in ("ana", "bob"))
    writing = asyncio.create_task(adapter.write(note("is ill", title="d3", scope=ana)))
    while "is ill" not in path.read_text():
        await asyncio.sleep(0)
    while not writing.done():
        shown = (await adapter.browse(BrowseRequest(scope=bob))).records
        assert "is ill" not in {record.text for record in shown}
    [old] = (await writing).records

    upsert = note("is ill", title="d3", scope=bob, mode="upsert")
    [own] = (await adapter.write(upsert)).records
    assert (await adapter.write(upsert)).records == (own,)
    assert own != old
    assert [await adapter.get(old, bob), await adapter.get(own, ana)] == [None, None]
    assert path.read_text().count("is ill") == 2


async def test_what_a_killed_change_left_beside_goes_with_a_later_one(
    tmp_path: Path, opened: Opened
) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(ODD[0])
    adapter = await opened(path, settle_ms=400)
    writing = asyncio.create_task(adapter.write(note("ours", title="d3")))
    while "ours" not in path.read_text():
        await asyncio.sleep(0)
    [left] = tmp_path.glob(".memtui-scratch-*")
    assert [one.name for one in left.iterdir()] == ["memory.jsonl"]
    copy = left.with_name(f"{left.name}1")
    shutil.copytree(left, copy)
    await writing
    assert copy.exists()
    await adapter.write(note("more", title="d3"))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["memory.jsonl", "state0"]


async def test_what_is_known_of_a_record_goes_when_the_server_has_removed_it(
    tmp_path: Path, opened: Opened
) -> None:
    path = tmp_path / "memory.jsonl"
    path.touch()
    adapter = await opened(path)
    [kept] = (await adapter.write(note("kept", title="x", metadata={"why": "a secret"}))).records
    [gone] = (await adapter.write(note("gone", title="x", metadata={"why": "no secret"}))).records
    known = tmp_path / "state0" / "known.json"
    path.write_text(path.read_text().replace(',"gone"', ""))
    asked = EraseRequest(scope=ACME, record_ids=(gone.provider_record_id, kept.provider_record_id))
    assert (await adapter.erase(asked)).record_ids == (gone.provider_record_id,)
    assert "no secret" in known.read_text()
    await adapter.erase(asked.model_copy(update={"apply": True}))
    assert "no secret" not in known.read_text()
    record = await adapter.get(kept, ACME)
    assert record is not None
    assert record.metadata["why"] == "a secret"
    assert (await adapter.erase(asked)).kept == {}


@pytest.mark.slow
async def test_both_write_at_once_and_nothing_is_lost(
    tmp_path: Path, opened: Opened, memory_server: NodeProgram
) -> None:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    count = 25
    path = tmp_path / "memory.jsonl"
    path.write_text("\n".join(line for line in ODD[:2]))
    adapter = await opened(path, settle_ms=20)
    server = StdioServerParameters(
        command=memory_server.node,
        args=[str(memory_server.script)],
        env={**os.environ, "MEMORY_FILE_PATH": str(path)},
    )
    async with stdio_client(server) as (reading, writing), ClientSession(reading, writing) as agent:
        await agent.initialize()

        async def theirs() -> None:
            for number in range(count):
                added = {"entityName": "vim", "contents": [f"theirs {number}"]}
                await agent.call_tool("add_observations", {"observations": [added]})

        async def ours() -> None:
            for number in range(count):
                await adapter.write(note(f"ours {number}", title="vim"))

        await asyncio.gather(theirs(), ours())
        found = await agent.call_tool("search_nodes", {"query": "OURS 2"})
        [entity] = json.loads(getattr(found.content[0], "text", ""))["entities"]
    said = entity["observations"]
    assert sorted(said) == sorted(
        [
            "edits",
            "edits",
            "é →",
            *(f"{who} {n}" for who in ("ours", "theirs") for n in range(count)),
        ]
    )
    asked = QueryRequest(scope=ACME, query="OURS 2", matching=Matching.AGENTS, top_k=1000)
    assert [one.text for one in (await adapter.query(asked)).snippets] == said


LINE = '{"type":"entity","name":"Carl","entityType":"person","observations":["likes tea"]}'
DOCUMENT = {
    "entities": [{"name": "A", "entityType": "t", "observations": ["one"]}],
    "relations": [],
}
FOREIGN = {
    "document": json.dumps(DOCUMENT),
    "pretty": json.dumps(DOCUMENT, indent=2),
    "array": f"[{LINE}]",
    "array of lines": f"[\n{LINE},\n{LINE}\n]",
    "array in pieces": f"[\n{LINE},\n{LINE}",
    "pretty lines": json.dumps(json.loads(LINE), indent=2),
    "document with a mark": f"\ufeff{json.dumps(DOCUMENT)}",
    "crlf": json.dumps(DOCUMENT, indent=2).replace("\n", "\r\n"),
    "cut off": json.dumps(DOCUMENT, indent=2)[:-20],
    "words": "# Notes\n\n- tea\n",
    "a number": "7\n",
    "other lines": '{"id": 1, "text": "tea"}\n{"id": 2, "text": "milk"}\n',
    "table": "name,type\nCarl,person\n",
}


@pytest.mark.parametrize("name", FOREIGN)
async def test_a_file_of_another_format_is_never_changed(
    tmp_path: Path, opened: Opened, name: str
) -> None:
    path = tmp_path / "graph.json"
    path.write_text(FOREIGN[name])
    before = path.read_bytes()
    adapter = await opened(path)
    with pytest.raises(Invalid, match="is no knowledge graph that memtui can change"):
        await adapter.write(note("Tea."))
    for record in (await adapter.browse(BrowseRequest(scope=ACME))).records:
        with pytest.raises(Invalid, match="is no knowledge graph"):
            await adapter.correct(CorrectRequest(scope=ACME, handle=record.handle, text="Milk."))
        with pytest.raises(Invalid, match="is no knowledge graph"):
            await adapter.forget(ForgetRequest(scope=ACME, handles=(record.handle,)))
    assert path.read_bytes() == before
    assert not list(path.parent.glob(".graph*"))


@pytest.mark.parametrize(
    "content",
    ["", "\n", " \n\t\n", LINE, f"{LINE}\n", f"\ufeff{LINE}\r\n", f"{LINE}{LINE}\n{LINE}\n"],
    ids=["empty", "newline", "blank", "no end", "end", "mark and crlf", "two on a line"],
)
async def test_a_graph_is_added_to_whatever_its_ends(
    tmp_path: Path, opened: Opened, content: str
) -> None:
    path = tmp_path / "graph.jsonl"
    path.write_bytes(content.encode())
    adapter = await opened(path)
    await adapter.write(note("Tea.", title="Carl"))
    assert "Tea." in path.read_text()
    for line in content.splitlines():
        assert line.strip("\ufeff \t").removesuffix("]}") in path.read_text()
    assert len(await adapter.problems(ACME)) == content.count(LINE + LINE)


async def test_where_two_files_cannot_change_places_at_once_a_change_is_made_all_the_same(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "_c_library", object)
    path = tmp_path / "memory.jsonl"
    path.write_text(f"{SPACED}\n")
    adapter = await opened(path)
    for text in ("One.", "Two."):
        source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="acme")
        await adapter.write(WriteRequest(scope=ACME, source=source, content=text, title="vim"))
    observations = json.loads(path.read_text())["observations"]
    assert observations == ["edits", "edits", "é →", "One.", "Two."]
    assert {one.name for one in tmp_path.iterdir()} == {"memory.jsonl", "state0"}
