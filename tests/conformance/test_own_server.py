"""What `memtui serve plugin` serves keeps every rule, whatever stores the memories."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtui.conformance import run_conformance
from tests.doors.http.plugin_server import FACTS, VAULT, Provider, plugin_over

STORED = ["write-id", "write-content-unicode", "ttl", "pin", "propagation", "forget"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("provider", "only"), [(VAULT, None), (FACTS, STORED)], ids=["vault", "facts"]
)
async def test_every_rule_is_kept(
    provider: Provider, only: list[str] | None, tmp_path: Path
) -> None:
    """All rules once; then those whose keeping depends on what stores the memories.

    Fact tables in PostgreSQL have the code of those in SQLite, and `test_plugin` asks them too.
    """
    with plugin_over(tmp_path / "home", *provider) as address:
        report = await run_conformance(address, only=only, timeout_s=20)
    broken = [f"{one.name}: {one.detail}" for one in report.checks if one.outcome == "fail"]
    assert broken == []
    assert report.passed > 20
    assert report.leftovers == ()
