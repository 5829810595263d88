"""Through a memory plugin and back, over a real socket: the reference server's own behaviour."""

from __future__ import annotations

import pytest

from memtui.config import Paths, Settings
from memtui.migration.moving import apply
from memtui.migration.planning import plan
from memtui.migration.verifying import verify
from memtui.service import Caller, MemoryService
from tests.backends.plugin_v1.servers.loopback import serve, talk
from tests.backends.plugin_v1.servers.reference import Reference
from tests.migration.conftest import ends_of, fill, states

pytestmark = pytest.mark.slow


async def test_vault_to_plugin_to_vault_is_identical(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", 28)
    before = await states(service, caller, "default")
    async with serve(talk(Reference())) as url:
        await service.bindings.add(
            caller, "plugin", "plugin-v1", {"url": url, "namespaces": ["org:local"]}
        )
        there = await ends_of(service, caller, "default", "plugin")
        places = {one.scope: one.place for one in (await plan(there, Settings())).scopes}
        assert places["project p1"] == "workspace:p1"
        assert places["company"] == "org:local"
        done = await apply(there, paths.data)
        assert (done.written, done.failures) == (28, ())
        assert await states(service, caller, "plugin") == before
        assert (await apply(there, paths.data)).unchanged == 28
        assert (await verify(there, paths.data)).passed
        back = await ends_of(service, caller, "plugin", "second")
        assert (await apply(back, paths.data)).written == 28
        assert (await verify(back, paths.data)).passed
    assert await states(service, caller, "second") == before
