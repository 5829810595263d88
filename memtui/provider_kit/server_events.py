"""A reader of server-sent events (html.spec.whatwg.org, "Server-sent events")."""

import sys
from collections.abc import Iterator
from typing import NamedTuple

_MOST_RETRY_S = 60.0


class ServerEvent(NamedTuple):
    """One event of a stream, or a piece of a long one."""

    data: bytes
    event_id: str | None
    retry_s: float | None
    is_whole: bool = True
    """Whether the event ends here; else the next one has more of its data."""


class EventReader:
    """Reads a stream chunk by chunk; of data of more than `most_bytes` it yields pieces."""

    def __init__(self, most_bytes: int = sys.maxsize) -> None:
        self._most_bytes = most_bytes
        self._line = bytearray()
        """The line that has not ended yet."""
        self._had_return = False
        """Whether the last chunk ended in a carriage return: a line feed may follow."""
        self._data: list[bytes] = []
        self._size = 0
        self._event_id: str | None = None
        self._retry_s: float | None = None

    def add(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Take the next chunk and yield what ends in it."""
        rest = chunk.removeprefix(b"\n") if self._had_return else chunk
        self._had_return = chunk.endswith(b"\r")
        *lines, last = rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            self._line += line
            if self._line:
                self._field()
            elif self._data or self._event_id is not None or self._retry_s is not None:
                yield self._event()
            if self._size > self._most_bytes:
                yield self._event()._replace(is_whole=False)
                self._data = [b""]  # another line of data may follow
        self._line += last
        if len(self._line) > self._most_bytes:
            if self._line.startswith(b"data:"):
                self._field()
                yield self._event()._replace(is_whole=False)
                self._line += b"data: "
            else:
                self._line[:] = b":"  # a comment: nothing else may be so long

    def _field(self) -> None:
        """Take the line as a field of the event."""
        name, _, value = bytes(self._line).partition(b":")
        value = value.removeprefix(b" ")
        self._line.clear()
        if name == b"data":
            self._data.append(value)
            self._size += len(value)
        elif name == b"id" and b"\0" not in value:
            self._event_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self._retry_s = min(int(value[:9]) / 1_000, _MOST_RETRY_S)

    def _event(self) -> ServerEvent:
        """Return the event so far, and begin the next one."""
        found = ServerEvent(b"\n".join(self._data), self._event_id, self._retry_s)
        self._data, self._size, self._event_id, self._retry_s = [], 0, None, None
        return found
