"""A client's file gets the server and gives it back, and everything else stays to the byte."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.channels.clients import JsonForm, TomlForm, find_client
from memtui.channels.mcp.clients import CLIENTS, NAME, installing, uninstalling
from memtui.contract import Conflict, Invalid, NotFound

COMMAND = ["memtui", "mcp", "--agent", "coding"]

JSON_FILES = {
    "absent": None,
    "empty": b"",
    "no member": b"{}",
    "no member, in lines": b"{\n}\n",
    "no server": b'{\n  "mcpServers": {}\n}\n',
    "other settings": b'{\n  "theme": "dark",\n  "nested": {"a": [1, 2, {"b": "}"}]}\n}',
    "another server": b'{\n    "mcpServers": {\n        "x": {\n            "command": "y"\n'
    b'        }\n    },\n    "z": 1\n}\n',
    "in one line": b'{"mcpServers": {"x": {"command": "y"}}, "z": 1}',
    "tabs": b'{\n\t"mcpServers": {\n\t\t"x": {}\n\t}\n}\n',
    "windows": b'{\r\n  "a": 1\r\n}\r\n',
    "mark": b'\xef\xbb\xbf{\n  "a": 1\n}\n',
    "comments": b'// mine\n{\n  /* "mcpServers": {} */\n  "mcpServers": { // servers\n'
    b'    "x": {"command": "http://y", "args": ["a,}"],}, // last\n  },\n}\n',
}
TOML_FILES = {
    "absent": None,
    "empty": b"",
    "comments": b'# mine\nmodel = "x"  # the model\n\n[mcp_servers.other]\ncommand = "y"\n',
    "no end": b'model = "x"',
    "windows": b'model = "x"\r\n',
    "sections": b"[a]\nb = 1\n[[c]]\nd = 2\n",
}


@pytest.mark.parametrize("holder", ["mcpServers", "servers"])
@pytest.mark.parametrize("what", JSON_FILES)
def test_a_json_file_is_as_it_was_afterwards(tmp_path: Path, what: str, holder: str) -> None:
    path = tmp_path / "mcp.json"
    before = JSON_FILES[what]
    if before is not None:
        before = before.replace(b"mcpServers", holder.encode())
        path.write_bytes(before)
    client = find_client("vscode" if holder == "servers" else "cursor", CLIENTS)
    said = JsonForm().load(path, before)

    change = installing(client, path, COMMAND)
    change.apply(set())
    now = JsonForm().load(path, path.read_bytes())
    assert now[holder].pop(NAME) == client.entry(COMMAND)
    assert now == {**said, holder: said.get(holder, {})}
    if before:
        assert [line for line in change.lines() if line.startswith("+")]

    uninstalling(client, path).apply(set())
    assert (path.read_bytes() if path.exists() else None) == before


@pytest.mark.parametrize("what", TOML_FILES)
def test_a_toml_file_is_as_it_was_afterwards(tmp_path: Path, what: str) -> None:
    path = tmp_path / "config.toml"
    before = TOML_FILES[what]
    if before is not None:
        path.write_bytes(before)
    codex = find_client("codex", CLIENTS)
    installing(codex, path, COMMAND).apply(set())
    now = tomllib.loads(path.read_text())
    assert now["mcp_servers"][NAME] == {"command": "memtui", "args": COMMAND[1:]}
    uninstalling(codex, path).apply(set())
    assert (path.read_bytes() if path.exists() else None) == before


def test_what_came_behind_stays_when_the_server_goes(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{\n  "mcpServers": {\n    "x": {}\n  }\n}\n')
    cursor = find_client("cursor", CLIENTS)
    installing(cursor, path, COMMAND).apply(set())
    text = path.read_text()
    path.write_text(text.replace("\n    }\n  }", '\n    }, // mine\n    "y": {}\n  }'))
    uninstalling(cursor, path).apply(set())
    assert JsonForm().load(path, path.read_bytes()) == {"mcpServers": {"x": {}, "y": {}}}

    toml = tmp_path / "config.toml"
    codex = find_client("codex", CLIENTS)
    installing(codex, toml, COMMAND).apply(set())
    toml.write_text(toml.read_text() + '\n[later]\nkept = "yes"\n')
    uninstalling(codex, toml).apply(set())
    assert tomllib.loads(toml.read_text()) == {"later": {"kept": "yes"}}


@pytest.mark.parametrize("rewritten", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_comment_stays_that_came_behind_a_toml_table(
    tmp_path: Path, end: str, *, rewritten: bool
) -> None:
    path = tmp_path / "config.toml"
    before, behind = f'model = "x"{end}', f'{end}# of later{end}[later]{end}kept = "yes"{end}'
    path.write_bytes(before.encode())
    codex = find_client("codex", CLIENTS)
    installing(codex, path, COMMAND).apply(set())
    text = path.read_bytes().decode()
    if rewritten:
        text = text.replace("command = ", "command=")
    path.write_bytes((text + behind).encode())
    uninstalling(codex, path).apply(set())
    left = path.read_bytes().decode()
    assert tomllib.loads(left) == {"model": "x", "later": {"kept": "yes"}}
    assert left == before + behind


def test_a_file_that_changed_since_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    change = installing(find_client("cursor", CLIENTS), path, COMMAND)
    path.write_text('{"a": 1}')
    with pytest.raises(Conflict, match="changed since"):
        change.apply(set())
    assert path.read_text() == '{"a": 1}'
    assert change.token != installing(find_client("cursor", CLIENTS), path, COMMAND).token


@pytest.mark.parametrize("text", ["{", "[]", '{"a": }', "nul", '{"mcpServers": []}'])
def test_a_file_that_cannot_be_read_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text)
    with pytest.raises(Invalid, match=r"mcp\.json"):
        installing(find_client("cursor", CLIENTS), path, COMMAND)
    assert path.read_text() == text


def test_a_server_that_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    cursor = find_client("cursor", CLIENTS)
    with pytest.raises(NotFound):
        uninstalling(cursor, path)
    installing(cursor, path, COMMAND).apply(set())
    again = installing(cursor, path, COMMAND)
    assert again.before == again.after
    with pytest.raises(Invalid, match="already, which starts in another way"):
        installing(cursor, path, ["other"])


def test_a_link_and_the_rights_of_a_file_stay(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    real.chmod(0o640)
    link = tmp_path / "mcp.json"
    link.symlink_to(real)
    installing(find_client("cursor", CLIENTS), link, COMMAND).apply(set())
    assert link.is_symlink()
    assert NAME in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640


def test_each_client_has_a_file_of_its_own(tmp_path: Path) -> None:
    assert len({client.file(tmp_path) for client in CLIENTS}) == len(CLIENTS)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(
    document=st.dictionaries(st.text(max_size=5), _VALUES, max_size=4),
    servers=st.none() | st.dictionaries(st.text(max_size=5), st.just({"command": "x"}), max_size=3),
    indent=st.sampled_from([None, 1, 2, 4, "\t"]),
    ends=st.sampled_from(["\n", "\r\n"]),
)
def test_any_document_is_as_it_was_afterwards(
    tmp_path_factory: pytest.TempPathFactory,
    document: dict[str, object],
    servers: dict[str, object] | None,
    indent: int | str | None,
    ends: str,
) -> None:
    path = tmp_path_factory.mktemp("client") / "mcp.json"
    if servers is not None:
        document = {**document, "mcpServers": servers}
    before = json.dumps(document, indent=indent).replace("\n", ends).encode()
    path.write_bytes(before)
    cursor = find_client("cursor", CLIENTS)
    installing(cursor, path, COMMAND).apply(set())
    uninstalling(cursor, path).apply(set())
    assert path.read_bytes() == before


def test_toml_strings_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    command = ['me"mtui', "a\\b", "snow\u2603", "new\nline", "\x7f"]
    installing(find_client("codex", CLIENTS), path, command).apply(set())
    assert TomlForm().load(path, path.read_bytes())["mcp_servers"][NAME]["args"] == command[1:]
