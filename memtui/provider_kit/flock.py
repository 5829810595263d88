"""Locks of files (`flock`), which memtui's processes and some other programs take."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memtui.contract import Unavailable
from memtui.provider_kit import refused_by_system


@contextmanager
def flock(lock: Path, busy: str, *, seconds: float = 30.0, mode: int = 0o600) -> Iterator[None]:
    """Hold the lock of a file, which is made with `mode` and stays. Blocking.

    Raises:
        Unavailable: others do not release it within `seconds`; `busy` says so.
        Denied: the system refuses.
    """
    import filelock

    try:
        lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        locked = filelock.FileLock(
            lock, timeout=seconds, mode=mode, poll_interval=0.005, preserve_lock_file=True
        ).acquire()
    except filelock.Timeout as error:
        raise Unavailable(busy) from error
    except OSError as error:
        raise refused_by_system(str(error.filename or lock), error) from error
    with locked:
        yield
