from __future__ import annotations

import dataclasses
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memtui.provider_kit.files import reading
from memtui.provider_kit.files.reading import (
    FileReader,
    digest,
    first_line,
    numbered,
    parse_moment,
    printable_id,
)


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


def test_a_folder_is_read_in_order_to_its_depth_and_without_what_is_hidden(tmp_path: Path) -> None:
    below = (".git/c.md", "sub/z.md", "sub/deep/y.md")
    for name in ("b.md", "a.MD", "a.txt", ".hidden.md", "c.md", *below):
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    root = tmp_path / "root"
    (root / "alias.md").symlink_to(root / "b.md")
    (root / "elsewhere").symlink_to(root / "sub")
    (tmp_path / "out.md").write_text("PRIVATE")
    (root / "sub" / "out.md").symlink_to(tmp_path / "out.md")
    (root / "folder.md").mkdir()

    def found(depth: int) -> tuple[list[str], list[str]]:
        reader = FileReader()
        paths = reader.files(root, ".md", depth=depth)
        files = [path.relative_to(root).as_posix() for path in paths]
        told = [Path(one.location.path).name for one in reader.problems if one.location]
        return files, told

    top = ["a.MD", "alias.md", "b.md", "c.md"]
    assert found(1) == (top, ["folder.md"])
    assert found(2) == ([*top, "sub/z.md"], ["elsewhere", "folder.md", "out.md"])
    assert found(3)[0] == [*top, "sub/deep/y.md", "sub/z.md"]


def test_what_is_as_large_as_allowed_is_read_without_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FILE_LIMIT", 10)
    monkeypatch.setattr(reading, "FOLDER_LIMIT", 2)
    for name in "ab":
        (tmp_path / f"{name}.md").write_text("x" * 10)
    reader = FileReader()
    assert [reader.parse(path, upper) for path in reader.files(tmp_path, ".md")] == ["X" * 10] * 2
    assert reader.problems == []


def test_a_file_that_is_known_still_has_its_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_SETTLED_NS", -1)
    path = tmp_path / "a.md"
    path.write_bytes(b"one\ntwo\ncaf\xe9\nfour\xff\n")
    first = FileReader()
    assert first.parse(path, upper) == "ONE\nTWO\nCAF\ufffd\nFOUR\ufffd\n"
    again = FileReader(memo=first.memo)
    assert again.parse(path, pytest.fail) == first.memo[path][1][0]
    for reader in (first, again):
        lines = [one.location.line for one in reader.problems if one.location]
        assert lines == [3], "of several, the first place"
        assert not reader.changed()
        modified = reader.modified(path)
        assert modified is not None
        assert abs(modified.timestamp() - path.stat().st_mtime) < 1e-5
    assert again.modified(tmp_path / "other.md") is None


def test_an_id_can_be_printed_and_is_nobody_elses() -> None:
    long, longer = "x" * 160, "x" * 161
    assert [printable_id(one) for one in ("a b", long)] == ["a b", long]
    assert printable_id(longer) == f"{long}-{digest(longer)}"
    assert printable_id("a\nb\0") == f"a_b_-{digest(chr(10).join('ab') + chr(0))}"
    assert digest("a", "b") != digest("ab") != digest("a\0b", "") != digest("b", "a")
    assert list(numbered(["a", "b", "a", "a~2", "a", "b"])) == [
        "a", "b", "a~2", "a~2~2", "a~3", "b~2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "limit", "line"),
    [
        ("\n  - * One.  \ntwo", 80, "One."),
        ("x" * 80, 80, "x" * 80),
        ("x" * 81, 80, "x" * 79 + "…"),
        ("abcd fgh", 6, "abcd…"),
        ("", 80, ""),
        ("+\nafter", 80, ""),
        (" " * 900 + "far", 80, "far"),
    ],
)
def test_the_first_line_of_a_text_is_its_title(text: str, limit: int, line: str) -> None:
    assert first_line(text, limit) == line


def test_a_moment_is_utc_whatever_its_offset() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for text in ("2026-03-01T12:00:00Z", " 2026-03-01T17:30+05:30 ", "20260301T120000Z"):
        assert parse_moment(text) == noon
    local = "2026-03-01T12:00"
    assert parse_moment(local) == datetime.fromisoformat(local).astimezone()
    assert parse_moment("0001-01-01T00:00:00+14:00") is None
    assert [parse_moment(one) for one in ("soon", "", None, 7, noon)] == [None] * 5
