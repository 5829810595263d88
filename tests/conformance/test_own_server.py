"""What `memtui serve plugin` serves keeps every rule.

What of that depends on what stores the memories, `tests/channels/http/test_plugin.py` asks of each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from memtui.config import find_paths, load_settings
from memtui.conformance import run_conformance
from memtui.service import open_service
from tests.channels.http.plugin_server import ANA, VAULT, plugin_over


@pytest.mark.slow
async def test_every_rule_is_kept(tmp_path: Path) -> None:
    with plugin_over(tmp_path / "home", *VAULT) as address:
        report = await run_conformance(address, timeout_s=20)
    broken = [f"{one.name}: {one.detail}" for one in report.checks if one.outcome == "fail"]
    assert broken == []
    assert report.passed > 20
    assert report.leftovers == ()
    folder = tmp_path / "home" / "bindings" / "local" / "served"
    assert list((folder / "vault").iterdir()) == []
    assert list((folder / "made_folders").iterdir()) == []
    paths = find_paths(tmp_path / "home")
    service = await open_service(paths, load_settings(paths))
    try:
        assert await service.log.scopes(ANA, 10_000) == []
        assert len(await service.log.scopes(ANA, 10_000, removed=True)) > 20
    finally:
        await service.close()
