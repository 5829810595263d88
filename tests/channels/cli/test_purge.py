"""`purge` as a person and a script ask for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memtui.config import find_paths
from tests.channels.cli.conftest import Run
from tests.channels.cli.test_audit import verified
from tests.service.test_purge import places_of


@pytest.fixture
def told(here: Run) -> str:
    """A note that was queried, and its id."""
    text = "The garden gate opens at nine on Mondays"
    record_id = here("note", text, "--project", "apollo").out.strip()
    here("query", "garden gate", "--project", "apollo")
    return record_id


def test_it_shows_what_would_go_and_erases_it_on_yes(
    here: Run, told: str, home: Path, tmp_path: Path
) -> None:
    plan = here("purge", told)
    assert plan.code == 0
    assert "These live and stay unless you say --forget" in plan.out
    assert "--yes" in plan.err
    assert here("get", told, "--project", "apollo").code == 0
    stays = here("purge", told, "--yes", "--json")
    assert (stays.code, len(stays.document["living"]), stays.document["passed"]) == (0, 1, True)
    gone = here("purge", told, "--forget", "--yes", "--json")
    assert gone.code == 0
    assert (gone.document["forgotten"], gone.document["left"], gone.document["passed"]) == (
        1,
        [],
        True,
    )
    assert gone.document["found"]["texts"] == 2
    again = here("purge", told, "--yes")
    assert again.code == 1
    assert "memtui keeps no copy of one; it never was, or was purged before." in again.err
    assert not any(
        b"garden gate" in path.read_bytes() for path in home.rglob("*") if path.is_file()
    )
    assert here("audit", "verify").code == 0
    proof = tmp_path / "proof.jsonl"
    assert here("audit", "export", "--to", str(proof)).code == 0
    assert b"garden" not in proof.read_bytes()
    assert here("get", told, "--project", "apollo").code == 1
    assert verified(proof).returncode == 0


def test_the_log_says_when_and_by_whom_and_undo_why_it_cannot(here: Run, told: str) -> None:
    here("forget", told, "--project", "apollo", "--yes")
    assert here("purge", told, "--yes").code == 0
    [written] = here("ops", "list", "type:write", "--json").document["operations"]
    shown = here("ops", "show", written["operation_id"])
    assert "request.content: erased on" in shown.out
    assert "by user:" in shown.out
    document = here("ops", "show", written["operation_id"], "--json").document
    assert document["erasures"][0]["fields"] == sorted(document["absent"])
    undone = here("undo", written["operation_id"])
    assert undone.code == 2
    assert "were erased by" in undone.err
    [purge, *_] = here("ops", "list", "type:purge", "--json").document["operations"]
    refused = here("undo", purge["operation_id"])
    assert (refused.code, "cannot be undone" in refused.err) == (2, True)
    assert "--list" not in refused.err
    last = here("undo")
    assert (last.code, last.err.startswith("The last change, purge #")) == (2, True)
    assert "`memtui undo --list` has those before it" in last.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Say what"),
        (("x", "--subject", "y"), "one of them only"),
        (("--texts-older-than", "2099-01-01"), "yet to come"),
        (("--texts-older-than", "90d", "--forget"), "forgets no record"),
        (("x", "--keep-doing"), "--keep-doing goes with"),
    ],
)
def test_what_makes_no_sense_is_said(here: Run, arguments: tuple[str, ...], sentence: str) -> None:
    found = here("purge", *arguments)
    assert found.code == 2
    assert sentence in found.err


def test_an_age_is_allowed_and_taken_back(here: Run, told: str) -> None:
    del told
    done = here("purge", "--texts-older-than", "90d", "--keep-doing", "--yes")
    assert done.code == 0
    assert "Set purge_after_days = 90" in done.err
    assert here("purge", "--stop-doing").code == 0


def test_read_only_shows_and_refuses(here: Run, told: str) -> None:
    assert here("--read-only", "purge", told).code == 0
    assert here("--read-only", "purge", told, "--yes").code == 4


def test_a_name_that_nothing_has_is_told_with_what_is_near(here: Run) -> None:
    here("note", "x", "--subject", "ana")
    here("browse", "--subject", "annas")  # a name that nothing was found of
    here("note", "y", "--project", "apollo")
    for options in ((), ("--yes",), ("--forget", "--yes")):
        for kind, name, near in (("user", "anna", "ana"), ("project", "apolo", "apollo")):
            option = "--subject" if kind == "user" else "--project"
            done = here("purge", option, name, *options)
            assert done.code == 1
            assert f"no {kind} {name}; did you mean {near}?" in done.err
            assert f"There is no such {kind}" in done.err
            assert not done.out
        assert here("purge", "nosuch", *options).code == 1
    log = here("ops", "list", "--internal", "--json").out
    assert "There is no such record" in log
    assert not any(name in log for name in ('apolo"', "apolo;", "nosuch")), "it may be secret"


def test_who_was_purged_before_is_known_by_that(here: Run) -> None:
    here("note", "The gate opens at nine on Mondays", "--subject", "ana")
    here("note", "Another of the project's own", "--project", "apollo")
    for option in (("--subject", "ana"), ("--project", "apollo")):
        assert here("purge", *option, "--forget", "--yes").code == 0
        for words in ((), ("--yes",)):
            again = here("purge", *option, *words)
            assert (again.code, "memtui keeps no copy of it." in again.out) == (0, True)


def test_of_a_run_no_byte_is_left_in_a_home_that_did_everything_with_it(
    here: Run, home: Path, tmp_path: Path
) -> None:
    """The log hot and sealed, checks, views, statements, comparisons, plans, risks, error logs."""
    said = "The zirconium kettle of the old observatory whistles at nine on Monday mornings."
    apollo = ("--project", "apollo")
    assert here("bindings", "add", "other", "vault").code == 0
    assert here("note", said, *apollo, "--run", "r1").code == 0
    assert here("query", "zirconium kettle", *apollo, "--run", "r2").code == 0
    assert here("ops", "archive", "seal", "--all").code == 0
    learned = here("note", f"Learned: {said}", *apollo, "--binding", "other", "--run", "r2")
    assert learned.code == 0
    for words in (
        ("query", "where is the zirconium kettle", *apollo, "--binding", "other"),
        ("context", *apollo, "--prompt", "zirconium kettle", "--delivered", "--run", "r3"),
        ("trace", "run:r1"), ("trace", "run:r1", "--then", "impact"),
        ("compare", "default", "other", "--yes"), ("doctor", "--risks"), ("facts", "prune"),
        ("views", "save", "kettles", f'"{said}"'), ("stats",), ("audit", "verify"),
        ("sql", "SELECT count(*) FROM operations WHERE request LIKE '%zirconium kettle%'"),
        ("bindings", "conformance", "--forgetting", "other", "--yes"),
        ("ops", "archive", "seal", "--all"),
    ):  # fmt: skip
        here(*words)
    assert here("query", "zirconium kettle", *apollo).code == 0
    [asked, *_] = here("ops", "list", "type:query", "--json").document["operations"]
    assert here("check", "record", asked["operation_id"]).code == 0
    (home / "memtui.log").write_text(f"one\nRuntimeError: {said!r}\ntwo\n")
    (home / "queries.json").write_text(json.dumps([f"SELECT '{said}'", "SELECT 1"]))
    (home / "draft-1").mkdir()
    (home / "draft-1" / "record.md").write_text(said)
    paths = find_paths(home)
    before = places_of(("zirconium kettle",), paths, "")
    assert any("parquet" in one for one in before)
    assert any("checks.toml" in one for one in before)
    plan = here("purge", "--run", "r1", "--forget")
    assert (plan.code, "came of it" in plan.out) == (0, True)
    done = here("purge", "--run", "r1", "--forget", "--yes", "--json")
    assert done.code == 0, done.out
    assert [(one["written"], one["came_of_it"]) for one in done.document["reached"]] == [
        (1, 0),
        (0, 1),
    ]
    left = places_of(("zirconium", "observatory"), paths, "")
    assert left == [], left
    assert here("audit", "verify").code == 0
    assert here("audit", "export", "--to", str(tmp_path / "proof.jsonl")).code == 0
    assert verified(tmp_path / "proof.jsonl").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("--run", "r1", "--source", "x"), 2, "one of them only"),
        (("--run", "nowhere"), 1, "There is no such run"),
        (("--source", "https://x.example/1"), 1, "There is no such document"),
        (("--run", "r1", "--through", "4"), 2, "through"),
        (("--subject", "ana", "--through", "2"), 2, "more or less certain"),
    ],
)
def test_a_run_that_is_named_badly_is_one_sentence(
    here: Run, told: str, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    ran = here("purge", *arguments)
    assert (ran.code, sentence in ran.err, "Traceback" in ran.err) == (code, True, False), ran.err
