"""What `memtui serve plugin` serves keeps every rule.

What of that depends on what stores the memories, `tests/doors/http/test_plugin.py` asks of each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from memtui.conformance import run_conformance
from tests.doors.http.plugin_server import VAULT, plugin_over


@pytest.mark.slow
async def test_every_rule_is_kept(tmp_path: Path) -> None:
    with plugin_over(tmp_path / "home", *VAULT) as address:
        report = await run_conformance(address, timeout_s=20)
    broken = [f"{one.name}: {one.detail}" for one in report.checks if one.outcome == "fail"]
    assert broken == []
    assert report.passed > 20
    assert report.leftovers == ()
