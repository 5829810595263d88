"""A correction where the list takes no fact more: it works, and the old fact is never lost."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from memtui.backends.facts_http import FactsHttpAdapter
from memtui.config import Paths, Settings
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Filter,
    ForgetRequest,
    Invalid,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceRef,
    Unavailable,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, open_service
from tests.backends.facts_http.server import Server, raw
from tests.backends.facts_http.test_facts_http import ANA, add, context, texts

FULL = raw(b"{}", "422 Full")
BROKEN = raw(b"{}", "500 Oops")


@pytest.fixture
async def facts(server: Server) -> AsyncIterator[FactsHttpAdapter]:
    adapter = await FactsHttpAdapter.open(context(server.url, timeout_seconds=5))
    yield adapter
    await adapter.close()


@pytest.fixture
async def old(facts: FactsHttpAdapter, server: Server) -> RecordHandle:
    """One of two facts that fill the list."""
    await add(facts, "Other.")
    handle = await add(facts, "Old.")
    server.most = 2
    return handle


def change(handle: RecordHandle) -> CorrectRequest:
    return CorrectRequest(scope=ANA, handle=handle, text="New.")


async def test_a_full_list_is_corrected(facts: FactsHttpAdapter, old: RecordHandle) -> None:
    reply = await facts.correct(change(old))
    assert reply.handle != old
    assert await texts(facts) == ["New.", "Other."]


async def test_a_refused_text_leaves_all_as_it_was(
    facts: FactsHttpAdapter, server: Server, old: RecordHandle
) -> None:
    server.refused.add("New.")
    server.most = 3
    with pytest.raises(Invalid) as caught:
        await facts.correct(change(old))
    assert caught.value.moved is None
    assert await facts.get(old, ANA) is not None
    assert await texts(facts) == ["Old.", "Other."]


async def test_what_a_full_list_refuses_is_put_back(
    facts: FactsHttpAdapter, server: Server, old: RecordHandle
) -> None:
    server.refused.add("New.")
    with pytest.raises(Invalid, match="The old text is still stored, as user:id/") as caught:
        await facts.correct(change(old))
    assert await texts(facts) == ["Old.", "Other."]
    assert caught.value.moved is not None
    kept = await facts.get(caught.value.moved, ANA)
    assert kept is not None
    assert kept.text == "Old."


async def test_what_breaks_off_in_a_full_list(
    facts: FactsHttpAdapter, server: Server, old: RecordHandle
) -> None:
    server.rude["POST"] = [FULL, FULL, BROKEN, BROKEN]
    with pytest.raises(Unavailable, match="The old text is still stored") as caught:
        await facts.correct(change(old))
    assert await texts(facts) == ["Old.", "Other."]
    assert caught.value.moved is not None
    server.rude["DELETE"] = [BROKEN]
    with pytest.raises(Unavailable):
        await facts.correct(change(caught.value.moved))
    assert await texts(facts) == ["Old.", "Other."]
    server.rude["POST"] = [FULL, FULL] + 4 * [BROKEN]
    with pytest.raises(Unavailable, match=r"Write the old one again: Old\.") as lost:
        await facts.correct(change(caught.value.moved))
    assert lost.value.sent


async def test_history_and_undo_follow_the_fact(
    server: Server, paths: Paths, settings: Settings, caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("TOK", "t0ken")
    service = await open_service(paths, settings)
    config = {"url": server.url, "token_secret": "TOK", "subject_id": "ana"}
    try:
        await service.bindings.add(caller, "hosted", "facts-http", config)
        await service.bindings.set_target(caller, "company", "local", "hosted")
        await _go_through(service, server, caller)
    finally:
        await service.close()


async def _go_through(service: MemoryService, server: Server, caller: Caller) -> None:
    ana = Scope(company_id="local", subject_id="ana")
    source = SourceRef(kind="manual_note", company_id="local")

    async def held() -> list[str]:
        page = await service.browse(caller, BrowseRequest(scope=ana))
        return [record.text for record in page.records]

    write = WriteRequest(scope=ana, source=source, content="One.", kind="fact")
    first = (await service.write(caller, write)).handles[0]
    server.most = 1
    await service.correct(caller, CorrectRequest(scope=ana, handle=first, text="Two."))
    assert await held() == ["Two."]
    await service.undo(caller)
    assert await held() == ["One."]
    server.refused.add("Three.")
    with pytest.raises(Invalid):
        await service.correct(caller, CorrectRequest(scope=ana, handle=first, text="Three."))
    assert (await service.get(caller, first, ana)).record.text == "One."
    story = await service.history(caller, first, ana)
    assert [one.operation.operation_type for one in story.changes] == ["undo", "correct", "write"]
    await service.forget(caller, ForgetRequest(scope=ana, handles=(first,)))
    for expected in (["One."], []):
        await service.undo(caller)
        assert await held() == expected
    [undone] = (await service.log.page(caller, Filter(operation_type="undo"), limit=1)).operations
    await service.undo(caller, undone.operation_id)
    [snippet] = (await service.query(caller, QueryRequest(scope=ana, query="one"))).snippets
    assert (snippet.text, snippet.score) == ("One.", 1)
