"""Which editor runs, and with which words."""

from __future__ import annotations

import sys

import pytest

from memtui.contract import Invalid, Location
from memtui.external_editor import command_at, editor_words

PYTHON = sys.executable


def test_the_setting_wins_then_visual_then_editor() -> None:
    environment = {"VISUAL": f"{PYTHON} -v", "EDITOR": f"{PYTHON} -e"}
    assert editor_words(f"{PYTHON} --wait", environment) == [PYTHON, "--wait"]
    assert editor_words("", environment) == [PYTHON, "-v"]
    assert editor_words("", {"EDITOR": PYTHON}) == [PYTHON]


@pytest.mark.parametrize("setting", ["no-such-editor", "'unclosed", "   no-such -x"])
def test_an_editor_that_cannot_run_is_said_before_anything_else(setting: str) -> None:
    with pytest.raises(Invalid):
        editor_words(setting, {})


@pytest.mark.parametrize(
    ("editor", "words"),
    [
        (["vim"], ["vim", "+7", "/v/-a.md"]),
        (["code", "--wait"], ["code", "--wait", "--goto", "/v/-a.md:7"]),
        (["/usr/bin/hx"], ["/usr/bin/hx", "/v/-a.md:7"]),
    ],
)
def test_a_file_opens_at_its_line(editor: list[str], words: list[str]) -> None:
    assert command_at(editor, Location(path="/v/-a.md", line=7)) == words
