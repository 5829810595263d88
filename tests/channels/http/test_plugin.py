"""The memory plugin that we serve, over each kind of provider: what the contract says of a call."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from memtui.channels.http.plugin import MAX_BODY_BYTES
from tests.channels.http.plugin_server import VAULT, plugin_over, plugin_over_postgres

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
NOBODY = "00000000-0000-4000-8000-000000000000"
MEMORY = {"content": "The kettle is red.", "kind": "fact", "source": "agent"}


@pytest.fixture(scope="module", params=["vault", "postgresql"])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A served vault, and fact tables in PostgreSQL with the control plane there as well."""
    home = tmp_path_factory.mktemp("home")
    if request.param == "vault":
        with plugin_over(home, *VAULT) as url:
            yield url
        return
    server: str = request.getfixturevalue("postgres_server")
    with plugin_over_postgres(home, server) as url:
        yield url


ON_VAULT = pytest.mark.parametrize("address", ["vault"], indirect=True)
"""Of what the server does before it asks a provider."""
ON_POSTGRES = pytest.mark.parametrize("address", ["postgresql"], indirect=True)
"""Of what the checks of `memtui bindings conformance` ask of a vault that we serve."""


class Plugin:
    """Calls a plugin; `space` is a namespace that nobody else uses."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.space = f"workspace:{uuid.uuid4().hex[:12]}"

    async def call(self, method: str, path: str, body: object = None) -> httpx.Response:
        more: dict[str, Any] = {} if body is None else {"json": body}
        return await self.client.request(method, f"/v1{path}", **more)

    async def make(self, name: str = "", **fields: Any) -> str:
        name = name or self.space
        reply = await self.call("PUT", f"/namespaces/{name}", {"kind": "workspace"} | fields)
        assert reply.status_code == 200, reply.text
        return name

    async def write(self, content: str, name: str = "", **fields: Any) -> str:
        body = {**MEMORY, "content": content, **fields}
        reply = await self.call("POST", f"/namespaces/{name or self.space}/memories", body)
        assert reply.status_code == 201, reply.text
        assert reply.json() == {"id": reply.json()["id"], "namespace": name or self.space}
        return str(reply.json()["id"])

    async def found(self, *names: str, **asked: Any) -> list[dict[str, Any]]:
        reply = await self.call("POST", "/search", {"namespaces": names or [self.space]} | asked)
        assert reply.status_code == 200, reply.text
        return list(reply.json()["memories"])

    async def texts(self, *names: str, **asked: Any) -> list[str]:
        return [row["content"] for row in await self.found(*names, **asked)]

    async def refused(self, status: int, code: str, method: str, path: str, body: object) -> str:
        reply = await self.call(method, path, body)
        assert reply.status_code == status, reply.text
        assert reply.json().keys() == {"code", "message"}
        assert reply.json()["code"] == code
        return str(reply.json()["message"])


@pytest.fixture
async def plugin(address: str) -> AsyncIterator[Plugin]:
    async with httpx.AsyncClient(base_url=address, timeout=60) as client:
        yield Plugin(client)


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


async def test_health_tells_what_there_is(plugin: Plugin) -> None:
    reply = await plugin.call("GET", "/health")
    told = reply.json()
    assert told.keys() == {"status", "version", "capabilities"}
    assert told["status"] == "ok"
    assert set(told["capabilities"]) == {"fts", "ttl", "pin", "propagation"}
    assert reply.headers["memtui-extensions"].split() == ["memtui.cursor", "memtui.ids"]


async def test_a_namespace_is_replaced_whole_and_patched_in_parts(plugin: Plugin) -> None:
    path = f"/namespaces/{plugin.space}"
    ends = "2099-01-01T05:30:00.5+05:30"
    metadata = {"owner": "ana", "deep": {"n": [1, None]}, "none": None}
    body = {"kind": "workspace", "expires_at": ends, "metadata": metadata}
    made = (await plugin.call("PUT", path, body)).json()
    assert made == {
        "name": plugin.space,
        "kind": "workspace",
        "expires_at": "2099-01-01T00:00:00.500000Z",
        "metadata": metadata,
        "created_at": made["created_at"],
    }
    assert TIME.fullmatch(made["created_at"])
    patched = (await plugin.call("PATCH", path, {"metadata": {"owner": "bob"}})).json()
    assert patched == made | {"metadata": {"owner": "bob"}}
    cleared = (await plugin.call("PUT", path, {"kind": "custom"})).json()
    assert cleared == {
        "name": plugin.space, "kind": "custom", "created_at": made["created_at"]
    }  # fmt: skip
    for nothing in ({}, {"expires_at": None}, {"unknown": 1}):
        said = await plugin.refused(400, "bad_request", "PATCH", path, nothing)
        assert "no fields set" in said
    await plugin.refused(404, "not_found", "PATCH", "/namespaces/team:none", {"metadata": {}})


async def test_a_memory_comes_back_as_it_was_written(plugin: Plugin) -> None:
    await plugin.make()
    propagation: dict[str, Any] = {
        "a": None,
        "b": {"c": [1.0, 10**20, "ü\u2028", None]},
        "yes": "no",
        "": [],
    }
    identity = await plugin.write(
        "The kettle — 東京 — is red.", kind="checkpoint", source="runtime", pin=True,
        expires_at="2099-01-01T00:00:00Z", propagation=propagation, surprise=1,
    )  # fmt: skip
    (row,) = await plugin.found()
    assert row == {
        "id": identity,
        "namespace": plugin.space,
        "content": "The kettle — 東京 — is red.",
        "kind": "checkpoint",
        "source": "runtime",
        "expires_at": "2099-01-01T00:00:00.000000Z",
        "propagation": propagation,
        "pin": True,
        "created_at": row["created_at"],
    }
    assert TIME.fullmatch(row["created_at"])
    assert uuid.UUID(identity).version == 4
    (hit,) = await plugin.found(query="kettle")
    assert {name: hit[name] for name in row} == row
    assert hit["score"] > 0


async def test_nothing_found_is_an_empty_list(plugin: Plugin) -> None:
    for asked in ({}, {"query": "kettle"}, {"ids": [NOBODY]}, {"cursor": ""}):
        reply = await plugin.call("POST", "/search", {"namespaces": [plugin.space]} | asked)
        assert reply.json() == {"memories": []}


async def test_an_id_is_written_over_and_every_field_with_it(plugin: Plugin) -> None:
    await plugin.make()
    identity = str(uuid.uuid4())
    full: dict[str, Any] = {
        "pin": True,
        "expires_at": soon(9999),
        "propagation": {"a": 1},
        "kind": "summary",
    }
    assert await plugin.write("First.", id=identity.upper(), **full) == identity
    (first,) = await plugin.found()
    assert await plugin.write("Second.", id=identity, **full) == identity
    (second,) = await plugin.found()
    assert second == first | {"content": "Second."}
    assert await plugin.write("Third.", id=identity, source="user") == identity
    (third,) = await plugin.found()
    assert third == {
        "id": identity, "namespace": plugin.space, "content": "Third.", "kind": "fact",
        "source": "user", "pin": False, "created_at": first["created_at"],
    }  # fmt: skip


async def test_an_id_in_another_namespace_moves_the_memory(plugin: Plugin) -> None:
    await plugin.make()
    other = await plugin.make(plugin.space + "-2")
    identity = await plugin.write("Here.")
    (here,) = await plugin.found()
    assert await plugin.write("There.", other, id=identity) == identity
    assert await plugin.found() == []
    (there,) = await plugin.found(other)
    assert there == here | {"namespace": other, "content": "There."}


@ON_POSTGRES
async def test_the_same_id_many_times_at_once_is_one_memory(plugin: Plugin) -> None:
    await plugin.make()
    identity = str(uuid.uuid4())
    await asyncio.gather(*(plugin.write(f"Text {n}.", id=identity) for n in range(10)))
    assert [row["id"] for row in await plugin.found()] == [identity]


@ON_POSTGRES
async def test_many_writes_at_once(plugin: Plugin) -> None:
    await plugin.make()
    ids = await asyncio.gather(*(plugin.write(f"Memory number {n}.") for n in range(40)))
    rows = await plugin.found(limit=100)
    assert {row["id"] for row in rows} == set(ids)
    assert len({row["id"] for row in await plugin.found(query="memory", limit=100)}) == 40


async def test_pins_come_first_and_then_the_newest(plugin: Plugin) -> None:
    await plugin.make()
    other = await plugin.make(plugin.space + "-2")
    for text, pin, name in (
        ("one", True, ""), ("two", False, other), ("three", True, other), ("four", False, ""),
    ):  # fmt: skip
        await plugin.write(text, name, pin=pin)
    assert await plugin.texts(plugin.space, other) == ["three", "one", "four", "two"]
    assert await plugin.texts(plugin.space, other, plugin.space, limit=3) == [
        "three", "one", "four"
    ]  # fmt: skip


async def test_searches_narrow_by_namespace_kind_and_limit(plugin: Plugin) -> None:
    other = await plugin.make(plugin.space + "-2")
    await plugin.make()
    for number in range(25):
        kind = "summary" if number % 2 else "fact"
        await plugin.write(f"Kettle number {number}.", kind=kind)
    await plugin.write("A kettle elsewhere.", other, kind="checkpoint")
    assert len(await plugin.found()) == len(await plugin.found(limit=0)) == 20
    assert len(await plugin.found(query="kettle")) == 20
    assert len(await plugin.found(query="kettle", limit=3)) == 3
    assert len(await plugin.found(query="kettle", kinds=["summary"], limit=100)) == 12
    assert len(await plugin.found(query="kettle", kinds=["summary"], limit=12)) == 12
    assert len(await plugin.found(kinds=["summary", "fact"], limit=100)) == 25
    assert await plugin.found(kinds=["checkpoint"]) == []
    both = await plugin.found(plugin.space, other, query="kettle elsewhere", limit=100)
    assert both[0]["namespace"] == other
    assert len(both) == 26
    assert await plugin.found("workspace:unknown", query="kettle") == []


async def test_many_namespaces_are_searched_and_no_other(plugin: Plugin) -> None:
    names = [await plugin.make(f"{plugin.space}-{number}") for number in range(17)]
    outside = await plugin.make(f"{plugin.space}-outside")
    for number, name in enumerate(names[:8]):
        await plugin.write(f"Kettle {number}.", name, pin=number == 3)
    await plugin.write("Kettle, kettle, kettle!", outside, pin=True)
    everything = [row["namespace"] for row in await plugin.found(*names, limit=100)]
    assert everything == [names[3], *reversed(names[4:8]), *names[2::-1]]
    found = await plugin.found(*names, query="kettle", limit=100)
    assert {row["namespace"] for row in found} == set(names[:8])
    assert len(await plugin.found(*names, query="kettle", limit=5)) == 5
    pinned_then_best = ["Kettle 3.", "Kettle 7."]
    assert await plugin.texts(*names, query="kettle 7", limit=2) == pinned_then_best
    assert len(await plugin.found(*names, outside, limit=100)) == 9


async def test_expired_memories_and_namespaces_are_not_returned(plugin: Plugin) -> None:
    asked: dict[str, Any]
    await plugin.make()
    identity = await plugin.write("Gone already.", expires_at="2020-01-01T00:00:00Z")
    ends = soon(1.5)
    await plugin.write("Gone soon.", expires_at=ends)
    await plugin.write("Stays.", expires_at=soon(9999))
    listed = await plugin.texts()
    assert listed == ["Stays.", "Gone soon."] or soon(0) >= ends  # of a machine that is busy
    while soon(0) < ends:
        await asyncio.sleep(0.05)
    for asked in ({}, {"query": "gone soon already stays"}, {"cursor": ""}):
        assert await plugin.texts(**asked) == ["Stays."]
    assert await plugin.found(ids=[identity]) == []
    forget = {"requested_by_namespace": plugin.space}
    await plugin.refused(404, "not_found", "DELETE", f"/memories/{identity}", forget)
    assert await plugin.write("Back.", id=identity) == identity
    assert sorted(await plugin.texts()) == ["Back.", "Stays."]
    await plugin.make(expires_at="2020-01-01T00:00:00Z")
    for asked in ({}, {"query": "stays"}, {"cursor": ""}, {"ids": [identity]}):
        assert await plugin.found(**asked) == []
    await plugin.make()
    assert sorted(await plugin.texts()) == ["Back.", "Stays."]


async def test_forgetting_asks_whose_memory_it_is(plugin: Plugin) -> None:
    await plugin.make()
    identity = await plugin.write("Mine.")
    path, own = f"/memories/{identity}", {"requested_by_namespace": plugin.space}
    stranger = {"requested_by_namespace": "workspace:stranger"}
    await plugin.refused(403, "forbidden", "DELETE", path, stranger)
    assert len(await plugin.found()) == 1
    gone = await plugin.call("DELETE", path, own)
    assert (gone.status_code, gone.content) == (204, b"")
    assert await plugin.found() == []
    await plugin.refused(404, "not_found", "DELETE", path, own)
    await plugin.refused(404, "not_found", "DELETE", f"/memories/{NOBODY}", own)
    for wrong in ({}, {"requested_by_namespace": ""}, {"requested_by_namespace": "Nope"}):
        await plugin.refused(400, "bad_request", "DELETE", path, wrong)


async def test_a_namespace_goes_with_its_memories(plugin: Plugin) -> None:
    await plugin.make()
    other = await plugin.make(plugin.space + "-2")
    for number in range(5):
        await plugin.write(f"Number {number}.")
    await plugin.write("Elsewhere.", other)
    gone = await plugin.call("DELETE", f"/namespaces/{plugin.space}")
    assert (gone.status_code, gone.content) == (204, b"")
    await plugin.refused(404, "not_found", "DELETE", f"/namespaces/{plugin.space}", None)
    await plugin.refused(404, "not_found", "POST", f"/namespaces/{plugin.space}/memories", MEMORY)
    await plugin.make()
    assert await plugin.texts(plugin.space, other) == ["Elsewhere."]


@pytest.mark.parametrize(
    "name",
    ["team:ops", "org:acme", "org:local", "user:ana", "x:y", "workspace:a:b", "workspace:a%3Ab",
     "custom:" + "n" * 249, "workspace::E6:9D:B1.x-_", "workspace:."],
)  # fmt: skip
async def test_namespaces_of_every_shape_stay_apart(plugin: Plugin, name: str) -> None:
    space = name.replace("%3A", ":3A")
    await plugin.make()
    await plugin.write("In another.")
    await plugin.make(space)
    identity = await plugin.write("In this one.", space)
    assert [row["namespace"] for row in await plugin.found(space)] == [space]
    assert await plugin.texts(space, query="one") == ["In this one."]
    assert await plugin.texts() == ["In another."]
    own = {"requested_by_namespace": space}
    assert (await plugin.call("DELETE", f"/memories/{identity}", own)).status_code == 204
    assert (await plugin.call("DELETE", f"/namespaces/{space}")).status_code == 204
    assert await plugin.texts() == ["In another."]


async def test_a_cursor_lists_everything_once(plugin: Plugin) -> None:
    await plugin.make()
    other = await plugin.make(plugin.space + "-2")
    for number in range(12):
        await plugin.write(f"Number {number}.", "" if number % 3 else other, pin=number == 5)
    names, seen = [plugin.space, other], []
    cursor: str | None = ""
    while cursor is not None:
        asked = {"namespaces": names, "cursor": cursor, "limit": 5}
        page = (await plugin.call("POST", "/search", asked)).json()
        assert len(page["memories"]) <= 5
        seen += [row["content"] for row in page["memories"]]
        cursor = page.get("next_cursor")
    assert seen == [f"Number {n}." for n in range(12)]
    for wrong in ('{"cursor": "nonsense"}', '{"cursor": "", "query": "x"}', '{"ids": ["x"]}'):
        body = {"namespaces": names} | json.loads(wrong)
        await plugin.refused(400, "bad_request", "POST", "/search", body)


async def test_ids_are_looked_up_in_the_namespaces_asked_for(plugin: Plugin) -> None:
    await plugin.make()
    one, _, three = [await plugin.write(f"Number {number}.") for number in range(3)]
    found = await plugin.found(ids=[three, NOBODY, one, three], limit=1)
    assert {row["id"] for row in found} == {one, three}
    assert await plugin.found("workspace:another", ids=[one]) == []


BAD_MEMORIES: list[dict[str, Any]] = [
    {"content": ""}, {"content": None}, {"content": 7}, {"content": "a\0b"}, {"content": "  "},
    {"kind": "poem"}, {"kind": None}, {"source": "robot"}, {"id": "not-a-uuid"}, {"id": ""},
    {"id": 7}, {"id": "{" + NOBODY + "}"}, {"pin": "yes"}, {"pin": 1}, {"propagation": []},
    {"propagation": "x"}, {"propagation": {"a": "\0"}}, {"expires_at": ""},
    {"expires_at": 1790000000}, {"expires_at": "2030-01-01T00:00:00"},
    {"expires_at": "0001-01-01T00:00:00+23:59"}, {"expires_at": "2030-02-30T00:00:00Z"},
    {"embedding": "x"}, {"embedding": ["x"]},
]  # fmt: skip
BAD_SEARCHES: list[dict[str, Any]] = [
    {"namespaces": []}, {"namespaces": None}, {"namespaces": "a:b"}, {"namespaces": ["A:b"]},
    {"namespaces": [None]}, {"limit": 101}, {"limit": -1}, {"limit": 1.5}, {"limit": "5"},
    {"limit": True}, {"kinds": ["poem"]}, {"kinds": "fact"}, {"query": 5}, {"query": "\0"},
]  # fmt: skip
BAD_NAMESPACES: list[dict[str, Any]] = [
    {}, {"kind": "galaxy"}, {"kind": None}, {"kind": "team", "metadata": [1]},
    {"kind": "team", "expires_at": "soon"}, {"kind": "team", "expires_at": ""},
]  # fmt: skip
BAD_NAMES = (
    "web", "Web:x", "web:", ":x", "web:a b", "web:ü", "x:" + "y" * 255, "web%2Fx:y", "a:b%0A",
)  # fmt: skip
MALFORMED: list[tuple[str, dict[str, Any]]] = [
    ("POST /namespaces/{space}/memories", {}),
    *(("POST /namespaces/{space}/memories", MEMORY | wrong) for wrong in BAD_MEMORIES),
    *(("POST /search", {"namespaces": ["a:b"]} | wrong) for wrong in BAD_SEARCHES),
    *(("PUT /namespaces/{space}", wrong) for wrong in BAD_NAMESPACES),
    *((f"PUT /namespaces/{name}", {"kind": "team"}) for name in BAD_NAMES),
    ("DELETE /memories/not-a-uuid", {"requested_by_namespace": "a:b"}),
]


@ON_VAULT
async def test_a_callers_mistake_is_a_bad_request_and_changes_nothing(plugin: Plugin) -> None:
    await plugin.make()
    for line, body in MALFORMED:
        method, path = line.format(space=plugin.space).split(" ", 1)
        await plugin.refused(400, "bad_request", method, path, body)
    for content, kind in (
        (b"{", "application/json"), (b"", "application/json"), (b"[]", "application/json"),
        (b"\xff", "application/json"), (b'{"a":1e999}', "application/json"),
        (b'{"namespaces":["a:b"]}', "text/plain"), (b"[" * 100_000, "application/json"),
        (b'{"namespaces":["a:b"],"query":"\\ud800"}', "application/json"),
    ):  # fmt: skip
        headers = {"Content-Type": kind}
        reply = await plugin.client.post("/v1/search", content=content, headers=headers)
        assert (reply.status_code, reply.json()["code"]) == (400, "bad_request"), content[:40]
    assert await plugin.found() == []


LARGE = json.dumps({"namespaces": ["a:b"], "query": "x" * MAX_BODY_BYTES}).encode()
TOO_LONG: list[tuple[str, dict[str, Any]]] = [
    ("POST /namespaces/{space}/memories", MEMORY | {"embedding": [0.5] * 20_000}),
    ("POST /search", {"namespaces": ["a:b"], "embedding": [0.5] * 20_000}),
    ("POST /search", {"namespaces": ["a:b"], "query": "x" * 20_000}),
    ("POST /search", {"namespaces": [f"a:{number}" for number in range(2_000)]}),
    ("POST /search", {"namespaces": ["a:b"], "kinds": ["poem"] * 100_000}),
    ("POST /search", {"namespaces": ["a:b"], "ids": [NOBODY] * 101}),
]


@ON_VAULT
async def test_what_is_too_large_is_a_bad_request(plugin: Plugin) -> None:
    await plugin.make()
    for line, body in TOO_LONG:
        method, path = line.format(space=plugin.space).split(" ", 1)
        await plugin.refused(400, "bad_request", method, path, body)
    for method, path in (
        ("PUT", "/namespaces/a:b"), ("PATCH", "/namespaces/a:b"), ("POST", "/search"),
        ("POST", "/namespaces/a:b/memories"), ("DELETE", f"/memories/{NOBODY}"),
    ):  # fmt: skip
        said = await plugin.refused(400, "bad_request", method, path, {"x": "y" * MAX_BODY_BYTES})
        assert f"{MAX_BODY_BYTES:,} bytes" in said


@ON_VAULT
@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_refusal_arrives_although_nobody_read_the_body(
    plugin: Plugin, address: str, kind: str, *, is_chunked: bool
) -> None:
    """A client that closes after the answer would else see a reset, and never learn why."""
    where = httpx.URL(address)
    reader, writer = await asyncio.open_connection(where.host, where.port)
    size = f"Content-Length: {len(LARGE)}"
    size = "Transfer-Encoding: chunked" if is_chunked else size
    head = f"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n{size}\r\n"
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(LARGE), LARGE) if is_chunked else LARGE
    writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
    await writer.drain()
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "bad_request"


@ON_VAULT
async def test_four_large_memories_at_once_stop_nobody(plugin: Plugin) -> None:
    """Stored whole or refused, and the provider's breaker never hears of it."""
    await plugin.make()
    large = {"words": ["a word and another"] * (MAX_BODY_BYTES // 50)}

    async def one() -> httpx.Response:
        path = f"/namespaces/{plugin.space}/memories"
        return await plugin.call("POST", path, MEMORY | {"propagation": large})

    writing = asyncio.gather(*(one() for _ in range(4)))
    assert await plugin.found("a:b") == []
    replies = await writing
    stored = [reply.json()["id"] for reply in replies if reply.status_code == 201]
    assert {reply.status_code for reply in replies} <= {201, 400}
    rows = await plugin.found()
    assert {row["id"] for row in rows} == set(stored)
    assert all(row["propagation"] == large for row in rows)


@ON_VAULT
async def test_other_addresses_and_methods(plugin: Plugin) -> None:
    await plugin.refused(404, "not_found", "GET", "/nothing", None)
    reply = await plugin.call("GET", "/search")
    assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
    reply = await plugin.client.get("/v1/health", headers={"Host": "evil.example"})
    assert (reply.status_code, reply.json()["code"]) == (403, "forbidden")


async def test_secrets_are_taken_out(plugin: Plugin) -> None:
    await plugin.make()
    secret = "ghp_" + "a1B2" * 8
    await plugin.write(
        f"Use {secret} here.", propagation={"note": secret, "API_KEY": "s3cr3tvalue"}
    )
    (row,) = await plugin.found()
    assert row["content"] == "Use [REDACTED:GITHUB_TOKEN] here."
    assert row["propagation"] == {
        "note": "[REDACTED:GITHUB_TOKEN]", "API_KEY": "[REDACTED:API_KEY]"
    }  # fmt: skip
