"""The yes to a command on the command line and in the app."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from tests.backends.mcp.conftest import MAPPING
from tests.backends.mcp.fakes import FAKE
from tests.channels.cli.conftest import Run


def settings(folder: Path, *more: str) -> list[str]:
    command = shlex.join([sys.executable, "-S", str(FAKE), str(folder)])
    given = (f"command={command}", *more)
    return [word for one in given for word in ("--set", one)]


def test_a_command_is_shown_and_needs_a_yes(here: Run, tmp_path: Path) -> None:
    add = ["bindings", "add", "notes", "mcp", *settings(tmp_path, f"mapping={MAPPING}")]
    asked = here(*add)
    assert asked.code == 2
    assert "notes starts this program, now and whenever it is opened" in asked.err
    assert str(FAKE) in asked.err
    assert "add --yes" in asked.err
    assert not (tmp_path / "pids").exists()
    tried = here(*add, "--yes", "--try", "--json")
    assert tried.code == 0
    assert (tried.document["records"], tried.document["first"]) == (1, ["An otter."])
    assert "An otter." in here(*add, "--yes", "--try").out
    assert here(*add, "--yes").code == 0
    assert "An otter." in here("browse", "--binding", "notes").out
    other = ["bindings", "configure", "notes", "--set", 'env={"A": "1"}']
    assert here(*other).code == 2
    assert here(*other, "--yes").code == 0
    assert "An otter." in here("browse", "--binding", "notes").out
    assert json.loads((tmp_path / "environment.json").read_text())["A"] == "1"
    assert here("bindings", "configure", "notes", "--set", "max_listed=9").code == 0


def test_a_mapping_is_proposed_by_the_tools(here: Run, tmp_path: Path) -> None:
    tried = here("bindings", "add", "notes", "mcp", *settings(tmp_path), "--yes", "--try")
    assert tried.code == 2
    assert "has the tools search_notes, list_notes" in tried.err
