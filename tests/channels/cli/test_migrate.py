"""migrate and cutover, as a person and a program run them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.channels.cli.conftest import HOSTILE, Run, assert_harmless


@pytest.fixture
def vaults(here: Run) -> Run:
    """The first vault with four records, and an empty second one."""
    assert here("bindings", "add", "second", "vault").code == 0
    for number in range(3):
        note = ("note", f"we deploy from release {number}", "--project", "p", "--tag", "x")
        assert here(*note, "--expires", "2090-01-01T00:00:00Z", "--pin").code == 0
    assert here("note", f"hostile {HOSTILE}".replace("\x00", "")).code == 0
    return here


def test_dry_run_then_apply_then_verify_then_cutover(vaults: Run) -> None:
    planned = vaults("migrate", "plan", "default", "second")
    assert planned.code == 0, planned.err
    assert "project p" in planned.out
    assert "projects/p" in planned.out
    assert "4 records from default to second" in planned.out
    assert vaults("browse", "--binding", "second", "--json").document["records"] == []
    failed = vaults("migrate", "verify", "default", "second")
    assert failed.code == 1
    assert failed.out.count("missing  ") == 4
    early = vaults("migrate", "cutover", "default", "second")
    assert early.code == 5
    assert len(early.err.splitlines()) == 1
    applied = vaults("migrate", "apply", "default", "second", "--json").document
    assert (applied["written"], applied["failed"]) == (4, 0)
    again = vaults("migrate", "apply", "default", "second")
    assert again.out.splitlines()[0] == "written 0  replaced 0  unchanged 4  failed 0  redacted 0"
    proof = vaults("migrate", "verify", "default", "second", "--json")
    assert proof.code == 0
    assert proof.document["passed"] is True
    sample = vaults("migrate", "verify", "default", "second", "--sample", "2", "--seed", "9")
    assert "--seed 9" in sample.out
    assert vaults("migrate", "cutover", "default", "second").out == (
        "company local is served by second\n"
        "the old binding is read-only now; memtui migrate cutover --back opens it again\n"
    )  # fmt: skip
    assert vaults("bindings", "resolve").out.startswith("second")
    assert vaults("migrate", "cutover", "default", "second", "--back", "--json").code == 0
    assert vaults("bindings", "resolve").out.startswith("default")


def test_checks_are_asked_on_both_sides(vaults: Run, person: Path) -> None:
    path = person / "checks.toml"
    ask = "[[check]]\nask = 'when release'\nproject = 'p'\nholds = "
    path.write_text(f"{ask}'release 1'\n{ask}'zeppelin'\n")
    verify = ("migrate", "verify", "default", "second", "--checks", str(path))
    assert vaults("migrate", "apply", "default", "second").code == 0
    # The second check fails on both sides.
    assert vaults(*verify).code == 0
    id_of = vaults("browse", "release 1", "--binding", "second", "--json").document["records"]
    [name] = [one["handle"]["provider_record_id"] for one in id_of]
    path.write_text(f"[[check]]\nask = 'release'\nproject = 'p'\nrecords = '{name}x'\n")
    assert vaults(*verify).code == 0
    path.write_text(path.read_text() + f"{ask}'release 1'\nbinding = 'default'\n")
    assert vaults("correct", name, "we deploy from release one", "--binding", "second").code == 0
    ran = vaults(*verify, "--project", "q")
    assert (ran.code, ran.out.splitlines()[1]) == (
        1, "✗ 0 of 0 compared records are the same, but second fails checks that default passes",
    )  # fmt: skip
    assert ran.out.splitlines()[2].startswith("✗ when release: “release 1” is in none of ")
    found = vaults(*verify, "--project", "q", "--json").document
    assert (found["passed"], [one["number"] for one in found["lost_checks"]]) == (False, [2])
    assert vaults(*verify).code == 1
    assert vaults("migrate", "cutover", "default", "second").code == 5
    path.write_text("[[check]]")
    assert vaults(*verify).code == 2


def test_a_dry_run_as_json(vaults: Run) -> None:
    found = vaults("migrate", "plan", "default", "second", "--json", "--project", "p").document
    assert found["records"] == 3
    assert found["scopes"] == [
        {"scope": "project p", "kind": "note", "records": 3, "place": "projects/p"}
    ]


@pytest.mark.parametrize("step", ["plan", "apply"])
def test_files_that_cannot_be_read_are_named(here: Run, tmp_path: Path, step: str) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "latin.md").write_bytes(b"Caf\xe9")
    (notes / "open.md").write_text("---\nnever closed")
    assert here("bindings", "add", "mine", "vault", "--set", f"path={notes}").code == 0
    done = here("migrate", step, "mine", "default")
    assert done.code == 1
    assert f"not read: {notes}/latin.md:1: The line holds bytes that are not UTF-8" in done.out
    assert f"not read: {notes}/open.md:1: " in done.out
    assert "  latin.md: Bytes of its file are not UTF-8 and would be lost" in done.out
    assert len(here("migrate", step, "mine", "default", "--json").document["problems"]) == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["default", "second"], 2),
        (["apply", "default", "second", "--sample", "3"], 2),
        (["verify", "default", "second", "--seed", "3"], 2),
        (["apply", "default", "default"], 2),
        (["apply", "default", "nope"], 1),
        (["apply", "other/default", "second"], 4),
    ],
)
def test_wrong_words_are_one_sentence(vaults: Run, words: list[str], code: int) -> None:
    ran = vaults("migrate", *words)
    assert ran.code == code
    assert len(ran.err.splitlines()) == 1
    assert ran.out == ""


def test_a_read_only_destination_is_denied(vaults: Run) -> None:
    assert vaults("bindings", "read-only", "second", "on").code == 0
    assert vaults("migrate", "apply", "default", "second").code == 4
    assert vaults("migrate", "plan", "default", "second").code == 0


def test_a_record_that_is_not_taken_is_named_and_the_rest_moves(vaults: Run) -> None:
    assert vaults("bindings", "add", "facts", "facts").code == 0
    ran = vaults("migrate", "apply", "default", "facts")
    assert ran.code == 1
    assert "written 3" in ran.out
    assert "failed 1" in ran.out
    assert_harmless(ran.out)


def test_a_terminal_sees_how_far_it_is(vaults: Run) -> None:
    ran = vaults("migrate", "apply", "default", "second", terminal=True)
    assert "4 of 4" in ran.err
    assert "/s" in ran.err


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(vaults: Run, home: Path) -> None:
    for number in range(40):
        vaults("note", f"note {number}")
    process = subprocess.Popen(
        [sys.executable, "-m", "memtui", "migrate", "apply", "default", "second"],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"MEMTUI_HOME": str(home)},
    )  # fmt: skip
    moved = home / "bindings" / "local" / "second" / "vault"
    while process.poll() is None and not list(moved.rglob("*.md")):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in {0, 130}
    assert (process.returncode == 130) == ("to continue" in errors), errors
    done = vaults("migrate", "apply", "default", "second", "--json").document
    assert done["written"] + done["unchanged"] == 44
    assert vaults("migrate", "verify", "default", "second").code == 0
