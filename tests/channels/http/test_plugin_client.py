"""Our own client of memory plugins passes every adapter's checks against our own server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from memtui.backends.plugin_v1 import PluginAdapter
from memtui.backends.plugin_v1.plugin import Abilities
from memtui.contract import Adapter
from memtui.testing import AdapterContract
from memtui.testing.checks import ChangeChecks, Kit, WriteChecks
from tests.channels.http.plugin_server import FACTS, VAULT, plugin_over

_numbers = itertools.count()


class Client(Kit):
    """Each check has namespaces of its own on a server that all of them share."""

    capabilities = Abilities(frozenset({"propagation", "pin", "ttl"})).capabilities

    url: ClassVar[str]

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        if not (tmp_path / "number").exists():
            (tmp_path / "number").write_text(str(next(_numbers)))
        own = f"t{(tmp_path / 'number').read_text()}-"
        templates = {
            "project": f"workspace:{own}{{project_id}}",
            "agent": f"team:{own}{{agent_id}}",
            "subject": f"user:{own}{{subject_id}}",
            "company": f"custom:{own}all",
        }
        return await PluginAdapter.open(self.context(tmp_path, url=self.url, templates=templates))


class TestOverVault(Client, AdapterContract):
    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        with plugin_over(tmp_path_factory.mktemp("vault"), *VAULT) as cls.url:
            yield


@pytest.mark.asyncio
class TestOverFacts(Client, ChangeChecks):
    """What depends on how the server's provider keeps a memory, not on the client alone."""

    test_write_then_get = WriteChecks.test_write_then_get
    test_hostile_text = WriteChecks.test_hostile_text_is_kept_exactly_or_refused
    test_given_id_is_kept = WriteChecks.test_given_id_is_kept
    test_creation_time_is_kept = WriteChecks.test_creation_time_is_kept
    test_expired_is_not_returned = WriteChecks.test_expired_is_not_returned
    test_pin_is_kept = WriteChecks.test_pin_is_kept

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        with plugin_over(tmp_path_factory.mktemp("facts"), *FACTS) as cls.url:
            yield
