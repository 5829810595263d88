from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from memtui.backends.files import reading
from memtui.backends.files.reading import FileReader


def upper(text: str) -> str:
    return text.upper()


def test_an_unchanged_file_is_parsed_once(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("one")
    signature = reading.Signature(1, 1, 0o100644, 3, 0, 0)
    seen: list[str] = []

    def parse(text: str) -> str:
        seen.append(text)
        return text

    memo = {path: (signature, ("kept", ()))}
    assert FileReader(memo=dict(memo)).parse(path, parse) == "one"
    found = reading.sign(path)
    assert found is not None
    settled = dataclasses.replace(found, settled=True)
    assert FileReader(memo={path: (settled, ("kept", ()))}).parse(path, parse) == "kept"
    assert seen == ["one"]


def test_a_file_written_a_moment_ago_counts_as_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.md"
    path.write_text("one")
    monkeypatch.setattr(reading, "_SETTLED_NS", 10**18)
    reader = FileReader()
    assert reader.parse(path, upper) == "ONE"
    assert reader.changed()


def test_an_old_file_is_unchanged_until_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.md"
    path.write_text("one")
    monkeypatch.setattr(reading, "_SETTLED_NS", -1)
    reader = FileReader()
    reader.parse(path, upper)
    assert not reader.changed()
    path.write_text("two!")
    assert reader.changed()


def test_what_was_not_there_is_noticed_when_it_comes(tmp_path: Path) -> None:
    reader = FileReader()
    assert reader.look(tmp_path / "a.md") is None
    assert reader.files(tmp_path / "rules", ".md") == []
    assert not reader.changed()
    (tmp_path / "rules").mkdir()
    assert reader.changed()


def test_a_file_truncated_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.md"
    path.write_text("x" * 1000)
    real = os.fstat
    calls = 0

    def fstat(descriptor: int) -> os.stat_result:
        nonlocal calls
        calls += 1
        if calls == 2:
            path.write_text("short")
        return real(descriptor)

    monkeypatch.setattr(os, "fstat", fstat)
    assert FileReader().parse(path, upper) == "SHORT"


def test_a_file_that_never_rests_is_shown_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.md"
    path.write_text("x")
    real = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        with path.open("a") as file:
            file.write("x")
        return real(descriptor)

    monkeypatch.setattr(os, "fstat", fstat)
    reader = FileReader()
    assert reader.parse(path, upper) is not None
    assert reader.changed()


def test_a_file_that_goes_between_listing_and_reading_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("x")
    reader = FileReader()
    (path,) = reader.files(tmp_path, ".md")
    path.unlink()
    assert reader.parse(path, upper) is None
    assert [problem.message for problem in reader.problems] == [
        "The file cannot be read (No such file or directory)."
    ]


def test_a_file_past_the_limit_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FILE_LIMIT", 10)
    (tmp_path / "a.md").write_text("x" * 11)
    reader = FileReader()
    assert reader.parse(tmp_path / "a.md", upper) is None
    assert "more than" in reader.problems[0].message


def test_a_folder_past_the_limit_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FOLDER_LIMIT", 2)
    for name in "abc":
        (tmp_path / f"{name}.md").write_text("x")
    reader = FileReader()
    assert [path.name for path in reader.files(tmp_path, ".md")] == ["a.md", "b.md"]
    assert [problem.message for problem in reader.problems] == ["Only the first 2 files are read."]


def test_a_name_that_is_not_utf8_is_a_problem_that_can_be_shown(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.md")).write_text("x")
    reader = FileReader()
    assert reader.files(tmp_path, ".md") == []
    (problem,) = reader.problems
    assert problem.model_dump_json()


def test_windows_line_ends_and_a_byte_order_mark_are_read_away(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"\xef\xbb\xbfone\r\ntwo")
    assert FileReader().parse(tmp_path / "a.md", upper) == "ONE\nTWO"
