"""The effect of ctrl+c: before a command begins it ends the process, then it raises."""

import os
import signal
from types import FrameType

INTERRUPTED = 130
"""Exit code after an interrupt."""

_DEFAULTS = signal.default_int_handler, signal.SIG_IGN, signal.SIG_DFL


def end_at_once() -> None:
    """Let an interrupt end the process at once.

    While modules are imported nothing has begun, and an import that an exception interrupts fails
    with another error, or aborts in C++. A handler that was set before stays.
    """
    if signal.getsignal(signal.SIGINT) in _DEFAULTS:
        signal.signal(signal.SIGINT, _end)


def raise_interrupts() -> None:
    """Let an interrupt raise `KeyboardInterrupt` again, so that a command can clean up."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
