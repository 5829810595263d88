"""The adapter on the reference server: capabilities, writing, changing, namespaces."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    ForgetRequest,
    Invalid,
    NotFound,
    QueryRequest,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    Unsupported,
    WriteMode,
)

from .conftest import SCOPE, Open, Serve, Server, ask, fill, handle, note

UUID = "6f1c7e9e-3a51-4a53-9b5e-0a8f3a0c1d11"
LATER = datetime(2099, 1, 1, tzinfo=UTC)


async def test_capabilities_come_from_health(reference: Server, open_plugin: Open) -> None:
    adapter = await open_plugin(reference[1])
    can = adapter.capabilities
    offered = {
        "expiry",
        "pin",
        "full text",
        "given embeddings",
        "restore",
        "keeps ids",
        "correction",
    }
    assert offered <= set(can.words())
    assert not can.semantic, "the binding has no model"
    health = await adapter.health()
    assert (health.status, health.version) == ("ok", "1.0.0")


async def test_open_while_down(open_plugin: Open, serving: Serve) -> None:
    adapter = await open_plugin("http://127.0.0.1:9", timeout_seconds=1)
    health = await adapter.health()
    assert health.status == "down"
    assert "cannot be reached" in health.message
    for call in (note(adapter, "x"), ask(adapter, "x")):
        with pytest.raises(Unavailable) as caught:
            await call
        assert not caught.value.sent


async def test_a_503_is_degraded_and_its_capabilities_come_later(
    reference: Server, open_plugin: Open
) -> None:
    server, url = reference
    server.is_down = True
    adapter = await open_plugin(url)
    health = await adapter.health()
    assert health.status == "degraded"
    assert "database is starting" in health.message
    assert not adapter.capabilities.pin
    server.is_down = False
    await ask(adapter, "x")
    assert adapter.capabilities.pin


async def test_capabilities_are_remembered(reference: Server, open_plugin: Open) -> None:
    await open_plugin(reference[1])
    again = await open_plugin("http://127.0.0.1:9", timeout_seconds=1)
    assert again.capabilities.full_text


async def test_old_capabilities_are_asked_for_again(
    reference: Server, open_plugin: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = await open_plugin(reference[1], refresh_seconds=0)
    monkeypatch.setattr("tests.backends.plugin_v1.servers.reference.CAPABILITIES", ["fts"])
    await ask(adapter, "x")
    assert not adapter.capabilities.pin


async def test_a_namespace_is_made_on_its_first_write_only(
    reference: Server, open_plugin: Open
) -> None:
    server, url = reference
    adapter = await open_plugin(url)
    await note(adapter, "First.")
    server.namespaces["workspace:web"]["metadata"] = {"owner": "ana"}
    await note(adapter, "Second.")
    again = await open_plugin(url, data="elsewhere")
    await note(again, "Third.")
    assert server.namespaces["workspace:web"]["metadata"] == {"owner": "ana"}
    assert [call for call in server.calls if call[0] == "PUT"] == [
        ("PUT", "/v1/namespaces/workspace%3Aweb")
    ]


async def test_a_hundred_parallel_writes(reference: Server, open_plugin: Open) -> None:
    server, url = reference
    adapter = await open_plugin(url)
    texts = [f"parallel memory {number}" for number in range(100)]
    handles = await asyncio.gather(*(note(adapter, text) for text in texts))
    assert len(set(handles)) == 100
    assert sorted(row["content"] for row in server.rows.values()) == sorted(texts)
    assert sum(method == "PUT" for method, _ in server.calls) == 1


async def test_what_goes_over_the_wire(reference: Server, open_plugin: Open) -> None:
    server, url = reference
    adapter = await open_plugin(url)
    written = await note(
        adapter, "Body.", kind="guidance", title="T", tags=("a",), topic="t", pinned=True,
        expires_at=LATER, created_by="user:ana", embedding=(0.5, 1.0),
        metadata={"n": 1, "propagation": {"trace": "t-1"}},
    )  # fmt: skip
    row = next(iter(server.rows.values()))
    assert (row["kind"], row["source"], row["pin"]) == ("fact", "user", True)
    assert row["embedding"] == [0.5, 1.0]
    assert datetime.fromisoformat(row["expires_at"]) == LATER
    assert row["propagation"]["trace"] == "t-1"
    assert row["propagation"]["memtui"]["tags"] == ["a"]
    record = await adapter.get(written, SCOPE)
    assert record is not None
    assert record.metadata == {"n": 1, "propagation": {"trace": "t-1"}}
    assert (record.kind, record.created_by) == ("guidance", "user:ana")


async def test_semantic_search(reference: Server, open_plugin: Open) -> None:
    adapter = await open_plugin(reference[1])
    await note(adapter, "North.", embedding=(0.0, 1.0))
    await note(adapter, "East.", embedding=(1.0, 0.0))
    assert await ask(adapter, "ignored", embedding=(0.1, 0.9)) == ["North.", "East."]


async def test_a_correction_keeps_what_others_keep(reference: Server, open_plugin: Open) -> None:
    server, url = reference
    end = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    await fill(server, 1, kind="checkpoint", source="runtime", pin=True, expires_at=end,
               propagation={"trace": {"id": 7}})  # fmt: skip
    adapter = await open_plugin(url)
    identity, before = next(iter(server.rows.items()))
    record = await adapter.get(handle(f"workspace:web/{identity}"), SCOPE)
    assert record is not None
    reply = await adapter.correct(
        CorrectRequest(scope=SCOPE, handle=record.handle, text="Better.", revision=record.revision)
    )
    assert reply.handle == record.handle
    after = server.rows[identity]
    assert after["content"] == "Better."
    same = ("kind", "source", "pin", "expires_at", "created", "namespace")
    assert [after[name] for name in same] == [before[name] for name in same]
    assert after["propagation"]["trace"] == {"id": 7}


async def test_an_undone_correction_leaves_no_trace(reference: Server, open_plugin: Open) -> None:
    server, url = reference
    await fill(server, 1, propagation={"trace": 1})
    adapter = await open_plugin(url)
    identity, row = next(iter(server.rows.items()))
    before = {name: row[name] for name in ("content", "kind", "source", "pin", "created")}
    one = handle(f"workspace:web/{identity}")
    taken = await adapter.snapshot([one], SCOPE)
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=one, text="Worse.", pinned=True))
    await adapter.restore(taken, SCOPE)
    assert {name: server.rows[identity][name] for name in before} == before
    assert server.rows[identity]["propagation"]["trace"] == 1


async def test_an_id_does_not_take_a_record_from_another_namespace(
    reference: Server, open_plugin: Open
) -> None:
    server, url = reference
    adapter = await open_plugin(url)
    await note(adapter, "In web.", record_id=UUID)
    other = Scope(company_id="acme", project_id="b")
    with pytest.raises(Conflict):
        await note(adapter, "In b.", record_id=UUID, scope=other, mode=WriteMode.UPSERT)
    with pytest.raises(Conflict):
        await note(adapter, "Another in web.", record_id=UUID)
    await note(adapter, "In web.", record_id=UUID)
    assert [row["content"] for row in server.rows.values()] == ["In web."]


async def test_any_id_can_be_given(reference: Server, open_plugin: Open) -> None:
    adapter = await open_plugin(reference[1])
    for given in ("notes/a.md", "facts.md#deploy", "日本", "other:ns/x"):
        first = await note(adapter, f"At {given}.", record_id=given)
        again = await note(adapter, f"At {given}!", record_id=given, mode=WriteMode.UPSERT)
        assert first == again
        record = await adapter.get(first, SCOPE)
        assert record is not None
        assert record.text == f"At {given}!"
        if given != "other:ns/x":
            assert first.provider_record_id == given


async def test_expired_memories_are_gone(reference: Server, open_plugin: Open) -> None:
    adapter = await open_plugin(reference[1])
    written = await note(adapter, "Stale.", expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert await adapter.get(written, SCOPE) is None
    assert (await adapter.browse(BrowseRequest(scope=SCOPE))).records == ()


async def test_forget_in_bulk(reference: Server, open_plugin: Open) -> None:
    server, url = reference
    ids = await fill(server, 150)
    adapter = await open_plugin(url)
    handles = tuple(handle(f"workspace:web/{one}") for one in ids)
    reply = await adapter.forget(ForgetRequest(scope=SCOPE, handles=handles))
    assert reply.missing == ()
    assert server.rows == {}


async def test_a_namespace_can_be_made_changed_and_deleted(
    reference: Server, open_plugin: Open
) -> None:
    adapter = await open_plugin(reference[1])
    made = await adapter.create_namespace("plugin:x", metadata={"a": 1})
    assert (made.kind, made.metadata) == ("custom", {"a": 1})
    changed = await adapter.patch_namespace("plugin:x", expires_at=LATER)
    assert changed.expires_at == LATER
    listed = {one.name: one for one in await adapter.namespaces()}
    assert listed["plugin:x"].expires_at == LATER
    await adapter.delete_namespace("plugin:x")
    assert "plugin:x" not in {one.name for one in await adapter.namespaces()}
    with pytest.raises(NotFound):
        await adapter.delete_namespace("plugin:x")
    for name in ("No Such", "x", "a:" + "b" * 300):
        with pytest.raises(Invalid):
            await adapter.create_namespace(name)
    with pytest.raises(Invalid):
        await adapter.patch_namespace("plugin:x")
    reader = await open_plugin(reference[1], read_only=True)
    with pytest.raises(Unsupported):
        await reader.delete_namespace("workspace:web")


async def test_usage_is_unpriced_unless_free(reference: Server, open_plugin: Open) -> None:
    adapter = await open_plugin(reference[1])
    free = await open_plugin(reference[1], cost="free")
    request = QueryRequest(scope=SCOPE, query="x")
    assert (await adapter.query(request)).usage[0].cost_usd is None
    assert (await free.query(request)).usage[0].cost_usd == 0


async def test_notes_that_are_broken_are_begun_anew(
    reference: Server, open_plugin: Open, tmp_path: Any
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "plugin.sqlite3").write_bytes(b"no database" * 1000)
    adapter = await open_plugin(reference[1])
    written = await note(adapter, "Kept.")
    assert await adapter.get(written, SCOPE) is not None
    assert ((tmp_path / "data" / "plugin.sqlite3").stat().st_mode & 0o777) == 0o600


async def test_a_correction_leaves_when_and_by_whom_a_memory_was_made(
    reference: Server, open_plugin: Open
) -> None:
    server, url = reference
    names = await fill(server, 2, source="user", pin=True)
    adapter = await open_plugin(url)
    before = [await adapter.get(handle(f"workspace:web/{name}"), SCOPE) for name in names]
    assert before[0] is not None
    assert before[0].created_at is not None
    for row in server.rows.values():  # an upsert is not bound to keep it
        row["created"] += timedelta(days=1)
    later = [await adapter.get(handle(f"workspace:web/{name}"), SCOPE) for name in names]
    for change in ({"tags": ("a",)}, {"text": "New."}):
        request = {"scope": SCOPE, "handle": handle(f"workspace:web/{names[1]}"), **change}
        await adapter.correct(CorrectRequest.model_validate(request))
        for row in server.rows.values():
            row["created"] += timedelta(days=1)
        after = await adapter.get(handle(f"workspace:web/{names[1]}"), SCOPE)
        assert after is not None
        assert later[1] is not None
        kept = ("created_at", "created_by", "pinned", "kind", "scope")
        assert [getattr(after, name) for name in kept] == [getattr(later[1], name) for name in kept]
    untouched = await adapter.get(handle(f"workspace:web/{names[0]}"), SCOPE)
    assert untouched is not None
    assert (untouched.text, untouched.tags) == (before[0].text, ())


@pytest.mark.parametrize(
    ("source", "created_by", "author"),
    [
        (SourceKind.ISSUE_COMMENT, "user:ana", "user"),
        (SourceKind.MANUAL_NOTE, "agent:x", "agent"),
        (SourceKind.MANUAL_NOTE, "runtime", "runtime"), (SourceKind.MANUAL_NOTE, None, "user"),
        (SourceKind.MANUAL_NOTE, "service:x", "user"), (SourceKind.ACTIVITY, None, "runtime"),
        (SourceKind.RUN, None, "agent"), (SourceKind.ISSUE_COMMENT, "token:x", "agent"),
        (None, None, "runtime"),
    ],
)  # fmt: skip
async def test_other_clients_see_who_wrote_and_of_what_kind(
    reference: Server, open_plugin: Open, source: SourceKind | None, created_by: str | None,
    author: str,
) -> None:  # fmt: skip
    server, url = reference
    adapter = await open_plugin(url)
    given = {"run_id": "r", "issue_id": "I", "comment_id": "c", "activity_id": "a"}
    known = source and SourceRef(kind=source, company_id="acme", **given)
    kinds = ("fact", "summary", "checkpoint", "note")
    for kind in kinds:
        await note(adapter, f"Of {kind}.", kind=kind, source=known, created_by=created_by)
    rows = [(row["content"], row["kind"], row["source"]) for row in server.rows.values()]
    assert rows == [
        (f"Of {kind}.", kind if kind in kinds[:3] else "fact", author) for kind in kinds
    ]
