from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import pytest

from memtui.log_file import LogFile


@pytest.mark.parametrize(
    ("folder", "message", "why"),
    [
        ("missing", "down: %s", "cannot be written (No such file or directory), so this is in no"),
        ("", "down", "does not take a line (TypeError), so this is in no"),
    ],
)
def test_a_line_that_is_in_no_log_is_told_once_and_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str, message: str, why: str
) -> None:
    told: list[str] = []
    with closing(LogFile(tmp_path / folder / "memtui.log", told.append)) as log:
        record = logging.LogRecord("memtui", logging.ERROR, "", 0, message, ("vault",), None)
        log.handle(record)
        log.handle(record)
        assert not log.is_whole
    [said] = told
    assert why in said
    assert said.endswith("log: down: vault" if folder else "log: down")
    assert capsys.readouterr().err == ""
