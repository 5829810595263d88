"""`ops import`: what a person sees, and the exit code."""

from __future__ import annotations

from pathlib import Path

from tests.channels.cli.conftest import HOSTILE, Run, assert_harmless


def test_a_log_from_the_first_look_to_the_list(here: Run, tmp_path: Path) -> None:
    path = tmp_path / "Other System (1).csv"
    path.write_text(
        "ts,tool,query,model,prompt_tokens,team\n"
        "2026-03-01 10:00,memory_search,where,gpt-4o-mini,1000,red\n"
        "2026-03-01 10:01,add,what,mystery-9,10,blue\n"
    )
    missing = here("ops", "import", str(path))
    assert (missing.code, missing.out) == (2, "")
    assert "has the columns ts (VARCHAR), tool (VARCHAR), query" in missing.err
    assert "but not started_at and operation_type; name its column" in missing.err
    given = (
        "ops", "import", str(path), "--map", "started_at=ts", "--map",
        "operation_type=map {'memory_search': 'query', 'add': 'write'}[tool]",
        "--map", "input_tokens=prompt_tokens",
    )  # fmt: skip
    plan = here(*given, "--dry-run")
    assert plan.code == 0
    lines = [line.split() for line in plan.out.splitlines()]
    assert ["input_tokens", "prompt_tokens"] in lines
    assert ["model", "model"] in lines
    assert ["kept", "tool,", "team"] in lines
    for words in (
        "2 times named no zone, read as UTC", "query 1, write 1",
        "1,010 in", "$0.000150, 1 priced by memtui's table, 1 unpriced", "2 would be added",
        "other-system-1 (to be made)", "2026-03-01 10:01:00",
    ):  # fmt: skip
        assert words in plan.out
    assert "other-system-1" not in here("companies", "list").out
    done = here(*given, "--json").document
    assert (done["company_id"], done["added"], done["created"]) == ("other-system-1", 2, True)
    listed = here("--company", "other-system-1", "ops", "list", "--json").document
    assert [one["request"]["query"] for one in listed["operations"]] == ["what", "where"]
    assert "2 there already" in here(*given).out
    more = here(*given, "--where", "team = 'red'", "--company", "red", "--json").document
    assert (more["added"], more["skipped"]) == (1, {"not in --where": 1})


def test_bad_rows_are_told_and_harmless(here: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"started_at": 1, "operation_type": "write"}\n' + "[1]\n" * 12, encoding="utf-8"
    )
    word = HOSTILE.encode("unicode_escape").decode("ascii").replace("\\x", "\\u00")
    last = f'{{"started_at": 1, "operation_type": "{word}"}}\n'
    path.write_text(path.read_text() + last, encoding="utf-8")
    ran = here("ops", "import", str(path), "--company", "x")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("a.jsonl line 2: it is not a JSON object") == 1
    assert "and 3 more that do not fit" in ran.err
    assert "13 rows do not fit" in ran.err
    refused = here("ops", "import", str(path), "--company", "x", "--json").document["error"]
    assert (refused["kind"], refused["bad_count"], len(refused["bad"])) == ("invalid", 13, 10)
    assert refused["bad"][0]["reason"].startswith("it is not a JSON object")
    assert here("ops", "import", str(path), "--company", "x", "--dry-run").code == 1
    done = here("ops", "import", str(path), "--company", "x", "--skip-bad")
    assert done.code == 0
    assert "1 added, 0 there already, 13 left out" in done.out
    for text in (ran.err, done.out, done.err):
        assert_harmless(text)
    assert here("ops", "import", str(tmp_path / "none.csv")).code == 2
    assert here("--read-only", "ops", "import", str(path), "--skip-bad").code == 4
    for expression, code in (("nonsense", 2), ("agent=x", 2), ("agent_id=x +", 2),
                             ("agent_id=(FROM read_text('/etc/passwd'))", 4)):  # fmt: skip
        assert here("ops", "import", str(path), "--map", expression).code == code


def test_an_imported_company_is_removed_once_its_id_was_said_twice(
    here: Run, tmp_path: Path
) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"started_at": 1, "operation_type": "write"}\n', encoding="utf-8")
    here("ops", "import", str(path))
    asked = here("companies", "remove", "other")
    assert (asked.code, asked.out) == (2, "")
    assert "add --confirm other" in asked.err
    assert here("companies", "remove", "other", "--confirm", "another").code == 2
    assert here("companies", "remove", "nobody", "--confirm", "nobody").code == 1
    assert here("--read-only", "companies", "remove", "other", "--confirm", "other").code == 4
    assert "other" in here("companies", "list").out
    done = here("companies", "remove", "other", "--confirm", "other")
    assert done.code == 0
    assert "removed other with 1 operation; its log is gone" in done.out
    assert "other" not in here("companies", "list").out
    assert here("companies", "remove", "local", "--confirm", "local").code == 2
