"""`archive`: seal, list and check what is sealed."""

from __future__ import annotations

from pathlib import Path

from memtui.store.database import Database
from tests.analytics.logs import append, draft
from tests.channels.cli.conftest import Run


def test_everything_is_sealed_listed_and_found_whole(here: Run, logged: Database) -> None:
    assert "0 operations sealed" in here("ops", "archive", "list").err
    done = here("ops", "archive", "seal", "--all", "--json")
    assert (done.code, done.document["operations"], done.document["sealed_through"]) == (0, 60, 60)
    listed = here("ops", "archive", "list", "--json").document
    [segment] = listed["segments"]
    assert (segment["first_seq"], segment["last_seq"], segment["count"]) == (1, 60, 60)
    assert segment["bytes"] == sum(file["bytes"] for file in segment["files"].values())
    shown = here("ops", "archive", "list")
    assert segment["last_digest"][:12] in shown.out
    assert "60 operations sealed" in shown.err
    checked = here("ops", "archive", "verify", "--json")
    assert (checked.code, checked.document["passed"], checked.document["problems"]) == (0, True, [])
    assert (
        "60 operations in 1 segment: all as they were sealed."
        in here("ops", "archive", "verify").err
    )
    assert here("stats", "--json").document["operation_count"] == 62  # two of sealing


def test_only_what_is_old_is_sealed(here: Run, logged: Database) -> None:
    nothing = here("ops", "archive", "seal", "--older-than", "2026-03-09")
    assert (nothing.code, nothing.out) == (0, "")
    assert "Nothing was old enough" in nothing.err
    some = here("ops", "archive", "seal", "--older-than", "2026-03-09T12:30:00+00:00")
    assert some.out.startswith("sealed 29 operations, 1 to 29, in ")
    assert (
        here("ops", "archive", "seal", "--json").document["operations"] == 31
    )  # older than hot_days


def test_what_waits_behind_a_newer_operation_is_told_of(here: Run, logged: Database) -> None:
    append(logged, [draft(number, operation_id=f"late-{number}") for number in (1, 2, 3)])
    cut = "2026-03-09T12:30:00+00:00"
    waits = "Operation 30 is not old enough, and 3 older operations behind it in the log"
    assert waits in here("ops", "archive", "seal", "--older-than", cut).err
    again = here("ops", "archive", "seal", "--older-than", cut)
    assert (waits in again.err, "Nothing" in again.err) == (True, False)
    told = here("ops", "archive", "seal", "--older-than", cut, "--json").document
    assert (told["blocked_by"], told["waiting"]) == (30, 3)


def test_what_is_refused(here: Run, logged: Database) -> None:
    assert here("ops", "archive", "seal", "--all", "--older-than", "3d").code == 2
    assert here("ops", "archive", "seal", "--older-than", "soon").code == 2
    assert here("ops", "archive", "seal", "--older-than", "2999-01-01").code == 2
    refused = here("--read-only", "ops", "archive", "seal", "--all", "--json")
    assert (refused.code, refused.document["error"]["kind"]) == (4, "denied")
    assert here("ops", "archive", "list", "--json").document["segments"] == []


def test_each_problem_is_named(here: Run, logged: Database, home: Path) -> None:
    here("ops", "archive", "seal", "--all")
    [file] = home.glob("archive/*/*/usage.parquet")
    file.write_bytes(file.read_bytes() + b"x")
    found = here("ops", "archive", "verify")
    assert (found.code, found.out) == (1, f"The file {file} was changed after it was sealed.\n")
    assert "1 problem" in found.err
    file.unlink()
    gone = here("ops", "archive", "verify", "--json")
    assert (gone.code, gone.document["passed"]) == (1, False)
    assert gone.document["problems"] == [f"The file {file} is missing."]


def test_a_log_without_its_archive_is_not_read(here: Run, logged: Database, home: Path) -> None:
    here("ops", "archive", "seal", "--all")
    [company] = home.glob("archive/*")
    company.rename(home / "elsewhere")
    for command in (["stats"], ["sql", "SELECT 1"], ["ops", "export", "--to", "x.csv"]):
        ran = here(*command)
        assert (ran.code, ran.out) == (3, "")
        assert "neither in the database nor in the archive" in ran.err
