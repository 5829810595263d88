from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from memtui.backends import discovery
from memtui.backends.claude_memory import ClaudeMemoryAdapter
from memtui.backends.discovery import Finding, discover
from memtui.backends.instructions import InstructionsAdapter
from memtui.backends.mcp_memory import McpMemoryAdapter
from memtui.backends.memsearch import MemsearchAdapter
from memtui.contract import Adapter, BindingContext

READERS: dict[str, type[Adapter]] = {
    adapter.key: adapter
    for adapter in (ClaudeMemoryAdapter, InstructionsAdapter, McpMemoryAdapter, MemsearchAdapter)
}


def write(path: Path, text: str = "text\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def project(home: Path) -> Path:
    folder = home / "work" / "app"
    (folder / ".git").mkdir(parents=True)
    return folder


def usable(findings: list[Finding]) -> dict[str, Path]:
    return {finding.key: Path(finding.path) for finding in findings if finding.usable}


def test_an_empty_machine_has_nothing(home: Path, project: Path) -> None:
    assert discover(home, project, {}) == []
    assert discover(home / "gone", project / "gone", {}) == []


async def test_every_kind_of_memory_is_found_and_can_be_opened(
    home: Path, project: Path, tmp_path: Path
) -> None:
    graph = '{"type":"entity","name":"a","entityType":"b","observations":["c"]}\n'
    write(project / "vault" / "projects" / "app" / "facts.md", "- a: b\n")
    write(project / ".memsearch" / "memory" / "2026-01-01.md", "### 10:00\n- a\n### 11:00\n- b\n")
    write(project / "CLAUDE.md", "# A\ntext\n# B\ntext\n")
    write(home / "vault" / "system" / "memory" / "note.md")
    write(home / ".claude" / "CLAUDE.md", "Be brief.\n")
    slug = re.sub(r"[^A-Za-z0-9]", "-", str(project))
    write(home / ".claude" / "projects" / slug / "memory" / "MEMORY.md", "# Memory\ntext\n")
    write(home / "kg" / "team.jsonl", graph)
    servers = {"mcpServers": {"memory": {"env": {"MEMORY_FILE_PATH": "${HOME}/kg/team.jsonl"}}}}
    write(home / ".claude.json", json.dumps({"projects": {str(project): servers}}))
    given = write(tmp_path / "given.jsonl", graph)
    package = ".npm/_npx/1f/node_modules/@modelcontextprotocol/server-memory/dist/memory.jsonl"
    write(home / package, graph)

    findings = discover(home, project / ".git", {"MEMORY_FILE_PATH": str(given)})
    assert usable(findings) == {
        "vault-vault": project / "vault",
        "memsearch-app": project / ".memsearch" / "memory",
        "instructions-app": project,
        "vault-vault-2": home / "vault",
        "instructions-user": home / ".claude",
        "claude-memory-app": home / ".claude" / "projects" / slug / "memory",
        "mcp-memory-given": given,
        "mcp-memory-team": home / "kg" / "team.jsonl",
        "mcp-memory-dist": home / package,
    }
    for finding in findings:
        assert finding.why.endswith(".")
        if finding.provider == "vault":
            continue
        adapter = await READERS[finding.provider].open(
            BindingContext(
                company_id="acme",
                binding_key=finding.key,
                config=finding.config,
                read_only=True,
                data_dir=tmp_path / "state",
            )
        )
        health = await adapter.health()
        assert (health.status, health.records) == ("ok", finding.records)
        await adapter.close()


def test_the_way_up_ends_at_the_git_root(home: Path, project: Path) -> None:
    write(project / "CLAUDE.md")
    write(project / "src" / "deep" / "AGENTS.md")
    write(project.parent / "CLAUDE.md")
    found = usable(discover(home, project / "src" / "deep", {}))
    assert found == {"instructions-deep": project / "src" / "deep", "instructions-app": project}
    (project / ".git").rmdir()
    assert set(usable(discover(home, project / "src" / "deep", {}))) == {"instructions-deep"}


def test_the_persons_own_instructions_are_found_once(home: Path) -> None:
    write(home / ".claude" / "CLAUDE.md")
    assert usable(discover(home, home, {})) == {"instructions-user": home / ".claude"}
    moved = home / "elsewhere"
    (home / ".claude").rename(moved)
    assert usable(discover(home, home, {"CLAUDE_CONFIG_DIR": str(moved)})) == {
        "instructions-user": moved
    }


def test_a_home_with_projects_is_no_vault(home: Path, project: Path) -> None:
    (home / "projects" / "x" / "memory").mkdir(parents=True)
    assert discover(home, home, {}) == []
    (project / "projects" / "x" / "memory").mkdir(parents=True)
    assert usable(discover(home, project, {})) == {"vault-app": project}


def test_one_file_named_twice_is_one_finding(home: Path, project: Path) -> None:
    path = write(home / "kg.jsonl", "")
    config = {"mcpServers": {"m": {"env": {"MEMORY_FILE_PATH": str(path)}}}}
    write(project / ".mcp.json", json.dumps(config))
    (finding,) = discover(home, project, {"MEMORY_FILE_PATH": str(path)})
    assert finding.key == "mcp-memory-kg"


def test_what_cannot_be_used_says_why(home: Path, project: Path) -> None:
    write(project / ".mcp.json", "{ // comment\n}")
    servers = {
        "relative": "memory.json",
        "gone": "/gone/memory.jsonl",
        "folder": str(home),
        "unknown": "${workspaceFolder}/m.jsonl",
        "nul": "/x\0y",
    }
    config = {"servers": {name: {"env": {"MEMORY_FILE_PATH": p}} for name, p in servers.items()}}
    write(project / ".vscode" / "mcp.json", json.dumps(config))
    findings = discover(home, project, {})
    assert len(findings) == 6
    assert all(not finding.usable and finding.problems for finding in findings)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"mcpServers": []}',
        '{"mcpServers": {"a": 1, "b": {"env": []}, "c": {"env": {"MEMORY_FILE_PATH": 5}}}}',
        '{"projects": [1], "servers": {"x": null}}',
        '{"projects": {"/a": 3}}',
        "[" * 100_000,
        "\ud800",
    ],
)
def test_odd_configuration_is_survived(text: str, home: Path, project: Path) -> None:
    path = project / ".mcp.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert not any(finding.usable for finding in discover(home, project, {}))


def test_odd_places_are_survived(home: Path, project: Path) -> None:
    (project / ".memsearch").mkdir()
    (project / ".memsearch" / "memory").symlink_to(project / ".memsearch" / "memory")
    (home / ".claude").write_text("a file in a folder's place")
    (home / "vault").mkdir()
    (home / "vault" / "projects").symlink_to(home / "vault")
    (project / "CLAUDE.md").mkdir()
    os.mkfifo(project / "AGENTS.md")
    os.mkfifo(project / ".mcp.json")
    findings = discover(home, project, {"CLAUDE_CONFIG_DIR": "\0", "XDG_CONFIG_HOME": "relative"})
    assert [finding.problems for finding in findings] == [
        (f"{project / '.mcp.json'} is no file that could be a configuration.",)
    ]


def test_a_folder_with_very_many_projects_is_cut_and_says_so(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "ENTRY_LIMIT", 3)
    for number in range(5):
        write(home / ".claude" / "projects" / f"p{number}" / "memory" / "a.md")
    findings = discover(home, project, {})
    assert len(usable(findings)) == 3
    assert findings[0].problems[0].endswith("the rest was not looked at.")


def test_keys_are_plain_whatever_the_folder_is_called(home: Path) -> None:
    for name in ("Über Uns", "проект", "проект", "日本", "x" * 100, "..."):
        folder = home / name
        (folder / ".git").mkdir(parents=True, exist_ok=True)
        write(folder / "CLAUDE.md")
        (finding,) = discover(home, folder, {})
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", finding.key)
        assert len(finding.key) <= 48
