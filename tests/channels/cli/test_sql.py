"""`sql`: answers for people and programs, refusals, and ctrl+c."""

from __future__ import annotations

import csv
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memtui.analytics.sql import VIEWS
from memtui.store.database import Database
from tests.channels.cli.conftest import HOSTILE, Run, assert_harmless


def test_every_kind_of_value_is_json(here: Run) -> None:
    found = here(
        "sql",
        "SELECT 1.50::DECIMAL(9, 2) AS d, 1e-12::DECIMAL(13, 12), 'nan'::DOUBLE, '-inf'::DOUBLE, "
        "'\\xAB'::BLOB, DATE '2026-03-01', TIMESTAMPTZ '2026-03-01 12:00:00+00', TIME '10:00', "
        "INTERVAL 1 DAY, MAP {DATE '2026-03-01': [1.5, NULL]}, {'a': true}, "
        "170141183460469231731687303715884105727::HUGEINT, NULL",
        "--json",
    )
    document = found.document
    assert (document["columns"][0], document["types"][0]) == ("d", "DECIMAL(9,2)")
    assert document["truncated"] is False
    moment = document["rows"][0].pop(6)
    assert moment.startswith("2026-03-01T")
    assert document["rows"] == [
        ["1.50", "0.000000000001", "NaN", "-Infinity", "ab", "2026-03-01", "10:00:00",
         "1 day, 0:00:00", {"2026-03-01": ["1.5", None]}, {"a": True}, 2**127 - 1, None],
    ]  # fmt: skip


def test_rows_are_counted_and_cut(here: Run, logged: Database) -> None:
    counts = "SELECT count(*), (SELECT count(*) FROM usage) > 0 FROM operations"
    assert here("sql", counts, "--json").document["rows"] == [[60, True]]
    here("ops", "archive", "seal", "--all")
    assert here("sql", counts, "--json").document["rows"] == [[62, True]]
    asked = "SELECT seq FROM operations ORDER BY seq"
    some = here("sql", asked, "--limit", "2", "--json")
    assert (some.document["rows"], some.document["truncated"]) == ([[1], [2]], True)
    assert "more rows than 2" in some.err
    shown = here("sql", "-", stdin=b"SELECT seq, undoes FROM operations WHERE seq = 7")
    assert shown.out == "seq  undoes\n  7  NULL\n1 row\n"


def test_tables_are_harmless_and_csv_is_csv(here: Run) -> None:
    quoted = HOSTILE.replace("\x00", "").replace("'", "''")
    asked = f"SELECT '{quoted}' AS \"{quoted.replace(chr(34), '')}\", NULL AS n, 'a,\"b\"' AS c"
    assert_harmless(here("sql", asked).out)
    rows = list(csv.reader(io.StringIO(here("sql", asked, "--format", "csv").out, newline="")))
    assert rows[1] == [HOSTILE.replace("\x00", ""), "", 'a,"b"']


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("COPY operations TO 'x.csv'", 4),
        ("SELECT * FROM read_csv('/etc/passwd')", 4),
        ("SELECT 1; SELECT 2", 4),
        ("ATTACH 'x.db'", 4),
        ("SELECT * FROM memory_operations", 4),
        ("SELEC 1", 2),
        ("SELECT nothing FROM operations", 2),
        ("SELECT * FROM nope", 2),
        ("SELECT '{x'->>'a' FROM operations", 2),
        ("", 2),
    ],
)
def test_what_is_refused(here: Run, statement: str, code: int) -> None:
    ran = here("sql", statement, "--json")
    assert (ran.code, len(ran.err.splitlines())) == (code, 1)
    assert ran.document["error"]["kind"] == ("denied" if code == 4 else "invalid")


def test_wrong_usage_and_the_time_limit(here: Run) -> None:
    assert here("sql").code == 2
    assert here("sql", "-", stdin=b"\xff").code == 2
    assert here("sql", "SELECT 1", "--limit", "0").code == 2
    slow = "SELECT count(*) FROM range(1000000000000) t(a) WHERE a % 7 = 3"
    late = here("sql", slow, "--timeout", "0.2")
    assert (late.code, "ran for more than 0.2 s" in late.err) == (2, True)


def test_the_views_are_listed(here: Run) -> None:
    listed = here("sql", "--views", "--json").document["views"]
    assert {view: [column["name"] for column in columns] for view, columns in listed.items()} == {
        view: [*columns] for view, columns in VIEWS.items()
    }
    assert all(
        column["type"] and column["meaning"] for columns in listed.values() for column in columns
    )
    assert "cost_usd" in here("sql", "--views").out


@pytest.mark.slow
def test_ctrl_c_stops_it(home: Path) -> None:
    slow = "SELECT count(*) FROM range(1000000000000) t(a) WHERE a % 7 = 3"
    started = subprocess.Popen(
        [sys.executable, "-m", "memtui", "sql", slow],
        env=os.environ | {"MEMTUI_HOME": str(home)},
        stderr=subprocess.PIPE,
        text=True,
    )
    loaded = Path(f"/proc/{started.pid}/maps")
    while loaded.exists() and "duckdb" not in loaded.read_text():
        time.sleep(0.05)
    time.sleep(1 if loaded.exists() else 2.5)
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=20)
    assert (started.returncode, err) == (130, "")
