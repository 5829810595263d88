"""A person at a real terminal: the program on a pty, its keys, and what the screen shows."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from pathlib import Path

import pexpect
import pytest

from memtui.screens.kept import load_session
from tests.journeys.terminal import opened

ENTER = "\r"
ESCAPE = "\x1b"
SAVE = "\x13"
CLEAR = "\x0c"
EMPTY = "No records here yet."

pytestmark = pytest.mark.slow


@pytest.fixture
def environment() -> dict[str, str]:
    wanted = ("PATH", "PYTHONPATH", "VIRTUAL_ENV")
    return {name: os.environ[name] for name in wanted if name in os.environ}


def test_typed_before_the_first_screen_then_write_find_edit_forget_and_take_back(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    with opened(tmp_path, columns=120, rows=40, environment=environment) as terminal:
        terminal.press(*"2/type:")  # before Python itself is there
        time.sleep(0.4)
        terminal.press(*"configure", ENTER)
        terminal.until("/ type:configure", "vault·default", "add company")
        terminal.press(CLEAR, "4")
        terminal.until("4 Records", EMPTY, gone="/ type:configure")
        terminal.press("a")
        terminal.until("New record in vault·default")
        terminal.press("We deploy from the release branch", SAVE)
        terminal.until("Written.", gone="New record in")

        terminal.press("3")
        terminal.until("Ask your memories")
        terminal.press("which branch do we deploy from", ENTER)
        terminal.until("1 result for", "We deploy from the release branch", "o source")

        terminal.press("4")
        terminal.until("1× ")
        terminal.press("e")
        terminal.until("ctrl+s save")
        terminal.press(" on Mondays", SAVE)
        terminal.until("Changed.", "release branch on Mondays", gone="ctrl+s save")

        terminal.press("d")
        terminal.until("Forget 1 record from vault·default?")
        terminal.press("d", ENTER, "y")
        terminal.until("Forgot 1.", EMPTY)
        terminal.press("u")
        terminal.until("Undone: “We deploy from", "release branch on Mondays", gone=EMPTY)

        terminal.press("2")
        terminal.until("✓ undo", "✓ forget", "✓ correct", "✓ query", "✓ write")

        terminal.press("4", "@")
        terminal.until("Show everything as it was", "4 changes", "undo: undoes the forgetting")
        terminal.press("yesterday", ENTER)
        terminal.until("◷ THE PAST, as of", "4◷Records", "Nothing was here then.")
        terminal.press("a")
        terminal.until("The past cannot be changed")
        terminal.press("@")
        terminal.until("4 Records", "release branch on Mondays", gone="THE PAST")
        terminal.press("q")
        assert terminal.until_ended() == 0
    [note] = (tmp_path / "memtui" / "bindings").rglob("*.md")
    assert note.read_text().endswith("\nWe deploy from the release branch on Mondays\n")


def test_a_setting_that_does_not_fit_ends_the_app_with_a_sentence(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "memtui").mkdir()
    (tmp_path / "memtui" / "config.toml").write_text('[keymap]\n"records.forgt" = "x"\n')
    with opened(tmp_path, columns=120, rows=40, environment=environment) as terminal:
        assert terminal.until_ended() == 2
        assert "did you mean records.forget?" in terminal.output
        assert "Traceback" not in terminal.output


def test_the_smallest_usual_terminal_and_a_signal_that_ends_the_app(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    with opened(tmp_path, columns=80, rows=24, environment=environment) as terminal:
        terminal.until("No records here yet.", "● ok")
        first, tabs, filtered, *_, footer = terminal.lines
        assert first.startswith(" Local")
        assert first.endswith("vault·default  ● ok")
        assert tabs.startswith("  1 Bindings    2 Operations    3 Query    4 Records")
        assert filtered.startswith(" / such as agent:coding")
        assert filtered.endswith(" 0")
        assert footer.startswith(" e edit  space mark  d forget")
        assert footer.endswith("? help")

        terminal.press("a")
        terminal.until("New record in")
        terminal.press("漢字 and 🦊 stay \x1b[200~whole\x1b[201~", SAVE)
        terminal.until("Written.", gone="New record in")
        assert terminal.text.count("漢字 and 🦊 stay whole") >= 2
        assert "written" in terminal.text

        terminal.press("/", "agent:nobody", ENTER)
        terminal.until("No record matches.", "0 of 1")
        terminal.press(CLEAR)
        terminal.until(gone="0 of 1")
        terminal.press("1")
        terminal.until(
            "used here: the binding `default` (company default)",
            "1 record",
            "browse, correction, writable, sync, explain, history, namespaces,",
        )
        terminal.press("?")
        terminal.until("Keys", "esc close")
        terminal.press(ESCAPE)
        terminal.until("a add", gone="esc close")

        terminal.child.kill(signal.SIGTERM)
        assert terminal.until_ended() == 128 + signal.SIGTERM
        for restored in ("\x1b[?1049l", "\x1b[?1000l", "\x1b[?25h"):
            assert terminal.output.rfind(restored) > terminal.output.rfind("1 Bindings")
    kept = load_session(tmp_path / "memtui" / "session.json")
    assert kept.of("local").screen == "bindings"


def test_bytes_that_are_no_text_are_shown_as_such_and_the_app_goes_on(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    with opened(tmp_path, columns=80, rows=24, environment=environment) as terminal:
        terminal.until(EMPTY)
        terminal.press("a")
        terminal.until("New record in")
        os.write(terminal.child.child_fd, b"typed \xe9t\xe9, \x1b[200~pasted \x9b31m\x1b[201~")
        terminal.until("typed \ufffdt\ufffd, pasted \ufffd31m")
        terminal.press(SAVE)
        terminal.until("Written.", gone="New record in")


def test_what_is_written_as_the_terminal_goes_is_there_at_the_next_start(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    with opened(tmp_path, columns=80, rows=24, environment=environment) as terminal:
        terminal.until("No records here yet.", "● ok")
        terminal.press("a")
        terminal.until("New record in")
        terminal.press("half a thought")
        terminal.until("half a thought")
        terminal.child.kill(signal.SIGHUP)
        assert terminal.until_ended() == 128 + signal.SIGHUP
    with opened(tmp_path, columns=80, rows=24, environment=environment) as terminal:
        terminal.until("half a thought", "to go on:")
        terminal.until("● ok")
        terminal.press("a")
        terminal.until("New record in")
        terminal.press(SAVE)
        terminal.until("Written.", gone="New record in")
        terminal.press("q")
        assert terminal.until_ended() == 0
    assert not list((tmp_path / "memtui").glob("draft-*"))


def test_a_redirected_stderr_is_refused_before_the_screen_goes_blank(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    said = tmp_path / "said"
    command = f"exec {shlex.quote(sys.executable)} -m memtui 2>{shlex.quote(str(said))}"
    home = {**environment, "MEMTUI_HOME": str(tmp_path / "memtui")}
    child = pexpect.spawn("/bin/sh", ["-c", command], env=home, encoding="utf-8", timeout=60)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 2
    assert "needs a terminal" in said.read_text(encoding="utf-8")
