"""EnterOS's memories are read as they lie in its database, and moved to a memory plugin."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from memtui.backends.enteros import EnterosAdapter
from memtui.config import Paths, load_settings
from memtui.contract import (
    Adapter,
    BrowseRequest,
    Denied,
    Filter,
    Invalid,
    QueryRequest,
    Record,
    Scope,
    SourceKind,
    SourceRef,
    Unsupported,
    WriteRequest,
    owner_of,
)
from memtui.migration.endpoints import Endpoints, ScopePart, open_endpoints
from memtui.migration.moving import apply
from memtui.migration.planning import plan
from memtui.migration.verifying import verify
from memtui.service import Caller, MemoryService, open_service
from memtui.testing import AdapterContract
from tests.backends.plugin_v1.servers.loopback import serve, talk
from tests.backends.plugin_v1.servers.reference import Reference
from tests.backends.tables.kit import (
    COMPANY,
    OTHER,
    ROOT,
    TEAM,
    WORKER,
    context,
    enteros,
    memory_id,
    put_memory,
    put_workspace,
    stored,
)
from tests.channels.http.plugin_server import VAULT, plugin_over

SCOPES = ("LOCAL", "TEAM", "GLOBAL")


class TestEnteros(AdapterContract):
    capabilities = EnterosAdapter.capabilities

    @pytest.fixture(autouse=True)
    def _tables(self, postgres_url: str) -> None:
        with enteros(postgres_url):
            pass
        self._url = postgres_url

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        return await EnterosAdapter.open(self.context(tmp_path, url=self._url))


async def everything(adapter: Adapter, **asked: Any) -> list[Record]:
    request = BrowseRequest(scope=COMPANY, sort="created_at", **asked)
    return list((await adapter.browse(request)).records)


def fill(connection: psycopg.Connection[Any]) -> None:
    """Add a memory of each scope to each workspace, in order."""
    places = [(name, scope) for name in (ROOT, TEAM, WORKER, OTHER) for scope in SCOPES]
    for number, (name, scope) in enumerate(places):
        put_memory(connection, number, name, scope)


NAMESPACES = [
    f"workspace:{ROOT}", f"team:{ROOT}", f"org:{ROOT}",
    f"workspace:{TEAM}", f"team:{ROOT}", f"org:{ROOT}",
    f"workspace:{WORKER}", f"team:{TEAM}", f"org:{ROOT}",
    f"workspace:{OTHER}", f"team:{OTHER}", f"org:{OTHER}",
]  # fmt: skip
"""Where the server of EnterOS writes the memories of `fill`."""


@pytest.mark.parametrize("old", [False, True])
async def test_a_memory_is_where_the_server_writes_it(
    tmp_path: Path, postgres_url: str, *, old: bool
) -> None:
    with enteros(postgres_url, old=old) as connection:
        fill(connection)
    before = stored(postgres_url, "agent_memories"), stored(postgres_url, "workspaces")
    adapter = await EnterosAdapter.open(context(tmp_path, url=postgres_url))
    records = await everything(adapter)
    ids = [one.handle.provider_record_id for one in records]
    assert ids == [f"{name}/{memory_id(n)}" for n, name in enumerate(NAMESPACES)]
    assert [(one.scope.project_id, one.scope.agent_id) for one in records[6:9]] == [
        (WORKER, None), (None, TEAM), (None, None),
    ]  # fmt: skip
    first = records[0]
    assert first.created_at == datetime(2024, 1, 1, 12, tzinfo=UTC)
    assert (first.topic, first.metadata) == (None if old else "general", {})
    assert first.created_by == f"agent:{ROOT}"
    found = await adapter.query(QueryRequest(scope=COMPANY, query="memory 7", top_k=1))
    assert found.snippets[0].handle == records[7].handle
    assert await adapter.get(records[7].handle, Scope(company_id="acme", agent_id=TEAM))
    assert await adapter.get(records[7].handle, Scope(company_id="acme", agent_id=ROOT)) is None
    await adapter.close()
    assert (stored(postgres_url, "agent_memories"), stored(postgres_url, "workspaces")) == before


async def test_a_place_that_cannot_be_told_is_not_guessed(
    tmp_path: Path, postgres_url: str
) -> None:
    gone = "00000000-0000-4000-8000-0000000000ff"
    with enteros(postgres_url) as connection:
        fill(connection)
        put_workspace(connection, ROOT, TEAM)
        put_workspace(connection, OTHER, gone)
        adapter = await EnterosAdapter.open(context(tmp_path, url=postgres_url))
        records = await everything(adapter)
        assert [one.problem is None for one in records] == [True, False, False] * 4
        circle, missing = records[8], records[11]
        connection.execute("ALTER TABLE agent_memories ALTER workspace_id DROP NOT NULL")
        connection.execute("INSERT INTO agent_memories (content, scope) VALUES ('?', 'LOCAL')")
        [lone] = [one for one in await everything(adapter) if one.text == "?"]
        assert lone.problem == "The owner of this memory is unknown: it names no workspace."
        assert owner_of(lone.scope) == ("subject_id", "nobody")
        connection.execute("DELETE FROM agent_memories WHERE content = '?'")
        assert (circle.text, circle.scope.project_id) == ("Memory 8", WORKER)
        assert circle.handle.provider_record_id == memory_id(8)
        assert circle.problem == (
            f"The owner of this memory is unknown: the workspaces above it form a circle at {TEAM}."
        )
        assert missing.problem == (
            f"The owner of this memory is unknown: there is no workspace {gone}."
        )
        chain = [f"00000000-0000-4000-8000-000000001{n:03}" for n in range(60)]
        for name, parent in zip(chain, [None, *chain], strict=False):
            put_workspace(connection, name, parent)
        put_workspace(connection, ROOT, chain[-1])
        records = await everything(adapter)
        assert "more than 50 workspaces" in str(records[2].problem)
        put_workspace(connection, ROOT, None)
        put_workspace(connection, OTHER, None)
        records = await everything(adapter)  # the tree changed, the memories did not
        ids = [one.handle.provider_record_id for one in records]
        assert ids == [f"{name}/{memory_id(n)}" for n, name in enumerate(NAMESPACES)]
        await adapter.close()


async def test_workspaces_can_be_chosen_and_vectors_are_counted(
    tmp_path: Path, postgres_url: str
) -> None:
    with enteros(postgres_url) as connection:
        fill(connection)
        vector = "[" + ",".join(["0.1"] * 1536) + "]"
        connection.execute(
            "UPDATE agent_memories SET embedding = %s::vector, namespace = 'deploys' "
            "WHERE workspace_id = %s",
            (vector, WORKER),
        )
    adapter = await EnterosAdapter.open(
        context(tmp_path, url=postgres_url, workspaces=[WORKER, OTHER])
    )
    records = await everything(adapter)
    assert [one.text for one in records] == [f"Memory {n}" for n in range(6, 12)]
    assert len(await everything(adapter, filter=Filter(topic="deploys"))) == 3
    page = await adapter.browse(BrowseRequest(scope=COMPANY))
    told = "EnterOS has a vector of 3 memories. memtui reads no vectors: a binding that embeds "
    assert page.unread == (f"{told}makes its own.",)
    assert not page.at_least
    assert (await adapter.health()).message == page.unread[0]
    assert "0.1" not in repr(page)
    with pytest.raises(Unsupported, match="only reads the table agent_memories"):
        await adapter.write(
            WriteRequest(scope=COMPANY, source=SourceRef(
                kind=SourceKind.MANUAL_NOTE, company_id="acme"), content="no")
        )  # fmt: skip
    await adapter.close()
    unknown = await EnterosAdapter.open(context(tmp_path, url=postgres_url, workspaces=["w"]))
    with pytest.raises(Invalid, match="There is no workspace w"):
        await everything(unknown)
    await unknown.close()


async def test_other_tables_are_refused(tmp_path: Path, postgres_url: str) -> None:
    with enteros(postgres_url) as connection:
        connection.execute("ALTER TABLE workspaces RENAME TO others")
        adapter = await EnterosAdapter.open(context(tmp_path, url=postgres_url))
        with pytest.raises(Invalid, match="no table workspaces"):
            await everything(adapter)
        await adapter.close()
        connection.execute("ALTER TABLE agent_memories RENAME COLUMN scope TO reach")
        with pytest.raises(Invalid, match="no column scope"):
            await EnterosAdapter.open(context(tmp_path, url=postgres_url))


ORGS = [f"org:{ROOT}", f"org:{OTHER}"]


async def ends(
    service: MemoryService, caller: Caller, url: str, plugin: str, **settings: Any
) -> Endpoints:
    await service.bindings.add(caller, "old", "enteros", {"url": url})
    config = {"url": plugin, "namespaces": ORGS, **settings}
    await service.bindings.add(caller, "new", "plugin-v1", config)
    return await open_endpoints(service, caller, "old", "new")


async def test_migrate_does_what_the_backfill_does(
    paths: Paths, caller: Caller, postgres_url: str
) -> None:
    with enteros(postgres_url) as connection:
        fill(connection)
    before = stored(postgres_url, "agent_memories")
    reference = Reference()
    settings = load_settings(paths)
    service = await open_service(paths, settings)
    async with serve(talk(reference)) as url:
        there = await ends(service, caller, postgres_url, url)
        planned = await plan(there, settings)
        places = {one.place: one.records for one in planned.scopes}
        assert places == {name: NAMESPACES.count(name) for name in NAMESPACES}
        assert reference.rows == {}
        first = await apply(there, paths.data, limit=5)
        assert (first.written, first.limited, first.complete) == (5, True, False)
        assert not (await verify(there, paths.data)).passed
        then = await apply(there, paths.data, limit=7)
        assert (then.written, then.unchanged, then.limited) == (7, 5, False)
        rows = sorted(reference.rows.values(), key=lambda row: row["id"])
        assert [(one["id"], one["namespace"]) for one in rows] == [
            (memory_id(n), name) for n, name in enumerate(NAMESPACES)
        ]
        assert {(one["kind"], one["source"]) for one in rows} == {("fact", "agent")}
        own = rows[0]["propagation"]["memtui"]
        assert own["created_at"].startswith("2024-01-01T12:00:00")
        assert own["topic"] == "general"
        assert (await apply(there, paths.data)).unchanged == 12
        assert (await verify(there, paths.data, sample=4)).checked == 4
        assert (await verify(there, paths.data)).passed
        with psycopg.connect(postgres_url) as changing:
            changing.execute(
                "UPDATE agent_memories SET content = 'Changed' WHERE id = %s", (memory_id(2),)
            )
        assert (await verify(there, paths.data)).different == 1
        again = await apply(there, paths.data)
        assert (again.replaced, again.failed) == (1, 0)
        assert reference.rows[memory_id(2)]["content"] == "Changed"
        assert (await verify(there, paths.data)).passed
        with pytest.raises(Denied):
            await service.write(caller, WriteRequest(
                scope=Scope(company_id="local"), content="no", binding_key="old",
                source=SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local"),
            ))  # fmt: skip
    await service.close()
    after = stored(postgres_url, "agent_memories")
    assert [one for one in after if memory_id(2) not in one[0]] == [
        one for one in before if memory_id(2) not in one[0]
    ]


async def test_one_workspace_goes_into_a_plugin_of_ours_and_an_org_is_never_mistaken(
    paths: Paths, caller: Caller, postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with enteros(postgres_url) as connection:
        fill(connection)
    settings = load_settings(paths)
    service = await open_service(paths, settings)
    with plugin_over(tmp_path_factory.mktemp("plugin"), *VAULT) as url:
        there = await ends(service, caller, postgres_url, url, namespaces=[])
        planned = await plan(there, settings)
        assert planned.refused == 4
        assert planned.refusals[0].reason == (
            f"The record belongs to org:{ROOT}, which the binding does not name; add it to its "
            "namespaces."
        )
        done = await apply(there, paths.data)
        assert (done.written, done.failed) == (8, 4)
        assert done.failures[0].reason == planned.refusals[0].reason
        await service.bindings.update(caller, "new", config={"url": url, "namespaces": ORGS})
        part = ScopePart(project_id=WORKER)
        one = await open_endpoints(service, caller, "old", "new", part)
        assert (await apply(one, paths.data)).unchanged == 1
        there = await open_endpoints(service, caller, "old", "new")
        assert (await apply(there, paths.data)).written == 4
        assert (await verify(there, paths.data)).passed
        asked = BrowseRequest(scope=Scope(company_id="local"), binding_key="new", limit=100)
        page = await service.browse(caller, asked)
        ids = sorted(one.handle.provider_record_id for one in page.records)
        assert ids == sorted(f"{name}/{memory_id(n)}" for n, name in enumerate(NAMESPACES))
    await service.close()
