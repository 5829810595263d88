"""From a plugin that shows a hundred memories a search: no more is claimed than is known."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from itertools import permutations

import pytest

from memtui.config import Paths, Settings
from memtui.contract import Conflict
from memtui.migration.moving import apply
from memtui.migration.planning import plan
from memtui.migration.verifying import verdict, verify
from memtui.service import BindingView, Caller, MemoryService, open_service
from tests.backends.plugin_v1.servers.loopback import Answer, serve, talk
from tests.backends.plugin_v1.servers.reference import Reference
from tests.migration.conftest import PROVIDERS, ends_of, fill

FOUND, HIDDEN = 110, 2
AT_MOST = pytest.mark.parametrize("server", [100, 30], indirect=True)
"""As many in an answer as memtui asks for, or fewer."""
WEB = "workspace:web"


class Capped(Reference):
    """Gives `most` memories a search, whatever is asked."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.namespaces[WEB] = {"name": WEB, "kind": "workspace"}

    def _search(self, body: dict[str, object]) -> Answer:
        asked = min(int(str(body.get("limit") or 20)), self.most)
        return super()._search({**body, "limit": asked})

    def hold(self, text: str) -> str:
        body = {"content": text, "kind": "summary", "source": "agent"}
        status, answer = self._write(WEB, body)
        assert status == 201
        return str(answer["id"])

    def fill(self) -> list[str]:
        """Hold two memories that no word leads to, older than all others; returns their ids."""
        hidden = [self.hold(f"xyzzy{number} 魔法の言葉") for number in range(HIDDEN)]
        chance = random.Random(3)
        words = [
            "otter",
            "heron",
            "ibex",
            "lynx",
            "vole",
            "newt",
            "stoat",
            "raven",
            "toad",
            "carp",
            "moth",
            "wren",
        ]
        for chosen in chance.sample(list(permutations(words, 3)), FOUND):
            self.hold(" ".join(chosen))
        for identity in hidden:
            self.rows[identity]["created"] -= timedelta(days=1)
        return hidden


@pytest.fixture
async def server(
    request: pytest.FixtureRequest, service: MemoryService, caller: Caller
) -> AsyncIterator[Capped]:
    capped = Capped(getattr(request, "param", 30))
    async with serve(talk(capped)) as url:
        config = {"url": url, "namespaces": [WEB]}
        await service.bindings.add(caller, "plugin", "plugin-v1", config)
        yield capped


@AT_MOST
async def test_all_that_can_be_found_is_moved_and_the_rest_is_not_claimed(
    server: Capped, service: MemoryService, caller: Caller, paths: Paths
) -> None:
    server.fill()
    ends = await ends_of(service, caller, "plugin", "memory")
    done = await apply(ends, paths.data)
    assert (done.written, done.complete, done.failures) == (FOUND, False, ())
    proof = await verify(ends, paths.data)
    assert (proof.matched, proof.is_same, proof.complete, proof.passed) == (
        FOUND, True, False, False,
    )  # fmt: skip
    assert "same on both sides" not in verdict(proof, "plugin", "memory")
    assert f"{FOUND} of {FOUND}" in verdict(proof, "plugin", "memory")
    sample = await verify(ends, paths.data, sample=20, seed=1)
    assert (sample.checked, sample.matched, sample.passed) == (20, 20, False)


@AT_MOST
async def test_a_namespace_that_fits_into_one_reply_is_known_whole(
    server: Capped, service: MemoryService, caller: Caller, paths: Paths
) -> None:
    for number in range(25):
        server.hold(f"Short list, number {number}.")
    ends = await ends_of(service, caller, "plugin", "memory")
    await apply(ends, paths.data)
    proof = await verify(ends, paths.data)
    assert (proof.matched, proof.complete, proof.passed) == (25, True, True)
    assert verdict(proof, "plugin", "memory").startswith("✓ the same on both sides")


async def test_what_was_moved_and_is_not_listed_any_more_is_asked_for(
    server: Capped, service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    """No word of the list leads to these two any more, but those of their copies do."""
    hidden = server.fill()
    plain, server.rows = server.rows, {identity: server.rows[identity] for identity in hidden}
    ends = await ends_of(service, caller, "plugin", "second")
    assert (await apply(ends, paths.data)).written == HIDDEN
    server.rows = plain
    await service.close()
    next(paths.data.rglob("plugin.sqlite3")).unlink()
    again = await open_service(paths, settings, providers=PROVIDERS)
    try:
        proof = await verify(await ends_of(again, caller, "plugin", "second"), paths.data)
    finally:
        await again.close()
    assert (proof.missing, proof.matched, proof.extra) == (FOUND, HIDDEN, 0)
    assert (proof.source_records, proof.passed) == (FOUND + HIDDEN, False)


async def test_what_a_plugin_does_not_list_is_looked_up_there(
    server: Capped, service: MemoryService, caller: Caller, paths: Paths
) -> None:
    """Into such a plugin: each record is found by id, and the verdict speaks of these alone."""
    await fill(service, caller, "default", 40)
    ends = await ends_of(service, caller, "default", "plugin")
    assert (await apply(ends, paths.data)).failures == ()
    server.fill()
    proof = await verify(ends, paths.data)
    assert (proof.matched, proof.missing, proof.passed) == (40, 0, True)
    assert proof.destination_at_least
    assert verdict(proof, "default", "plugin") == "✓ all 40 of default are the same in plugin"


async def test_a_list_that_takes_longer_than_one_call_goes_on(
    server: Capped, service: MemoryService, caller: Caller, paths: Paths
) -> None:
    server.fill()
    config = {"url": service_url(await service.bindings.all(caller)), "max_searches": 1}
    await service.bindings.add(caller, "slow", "plugin-v1", {**config, "namespaces": [WEB]})
    told: list[int] = []
    ends = await ends_of(service, caller, "slow", "memory")
    found = await plan(ends, Settings(), told.append)
    assert (found.records, found.complete) == (FOUND, False)
    assert any("page_size" in sentence for sentence in found.source_unread)
    assert len(told) > 3
    assert told == sorted(told)


async def test_a_namespace_is_removed_after_everything_in_it_was_searched_for(
    server: Capped, service: MemoryService, caller: Caller
) -> None:
    server.fill()
    with pytest.raises(Conflict, match=f"more than the {FOUND} records that can be listed"):
        await service.namespaces.delete(caller, "plugin", WEB, unseen=False)
    gone = await service.namespaces.delete(caller, "plugin", WEB, unseen=True)
    assert (gone.records, gone.at_least) == (FOUND, True)


def service_url(bindings: Iterable[BindingView]) -> str:
    return next(str(one.config["url"]) for one in bindings if one.key == "plugin")
