"""The process that a hook and the MCP server have in common, and the run that is noted under it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from memtui.channels.hooks import joining
from memtui.channels.hooks.joining import Process, RunNote, client_process, note_run, noted
from memtui.config import Paths
from memtui.paths import HOOK_PARENT


@pytest.mark.parametrize(
    ("words", "between"),
    [
        (("/bin/sh", "-c", "memtui hook pre-run"), True),
        (("-zsh",), True),
        (("uv", "run", "memtui", "mcp"), True),
        (("/usr/bin/python3.11", "-m", "memtui", "mcp"), True),
        (("/opt/v/bin/python", "/opt/v/bin/memtui", "hook", "pre-run"), True),
        (("node", "/usr/lib/node_modules/npm/bin/npx-cli.js", "x"), True),
        (("/home/me/.local/bin/claude", "-p", "sh"), False),
        (("node", "/usr/lib/node_modules/@openai/codex/bin/codex.js"), False),
        (("python3", "agent.py", "memtui"), False),
        ((), False),
    ],
)
def test_shells_and_launchers_stand_between(words: tuple[str, ...], between: bool) -> None:
    assert Process(7, "1", 1, words).is_launcher is between


def test_a_run_is_noted_under_its_client_until_that_is_gone(paths: Paths) -> None:
    own = joining.process_of(os.getpid())
    assert own is not None
    assert noted(paths, own) is None
    first, theirs, second = RunNote("first"), RunNote("theirs"), RunNote("second", compacted=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        other = joining.process_of(started.pid)
        assert other is not None
        assert other.parent == os.getpid()
        note_run(paths, other, theirs)
        note_run(paths, own, first)
        assert (noted(paths, other), noted(paths, own)) == (theirs, first)
        started.communicate(b"\n")
    note_run(paths, own, second)
    assert (noted(paths, other), noted(paths, own)) == (None, second)
    folder = paths.data / "clients"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [one.stat().st_mode & 0o777 for one in folder.iterdir()] == [0o600]
    (folder / own.name).write_text("a\nb")
    assert noted(paths, own) is None


def test_a_forked_hook_is_told_who_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOOK_PARENT, str(os.getpid()))
    own = client_process()
    assert own is not None
    assert own == client_of(os.getpid())
    monkeypatch.setenv(HOOK_PARENT, "4194999")
    assert client_process() is None


def client_of(pid: int) -> Process | None:
    return next((one for one in joining._ancestors(pid) if not one.is_launcher), None)


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps here")
def test_ps_tells_what_proc_tells() -> None:
    one, other = joining._of_ps(os.getpid()), joining.process_of(os.getpid())
    assert one is not None
    assert other is not None
    assert (one.pid, one.parent) == (other.pid, other.parent)
    assert joining._of_ps(os.getpid()) == one
    assert joining._of_ps(4194999) is None
