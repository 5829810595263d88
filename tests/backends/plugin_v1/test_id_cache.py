from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from memtui.backends.plugin_v1.id_cache import IdCache
from memtui.contract import Unavailable

MANY = [("team:a", str(number), f"memory {number} about geckos") for number in range(2_000)]


def test_on_a_full_disk_the_notes_go_on_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "plugin.sqlite3"
    cache = IdCache(path)
    cache.learn("honest", "7")
    cache._notes.run(lambda file: file.execute("PRAGMA max_page_count = 1"))  # for real
    cache.note(MANY)
    assert len(list(cache.seen("team:a"))) == len(MANY)
    assert cache.fact("honest") == "7"
    cache.close()
    assert IdCache(path).fact("honest") == "7"


def test_a_damaged_file_is_begun_anew_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "plugin.sqlite3"
    cache = IdCache(path)
    cache.note(MANY)
    path.write_bytes(b"\xa5" * path.stat().st_size)
    cache.learn("honest", "8")
    assert cache.fact("honest") == "8"
    assert IdCache(path).fact("honest") == "8"


def test_a_file_that_another_holds_is_not_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plugin.sqlite3"
    IdCache(path).learn("honest", "9")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda path, **more: connect(path, **more | {"timeout": 0})
    )
    with pytest.raises(Unavailable, match="try again"):
        IdCache(path).learn("honest", "10")
    other.execute("ROLLBACK")
    assert IdCache(path).fact("honest") == "9"
