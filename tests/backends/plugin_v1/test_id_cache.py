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


def test_what_is_gone_is_forgotten_of_its_own_place_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = IdCache(tmp_path / "plugin.sqlite3")
    cache.note(
        [(name, str(n), f"gecko{'s' * n}") for name in ("team:a", "team:b") for n in (1, 2, 3)]
    )
    assert cache.homes("2") == ["team:b", "team:a"]
    cache.strike([("team:a", "1"), ("team:a", "2")])
    assert [one for one, _ in cache.seen("team:a")] == ["3"]
    assert [one for one, _ in cache.seen("team:b")] == ["3", "2", "1"]
    assert (cache.words(("team:a", "2")), cache.words(("team:b", "2"))) == ("", "geckoss")
    cache.note([("team:b", "2", "newts")])
    assert cache.words(("team:b", "2")) == "newts"
    cache.leave("team:b")
    assert cache.seen("team:b") == []
    assert list(cache.namespaces()) == ["team:a"]
    assert cache.homes("3") == ["team:a"]
    cache.scrub()
    cache.close()
    left = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    assert b"geckosss" in left
    assert b"newts" not in left
    assert b"team:b" not in left
    cache = IdCache(tmp_path / "other.sqlite3")
    monkeypatch.setattr("memtui.backends.plugin_v1.id_cache._MOST_SEEN", 3)
    for n in range(5):
        cache.note([("team:a", str(n), "newt")])
        assert [one for one, _ in cache.seen("team:a")] == [str(k) for k in range(n, -1, -1)][:3]
    cache.close()
