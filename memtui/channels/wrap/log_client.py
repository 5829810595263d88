"""The passing process's side of the log: copies behind a bounded queue, and what was lost.

Nothing here waits for the log. The process that logs is started again where it ends early; what it
had not logged by then, and what the queue had no room for, is a gap.
"""

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
from threading import Condition, Event, Thread, current_thread
from typing import Any

from memtui.channels.wrap.frames import FrameKind, LogState, WireFrame, frames, send
from memtui.channels.wrap.lines import NOT_READ, refused
from memtui.store.unlogged import UnloggedCalls

MOST_LINE_BYTES = 32 << 20
"""A longer line is passed on, and not logged."""
NO_RULES = "no rules\n"
"""The note's text if the binding had no rules."""
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


class LogClient:
    """The process that logs, seen from the process that passes bytes on."""

    def __init__(self) -> None:
        """Prepare it: `begin` starts the process, and lines that pass before that are queued."""
        self._start: dict[str, Any] = {}
        self._note: Path | None = None
        self._is_begun = Event()
        self.state = LogState()
        """The state that the process reported last."""
        self.has_rules: bool | None = None
        """Whether the binding has rules of review, as far as is known; None: it is not."""
        self._has_waited = False
        self.refused: Callable[[], None] = lambda: None
        """Called once the state has a `refusal`."""
        self._queue: deque[WireFrame] = deque()
        self._queued_bytes = 0
        self._changed = Condition()
        self._open: dict[int, UnloggedCalls] = {}
        """Calls and gaps that are sent and not logged, by number."""
        self._gap: UnloggedCalls | None = None
        """What is neither logged nor sent."""
        self._waiting: dict[int, bytes] = {}
        """The agent's lines that wait to be weighed, by number; `_weighed`: what was said then."""
        self._weighed: dict[int, WireFrame] = {}
        self._deciding: set[Thread] = set()
        self._number = 0
        self._connection: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._hearing: Thread | None = None
        self._is_ending = False
        self._ends = 0
        """How often the process has ended."""
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

    @property
    def _is_dead(self) -> bool:
        return self._ends > 0 and self._connection is None

    def _has_looked(self) -> bool:
        """Whether the process has opened the log, or said why it cannot."""
        state = self.state
        return state.has_rules is not None or bool(state.trouble or state.refusal)

    def tell(self, kind: FrameKind, line: Sequence[bytes]) -> int:
        """Give it the parts of a line that passed; one that the queue has no room for is lost.

        Returns the line's number.
        """
        with self._changed:
            self._number += 1
            frame, size = WireFrame(kind, self._number, time.time(), line), sum(map(len, line))
            if max(size, self._queued_bytes + size - _ROOM_BYTES) > MOST_LINE_BYTES:
                self._lose(_calls(frame))
            else:
                self._queued_bytes += size
                self._put(frame)
            return self._number

    def wait_until_known(self) -> None:
        """Wait until it is known whether there are rules; once, and a few seconds at most.

        Where that cannot be read, what was known last counts.
        """
        with self._changed:
            if not self._has_waited:
                self._changed.wait_for(self._has_looked, _DECIDED_WITHIN_S)
            self._has_waited = True
            if self.has_rules is None and self._had_no_rules():
                self.has_rules = False

    def ask(self, line: bytes, decide: Callable[[bytes | None], None]) -> None:
        """Let a line of the agent wait until it was weighed, a few seconds at most.

        `decide` takes what it is answered with; None: it may pass.
        """
        if self.has_rules is None:
            decide(refused(line, NOT_READ))
            return
        with self._changed:
            number = self.tell(FrameKind.WAITING, [line])
            self._waiting[number] = line
            deciding = Thread(target=self._decide, args=[number, self._ends, decide], daemon=True)
            self._deciding.add(deciding)
        deciding.start()

    def _decide(self, number: int, ends: int, decide: Callable[[bytes | None], None]) -> None:
        """Decide on a line that waits; by what was known last where the process is late or ends."""
        with self._changed:
            self._changed.wait_for(
                lambda: number in self._weighed or self._ends != ends, _DECIDED_WITHIN_S
            )
            line, weighed = self._waiting.pop(number), self._weighed.pop(number, None)
            if weighed is None:
                self._put(WireFrame(FrameKind.STOPPED, number, time.time()))
        answer = weighed.content if weighed else None if self.is_free else refused(line, NOT_READ)
        if weighed is None and answer is None:
            self.tell(FrameKind.ASKED, [line])
        with suppress(OSError):  # the server or the agent is gone
            decide(answer)
        self._deciding.discard(current_thread())

    def settle(self) -> None:
        """Wait until no line of the agent waits."""
        for one in [*self._deciding]:
            one.join()

    def end(self) -> UnloggedCalls | None:
        """Let it log the rest, for a few seconds at most; return what is not logged by then."""
        last = time.monotonic() + _MOST_LAST_S
        with self._changed:
            self._is_ending = True
            self._put(WireFrame(FrameKind.END))
            self._changed.wait_for(lambda: self._has_looked() or self._is_dead, _DECIDED_WITHIN_S)
            left = -1
            while not self._is_dead and time.monotonic() < last:
                before, left = left, self._left()
                if left in (0, before):
                    break
                self._changed.wait_for(lambda: not self._left() or self._is_dead, _LAST_S)
            queued = map(_calls, self._queue)
            lost = UnloggedCalls.joined([self._gap, *self._open.values(), *queued])
            process = self._process
        if process is not None and lost is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LAST_S)
        elif self._is_dead and lost is not None:
            self._leave_note(lost)
        return lost

    def _left(self) -> int:
        """Count what is not logged yet."""
        return len(self._open) + len(self._queue) + (self._gap is not None)

    def _leave_note(self, lost: UnloggedCalls) -> None:
        """Leave the gap in the home, for the next start; it may be full or gone."""
        if self._note is not None:
            path = self._note.with_name(f"{self._note.name}.{os.getpid()}-{time.time_ns()}.gap")
            with suppress(OSError):
                path.write_text(json.dumps(lost), encoding="utf-8")

    def _put(self, frame: WireFrame) -> None:
        self._queue.append(frame)
        self._changed.notify_all()

    def _lose(self, *lost: UnloggedCalls | None) -> None:
        self._gap = UnloggedCalls.joined([self._gap, *lost])

    def _feed(self) -> None:
        """Send what is queued; start the process again where it has ended."""
        pause = _PAUSES_S[0]
        while True:
            begun = time.monotonic()
            try:
                with self._begin() as connection, connection.makefile("wb") as file:
                    send(file, WireFrame(FrameKind.START, content=(self._start, self.state)))
                    while True:
                        send(file, self._next(connection))
            except OSError:
                self._ended()
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
                return WireFrame(FrameKind.GAP, self._number, lost.until, lost)
            frame = self._queue[0]
        calls = _calls(frame)  # reads its parts: not while others wait for the lock
        with self._changed:
            self._queue.popleft()
            self._queued_bytes -= sum(map(len, frame.content or ()))
            if calls is not None:
                self._open[frame.number] = calls
        return frame

    def _begin(self) -> socket.socket:
        """Start the process. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", "memtui.channels.wrap.log_process"]
            # A separate session, since it logs a call that a signal to the whole group ended.
            process = subprocess.Popen(  # noqa: S603 - this Python
                [*command, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        with self._changed:
            self._connection, self._process = ours, process
        self._is_begun.wait()
        self._hearing = Thread(target=self._hear, args=[ours], daemon=True)
        self._hearing.start()
        return ours

    def _ended(self) -> None:
        """Take note that the process has ended: what it had not logged is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._hearing is not None:
            self._hearing.join()  # it may have said last that something is logged
        with self._changed:
            self._lose(*self._open.values())
            self._open.clear()
            self._connection = self._process = self._hearing = None
            self._ends += 1
            self._changed.notify_all()

    def _hear(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as file:
            for frame in frames(file):
                with self._changed:
                    self._take(frame)
                    self._changed.notify_all()
                if frame.kind == FrameKind.STATE and frame.content.refusal:
                    self.refused()
        with self._changed:
            if self._connection is connection:
                self._connection = None
            self._changed.notify_all()
        with suppress(OSError):  # so that a send that waits fails
            connection.shutdown(socket.SHUT_RDWR)

    def _take(self, frame: WireFrame) -> None:
        if frame.kind == FrameKind.STATE:
            self.state = frame.content
            if self.state.has_rules is not None:
                self.has_rules = self.state.has_rules
        elif frame.kind == FrameKind.LOGGED:
            self._open.pop(frame.number, None)
        elif frame.kind == FrameKind.WEIGHED and frame.number in self._waiting:
            self._weighed[frame.number], line = frame, self._waiting[frame.number]
            passed = WireFrame(FrameKind.ASKED, frame.number, time.time(), [line])
            if frame.content is None and (calls := _calls(passed)):
                self._open[frame.number] = calls

    def _had_no_rules(self) -> bool:
        try:
            return self._note is None or self._note.read_text(encoding="utf-8") == NO_RULES
        except (OSError, UnicodeDecodeError):
            return False


def _calls(frame: WireFrame) -> UnloggedCalls | None:
    """Return the calls of tools in a line that passed; None: there are none."""
    if frame.kind != FrameKind.ASKED:
        return None
    line = b"".join(frame.content)
    count, at = 0, line.find(_METHOD)
    while at >= 0:  # much faster than to search a long line for the pattern
        count += _CALL.match(line, at) is not None
        at = line.find(_METHOD, at + 1)
    return UnloggedCalls(count, frame.at, frame.at) if count else None
