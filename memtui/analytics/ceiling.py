"""A ceiling on this process's memory while a statement that nobody knows runs.

DuckDB counts what it keeps, not the texts and lists of a single step of an expression, and a step
cannot be cancelled. The ceiling makes such a step fail instead of the machine.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STATUS = Path("/proc/self/status")
_lock = threading.Lock()
_running = 0
_before = 0


@contextmanager
def memory_ceiling(extra_mb: int) -> Iterator[None]:
    """Let the process take so much more than it has, for as long as the block.

    It holds for all threads, so `extra_mb` has to leave room for theirs. Of blocks at the same
    time the first one's stands. Does nothing where the system has no such limit or no `/proc`.
    """
    if not _STATUS.exists():
        yield
        return
    _raise(extra_mb)
    try:
        yield
    finally:
        _lift()


def _raise(extra_mb: int) -> None:
    import resource

    global _running, _before  # noqa: PLW0603 — a process has one limit
    with _lock:
        _running += 1
        if _running > 1:
            return
        _before, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = _held_bytes() + extra_mb * 2**20
        others = [limit for limit in (_before, hard) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min([wanted, *others]), hard))


def _lift() -> None:
    import resource

    global _running  # noqa: PLW0603
    with _lock:
        _running -= 1
        if _running == 0:
            hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
            resource.setrlimit(resource.RLIMIT_DATA, (_before, hard))


def _held_bytes() -> int:
    lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))
