"""A client's server goes behind `memtui mcp wrap` and comes back to the byte."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from memtui.channels.clients import JsonForm, find_client
from memtui.channels.mcp.clients import CLIENTS
from memtui.channels.mcp.wrapping import servers_to_bind, taken_back, wrapped
from memtui.contract import Conflict, Invalid, NotFound

COMMAND = ["/opt/memtui", "mcp", "wrap", "notes", "--agent", "x"]
JSON_FILES = {
    "in lines": '{\n  "a": 1,\n  "mcpServers": {\n    "notes": {\n      "command": "npx",\n'
    '      "args": ["-y",  "server-memory"],\n      "env": { "A": "ü\\u00e9" } // mine\n    },\n'
    '    "other": {}\n  }\n}\n',
    "in one line": '{"mcpServers": {"notes": {"args": [], "command": "m\\u0063p", "type":"x"}}}',
    "windows": '{\r\n\t"mcpServers": {\r\n\t\t"notes": {\r\n\t\t\t"command": "x"\r\n\t\t}'
    "\r\n\t}\r\n}",
    "without arguments": '{"mcpServers": {"notes": {"command": "x", "timeout": 5}}}',
    "address": '{"mcpServers": {"notes": {"type": "http", "url": "https://x/mcp", '
    '"headers": {"Authorization": "Bearer s3cret"}, "timeout": 5}}}',
}
TOML_FILES = {
    "among others": '# mine\n[mcp_servers.notes]  # here\ncommand = "npx"\nargs = [\n "-y", # yes\n'
    "  'server',\n]\n\n[mcp_servers.notes.env]\nA = \"1\"\n\n# of the next\n[other]\nb = 2\n",
    "last": '[a]\nb = 1\n\n[mcp_servers."notes"]\r\ncommand = "x"\r\n',
}


def client(path: Path) -> Any:
    return find_client("codex" if path.suffix == ".toml" else "cursor", CLIENTS)


def entry_of(path: Path) -> Any:
    text = path.read_text("utf-8")
    document = tomllib.loads(text) if path.suffix == ".toml" else JsonForm().parse(text)
    return document[client(path).holder]["notes"]


FILES = [*((f"{what}.json", text) for what, text in JSON_FILES.items()),
         *((f"{what}.toml", text) for what, text in TOML_FILES.items())]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), FILES, ids=[name for name, _ in FILES])
def test_a_server_goes_behind_memtui_and_comes_back_to_the_byte(
    tmp_path: Path, name: str, text: str
) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode())
    before = entry_of(path)
    wrapped(client(path), path, "notes", COMMAND).apply(set())
    entry = entry_of(path)
    assert [entry["command"], *entry["args"]][: len(COMMAND)] == COMMAND
    if "url" in before:
        assert entry["args"][len(COMMAND) - 1 :] == [
            "--header-secret", "Authorization=WRAPPED_HEADER_1", "--url", "https://x/mcp",
        ]  # fmt: skip
        assert "s3cret" not in " ".join(entry["args"])
        assert entry["env"]["WRAPPED_HEADER_1"] == "Bearer s3cret"
    else:
        rest = ["--", before["command"], *before.get("args", [])]
        assert entry["args"][len(COMMAND) - 1 :] == rest
        assert entry["env"].items() >= before.get("env", {}).items()
    again = wrapped(client(path), path, "notes", COMMAND)
    assert again.before == again.after
    taken_back(client(path), path, "notes").apply(set())
    assert path.read_bytes() == text.encode()


@pytest.mark.parametrize(("name", "text"), FILES, ids=[name for name, _ in FILES])
def test_other_lines_may_change_meanwhile(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode())
    wrapped(client(path), path, "notes", COMMAND).apply(set())
    now = path.read_bytes()
    more = b"z = 1\n" if name.endswith("toml") else b"// more\n"
    path.write_bytes(more + now)
    taken_back(client(path), path, "notes").apply(set())
    assert path.read_bytes() == more + text.encode()


def test_a_client_may_write_its_file_anew(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(JSON_FILES["in lines"])
    wrapped(client(path), path, "notes", COMMAND).apply(set())
    document = JsonForm().parse(path.read_text())
    path.write_text(json.dumps(document, indent=4))
    taken_back(client(path), path, "notes").apply(set())
    raw = JSON_FILES["in lines"].partition('"notes": ')[2].partition(',\n    "other"')[0]
    assert raw in path.read_text()


def test_what_a_person_changed_in_the_entry_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(JSON_FILES["without arguments"])
    wrapped(client(path), path, "notes", COMMAND).apply(set())
    path.write_text(path.read_text().replace('"timeout": 5', '"timeout": 6'))
    with pytest.raises(Conflict, match="was changed since it was wrapped"):
        taken_back(client(path), path, "notes")


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"url": "https://x", "oauth": {}}, "cannot wrap notes: what oauth says only its client"),
        ({"disabled": True}, "no command and none of url, httpUrl, serverUrl"),
    ],
)
def test_a_server_that_only_its_client_reaches_is_refused(
    tmp_path: Path, entry: dict[str, Any], why: str
) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"notes": entry}}))
    with pytest.raises(Invalid, match=why):
        wrapped(client(path), path, "notes", COMMAND)


def test_an_inline_table_is_left_to_a_person(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('mcp_servers = { notes = { command = "x" } }\n')
    with pytest.raises(Invalid, match="is not a table of its own"):
        wrapped(client(path), path, "notes", COMMAND)


def test_an_unknown_server_is_named_with_the_others(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(JSON_FILES["in lines"])
    with pytest.raises(NotFound, match="it has: notes, other"):
        wrapped(client(path), path, "nope", COMMAND)
    with pytest.raises(NotFound, match="is not behind memtui"):
        taken_back(client(path), path, "notes")


def test_servers_come_with_the_command_that_binds_them_without_secrets(tmp_path: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    (tmp_path / ".cursor").mkdir()
    entries: dict[str, Any] = {
        "notes": {"command": "npx", "args": ["-y", "server-memory", token], "env": {"A": "s3cret"}},
        "mem": {"url": "https://x/mcp", "headers": {"Authorization": "Bearer s3cret"}},
        "odd memory": {"args": 1, "env": "x", "headers": []},
        "wrapped memory": {"command": "memtui", "env": {"WRAPPED_BY_MEMTUI": "{}"}},
        "weather": {"command": "weather"},
        "memtui": {"command": "memtui"},
    }
    (tmp_path / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    notes, mem = servers_to_bind(tmp_path)
    assert notes["command"].startswith(
        "memtui bindings add notes mcp --set 'command=npx -y server-memory "
    )
    assert notes["command"].endswith(" --set mapping=server-memory")
    assert notes["needs"] == ["A"]
    assert mem["command"] == "memtui bindings add mem mcp --set url=https://x/mcp"
    assert mem["needs"] == ["Authorization"]
    assert mem["client"] == "cursor"
    assert token not in str(notes)
    assert "s3cret" not in str([notes, mem])
