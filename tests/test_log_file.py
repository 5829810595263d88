from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from memtui.app import MemtuiApp, run_app
from memtui.channels.cli.session import logging_to
from memtui.config import Paths, load_settings
from memtui.contract import QueryRequest, Scope
from memtui.log_file import LogFile
from memtui.service import caller_of, open_service
from memtui.service.providers import unexpected


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
    with closing(LogFile(tmp_path / folder / "memtui.log", told.append, str)) as log:
        record = logging.LogRecord("memtui", logging.ERROR, "", 0, message, ("vault",), None)
        log.handle(record)
        log.handle(record)
        assert not log.is_whole
    [said] = told
    assert why in said
    assert said.endswith("log: down: vault" if folder else "log: down")
    assert capsys.readouterr().err == ""


def _by_command(paths: Paths, log: Callable[[], None], _: pytest.MonkeyPatch) -> None:
    with logging_to(paths.log_file):
        log()


def _by_app(paths: Paths, log: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemtuiApp, "run", lambda _app, mouse: log())
    run_app(paths, load_settings(paths))


@pytest.mark.parametrize("opened", [_by_command, _by_app])
def test_the_secrets_of_what_others_raise_are_in_no_log(
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
    opened: Callable[[Paths, Callable[[], None], pytest.MonkeyPatch], None],
) -> None:
    token = "ghp_" + "a1B2" * 9

    def fails() -> None:
        unexpected("vault", RuntimeError(f"GET /x?token={token} password=hunter2222 failed"))

    opened(paths, fails, monkeypatch)
    said = paths.log_file.read_text()
    assert "The provider vault failed unexpectedly" in said
    assert "RuntimeError: GET /x?token=[REDACTED:GITHUB_TOKEN] password=[REDACTED:" in said
    assert token not in said
    assert "hunter2222" not in said


@pytest.mark.parametrize(
    ("level", "operation", "call"),
    [("warning", 0, 0), ("info", 1, 0), ("debug", 1, 1)],
)
async def test_the_level_says_whether_operations_and_calls_are_logged(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, level: str, operation: int, call: int
) -> None:
    monkeypatch.setenv("MEMTUI_LOG_LEVEL", level)
    with logging_to(paths.log_file):
        service = await open_service(paths, load_settings(paths))
        caller = caller_of(service.settings, "local", "cli")
        await service.query(
            caller, QueryRequest(scope=Scope(company_id="local"), query="secret tea")
        )
        await service.close()
    log = paths.log_file.read_text()
    assert log.count("INFO memtui.service.recorder: query ") == operation
    assert (" on default by user:" in log) == bool(operation)
    assert ("DEBUG memtui.service.connections: default answered after " in log) == bool(call)
    assert "secret tea" not in log
