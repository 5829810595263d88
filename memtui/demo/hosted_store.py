"""What the demo's stand-in for a hosted provider remembers: one JSON file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from memtui.contract import Model, Record, Unavailable, UtcDatetime

T = TypeVar("T")

_LOCK_SECONDS = 10


class Held(Model):
    """A record, and from when on it is no longer returned (None: it stays)."""

    record: Record
    gone_at: UtcDatetime | None = None


class Contents(Model):
    """The whole file: how many changes there were, and the records that are kept."""

    stored: int = 0
    held: tuple[Held, ...] = ()


class HostedStore:
    """Reads the file when it changed, and replaces it whole under a lock.

    Several processes may use one file. Blocking; called from a worker thread, one at a time.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "records.json"
        self._seen: tuple[int, int, int] | None = None
        self._contents = Contents()

    def read(self) -> Contents:
        """Return what is stored.

        Raises:
            Unavailable: the file cannot be read.
        """
        try:
            state = self._path.stat()
            seen = (state.st_ino, state.st_mtime_ns, state.st_size)
            if seen != self._seen:
                self._contents = Contents.model_validate_json(self._path.read_bytes())
                self._seen = seen
        except FileNotFoundError:
            self._seen, self._contents = None, Contents()
        except OSError as error:
            raise Unavailable(f"Cannot read {self._path}: {error.strerror}.") from error
        except ValidationError as error:
            raise Unavailable(
                f"{self._path} is not what the demo wrote; memtui demo --reset makes it anew."
            ) from error
        return self._contents

    def change(self, edit: Callable[[Contents], tuple[Contents, T]]) -> T:
        """Replace the contents by what `edit` makes of them, and return its second answer.

        Raises:
            Unavailable: the file cannot be written, or another process holds it too long.
        """
        from filelock import FileLock, Timeout

        try:
            lock = self._path.with_suffix(".lock")
            with FileLock(lock, timeout=_LOCK_SECONDS, mode=0o600):
                contents, answer = edit(self.read())
                if contents is not self._contents:
                    self._replace(contents)
                return answer
        except Timeout as error:
            raise Unavailable(f"Another process keeps {self._path} locked; try again.") from error
        except OSError as error:
            raise Unavailable(f"Cannot write {self._path}: {error.strerror}.") from error

    def _replace(self, contents: Contents) -> None:
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=".records-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(contents.model_dump_json(exclude_defaults=True))
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
