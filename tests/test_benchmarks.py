"""Each measurement that can be had small still runs; nothing here looks at how long it took."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("impact", "--notes", "20", "--queries", "2"),
        ("log_views", "home"),
        ("migration", "20"),
        ("service_overhead", "10"),
    ],
    ids=lambda words: words[0],
)
def test_a_benchmark_runs_to_its_end(words: tuple[str, ...], tmp_path: Path) -> None:
    module, *arguments = words
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert done.returncode in {0, 1}, done.stderr  # 1: a limit that is for a quiet machine
    assert done.stdout.strip()
