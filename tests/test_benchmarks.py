"""Each measurement still runs, small; nothing here looks at how long it took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.benchmark]

ROOT = Path(__file__).parents[1]
_RECORD = {"project_id": "p", "subject_id": None, "run_id": None, "text": "We deploy from main.",
           "created_at": "2026-01-01T00:00:00Z", "source_refs": ["a"]}  # fmt: skip
_QUERY = {"project_id": "p", "query": "deploy", "category": 1, "evidence": ["a"]}
SMALL = [
    ("duplicates", "records.jsonl"),
    ("files_entered",),
    ("first_paint", "1"),
    ("hook", "1"),
    ("impact", "--notes", "20", "--queries", "2"),
    ("in_sync", "--records", "40", "--rounds", "1", "--kills", "1"),
    ("log_views", "home"),
    ("mcp_wrap", "50"),
    ("migration", "20"),
    ("opening", "home", "1", "help"),
    ("operation_log", "--rows", "20000"),
    ("ranking", "records.jsonl", "queries.jsonl"),
    ("retrieval", "records.jsonl", "queries.jsonl"),
    ("service_overhead", "10"),
    ("startup", "1"),
    ("trace", "--rows", "3000", "--hot", "1000", "--chains", "2"),
    ("still_true", "--small"),
    ("vault_search", "--notes", "200"),
]
_PARTS = {"crash_points", "crash_mutations", "crash_server", "crash_states", "generated_log",
          "log_appends", "log_figures", "log_filters", "table"}  # fmt: skip
"""What others import, and the crash points, which have a test of their own."""


def test_each_has_its_small_run() -> None:
    there = {file.stem for file in (ROOT / "benchmarks").glob("[!_]*.py")}
    assert there == _PARTS | {module for module, *_ in SMALL}


@pytest.mark.parametrize("words", SMALL, ids=lambda words: words[0])
def test_a_benchmark_runs_to_its_end(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text(json.dumps(_RECORD))
    (tmp_path / "queries.jsonl").write_text(json.dumps(_QUERY))
    module, *arguments = words
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT), "MEMTUI_HELPER_IDLE_S": "30"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    if module == "files_entered":
        assert done.returncode == 0, done.stdout  # it counts, so that no machine is too slow
    assert done.returncode in {0, 1}, done.stderr  # 1: a limit that is for a quiet machine
    assert done.stdout.strip()
