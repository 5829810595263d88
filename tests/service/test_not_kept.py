"""What a provider has no place for is named at the write, and read from the log afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from memtui.backends.plugin_v1 import PluginAdapter
from memtui.backends.vault import VaultAdapter
from memtui.channels.mcp import tools
from memtui.config import Paths, Settings
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    ForgetRequest,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.migration.endpoints import open_endpoints
from memtui.migration.moving import apply
from memtui.migration.planning import plan
from memtui.screens import editing
from memtui.service import Caller, MemoryService, open_service
from memtui.service.answers import MutationAnswer
from tests.backends.plugin_v1.servers.loopback import serve, talk
from tests.backends.plugin_v1.servers.minimal import Minimal

SCOPE = Scope(company_id="local", project_id="web")
CALLER = Caller(company_id="local", principal="user:ana", channel="test")
SOURCE = SourceRef(
    kind=SourceKind.ISSUE_COMMENT, company_id="local", issue_id="I-1", comment_id="c-1"
)
KEPT = WriteRequest(
    scope=SCOPE, source=SOURCE, content="Second.", binding_key="default", tags=("a",), topic="t",
    title="T", metadata={"a": "b"}, summary="S", pinned=True,
)  # fmt: skip
GIVEN = {"title": "Ports", "topic": "build", "tags": ("ci", "port"), "metadata": {"build": "7"}}


@pytest.fixture(params=[("fts",), ()])
def server(request: pytest.FixtureRequest) -> Minimal:
    return Minimal(*request.param)


@pytest_asyncio.fixture
async def service(
    server: Minimal, paths: Paths, settings: Settings
) -> AsyncIterator[MemoryService]:
    """A service over a plugin that keeps texts alone."""
    providers = {one.key: one for one in (PluginAdapter, VaultAdapter)}
    async with serve(talk(server)) as url:
        config = {"url": url, "namespaces": ["workspace:web"]}
        opened = await open_service(paths, settings, providers=providers)
        await opened.bindings.add(CALLER, "plugin", PluginAdapter.key, config)
        await opened.bindings.set_target(CALLER, "company", "local", "plugin")
        yield opened
        await opened.close()


async def write(service: MemoryService, text: str, **more: object) -> MutationAnswer:
    request = WriteRequest(scope=SCOPE, source=SOURCE, content=text, **more)
    return await service.write(CALLER, request)


async def all_read(service: MemoryService, handle: RecordHandle) -> list[Record]:
    """Return one record as each way of reading returns it."""
    listed = await service.browse(CALLER, BrowseRequest(scope=SCOPE))
    found = await service.query(CALLER, QueryRequest(scope=SCOPE, query="listens port"))
    changes = (await service.history(CALLER, handle, SCOPE)).changes
    return [
        (await service.get(CALLER, handle, SCOPE)).record,
        *(one for one in (*listed.records, *found.snippets) if one.handle == handle),
        *(one.after for one in changes[:1] if one.after),
    ]


def is_whole(record: Record) -> bool:
    return record.source == SOURCE and all(
        getattr(record, name) == value for name, value in GIVEN.items()
    )


async def test_what_is_not_kept_is_named_and_filled_in(
    service: MemoryService,
) -> None:
    other = await write(service, "Another text.", tags=("else",))
    answer = await write(service, "It listens on port 8123.", **GIVEN)
    assert {"source", *GIVEN} <= {*answer.not_kept}
    assert "plugin keeps no source, title" in answer.loss
    assert "memtui fills in source, title, topic, tags, metadata and author" in answer.loss
    logged = await service.log.get(CALLER, answer.operation_id)
    assert logged.request["not_kept"] == list(answer.not_kept)
    [handle] = answer.handles
    read = await all_read(service, handle)
    assert len(read) == 4
    assert all(map(is_whole, [*answer.records, *read]))
    assert {one.created_by for one in read} == {CALLER.principal}
    assert (await service.get(CALLER, other.handles[0], SCOPE)).record.tags == ("else",)


async def test_it_stays_through_changes(
    service: MemoryService,
) -> None:
    handle = (await write(service, "It listens on port 8123.", **GIVEN)).handles[0]
    correct = CorrectRequest(scope=SCOPE, handle=handle, text="It listens on port 8124.")
    changed = await service.correct(CALLER, correct)
    assert not changed.not_kept
    [handle] = changed.handles
    assert all(map(is_whole, await all_read(service, handle)))
    await service.forget(CALLER, ForgetRequest(scope=SCOPE, handles=(handle,)))
    [handle] = (await service.undo(CALLER)).handles
    assert all(map(is_whole, await all_read(service, handle)))


async def test_what_was_forgotten_lends_nothing_to_what_has_its_id(
    service: MemoryService, server: Minimal
) -> None:
    handle = (await write(service, "It listens on port 8123.", **GIVEN)).handles[0]
    [row] = server.rows
    await service.forget(CALLER, ForgetRequest(scope=SCOPE, handles=(handle,)))
    server.rows.append(row)
    record = (await service.get(CALLER, handle, SCOPE)).record
    assert (record.source, record.tags, record.metadata) == (None, (), {})


async def test_a_page_of_many_is_filled_in(service: MemoryService) -> None:
    for number in range(60):
        await write(service, f"The text {number}.", tags=(f"t{number}",))
    listed = (await service.browse(CALLER, BrowseRequest(scope=SCOPE, limit=60))).records
    assert len(listed) == 60
    assert all(one.text == f"The text {one.tags[0][1:]}." for one in listed)


async def test_a_migration_tells_it_before_and_after(service: MemoryService, paths: Paths) -> None:
    await service.write(CALLER, KEPT.model_copy(update={"pinned": False, "summary": None}))
    ends = await open_endpoints(service, CALLER, "default", "plugin")
    done = await apply(ends, paths.data)
    for losses in ((await plan(ends, Settings())).losses, done.losses):
        lost = {one.what for one in losses if not one.carried}
        assert {"source", "tags", "topic", "title", "metadata", "created by"} <= lost


async def test_every_door_says_it_in_a_sentence(service: MemoryService) -> None:
    answer = await write(service, "First.", kind="fact")
    sentence = "plugin keeps no source or author: memtui fills them in from its log."
    assert answer.loss == sentence
    assert editing.said("Written.", answer) == f"Written. {sentence}"
    stored = tools.stored(answer)
    assert (stored.not_kept, sentence in stored.words()) == (("source", "created_by"), True)
    kept = await service.write(CALLER, KEPT)
    assert (kept.not_kept, kept.loss, tools.stored(kept).loss) == ((), "", "")
