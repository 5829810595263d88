"""Collections are written anew from the vault alone, with all that its facts ever said."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

from memtui.config import Paths, Settings
from memtui.contract import holds_at
from memtui.migration.endpoints import open_endpoints
from memtui.migration.syncing import sync
from memtui.service import Caller, open_service
from tests.backends.vault.conftest import Open, open_vault, root  # noqa: F401 - fixtures
from tests.backends.vault.test_a_year import START, YEAR, Account, Generator, _said

CHANGES, FACTS, MOMENTS = 90, 48, 60


async def test_any_moment_is_the_same_in_rebuilt_collections(
    open_vault: Open,  # noqa: F811
    root: Path,  # noqa: F811
    paths: Paths,
    settings: Settings,
    caller: Caller,
    tmp_path: Path,
):
    account, random = Account(), Random(3)
    generator = Generator(root, random, account)
    generator.begin(FACTS)
    generator.adapter = await open_vault(now=lambda: account.now)
    await generator.live(CHANGES, FACTS)
    await generator.adapter.close()
    shutil.rmtree(tmp_path / "data", ignore_errors=True)
    service = await open_service(paths, settings)
    await service.bindings.add(caller, "files", "vault", {"path": str(root)})
    await service.bindings.add(caller, "other", "milvus", {})
    ends = await open_endpoints(service, caller, "files", "other")
    done = await sync(ends, paths.data)
    assert not done.failures, done.failures[:3]
    versions = [
        [one for own in found.values() for one in own]
        for found in [await service.pairs.versions(caller, key) for key in ("files", "other")]
    ]
    for _ in range(MOMENTS):
        moment = START + YEAR * random.random()
        wanted = account.at(moment)
        for own in versions:
            held = sorted((_said(one) for one in own if holds_at(one, moment)), key=str)
            assert held == wanted, moment
    await service.close()
