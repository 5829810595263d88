"""What `memtui serve plugin` serves keeps every rule, whatever stores the memories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memtui.conformance import choose_checks, run_conformance
from tests.doors.http.plugin_server import FACTS, VAULT, plugin_over, plugin_over_postgres

STORED = ("namespace", "write", "search", "ttl", "pin", "propagation", "forget", "parallel-upserts")
LONG = {"search-no-silent-cap", "search-limit-default", "write-content-large"}
ONLY: dict[str, list[str] | None] = {
    "vault": None,
    "facts": ["write-id", "write-content", "ttl", "pin", "propagation", "forget", "search-kinds"],
    "postgresql": [check.name for check in choose_checks(STORED) if check.name not in LONG],
}
"""All rules once; then those whose keeping depends on what stores the memories. The fact tables
in SQLite and PostgreSQL share their code."""


@pytest.fixture(params=["vault", "facts", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A served vault, fact tables, and fact tables and control plane in PostgreSQL."""
    home = tmp_path / "home"
    if request.param != "postgresql":
        with plugin_over(home, *(VAULT if request.param == "vault" else FACTS)) as url:
            yield url
        return
    server: str = request.getfixturevalue("postgres_server")
    with plugin_over_postgres(home, server) as url:
        yield url


@pytest.mark.slow
async def test_every_rule_is_kept(address: str, request: pytest.FixtureRequest) -> None:
    only = ONLY[request.node.callspec.params["address"]]
    report = await run_conformance(address, only=only, timeout_s=20)
    broken = [f"{one.name}: {one.detail}" for one in report.checks if one.outcome == "fail"]
    assert broken == []
    assert report.passed > 20
    assert report.leftovers == ()
