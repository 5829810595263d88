"""`docs/hooks.md` says what the hooks do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memtui.channels.hooks.calls import MOST_CHARACTERS, Moment, read_call
from memtui.channels.hooks.clients import CLIENTS
from memtui.config import Settings
from tools.reference import walk

PAGE = (Path(__file__).parents[3] / "docs" / "hooks.md").read_text(encoding="utf-8")


def test_each_client_stands_there_with_its_file_and_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.delenv("CODEX_HOME", raising=False)
    rows = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| `")]
    said = [[re.findall(r"`([^`]+)`", cell) for cell in row[:4]] for row in rows]
    told = [Moment.START, Moment.COMPACTION, Moment.PROMPT]
    assert said == [
        [
            [client.key],
            [str(client.file(Path("~")))],
            [event for event in client.events if moment_of(event) in told],
            [event for event in client.events if moment_of(event) not in told],
        ]
        for client in CLIENTS
    ]


def moment_of(event: str) -> Moment:
    return read_call(f'{{"hook_event_name": "{event}"}}').moment


def test_its_commands_and_figures_are_there() -> None:
    paths = {path for path, _ in walk()}
    named = set(re.findall(r"memtui ((?:hook|bindings) [a-z-]+)", PAGE))
    assert {f"memtui {words}" for words in named} <= paths
    assert f"{MOST_CHARACTERS:,} characters" in PAGE
    assert f"`helper_idle_s` seconds ({Settings().helper_idle_s};" in PAGE
