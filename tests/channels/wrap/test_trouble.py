"""Trouble with the log delays nothing, and is told: on stderr, by the exit code and in the log."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import time
from collections.abc import Iterator
from threading import Event, Thread
from typing import IO, Any, ClassVar

import pytest

from memtui.channels.wrap import log_client
from memtui.channels.wrap.frames import FrameKind, LogState, WireFrame, frames, send
from memtui.channels.wrap.log_process import GapNote
from memtui.config import Paths
from memtui.contract import OperationStatus, OperationType
from memtui.service import MemoryService
from memtui.store.unlogged import UnloggedCalls
from tests.channels.wrap.conftest import GIVEN_UP_S, KEY, Begin, Logged, Wrap

AT_ONCE_S = 5.0
"""Far less than what a locked database is waited for."""


def log_process(toy: Wrap) -> int:
    """Return the process that logs."""
    [found] = [pid for pid, words in toy.children().items() if b"wrap.log_process" in words]
    return found


async def test_a_locked_log_delays_nothing_and_gets_the_calls_later(
    wrap: Begin, logged: Logged, paths: Paths
) -> None:
    toy = wrap()
    toy.begin()
    toy.call("find", n=0)
    await logged(1)
    other = sqlite3.connect(paths.database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    for number in range(1, 6):
        toy.call("keep", n=number)
    assert time.monotonic() - began < AT_ONCE_S
    code, said = toy.end()
    assert code == 75
    assert "memtui: 5 calls between" in said
    other.execute("ROLLBACK")
    other.close()
    found = await logged(6)
    assert [
        json.loads(one.request.get("content") or one.request["query"])["n"] for one in found
    ] == [*range(6)]


async def test_what_a_killed_log_process_had_not_logged_is_a_gap(
    wrap: Begin, logged: Logged
) -> None:
    toy = wrap()
    toy.begin()
    toy.call("find", n=0)
    await logged(1)
    watching = log_process(toy)
    os.kill(watching, signal.SIGSTOP)
    for number in range(3):
        toy.call("keep", n=number)
    os.kill(watching, signal.SIGKILL)
    toy.call("keep", n="after")
    found = await logged(5)
    gaps = [one for one in found if one.operation_type is OperationType.GAP]
    assert 3 <= sum(one.request["calls"] for one in gaps) <= 5  # the first may not be confirmed
    assert "were not logged." in (gaps[0].error_message or "")
    assert toy.end()[0] == 0


async def test_a_home_that_is_gone_is_told_and_delays_nothing(
    wrap: Begin, logged: Logged, paths: Paths
) -> None:
    toy = wrap()
    toy.begin()
    toy.call("find", n=0)
    await logged(1)
    away = paths.data.with_name("away")
    paths.data.rename(away)
    try:
        began = time.monotonic()
        for number in range(4):
            toy.call("keep", n=number)
        assert time.monotonic() - began < AT_ONCE_S
        code, said = toy.end()
        assert code == 75
        assert "memtui: 4 calls between" in said
    finally:
        shutil.rmtree(paths.data, ignore_errors=True)
        away.rename(paths.data)
    assert len(await logged(5)) == 5


async def test_a_gap_that_could_not_be_logged_is_logged_at_the_next_start(
    wrap: Begin, logged: Logged, paths: Paths
) -> None:
    toy = wrap()
    toy.begin()
    toy.call("find", n=0)
    await logged(1)
    [note] = (paths.data / "wrapped").glob("*.gap")
    toy.end()
    deadline = time.monotonic() + GIVEN_UP_S
    while note.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    note.write_text("[12, 1790000000.0, 1790000060.5]")
    toy = wrap()
    toy.begin()
    [_, gap] = await logged(13)
    toy.end()
    assert gap.operation_type is OperationType.GAP
    assert gap.error_message == (
        "12 calls between 2026-09-21 14:13:20 and 2026-09-21 14:14:20 UTC were not logged."
    )
    assert not note.exists()


def test_a_gap_is_noted_though_the_log_was_never_opened(paths: Paths) -> None:
    lost = UnloggedCalls(2, 1790000000.0, 1790000060.5)
    GapNote(paths.data / "gone" / "wrapped" / "-.notes").close(lost)
    assert not (paths.data / "gone").exists()
    beside = paths.data / "wrapped" / "-.notes"
    GapNote(beside).close(None)
    GapNote(beside).close(lost)
    [(_, found)] = GapNote(beside).earlier()
    assert found == lost


def test_without_a_home_everything_passes_and_is_told(
    wrap: Begin, paths: Paths, bound: MemoryService
) -> None:
    away = paths.data.with_name("away")
    paths.data.rename(away)
    try:
        toy = wrap()
        toy.begin()
        assert toy.call("keep", n=1)
        code, said = toy.end()
        assert code == 75
        assert "memtui: 1 call between" in said
    finally:
        away.rename(paths.data)


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_binding_that_is_not_there_is_told_though_the_server_ends_at_once(
    wrap: Begin, paths: Paths, bound: MemoryService, *, is_begun: bool
) -> None:
    away = paths.data.with_name("away")
    if not is_begun:
        paths.data.rename(away)
    try:
        code, said = wrap("nosuch", "--", "true").end()
    finally:
        if not is_begun:
            away.rename(paths.data)
    assert code == (1 if is_begun else 75)
    assert "nosuch" in said if is_begun else "There is no memtui home" in said


async def test_what_has_no_room_is_a_gap(wrap: Begin, logged: Logged) -> None:
    toy = wrap()
    toy.begin()
    toy.call("find", n=0)
    await logged(1)
    watching = log_process(toy)
    os.kill(watching, signal.SIGSTOP)
    text = "x" * 10_000_000
    for _ in range(10):
        toy.call("keep", text=text)
    os.kill(watching, signal.SIGCONT)
    toy.end()
    found = await logged(11)
    gaps = [one for one in found if one.operation_type is OperationType.GAP]
    assert sum(one.request["calls"] for one in gaps) > 2
    answers = {one.error_message for one in found if one.status is OperationStatus.UNKNOWN}
    assert answers <= {"No answer was seen before the connection ended."}


@pytest.mark.parametrize("had_no_rules", [False, True])
def test_rules_that_cannot_be_read_at_the_start_are_those_of_last_time(
    wrap: Begin, paths: Paths, bound: MemoryService, *, had_no_rules: bool
) -> None:
    (paths.data / "wrapped").mkdir(mode=0o700)
    if had_no_rules:
        (paths.data / "wrapped" / f"-.{KEY}").write_text("no rules\n")
    paths.database.write_bytes(b"no database" * 1_000)
    toy = wrap()
    toy.begin()
    while toy.call("find", n=1)["isError"]:  # what the server says of it is known soon
        pass
    kept = toy.call("keep", n=2)
    assert kept["isError"] is not had_no_rules
    if not had_no_rules:
        assert "memtui refused this call" in kept["content"][0]["text"]
    assert toy.end()[0] == 75


class LogOf:
    """Stands in for the process that logs; the first one ends once it has logged a line."""

    heard: ClassVar[list[FrameKind]] = []
    begun = 0

    def __init__(self, _command: list[str], *, pass_fds: list[int], **_: object) -> None:
        LogOf.begun += 1
        self._ends = LogOf.begun == 1
        with socket.socket(fileno=os.dup(pass_fds[0])) as connection:
            self._file: Any = connection.makefile("rwb")
        self._thread = Thread(target=self._log, daemon=True)
        self._thread.start()

    def _log(self) -> None:
        for frame in frames(self._file):
            LogOf.heard.append(frame.kind)
            if frame.kind is FrameKind.ASKED:
                state = LogState(has_rules=False)
                send(self._file, WireFrame(FrameKind.STATE, content=state))
                send(self._file, WireFrame(FrameKind.LOGGED, frame.number))
            if frame.kind is FrameKind.END or (self._ends and frame.kind is FrameKind.ASKED):
                break
        self._file.close()

    def kill(self) -> None:
        """End by itself."""

    def wait(self, _timeout: float | None = None) -> None:
        self._thread.join()


def test_a_call_that_was_logged_last_is_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    has_failed = Event()

    def late(file: IO[bytes]) -> Iterator[WireFrame]:
        assert has_failed.wait(GIVEN_UP_S)  # what the process said is read after it has ended
        return frames(file)

    def sending(file: IO[bytes], frame: WireFrame) -> None:
        try:
            send(file, frame)
        except OSError:
            has_failed.set()
            raise

    monkeypatch.setattr("memtui.channels.wrap.log_client.subprocess.Popen", LogOf)
    monkeypatch.setattr(log_client, "frames", late)
    monkeypatch.setattr(log_client, "send", sending)
    log = log_client.LogClient()
    log.begin({}, None)
    log.tell(FrameKind.ASKED, [b'{"id":1,"method":"tools/call"}\n'])
    while not has_failed.is_set():
        log.tell(FrameKind.ANSWERED, [b"{}\n"])
    assert log.end() is None
    assert FrameKind.GAP not in LogOf.heard
