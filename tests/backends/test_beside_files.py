"""What memtui keeps beside other programs' files of each record goes, stays and comes with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import pytest

from memtui.backends.claude_memory import ClaudeMemoryAdapter
from memtui.backends.hermes import HermesAdapter
from memtui.backends.letta import LettaAdapter
from memtui.backends.mcp_memory import McpMemoryAdapter
from memtui.backends.mcp_memory.graph import merged
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
    Json,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.provider_kit.files import committed
from memtui.provider_kit.files.reading import FileReader, ParsedFile
from memtui.provider_kit.files.shared import put
from memtui.provider_kit.files.writing import WritableFilesAdapter, WrittenRecord
from memtui.provider_kit.known import KnownFile

ACME = Scope(company_id="acme")
ANA, BEN = (Scope(company_id="acme", subject_id=one) for one in ("ana", "ben"))
SOURCE = SourceRef(
    kind=SourceKind.ISSUE_COMMENT, company_id="acme", issue_id="I-1", comment_id="c-2"
)
Adapter = WritableFilesAdapter[Any]
Opened = Callable[..., Awaitable[Adapter]]
BOTH = pytest.mark.parametrize("kind", [ClaudeMemoryAdapter, McpMemoryAdapter])


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    adapters: list[Adapter] = []

    async def open_one(kind: type[Adapter], content: str = "", **config: object) -> Adapter:
        is_folder = kind.holds == "folder"
        path = tmp_path / ("memory" if is_folder else "memory.jsonl")
        if is_folder:
            path.mkdir(exist_ok=True)
            given: Json = {"path": str(path), **config}
        else:
            path.write_text(content or (path.read_text() if path.exists() else ""))
            given = {"path": str(path), "settle_ms": 0, **config}
        adapters.append(await kind.open(BindingContext(
            company_id="acme", binding_key="main", config=given, data_dir=tmp_path / "data"
        )))  # fmt: skip
        return adapters[-1]

    yield open_one
    for adapter in adapters:
        await adapter.close()


async def write(adapter: Adapter, text: str, **fields: Any) -> RecordHandle:
    given = {"scope": ACME, "source": SOURCE, "content": text} | fields
    return (await adapter.write(WriteRequest.model_validate(given))).records[0]


async def every(adapter: Adapter) -> dict[str, Record]:
    """Return all records but for where they stand, by id."""
    requests = [BrowseRequest(scope=ACME), BrowseRequest(scope=ACME, filter=Filter(kind="entity"))]
    found = [one for asked in requests for one in (await adapter.browse(asked)).records]
    moving = ("index_line", "lines", "observations", "goes_with")
    return {
        one.handle.provider_record_id: one.model_copy(
            update={
                "location": None,
                "updated_at": None,
                "metadata": {k: v for k, v in one.metadata.items() if k not in moving},
            }
        )
        for one in found
    }


def kept(tmp_path: Path) -> Json:
    """Return what is kept beside the files."""
    [path] = (tmp_path / "data").glob("*.json")
    held: Json = json.loads(path.read_text())
    return held


def rich(number: int, who: str) -> dict[str, Any]:
    return {
        "tags": (f"t{number}", "shared"), "topic": f"topic {number}",
        "metadata": {"number": number}, "scope": ACME.model_copy(update={"subject_id": who}),
        "created_by": f"user:{who}", "created_at": datetime(2026, 1, number, tzinfo=UTC),
        "source": SOURCE.model_copy(update={"issue_id": f"I-{number}"}),
    }  # fmt: skip


@BOTH
async def test_what_is_known_of_each_goes_and_comes_back_with_it(
    opened: Opened, tmp_path: Path, kind: type[Adapter]
) -> None:
    adapter = await opened(kind)
    handles = [await write(adapter, f"Badger number {n}.", **rich(n, "ana")) for n in range(1, 5)]
    before = await every(adapter)
    known = kept(tmp_path)
    for n, handle in enumerate(handles, start=1):
        one = before[handle.provider_record_id]
        for name, value in rich(n, "ana").items():
            if name == "metadata":
                assert one.metadata["number"] == n
                own = "loaded" if kind is ClaudeMemoryAdapter else "entity"
                assert own in one.metadata, "what the file itself says stays"
            else:
                assert getattr(one, name) == value, name
    taken = await adapter.snapshot(handles[:3], ACME)
    gone = tuple(handles[:3])
    path = tmp_path / ("memory/MEMORY.md" if kind is ClaudeMemoryAdapter else "memory.jsonl")
    content = path.read_bytes()
    assert (await adapter.forget(ForgetRequest(scope=ACME, handles=gone))).missing == ()
    assert not {one.provider_record_id for one in gone} & kept(tmp_path).keys()
    assert handles[3].provider_record_id in kept(tmp_path)
    assert await every(adapter) == {
        name: one for name, one in before.items()
        if name not in {one.provider_record_id for one in gone}
    }  # fmt: skip
    await adapter.restore(taken[::-1], ACME)
    assert path.read_bytes() == content, "whatever their order, each is put back in its place"
    assert await every(adapter) == before
    assert kept(tmp_path) == known
    await adapter.restore([Snapshot(handle=one, record=None) for one in gone[:2]], ACME)
    left = [one.provider_record_id for one in handles[2:]]
    assert [name for name in known if name in kept(tmp_path) and name not in left] == [
        name
        for name in known
        if name.count("/") == 1  # the entity that they are of
    ]
    again = await opened(kind)
    assert await every(again) == await every(adapter), "another process knows the same"


@BOTH
async def test_of_what_another_program_removed_a_purge_takes_what_it_means(
    opened: Opened, tmp_path: Path, kind: type[Adapter]
) -> None:
    adapter = await opened(kind)
    who = ["ana", "bo", "ana", "cy", "ana"]
    handles = [
        await write(adapter, f"Badger number {n}.", **rich(n, one))
        for n, one in enumerate(who, start=1)
    ]
    ids = [one.provider_record_id for one in handles]
    for n, name in enumerate(ids[:4], start=1):
        if kind is ClaudeMemoryAdapter:
            (tmp_path / "memory" / name).unlink()
        else:
            path = tmp_path / "memory.jsonl"
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            for line in lines:
                line["observations"] = [
                    one for one in line["observations"] if one != f"Badger number {n}."
                ]
            path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    ana = ACME.model_copy(update={"subject_id": "ana"})
    told = await adapter.erase(EraseRequest(scope=ana))
    assert set(told.record_ids) == {ids[0], ids[2]}
    assert sum(told.kept.values()) == 2
    assert set(ids) <= kept(tmp_path).keys(), "a look erases nothing"
    nothing = await adapter.erase(EraseRequest(scope=ACME))
    assert nothing.record_ids == ()
    named = await adapter.erase(EraseRequest(scope=ACME, record_ids=(ids[3], ids[4])))
    assert named.record_ids == (ids[3],), "what lives stays"
    await adapter.erase(EraseRequest(scope=ana, apply=True))
    assert [name for name in ids if name in kept(tmp_path)] == [ids[1], ids[3], ids[4]]
    assert (await adapter.erase(EraseRequest(scope=ana))).kept == {}


async def test_with_an_entity_goes_and_comes_what_is_known_of_all_that_is_about_it(
    opened: Opened, tmp_path: Path
) -> None:
    adapter = await opened(McpMemoryAdapter)
    for name in ("vim", "grep"):
        await write(adapter, name, kind="entity", topic="tool", tags=("e",), created_by="user:bo")
        for n in (1, 2):
            more = rich(n, "ana") | {"scope": ACME}
            await write(adapter, f"{name} edits {n}", **more | {"title": name})
    for ends in ("vim → calls → grep", "grep → is in → vim"):
        await write(adapter, ends, kind="relation", tags=("r", ends[:3]), created_by="user:cy")
    before, known = await every(adapter), kept(tmp_path)
    assert len(known) == len(before) == 8
    [entity] = [one for one in before.values() if one.text == "vim" and one.kind == "entity"]
    for handles in ([entity.handle], [one.handle for one in before.values() if "vim" in one.text]):
        taken = await adapter.snapshot(handles, ACME)
        await adapter.forget(ForgetRequest(scope=ACME, handles=tuple(handles)))
        left = await every(adapter)
        assert sorted(one.text for one in left.values()) == ["grep", "grep edits 1", "grep edits 2"]
        assert kept(tmp_path).keys() == left.keys()
        await adapter.restore(taken, ACME)
        assert await every(adapter) == before
        assert kept(tmp_path) == known
    renamed = await adapter.correct(
        CorrectRequest(scope=ACME, handle=entity.handle, text="nvim", topic="editor")
    )
    now = await every(adapter)
    assert sorted(one.text for one in now.values()) == sorted(
        one.text.replace("vim", "nvim") if one.kind != "observation" else one.text
        for one in before.values()
    )
    for old in before.values():
        text = old.text.replace("vim", "nvim") if old.kind != "observation" else old.text
        [new] = [one for one in now.values() if one.text == text and one.kind == old.kind]
        assert (new.tags, new.created_by, new.created_at) == (
            old.tags, old.created_by, old.created_at
        ), text  # fmt: skip
    assert now[renamed.handle.provider_record_id].topic == "editor"
    changes: dict[str, dict[str, Any]] = {
        "nvim": {"tags": ("x",)}, "grep": {"topic": "search", "tags": ("y",)}
    }  # fmt: skip
    for text, change in changes.items():
        [entity] = [one for one in now.values() if one.text == text and one.kind == "entity"]
        await adapter.correct(CorrectRequest(scope=ACME, handle=entity.handle, **change))
        after = await every(adapter)
        changed = after[entity.handle.provider_record_id]
        assert {name: getattr(changed, name) for name in change} == change
        assert changed.created_by == "user:bo"
        now[entity.handle.provider_record_id] = changed
        assert {k: v.tags for k, v in after.items()} == {k: v.tags for k, v in now.items()}


async def test_each_line_of_an_entity_is_changed(opened: Opened, tmp_path: Path) -> None:
    lines = [
        {"type": "entity", "name": name, "entityType": "x", "observations": [f"{name} {n}"]}
        for n in (1, 2, 3)
        for name in ("vim", "grep")
    ]
    lines += [{"type": "relation", "from": a, "to": b, "relationType": "is"}
              for a, b in (("vim", "grep"), ("grep", "vim"), ("grep", "sed"))]  # fmt: skip
    adapter = await opened(McpMemoryAdapter, "".join(f"{json.dumps(one)}\n" for one in lines))
    before = await every(adapter)
    [entity] = [one for one in before.values() if one.text == "vim"]

    def held() -> list[Json]:
        return [json.loads(line) for line in (tmp_path / "memory.jsonl").read_text().splitlines()]

    await adapter.correct(CorrectRequest(scope=ACME, handle=entity.handle, topic="editor"))
    types = [(one["name"], one["entityType"]) for one in held() if one["type"] == "entity"]
    assert types == [("vim", "editor"), ("grep", "x")] * 3
    reply = await adapter.correct(CorrectRequest(scope=ACME, handle=entity.handle, text="nvim"))
    names = [one["name"] for one in held() if one["type"] == "entity"]
    assert names == ["nvim", "grep"] * 3
    ends = [(one["from"], one["to"]) for one in held() if one["type"] == "relation"]
    assert ends == [("nvim", "grep"), ("grep", "nvim"), ("grep", "sed")]
    await adapter.forget(ForgetRequest(scope=ACME, handles=(reply.handle,)))
    assert [one.get("name") for one in held()] == ["grep", "grep", "grep", None]


async def test_each_line_of_the_index_goes_and_comes_back_with_its_memory(
    opened: Opened, tmp_path: Path
) -> None:
    adapter = await opened(ClaudeMemoryAdapter)
    folder = tmp_path / "memory"
    index = (
        "# Memory\n- [One](one.md) — first\n- [Two](two.md) — second\n\n## Again\n"
        "- [One again](one.md) — first\n- [Three](three.md) — third\n- [Two, too](two.md) - x\n"
    )
    (folder / "MEMORY.md").write_text(index)
    for name in ("one", "two", "three"):
        (folder / f"{name}.md").write_text(f"---\nname: {name}\n---\nThe {name}.\n")
    records = [one for one in (await every(adapter)).values() if one.kind != "index"]
    for gone in (records[:1], records[:2], records):
        handles = [one.handle for one in gone]
        taken = await adapter.snapshot(handles, ACME)
        await adapter.forget(ForgetRequest(scope=ACME, handles=tuple(handles)))
        left = (folder / "MEMORY.md").read_text()
        for one in records:
            assert (f"({one.handle.provider_record_id})" in left) == (one not in gone)
        await adapter.restore(taken, ACME)
        assert (folder / "MEMORY.md").read_text() == index


@BOTH
@pytest.mark.parametrize("change", [{"tags": ("x", "y")}, {"topic": "ops"}, {"text": "The new."}])
async def test_one_field_of_what_another_program_wrote_is_corrected(
    opened: Opened, tmp_path: Path, kind: type[Adapter], change: dict[str, Any]
) -> None:
    line = {"type": "entity", "name": "vim", "entityType": "tool", "observations": ["One", "Two"]}
    adapter = await opened(kind, f"{json.dumps(line)}\n")
    if kind is ClaudeMemoryAdapter:
        for name in ("One", "Two"):
            (tmp_path / "memory" / f"{name}.md").write_text(f"---\ntype: user\n---\n{name}\n")
    before = await every(adapter)
    [second] = [one for one in before.values() if one.text == "Two"]
    request = CorrectRequest.model_validate({"scope": ACME, "handle": second.handle, **change})
    reply = await adapter.correct(request)
    after = await every(await opened(kind))
    changed = after.pop(reply.handle.provider_record_id)
    assert {name: getattr(changed, name) for name in change} == change
    same = ("title", "kind", "scope", "created_by", "tags", "topic", "text")
    for name in same:
        if name not in change and (name, *change) != ("title", "text"):
            assert getattr(changed, name) == getattr(second, name), name
    del before[second.handle.provider_record_id]
    assert after == before


def graph(*said: str) -> bytes:
    """Return a file of observations `name: text`, relations `a → b`, and entities `name`."""
    lines: dict[str, Json] = {}
    for one in said:
        if "→" in one:
            start, end = one.split(" → ")
            lines[one] = {"type": "relation", "from": start, "to": end, "relationType": "is"}
            continue
        name, _, text = one.partition(": ")
        entity = {"type": "entity", "name": name, "entityType": "x", "observations": []}
        lines.setdefault(name, entity)["observations"] += [text] if text else []
    return "".join(f"{json.dumps(one)}\n" for one in lines.values()).encode()


def said(content: bytes) -> list[str]:
    found: list[str] = []
    for one in map(json.loads, content.splitlines()):
        if one["type"] == "relation":
            found.append(f"{one['from']} → {one['to']}")
        else:
            found += [f"{one['name']}: {text}" for text in one["observations"]] or [one["name"]]
    return sorted(found)


@pytest.mark.parametrize(
    ("before", "theirs", "ours", "both"),
    [
        (["a: 1", "a: 2"], ["a: 1", "a: 2", "a: 3"], ["a: 1"], ["a: 1", "a: 3"]),
        (["a: 1", "a: 2"], ["a: 2"], ["a: 1", "a: 2", "b: 1"], ["a: 2", "b: 1"]),
        (["a: 1", "a: 1"], ["a: 1"], ["a: 1"], ["a: 1"]),
        (["a: 1", "a: 1"], ["a: 1", "a: 1", "a: 1"], ["a: 1"], ["a: 1", "a: 1", "a: 1"]),
        (["a", "b"], ["a", "b", "a → b", "c"], ["a", "b: 1"], ["a", "a → b", "b: 1", "c"]),
        (["a", "b", "a → b", "b → a"], ["a", "b", "b → a"], ["a", "b", "a → b", "b → a", "c"],
         ["a", "b", "b → a", "c"]),
        (["a", "b"], ["a"], ["a", "b", "c"], ["a", "c"]),
        (["a", "b"], ["a", "b", "c"], ["a"], ["a", "c"]),
    ],
)  # fmt: skip
def test_the_change_that_others_made_is_made_again_and_no_other(
    before: list[str], theirs: list[str], ours: list[str], both: list[str]
) -> None:
    made = merged(graph(*before), graph(*theirs), graph(*ours))
    assert said(made) == both
    assert merged(graph(*before), graph(*theirs), made) == made, "once is enough"


def test_a_file_that_could_not_be_made_is_told(tmp_path: Path) -> None:
    place = tmp_path / "a.md"
    place.symlink_to("nowhere")
    with pytest.raises(Conflict):
        put(place, None, b"Deploys leave main.", marker=tmp_path / "changed")
    place.unlink()
    place.write_bytes(b"Deploys leave main.")
    put(place, None, b"Deploys leave main.", marker=tmp_path / "changed")
    with pytest.raises(Conflict):
        put(place, None, b"Tabs.", marker=tmp_path / "changed")


@pytest.mark.parametrize(
    ("meanwhile", "left"),
    [
        (["a: x", "a: x", "a: y"], ["a: x", "a: y"]), (["a: x"], ["a: x"]),
        (["a: x", "a: x", "a: x"], ["a: x", "a: x"]), (["b: y"], ["b: y"]),
    ],
)  # fmt: skip
async def test_of_equal_ones_only_so_many_go_as_were_asked_for(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, meanwhile: list[str], left: list[str]
) -> None:
    adapter = await opened(McpMemoryAdapter, graph("a: x", "a: x").decode())
    assert isinstance(adapter, McpMemoryAdapter)
    found = [one for one in (await every(adapter)).values() if one.text == "x"]

    fresh: list[bytes] = []

    def change(edit: Callable[[bytes], bytes]) -> bytes:
        """Have another program put its file in place of the first try."""
        edit(graph("a: x", "a: x"))
        fresh.append(edit(graph(*meanwhile)))
        return fresh[0]

    monkeypatch.setattr(adapter._file, "change", change)
    await adapter.forget(ForgetRequest(scope=ACME, handles=(found[1].handle,)))
    assert said(fresh[0]) == left


@BOTH
async def test_files_of_a_project_tell_another_nothing(
    opened: Opened, tmp_path: Path, kind: type[Adapter]
) -> None:
    content = graph("a: x").decode() + "{broken\n"
    (tmp_path / "memory").mkdir()
    for name, text in {"bad": "---\nname: [half\n---\nText.\n", "MEMORY": "- [X](no.md)\n"}.items():
        (tmp_path / "memory" / f"{name}.md").write_text(text)
    adapter = await opened(kind, content, project_id="web", subject_id="ana")
    web, api, bo = ({"project_id": "web"}, {"project_id": "api"}, {"subject_id": "bo"})
    seen, hidden = (
        [ACME.model_copy(update=ids) for ids in some] for some in ([{}, web], [api, bo])
    )
    [first, *_] = (await adapter.browse(BrowseRequest(scope=ACME))).records
    assert (first.scope.project_id, first.scope.subject_id) == ("web", "ana")
    for scope in seen:
        told = await adapter.problems(scope)
        assert told
        assert {one.scope and one.scope.project_id for one in told} == {"web"}
        assert await adapter.get(first.handle, scope) == first
    for scope in hidden:
        assert list(await adapter.problems(scope)) == []
        assert await adapter.get(first.handle, scope) is None
        assert (await adapter.browse(BrowseRequest(scope=scope))).records == ()
        forget = ForgetRequest(scope=scope, handles=(first.handle,))
        assert (await adapter.forget(forget)).missing == (first.handle,)
        for place, ids in {"project": api, "user": bo}.items():
            if scope == ACME.model_copy(update=ids):
                with pytest.raises(Invalid, match=f"belongs to the {place}|belongs to the subject"):
                    await write(adapter, "Of others.", scope=scope)
    handle = await write(adapter, "Of its own.", scope=ACME.model_copy(update={"agent_id": "me"}))
    record = await adapter.get(handle, ACME)
    assert record is not None
    whose = record.scope.project_id, record.scope.subject_id, record.scope.agent_id
    assert whose == ("web", "ana", "me")


async def test_each_relation_of_an_entity_is_a_link(opened: Opened) -> None:
    ends = ["a → hub", "b → hub", "hub → a", "hub → c", "a → b"]
    adapter = await opened(McpMemoryAdapter, graph("hub", "a", "b", *ends).decode())
    records = await every(adapter)
    named = {one.text: one.handle for one in records.values() if one.kind == "entity"}
    found = await adapter.links([named["hub"], named["a"]], ACME)
    hub, a = (found[named[name].provider_record_id] for name in ("hub", "a"))
    assert [(one.target, one.handle) for one in hub.links] == [("a", named["a"]), ("c", None)]
    assert [(one.target, one.handle) for one in hub.backlinks] == [
        ("a", named["a"]), ("b", named["b"])
    ]  # fmt: skip
    assert [one.target for one in a.links] == ["hub", "b"]
    assert [one.target for one in a.backlinks] == ["hub"]


async def test_memories_of_which_one_cannot_be_removed_all_stay_with_their_lines(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = await opened(ClaudeMemoryAdapter)
    assert isinstance(adapter, ClaudeMemoryAdapter)
    handles = [await write(adapter, f"Badger number {n}.") for n in range(4)]
    before = {one.name: one.read_bytes() for one in (tmp_path / "memory").iterdir()}

    def refused(path: Path, *rest: Any, **named: Any) -> None:
        if path.name == handles[2].provider_record_id:
            raise Denied("The system refuses.")
        put(path, *rest, **named)

    monkeypatch.setattr(committed, "put", refused)
    with pytest.raises(Denied, match="The system refuses"):
        await adapter.forget(ForgetRequest(scope=ACME, handles=tuple(handles[:3])))
    assert {one.name: one.read_bytes() for one in (tmp_path / "memory").iterdir()} == before
    assert len(await every(adapter)) == 4


@pytest.mark.parametrize("gone", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
async def test_of_equal_observations_each_keeps_what_is_known_of_it(
    opened: Opened, gone: tuple[int, ...]
) -> None:
    adapter = await opened(McpMemoryAdapter)
    handles = [await write(adapter, "The same.", tags=(f"t{n}",), title="hub") for n in range(3)]
    forget = ForgetRequest(scope=ACME, handles=tuple(handles[n] for n in gone))
    assert (await adapter.forget(forget)).missing == ()
    left = [one.tags for one in (await every(adapter)).values() if one.text == "The same."]
    assert sorted(left) == [(f"t{n}",) for n in range(3) if n not in gone]


@pytest.mark.parametrize(
    "kind", [ClaudeMemoryAdapter, McpMemoryAdapter, HermesAdapter, LettaAdapter]
)
async def test_what_another_process_writes_during_a_read_is_shown_with_its_owner(
    opened: Opened, kind: type[Any]
) -> None:
    other, written = await opened(kind), list[RecordHandle]()

    class Reading(kind):  # type: ignore[misc]
        def parse_all(self, reader: FileReader) -> Iterable[tuple[Path, ParsedFile]]:
            if not written:
                written.append(asyncio.run(write(other, "Ana sleeps at noon.", scope=ANA)))
            found: Iterable[tuple[Path, ParsedFile]] = super().parse_all(reader)
            return found

    reading = await opened(Reading)
    assert not (await reading.browse(BrowseRequest(scope=BEN))).records
    assert await reading.get(written[0], ANA)


async def test_a_read_during_a_change_does_not_bring_the_old_owners_back(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Racing(HermesAdapter):
        reads: Thread | None = None

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.has_read, self.is_kept = Event(), Event()

        def keep_known(self, changes: Mapping[str, WrittenRecord | None]) -> None:
            if self.reads is not None or not self._known:
                super().keep_known(changes)
                return
            (self._context.data_dir / "known.json").touch()
            self.reads = Thread(target=self._load)
            self.reads.start()
            while self.reads.is_alive() and not self.has_read.wait(0.01):
                pass
            super().keep_known(changes)
            self.is_kept.set()
            self.reads.join()

        def read_slowly(self) -> dict[str, WrittenRecord]:
            known = KnownFile(self._context.data_dir, WrittenRecord, "the memories").read()
            if current_thread() is self.reads:
                self.has_read.set()
                self.is_kept.wait()
            return known

    adapter = await opened(Racing)
    assert isinstance(adapter, Racing)
    monkeypatch.setattr(adapter._known_file, "read", adapter.read_slowly)
    old = await write(adapter, "Ana sleeps at noon.", scope=ANA)
    request = CorrectRequest(scope=ANA, handle=old, text="Ana sleeps at one.")
    new = (await adapter.correct(request)).handle
    assert await adapter.get(new, ANA)
    assert await adapter.get(new, BEN) is None
