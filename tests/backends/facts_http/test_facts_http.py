from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memtui.backends.facts_http import FactsHttpAdapter
from memtui.contract import (
    BindingContext,
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Denied,
    ForgetRequest,
    Invalid,
    NotFound,
    QueryIntent,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    Unsupported,
    WriteRequest,
)
from tests.backends.facts_http.server import Server, raw

ANA = Scope(company_id="acme", subject_id="ana")
APOLLO = Scope(company_id="acme", project_id="apollo")
BOTH = Scope(company_id="acme", subject_id="ana", project_id="apollo")
EVERYONE = Scope(company_id="acme")


def context(url: str, *, token: str = "t0ken", **config: Any) -> BindingContext:
    return BindingContext(
        company_id="acme",
        binding_key="hosted",
        config={"url": url, "token_secret": "T", "subject_id": "ana"} | config,
        data_dir=Path("/nowhere"),
        secret={"T": token}.get,
    )


@pytest.fixture
async def facts(server: Server) -> AsyncIterator[FactsHttpAdapter]:
    adapter = await FactsHttpAdapter.open(context(server.url, timeout_seconds=5))
    yield adapter
    await adapter.close()


def request(text: str, scope: Scope = ANA, **fields: Any) -> WriteRequest:
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="acme")
    return WriteRequest(scope=scope, source=source, content=text, **fields)


async def add(facts: FactsHttpAdapter, text: str, scope: Scope = ANA) -> RecordHandle:
    return (await facts.write(request(text, scope))).records[0]


async def texts(facts: FactsHttpAdapter, scope: Scope = ANA) -> list[str]:
    return sorted(r.text for r in (await facts.browse(BrowseRequest(scope=scope))).records)


async def test_users_and_drives(facts: FactsHttpAdapter, server: Server) -> None:
    mine = await add(facts, "Ana likes tea. 日本語")
    ours = await add(facts, "Uses Go.", BOTH)
    assert (mine.provider_record_id, ours.provider_record_id) == ("user:id/1", "drive:id/2")
    assert server.calls == [("POST", "/api/memory/user"), ("POST", "/api/memory/drive/apollo")]
    assert await texts(facts) == ["Ana likes tea. 日本語"]
    assert await texts(facts, APOLLO) == ["Uses Go."]
    assert len(await texts(facts, BOTH)) == 2
    assert await texts(facts, EVERYONE) == ["Ana likes tea. 日本語"]
    prompt = QueryRequest(scope=BOTH, query="zzz", intent=QueryIntent.AGENT_PREAMBLE)
    assert len((await facts.query(prompt)).snippets) == 2
    reply = await facts.forget(ForgetRequest(scope=BOTH, handles=(mine, ours)))
    assert reply.missing == ()
    assert server.calls[-2:] == [
        ("DELETE", "/api/memory/user/id%2F1"),
        ("DELETE", "/api/memory/drive/id%2F2"),
    ]
    assert await texts(facts, BOTH) == []


async def test_only_the_tokens_own_user(facts: FactsHttpAdapter, server: Server) -> None:
    ben = ANA.model_copy(update={"subject_id": "ben"})
    with pytest.raises(Denied, match="belongs to ana"):
        await add(facts, "Of ben.", ben)
    assert await texts(facts, ben) == []
    with pytest.raises(Invalid, match="about a user or a project"):
        await add(facts, "Nobody's.", EVERYONE)
    assert server.calls == []


async def test_what_the_wire_cannot_carry(facts: FactsHttpAdapter, server: Server) -> None:
    with pytest.raises(Unsupported):
        await facts.write(request("Pinned.", pinned=True))
    with pytest.raises(Invalid, match="one line"):
        await add(facts, "two\nlines")
    for odd in ("..", "."):
        with pytest.raises(Invalid, match="cannot be part of an address"):
            await add(facts, "A fact.", Scope(company_id="acme", project_id=odd))
    assert server.calls == []


async def test_a_wrong_token(server: Server) -> None:
    facts = await FactsHttpAdapter.open(context(server.url, token="other"))
    with pytest.raises(Denied, match="Who are you"):
        await facts.query(QueryRequest(scope=ANA, query="x"))
    assert (await facts.health()).status == "down"
    await facts.close()


@pytest.mark.parametrize(
    ("status", "error", "sent"),
    [
        ("400 Bad", Invalid, None), ("401 No", Denied, None), ("403 No", Denied, None),
        ("404 Gone", NotFound, None), ("409 Clash", Conflict, None), ("422 Odd", Invalid, None),
        ("413 Big", Invalid, None), ("429 Slow", Unavailable, False),
        ("500 Oops", Unavailable, True), ("503 Down", Unavailable, True),
        ("302 Found", Unavailable, False),
    ],
)  # fmt: skip
async def test_statuses(
    facts: FactsHttpAdapter, server: Server, status: str, error: type[Exception], sent: bool | None
) -> None:
    said = b'{"error": {"kind": "x", "message": "Because of  \\n reasons."}}'
    elsewhere = f"Location: {server.url}/api/memory/drive/x"
    server.rude["POST"] = [raw(said, status, elsewhere), raw(b"<html>", status, elsewhere)]
    with pytest.raises(error) as caught:
        await add(facts, "A fact.")
    if not status.startswith("302"):
        assert "(Because of reasons)" in str(caught.value)
    assert getattr(caught.value, "sent", None) == sent
    with pytest.raises(error):
        await add(facts, "A fact.")
    assert len(server.calls) == 2


NONSENSE = {
    "nothing": raw(b""),
    "text": raw(b"hello"),
    "cut JSON": raw(b'{"memories": [{"id": "1", "fa'),
    "cut body": raw(b'{"memories": []}').replace(b"Length: 16", b"Length: 99"),
    "no list": raw(b'{"memories": "x"}'),
    "no memories": raw(b"{}"),
    "number": raw(b"7"),
    "strings": raw(b'["x"]'),
    "wrong types": raw(b'{"memories": [{"id": true, "fact": "x"}]}'),
    "no text": raw(b'{"memories": [{"id": "1", "fact": null}]}'),
    "twice": raw(b'[{"id": "1", "fact": "x"}, {"id": 1, "fact": "y"}]'),
    "deep": raw(b"[" * 100_000),
    "long number": raw(b"9" * 10_000),
    "not UTF-8": raw(b'{"memories": [\xff\xfe]}'),
    "10 MB": raw(b" " * 10_000_000),
    "gzip": raw(b"\x1f\x8b", "200 OK", "Content-Encoding: gzip"),
    "no HTTP": b"garbage\r\n\r\n",
    "closed": b"",
}


@pytest.mark.parametrize("name", NONSENSE)
async def test_nonsense_is_unavailable(facts: FactsHttpAdapter, server: Server, name: str) -> None:
    server.rude["GET"] = [NONSENSE[name]]
    with pytest.raises(Unavailable) as caught:
        await facts.browse(BrowseRequest(scope=ANA))
    assert caught.value.sent == (name in {"10 MB", "gzip"})  # asked again, they would come again
    server.rude["GET"] = [NONSENSE[name]]
    assert (await facts.health()).status == ("ok" if name == "twice" else "down")
    server.rude["POST"] = [NONSENSE[name]]
    with pytest.raises(Unavailable) as caught:
        await add(facts, "A fact.")
    assert caught.value.sent
    assert await texts(facts) == []


@pytest.mark.parametrize(
    "body",
    [
        '{"memories": null}', "null", "[]",
        '[{"id": "1", "fact": "x"}]',
        '{"memories": [{"id": 1, "fact": "x", "createdAt": null, "extra": {}}], "next": 3}',
        '{"memories": [{"id": "1", "fact": "x", "createdAt": "yesterday"}]}',
    ],
)  # fmt: skip
async def test_tolerated(facts: FactsHttpAdapter, server: Server, body: str) -> None:
    server.rude["GET"] = [raw(body.encode())]
    assert await texts(facts) == (["x"] if "fact" in body else [])


async def test_hostile_text_is_kept_exactly(facts: FactsHttpAdapter, server: Server) -> None:
    hostile = "\x1b[31m \u202e \0 \ud800 \n [/tmp/x]"
    body = raw(json.dumps([{"id": "1", "fact": hostile}]).encode())
    server.rude["GET"] = [body, body]
    assert await texts(facts) == [hostile]
    await facts.query(QueryRequest(scope=ANA, query="tmp"))


async def test_a_stored_fact_in_an_envelope(facts: FactsHttpAdapter, server: Server) -> None:
    server.rude["POST"] = [raw(json.dumps({"memory": {"id": "7", "fact": "x"}}).encode(), "201 C")]
    assert (await add(facts, "x")).provider_record_id == "user:7"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_trickle_ends(server: Server, method: str) -> None:
    facts = await FactsHttpAdapter.open(context(server.url, timeout_seconds=0.3))
    server.stalls.add(method)
    with pytest.raises(Unavailable, match=r"within 0\.3 s") as caught:
        await (texts(facts) if method == "GET" else add(facts, "A fact."))
    assert caught.value.sent, "asking again at once would wait as long again"
    await facts.close()


async def test_nobody_there(server: Server) -> None:
    facts = await FactsHttpAdapter.open(context("http://127.0.0.1:9"))
    with pytest.raises(Unavailable, match="cannot be reached") as caught:
        await add(facts, "A fact.")
    assert not caught.value.sent
    await facts.close()


async def test_a_correction_that_breaks_off_loses_nothing(
    facts: FactsHttpAdapter, server: Server
) -> None:
    handle = await add(facts, "Old.")
    change = CorrectRequest(scope=ANA, handle=handle, text="New.")
    server.rude["POST"] = [raw(b"{}", "500 Oops")]
    with pytest.raises(Unavailable):
        await facts.correct(change)
    assert await texts(facts) == ["Old."]
    server.rude["DELETE"] = [raw(b"{}", "403 No")]
    with pytest.raises(Denied):
        await facts.correct(change)
    assert await texts(facts) == ["Old."]
    server.rude["DELETE"] = [raw(b"{}", "404 Gone")]
    with pytest.raises(Conflict, match="deleted while") as caught:
        await facts.correct(change)
    assert caught.value.proposed == "New."
    assert await texts(facts) == ["Old."]
    server.rude["DELETE"] = [b"", raw(b"{}", "500 Oops")]
    with pytest.raises(Unavailable, match="new text is stored as user:id/4") as broken:
        await facts.correct(change)
    assert broken.value.sent
    assert await texts(facts) == ["New.", "Old."]


async def test_forgetting_that_breaks_off_says_how_far(
    facts: FactsHttpAdapter, server: Server
) -> None:
    handles = [await add(facts, f"Fact {n}.") for n in range(3)]
    server.rude["DELETE"] = [raw(b"", "204 No Content"), raw(b"{}", "500 Oops")]
    with pytest.raises(Unavailable, match="1 of 3 facts were forgotten") as caught:
        await facts.forget(ForgetRequest(scope=ANA, handles=tuple(handles)))
    assert caught.value.sent


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"url": "http://facts.example"}, "unencrypted"),
        ({"url": "ftp://h"}, "https://host"),
        ({"url": "https://a:b@h"}, "https://host"),
        ({"url": "https://h:99999"}, "not an address"),
        ({"token_secret": "NONE"}, "no secret NONE"),
        ({"subject_id": ""}, "subject_id"),
        ({"nope": 1}, "nope"),
    ],
)
async def test_bad_config(config: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        await FactsHttpAdapter.open(context(**({"url": "https://h"} | config)))


async def test_a_token_that_is_none(server: Server) -> None:
    for token in ("a b", "a\r\nX: y", "é"):
        with pytest.raises(Invalid, match="characters that no token can have") as caught:
            await FactsHttpAdapter.open(context(server.url, token=token))
        assert token not in str(caught.value)


async def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw(b'[{"id": "1", "fact": "By socket."}]'))
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        facts = await FactsHttpAdapter.open(context("http://facts.example", socket=str(path)))
        assert await texts(facts) == ["By socket."]
        await facts.close()


async def test_read_only(server: Server) -> None:
    opened = context(server.url).model_copy(update={"read_only": True})
    facts = await FactsHttpAdapter.open(opened)
    assert not facts.capabilities.writable
    with pytest.raises(Unsupported):
        await add(facts, "A fact.")
    await facts.close()
