"""The adapter on a third-party minimal plugin: it promises less, and keeps what it promises."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    ForgetRequest,
    NotFound,
    QueryRequest,
    Scope,
    Unsupported,
)

from .conftest import SCOPE, Open, Serve, handle, note
from .servers.loopback import talk
from .servers.minimal import Limited, Minimal

LATER = datetime(2099, 1, 1, tzinfo=UTC)


async def test_a_plugin_that_promises_nothing(serving: Serve, open_plugin: Open) -> None:
    server = Minimal()
    adapter = await open_plugin(await serving(talk(server)))
    written = await note(adapter, "The only text.")
    assert written.provider_record_id == "workspace:web/flat-1"
    can = adapter.capabilities
    assert not set(can.words()) & {"keeps ids", "restore", "pin", "expiry", "full text"}
    record = await adapter.get(written, SCOPE)
    assert record is not None
    assert (record.text, record.source, record.created_at) == ("The only text.", None, None)
    with pytest.raises(Unsupported, match="expiry"):
        await note(adapter, "Ends.", expires_at=LATER)
    with pytest.raises(Unsupported, match="pins"):
        await note(adapter, "Pinned.", pinned=True)
    with pytest.raises(Unsupported, match="topic"):
        await adapter.correct(CorrectRequest(scope=SCOPE, handle=written, topic="t"))
    assert len(server.rows) == 1


async def test_a_correction_is_a_new_memory_in_place_of_the_old(
    serving: Serve, open_plugin: Open
) -> None:
    server = Minimal("propagation")
    adapter = await open_plugin(await serving(talk(server)))
    written = await note(adapter, "Old text.", tags=("a",))
    reply = await adapter.correct(CorrectRequest(scope=SCOPE, handle=written, text="New text."))
    assert reply.handle != written
    assert [(row["id"], row["content"]) for row in server.rows] == [("flat-2", "New text.")]
    record = await adapter.get(reply.handle, SCOPE)
    assert record is not None
    assert record.tags == ("a",)
    assert await adapter.get(written, SCOPE) is None


async def test_an_expiry_is_carried_and_kept_here(serving: Serve, open_plugin: Open) -> None:
    server = Minimal("propagation")
    adapter = await open_plugin(await serving(talk(server)))
    await note(adapter, "Shows what the plugin keeps.")
    await note(adapter, "Fresh.", expires_at=LATER)
    await note(adapter, "Stale.", expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    page = await adapter.browse(BrowseRequest(scope=SCOPE, sort="title"))
    texts = {record.text: record.expires_at for record in page.records}
    assert texts == {"Shows what the plugin keeps.": None, "Fresh.": LATER}
    explained = await adapter.explain(QueryRequest(scope=SCOPE, query="stale"))
    assert "1 expired" in explained.stages[-1].detail


async def test_a_list_without_limit_is_whole(serving: Serve, open_plugin: Open) -> None:
    server = Minimal("propagation")
    for number in range(250):
        server._write("workspace:web", {"content": f"row {number}", "kind": "fact"})
    adapter = await open_plugin(await serving(talk(server)))
    page = await adapter.browse(BrowseRequest(scope=SCOPE, limit=1000))
    assert (len(page.records), page.at_least) == (250, False)
    bundle = await adapter.query(QueryRequest(scope=SCOPE, query="row", top_k=7))
    assert len(bundle.snippets) == 7
    assert bundle.capped


async def test_a_strange_kind_may_hide_more(serving: Serve, open_plugin: Open) -> None:
    server = Limited("propagation")
    for number in range(100):
        server._write("workspace:web", {"content": f"row {number}", "kind": "dream"})
    adapter = await open_plugin(await serving(talk(server)))
    page = await adapter.browse(BrowseRequest(scope=SCOPE, limit=1000))
    assert (len(page.records), page.at_least) == (100, True)
    with pytest.raises(NotFound):
        await adapter.get(handle("workspace:web/flat-500"), SCOPE)


async def test_what_it_does_not_offer(serving: Serve, open_plugin: Open) -> None:
    adapter = await open_plugin(await serving(talk(Minimal())))
    with pytest.raises(Unsupported):
        await adapter.patch_namespace("workspace:web", metadata={"a": 1})
    written = await note(adapter, "Here.")
    request = ForgetRequest(scope=SCOPE, handles=(written,))
    assert (await adapter.forget(request)).missing == ()
    assert (await adapter.forget(request)).missing == (written,)


async def test_a_forged_handle_removes_nothing_of_another_namespace(
    serving: Serve, open_plugin: Open
) -> None:
    server = Minimal("propagation")
    adapter = await open_plugin(await serving(talk(server)))
    await note(adapter, "Of another.", scope=Scope(company_id="acme", project_id="b"))
    forged = handle("workspace:web/flat-1")
    reply = await adapter.forget(ForgetRequest(scope=SCOPE, handles=(forged,)))
    assert reply.missing == (forged,)
    assert len(server.rows) == 1
