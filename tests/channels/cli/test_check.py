"""`check`: a table, JSON and JUnit, exit codes, and what is recorded."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import parse

import pytest

from tests.channels.cli.conftest import HOSTILE, Run, assert_harmless
from tests.channels.cli.test_facts import U
from tests.service.fake import FakeAdapter, down


@pytest.fixture
def file(here: Run, home: Path, person: Path) -> Path:
    """A file with a check that passes and one that fails."""
    assert here("note", "We deploy on Monday", "--project", "apollo").code == 0
    path = person / "checks.toml"
    ask = "[[check]]\nask = 'when deploy'\nproject = 'apollo'\nholds = "
    path.write_text(f"{ask}'Monday'\n{ask}'Friday'\n")
    return path


def test_a_table_json_and_junit(here: Run, file: Path) -> None:
    for words in (("check",), ("check", "run")):
        ran = here(*words, str(file))
        assert (ran.code, ran.err) == (1, "1 passed, 1 failed.\n")
        assert ran.out.splitlines()[1:] == [
            "✓  when deploy", "✗  when deploy  “Friday” is in none of 1 results",
        ]  # fmt: skip
    report = file.with_name("report.xml")
    ran = here("check", str(file), "--json", "--junit", str(report))
    assert ran.code == 1
    assert [one["outcome"] for one in ran.document["checks"]] == ["pass", "fail"]
    suite = parse(report).getroot()
    assert (suite.attrib["tests"], suite.attrib["failures"], suite.attrib["errors"]) == (
        "2", "1", "0",
    )  # fmt: skip
    again = here("check", str(file), "--junit", str(report))
    assert (again.code, again.out) == (5, "")
    assert "--force" in again.err
    assert here("check", str(file), "--junit", str(report), "--force").code == 1
    assert here("check", str(file), "--junit", str(file.parent / "no" / "r.xml")).code == 2
    whole = file.read_text()
    (file.parent / "sub").mkdir()
    for same in (file, file.parent / "sub" / ".." / file.name):
        ran = here("check", str(file), "--junit", str(same), "--force")
        assert (ran.code, ran.out, file.read_text()) == (2, "", whole)
        assert "name another file for the report" in ran.err


def test_bad_input_says_what_to_do(here: Run, file: Path, home: Path) -> None:
    missing = here("check")
    assert (missing.code, missing.out) == (2, "")
    assert str(home / "checks.toml") in missing.err
    for arguments in (("check", "nothing.toml"), ("check", str(file.parent))):
        ran = here(*arguments)
        assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    unknown = here("check", str(file), "--binding", "defualt")
    assert unknown.code == 2
    assert "did you mean default?" in unknown.out
    assert here("check", "recrod", "1").code == 2
    help_ = here("check", "--help")
    assert (help_.code, "record" in help_.out) == (0, True)


def test_the_setting_names_the_file(here: Run, file: Path) -> None:
    assert here("check", MEMTUI_CHECKS_FILE=str(file)).code == 1
    assert here("check", "--json", MEMTUI_CHECKS_FILE="~/checks.toml").document["file"] == str(file)


def test_a_provider_that_is_down_is_an_error(
    here: Run, fake: type[FakeAdapter], person: Path
) -> None:
    path = person / "checks.toml"
    path.write_text("[[check]]\nunknown = 'x'\n[[check]]\nask = 'x'\nholds = 'x'")
    fake.fault = down()
    ran = here("check", str(path))
    assert (ran.code, ran.err) == (3, "0 passed, 0 failed, 2 could not be asked.\n")


def test_record_and_ask_again(here: Run, file: Path, home: Path) -> None:
    asked = here("query", "when deploy", "--project", "apollo", "--json").document
    ran = here("check", "record", asked["bindings"][0]["operation_ids"][0])
    assert ran.out == f"Recorded in {home / 'checks.toml'}.\n"
    assert here("check").code == 0
    [record_id] = [one["handle"]["provider_record_id"] for one in asked["snippets"]]
    ran = here("check", "record", "1", str(file), "--record", record_id, "--json")
    assert ran.code == 2
    newest = here("ops", "list", "--type", "query", "--limit", "1", "--json").document
    seq = str(newest["operations"][0]["seq"])
    assert here("check", "record", seq, str(file), "--record", record_id).code == 0
    assert file.read_text().count("[[check]]") == 3
    refused = here("--read-only", "check", "record", seq)
    assert (refused.code, len(refused.err.splitlines())) == (4, 1)


def test_a_prune_that_a_check_forbids_forgets_nothing(here: Run, person: Path) -> None:
    for text in ("Deploys happen from release", "deploys happen from release."):
        assert here("facts", "add", text, *U).code == 0
    path = person / "checks.toml"
    ask = "[[check]]\nask = 'deploys'\nuser = 'u1'\nholds = "
    counted = len(here("facts", "list", *U).out.splitlines())
    user = U[1]
    path.write_text(f"{ask}'from release'".replace("u1", user))
    assert here("facts", "prune", *U, "--checks", str(path)).code == 0
    path.write_text(f"{ask}'zeppelin'".replace("u1", user))
    ran = here("facts", "prune", *U, "--checks", str(path), "--apply", "--json")
    assert (ran.code, ran.document["dry_run"], ran.document["forgotten"]) == (1, True, [])
    assert "1 failed, so nothing was forgotten." in ran.err
    assert [one["outcome"] for one in ran.document["checks"]["checks"]] == ["fail"]
    assert len(here("facts", "list", *U).out.splitlines()) == counted
    path.write_text(f"{ask}'from release'".replace("u1", user))
    assert here("facts", "prune", *U, "--checks", str(path), "--apply").code == 0
    assert len(here("facts", "list", *U).out.splitlines()) < counted


def test_hostile_text_is_shown_harmless(here: Run, person: Path, home: Path) -> None:
    import json

    text = json.dumps(HOSTILE).replace("\\u007f", "").replace("\x7f", "")
    path = person / "checks.toml"
    path.write_text(f"[[check]]\nask = {text}\nholds = {text}\n")
    ran = here("check", str(path))
    assert ran.code == 1
    assert_harmless(ran.out + ran.err)


def test_a_purge_takes_its_checks_along(here: Run, home: Path) -> None:
    for text in ("Ana likes green tea", "Bo likes coffee"):
        assert here("note", text, "--project", "apollo").code == 0
        assert here("query", text, "--project", "apollo").code == 0
        newest = here("ops", "list", "--type", "query", "--limit", "1", "--json").document
        assert here("check", "record", newest["operations"][0]["operation_id"]).code == 0
    assert "green tea" in (home / "checks.toml").read_text()
    found = here("query", "green tea", "--project", "apollo", "--json").document["snippets"][0]
    name = found["handle"]["provider_record_id"]
    purged = here("purge", name, "--forget", "--yes")
    assert purged.code == 0, purged.err
    left = (home / "checks.toml").read_text()
    assert "green tea" not in left
    assert "Bo likes coffee" in left
