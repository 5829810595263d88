from __future__ import annotations

import stat
from pathlib import Path

import pytest

from memtui.contract import Invalid, Scope
from memtui.screens.kept import SavedCompany, SavedSession, load_session, save_document

HERE = SavedSession(
    company="acme",
    theme="ansi",
    companies={
        "acme": SavedCompany(
            screen="query",
            scope=Scope(company_id="acme", project_id="p"),
            filter_line="agent:coding",
            binding_key="notes",
        )
    },
    filters=("agent:coding",),
)


def test_a_session_comes_back_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    save_document(path, HERE)
    assert load_session(path) == HERE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_no_session_is_an_empty_one(tmp_path: Path) -> None:
    assert load_session(tmp_path / "session.json") == SavedSession()
    assert SavedSession().of("other").screen == "records"


@pytest.mark.parametrize("content", [b"", b"{", b'{"company": 3}', b"\xff\xfe", b'{"new": 1}'])
def test_a_broken_session_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "session.json"
    path.write_bytes(content)
    with pytest.raises(Invalid, match="starts afresh"):
        load_session(path)


def test_a_session_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be kept"):
        save_document(tmp_path / "none" / "session.json", HERE)


def test_the_history_of_filters_keeps_the_newest_once() -> None:
    session = SavedSession()
    for number in range(60):
        session = session.with_filter(f"run:{number}")
    session = session.with_filter("run:30").with_filter("")
    assert len(session.filters) == 50
    assert session.filters[-1] == "run:30"
    assert session.filters.count("run:30") == 1
