"""The person who prunes: from facts that say the same twice to a check that passes, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from memtui.channels.cli import main
from memtui.config import Paths

pytestmark = pytest.mark.slow

U = ("--subject", "U")
BOTH = (*U, "--project", "D")


Run = Callable[..., str]


@pytest.fixture
def run(paths: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line; gives what it printed."""
    monkeypatch.setenv("HOME", str(paths.data))

    def invoke(*arguments: str, code: int = 0) -> str:
        ended = main.run(["--home", str(paths.data), *arguments])
        out, err = capsys.readouterr()
        assert ended == code, err
        return out

    return invoke


def test_pruned_in_a_minute_and_without_fear(run: Run, paths: Paths) -> None:
    def document(*arguments: str) -> Any:
        return json.loads(run(*arguments, "--json"))

    for text in ("Prefers concise replies", "prefers concise replies.", "Senior engineer"):
        run("facts", "add", text, *U)
    run("facts", "add", "x" * 201, *U, code=2)
    run("facts", "add", "Uses SQLite", "--project", "D")
    seen = document("context", *BOTH)
    assert seen["text"].startswith("## About This User\n\n- Prefers concise replies\n")
    assert {"text", "tokens", "budget", "over_budget", "sections"} <= seen.keys()
    budget = str(seen["tokens"] - 1)
    run("context", *BOTH, "--budget", budget, "--check", code=1)
    file = paths.data / "bindings" / "local" / "default" / "vault" / "users" / "U" / "facts.md"
    before = file.read_bytes()
    plan = document("facts", "prune", *U, "--dry-run")
    assert file.read_bytes() == before
    applied = document("facts", "prune", *U, "--apply")
    assert applied["forgotten"] == [
        line["record_id"] for line in plan["diff"] if line["sign"] == "-"
    ]
    run("context", *BOTH, "--budget", budget, "--check")
    run("undo", applied["operation_id"])
    assert file.read_bytes() == before
    assert document("context", *BOTH)["text"] == seen["text"]
    assert document("facts", "stats")["facts_of_users"] == 3
