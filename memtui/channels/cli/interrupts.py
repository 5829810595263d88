"""What ctrl+c does before a command begins, and from then on."""

from __future__ import annotations

import os
import signal
from types import FrameType

INTERRUPTED = 130
"""The exit code of what was interrupted."""


def end_at_once() -> None:
    """Let an interrupt end the process where it is.

    Nothing has begun while modules are still imported, and one that an exception stops half way
    fails with another error, or aborts in C++.
    """
    signal.signal(signal.SIGINT, _end)


def raise_interrupts() -> None:
    """Let an interrupt raise `KeyboardInterrupt` again, so that what has begun can clear up."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
