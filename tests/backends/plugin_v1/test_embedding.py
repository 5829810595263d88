"""A plugin that lists `embedding` is given vectors of the binding's model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from memtui.contract import CorrectRequest, ForgetRequest, QueryRequest, Unsupported, WriteRequest
from tests.loopback import DIMENSIONS, Embeddings

from .conftest import SCOPE, SOURCE, Open, Serve, Server
from .servers.loopback import Answer, Request, talk
from .servers.reference import Reference, error


def note(content: str) -> WriteRequest:
    return WriteRequest(scope=SCOPE, source=SOURCE, content=content)


def ask(query: str, **fields: Any) -> QueryRequest:
    return QueryRequest(scope=SCOPE, query=query, **fields)


@pytest.fixture
def model() -> Iterator[Embeddings]:
    opened = Embeddings()
    yield opened
    opened.stop()


async def test_writes_and_searches_have_vectors(
    reference: Server, open_plugin: Open, model: Embeddings
) -> None:
    server, url = reference
    adapter = await open_plugin(url, embedding=model.embedding)
    assert adapter.capabilities.semantic
    reply = await adapter.write(note("We deploy from release"))
    assert (reply.lacking, reply.usage[1].embedding_tokens) == ("", 1)
    await adapter.write(note("Tea is in the kitchen"))
    [deploy, _] = sorted(server.rows.values(), key=lambda row: row["content"], reverse=True)
    assert len(deploy["embedding"]) == DIMENSIONS
    # The words of a question, of which the reference wants all, are not all there.
    found = (await adapter.query(ask("release trains", top_k=1))).snippets
    assert [one.text for one in found] == ["We deploy from release"]
    assert found[0].score is not None
    before = deploy["embedding"]
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=reply.records[0], text="Kettles boil"))
    assert server.rows[deploy["id"]]["embedding"] not in (None, before)
    state = await adapter.embed(0)
    assert (state.embedding.model, state.embedding.is_done) == (model.embedding, True)


async def test_a_memory_without_a_vector_is_still_found_by_words(
    reference: Server, open_plugin: Open, model: Embeddings
) -> None:
    _, url = reference
    plain = await open_plugin(url)
    assert not plain.capabilities.semantic
    with pytest.raises(Unsupported, match="no embedding model"):
        await plain.embed(0)
    await plain.write(note("Written before there was a model"))
    adapter = await open_plugin(url, embedding=model.embedding)
    await adapter.write(note("Written with it"))
    found = (await adapter.query(ask("written model"))).snippets
    assert {one.text for one in found} == {
        "Written before there was a model", "Written with it",
    }  # fmt: skip


async def test_a_model_that_is_away_stops_no_write_and_no_query(
    reference: Server, open_plugin: Open, model: Embeddings
) -> None:
    server, url = reference
    adapter = await open_plugin(url, embedding=model.embedding)
    model.refusals += [503] * 3
    reply = await adapter.write(note("We deploy from release"))
    assert reply.lacking.startswith("It has no vector: The embedding server 127.0.0.1")
    assert [row["embedding"] for row in server.rows.values()] == [None]
    bundle, stages = await adapter._query(ask("deploy"))
    assert [one.text for one in bundle.snippets] == ["We deploy from release"]
    assert any("It has no vector" in one.detail for one in stages)
    assert "fails: The embedding server" in (await adapter.health()).message
    missing = await open_plugin(url, embedding=model.embedding, embedding_secret="NONE")
    reply = await missing.write(note("And this"))
    assert "There is no secret NONE" in reply.lacking
    assert not missing.capabilities.semantic
    assert len(server.rows) == 2


@pytest.mark.parametrize("status", [400, 500])
async def test_a_vector_of_another_length_loses_no_write_and_doubles_none(
    open_plugin: Open, model: Embeddings, serving: Serve, status: int
) -> None:
    server = Reference()
    posts: list[bool] = []

    def narrow(request: Request) -> Answer:
        body = request.json() if request.method == "POST" else {}
        if request.path.endswith("/memories"):
            posts.append("embedding" in body)
        if body.get("embedding"):
            return error(status, "internal", "ERROR: expected 1536 dimensions, not 256")
        return server(request)

    url = await serving(talk(narrow))
    adapter = await open_plugin(url, embedding=model.embedding)
    reply = await adapter.write(note("We deploy from release"))
    assert reply.lacking.startswith(f"The plugin took no vector of {DIMENSIONS} numbers (")
    assert "expected 1536 dimensions" in reply.lacking
    assert reply.lacking.endswith("so the record has none.")
    assert (len(server.rows), posts.count(True)) == (1, 1)
    found = await adapter.query(ask("deploy"))
    assert [one.text for one in found.snippets] == ["We deploy from release"]


@pytest.mark.parametrize("capabilities", [["embedding", "fts", "propagation"], ["embedding"]])
async def test_a_search_by_vector_that_fails_leaves_what_the_words_found(
    open_plugin: Open, model: Embeddings, serving: Serve, monkeypatch: pytest.MonkeyPatch,
    capabilities: list[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("tests.backends.plugin_v1.servers.reference.CAPABILITIES", capabilities)
    server = Reference()

    def busy(request: Request) -> Answer:
        body = request.json() if request.method == "POST" else {}
        if request.path.endswith("/search") and body.get("embedding"):
            return error(503, "internal", "The index is built at the moment.")
        return server(request)

    url = await serving(talk(busy))
    adapter = await open_plugin(url, embedding=model.embedding)
    await adapter.write(note("We deploy from release"))
    bundle, stages = await adapter._query(ask("deploy"))
    assert [one.text for one in bundle.snippets] == ["We deploy from release"]
    assert any("did not search by the query's vector" in one.detail for one in stages)


async def test_an_undo_says_of_what_it_restored_that_it_has_no_vector(
    reference: Server, open_plugin: Open, model: Embeddings
) -> None:
    server, url = reference
    adapter = await open_plugin(url, embedding=model.embedding)
    [handle] = (await adapter.write(note("We deploy from release"))).records
    snapshots = await adapter.snapshot([handle], SCOPE)
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(handle,)))
    model.refusals += [503] * 3
    reply = await adapter.restore(snapshots, SCOPE)
    assert reply.lacking.startswith("It has no vector: The embedding server 127.0.0.1")
    assert [row["embedding"] for row in server.rows.values()] == [None]


async def test_a_plugin_that_lists_none_is_sent_none(
    reference: Server, open_plugin: Open, model: Embeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, url = reference
    monkeypatch.setattr(
        "tests.backends.plugin_v1.servers.reference.CAPABILITIES", ["fts", "propagation"]
    )
    adapter = await open_plugin(url, embedding=model.embedding)
    assert not adapter.capabilities.semantic
    assert (await adapter.write(note("We deploy from release"))).lacking == ""
    await adapter.query(ask("deploy"))
    assert (model.calls, [row["embedding"] for row in server.rows.values()]) == ([], [None])


async def test_no_text_goes_to_an_address_that_nobody_agreed_to(
    reference: Server, open_plugin: Open
) -> None:
    _, url = reference
    adapter = await open_plugin(url, embedding="openai:https://embeddings.invalid/v1#m")
    reply = await adapter.write(note("We deploy from release"))
    assert reply.lacking.startswith(
        "It has no vector: Nobody has agreed that texts of plugin go to https://embeddings.invalid;"
    )
    state = (await adapter.embed(0)).embedding
    assert (state.address, state.agreed) == ("https://embeddings.invalid", False)
