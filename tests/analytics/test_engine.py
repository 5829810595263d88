"""DuckDB in memory leaves nothing behind."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

import pytest

from memtui.analytics.engine import DuckDb


def test_more_memory_can_be_allowed_before_and_after_it_starts() -> None:
    limits = []
    engine = DuckDb(memory_mb=100)
    for memory_mb in (200, 300, 150):
        engine.allow(memory_mb)
        limits += engine.connection.execute("SELECT current_setting('memory_limit')").fetchall()
    engine.close()
    assert limits == [("190.7 MiB",), ("286.1 MiB",), ("286.1 MiB",)]


@pytest.mark.parametrize("is_closed", [True, False])
def test_nothing_spilled_outlives_its_engine(
    is_closed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    engine = DuckDb()
    assert engine.connection.execute("SELECT 1").fetchone() == (1,)
    assert list(tmp_path.iterdir())
    if is_closed:
        engine.close()
    del engine  # as where a thread starts one again while the app is left
    gc.collect()
    assert list(tmp_path.iterdir()) == []
