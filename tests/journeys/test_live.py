"""A person watches while an agent works: an MCP client over stdio beside the app on a pty."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import agent
from tests.journeys.terminal import opened

ESCAPE = "\x1b"

pytestmark = pytest.mark.slow


@contextmanager
def connected(home: Path, environment: dict[str, str]) -> Iterator[Callable[..., Any]]:
    """Start an agent; gives what lets it call a tool."""
    with subprocess.Popen(
        [sys.executable, "-m", agent.__name__, str(home / "memtui")],
        env={**environment, "HOME": str(home)},
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        told, answers = process.stdin, process.stdout
        assert told is not None
        assert answers is not None

        def call(tool: str, **arguments: Any) -> Any:
            told.write(json.dumps([tool, arguments]) + "\n")
            told.flush()
            return json.loads(answers.readline())

        yield call


def logged(home: Path) -> int:
    """Return how many operations there are, without the app's own."""
    with closing(sqlite3.connect(home / "memtui" / "memtui.db")) as database:
        count = "SELECT count(*) FROM memory_operations WHERE channel <> 'tui'"
        return int(database.execute(count).fetchone()[0])


def test_what_an_agent_does_is_on_every_screen(tmp_path: Path) -> None:
    wanted = ("PATH", "PYTHONPATH", "VIRTUAL_ENV")
    environment = {name: os.environ[name] for name in wanted if name in os.environ}
    with opened(tmp_path, columns=120, rows=40, environment=environment) as terminal:
        terminal.until("4 Records", "No records here yet.")
        with connected(tmp_path, environment) as call:
            [first] = call("memory_note", text="The staging port is 9443.")["ids"]
            terminal.until("The staging port is 9443.")
            terminal.until("Remembered: The staging port is 9443.", "coding · mcp")

            terminal.press("2")
            terminal.until("✓ write", "● live")
            call("memory_search", query="which staging port")
            terminal.until("✓ query", "which staging port")

            terminal.press("3")
            terminal.until("Ask your memories", "which staging port")
            call("memory_search", query="who owns billing")
            terminal.until("who owns billing")

            terminal.press(ESCAPE)
            terminal.until("who owns billing", gone="esc results")
            terminal.press("6")
            counted = logged(tmp_path)
            terminal.until(f" {counted} operations")
            call("save_memory", scope="drive", fact="Deploys are on Mondays")
            terminal.until(f" {counted + 1} operations")

            terminal.press("1")
            terminal.until("Connected now", "● coding  apollo  “who owns billing”", "2 records")
            call("memory_forget", ids=[first])
            terminal.until("1 record", gone="2 records")

            terminal.press("4")
            terminal.until("Deploys are on Mondays", gone="staging port")
        terminal.press("1")
        terminal.until("Connected now ● or lately ○", "○ coding", "  seen ")
        terminal.press("q")
        assert terminal.until_ended() == 0
