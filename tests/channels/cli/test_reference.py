from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from memtui.actions import ACTIONS
from memtui.channels.cli.command import LazyCommand, LazyGroup
from memtui.channels.cli.errors import EXIT_CODES
from memtui.channels.cli.main import BEGIN, command_line
from memtui.config import Settings
from tools.reference import MARK, PAGES, renewed, walk, write

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
MOST_COMMANDS = 34
NAMED = r"`memtui (?:--read-only |--[a-z-]+ \S+ )*([a-z][a-z-]*(?: [a-z][a-z-]*)?)"
"""A command that a sentence names, and the next word."""
made = cache(renewed)


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_up_to_date(name: str) -> None:
    """Run `python -m tools.reference docs` where this fails."""
    assert (DOCS / name).read_text(encoding="utf-8") == made(DOCS, name)


def test_every_option_of_every_command_is_documented_with_words() -> None:
    page = made(DOCS, "commands.md")
    for path, command in walk():
        assert f"`{path}`" in page
        assert command.help, path
        for parameter in command.params:
            assert parameter.help, f"{path} {parameter.name}"
            assert all(f"{option}" in page for option in parameter.opts if option.startswith("-"))


def test_the_list_of_commands_says_what_each_docstring_begins_with() -> None:
    commands = command_line().commands.values()
    alone = [one for one in commands if isinstance(one, LazyCommand)]
    assert len(alone) > 10
    for one in alone:
        assert str(one.itself.help).split("\n\n")[0] == one.help


def test_each_command_stands_in_one_section_and_they_do_not_become_more() -> None:
    names = [name for _, listed in command_line().sections.values() for name in listed]
    assert sorted(names) == sorted(command_line().commands)
    assert len(names) <= MOST_COMMANDS
    paths = {path for path, _ in walk()}
    assert {one.removesuffix(" COMMAND --help") for one in BEGIN} <= paths


@pytest.mark.parametrize(
    "folder", ["memtui", "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
)
def test_a_command_that_a_sentence_names_is_there(folder: str) -> None:
    paths = dict(walk())
    place = ROOT / folder
    files = [one for one in place.rglob("*") if one.suffix in {".py", ".md"}] or [place]
    for file in files:
        text = file.read_text("utf-8")
        for said in re.findall(NAMED, text):
            first, _, second = said.partition(" ")
            assert f"memtui {first}" in paths, (file, said)
            if second and isinstance(paths[f"memtui {first}"], LazyGroup):
                assert f"memtui {said}" in paths, (file, said)


def test_every_setting_exit_code_and_action_is_documented() -> None:
    assert all(f"`{name}`" in made(DOCS, "keys.md") for name in ACTIONS)
    assert all(f"`{name}`" in made(DOCS, "settings.md") for name in Settings.model_fields)
    assert all(f"| {code} |" in made(DOCS, "exit-codes.md") for code in EXIT_CODES)


def test_what_was_written_by_hand_stays_when_pages_are_made_anew(tmp_path: Path) -> None:
    for name in PAGES:
        (tmp_path / name).write_text(f"By hand.\n\n{MARK}\nout of date\n", encoding="utf-8")
    write(tmp_path)
    for name in PAGES:
        by_hand, _, rest = (DOCS / name).read_text(encoding="utf-8").partition(MARK)
        assert by_hand.startswith("# ")
        assert (tmp_path / name).read_text(encoding="utf-8") == f"By hand.\n\n{MARK}{rest}"
