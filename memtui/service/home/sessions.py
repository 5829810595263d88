"""The processes that use a home, and the agents that are connected to them.

A process locks a file while it lives; the system releases the lock however it dies. Beside the lock
it announces its connected agents.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from memtui.contract import Json
from memtui.paths import replacing

if TYPE_CHECKING:
    from filelock import FileLock

_SILENT_S = 3_600
"""A client without a request for so many seconds has left: an HTTP session ends sooner. Only a
process with several clients needs this."""


class Sessions:
    """The sessions of a home's processes, files in one of its folders. Every method blocks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own: FileLock | None = None
        self._name = ""
        self._taking = threading.Lock()

    @property
    def place(self) -> str:
        """The machine and folder of these locks; locks of another place cannot be tested."""
        return f"{socket.gethostname()}:{self._folder}"

    def own(self) -> str:
        """Return this process's session, taking its lock at the first call."""
        from filelock import FileLock

        with self._taking:
            if self._own is None:
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._name = uuid.uuid4().hex
                lock = FileLock(self._path(self._name), thread_local=False, mode=0o600)
                lock.acquire(timeout=0)
                self._own = lock
            return self._name

    def is_dead(self, name: str) -> bool:
        """Tell whether the process of a session is gone; its files then go too."""
        if name == self._name:
            return False
        path = self._path(name)
        if not path.exists():
            return True
        from filelock import FileLock, Timeout

        lock = FileLock(path, thread_local=False, mode=0o600)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return False
        lock.release()
        self._remove(name)
        return True

    def announce(self, one: str, about: Json) -> None:
        """Announce that a client is connected to this process; repeat it to keep it alive."""
        path = self._announcement(self.own(), one)
        if path.exists():
            os.utime(path)
        else:
            self._forget_silent()
            with replacing(path) as fresh:
                fresh.write_text(json.dumps(about), encoding="utf-8")

    def _forget_silent(self) -> None:
        """Remove this process's announcements of clients that left without withdrawing."""
        oldest = time.time() - _SILENT_S
        for path in self._folder.glob(f"{self._name}.*.json"):
            with suppress(FileNotFoundError):  # it was withdrawn just now
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def withdraw(self, one: str) -> None:
        """Withdraw the announcement of a client."""
        if self._own is not None:
            self._announcement(self._name, one).unlink(missing_ok=True)

    def announced(self) -> Iterator[tuple[bytes, datetime]]:
        """Yield the announcements of living processes, and when each was last repeated.

        An announcement is the JSON that the process wrote, unchecked.
        """
        dead: dict[str, bool] = {}
        for path in sorted(self._folder.glob("*.json")):
            process = path.name.partition(".")[0]
            if process not in dead:
                dead[process] = self.is_dead(process)
            if dead[process]:
                path.unlink(missing_ok=True)
                continue
            try:
                about = path.read_bytes()
                seen = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            except FileNotFoundError:  # it was withdrawn just now
                continue
            yield about, seen

    def close(self) -> None:
        """Release the lock, and remove this process's files."""
        if self._own is not None:
            self._own.release()
            self._remove(self._name)
            self._own = None

    def _remove(self, name: str) -> None:
        for path in self._folder.glob(f"{name}.*.json"):
            path.unlink(missing_ok=True)
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"

    def _announcement(self, name: str, one: str) -> Path:
        return self._folder / f"{name}.{one}.json"
