"""The messages between the process that passes bytes on and the process that logs them."""

import pickle
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from typing import IO, Any, NamedTuple


class FrameKind(Enum):
    """What a message says."""

    START, END = "start", "end"
    """What the process needs to begin, with the last `LogState`; nothing more will come."""
    ASKED, ANSWERED = "asked", "answered"
    """The parts of a line of the agent, and of the server; both have passed."""
    WAITING, WEIGHED = "waiting", "weighed"
    """The parts of an agent's line that waits for the rules; the bytes that answer it instead, or
    None: it may pass."""
    STOPPED = "stopped"
    """The agent's line of this number, which waited, did not pass."""
    GAP, LOGGED = "gap", "logged"
    """`UnloggedCalls`; the agent's line or the gap of this number is in the log, or needs none."""
    STATE = "state"
    """A `LogState`."""


class WireFrame(NamedTuple):
    """One message."""

    kind: FrameKind
    number: int = 0
    at: float = 0.0
    """Seconds since 1970."""
    content: Any = None


class LogState(NamedTuple):
    """What the passing process has to know of the log."""

    has_rules: bool | None = None
    """Whether the binding has rules of review; None: that was not read yet."""
    trouble: str = ""
    """Why nothing can be logged now, as a sentence; empty: it can."""
    refusal: str = ""
    """Why nothing may be wrapped here, as a sentence; empty: it may."""
    reads: frozenset[str] = frozenset()
    """The tools that only read, by the mapping or by the server's word."""
    known: dict[str, Any] = {}
    """What the next process has to know, if this one ends early."""


def send(file: IO[bytes], frame: WireFrame) -> None:
    """Send a frame. Raises `OSError`."""
    pickle.dump(frame, file)
    file.flush()


def frames(file: IO[bytes]) -> Iterator[WireFrame]:
    """Yield the frames that come, until the other end closes or dies."""
    with suppress(EOFError, OSError, pickle.UnpicklingError):
        while True:
            yield pickle.load(file)  # noqa: S301 - of this process's own parent or child
