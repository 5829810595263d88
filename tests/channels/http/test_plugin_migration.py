"""A vault moved into a served plugin over a real socket and back is what it was."""

from __future__ import annotations

import pytest

from memtui.backends.plugin_v1 import plugin
from memtui.config import Paths, load_settings
from memtui.contract import Scope, SourceKind, SourceRef, WriteRequest
from memtui.migration.endpoints import open_endpoints
from memtui.migration.moving import apply
from memtui.migration.verifying import verify
from memtui.service import Caller, open_service
from tests.channels.http.plugin_server import VAULT, plugin_over
from tests.migration.conftest import requests, states

pytestmark = pytest.mark.slow

PAGE, MANY = 20, 21
"""What a search returns at most here, and in one namespace one more."""


async def test_a_migration_through_our_plugin_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    paths: Paths,
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugin, "MOST_ROWS", PAGE)
    source = SourceRef(kind=SourceKind.RUN, company_id="local", run_id="r-1")
    web = Scope(company_id="local", project_id="web", subject_id="Ana")
    notes = [
        WriteRequest(scope=web, source=source, content=f"Observation {n}.", kind="note")
        for n in range(MANY)
    ]
    service = await open_service(paths, load_settings(paths, fact_max_count=0))
    try:
        await service.bindings.add(caller, "second", "vault", {})
        for request in (*requests(14), *notes):
            await service.write(caller, request.model_copy(update={"binding_key": "default"}))
        before = await states(service, caller, "default")
        with plugin_over(tmp_path_factory.mktemp("plugin"), *VAULT) as url:
            await service.bindings.add(
                caller, "plugin", "plugin-v1", {"url": url, "page_size": PAGE}
            )
            there = await open_endpoints(service, caller, "default", "plugin")
            done = await apply(there, paths.data)
            assert (done.written, done.failures) == (len(before), ())
            assert await states(service, caller, "plugin") == before
            assert (await apply(there, paths.data)).unchanged == len(before)
            found = await verify(there, paths.data)
            assert (found.matched, found.mismatches) == (len(before), ())
            back = await open_endpoints(service, caller, "plugin", "second")
            assert (await apply(back, paths.data)).written == len(before)
        assert await states(service, caller, "second") == before
    finally:
        await service.close()
