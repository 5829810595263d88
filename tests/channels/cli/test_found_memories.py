"""Memories that people already have, through the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.channels.cli.conftest import Run


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


def test_a_graph_is_written_corrected_forgotten_and_as_it_was(here: Run, tmp_path: Path) -> None:
    graph = tmp_path / "memory.jsonl"
    entity = {"type": "entity", "name": "rg", "entityType": "tool", "observations": ["is fast"]}
    graph.write_text(json.dumps(entity))
    os.utime(graph, (0, 0))
    before = graph.read_bytes()
    config = json.dumps({"path": str(graph), "settle_ms": 0})
    assert here("bindings", "add", "graph", "mcp-memory", "--config", config).code == 0
    options = ("--binding", "graph")
    wrote = here("note", "skips what git ignores", "--title", "rg", "--project", "p", *options)
    record_id = wrote.out.strip()
    got = here("get", record_id, *options, "--json").document
    assert got["record"]["scope"]["project_id"] == "p"
    assert got["record"]["created_by"]
    corrected = here("correct", record_id, "skips hidden files", *options, "--json").document
    [new] = corrected["handles"]
    assert corrected["linked"] == {record_id: new["provider_record_id"]}
    moved = here("get", record_id, *options, "--json").document["record"]
    assert (moved["text"], moved["scope"]["project_id"]) == ("skips hidden files", "p")
    refused = here("forget", "entity/rg", *options, "--yes")
    assert (refused.code, "belongs to the project p" in refused.err) == (4, True)
    for _ in range(2):
        assert here("undo").code == 0
    assert graph.read_bytes() == before
    assert here("forget", "entity/rg", *options, "--yes").code == 0
    assert graph.read_bytes() == b""
    assert here("undo").code == 0
    assert graph.read_bytes() == before
    refused = here("note", "one name alone", "--kind", "relation", *options)
    assert (refused.code, "arrows between" in refused.err) == (2, True)


def test_all_that_was_found_is_added_read_only_by_one_command(here: Run, person: Path) -> None:
    nothing = here("bindings", "discover", "--add-all", "--json").document
    assert (nothing["findings"], nothing["added"]) == ([], [])
    for name in ("one", "two"):
        memory = person / ".claude" / "projects" / name / "memory"
        memory.mkdir(parents=True)
        (memory / "MEMORY.md").write_text("Deploys on Fridays.")
    torn = person / "torn.jsonl"
    torn.write_text("{torn")
    servers = {"memory": {"command": "npx", "env": {"MEMORY_FILE_PATH": str(torn)}}}
    (person / ".claude.json").write_text(json.dumps({"mcpServers": servers}))
    config = json.dumps({"path": str(torn)})
    assert here("bindings", "add", "claude-memory-one", "vault", "--config", config).code != 0
    listed = here("bindings", "discover", "--json").document
    assert listed["added"] == []
    done = here("bindings", "discover", "--add-all")
    assert done.code == 0, done.err
    bound = here("bindings", "list", "--json").document["bindings"]
    usable = [one["provider"] for one in listed["findings"] if one["usable"]]
    assert sorted(one["provider_key"] for one in bound[1:]) == sorted(usable)
    assert usable.count("claude-memory") == 2
    assert all(one["read_only"] for one in bound[1:])
    assert here("bindings", "discover", "--add-all", "--json").document["added"] == []


def test_notes_with_observations_are_added_once_and_the_observations_by_their_key(
    here: Run, person: Path
) -> None:
    notes, config = person / "notes", person / ".basic-memory" / "config.json"
    notes.mkdir()
    (notes / "a.md").write_text("# Shop\n\n- [tech] It uses SQLite. #db\n")
    config.parent.mkdir()
    config.write_text(json.dumps({"projects": {"main": str(notes)}}))
    done = here("bindings", "discover", "--add-all", "--json").document
    assert [one["provider"] for one in done["findings"]] == ["vault", "basic-memory"]
    assert done["added"] == ["vault-basic-main"]
    assert here("bindings", "discover", "--add", "basic-memory-main").code == 0


def test_an_added_binding_serves_whom_the_person_says(
    here: Run, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (person / "web").mkdir()
    monkeypatch.chdir(person / "web")
    added = here("bindings", "add", "notes", "vault")
    assert "project with `memtui bindings target set notes project web`" in added.err
    for refused, why in (
        ("team:web", "'team:web' is no target"),
        ("nobody:web", "'nobody:web' is no target"),
        ("company:web", "that of local; name no other"),
    ):
        wrong = here("bindings", "add", "more", "vault", "--serves", refused)
        assert (wrong.code, why in wrong.err) == (2, True), wrong.err
    for typed, option, served in (
        (b"\n", (), [("project", "web")]),
        (b"nobody\n", (), []),
        (b"", ("--serves", "agent:coding"), [("agent", "coding")]),
        (b"", ("--serves", "company"), [("company", "local")]),
    ):
        added = here("bindings", "add", "one", "vault", *option, stdin=typed, terminal=True)
        assert (added.code, "Who should one serve" in added.err) == (0, not option), added.err
        shown = here("bindings", "show", "one", "--json").document["targets"]
        assert [(one["target_type"], one["target_id"]) for one in shown] == served
        here("bindings", "remove", "one", "--yes")
    keys = [one["key"] for one in here("bindings", "list", "--json").document["bindings"]]
    assert "more" not in keys


def test_a_target_that_changes_hands_is_said_and_comes_back_by_one_undo(here: Run) -> None:
    before = here("bindings", "list", "--json").document
    added = here("bindings", "add", "one", "vault", "--serves", "company")
    said = "default served the company until now; `memtui bindings target set default company`"
    assert (added.code, said in added.err) == (0, True), added.err
    assert "serves company" in here("ops", "list", "type:configure").out
    assert here("undo").code == 0
    assert here("bindings", "list", "--json").document == before
    assert here("bindings", "add", "one", "vault", "--serves", "project:w b").code == 0
    turned = here("bindings", "target", "set", "default", "project", "w b")
    assert "`memtui bindings target set one project 'w b'` gives it back" in turned.err
    again = here("bindings", "target", "set", "default", "project", "w b")
    assert (again.code, again.err) == (0, "")
    wrong = here("bindings", "target", "set", "one", "company", "w b")
    assert (wrong.code, "that of local; name no other" in wrong.err) == (2, True)


def test_the_folder_is_no_order_to_the_terminal(
    here: Run, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (person / "we\x1b[31mb").mkdir()
    monkeypatch.chdir(person / "we\x1b[31mb")
    asked = here("bindings", "add", "one", "vault", stdin=b"nobody\n", terminal=True)
    assert (asked.code, "\x1b" in asked.err) == (0, False), asked.err
