"""The pytest suite, on a plugin that keeps every rule, on one that does not, and on a bare one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from memtui.conformance.suite import PluginConformance

from .conftest import TTL_S, Serve
from .faults import DeleteLeavesMemories
from .plugin import Plugin, Row, serving


class TestCorrectPlugin(PluginConformance):
    ttl_s = TTL_S

    @pytest_asyncio.fixture
    async def url(self) -> AsyncIterator[str]:
        plugin = Plugin()
        async with serving(plugin) as address:
            yield address
        assert (plugin.spaces, plugin.rows) == ({}, {})


class Bare(Plugin):
    def health(self) -> Row:
        return super().health() | {"capabilities": []}


async def test_a_broken_rule_fails_its_test_with_the_request_and_the_reply(serve: Serve) -> None:
    url = await serve(DeleteLeavesMemories())
    with pytest.raises(pytest.fail.Exception, match="3 memories outlived") as caught:
        await PluginConformance().test_rule(url, "namespace-delete-cascades")
    assert "→ POST /v1/search" in str(caught.value)
    assert "← 200 application/json" in str(caught.value)


async def test_a_rule_of_a_capability_that_is_not_listed_is_skipped(serve: Serve) -> None:
    url = await serve(Bare())
    with pytest.raises(pytest.skip.Exception, match="does not list pin"):
        await PluginConformance().test_rule(url, "pin-first")
