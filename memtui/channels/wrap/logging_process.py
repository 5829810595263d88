"""The passing process's side of the log: copies behind a bounded queue, and what was lost.

Nothing here waits for the log. The process that logs is started again where it ends early; what it
had not logged by then, and what the queue had no room for, is a gap.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Condition, Event, Thread, Timer
from typing import Any, NamedTuple

from memtui.channels.wrap.frames import (
    ANSWER,
    ASKED,
    END,
    GAP,
    LOGGED,
    PASS,
    START,
    STATE,
    STOPPED,
    WAITING,
    Unlogged,
    WireFrame,
    frames,
    send,
)

MOST_LINE_BYTES = 32 << 20
"""A longer line is passed on, and not logged."""
_ROOM_BYTES = 32 << 20
"""How many bytes are queued beside the longest line."""
_DECIDED_WITHIN_S = 10.0
"""How long a write waits for the rules before it is refused."""
_LAST_S, _MOST_LAST_S = 3.0, 20.0
"""How long the end waits for a log that makes no progress, and for one that does."""
_PAUSES_S = 0.5, 30.0
"""The first and the longest pause before the logging process is started again."""
_METHOD = b'"method"'
_CALL = re.compile(rb'"method"\s*:\s*"tools(?:\\?/|\\u002[fF])call"')

Decide = Callable[[bytes | None, bytes], None]
"""Takes what a waiting line is answered with (None: it may pass), and the line."""


class _Queued(NamedTuple):
    kind: bytes
    number: int = 0
    at: float = 0.0
    parts: Sequence[bytes] = ()
    size: int = 0

    @property
    def frame(self) -> WireFrame:
        """The frame to send."""
        return WireFrame(self.kind, self.number, self.at, b"".join(self.parts))


class _WaitingLine(NamedTuple):
    line: bytes
    decide: Decide
    timer: Timer


class LoggingProcess:
    """The process that logs, seen from the process that passes bytes on."""

    def __init__(self) -> None:
        """Prepare it: `begin` starts the process, and lines that pass before that are queued."""
        self._start: dict[str, Any] = {}
        self._note: Path | None = None
        self._is_begun = Event()
        self.trouble = ""
        """Why nothing can be logged now, as a sentence; empty: it can."""
        self.has_rules: bool | None = None
        """Whether the binding has rules of review; None: not known yet."""
        self._is_unreadable = False
        """Whether waiting for that is in vain."""
        self.reads: frozenset[str] = frozenset()
        """The tools that only read, by the mapping or by the server's word."""
        self.refusal = ""
        """Why nothing may be wrapped here, as a sentence; empty: it may."""
        self.refused: Callable[[], None] = lambda: None
        """Called once `refusal` is set."""
        self._queue: deque[_Queued] = deque()
        self._queued_bytes = 0
        self._changed = Condition()
        self._open: dict[int, Unlogged] = {}
        """Calls and gaps that are sent and not logged, by number."""
        self._gap: Unlogged | None = None
        """What is neither logged nor sent."""
        self._waiting: dict[int, _WaitingLine] = {}
        self._deciding = 0
        """How many lines are just passed on or answered."""
        self._number = 0
        self._connection: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ending = self._is_sending = self._is_dead = False
        Thread(target=self._feed, name="memtui-wrap-feed", daemon=True).start()

    def begin(self, start: dict[str, Any], note: Path | None) -> None:
        """Let it begin.

        Args:
            start: What it needs to begin.
            note: The file that says whether the binding had rules last; None: there is no home.
        """
        self._start, self._note = start, note
        with self._changed:
            self.has_rules = False if note is None else None
            self._changed.notify_all()
        self._is_begun.set()

    @property
    def is_free(self) -> bool:
        """Whether every line passes at once."""
        return self.has_rules is False

    def tell(self, kind: bytes, line: Sequence[bytes]) -> int:
        """Give it the parts of a line that passed; one that the queue has no room for is lost.

        Returns the line's number.
        """
        with self._changed:
            self._number += 1
            queued = _Queued(kind, self._number, time.time(), line, sum(map(len, line)))
            if max(queued.size, self._queued_bytes + queued.size - _ROOM_BYTES) > MOST_LINE_BYTES:
                self._lose(_calls(queued.frame))
            else:
                self._put(queued)
            return self._number

    def wait_until_known(self) -> None:
        """Wait until it is known whether there are rules; once, and a few seconds at most.

        Where that cannot be read, what was known last counts.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self.has_rules is not None or self._is_unreadable, _DECIDED_WITHIN_S
            )
            self._is_unreadable = True
            if self.has_rules is None and self._had_no_rules():
                self.has_rules = False

    def ask(self, line: bytes, decide: Decide) -> None:
        """Let a line of the agent wait until it was weighed, a few seconds at most."""
        if self.has_rules is None:
            decide(refused(line, NOT_READ), line)
            return
        with self._changed:
            number = self.tell(WAITING, [line])
            timer = Timer(_DECIDED_WITHIN_S, self._late, [number])
            timer.daemon = True
            self._waiting[number] = _WaitingLine(line, decide, timer)
        timer.start()

    def settle(self) -> None:
        """Wait until no line of the agent waits."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._deciding)

    def end(self) -> Unlogged | None:
        """Let it log the rest, for a few seconds at most; return what is not logged by then."""
        last = time.monotonic() + _MOST_LAST_S
        with self._changed:
            self._is_ending = True
            self._put(_Queued(END))
            left = -1
            while not self._is_dead and time.monotonic() < last:
                before, left = left, len(self._open) + len(self._queue)
                if left == before or not (left or self._gap or self._is_sending):
                    break
                self._changed.wait_for(
                    lambda: (
                        not (self._open or self._gap or self._queue or self._is_sending)
                        or self._is_dead
                    ),
                    _LAST_S,
                )
            lost, process = self._lost(), self._process
        if process is not None and lost is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LAST_S)
        elif self._is_dead and lost is not None:
            self._leave_note(lost)
        return lost

    def _lost(self) -> Unlogged | None:
        lost = self._gap
        queued = (_calls(one.frame) for one in self._queue)
        for one in (*self._open.values(), *filter(None, queued)):
            lost = one.and_(lost)
        return lost

    def _leave_note(self, lost: Unlogged) -> None:
        """Leave the gap in the home, for the next start; it may be full or gone."""
        if self._note is not None:
            path = self._note.with_name(f"{self._note.name}.{os.getpid()}-{time.time_ns()}.gap")
            with suppress(OSError):
                path.write_text(json.dumps(lost), encoding="utf-8")

    def _put(self, queued: _Queued) -> None:
        self._queue.append(queued)
        self._queued_bytes += queued.size
        self._changed.notify_all()

    def _lose(self, lost: Unlogged | None) -> None:
        if lost is not None:
            self._gap = lost.and_(self._gap)

    def _feed(self) -> None:
        """Send what is queued; start the process again where it has ended."""
        pause = _PAUSES_S[0]
        while True:
            begun = time.monotonic()
            try:
                connection = self._begin()
                while True:
                    send(connection, self._next(connection))
            except OSError:
                self._broken()
            if self._is_ending:
                return
            if time.monotonic() - begun > _PAUSES_S[1]:
                pause = _PAUSES_S[0]
            time.sleep(pause)
            pause = min(2 * pause, _PAUSES_S[1])

    def _next(self, connection: socket.socket) -> WireFrame:
        """Return the next frame, a gap first. Raises `OSError` where the process has ended."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._queue or self._gap or self._connection is not connection
            )
            if self._connection is not connection:
                raise BrokenPipeError
            if self._gap is not None:
                lost, self._gap = self._gap, None
                self._number += 1
                self._open[self._number] = lost
                return WireFrame(GAP, self._number, lost.until, json.dumps(lost).encode())
            queued = self._queue.popleft()
            self._queued_bytes -= queued.size
            self._is_sending = True
        frame = queued.frame  # joins its parts: not while others wait for the lock
        calls = _calls(frame)
        with self._changed:
            self._is_sending = False
            if calls is not None:
                self._open[frame.number] = calls
        return frame

    def _begin(self) -> socket.socket:
        """Start the process. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", "memtui.channels.wrap.watching"]
            # A session of its own: it tells what a signal to the whole group cut off.
            process = subprocess.Popen(  # noqa: S603 - this Python
                [*command, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        with self._changed:
            self._connection, self._process, self._is_dead = ours, process, False
        self._is_begun.wait()
        send(ours, WireFrame(START, at=time.time(), content=json.dumps(self._start).encode()))
        Thread(target=self._hear, args=[ours], name="memtui-wrap-hear", daemon=True).start()
        return ours

    def _broken(self) -> None:
        """Take note that the process has ended: what it had not logged is lost."""
        with self._changed:
            for one in self._open.values():
                self._lose(one)
            self._open.clear()
            self._connection, process, self._process = None, self._process, None
            self._is_dead = True
            waiting = list(self._waiting)
            self._changed.notify_all()
        if process is not None:
            process.kill()
            process.wait()
        for number in waiting:
            self._late(number)

    def _hear(self, connection: socket.socket) -> None:
        for frame in frames(connection):
            if frame.kind == STATE:
                self._learn(frame.document)
            elif frame.kind in {PASS, ANSWER}:
                self._decided(frame)
            elif frame.kind == LOGGED:
                with self._changed:
                    self._open.pop(frame.number, None)
                    self._changed.notify_all()
        with self._changed:
            if self._connection is connection:
                self._connection = None
            self._changed.notify_all()
        with suppress(OSError):  # so that a send that waits fails
            connection.shutdown(socket.SHUT_RDWR)

    def _learn(self, state: dict[str, Any]) -> None:
        with self._changed:
            self.has_rules = state.get("has_rules", self.has_rules)
            self._changed.notify_all()
        if "reads" in state:
            self.reads = frozenset(state["reads"])
        if "known" in state:  # for the next one, if this one ends early
            self._start["known"] = state["known"]
        self.trouble = state.get("trouble", self.trouble)
        if self.trouble:
            with self._changed:
                self._is_unreadable = True
                self._changed.notify_all()
        if sentence := state.get("refusal"):
            self.refusal = sentence
            self.refused()

    def _decided(self, frame: WireFrame) -> None:
        """Let a line that waits pass, or answer it."""
        with self._changed:
            waiting, passes = self._waiting.pop(frame.number, None), frame.kind == PASS
            if waiting is None:
                if passes:
                    self._put(_Queued(STOPPED, frame.number, time.time()))
                return
            now = time.time()
            if passes and (calls := _calls(WireFrame(ASKED, frame.number, now, waiting.line))):
                self._open[frame.number] = calls
            self._deciding += 1
        self._decide(waiting, None if passes else frame.content)

    def _decide(self, waiting: _WaitingLine, answer: bytes | None) -> None:
        waiting.timer.cancel()
        try:
            with suppress(OSError):  # the server or the agent is gone
                waiting.decide(answer, waiting.line)
        finally:
            with self._changed:
                self._deciding -= 1
                self._changed.notify_all()

    def _late(self, number: int) -> None:
        """Decide on a line that still waits by what was known last; refuse it where unknown."""
        with self._changed:
            waiting = self._waiting.pop(number, None)
            if waiting is None:
                return
            self._put(_Queued(STOPPED, number, time.time()))
            self._deciding += 1
        is_free = self.is_free
        self._decide(waiting, None if is_free else refused(waiting.line, NOT_READ))
        if is_free:
            self.tell(ASKED, [waiting.line])

    def _had_no_rules(self) -> bool:
        try:
            return self._note is None or self._note.read_text(encoding="utf-8") == NO_RULES
        except (OSError, UnicodeDecodeError):
            return False


def _calls(frame: WireFrame) -> Unlogged | None:
    """Return the calls of tools in a line that passed; None: there are none."""
    if frame.kind != ASKED:
        return None
    count, at = 0, frame.content.find(_METHOD)
    while at >= 0:  # much faster than to search a long line for the pattern
        count += _CALL.match(frame.content, at) is not None
        at = frame.content.find(_METHOD, at + 1)
    return Unlogged(count, frame.at, frame.at) if count else None


NO_RULES = "no rules\n"
"""What the note holds where the binding had no rules."""
NOT_READ = (
    "memtui refused this call, as its rules of review cannot be read now; nothing was changed. Try "
    "again later, and let a person run `memtui doctor`."
)


def refused(line: bytes, sentence: str) -> bytes:
    """Return the lines that answer each request in a line of the agent with a tool's error.

    A line without a request is answered with one error of JSON-RPC.
    """
    said: Any = None
    with suppress(ValueError, RecursionError):
        said = json.loads(line)
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": sentence}}
    answers = (
        tool_answer(one["id"], sentence, is_error=True)
        for one in (said if isinstance(said, list) else [said])
        if isinstance(one, dict) and "id" in one and "method" in one
    )
    return b"".join(answers) or json.dumps(error).encode() + b"\n"


def tool_answer(request_id: Any, sentence: str, *, is_error: bool, **more: Any) -> bytes:
    """Return the line that answers a call of a tool with a sentence."""
    content = [{"type": "text", "text": sentence}]
    result = {"content": content, "isError": is_error, **more}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}).encode() + b"\n"
