"""A home that is not there: who reads it is told so, and who adds something to it makes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtui.config import Paths
from tests.channels.cli.conftest import Run


@pytest.fixture
def home(new_paths: Paths) -> Path:
    return new_paths.data


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize(
    "asked",
    ["query x", "bindings list", "browse", "ops list", "stats", "views list", "doctor --secrets",
     "undo", "--read-only note x", "--read-only serve"],
)  # fmt: skip
def test_who_reads_a_home_that_is_not_there_is_told_what_to_do_first(
    here: Run, home: Path, asked: str, is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtui.channels.cli.session.Invocation.names_home", is_named)
    code, out, err = here(*asked.split())
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"There is no memtui home at {home} yet. Run memtui to see which")
    assert not home.exists()


def test_what_adds_something_says_where_it_made_a_home(here: Run, home: Path) -> None:
    assert "is not there" in here("doctor").out
    assert f"Made a new home of memtui in {home}; memtui bindings discover" in here("note", "x").err
    assert "Made" not in here("note", "y").err
    assert here("query", "x").code == 0


def test_looking_for_memories_makes_no_home_and_says_how_to_add_them(
    here: Run, home: Path, person: Path
) -> None:
    (person / "CLAUDE.md").write_text("# Rules\n\n- Use tabs.\n")
    found = here("bindings", "discover")
    assert (found.code, "CLAUDE.md" in found.out) == (0, True)
    assert found.err == "--add KEY adds one of them as a read-only binding, --add-all adds all.\n"
    assert not home.exists()
    assert here("bindings", "discover", "--add-all").code == 0
    assert here("bindings", "discover").err == ""


def test_setting_up_a_client_makes_no_home_that_is_only_to_be_read(
    here: Run, home: Path, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtui.channels.cli.session.Invocation.names_home", False)
    asked = ("--read-only", "mcp", "install", "cursor")
    token = here(*asked).err.split()[-1].rstrip(".")
    assert here(*asked, "--yes", token).code == 0
    assert not home.exists()
