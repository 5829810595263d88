"""`memtui mcp install`: looked at first, done by its code, and taken back."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from memtui.channels.clients import find_client
from memtui.channels.mcp.clients import CLIENTS
from memtui.channels.mcp.wrapping import ORIGINAL, servers_past
from tests.channels.cli.conftest import Run


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cursor's file in a home folder of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    path = tmp_path / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text('{\n  // mine\n  "mcpServers": {}\n}\n')
    return path


def test_a_client_is_told_by_a_code_and_the_server_taken_out_again(
    here: Run, own_file: Path
) -> None:
    before = own_file.read_bytes()
    shown = here("mcp", "install", "cursor", "--project", "apollo")
    assert shown.code == 2
    assert '+  "mcpServers": {"memtui"' in shown.out
    assert own_file.read_bytes() == before

    code = here("mcp", "install", "cursor", "--project", "apollo", "--json").document["code"]
    other = here("mcp", "install", "cursor", "--yes", code)
    assert other.code == 5
    assert own_file.read_bytes() == before

    done = here("mcp", "install", "cursor", "--project", "apollo", "--yes", code)
    assert done.code == 0
    assert "memtui hook install cursor --project apollo" in done.out
    said = own_file.read_text()
    assert "// mine" in said
    entry = json.loads(said.replace("// mine", ""))["mcpServers"]["memtui"]
    assert entry["args"][-5:] == ["mcp", "--agent", "cursor", "--project", "apollo"]
    again = here("mcp", "install", "cursor", "--project", "apollo")
    assert (again.code, again.out[:14]) == (0, "Nothing to do:")
    listed = here("mcp", "clients", "--json").document["clients"]
    assert [one["client"] for one in listed if one["installed"]] == ["cursor"]

    code = here("mcp", "uninstall", "cursor", "--json").document["code"]
    assert here("mcp", "uninstall", "cursor", "--yes", code).code == 0
    assert own_file.read_bytes() == before
    gone = here("mcp", "uninstall", "cursor")
    assert gone.code == 1
    assert "has no server memtui" in gone.err


@pytest.mark.parametrize("is_there", [False, True])
def test_folders_that_were_made_for_a_client_go_with_what_is_in_them(
    here: Run, person: Path, monkeypatch: pytest.MonkeyPatch, *, is_there: bool
) -> None:
    monkeypatch.setenv("PATH", str(person))  # without the client's own command
    skills = person / ".gemini" / "config" / "skills"
    if is_there:
        skills.mkdir(parents=True)
    before = {*person.rglob("*")}
    for done in ("install", "uninstall"):
        code = here("mcp", done, "antigravity", "--json").document["code"]
        assert here("mcp", done, "antigravity", "--yes", code).code == 0
        assert (skills / "memtui-memory" / "SKILL.md").exists() == (done == "install")
    assert {*person.rglob("*")} == before


@pytest.mark.parametrize("option", [[], ["--allow-destructive"]])
def test_a_skill_names_the_tools_that_are_offered(
    here: Run, person: Path, monkeypatch: pytest.MonkeyPatch, option: list[str]
) -> None:
    monkeypatch.setenv("PATH", str(person))
    install = ("mcp", "install", "antigravity", *option)
    assert here(*install, "--yes", here(*install, "--json").document["code"]).code == 0
    [skill] = person.rglob("SKILL.md")
    text = skill.read_text(encoding="utf-8")
    assert "memory_search" in text
    assert ("memory_correct" in text, "remove_memory" in text) == (bool(option), bool(option))


@pytest.mark.parametrize("is_there", [False, True])
def test_servers_and_hooks_agree_on_which_clients_are_there(
    here: Run, person: Path, monkeypatch: pytest.MonkeyPatch, *, is_there: bool
) -> None:
    monkeypatch.setenv("PATH", str(person))
    for name in (".codex", ".cursor", ".gemini") if is_there else ():
        (person / name).mkdir()
    if is_there:
        command = person / "claude"
        command.write_text("")
        command.chmod(0o700)
    known = [
        {
            one["client"]: one["there"]
            for one in here(channel, "clients", "--json").document["clients"]
        }
        for channel in ("mcp", "hook")
    ]
    assert set(known[1]) == {"claude-code", "codex", "cursor", "gemini"}
    assert {known[channel][key] for channel in (0, 1) for key in known[1]} == {is_there}


def test_a_yes_is_of_the_file_as_it_was_shown(here: Run, own_file: Path) -> None:
    code = here("mcp", "install", "cursor", "--json").document["code"]
    own_file.write_text("{}")
    late = here("mcp", "install", "cursor", "--yes", code)
    assert late.code == 5
    assert own_file.read_text() == "{}"


@pytest.mark.parametrize(
    ("text", "code", "words"), [("{", 2, "cannot be read"), ('{"mcpServers": 1}', 2, "fix")]
)
def test_a_file_that_cannot_be_edited_is_refused(
    here: Run, own_file: Path, text: str, code: int, words: str
) -> None:
    own_file.write_text(text)
    refused = here("mcp", "install", "cursor")
    assert refused.code == code
    assert words in refused.err
    assert own_file.read_text() == text
    assert here("mcp", "clients").code == 0


def test_an_unknown_client_is_named_with_the_known_ones(here: Run) -> None:
    refused = here("mcp", "install", "emacs")
    assert refused.code == 2
    assert "claude-code" in refused.err


def test_no_client_is_told_of_a_server_that_cannot_start(
    here: Run, own_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = own_file.read_bytes()
    monkeypatch.setitem(sys.modules, "mcp", None)
    refused = here("mcp", "install", "cursor")
    assert refused.code == 2
    assert "pip install 'memtui[mcp]'" in refused.err
    assert own_file.read_bytes() == before


def test_over_http_nobody_is_served_without_a_token(here: Run) -> None:
    refused = here("mcp", "--http", "--port", "0")
    assert refused.code == 2
    assert "memtui companies tokens add" in refused.err
    unfit = here("mcp", "serve", "--http", "--agent", "x")
    assert unfit.code == 2
    assert "--agent" in unfit.err


def test_who_is_connected_and_was_told_what(here: Run) -> None:
    none = here("agents")
    assert none.code == 0
    assert "No agent is connected" in none.err
    here("note", "Deploys run on Fridays", "--project", "apollo")
    asking = ("--principal", "agent:coding", "--acts-for", "user:ana")
    here(*asking, "query", "when are\x1b[31m deploys", "--project", "apollo")
    [one] = here("agents", "--json").document["agents"]
    assert (one["principal"], one["channel"], one["project_id"], one["is_open"]) == (
        "agent:coding",
        "cli",
        "apollo",
        False,
    )
    assert one["last_answer"]["results"] == 1
    told = here("agents").out
    assert "“when are␛[31m deploys” 1 record, " in told
    assert "\x1b" not in told


def test_the_list_says_which_memory_servers_go_past_memtui(
    here: Run, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(person))
    file = person / ".cursor" / "mcp.json"
    file.parent.mkdir()
    servers = {"notes": {"command": "npx", "args": ["@modelcontextprotocol/server-memory"]},
               "mem0": {"url": "http://x"}, "files": {"command": "ls"}}  # fmt: skip
    before = json.dumps({"mcpServers": servers})
    file.write_text(before)
    wrong = here("mcp", "install", "cursor", "--wrap", "notes")
    assert wrong.code == 1
    assert "memtui bindings add notes mcp" in wrong.err
    install = ("mcp", "install", "cursor", "--wrap", "notes", "--binding", "default")
    code = here(*install, "--json").document["code"]
    done = here(*install, "--yes", code)
    assert (done.code, done.out) == (
        0, "Cursor's server notes runs behind memtui; restart the client.\n"
    )  # fmt: skip
    assert ORIGINAL in file.read_text()
    cursor = find_client("cursor", CLIENTS)
    assert servers_past(cursor, person) == {"wrapped": ["notes"], "past_memtui": ["mem0"]}
    listed = here("mcp", "clients")
    assert "past memtui" in listed.out
    back = ("mcp", "uninstall", "cursor", "--wrap", "notes")
    code = here(*back, "--json").document["code"]
    assert here(*back, "--yes", code).code == 0
    assert file.read_text() == before
