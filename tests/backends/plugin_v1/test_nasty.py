"""Every misbehaviour ends in one sentence of the contract, in time, and the next call works."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection

import pytest

from memtui.backends.plugin_v1 import PluginAdapter
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    ForgetRequest,
    Invalid,
    MemtuiError,
    QueryRequest,
    RecordHandle,
    Unavailable,
)

from .conftest import SCOPE, Open, Serve, note
from .servers.nasty import ODD, ROW_TRICKS, TRICKS, Nasty, answers

QUERY = QueryRequest(scope=SCOPE, query="anything")
MEMORIES = "/v1/namespaces/workspace%3Aweb/memories"
MOST_SECONDS = 30
"""Far above the timeout of 0.8 s a request that these tests set: only a hang reaches it."""
WAITED_FOR = tuple(name for name in TRICKS if name.startswith(("never", "drips")))


async def open_for(name: str, url: str, open_plugin: Open, **config: float) -> PluginAdapter:
    """Open an adapter that does not wait long where no answer comes."""
    config["timeout_seconds"] = 0.8 if name in WAITED_FOR else 10
    return await open_plugin(url, data=name, max_reply_mb=5, **config)


def each(names: Collection[str]) -> pytest.MarkDecorator:
    """One test for each, but one for all that wait until memtui gives up, which do so at once."""
    groups = [(name,) for name in names if name not in WAITED_FOR]
    return pytest.mark.parametrize("names", [*groups, WAITED_FOR], ids=", ".join)


def one_sentence(error: MemtuiError) -> None:
    text = str(error)
    assert text.endswith("."), text
    assert "\n" not in text
    assert len(text) < 600


@each(TRICKS)
async def test_a_search_that_fails(
    names: tuple[str, ...], serving: Serve, open_plugin: Open
) -> None:
    await asyncio.gather(*(_a_search_that_fails(name, serving, open_plugin) for name in names))


async def _a_search_that_fails(name: str, serving: Serve, open_plugin: Open) -> None:
    nasty = Nasty(TRICKS[name])
    adapter = await open_for(name, await serving(nasty), open_plugin, search_seconds=1)
    handle = RecordHandle(provider_key=adapter.key, provider_record_id="workspace:web/1")
    async with asyncio.timeout(MOST_SECONDS):
        failed = await asyncio.gather(  # at once, as some wait until they give up
            adapter.query(QUERY),
            adapter.get(handle, SCOPE),
            adapter.browse(BrowseRequest(scope=SCOPE)),
            adapter.snapshot([handle], SCOPE),
            adapter.correct(CorrectRequest(scope=SCOPE, handle=handle, text="x")),
            return_exceptions=True,
        )
        for error in failed:
            assert isinstance(error, MemtuiError), error
            one_sentence(error)
        nasty.trick = None
        assert (await adapter.query(QUERY)).snippets == (), "the next call does not work"


@each(TRICKS)
async def test_a_write_that_fails_says_whether_it_was_sent(
    names: tuple[str, ...], serving: Serve, open_plugin: Open
) -> None:
    await asyncio.gather(*(_a_write_that_fails(name, serving, open_plugin) for name in names))


async def _a_write_that_fails(name: str, serving: Serve, open_plugin: Open) -> None:
    nasty = Nasty(TRICKS[name], path=MEMORIES)
    adapter = await open_for(name, await serving(nasty), open_plugin)
    async with asyncio.timeout(MOST_SECONDS):
        with pytest.raises(MemtuiError) as caught:
            await note(adapter, "Never stored.")
        one_sentence(caught.value)
        refused = name in {"429", "418", "redirect", "redirect to itself"}
        assert getattr(caught.value, "sent", False) is not refused
        nasty.trick = None
        handle = await note(adapter, "Stored now.")
        assert await adapter.get(handle, SCOPE) is not None


@each(sorted(set(TRICKS) - ROW_TRICKS))
async def test_a_health_that_fails(
    names: tuple[str, ...], serving: Serve, open_plugin: Open
) -> None:
    await asyncio.gather(*(_a_health_that_fails(name, serving, open_plugin) for name in names))


async def _a_health_that_fails(name: str, serving: Serve, open_plugin: Open) -> None:
    nasty = Nasty(TRICKS[name], path="/v1/health")
    adapter = await open_for(name, await serving(nasty), open_plugin)
    async with asyncio.timeout(MOST_SECONDS):
        health = await adapter.health()
        assert health.status == "down"
        assert health.message.endswith(".")
        with pytest.raises(Unavailable) as caught:
            await adapter.query(QUERY)
        assert not caught.value.sent
        nasty.trick = None
        assert (await adapter.health()).status == "ok"
        assert adapter.capabilities.full_text, "the capabilities were not refreshed"


@each(TRICKS)
async def test_a_forget_that_fails(
    names: tuple[str, ...], serving: Serve, open_plugin: Open
) -> None:
    await asyncio.gather(*(_a_forget_that_fails(name, serving, open_plugin) for name in names))


async def _a_forget_that_fails(name: str, serving: Serve, open_plugin: Open) -> None:
    nasty = Nasty(TRICKS[name], path="/v1/memories")
    adapter = await open_for(name, await serving(nasty), open_plugin)
    async with asyncio.timeout(MOST_SECONDS):
        handle = await note(adapter, "Not forgotten yet.")
        request = ForgetRequest(scope=SCOPE, handles=(handle,))
        try:  # any 2xx is an answer, as it has no body that could be read
            await adapter.forget(request)
        except MemtuiError as error:
            one_sentence(error)
        assert await adapter.get(handle, SCOPE) is not None, "what is there is said to be gone"
        nasty.trick = None
        assert (await adapter.forget(request)).missing == ()


@pytest.mark.parametrize("name", ODD)
async def test_an_odd_answer_is_coped_with(name: str, serving: Serve, open_plugin: Open) -> None:
    adapter = await open_plugin(await serving(Nasty(answers(200, ODD[name]))))
    bundle = await adapter.query(QUERY)
    assert len(bundle.snippets) == ("list" not in name)
    for snippet in bundle.snippets:
        json.loads(snippet.model_dump_json())
        taken = await adapter.snapshot([snippet.handle], SCOPE)
        json.loads(taken[0].model_dump_json())
    explained = await adapter.explain(QUERY)
    if name == "one row of many is readable":
        assert "3 unreadable" in explained.stages[-1].detail


@pytest.mark.parametrize("name", ["resets", "empty", "truncated JSON", "500 text", "gzip bomb"])
async def test_a_spoilt_answer_to_a_write_is_looked_into(
    name: str, serving: Serve, open_plugin: Open
) -> None:
    nasty = Nasty(path=MEMORIES, acts=True)
    adapter = await open_plugin(await serving(nasty))
    await note(adapter, "Makes the namespace.")
    nasty.trick = TRICKS[name]
    handle = await note(adapter, "Stored, whatever the answer says.")
    record = await adapter.get(handle, SCOPE)
    assert record is not None
    assert record.text == "Stored, whatever the answer says."
    assert len(nasty.reference.rows) == 2


async def test_a_spoilt_answer_to_a_correction_is_looked_into(
    serving: Serve, open_plugin: Open
) -> None:
    nasty = Nasty(path=MEMORIES, acts=True)
    adapter = await open_plugin(await serving(nasty))
    handle = await note(adapter, "Old wording.")
    nasty.trick = TRICKS["resets"]
    request = CorrectRequest(scope=SCOPE, handle=handle, text="New wording.")
    assert (await adapter.correct(request)).handle == handle
    nasty.acts = False
    with pytest.raises(Unavailable) as caught:
        await adapter.correct(request.model_copy(update={"text": "Newest wording."}))
    assert caught.value.sent


async def test_a_nul_is_the_callers_mistake(serving: Serve, open_plugin: Open) -> None:
    adapter = await open_plugin(await serving(Nasty()))
    with pytest.raises(Invalid):
        await note(adapter, "a\0b")
    with pytest.raises(Invalid):
        await note(adapter, "fine", metadata={"inner": ["\0"]})
    await note(adapter, r"a backslash and u0000: \u0000 \\u0000")


async def test_what_is_left_out_of_an_answer_is_counted(serving: Serve, open_plugin: Open) -> None:
    row = {"namespace": "workspace:web", "content": "x", "kind": "fact", "source": "user"}
    rows = [
        row | {"id": "1"}, row | {"id": "2", "expires_at": "2001-01-01T00:00:00Z"}, 7,
        row | {"id": "3", "namespace": "workspace:api"}, row | {"id": "4", "content": "y"}, None,
        row | {"id": "5", "namespace": "org:other"}, row | {"id": "6", "expires_at": 1}, 9,
        row | {"id": "7", "namespace": "team:b"},
    ]  # fmt: skip
    adapter = await open_plugin(await serving(Nasty(answers(200, {"memories": rows}))))
    bundle = await adapter.query(QUERY)
    assert {one.handle.provider_record_id for one in bundle.snippets} == {
        "workspace:web/1", "workspace:web/4",
    }  # fmt: skip
    stages = {one.name: one.detail for one in (await adapter.explain(QUERY)).stages}
    assert "2 expired, 3 of namespaces" in stages["dropped"]
    assert "3 unreadable" in stages["dropped"]
