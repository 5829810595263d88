"""What the wire has no call for, reached by searching: one record, all records, odd queries."""

from __future__ import annotations

import itertools

import pytest

from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Filter,
    ForgetRequest,
    NotFound,
    QueryRequest,
    Scope,
)

from .conftest import COMPANY, SCOPE, Open, Server, ask, fill, handle, note


@pytest.mark.parametrize("query", ["the", "日本", "mar", "x", "where is the marmoset kept"])
async def test_where_full_text_finds_nothing_the_newest_are_searched(
    query: str, reference: Server, open_plugin: Open
) -> None:
    url = reference[1]
    adapter = await open_plugin(url)
    text = "The marmoset of 日本 lives in box x."
    await note(adapter, text)
    assert await ask(adapter, query) == [text]
    strict = await open_plugin(url, data="strict", local_fallback=False)
    if query != "x":
        assert await ask(strict, query) == []
        stages = (await adapter.explain(QueryRequest(scope=SCOPE, query=query))).stages
        assert "local fallback" in [stage.name for stage in stages]


async def test_a_capped_reply_says_so(reference: Server, open_plugin: Open) -> None:
    server, url = reference
    await fill(server, 120)
    adapter = await open_plugin(url)
    bundle = await adapter.query(QueryRequest(scope=SCOPE, query="filler", top_k=1000))
    assert len(bundle.snippets) == 100
    assert bundle.capped


async def test_a_record_out_of_reach_is_not_called_gone(
    reference: Server, open_plugin: Open
) -> None:
    server, url = reference
    ids = await fill(server, 150)
    adapter = await open_plugin(url)
    with pytest.raises(NotFound, match="no lookup by id"):
        await adapter.get(handle(f"workspace:web/{ids[0]}"), SCOPE)
    assert await adapter.get(handle(f"workspace:web/{ids[-1]}"), SCOPE) is not None
    taken = await adapter.snapshot([handle(f"workspace:web/{ids[0]}")], SCOPE)
    assert taken[0].record is None
    with pytest.raises(Conflict, match="could not see"):
        await adapter.restore(taken, SCOPE)
    assert ids[0] in server.rows


async def test_a_record_seen_before_is_found_by_its_words(
    reference: Server, open_plugin: Open
) -> None:
    server, url = reference
    adapter = await open_plugin(url)
    written = await note(adapter, "The wombat keeps the staging passwords.")
    await fill(server, 150)
    again = await open_plugin(url)
    record = await again.get(written, SCOPE)
    assert record is not None
    assert record.text == "The wombat keeps the staging passwords."


async def test_another_kind_is_another_hundred(reference: Server, open_plugin: Open) -> None:
    server, url = reference
    old = (await fill(server, 1, kind="summary"))[0]
    await fill(server, 120)
    adapter = await open_plugin(url)
    assert await adapter.get(handle(f"workspace:web/{old}"), SCOPE) is not None


async def test_browse_reaches_past_a_hundred_and_says_at_least(
    reference: Server, open_plugin: Open
) -> None:
    server, url = reference
    animals = ["otter", "heron", "ibex", "lynx", "vole", "newt", "stoat", "raven", "toad", "carp"]
    for one, other in itertools.permutations(animals, 2):
        for place in ("harbour", "cellar", "tower"):
            await fill(server, 1, content=f"The {one} met the {other} in the {place}.")
    adapter = await open_plugin(url)
    found: list[str] = []
    cursor = None
    while True:
        page = await adapter.browse(
            BrowseRequest(scope=SCOPE, sort="-created_at", limit=60, cursor=cursor)
        )
        assert page.at_least
        found += [record.handle.provider_record_id for record in page.records]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(found) == len(set(found))
    assert set(found) == {f"workspace:web/{identity}" for identity in server.rows}
    small = await adapter.browse(BrowseRequest(scope=SCOPE.model_copy(update={"project_id": "b"})))
    assert (small.total, small.at_least) == (0, False)


async def test_everything_written_here_is_listed(reference: Server, open_plugin: Open) -> None:
    url = reference[1]
    adapter = await open_plugin(url)
    words = ["otter", "heron", "ibex", "lynx", "vole", "newt", "stoat", "raven", "toad", "carp"]
    texts = {f"{one} {other} {third}" for one in words for other in words for third in words[:4]}
    for text in sorted(texts):
        await note(adapter, text)
    page = await adapter.browse(BrowseRequest(scope=SCOPE, limit=1000))
    while page.unfinished:  # on a busy machine it stops for want of time
        page = await adapter.browse(BrowseRequest(scope=SCOPE, limit=1000))
    assert {record.text for record in page.records} == texts
    assert page.at_least


async def test_namespaces_are_counted_as_far_as_can_be_seen(
    reference: Server, open_plugin: Open
) -> None:
    server, url = reference
    await fill(server, 130)
    adapter = await open_plugin(url, namespaces=["workspace:web", "plugin:other"])
    await note(adapter, "For all.", scope=COMPANY)
    found = {one.name: one for one in await adapter.namespaces()}
    assert found["org:acme"].records == 1
    assert found["plugin:other"].records == 0
    assert found["workspace:web"].records is None
    assert found["workspace:web"].metadata == {"at_least": 100}


async def test_a_project_sees_the_companys_and_the_company_all(
    reference: Server, open_plugin: Open
) -> None:
    adapter = await open_plugin(reference[1])
    await note(adapter, "Lynx of the company.", scope=COMPANY)
    await note(adapter, "Lynx of the web.")
    await note(adapter, "Lynx of another.", scope=Scope(company_id="acme", project_id="b"))
    assert sorted(await ask(adapter, "lynx")) == ["Lynx of the company.", "Lynx of the web."]
    assert len(await ask(adapter, "lynx", scope=COMPANY)) == 3


async def test_filter_by_text_reaches_past_the_newest(reference: Server, open_plugin: Open) -> None:
    server, url = reference
    old = (await fill(server, 1, content="The quokka remembers."))[0]
    await fill(server, 150)
    adapter = await open_plugin(url, max_searches=1)
    page = await adapter.browse(BrowseRequest(scope=SCOPE, filter=Filter(text="quokka")))
    assert [one.handle.provider_record_id for one in page.records] == [f"workspace:web/{old}"]


@pytest.mark.parametrize("change", ["write", "correct", "forget", "restore", "namespace"])
async def test_the_next_page_shows_what_was_changed_meanwhile(
    reference: Server, open_plugin: Open, change: str
) -> None:
    adapter = await open_plugin(reference[1])
    _, two = [await note(adapter, text) for text in ("one", "two")]
    gone = await adapter.snapshot([two], SCOPE)
    listed = BrowseRequest(scope=SCOPE, sort="created_at", limit=1)
    first = await adapter.browse(listed)
    assert [record.text for record in first.records] == ["one"]
    left = {"two"}
    if change == "write":
        await note(adapter, "three")
        left.add("three")
    elif change == "correct":
        await adapter.correct(CorrectRequest(scope=SCOPE, handle=two, text="second"))
        left = {"second"}
    elif change == "namespace":
        await adapter.delete_namespace("workspace:web")
        left = set()
    else:
        await adapter.forget(ForgetRequest(scope=SCOPE, handles=(two,)))
        left = set()
    if change == "restore":
        page = await adapter.browse(listed)
        assert page.next_cursor is None
        await adapter.restore(gone, SCOPE)
        left = {"two"}
    asked = listed.model_copy(update={"limit": 10, "cursor": first.next_cursor})
    assert {record.text for record in (await adapter.browse(asked)).records} == left
