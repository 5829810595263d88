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
