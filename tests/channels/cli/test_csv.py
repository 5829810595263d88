"""CSV on a terminal and in a spreadsheet."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from tests.channels.cli.conftest import Run, assert_harmless

HARM = "=cmd|'/C calc'!A0\x9b31m\x1b]0;x\x07\x7f\u202e"


def test_sql_csv_quotes_and_shows_instead_of_obeying(here: Run) -> None:
    statement = "SELECT '=1+1' AS \"@a\", '-5' AS b, -5 AS c, chr(155) || chr(27) AS d"
    rows = list(csv.reader(io.StringIO(here("sql", statement, "--format", "csv").out)))
    assert rows == [["'@a", "b", "c", "d"], ["'=1+1", "-5", "-5", "\x9b\x1b"]]
    exact = here("sql", statement, "--format", "csv", "--exact").out
    assert list(csv.reader(io.StringIO(exact)))[1][0] == "=1+1"
    assert_harmless(here("sql", statement, "--format", "csv", terminal=True).out)


def test_exported_operations_are_not_run(here: Run, tmp_path: Path) -> None:
    assert here("note", "x", "--project", HARM[:17]).code == 0
    for exact, begins in (((), "'=cmd"), (("--exact",), "=cmd")):
        path = tmp_path / f"{len(exact)}.csv"
        assert here("ops", "export", "type:write", "--to", str(path), *exact).code == 0
        [row] = csv.DictReader(io.StringIO(path.read_text("utf-8")))
        assert row["project_id"].startswith(begins)


def test_exported_csv_is_harmless_on_a_terminal(here: Run) -> None:
    here("query", HARM)
    shown = here("ops", "export", "--to", "-", "--format", "csv", terminal=True).out
    assert "company_id" in shown
    assert_harmless(shown)


def test_json_is_harmless_on_a_terminal_and_exact(here: Run) -> None:
    assert here("note", HARM).code == 0
    done = here("browse", "--json", terminal=True)
    assert_harmless(done.out)
    assert done.document["records"][0]["text"] == HARM
