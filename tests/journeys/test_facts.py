"""The person who prunes: from facts that say the same twice to a check that passes, and back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

U = ("--subject", "U")
BOTH = (*U, "--project", "D")


def run(home: Path, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "memtui", "--home", str(home), *arguments],
        capture_output=True,
        check=False,
        env=os.environ | {"HOME": str(home)},
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def document(home: Path, *arguments: str, code: int = 0) -> Any:
    return json.loads(run(home, *arguments, "--json", code=code))


def test_pruned_in_a_minute_and_without_fear(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for text in ("Prefers concise replies", "prefers concise replies.", "Senior engineer"):
        run(home, "facts", "add", text, *U)
    run(home, "facts", "add", "x" * 201, *U, code=2)
    run(home, "facts", "add", "Uses SQLite", "--project", "D")
    seen = document(home, "context", *BOTH)
    assert seen["text"].startswith("## About This User\n\n- Prefers concise replies\n")
    assert {"text", "tokens", "budget", "over_budget", "sections"} <= seen.keys()
    budget = str(seen["tokens"] - 1)
    run(home, "context", *BOTH, "--budget", budget, "--check", code=1)
    file = home / "bindings" / "local" / "default" / "vault" / "users" / "U" / "facts.md"
    before = file.read_bytes()
    plan = document(home, "facts", "prune", *U, "--dry-run")
    assert file.read_bytes() == before
    applied = document(home, "facts", "prune", *U, "--apply")
    assert applied["forgotten"] == [
        line["record_id"] for line in plan["diff"] if line["sign"] == "-"
    ]
    run(home, "context", *BOTH, "--budget", budget, "--check")
    run(home, "undo", applied["operation_id"])
    assert file.read_bytes() == before
    assert document(home, "context", *BOTH)["text"] == seen["text"]
    assert document(home, "facts", "stats")["facts_of_users"] == 3
