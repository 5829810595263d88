"""Memories that people already have, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.doors.cli.conftest import Run


def test_a_query_finds_what_the_agents_of_a_provider_find(here: Run, tmp_path: Path) -> None:
    graph = tmp_path / "memory.jsonl"
    entity = {"type": "entity", "name": "ripgrep", "entityType": "tool", "observations": ["fast"]}
    graph.write_text(json.dumps(entity))
    config = json.dumps({"path": str(graph)})
    assert here("bindings", "add", "graph", "mcp-memory", "--config", config).code == 0
    asked = ("--binding", "graph", "--json")
    [found] = here("query", "how fast", *asked).document["snippets"]
    assert found["text"] == "fast"
    assert here("query", "how fast", *asked, "--as-agents").document["snippets"] == []
    [found] = here("query", "ipgr", *asked, "--as-agents").document["snippets"]
    assert (found["text"], found["score"]) == ("fast", None)
    logged = here("ops", "list", "type:query", "--json").document["operations"]
    assert [one["request"].get("matching") for one in logged] == ["agents", "agents", None]
    refused = here("query", "x", "--as-agents")
    assert refused.code == 2
    assert "has no agents search" in refused.err
