"""What the server refuses, and how: one shape, the right status, never a fault for a mistake."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from memtui.channels.http.facts import MAX_BODY_BYTES
from memtui.config import Paths, Settings
from memtui.contract import (
    Conflict,
    MemtuiError,
    RecordHandle,
    Scope,
    Snapshot,
    WriteReply,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, open_service
from memtui.service.connections import Connection
from memtui.service.spending import LimitTarget, SpendingLimit
from memtui.service.visibility import Membership, Role
from tests.channels.http.conftest import DRIVE_PATH, USER_PATH, client_of, serving
from tests.service.fake import FakeAdapter, down
from tests.service.test_limits import spend, used


class FactsFake(FakeAdapter):
    """The provider in memory, which here keeps what sort of record it holds."""

    async def write(self, request: WriteRequest) -> WriteReply:
        reply = await super().write(request)
        name = reply.records[0].provider_record_id
        self.held[name] = self.held[name].model_copy(update={"kind": request.kind})
        return reply


JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def memories(
    paths: Paths, settings: Settings, caller: Caller
) -> AsyncIterator[MemoryService]:
    """The service over the provider in memory."""
    FakeAdapter.reset()
    service = await open_service(paths, settings, providers={"fake": FactsFake})
    await service.bindings.add(caller, "memory", "fake", {})
    await service.bindings.set_target(caller, "company", "local", "memory")
    yield service
    await service.close()
    FakeAdapter.reset()


@pytest.fixture
async def client(speak: Any) -> httpx.AsyncClient:
    made: httpx.AsyncClient = await speak("user:ana")
    return made


def assert_refused(reply: httpx.Response, status: int, kind: str) -> str:
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert reply.json().keys() == {"error"}
    assert error.keys() == {"kind", "message"}
    assert error["kind"] == kind
    return str(error["message"])


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\r\n\r\n", b"GET /\r\n\r\n", b"X" * 70_000])
async def test_what_is_no_http_is_refused_in_json(url: str, sent: bytes) -> None:
    where = httpx.URL(url)
    reader, writer = await asyncio.open_connection(where.host, where.port)
    writer.write(sent)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["kind"] == "invalid"


AUTHORIZATIONS = [
    "",
    "Bearer",
    "Bearer nobody",
    "Basic YTpi",
    "bearer \xff",
    "Bearer a b",
    "x" * 9000,
]


async def test_no_token_no_answer(url: str) -> None:
    for header in AUTHORIZATIONS:
        headers = [(b"Authorization", header.encode("latin-1"))] if header else []
        async with httpx.AsyncClient(base_url=url) as nobody:
            for method, path in (("GET", USER_PATH), ("POST", DRIVE_PATH), ("DELETE", DRIVE_PATH)):
                reply = await nobody.request(method, path, headers=headers, content=b"{ no json")
                assert_refused(reply, 401, "denied")
                assert reply.headers["WWW-Authenticate"].startswith("Bearer")


async def test_a_revoked_token_and_one_of_another_company(
    memories: MemoryService, caller: Caller, url: str
) -> None:
    mine = await memories.tokens.add(caller, "laptop", "user:ana")
    other = Caller(company_id="globex", principal="user:ana", channel="test")
    await memories.companies.add(other, "Globex")
    theirs = await memories.tokens.add(other, "laptop", "user:ana")
    async with client_of(url, mine.token) as client:
        assert (await client.get(USER_PATH)).status_code == 200
        await memories.tokens.remove(caller, "laptop")
        assert_refused(await client.get(USER_PATH), 401, "denied")
    async with client_of(url, theirs.token) as client:
        assert_refused(await client.get(USER_PATH), 401, "denied")


@pytest.mark.parametrize("roles", [False, True])
async def test_a_token_of_a_drive_reaches_no_other_drive(
    memories: MemoryService, caller: Caller, url: str, roles: bool
) -> None:
    if roles:
        owner = Membership(principal="user:ana", subject_id="ana", role=Role.OWNER)
        await memories.members.set(caller, owner)
    free = await memories.tokens.add(caller, "any", "user:ana")
    made = await memories.tokens.add(caller, "gemini", "user:ana", project_id="gemini")
    async with client_of(url, free.token) as ana, client_of(url, made.token) as bound:
        secret = (await ana.post(DRIVE_PATH, json={"fact": "Amber falcon"})).json()
        own = await bound.post("/api/memory/drive/gemini", json={"fact": "Two seats"})
        assert own.status_code == 201
        assert (await bound.post(USER_PATH, json={"fact": "Likes tea"})).status_code == 201
        told = await bound.get(DRIVE_PATH)
        assert_refused(told, 403, "denied")
        assert told.json()["error"]["message"] == (
            "Your token is for the project gemini; name no other."
        )
        assert_refused(await bound.post(DRIVE_PATH, json={"fact": "x"}), 403, "denied")
        assert_refused(await bound.delete(f"/api/memory/drive/{secret['id']}"), 403, "denied")
        kept = (await ana.get(DRIVE_PATH)).json()["memories"]
        assert [one["fact"] for one in kept] == ["Amber falcon"]


NO_JSON = [
    b"",
    b"{",
    b"fact",
    b"\xff\xfe",
    b'{"fact": "\\ud800"}',
    b"[" * 50_000,
    b'{"fact": "a\nb"}',
    b'{"fact": ' + b"9" * 5_000 + b"}",
    '{"fact": "a"}'.encode("utf-16"),
]


async def test_what_is_no_json(client: httpx.AsyncClient) -> None:
    for body in NO_JSON:
        reply = await client.post(
            USER_PATH, content=body, headers={"Content-Type": "application/json; charset=utf-8"}
        )
        assert_refused(reply, 400, "invalid")


UNFIT: list[object] = [
    [],
    "a",
    None,
    {},
    {"fact": None},
    {"fact": ""},
    {"fact": "   "},
    {"fact": 7},
    {"fact": ["a"]},
    {"fact": "two\nlines"},
    {"fact": "two\u2028lines"},
    {"fact": "x" * 201},
    {"fact": "a", "pinned": True},
    {"fact": "a", "sourceRef": {"kind": "rumour"}},
    {"fact": "a", "sourceRef": "run"},
]


async def test_json_that_does_not_fit(client: httpx.AsyncClient) -> None:
    for body in UNFIT:
        for path in (USER_PATH, DRIVE_PATH):
            reply = await client.post(path, content=json.dumps(body), headers=JSON)
            assert_refused(reply, 422, "invalid")
            assert (await client.get(path)).json()["memories"] == []


async def test_another_content_type(client: httpx.AsyncClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""):
        reply = await client.post(
            USER_PATH, content=b'{"fact": "a"}', headers={"Content-Type": kind}
        )
        assert_refused(reply, 415, "invalid")


async def test_a_body_that_is_too_large(client: httpx.AsyncClient) -> None:
    large = json.dumps({"fact": "x" * MAX_BODY_BYTES}).encode()

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(large), 10_000):
            yield large[start : start + 10_000]

    for content in (large, chunks(), b" " * 5_000_000):
        assert_refused(await client.post(USER_PATH, content=content, headers=JSON), 413, "invalid")
    within = json.dumps({"fact": "ok"}).encode().ljust(MAX_BODY_BYTES)
    assert (await client.post(USER_PATH, content=within, headers=JSON)).status_code == 201


NOWHERE = [
    "/",
    "/api",
    "/api/memory",
    "/api/memory/user/",
    "/api/memory/drive",
    "/api/memory/drive/",
    "/api/memory/drive/a/b",
    "/docs",
    "/redoc",
    "/api/memory/user/x/y",
    "//api/memory/user",
]


async def test_addresses_that_are_not_there(client: httpx.AsyncClient, url: str) -> None:
    for path in NOWHERE:
        assert_refused(await client.get(url + path), 404, "not_found")


METHODS = [
    ("PUT", USER_PATH, "GET, POST"),
    ("DELETE", USER_PATH, "GET, POST"),
    ("PATCH", DRIVE_PATH, "DELETE, GET, POST"),
    ("OPTIONS", DRIVE_PATH, "DELETE, GET, POST"),
    ("GET", f"{USER_PATH}/x", "DELETE"),
    ("TRACE", f"{USER_PATH}/x", "DELETE"),
    ("POST", "/openapi.json", "GET, HEAD"),
]


async def test_methods_that_are_not_taken(client: httpx.AsyncClient) -> None:
    for method, path, allowed in METHODS:
        reply = await client.request(method, path)
        assert_refused(reply, 405, "invalid")
        assert reply.headers["Allow"] == allowed
        assert "access-control-allow-origin" not in reply.headers


async def test_head_has_no_body(client: httpx.AsyncClient) -> None:
    reply = await client.head(USER_PATH)
    assert (reply.status_code, reply.content) == (405, b"")


SEGMENTS = ["%FF", "%ED%A0%80", "%C0%AF", "%00", "%0A", "a" * 201, "a" * 20_000, "%E2%80%AE"]


async def test_ids_that_cannot_be(client: httpx.AsyncClient, url: str) -> None:
    for segment in SEGMENTS:
        for path in (f"{url}/api/memory/drive/{segment}", f"{url}/api/memory/user/{segment}"):
            for method in ("GET", "POST", "DELETE"):
                reply = await client.request(method, path, json={"fact": "a"})
                assert reply.status_code in {400, 404, 405, 422}, (method, path, reply.text)
                assert reply.json()["error"]["message"]


FOREIGN_NAMES = ["evil.test", "evil.test:80", "", "localhost.evil.test", "127.0.0.1.x"]


async def test_a_strangers_host_name_is_refused(client: httpx.AsyncClient) -> None:
    for name in FOREIGN_NAMES:
        for path in (USER_PATH, "/openapi.json", "/nowhere"):
            reply = await client.get(path, headers={"Host": name})
            assert_refused(reply, 403, "denied")


OWN_NAMES = ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]", "[::1]:80"]


async def test_loopbacks_own_names_are_answered(client: httpx.AsyncClient) -> None:
    for name in OWN_NAMES:
        assert (await client.get(USER_PATH, headers={"Host": name})).status_code == 200


async def test_a_conflict_and_a_provider_that_is_down(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = await client.post(USER_PATH, json={"fact": "Once."})
    address = f"{USER_PATH}/{added.json()['id']}"

    async def conflict(*_: object) -> None:
        raise Conflict("The fact changed since you read it; look at both and decide.")

    with monkeypatch.context() as patched:
        patched.setattr(FakeAdapter, "forget", conflict)
        assert_refused(await client.delete(address), 409, "conflict")
    with monkeypatch.context() as patched:
        patched.setattr(FakeAdapter, "fault", down())
        assert_refused(await client.get(USER_PATH), 503, "unavailable")
        assert_refused(await client.post(USER_PATH, json={"fact": "a"}), 503, "unavailable")


async def test_a_fact_that_stays_is_no_success(client: httpx.AsyncClient) -> None:
    added = await client.post(USER_PATH, json={"fact": "A ghost."})
    FakeAdapter.haunted = True
    reply = await client.delete(f"{USER_PATH}/{added.json()['id']}")
    assert "still returns it" in assert_refused(reply, 503, "unavailable")


async def test_a_provider_that_shows_a_fact_later(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(_: Connection, handles: Sequence[RecordHandle], *_scope: Scope) -> object:
        return [Snapshot(handle=handle, record=None) for handle in handles]

    monkeypatch.setattr(Connection, "snapshots", nothing)
    reply = await client.post(USER_PATH, json={"fact": "Later."})
    assert reply.status_code == 202
    said = reply.json()
    assert said.pop("operationId")
    assert said == {"status": "later", "pendingId": None, "reasons": []}


async def test_a_fault_of_our_own_tells_nothing_of_itself(
    client: httpx.AsyncClient,
    memories: MemoryService,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("the secret inside")

    monkeypatch.setattr(memories, "browse", broken)
    reply = await client.get(USER_PATH)
    assert_refused(reply, 500, "internal")
    assert "secret inside" not in reply.text
    assert "the secret inside" in caplog.text


async def test_a_company_that_nothing_serves(memories: MemoryService) -> None:
    globex = Caller(company_id="globex", principal="user:ana", channel="test")
    await memories.companies.add(globex, "Globex")
    made = await memories.tokens.add(globex, "laptop", "user:ana")
    async with serving(memories, "globex") as address, client_of(address, made.token) as client:
        assert_refused(await client.get(USER_PATH), 404, "not_found")


async def test_many_errors_do_not_wedge_the_server(client: httpx.AsyncClient) -> None:
    replies = await asyncio.gather(
        *(client.post(USER_PATH, content=b"{", headers=JSON)
          for _ in range(100))
    )  # fmt: skip
    assert {reply.status_code for reply in replies} == {400}
    assert (await client.get(USER_PATH)).status_code == 200


def test_every_error_of_the_contract_has_a_status() -> None:
    from memtui.channels.http.app import ErrorStyle

    style = ErrorStyle(lambda kind, message: {kind: message}, invalid=422)
    own = {one for one in MemtuiError.__subclasses__() if one.__module__ == MemtuiError.__module__}
    assert 500 not in {style.status_of(one("No.")) for one in own}


async def test_a_passed_limit_is_a_refusal(
    client: httpx.AsyncClient, memories: MemoryService, caller: Caller
) -> None:
    limit = SpendingLimit(
        target_type=LimitTarget.COMPANY, target_id="", measure="tokens", amount=1,
        period="day", action="read-only",
    )  # fmt: skip
    await memories.limits.set(caller, limit)
    spend(memories, used(tokens=2), at=datetime.now(UTC))
    said = assert_refused(await client.post(USER_PATH, json={"fact": "x: 1"}), 403, "denied")
    assert said.startswith("The company has passed its spending limit of a day, so nothing is w")
