"""What a plugin's call is in memtui: operations, undo, roles, and memories made elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from memtui.backends.plugin_v1 import PluginAdapter
from memtui.channels.http.app import Served
from memtui.channels.http.plugin import plugin_app
from memtui.channels.http.plugin_binding import ANONYMOUS
from memtui.channels.listening import on_port
from memtui.config import Paths, load_settings
from memtui.contract import (
    BindingContext,
    Capabilities,
    Denied,
    Filter,
    Health,
    Invalid,
    NotFound,
    OperationType,
    Scope,
    SourceKind,
    SourceRef,
    Unsupported,
    WriteRequest,
)
from memtui.service import (
    Caller,
    MemoryService,
    ReviewRule,
    RuleAction,
    RuleTest,
    open_service,
)
from memtui.service.visibility import Membership, Role
from memtui.testing import InMemoryAdapter
from tests.migration.providers import BareAdapter
from tests.serving import make_server

MEMORY = {"content": "The kettle is red.", "kind": "fact", "source": "agent"}
WEB = "/v1/namespaces/workspace:web"
LIST = {"namespaces": ["workspace:web"]}
FORGET = {"requested_by_namespace": "workspace:web"}


class Later(InMemoryAdapter):
    key = "later"
    capabilities = Capabilities(browse=True, async_ingestion=True)


class Down(InMemoryAdapter):
    key = "down"

    async def health(self) -> Health:
        return Health(status="down", message="The disk is gone.")


@asynccontextmanager
async def serving(
    service: MemoryService, key: str = "default", principal: str = ANONYMOUS
) -> AsyncIterator[httpx.AsyncClient]:
    with on_port("127.0.0.1", 0) as listener:
        app = await plugin_app(
            Served(service, "local"), key, names=listener.names, principal=principal
        )
        server = make_server(app)
        running = asyncio.create_task(server.serve(sockets=[listener.socket]))
        try:
            async with httpx.AsyncClient(base_url=listener.url, timeout=30) as client:
                yield client
        finally:
            server.should_exit = True
            await running


async def forget(client: httpx.AsyncClient, memory_id: str, name: str = "workspace:web") -> int:
    path, body = f"/v1/memories/{memory_id}", {"requested_by_namespace": name}
    return (await client.request("DELETE", path, json=body)).status_code


async def listed(client: httpx.AsyncClient, *names: str) -> list[dict[str, Any]]:
    reply = await client.post("/v1/search", json={"namespaces": names or ["workspace:web"]})
    assert reply.status_code == 200, reply.text
    return list(reply.json()["memories"])


async def test_every_call_is_an_operation(service: MemoryService, caller: Caller) -> None:
    async with serving(service) as client:
        calls: list[tuple[str, str, object, int, list[tuple[str, str]]]] = [
            ("POST", f"{WEB}/memories", MEMORY, 404, [("get", "error")]),
            ("PUT", WEB, {"kind": "workspace"}, 200, [("configure", "ok")]),
            ("PATCH", WEB, {"metadata": {}}, 200, [("configure", "ok")]),
            ("PATCH", f"{WEB}-2", {"metadata": {}}, 404, [("configure", "error")]),
            ("POST", f"{WEB}/memories", MEMORY, 201, [("write", "ok")]),
            ("POST", "/v1/search", LIST, 200, [("browse", "ok")]),
            ("POST", "/v1/search", LIST | {"query": "kettle"}, 200, [("query", "ok")]),
            ("DELETE", WEB, None, 204, [("browse", "ok"), ("forget", "ok"), ("browse", "ok"),
                                        ("configure", "ok"), ("browse", "ok")]),
            ("DELETE", WEB, None, 404, [("configure", "error")]),
        ]  # fmt: skip
        seq = (await service.log.page(caller)).operations[0].seq
        for method, path, body, status, expected in calls:
            more: dict[str, Any] = {} if body is None else {"json": body}
            assert (await client.request(method, path, **more)).status_code == status
            page = await service.log.page(caller, Filter(channel="plugin"), after=seq)
            made = sorted(page.operations, key=lambda one: one.seq)
            told = [(str(one.operation_type), str(one.status)) for one in made]
            assert told == expected, (method, path)
            assert {one.principal for one in made} == {"plugin:anonymous"}
            assert {one.binding_key for one in made} == {"default"}
            seq = made[-1].seq


async def test_what_the_plugin_does_can_be_undone(service: MemoryService, caller: Caller) -> None:
    async with serving(service) as client:
        await client.put(WEB, json={"kind": "workspace"})
        body = MEMORY | {"propagation": {"a": 1}, "kind": "summary", "pin": True}
        written = (await client.post(f"{WEB}/memories", json=body)).json()["id"]
        before = await listed(client)
        await client.post(f"{WEB}/memories", json=body | {"id": written, "content": "Blue."})
        await service.undo(caller)
        assert await listed(client) == before
        assert await forget(client, written) == 204
        await service.undo(caller)
        assert await listed(client) == before
        await client.delete(WEB)
        chosen = Filter(operation_type=OperationType.FORGET)
        newest = (await service.log.page(caller, chosen)).operations[0]
        await service.undo(caller, newest.operation_id)
        assert await listed(client) == before
        assert await forget(client, written) == 204


async def test_what_a_client_asks_is_held_for_review(
    service: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    async with serving(service) as client:
        await client.put(WEB, json={"kind": "workspace"})
        kept = (await client.post(f"{WEB}/memories", json=MEMORY)).json()["id"]
        await service.review.add_rule(caller, "default", rule)
        written = await client.post(f"{WEB}/memories", json=MEMORY | {"content": "It is blue."})
        replaced = await client.post(f"{WEB}/memories", json=MEMORY | {"id": kept, "kind": "fact"})
        assert (written.status_code, written.json()["status"]) == (202, "pending")
        assert replaced.status_code == 202
        assert await forget(client, kept) == 202
        assert (await client.delete(WEB)).status_code == 403
        [there] = await listed(client)
        assert (there["id"], there["content"]) == (kept, MEMORY["content"])
        await service.review.accept(caller, written.json()["pending_id"])
        assert written.json()["id"] in {one["id"] for one in await listed(client)}

        adapter = await PluginAdapter.open(
            BindingContext(
                company_id="local",
                binding_key="remote",
                config={"url": str(client.base_url)},
                data_dir=tmp_path,
            )
        )
        request = WriteRequest(
            scope=Scope(company_id="local", project_id="web"),
            source=SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local"),
            content="It is green.",
        )
        with pytest.raises(Denied, match="holds the change for review"):
            await adapter.write(request)
        await adapter.close()


async def test_memories_made_elsewhere_are_served(service: MemoryService, caller: Caller) -> None:
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
    for scope, text in (
        ({"project_id": "web", "agent_id": "coding"}, "The project's."),
        ({"agent_id": "coding"}, "The agent's."),
        ({"subject_id": "ana"}, "Ana's."),
        ({}, "The company's."),
    ):
        request = WriteRequest(
            scope=Scope(company_id="local", **scope), source=source, content=text
        )
        await service.write(caller, request)
    async with serving(service) as client:
        names = ["workspace:web", "team:coding", "user:ana", "org:local"]
        texts = ["The project's.", "The agent's.", "Ana's.", "The company's."]
        for name, text in zip(names, texts, strict=True):
            (row,) = await listed(client, name)
            assert (row["namespace"], row["content"]) == (name, text)
            assert (row["kind"], row["source"], row["pin"]) == ("fact", "user", False)
        both = await listed(client, *names)
        assert [row["content"] for row in both] == texts[::-1]
        assert await listed(client, *names) == both
        assert await listed(client, *names, *(f"x:{n}" for n in range(30))) == both
        assert await forget(client, both[0]["id"], "org:local") == 204
        await client.put(WEB, json={"kind": "workspace"})
        changed = MEMORY | {"id": both[3]["id"], "content": "Changed."}
        assert (await client.post(f"{WEB}/memories", json=changed)).status_code == 201
        (row,) = await listed(client)
        assert (row["id"], row["content"]) == (both[3]["id"], "Changed.")
        assert row["created_at"] == both[3]["created_at"]
        assert [row["content"] for row in await listed(client, *names)] == [
            "Ana's.", "The agent's.", "Changed."
        ]  # fmt: skip


async def test_a_note_in_a_forgotten_ones_place_is_another_memory(
    service: MemoryService, caller: Caller
) -> None:
    async with serving(service) as client:
        await client.put(WEB, json={"kind": "workspace"})
        first = (await client.post(f"{WEB}/memories", json=MEMORY)).json()["id"]
        assert await forget(client, first) == 204
        second = (await client.post(f"{WEB}/memories", json=MEMORY)).json()["id"]
        assert await forget(client, first) == 404
        assert [row["id"] for row in await listed(client)] == [second]


async def test_a_copied_note_is_a_memory_of_its_own(service: MemoryService, paths: Paths) -> None:
    async with serving(service) as client:
        await client.put(WEB, json={"kind": "workspace"})
        own = (await client.post(f"{WEB}/memories", json=MEMORY)).json()["id"]
        (note,) = paths.data.rglob("projects/web/memory/*.md")
        (note.parent / "copy.md").write_text(note.read_text())
        await service.sync(Caller(company_id="local", principal="user:ana", channel="test"))
        rows = await listed(client)
        assert len({row["id"] for row in rows}) == 2
        assert own in {row["id"] for row in rows}
        other = next(row["id"] for row in rows if row["id"] != own)
        assert await forget(client, other) == 204
        assert [row["id"] for row in await listed(client)] == [own]


async def test_a_provider_without_metadata_loses_nothing(
    paths: Paths, caller: Caller, tmp_path: Path
) -> None:
    opened = await open_service(paths, load_settings(paths), providers={"bare": BareAdapter})
    try:
        await opened.bindings.add(caller, "bare", "bare", {})
        async with serving(opened, "bare") as client:
            await client.put(WEB, json={"kind": "workspace"})
            body = MEMORY | {"propagation": {"a": [None]}, "kind": "summary", "source": "user"}
            written = (await client.post(f"{WEB}/memories", json=body)).json()["id"]
            (row,) = await listed(client)
            assert {name: row[name] for name in body} == body
            replaced = body | {"id": written, "content": "Blue.", "kind": "fact"}
            assert (await client.post(f"{WEB}/memories", json=replaced)).status_code == 201
            (row,) = await listed(client)
            assert {name: row[name] for name in replaced} == replaced
            health = (await client.get("/v1/health")).json()
            assert health["capabilities"] == ["fts", "propagation"]
            for lost in ({"pin": True}, {"expires_at": "2099-01-01T00:00:00Z"}):
                reply = await client.post(f"{WEB}/memories", json=MEMORY | lost)
                assert (reply.status_code, reply.json()["code"]) == (400, "bad_request")
    finally:
        await opened.close()


async def test_a_namespace_goes_with_what_had_expired_in_it(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    past, web = {"expires_at": "2020-01-01T00:00:00Z"}, paths.data / "bindings"
    async with serving(service) as client:
        for name in (WEB, "/v1/namespaces/org:local", "/v1/namespaces/workspace:other"):
            await client.put(name, json={"kind": "custom"})
            for more in ({}, past):
                reply = await client.post(f"{name}/memories", json=MEMORY | more)
                assert reply.status_code == 201
        assert len(list(web.rglob("*.md"))) == 6
        assert (await client.delete(WEB)).status_code == 204
        assert len(list(web.rglob("*.md"))) == 4
        assert not list(web.rglob("*/web/**/*.md"))
        assert (await client.delete("/v1/namespaces/org:local")).status_code == 204
        assert len(list(web.rglob("*.md"))) == 2
        assert len(await listed(client, "workspace:other")) == 1


async def test_namespaces_are_named_as_the_binding_says(
    service: MemoryService, caller: Caller
) -> None:
    named = {"project": "workspace:acme-{project_id}", "company": "custom:all"}
    await service.bindings.add(caller, "acme", "vault", {"templates": named})
    spaces = {
        "workspace:acme-web": {"project_id": "web"},
        "team:ops": {"agent_id": "ops"},
        "custom:all": {},
        "workspace:web": {"subject_id": "workspace:web"},
        "org:acme": {"subject_id": "org:acme"},
    }
    async with serving(service, "acme") as client:
        for name, ids in spaces.items():
            await client.put(f"/v1/namespaces/{name}", json={"kind": "custom"})
            memory = MEMORY | {"content": f"In {name}."}
            assert (await client.post(f"/v1/namespaces/{name}/memories", json=memory)).is_success
            page = await service.log.page(caller, Filter(operation_type=OperationType.WRITE))
            assert page.operations[0].scope == Scope(company_id="local", **ids)
        for name in spaces:
            assert [row["content"] for row in await listed(client, name)] == [f"In {name}."]
    await service.bindings.add(caller, "wrong", "vault", {"templates": {"project": "workspace:x"}})
    with pytest.raises(
        Invalid, match="The templates of the binding wrong do not fit: the template"
    ):
        await plugin_app(Served(service, "local"), "wrong", names=None)


async def test_a_provider_that_takes_one_scope_a_call_is_asked_for_each(
    paths: Paths, caller: Caller
) -> None:
    opened = await open_service(paths, load_settings(paths), providers={"memory": InMemoryAdapter})
    names = ["workspace:a", "user:b", "org:local"]
    try:
        await opened.bindings.add(caller, "memory", "memory", {})
        async with serving(opened, "memory") as client:
            for name in (*names, "workspace:outside"):
                await client.put(f"/v1/namespaces/{name}", json={"kind": "custom"})
                await client.post(f"/v1/namespaces/{name}/memories", json=MEMORY)
            assert {row["namespace"] for row in await listed(client, *names)} == set(names)
            asked = {"namespaces": names, "query": "kettle"}
            found = (await client.post("/v1/search", json=asked)).json()["memories"]
            assert sorted(row["namespace"] for row in found) == sorted(names)
    finally:
        await opened.close()


async def test_roles_and_read_only_are_forbidden(service: MemoryService, caller: Caller) -> None:
    async with serving(service) as client:
        await client.put(WEB, json={"kind": "workspace"})
        member = Membership(principal="user:ana", role=Role.OWNER)
        await service.members.set(caller, member)
        for reply in (
            await client.post("/v1/search", json=LIST),
            await client.post(f"{WEB}/memories", json=MEMORY),
            await client.put(WEB, json={"kind": "team"}),
        ):
            assert (reply.status_code, reply.json()["code"]) == (403, "forbidden")
    async with serving(service, principal="user:ana") as client:
        assert (await client.post(f"{WEB}/memories", json=MEMORY)).status_code == 201
        await service.bindings.update(caller, "default", read_only=True)
        reply = await client.post(f"{WEB}/memories", json=MEMORY)
        assert (reply.status_code, reply.json()["code"]) == (403, "forbidden")
        assert (await client.put(WEB, json={"kind": "team"})).status_code == 403
        assert len(await listed(client)) == 1
        assert (await client.get("/v1/health")).json()["status"] == "degraded"


async def test_what_cannot_be_served(paths: Paths, caller: Caller) -> None:
    providers = {"later": Later, "down": Down}
    opened = await open_service(paths, load_settings(paths), providers=providers)
    try:
        await opened.bindings.add(caller, "later", "later", {})
        await opened.bindings.add(caller, "down", "down", {})
        with pytest.raises(Unsupported, match="at once"):
            await plugin_app(Served(opened, "local"), "later", names=None)
        with pytest.raises(NotFound):
            await plugin_app(Served(opened, "local"), "nothing", names=None)
        async with serving(opened, "down") as client:
            reply = await client.get("/v1/health")
            assert (reply.status_code, reply.json()["code"]) == (503, "unavailable")
            assert "The disk is gone." in reply.json()["message"]
    finally:
        await opened.close()
