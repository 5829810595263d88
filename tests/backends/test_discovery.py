from __future__ import annotations

import json
import os
import re
from pathlib import Path
from threading import Event

import pytest

from memtui.backends import discovery
from memtui.backends.basic_memory import BasicMemoryAdapter
from memtui.backends.claude_memory import ClaudeMemoryAdapter
from memtui.backends.codex_memory import CodexMemoryAdapter
from memtui.backends.discovery import DiscoveredMemory, discover
from memtui.backends.gemini import GeminiAdapter
from memtui.backends.hermes import HermesAdapter
from memtui.backends.hermes_facts import HermesFactsAdapter
from memtui.backends.instructions import InstructionsAdapter
from memtui.backends.letta import LettaAdapter
from memtui.backends.mcp_memory import McpMemoryAdapter
from memtui.backends.mem0.config import Mem0Config
from memtui.backends.memsearch import MemsearchAdapter
from memtui.backends.openclaw import OpenclawAdapter
from memtui.backends.vault import VaultAdapter
from memtui.contract import Adapter, BindingContext
from tests.backends.hermes import hermes_facts

READERS: dict[str, type[Adapter]] = {
    adapter.key: adapter
    for adapter in (
        BasicMemoryAdapter,
        ClaudeMemoryAdapter,
        CodexMemoryAdapter,
        GeminiAdapter,
        HermesAdapter,
        HermesFactsAdapter,
        InstructionsAdapter,
        LettaAdapter,
        McpMemoryAdapter,
        MemsearchAdapter,
        OpenclawAdapter,
        VaultAdapter,
    )
}


LETTA = "---\ndescription: Of the person\n---\nAna.\n"
VARIABLES = (
    "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "APPDATA", "CODEX_HOME", "MEM0_DIR",
    "BASIC_MEMORY_CONFIG_DIR", "HERMES_HOME", "OPENCLAW_STATE_DIR", "OPENCLAW_HOME",
    "OPENCLAW_CONFIG_PATH", "OPENCLAW_WORKSPACE_DIR", "OPENCLAW_PROFILE",
    "LETTA_LOCAL_BACKEND_DIR",
)  # fmt: skip


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
    folder = home / "code" / "app"
    (folder / ".git").mkdir(parents=True)
    return folder


def usable(findings: list[DiscoveredMemory]) -> dict[str, Path]:
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
    ours = {one.key for one in findings if one.config.get("project_id") == "app"}
    assert ours == {"memsearch-app", "instructions-app", "claude-memory-app"}
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


def test_the_folder_that_one_stands_in_comes_first(home: Path, project: Path) -> None:
    write(home / ".claude" / "CLAUDE.md")
    for folder in (project, home / "aaa"):
        slug = re.sub(r"[^A-Za-z0-9]", "-", str(folder))
        write(home / ".claude" / "projects" / slug / "memory" / "MEMORY.md")
    write(home / ".claude.json", json.dumps({"projects": {str(project): {}}}))
    notes = home / "notes"
    for name in ("README.md", "b.md"):
        write(notes / name)
        write(project / name)
    own, *others = (one.key for one in discover(home, project, {}))
    assert (own, "instructions-user" in others) == ("claude-memory-app", True)
    assert usable(discover(home, notes, {})).get("vault-notes") is None
    write(notes / "a.md")
    assert next(iter(usable(discover(home, notes, {})).items())) == ("vault-notes", notes)
    (notes / ".obsidian").mkdir()
    below = write(notes / "deep" / "sub" / "c.md").parent
    write(below / "d.md")
    assert next(iter(usable(discover(home, below, {})).values())) == notes
    assert below not in usable(discover(home, below, {})).values()


def test_a_link_to_an_instruction_file_counts_once(home: Path) -> None:
    project = home / "app"
    (project / ".claude").mkdir(parents=True)
    (project / "AGENTS.md").write_text("# One\ntext\n\n# Two\ntext\n")
    (project / "CLAUDE.md").symlink_to("AGENTS.md")
    (project / ".claude" / "CLAUDE.md").symlink_to("../AGENTS.md")
    [found] = [one for one in discover(home, project, {}) if one.provider == "instructions"]
    assert found.records == 2
    assert found.why.endswith("It holds CLAUDE.md.")


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
    write(project / ".mcp.json", "{ // comment\n")
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


HOMES = {
    ".codex/config.toml": '[mcp_servers.m.env]\nMEMORY_FILE_PATH = "@"\n',
    ".config/Code/User/mcp.json": "JSON",
    "Library/Application Support/Code/User/mcp.json": "JSON",
    "roaming/Code/User/mcp.json": "JSON",
    ".gemini/settings.json": "JSON",
    ".gemini/config/mcp_config.json": "JSON",
    ".cursor/mcp.json": "JSON",
    "code/app/.vscode/mcp.json": """{
        // the team's
        "servers": {"m": {"env": {"MEMORY_FILE_PATH": "@", /* "x": */},},},
    }""",
    "etc/managed-mcp.json": "JSON",
    ".config/Code/User/profiles/-3f/mcp.json": "JSON",
    ".config/zed/settings.json": '{"context_servers": {"m": {"env": {"MEMORY_FILE_PATH": "@"}}}}',
}


@pytest.mark.parametrize("name", HOMES)
def test_the_servers_of_every_program_are_looked_at(name: str, home: Path, project: Path) -> None:
    graph = write(home / "kg.jsonl", "{}\n")
    config = {"mcpServers": {"m": {"env": {"MEMORY_FILE_PATH": "@"}}}}
    text = HOMES[name].replace("JSON", json.dumps(config)).replace("@", str(graph))
    write(home / name, text)
    env = {"APPDATA": str(home / "roaming")}
    (finding,) = discover(home, project, env, managed=home / "etc")
    assert (finding.path, finding.usable) == (str(graph), True)
    write(home / name, "{")
    (finding,) = discover(home, project, env, managed=home / "etc")
    assert str(home / name) in finding.problems[0]


async def test_what_agents_wrote_elsewhere_is_found_and_can_be_opened(
    home: Path, project: Path, tmp_path: Path
) -> None:
    other = home / "code" / "other"
    write(home / ".claude.json", json.dumps({"projects": {str(other): {}}}))
    write(other / ".memsearch" / "memory" / "2026-01-01.md", "### 10:00\n- a\n")
    write(other / ".claude" / "agent-memory" / "tester" / "MEMORY.md", "# Memory\ntext\n")
    write(home / ".claude" / "agent-memory" / "reviewer" / "MEMORY.md", "# Memory\ntext\n")
    write(project / ".claude" / "settings.local.json", '{"autoMemoryDirectory": "~/mem"}')
    write(home / "mem" / "topic.md", "---\nname: a\ndescription: b\ntype: user\n---\ntext\n")
    write(home / "etc" / "CLAUDE.md", "# Rules\ntext\n")
    write(home / ".codex" / "AGENTS.md", "# Rules\ntext\n")
    write(home / ".codex" / "memories" / "MEMORY.md")
    listed = {"vaults": {"1": {"path": str(home / "garden")}, "2": {"path": 3}, "3": None}}
    write(home / ".config" / "obsidian" / "obsidian.json", json.dumps(listed))
    write(home / "garden" / "a.md")
    write(home / "Documents" / "Second" / ".obsidian" / "app.json")
    places = {"projects": {"main": "~/basic", "new": {"path": str(home / "new")}, "gone": "/gone"}}
    write(home / ".basic-memory" / "config.json", json.dumps(places))
    write(home / "basic" / "a.md", "- [a] One.\n- Two.\n- three #t\n")
    write(home / "new" / "a.md")
    letta = write(home / ".letta" / "agents" / "agent-1" / "memory" / "system" / "human.md", LETTA)
    write(letta.parents[1] / "skills" / "pdf" / "SKILL.md")
    local = home / ".letta" / "lc-local-backend" / "memfs"
    for name in ("a", "b"):
        write(local / "agent-local-2" / "memory" / f"{name}.md", LETTA)
    write(home / ".hermes" / "memories" / "MEMORY.md", "One.\n§\nTwo.")
    write(home / ".hermes" / "profiles" / "work" / "memories" / "USER.md", "Ana.")
    write(home / ".gemini" / "GEMINI.md", "# Ana\n\nAna reads Rust.\n- One.\n- Two.\n")
    write(home / ".gemini" / "tmp" / "web" / "memory" / "MEMORY.md", "- One.\n")
    write(home / ".gemini" / "tmp" / "web" / "memory" / "notes.md", "- Two.\n")
    write(home / ".gemini" / "tmp" / "web" / ".project_root", str(home / "code" / "site"))
    (home / ".gemini" / "tmp" / "new" / "memory" / ".inbox").mkdir(parents=True)
    (home / ".gemini" / "tmp" / "bin").mkdir(parents=True)
    with hermes_facts(str(home / ".hermes" / "profiles" / "work" / "memory_store.db")):
        pass
    claw = home / ".openclaw"
    write(claw / "workspace" / "MEMORY.md", "# Memory\n\n- One.\n- Two.\n")
    write(claw / "workspace" / "memory" / "2026-11-28.md", "Three.\n")
    write(claw / "workspace-ops" / "USER.md", "- Ana.\n")
    write(home / "lab" / "DREAMS.md", "I wandered.\n")
    write(claw / "openclaw.json", f"{{agents: {{entries: {{lab: {{workspace: '{home}/lab'}}}}}}}}"
          .replace("'", '"'))  # fmt: skip

    findings = discover(home, project, {}, managed=home / "etc")
    assert usable(findings) == {
        "instructions-etc": home / "etc",
        "claude-memory-reviewer": home / ".claude" / "agent-memory" / "reviewer",
        "instructions-codex": home / ".codex",
        "codex-memory-codex": home / ".codex" / "memories",
        "claude-memory-mem": home / "mem",
        "memsearch-other": other / ".memsearch" / "memory",
        "claude-memory-tester": other / ".claude" / "agent-memory" / "tester",
        "vault-garden": home / "garden",
        "vault-second": home / "Documents" / "Second",
        "vault-basic-main": home / "basic",
        "basic-memory-main": home / "basic",
        "vault-basic-new": home / "new",
        "letta-agent-1": home / ".letta" / "agents" / "agent-1" / "memory",
        "letta-agent-local-2": local / "agent-local-2" / "memory",
        "hermes-hermes": home / ".hermes" / "memories",
        "hermes-work": home / ".hermes" / "profiles" / "work" / "memories",
        "gemini-gemini": home / ".gemini",
        "gemini-web": home / ".gemini" / "tmp" / "web" / "memory",
        "gemini-new": home / ".gemini" / "tmp" / "new" / "memory",
        "hermes-facts-work": home / ".hermes" / "profiles" / "work" / "memory_store.db",
        "openclaw-openclaw": claw / "workspace",
        "openclaw-ops": claw / "workspace-ops",
        "openclaw-lab": home / "lab",
    }
    assert {one.key: one.records for one in findings if one.provider == "openclaw"} == {
        "openclaw-openclaw": 3, "openclaw-ops": 1, "openclaw-lab": 1,
    }  # fmt: skip
    projects = {one.key: one.config["project_id"] for one in findings if "project_id" in one.config}
    assert projects == {
        "claude-memory-mem": "app", "memsearch-other": "other", "claude-memory-tester": "other",
        "gemini-web": "site",
    }  # fmt: skip
    for finding in findings:
        adapter = await READERS[finding.provider].open(
            BindingContext(
                company_id="acme",
                binding_key=finding.key,
                config=finding.config,
                read_only=True,
                data_dir=tmp_path / "state" / finding.key,
            )
        )
        health = await adapter.health()
        assert (health.status, health.records or 1) == ("ok", finding.records or 1)
        await adapter.close()


def test_letta_s_folders_are_found_where_its_variable_names_them(home: Path, project: Path) -> None:
    place = home / "backend"
    for name in range(3):
        write(place / "memfs" / "agent-local-1" / "memory" / "system" / f"{name}.md", LETTA)
    env = {"LETTA_LOCAL_BACKEND_DIR": str(place)}
    [found] = [one for one in discover(home, project, env) if one.provider == "letta"]
    assert (found.path, found.records) == (str(place / "memfs" / "agent-local-1" / "memory"), 3)


def test_what_memtui_cannot_open_is_named(home: Path, project: Path) -> None:
    write(home / ".mem0" / "history.db")
    write(home / ".letta" / "sqlite.db")
    write(home / ".hermes" / "memory_store.db", "no database")
    entries = {
        "m": {"url": "http://localhost:8765/mcp/openmemory/sse/ana"},
        "n": {"command": "uvx", "env": {"MEM0_API_KEY": "m0-secret"}},
    }
    write(home / ".cursor" / "mcp.json", json.dumps({"mcpServers": {"m": entries["m"]}}))
    write(project / ".mcp.json", json.dumps({"mcpServers": {"n": entries["n"]}}))
    findings = discover(home, project, {})
    assert {(one.provider, one.title) for one in findings} == {
        ("mem0", "mem0 of the MCP server n"),
        ("mem0", "mem0 library"),
        ("mem0", "OpenMemory of the MCP server m"),
        ("letta", "Letta server"),
        ("hermes-facts", "Hermes's facts"),
    }
    assert not usable(findings)
    assert "m0-secret" not in repr(findings)


def test_files_of_milvus_are_told_apart(home: Path, project: Path) -> None:
    for path in (home / ".agent-queue" / "memory.db", project / "milvus.db"):
        for name in ("chunks", "aq_system", "aq_5", "aq_4", "aq_3", "aq_2"):
            write(path / "collections" / name / "schema.json", "{}")
    write(home / ".memsearch" / "milvus.db" / "collections" / "chunks" / "schema.json", "{}")
    write(home / "old-milvus.db", "SQLite format 3")
    write(home / "notes.db", "SQLite format 3")
    found = {
        Path(one.path).relative_to(home).as_posix(): one for one in discover(home, project, {})
    }
    assert {path for path, one in found.items() if one.usable} == {
        ".agent-queue/memory.db", "code/app/milvus.db"
    }  # fmt: skip
    assert "It holds aq_2, aq_3, aq_4, aq_5." in found["code/app/milvus.db"].why
    assert "no collections of agent-queue" in found[".memsearch/milvus.db"].problems[0]
    assert "before version 3" in found["old-milvus.db"].problems[0]
    assert len(found) == 4


def test_an_account_of_mem0_is_offered_without_its_key(home: Path, project: Path) -> None:
    (finding,) = discover(home, project, {"MEM0_API_KEY": "m0-secret"})
    assert finding.usable
    assert Mem0Config.model_validate(finding.config).is_platform
    assert "m0-secret" not in repr(finding)


def test_another_users_folder_is_named_and_not_looked_into(tmp_path: Path) -> None:
    home, other = tmp_path / "home" / "ana", tmp_path / "home" / "bob"
    home.mkdir(parents=True)
    graph = write(other / "kg.jsonl", "{}\n")
    write(other / "notes" / "a.md")
    write(other / "memory" / "MEMORY.md", "# M\ntext\n")
    (home / "theirs").symlink_to(other)
    (home / ".claude" / "projects").mkdir(parents=True)
    (home / ".claude" / "projects" / "slug").symlink_to(other)
    servers = {
        name: {"env": {"MEMORY_FILE_PATH": str(path)}}
        for name, path in {"a": graph, "b": home / "theirs" / "kg.jsonl"}.items()
    }
    config = {"mcpServers": servers, "projects": {str(other / "notes"): {}}}
    write(home / ".claude.json", json.dumps(config))
    write(other / "notes" / ".memsearch" / "memory" / "2026-01-01.md", "### 10:00\n- a\n")
    listed = {"vaults": {"1": {"path": str(other / "notes")}}}
    write(home / ".config" / "obsidian" / "obsidian.json", json.dumps(listed))
    write(home / ".claude" / "settings.json", json.dumps({"autoMemoryDirectory": str(other)}))
    findings = discover(home, home, {})
    assert len(findings) == 5
    assert all("another user" in one.problems[0] for one in findings)
    assert usable(discover(home, other / "notes", {})), "who works there looks there"


HERE, ABOVE, USUAL = (
    "You are in this folder.", "It is above the folder you are in.", "It is a usual place for it.",
)  # fmt: skip


def test_two_of_everything_are_found_each_with_all_that_is_known_of_it(
    home: Path, project: Path, tmp_path: Path
) -> None:
    here, other = project / "src", home / "code" / "other"
    kg = ('{"type":"entity"}\n\n  {"type":"entity"}\n', "")
    codes = home / ".config" / "Code" / "User"
    for path, text in {
        here / "AGENTS.md": "# A\n## B\n#no\n",
        here / ".claude" / "rules" / "b.md": "text\n",
        here / ".claude" / "rules" / "a.MD": "# 1\n",
        here / "CLAUDE.local.md": "",
        here / "CLAUDE.md": "",
        project / ".memsearch" / "memory" / "1.md": "### 10:00\n###\tb\n#### c\n",
        project / ".memsearch" / "memory" / "2.md": "### 10:00\n",
        project / ".obsidian" / "app.json": "{}",
        home / ".agent-queue" / "vault" / "agent-types" / "x" / "facts.md": "",
        home / ".agent-queue" / "vault" / "users" / "y" / "memory" / "n.md": "",
        home / ".agent-queue" / "vault" / "system" / "facts.md": "",
        home / ".agent-queue" / "vault" / "orchestrator" / "facts.md": "",
        home / ".memtui" / "vault" / "projects" / "p" / "facts.md": "",
        home / ".memsearch" / "memory" / "a.md": "no turn\n",
        project / ".claude" / "agent-memory" / "one" / "a.md": "",
        project / ".claude" / "agent-memory-local" / "two" / "MEMORY.md": "",
        project / ".claude" / "agent-memory-local" / "two" / "b.md": "",
        project / ".claude" / "agent-memory-local" / "two" / "c.txt": "",
        project / ".claude" / "agent-memory-local" / "two" / "d.md": "",
        home / ".claude" / "projects" / "a" / "memory" / "a.md": "",
        home / ".claude" / "projects" / "b" / "memory" / "b.md": "",
        home / ".claude" / "projects" / "c" / "notes" / "c.md": "",
        home / ".claude" / "settings.json": '{"autoMemoryDirectory": " mem "}',
        home / "mem" / "1.md": "",
        project / ".claude" / "settings.json": '{"autoMemoryDirectory": "mem"}',
        project / "mem" / "1.md": "",
        other / ".claude" / "agent-memory" / "three" / "a.md": "",
        home / "1.jsonl": kg[0],
        home / "2.jsonl": kg[1],
        home / ".claude.json": json.dumps(
            {
                "projects": {
                    str(other): {
                        "mcpServers": {"x": {"env": {"MEMORY_FILE_PATH": "${GRAPHS:-~}/1.jsonl"}}}
                    },
                    "relative": {},
                },
                "mcpServers": {"y": {"env": {"MEMORY_FILE_PATH": " ~/2.jsonl "}}},
            }
        ),
        codes / "profiles" / "1" / "mcp.json": '{"servers": {"z": {"url": "https://mem0.ai"}}}',
        codes / "profiles" / "2" / "mcp.json": '{"servers": {"w": {"url": "https://MEM0.ai"}}}',
        home
        / ".npm/_npx/1"
        / "node_modules/@modelcontextprotocol/server-memory/dist"
        / "memory.json": "{}\n{}\n",
        home / "Obsidian" / ".obsidian" / "x": "",
        home / "Notes" / ".obsidian" / "x": "",
        home / "Documents" / "Deep" / "er" / ".obsidian" / "x": "",
        home / "listed" / "a.md": "",
        home / "too" / "a.md": "",
        home / "snap/obsidian/current/.config/obsidian/obsidian.json": json.dumps(
            {
                "vaults": {
                    "a": {"path": str(home / "listed")},
                    "b": {"path": str(home / "too")},
                    "c": {"path": "Notes"},
                    "d": {"path": str(home / "gone")},
                }
            }
        ),
        home / "basic" / "config.json": json.dumps({"projects": {"p": "~/mem", "q": "~/too"}}),
        home / ".letta/agents/a1/memory/x.md": "",
        home / ".letta/agents/a2/memory/x.md": "",
        home / ".letta/agents/a3/other/x.md": "",
        home / "mem0" / "history.db": "",
        home / ".claude-mem" / "claude-mem.db": "",
    }.items():
        write(path, text)
    env = {"BASIC_MEMORY_CONFIG_DIR": str(home / "basic"), "MEM0_DIR": str(home / "mem0")}
    found = []

    def plain(text: str) -> str:
        return text.replace(str(home), "~")

    for one in discover(home, here, env, managed=tmp_path / "managed"):
        config = {name: value for name, value in one.config.items() if name != "path"}
        found.append((
            one.key, plain(one.path), plain(one.title.replace(one.path, "@")), config,
            one.records, plain(one.why), bool(one.problems),
        ))  # fmt: skip
    assert found == [
        ("instructions-src", "~/code/app/src", "Agent instructions of @",
         {"layout": "project", "project_id": "src"}, 6,
         f"{HERE} It holds CLAUDE.md, CLAUDE.local.md, AGENTS.md, a.MD.", False),
        ("memsearch-app", "~/code/app/.memsearch/memory", "memsearch logs of ~/code/app",
         {"project_id": "app"}, 3, ABOVE, False),
        ("vault-app", "~/code/app", "Obsidian vault @", {}, None, ABOVE, False),
        ("claude-memory-one", "~/code/app/.claude/agent-memory/one",
         "Claude Code memory of the subagent one", {"agent_id": "one", "project_id": "app"}, 1,
         ABOVE, False),
        ("claude-memory-two", "~/code/app/.claude/agent-memory-local/two",
         "Claude Code memory of the subagent two", {"agent_id": "two", "project_id": "app"}, 2,
         ABOVE, False),
        ("claude-memory-mem", "~/code/app/mem", "Claude Code memory in @", {"project_id": "app"},
         1, "~/code/app/.claude/settings.json moves the memory there.", False),
        ("vault-vault", "~/.agent-queue/vault", "Vault @", {}, None,
         f"{USUAL} It holds system/facts.md, orchestrator/facts.md, agent-types/x/facts.md.",
         False),
        ("vault-vault-2", "~/.memtui/vault", "Vault @", {}, None,
         f"{USUAL} It holds projects/p/facts.md.", False),
        ("memsearch-home", "~/.memsearch/memory", "memsearch logs of ~", {}, 0, USUAL, False),
        ("claude-memory-mem-2", "~/mem", "Claude Code memory in @", {}, 1,
         "~/.claude/settings.json moves the memory there.", False),
        ("claude-memory-a", "~/.claude/projects/a/memory", "Claude Code memory of a",
         {"project_id": "a"}, 1, "Claude Code writes it.", False),
        ("claude-memory-b", "~/.claude/projects/b/memory", "Claude Code memory of b",
         {"project_id": "b"}, 1, "Claude Code writes it.", False),
        ("claude-memory-three", "~/code/other/.claude/agent-memory/three",
         "Claude Code memory of the subagent three", {"agent_id": "three", "project_id": "other"},
         1, "An agent's program has worked there.", False),
        ("vault-listed", "~/listed", "Obsidian vault @", {}, None, "Obsidian lists it.", False),
        ("vault-too", "~/too", "Obsidian vault @", {}, None, "Obsidian lists it.", False),
        ("vault-notes", "~/Notes", "Obsidian vault @", {}, None, "It holds a folder .obsidian.",
         False),
        ("vault-obsidian", "~/Obsidian", "Obsidian vault @", {}, None,
         "It holds a folder .obsidian.", False),
        ("vault-basic-p", "~/mem", "basic-memory project p", {}, None, "basic-memory lists it.",
         False),
        ("letta-a1", "~/.letta/agents/a1/memory", "Letta memory of a1", {}, 1, "Letta writes it.",
         False),
        ("letta-a2", "~/.letta/agents/a2/memory", "Letta memory of a2", {}, 1, "Letta writes it.",
         False),
        ("mcp-memory-2", "~/2.jsonl", "MCP memory @", {}, 0,
         "The MCP server y in ~/.claude.json writes it.", False),
        ("mcp-memory-1", "~/1.jsonl", "MCP memory @", {}, 2,
         "The MCP server x in ~/.claude.json writes it.", False),
        ("mem0-mcp-json", "~/.config/Code/User/profiles/1/mcp.json", "mem0 of the MCP server z", {},
         None, "The MCP server z in ~/.config/Code/User/profiles/1/mcp.json writes it.", True),
        ("mem0-mcp-json-2", "~/.config/Code/User/profiles/2/mcp.json",
         "mem0 of the MCP server w", {}, None,
         "The MCP server w in ~/.config/Code/User/profiles/2/mcp.json writes it.", True),
        ("mcp-memory-dist",
         "~/.npm/_npx/1/node_modules/@modelcontextprotocol/server-memory/dist/memory.json",
         "MCP memory @", {}, 2,
         "The MCP memory server keeps its file there unless it is given a path.", False),
        ("mem0-mem0", "~/mem0", "mem0 library", {}, None,
         "The mem0 library keeps its history there.", True),
        ("claude-mem-claude-mem-db", "~/.claude-mem/claude-mem.db", "claude-mem database", {}, None,
         USUAL, True),
    ]  # fmt: skip


def test_a_search_that_does_not_end_gives_what_it_has(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project / "CLAUDE.md")
    hangs = Event()
    monkeypatch.setattr(discovery, "client_files", lambda *_: [Path(str(hangs.wait()))])
    found = discover(home, project, {}, seconds=0.5)
    hangs.set()
    assert [one.usable for one in found] == [True, False]
    assert "after 0.5 s" in found[1].problems[0]


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
    for nonsense in ("relative", "\0"):
        findings = discover(home, project, dict.fromkeys(VARIABLES, nonsense))
        assert [finding.problems for finding in findings] == [
            (f"{project / '.mcp.json'} is not a regular file, or too large for a configuration.",)
        ]


def test_a_folder_with_very_many_projects_is_cut_and_says_so(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "ENTRY_LIMIT", 3)
    for number in range(5):
        write(home / ".claude" / "projects" / f"p{number}" / "memory" / "a.md")
    findings = discover(home, project, {})
    assert len(usable(findings)) == 3
    assert findings[0].problems[0].endswith("the rest was not searched.")


def test_keys_are_plain_whatever_the_folder_is_called(home: Path) -> None:
    for name in ("Über Uns", "проект", "проект", "日本", "x" * 100, "..."):
        folder = home / name
        (folder / ".git").mkdir(parents=True, exist_ok=True)
        write(folder / "CLAUDE.md")
        (finding,) = discover(home, folder, {})
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", finding.key)
        assert len(finding.key) <= 48
