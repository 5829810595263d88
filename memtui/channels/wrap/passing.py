"""Passes what an agent and its MCP server say to each other, and gives the log copies of it.

What comes is passed on first, as bytes, and then cut into lines for the log. Only where the binding
has rules of review, a line of the agent that may write waits for them.
"""

import os
import posix
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BytesIO
from threading import RLock, Thread
from typing import TypeAlias

from memtui.channels.helper.words import command_words
from memtui.channels.wrap.frames import FrameKind
from memtui.channels.wrap.lines import is_harmless, refused
from memtui.channels.wrap.log_client import MOST_LINE_BYTES, LogClient

CHUNK = 1 << 16
ORIGINAL = b"WRAPPED_BY_MEMTUI"
"""The variable in a client's entry with the entry as it was; the server does not get it."""
_LAST_OUTPUT_S = 2.0
"""How long the output of a server that has ended is waited for: a grandchild may hold it open."""
Write: TypeAlias = Callable[[bytes], None]
SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGHUP


class Outlet:
    """One direction: bytes as they come, and between two lines of these lines of memtui's own."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._is_within_line = False
        self._own: list[bytes] = []
        self._writing = RLock()

    def pass_on(self, data: bytes) -> None:
        """Write bytes of the other side."""
        if data:
            with self._writing:
                self._write(data)
                self._is_within_line = not data.endswith(b"\n")
                self._put_own()

    def put(self, lines: bytes) -> None:
        """Write whole lines, once no line of the other side is under way."""
        with self._writing:
            self._own.append(lines)
            self._put_own()

    def _put_own(self) -> None:
        while self._own and not self._is_within_line:
            self._write(self._own.pop(0))


class Line:
    """The line that has not ended yet, in parts; of a long one only the beginning."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.parts: list[bytes] = []
        self._size = 0
        self.is_cut = False

    def add(self, part: bytes) -> None:
        """Take its next part, up to a line end."""
        if self._size <= MOST_LINE_BYTES:
            self.parts.append(part)
            self._size += len(part)
        else:
            self.is_cut = True

    def taken(self) -> list[bytes]:
        """Return its parts, and begin the next line."""
        parts = self.parts
        self._clear()
        return parts


class Passing:
    """The two directions between an agent and a server."""

    def __init__(self, to_server: Write, to_agent: Write, log: LogClient) -> None:
        """Take what writes to both."""
        self._to_server, self._to_agent, self._log = Outlet(to_server), Outlet(to_agent), log
        self._asked, self._answered = Line(), Line()
        self._has_begun = False
        """Whether the beginning of the agent's line has passed."""

    def from_agent(self, chunk: bytes) -> None:
        """Take what the agent wrote."""
        if self._log.has_rules is None and not is_harmless(chunk, frozenset()):
            self._log.wait_until_known()
        for part in BytesIO(chunk):
            self._part(part)

    def _part(self, part: bytes) -> None:
        line, is_free = self._asked, self._log.is_free
        if self._has_begun and not is_free and part.strip():
            # There are rules since: what has passed ends here, and the whole line is weighed.
            self._pass([*line.parts, b"\n"], b"\n")
            self._has_begun = False
        line.add(part)
        is_whole = part.endswith(b"\n")
        if self._has_begun or (is_free and not line.is_cut):
            data = part if self._has_begun else b"".join(line.parts)
            self._has_begun = not is_whole
            if is_whole:
                self._pass(line.taken(), data)
            else:
                self._to_server.pass_on(data)
        elif is_whole:
            self._gate()

    def from_server(self, chunk: bytes) -> None:
        """Take what the server wrote."""
        self._to_agent.pass_on(chunk)
        for part in BytesIO(chunk):
            self._answered.add(part)
            if part.endswith(b"\n"):
                self._log.tell(FrameKind.ANSWERED, self._answered.taken())

    def agent_ended(self) -> None:
        """Take the agent's last line, and wait until none waits for the rules."""
        if self._has_begun:
            self._log.tell(FrameKind.ASKED, self._asked.taken())
        elif self._asked.parts:
            with suppress(OSError):  # the server or the agent is gone
                self._gate()
        self._log.settle()

    def server_ended(self) -> None:
        """Take the server's last line."""
        if line := self._answered.taken():
            self._log.tell(FrameKind.ANSWERED, line)

    def _pass(self, line: list[bytes], data: bytes) -> None:
        self._log.tell(FrameKind.ASKED, line)  # first: its answer may come at once
        self._to_server.pass_on(data)

    def _gate(self) -> None:
        """Pass a line that changes nothing, or where there are no rules; let another wait."""
        is_cut, line = self._asked.is_cut, b"".join(self._asked.taken())

        def decide(answer: bytes | None) -> None:
            outlet = self._to_server if answer is None else self._to_agent
            outlet.put(line if answer is None else answer)

        if is_cut:
            self._to_agent.put(_TOO_LONG)
        elif self._log.is_free or is_harmless(line, self._log.state.reads):
            self._pass([line], line)
        else:
            self._log.ask(line, decide)


_TOO_LONG = refused(b"", f"memtui weighs lines of {MOST_LINE_BYTES:,} bytes at most; send less.")


def pump(source: int, take: Write) -> None:
    """Take what can be read, until it ends or cannot be passed on."""
    with suppress(OSError, ValueError):  # the other side is gone
        while chunk := os.read(source, CHUNK):
            take(chunk)


def write_to(target: int) -> Write:
    """Return what writes bytes to a descriptor, all of them."""

    def write(data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(target, left) :]

    return write


class WrappedProcess:
    """A server that is a child of this process."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it, and pass on what comes.

        Raises:
            OSError: it cannot be started.
        """
        given = {name: value for name, value in posix.environ.items() if name != ORIGINAL}
        # A process group of its own: it gets each signal once, those of a terminal too.
        server = subprocess.Popen(  # noqa: S603 - the command line that the person gave
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=given,
            process_group=0, bufsize=0,
        )  # fmt: skip
        assert server.stdin is not None and server.stdout is not None  # noqa: S101, PT018 - pipes
        self._server, stdin, stdout = server, server.stdin, server.stdout
        for one in SIGNALS:
            signal.signal(one, lambda number, _: server.send_signal(number))
        self.log = LogClient()
        self.log.refused = server.terminate
        self.pid = server.pid
        self._passing = passing = Passing(write_to(stdin.fileno()), write_to(1), self.log)

        def from_agent() -> None:
            pump(0, passing.from_agent)
            passing.agent_ended()
            stdin.close()

        def from_server() -> None:
            pump(stdout.fileno(), passing.from_server)
            stdout.close()  # so that the server learns where its reader is gone

        Thread(target=from_agent, name="memtui-wrap-agent", daemon=True).start()
        self._output = Thread(target=from_server, name="memtui-wrap-server", daemon=True)
        self._output.start()

    def wait(self) -> int:
        """Return its exit code once it has ended: 128 and a signal's number if that killed it."""
        code = self._server.wait()
        self._output.join(_LAST_OUTPUT_S)
        self._passing.server_ended()
        return 128 - code if code < 0 else code


_early: list[WrappedProcess] = []


def open_early(arguments: Sequence[str]) -> None:
    """Start the server that a command line wraps, before the rest of memtui is imported.

    Some clients go on without a server that takes half a second.
    """
    _, words = command_words(arguments)
    if words[:2] == ["mcp", "wrap"] and "--" in words:
        options, command = words[2 : words.index("--")], words[words.index("--") + 1 :]
        if command and len(options) > 0 and "--help" not in options:
            with suppress(OSError, ValueError):  # the command reports it
                _early.append(WrappedProcess(command))


def wrapped_process(command: Sequence[str]) -> WrappedProcess:
    """Return the server of a command line, started early or now.

    Raises:
        Invalid: it cannot be started.
    """
    if _early:
        return _early[0]
    try:
        return WrappedProcess(command)
    except (OSError, ValueError) as error:
        from memtui.contract import Invalid

        why = getattr(error, "strerror", None) or str(error)
        raise Invalid(f"{command[0]} cannot be started: {why}.") from error
