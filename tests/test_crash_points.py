"""A sample of `benchmarks.crash_points`: a killed memtui, or a full disk, leaves no dead end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MUTATIONS = 15
SEED = os.environ.get("MEMTUI_CRASH_SEED", "1")
"""Which points: always the same, so that a change that breaks one is the change that is tested."""


@pytest.mark.slow
@pytest.mark.benchmark
@pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)
def test_a_sample_of_all_crash_points_has_no_exception() -> None:
    """The table names points with an exception, and `--at` repeats them."""
    command = ["-m", "benchmarks.crash_points", "--sample", str(MUTATIONS), "--seed", SEED]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    *_, total = done.stdout.splitlines()
    name, calls, _, tried, exceptions = total.split()
    assert (name, exceptions) == ("all", "0")
    assert int(calls) > int(tried) > 0
