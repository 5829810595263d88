"""Namespaces through the service: made, given an expiry, and removed so that it can be undone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from memtui.backends.plugin_v1 import PluginAdapter
from memtui.config import Paths, Settings
from memtui.contract import (
    BrowseRequest,
    Conflict,
    Denied,
    Filter,
    Invalid,
    NotFound,
    OperationType,
    Scope,
    SourceRef,
    Unsupported,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, open_service

from .conftest import Server
from .servers.reference import Reference

WEB = Scope(company_id="local", project_id="web")
COMPANY = Scope(company_id="local")
SOURCE = SourceRef(kind="manual_note", company_id="local")
LATER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest_asyncio.fixture
async def service(
    paths: Paths, settings: Settings, caller: Caller, reference: Server
) -> AsyncIterator[MemoryService]:
    opened = await open_service(paths, settings, providers={PluginAdapter.key: PluginAdapter})
    await opened.bindings.add(caller, "plugin", PluginAdapter.key, {"url": reference[1]})
    yield opened
    await opened.close()


async def write(service: MemoryService, caller: Caller, *texts: str) -> None:
    for text in texts:
        await service.write(
            caller, WriteRequest(scope=WEB, source=SOURCE, content=text, binding_key="plugin")
        )


async def names(service: MemoryService, caller: Caller) -> dict[str, int | None]:
    return {one.name: one.records for one in await service.namespaces.all(caller, "plugin")}


async def test_it_is_made_given_an_expiry_and_freed_of_it(
    service: MemoryService, caller: Caller, reference: Server
) -> None:
    server: Reference = reference[0]
    made = await service.namespaces.put(caller, "plugin", "custom:notes")
    assert made.expires_at is None
    assert (await names(service, caller))["custom:notes"] == 0
    server.namespaces["custom:notes"]["metadata"] = {"owner": "ana"}
    await service.namespaces.put(caller, "plugin", "custom:notes")
    await service.namespaces.put(caller, "plugin", "custom:notes", expires_at=LATER)
    assert server.namespaces["custom:notes"]["expires_at"] is not None
    cleared = await service.namespaces.put(caller, "plugin", "custom:notes")
    assert cleared.expires_at is None
    done = await service.log.page(caller, Filter(operation_type=OperationType.CONFIGURE), limit=4)
    assert {one.request.get("namespace") for one in done.operations} == {"custom:notes"}


async def test_removing_one_can_be_undone(
    service: MemoryService, caller: Caller, reference: Server
) -> None:
    await write(service, caller, "One.", "Two.")
    assert (await names(service, caller))["workspace:web"] == 2
    gone = await service.namespaces.delete(caller, "plugin", "workspace:web")
    assert (gone.records, gone.at_least) == (2, False)
    assert "workspace:web" not in reference[0].namespaces
    await service.undo(caller, gone.forget_operation_id)
    asked = BrowseRequest(scope=WEB, binding_key="plugin")
    texts = {record.text for record in (await service.browse(caller, asked)).records}
    assert texts == {"One.", "Two."}


async def test_only_its_own_records_go(
    service: MemoryService, caller: Caller, reference: Server
) -> None:
    await write(service, caller, "Stays.")
    await service.write(
        caller, WriteRequest(scope=COMPANY, source=SOURCE, content="Goes.", binding_key="plugin")
    )
    [org] = [name for name in await names(service, caller) if name.startswith("org:")]
    asked = BrowseRequest(scope=COMPANY, binding_key="plugin", namespace=org)
    assert [one.text for one in (await service.browse(caller, asked)).records] == ["Goes."]
    assert (await service.namespaces.delete(caller, "plugin", org)).records == 1
    assert (await names(service, caller))["workspace:web"] == 1


async def test_what_cannot_be_listed_is_not_removed_unasked(
    service: MemoryService, caller: Caller, reference: Server
) -> None:
    server: Reference = reference[0]
    await write(service, caller, "Makes the namespace.")
    for number in range(120):
        row = {"content": f"Row {number}", "kind": "fact", "source": "user"}
        server._write("workspace:web", row)
    with pytest.raises(Conflict, match="nothing was removed"):
        await service.namespaces.delete(caller, "plugin", "workspace:web")
    assert "workspace:web" in server.namespaces
    gone = await service.namespaces.delete(caller, "plugin", "workspace:web", unseen=True)
    assert gone.at_least
    assert "workspace:web" not in server.namespaces


async def test_what_does_not_fit_is_refused(
    service: MemoryService, caller: Caller, reference: Server
) -> None:
    with pytest.raises(Invalid, match="not a namespace"):
        await service.namespaces.put(caller, "plugin", "No Namespace")
    with pytest.raises(NotFound, match="custom:none"):
        await service.namespaces.delete(caller, "plugin", "custom:none")
    with pytest.raises(Unsupported, match="namespace changes"):
        await service.namespaces.put(caller, "default", "custom:notes")
    await service.bindings.update(caller, "plugin", read_only=True)
    with pytest.raises((Denied, Unsupported)):
        await service.namespaces.put(caller, "plugin", "custom:notes")
