"""Plugins that answer well and do something else, or keep what cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    ForgetRequest,
    Invalid,
    MemtuiError,
    NotFound,
    QueryRequest,
    Scope,
    Snapshot,
    Unavailable,
)

from .conftest import COMPANY, SCOPE, Open, Serve, Server, fill, handle, note
from .servers.loopback import Answer, Request, talk
from .servers.minimal import Minimal
from .servers.reference import Reference, error

Handler = Callable[[Request], Answer]


class Faulty(Reference):
    """A reference server that leaves the calls that begin with `method` and `path` to `answer`."""

    def __init__(self) -> None:
        super().__init__()
        self.method, self.path = "", ""
        self.answer: Handler = lambda _: (200, None)

    def spoil(self, method: str, path: str, answer: Handler) -> None:
        self.method, self.path, self.answer = method, path, answer

    def __call__(self, request: Request) -> Answer:
        if self.method == request.method and request.path.startswith(self.path):
            return self.answer(request)
        return super().__call__(request)


async def test_a_correction_that_is_not_done(serving: Serve, open_plugin: Open) -> None:
    server = Faulty()
    adapter = await open_plugin(await serving(talk(server)))
    written = await note(adapter, "Old.")
    identity = next(iter(server.rows))
    request = CorrectRequest(scope=SCOPE, handle=written, text="New.")
    done = {"id": identity, "namespace": "workspace:web"}
    server.spoil("POST", "/v1/namespaces", lambda _: (201, done))
    with pytest.raises(Unavailable, match="still returns the old text") as caught:
        await adapter.correct(request)
    assert caught.value.sent

    def loses(_: Request) -> Answer:
        server.rows.clear()
        return 201, done

    server.spoil("POST", "/v1/namespaces", loses)
    with pytest.raises(Unavailable, match="no longer there"):
        await adapter.correct(request)


async def test_a_correction_that_ends_a_record(reference: Server, open_plugin: Open) -> None:
    adapter = await open_plugin(reference[1])
    written = await note(adapter, "Ends now.")
    past = datetime(2020, 1, 1, tzinfo=UTC)
    request = CorrectRequest(scope=SCOPE, handle=written, expires_at=past)
    assert (await adapter.correct(request)).handle == written
    assert await adapter.get(written, SCOPE) is None


async def test_an_old_copy_that_stays_is_named(serving: Serve, open_plugin: Open) -> None:
    class Sticky(Minimal):
        def __call__(self, request: Request) -> Answer:
            return (500, b"stuck") if request.method == "DELETE" else super().__call__(request)

    adapter = await open_plugin(await serving(talk(Sticky("propagation"))))
    written = await note(adapter, "Old.")
    with pytest.raises(Unavailable, match="forget workspace:web/flat-1 by hand") as caught:
        await adapter.correct(CorrectRequest(scope=SCOPE, handle=written, text="New."))
    assert caught.value.sent


async def test_a_memory_whose_owner_cannot_be_read_is_nobodys(
    reference: Server, open_plugin: Open
) -> None:
    server, url = reference
    strange = {"memtui": {"tags": 7}, "trace": 1}
    await fill(server, 1, propagation=strange)
    adapter = await open_plugin(url)
    identity = next(iter(server.rows))
    one = handle(f"workspace:web/{identity}")
    page = await adapter.browse(BrowseRequest(scope=SCOPE))
    assert (page.records, page.at_least) == ((), True)
    assert page.unread[0].startswith("1 memories of the server could not be read")
    with pytest.raises(MemtuiError):
        await adapter.correct(CorrectRequest(scope=SCOPE, handle=one, text="Better."))
    assert server.rows[identity]["propagation"] == strange


async def test_a_forget_that_breaks_off_says_how_far_it_came(
    serving: Serve, open_plugin: Open
) -> None:
    server = Faulty()
    adapter = await open_plugin(await serving(talk(server)))
    handles = tuple([await note(adapter, f"Number {number}.") for number in range(3)])
    last = handles[2].provider_record_id.partition("/")[2]
    server.spoil("DELETE", f"/v1/memories/{last}", lambda _: error(500, "internal", "disk"))
    with pytest.raises(Unavailable, match="2 of 3") as caught:
        await adapter.forget(ForgetRequest(scope=SCOPE, handles=handles))
    assert caught.value.sent
    assert list(server.rows) == [last]


async def test_what_a_failure_repeats_of_a_write_says_nothing_of_its_namespace(
    serving: Serve, open_plugin: Open
) -> None:
    server, sent = Faulty(), list[Request]()

    def fails(request: Request) -> Answer:
        sent.append(request)
        return 500, {"message": "timeout", "request": request.json()}

    server.spoil("POST", "/v1/namespaces/workspace%3Aweb/memories", fails)
    adapter = await open_plugin(await serving(talk(server)))
    with pytest.raises(Unavailable, match="timeout") as caught:
        await note(adapter, "The namespace of the lynx does not exist.")
    assert (caught.value.sent, len(sent)) == (True, 1)


async def test_a_page_of_html_is_not_quoted(serving: Serve, open_plugin: Open) -> None:
    server = Faulty()
    server.spoil("POST", "/v1/search", lambda _: (500, b"\xef\xbb\xbf<html>busy</html>"))
    adapter = await open_plugin(await serving(talk(server)))
    with pytest.raises(Unavailable) as caught:
        await adapter.query(QueryRequest(scope=SCOPE, query="lynx"))
    assert "<html>" not in str(caught.value)


async def test_a_plugin_that_minds_unknown_namespaces(serving: Serve, open_plugin: Open) -> None:
    server = Faulty()

    def minds(request: Request) -> Answer:
        if set(request.json()["namespaces"]) - set(server.namespaces):
            return error(404, "not_found", "no such namespace")
        return server._search(request.json())

    server.spoil("POST", "/v1/search", minds)
    adapter = await open_plugin(await serving(talk(server)))
    bundle = await adapter.query(QueryRequest(scope=SCOPE, query="lynx"))
    assert bundle.snippets == ()
    await note(adapter, "A lynx.")
    bundle = await adapter.query(QueryRequest(scope=SCOPE, query="lynx"))
    assert [snippet.text for snippet in bundle.snippets] == ["A lynx."]


async def test_a_small_namespace_beside_a_large_one_is_read_whole(
    reference: Server, open_plugin: Open
) -> None:
    server, url = reference
    adapter = await open_plugin(url)
    old = await note(adapter, "42", scope=COMPANY)
    await fill(server, 150)
    page = await adapter.browse(BrowseRequest(scope=SCOPE, limit=1000))
    assert "42" in {record.text for record in page.records}
    assert await adapter.get(old, SCOPE) is not None
    gone = handle("org:acme/6f1c7e9e-3a51-4a53-9b5e-0a8f3a0c1d11")
    assert await adapter.get(gone, SCOPE) is None


async def test_what_cannot_be_restored(serving: Serve, open_plugin: Open) -> None:
    server = Faulty()
    adapter = await open_plugin(await serving(talk(server)))
    written = await note(adapter, "Here.")
    taken = (await adapter.snapshot([written], SCOPE))[0]
    foreign = Snapshot(handle=written, record=taken.record, state={"bytes": "?"})
    with pytest.raises(Invalid, match="not of a memory plugin"):
        await adapter.restore([foreign], SCOPE)
    elsewhere = Scope(company_id="acme", project_id="b")
    with pytest.raises(NotFound, match="not belong to this scope"):
        await adapter.restore([taken], elsewhere)
    server.spoil("POST", "/v1/namespaces", lambda _: error(500, "internal", "disk"))
    with pytest.raises(Unavailable) as caught:
        await adapter.restore([taken], SCOPE)
    assert caught.value.sent


async def test_a_health_of_its_own(serving: Serve, open_plugin: Open) -> None:
    server = Faulty()
    server.spoil("GET", "/v1/health", lambda _: error(404, "not_found", "what health"))
    adapter = await open_plugin(await serving(talk(server)))
    assert (await adapter.health()).status == "ok"
    assert not adapter.capabilities.pin
    server.spoil("GET", "/v1/health", lambda _: (200, {"status": "degraded", "capabilities": []}))
    assert (await adapter.health()).status == "degraded"
    server.spoil("GET", "/v1/health", lambda _: (401, b"who are you"))
    assert (await adapter.health()).status == "down"
    await open_plugin(await serving(talk(server)), data="other")
