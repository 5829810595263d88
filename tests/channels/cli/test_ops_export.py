"""`ops export`: the operations as a file, whole and in order."""

from __future__ import annotations

import csv
import io
import json
import stat
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from memtui.store.database import Database
from tests.analytics.logs import fill
from tests.channels.cli.conftest import Run


@pytest.fixture
def mixed(here: Run, logged: Database) -> Database:
    """The first 29 operations sealed, with the seal one of the 82."""
    here("ops", "archive", "seal", "--older-than", "2026-03-09T12:30:00+00:00")
    fill(logged, 20, start=62)
    return logged


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_formats_agree(here: Run, mixed: Database, tmp_path: Path) -> None:
    files = {form: tmp_path / f"log.{form}" for form in ("jsonl", "csv", "parquet")}
    for form, file in files.items():
        done = here("ops", "export", "--to", str(file), "--json")
        counts = {"operation_count": 82, "damaged_count": 0}
        assert done.document == {"file": str(file), "format": form} | counts
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.glob("*log*")) == sorted(
        file.name for file in files.values()
    )
    documents = lines(files["jsonl"].read_text())
    assert [one["seq"] for one in documents] == list(range(1, 83))
    rows = list(csv.DictReader(io.StringIO(files["csv"].read_bytes().decode(), newline="")))
    names = "seq, operation_id, input_tokens, cost_usd, unpriced_count, epoch_ms(started_at)"
    kept = duckdb.execute(f"SELECT {names} FROM '{files['parquet']}'").fetchall()
    for document, row, cells in zip(documents, rows, kept, strict=True):
        costs = [Decimal(u["cost_usd"]) for u in document["usage"] if u["cost_usd"] is not None]
        cost = sum(costs, Decimal(0)) if costs else None
        read = sum(usage["input_tokens"] for usage in document["usage"])
        unpriced = len(document["usage"]) - len(costs)
        assert cells[:5] == (document["seq"], document["operation_id"], read, cost, unpriced)
        assert (int(row["seq"]), row["operation_id"]) == (cells[0], cells[1])
        assert (int(row["input_tokens"]), int(row["unpriced_count"])) == (read, unpriced)
        assert (Decimal(row["cost_usd"]) if row["cost_usd"] else None) == cost
        assert row["started_at"].rstrip("Z").rstrip("0") == document["started_at"].rstrip("Z0")
        assert (row["agent_id"] or None) == document["scope"]["agent_id"]


def test_it_is_what_the_list_prints_but_for_the_risks_of_today(here: Run, mixed: Database) -> None:
    exported = lines(here("ops", "export", "--to", "-").out)
    page = here("ops", "list", "--limit", "20", "--json").document["operations"]
    assert all("risks" in one for one in page)
    for one in page:
        del one["risks"]
    assert exported[:-21:-1] == page


def test_a_filter_narrows_it(here: Run, mixed: Database) -> None:
    everything = lines(here("ops", "export", "--to", "/dev/stdout").out)
    wanted = [
        one
        for one in everything
        if one["scope"]["agent_id"] == "coding" and one["operation_type"] == "query"
    ]
    assert wanted
    flags = lines(here("ops", "export", "--to", "-", "--agent", "coding", "--type", "query").out)
    assert flags == wanted
    ran = here("ops", "export", "agent:coding", "type:query", "--to", "-", "--format", "csv")
    assert "Wrote" in ran.err
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [int(row["seq"]) for row in rows] == [one["seq"] for one in wanted]
    assert here("ops", "export", "--to", "-", "--until", "2020-01-01").out == ""


def test_what_is_refused(here: Run, logged: Database, tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("mine")
    there = here("ops", "export", "--to", str(file))
    assert (there.code, file.read_text()) == (5, "mine")
    assert "give --force" in there.err
    for wrong in (
        ["--to", str(tmp_path / "log.xml")],
        ["--to", str(tmp_path), "--format", "csv"],
        ["--to", str(tmp_path / "none" / "log.csv")],
        ["--to", "/proc/log.csv"],
        ["--to", "-", "--format", "parquet"],
        ["--to", "-", "--json"],
        [],
    ):
        ran = here("ops", "export", *wrong)
        assert (ran.code, ran.out.startswith("{") or not ran.out) == (2, True), wrong
    assert here("ops", "export", "--to", str(file), "--force", "--format", "jsonl").code == 0
    assert len(lines(file.read_text())) == 60


def test_an_empty_log_is_an_empty_file(here: Run, empty_log: Database, tmp_path: Path) -> None:
    for form in ("jsonl", "csv", "parquet"):
        file = tmp_path / f"none.{form}"
        assert here("ops", "export", "--to", str(file), "--json").document["operation_count"] == 0
        assert file.is_file()
    assert (tmp_path / "none.csv").read_text().startswith("company_id,seq,operation_id,")
