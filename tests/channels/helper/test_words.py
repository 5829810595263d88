"""Which home a hook's command line names, before anything is imported that could read it."""

from __future__ import annotations

import pytest

from memtui.channels.helper.words import command_words, home_of_hook


@pytest.mark.parametrize(
    ("line", "home", "words"),
    [
        ("hook pre-run", "", ["hook", "pre-run"]),
        ("--home /a hook pre-run --run r", "/a", ["hook", "pre-run", "--run", "r"]),
        ("--home=/a --company b --principal=c --read-only hook", "/a", ["hook"]),
        ("--company b --home /a --home /c hook", "/c", ["hook"]),
        ("--home= hook", ".", ["hook"]),
        ("--home", ".", []),
        ("--company", "", []),
        ("--home /a --help hook", "/a", []),
        ("--home /a", "/a", []),
    ],
)
def test_the_options_before_a_command(line: str, home: str, words: list[str]) -> None:
    assert command_words(line.split()) == (home, words)


@pytest.mark.parametrize(
    ("line", "home"),
    [
        ("hook pre-run", ""), ("--home /a hook post-run", "/a"), ("--company b hook pre-run", ""),
        ("hook clients", None), ("hook", None), ("note hook pre-run", None), ("", None),
        ("--help hook pre-run", None),
    ],
)  # fmt: skip
def test_only_moments_of_a_run_are_for_the_helper(line: str, home: str | None) -> None:
    assert home_of_hook(line.split()) == home
