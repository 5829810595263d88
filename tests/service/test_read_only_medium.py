"""`--read-only` reads a home that lies on a medium which nobody can write."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.service.conftest import Lived

_MOUNT = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
_FILL = (
    'cp -a "$1" "$1.kept" && mount -t tmpfs -o size=64m tmpfs "$1" && cp -a "$1.kept/." "$1" '
    '&& { cat /dev/zero > "$1/fill" 2> /dev/null; shift; exec "$@"; }'
)
_DRIVER = """
import io, json, sys
from memtui.channels.cli.main import run
class Stream(io.TextIOWrapper):
    def __init__(self):
        super().__init__(io.BytesIO(), encoding="utf-8")
    def text(self):
        self.flush()
        return self.buffer.getvalue().decode()
real, answers = sys.stdout, []
for arguments in json.loads(sys.argv[2]):
    sys.stdout, sys.stderr = out, err = Stream(), Stream()
    code = run(["--home", sys.argv[1], *arguments])
    answers.append([code, out.text(), err.text()])
print(json.dumps(answers), file=real, flush=True)
"""


def on_read_only_medium(
    home: Path, *commands: list[str], mount: str = _MOUNT
) -> list[tuple[int, str, str]]:
    """Run command lines over a home that is mounted read-only, in one process of its own."""
    run = [sys.executable, "-c", _DRIVER, str(home), json.dumps(commands)]
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare here")
    alone = ["unshare", "-m", "sh", "-c"]
    try_it = [*alone, _MOUNT, "sh", str(home), "true"]
    if subprocess.run(try_it, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    command = [*alone, mount, "sh", str(home), *run]
    # A hook that runs out of its time on a busy machine ends the process, and all answers with it.
    patient = {**os.environ, "MEMTUI_HOOK_TIMEOUT_MS": "60000"}
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=patient)
    return [(code, out, err) for code, out, err in json.loads(done.stdout)]


def test_a_home_on_a_read_only_medium_is_read(lived: Lived) -> None:
    shutil.rmtree(lived.paths.data / "bindings" / "local" / "default" / "index")
    before = {path: path.stat().st_mtime_ns for path in lived.paths.data.rglob("*")}
    reads: list[list[str]] = [
        ["query", "deploy"],
        ["browse"],
        ["ops", "list"],
        ["stats"],
        ["audit", "verify"],
        ["ops", "archive", "verify"],
        ["sql", "SELECT count(*) AS n FROM operations"],
        ["context", "--project", "p"],
        ["doctor"],
    ]
    changes: list[list[str]] = [["note", "x"], ["ops", "archive", "seal", "--all"], ["undo"]]
    answers = on_read_only_medium(
        lived.paths.data,
        *(["--read-only", *one] for one in (*reads, *changes)),
        ["browse"],
    )
    for arguments, (code, out, err) in zip(reads, answers, strict=False):
        assert code == 0, (arguments, out, err)
        assert ("nothing of this is recorded" in err) == (arguments != ["doctor"])
    assert "We deploy" in answers[0][1]
    for code, out, err in answers[len(reads) : -1]:
        assert (code, out) in {(4, ""), (1, "")}, err
    code, _, err = answers[-1]
    assert (code, "or read it with --read-only" in err) == (2, True)
    assert {path: path.stat().st_mtime_ns for path in lived.paths.data.rglob("*")} == before


def test_a_home_on_a_full_disk_is_read(lived: Lived) -> None:
    reads = [["query", "deploy"], ["ops", "list"], ["stats"], ["facts", "list"]]
    others = [["doctor"], ["ops", "list"], ["hook", "pre-run"]]
    commands = [*(["--read-only", *one] for one in reads), *others]
    *answers, doctor, refused, hook = on_read_only_medium(lived.paths.data, *commands, mount=_FILL)
    for arguments, (code, out, err) in zip(reads, answers, strict=True):
        assert (code, "nothing of this is recorded" in err) == (0, True), (arguments, out, err)
    assert (doctor[0], "✗ disk: 0 MB are left" in doctor[1]) == (1, True)
    assert "left: of the binding" not in doctor[1]
    assert (refused[0], "its disk is full" in refused[2]) == (3, True)
    assert (hook[0], hook[1], "memtui.log cannot be written" in hook[2]) == (0, "", True)


def test_changes_that_nobody_merged_are_read_or_told_of(lived: Lived) -> None:
    database, kept = lived.paths.database, lived.paths.data.with_name("kept")
    with closing(sqlite3.connect(database)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("UPDATE memory_companies SET name = 'Unmerged'")
        writer.commit()
        shutil.copytree(lived.paths.data, kept)
    asked = ["--read-only", "companies", "list"]
    [(code, out, err)] = on_read_only_medium(kept, asked)
    assert (code, "Unmerged" in out) == (0, True), err
    (kept / "memtui.db-shm").unlink()
    [(code, out, err)] = on_read_only_medium(kept, asked)
    assert (code, out) == (3, "")
    assert "can only be merged on a medium" in err


def test_a_read_only_home_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    home: Any = tmp_path / "home"
    home.mkdir()
    [(code, out, err)] = on_read_only_medium(home, ["--read-only", "browse"])
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "There is no memtui home at" in err
