"""Which processes of this machine still live, told by the file locks that they hold."""

from __future__ import annotations

import socket
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from filelock import FileLock


class Sessions:
    """A file lock a process, held as long as it lives: the system lets go of it at any death."""

    def __init__(self, folder: Path) -> None:
        from filelock import FileLock

        self._make_lock = FileLock
        self._folder = folder
        self._own: FileLock | None = None
        self._name = ""
        self._taking = threading.Lock()

    @property
    def place(self) -> str:
        """The machine and folder where these locks are; those of another place cannot be tried."""
        return f"{socket.gethostname()}:{self._folder}"

    def own(self) -> str:
        """Return this process's session, taking its lock at the first call."""
        with self._taking:
            if self._own is None:
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._name = uuid.uuid4().hex
                lock = self._make_lock(self._path(self._name), thread_local=False, mode=0o600)
                lock.acquire(timeout=0)
                self._own = lock
            return self._name

    def is_dead(self, name: str) -> bool:
        """Tell whether the process of a session is gone; its lock file then goes too."""
        if name == self._name:
            return False
        path = self._path(name)
        if not path.exists():
            return True
        from filelock import Timeout

        lock = self._make_lock(path, thread_local=False, mode=0o600)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return False
        lock.release()
        path.unlink(missing_ok=True)
        return True

    def close(self) -> None:
        """Let go of the lock and remove its file."""
        if self._own is not None:
            self._own.release()
            self._path(self._name).unlink(missing_ok=True)
            self._own = None

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"
