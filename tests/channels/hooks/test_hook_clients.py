"""A client's file gets memtui's hooks and gives them back, and all else stays to the byte."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.channels.clients import JsonForm
from memtui.channels.hooks.clients import CLIENTS, EVENT, HookClient, installing, uninstalling
from memtui.contract import Invalid, NotFound

COMMAND = ["/opt/me mtui/memtui", "hook", EVENT, "--client", "x"]

OTHERS = {
    "absent": None,
    "empty": b"",
    "no hooks": b'{\n  "model": "opus" // mine\n}\n',
    "empty hooks": b'{"hooks": {}}',
    "empty lists": b'{"hooks": {"SessionStart": [], "sessionStart": [ ]}, "z": 1}',
    "another's": b'{\n    "hooks": {\n        // ring\n        "Stop": [\n            {"hooks": '
    b'[{"type": "command", "command": "bell"}]},\n        ],\n    },\n}\n',
    "in one line": b'{"hooks": {"Stop": [{"hooks": []}], "sessionStart": [{"command": "y"}]}}',
    "tabs": b'{\r\n\t"hooks": {\r\n\t\t"AfterAgent": [\r\n\t\t\t{}\r\n\t\t]\r\n\t}\r\n}\r\n',
}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda one: one.key)
@pytest.mark.parametrize("what", OTHERS)
def test_the_file_is_as_it_was_afterwards(tmp_path: Path, what: str, client: HookClient) -> None:
    path = tmp_path / "settings.json"
    if (before := OTHERS[what]) is not None:
        path.write_bytes(before)
    said = JsonForm().load(path, before)

    installing(client, path, COMMAND, 5_000).apply(set())
    now = JsonForm().load(path, path.read_bytes())
    for event, kind in client.events.items():
        entry = now["hooks"][event].pop()
        [hook] = entry.get("hooks", [entry])
        assert shlex.split(hook["command"]) == [*COMMAND[:2], kind, *COMMAND[3:]]
        assert hook["timeout"] in {10, 10_000}
        assert now["hooks"][event] == said.get("hooks", {}).get(event, [])
    again = installing(client, path, COMMAND, 5_000)
    assert again.before == again.after
    with pytest.raises(Invalid, match="another way"):
        installing(client, path, [*COMMAND, "--agent", "y"], 5_000)

    uninstalling(client, path).apply(set())
    assert (path.read_bytes() if path.exists() else None) == before
    with pytest.raises(NotFound):
        uninstalling(client, path)


def test_what_came_behind_stays_when_the_hooks_go(tmp_path: Path) -> None:
    path = tmp_path / "hooks.json"
    codex = next(one for one in CLIENTS if one.key == "codex")
    installing(codex, path, COMMAND, 5_000).apply(set())
    said = json.loads(path.read_text())
    said["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "bell"}]})
    path.write_text(json.dumps(said))
    uninstalling(codex, path).apply(set())
    left = json.loads(path.read_text())["hooks"]
    assert [hook["command"] for group in left.pop("Stop") for hook in group["hooks"]] == ["bell"]
    assert not any(left.values())


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": []}', '{"hooks": {"Stop": 1}}'])
def test_a_file_of_another_shape_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text)
    with pytest.raises(Invalid, match=r"settings\.json"):
        installing(CLIENTS[0], path, COMMAND, 5_000)
    assert path.read_text() == text


_GROUPS = st.lists(st.sampled_from([{"hooks": [7]}, {"matcher": "x"}]), max_size=2)


@given(
    document=st.dictionaries(st.text(max_size=4), st.integers() | st.just({}), max_size=3),
    events=st.none()
    | st.dictionaries(st.sampled_from([*CLIENTS[0].events, "Other"]), _GROUPS, max_size=4),
    indent=st.sampled_from([None, 2, "\t"]),
)
def test_any_document_is_as_it_was_afterwards(
    tmp_path_factory: pytest.TempPathFactory,
    document: dict[str, object],
    events: dict[str, object] | None,
    indent: int | str | None,
) -> None:
    path = tmp_path_factory.mktemp("client") / "settings.json"
    document = document if events is None else {**document, "hooks": events}
    before = json.dumps(document, indent=indent).encode()
    path.write_bytes(before)
    installing(CLIENTS[0], path, COMMAND, 5_000).apply(set())
    uninstalling(CLIENTS[0], path).apply(set())
    assert path.read_bytes() == before
