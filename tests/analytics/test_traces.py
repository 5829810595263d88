"""A text is found however it is written down, and nothing else is."""

from __future__ import annotations

import base64
import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from memtui.analytics.traces import look, searchable

TEXT = 'The "launch" code — über alles\nis marmalade'


def _nested(text: str) -> str:
    inner = base64.b64encode(text.encode()).decode()
    return json.dumps({"state": base64.b64encode(json.dumps({"content": inner}).encode()).decode()})


def _rows(path: Path, text: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE journal (id TEXT, before TEXT)")
        connection.execute("INSERT INTO journal VALUES ('a', ?)", (_nested(text),))
        connection.commit()


def _freed(path: Path, text: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("CREATE TABLE notes (text TEXT)")
        connection.execute("INSERT INTO notes VALUES (?)", (text,))
        connection.commit()
        connection.execute("DELETE FROM notes")
        connection.commit()


def _parquet(path: Path, text: str) -> None:
    duckdb.execute(f"COPY (SELECT 7 AS seq, '{text}' AS request) TO '{path}' (FORMAT parquet)")


@pytest.mark.parametrize(
    "write",
    [
        lambda path, text: path.write_text(f"before {text} after"),
        lambda path, text: path.write_text(text, encoding="utf-16"),
        lambda path, text: path.write_bytes(text.encode("utf-16-be")),
        lambda path, text: path.write_text(json.dumps({"text": text})),
        lambda path, text: path.write_text(json.dumps({"text": text}, ensure_ascii=False)),
        lambda path, text: path.write_text(_nested(text)),
        lambda path, text: path.write_bytes(gzip.compress(text.encode())),
        _rows,
        _freed,
        _parquet,
    ],
)  # fmt: skip
def test_a_text_is_found_however_it_is_written(tmp_path: Path, write: object) -> None:
    assert callable(write)
    path = tmp_path / "home" / "file"
    path.parent.mkdir()
    write(path, TEXT)
    found = look([tmp_path / "home"], [TEXT])
    assert {trace.text for trace in found.traces} == {TEXT}
    assert all(trace.place.startswith(str(path)) for trace in found.traces)
    assert not look([tmp_path / "home"], ["The launch code of nobody else"]).traces


def test_a_name_is_looked_at_and_a_link_is_not_followed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "outside.md").write_text("is marmalade and jam")
    (home / "link.md").symlink_to(tmp_path / "outside.md")
    (home / "is marmalade.md").write_text("nothing")
    found = look([home], ["is marmalade"])
    assert [(trace.place, trace.key) for trace in found.traces] == [
        (str(home / "is marmalade.md"), "its name")
    ]


def test_short_texts_are_not_looked_for() -> None:
    assert searchable(["short", " twelve chars  ", "twelve chars", "x" * 20]) == (
        "x" * 20,
        "twelve chars",
    )


def test_the_shortest_of_thousands_of_texts_is_found(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("before text number 04999 after")
    _rows(tmp_path / "rows.db", "text number 04999")
    wanted = searchable(f"text number {n:05}{' ' + 'and more' * (n < 4999)}" for n in range(5000))
    assert wanted[-1] == "text number 04999"
    found = look([tmp_path], wanted)
    assert found.texts == 5000
    assert {(Path(one.place).name.partition(":")[0], one.text) for one in found.traces} == {
        ("notes", wanted[-1]),
        ("rows.db", wanted[-1]),
    }


@pytest.mark.parametrize(
    "text", ["marmaladejam0", "日本語のとても長い文章です。", "* * * * * * *", "jam, marmalade"]
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_text_is_found_inside_of_other_words(tmp_path: Path, text: str, encoding: str) -> None:
    (tmp_path / "notes").write_bytes(f"un{text}ly".encode(encoding))
    assert {one.text for one in look([tmp_path], [text]).traces} == {text}


@pytest.mark.parametrize("size", [40, 41, 64, 100])
def test_a_text_is_found_across_the_parts_that_a_file_is_read_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("memtui.analytics.traces._CHUNK", size)
    texts = ["The first of the two texts.", "And the second of them is here."]
    for place in range(0, 80, 7):
        for text in texts:
            (tmp_path / "plain").write_text(f"{'-' * place}{text}{'-' * 90}")
            (tmp_path / "packed").write_bytes(gzip.compress(f"{'-' * place}{text}".encode()))
            found = look([tmp_path / "plain", tmp_path / "packed"], texts)
            told = {(Path(one.place).name, one.text) for one in found.traces}
            assert told == {("plain", text), ("packed", text)}


def test_each_row_column_and_table_is_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtui.analytics.traces._ROWS", 2)
    texts = ["The first of the two texts.", "And the second of them is here."]
    packed = [base64.b64encode(text.encode()).decode() for text in texts]
    with closing(sqlite3.connect(tmp_path / "rows.db")) as connection:
        for table in ("one", "two"):
            connection.execute(f"CREATE TABLE {table} (id TEXT, a TEXT, b TEXT)")
            for number in range(5):
                values = (f"{table}{number}", "", packed[number % 2] if number > 2 else "")
                connection.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", values)
        connection.commit()
    found = look([tmp_path], texts)
    named = {(one.place.rpartition(": ")[2], one.key.split()[0], one.text)
             for one in found.traces if one.key}  # fmt: skip
    assert named == {
        (f"{table}.b", f"{table}{number}", texts[number % 2])
        for table in ("one", "two") for number in (3, 4)
    }  # fmt: skip
