"""What the process that passes bytes on and the process that logs them tell each other.

Both ends of a socket send frames: a kind, a number, a moment, and bytes.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

ASKED, ANSWERED = b">", b"<"
"""A line of the agent, and a line of the server; both have passed."""
WAITING = b"?"
"""A line of the agent that waits for the rules to let it pass."""
STOPPED = b"!"
"""The agent's line of this number, which waited, did not pass."""
GAP = b"G"
"""JSON of a `Unlogged` between the two."""
START, END = b"S", b"E"
"""JSON of what the logging process needs to begin; nothing more will come."""
LOGGED = b"L"
"""The agent's line or the gap of this number is in the log, or needs none."""
PASS, ANSWER = b"P", b"A"
"""The line that waits may pass, or is answered with these bytes instead."""
STATE = b"T"
"""JSON of what the passing process has to know."""

_HEADER = struct.Struct("!cQdQ")
_CHUNK = 1 << 20


class WireFrame(NamedTuple):
    """One message."""

    kind: bytes
    number: int = 0
    at: float = 0.0
    """Seconds since 1970."""
    content: bytes = b""

    @property
    def document(self) -> Any:
        """Its content, which is JSON."""
        return json.loads(self.content)


class Unlogged(NamedTuple):
    """Calls that passed and are not logged."""

    calls: int
    since: float
    until: float
    """When the first and the last of them passed, in seconds since 1970."""

    def and_(self, other: Unlogged | None) -> Unlogged:
        """Return the gap that both are."""
        if other is None:
            return self
        return Unlogged(
            self.calls + other.calls, min(self.since, other.since), max(self.until, other.until)
        )


def send(connection: socket.socket, frame: WireFrame) -> None:
    """Send a frame. Raises `OSError`."""
    connection.sendall(_HEADER.pack(frame.kind, frame.number, frame.at, len(frame.content)))
    connection.sendall(frame.content)


def frames(connection: socket.socket) -> Iterator[WireFrame]:
    """Yield the frames that come, until the other end closes or dies."""
    while header := _exactly(connection, _HEADER.size):
        kind, number, at, size = _HEADER.unpack(header)
        content = _exactly(connection, size)
        if len(content) < size:
            return
        yield WireFrame(kind, number, at, content)


def _exactly(connection: socket.socket, size: int) -> bytes:
    """Return so many bytes, or none where the other end is gone."""
    parts = []
    while size:
        try:
            part = connection.recv(min(size, _CHUNK))
        except OSError:
            part = b""
        if not part:
            return b""
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
