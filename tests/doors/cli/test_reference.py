from __future__ import annotations

from pathlib import Path

import pytest

from memtui.config import Settings
from memtui.doors.cli.errors import EXIT_CODES
from memtui.doors.cli.main import build_app
from memtui.doors.cli.reference import PAGES, walk, write

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_up_to_date(name: str) -> None:
    """Run `python -m memtui.doors.cli.reference docs` where this fails."""
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name]()


def test_every_option_of_every_command_is_documented_with_words() -> None:
    page = PAGES["commands.md"]()
    for path, command in walk(build_app()):
        assert f"`{path}`" in page
        assert command.help, path
        for parameter in command.params:
            assert parameter.help, f"{path} {parameter.name}"
            assert all(f"{option}" in page for option in parameter.opts if option.startswith("-"))


def test_the_list_of_commands_says_what_each_docstring_begins_with() -> None:
    from typer.main import get_command

    from memtui.doors.cli.command import LazyCommand

    def check(group: object) -> int:
        seen = 0
        for command in getattr(group, "commands", {}).values():
            if isinstance(command, LazyCommand):
                assert (command.load().help or "").split("\n\n")[0] == command.help
                seen += 1
            seen += check(command)
        return seen

    assert check(get_command(build_app())) > 20


def test_every_setting_and_exit_code_is_documented() -> None:
    assert all(f"`{name}`" in PAGES["settings.md"]() for name in Settings.model_fields)
    assert all(f"| {code} |" in PAGES["exit-codes.md"]() for code in EXIT_CODES)


def test_pages_are_written_into_a_new_folder(tmp_path: Path) -> None:
    write(tmp_path / "docs")
    assert {path.name for path in (tmp_path / "docs").iterdir()} == set(PAGES)
