"""The log file: unexpected errors and providers that failed, for its owner alone."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any


class LogFile(RotatingFileHandler):
    """A log that is rotated at 1 MB. No work ends where it cannot be written."""

    def __init__(
        self, path: Path, failed: Callable[[str], object], redacted: Callable[[str], str]
    ) -> None:
        """Take the file, which is made with the first line; `failed` is told why there is none.

        `redacted` takes the secrets out of what a line, or the traceback below it, says.
        """
        super().__init__(
            path,
            maxBytes=1_000_000,
            backupCount=2,
            encoding="utf-8",
            delay=True,
            errors="backslashreplace",
        )
        self._failed, self._redacted = failed, redacted
        self.is_whole = True
        """Whether each line so far is in it."""
        self.setLevel(logging.WARNING)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def format(self, record: logging.LogRecord) -> str:
        """Return what the file is to say of it: what others raised may hold their secrets."""
        return self._redacted(super().format(record))

    def _open(self) -> Any:
        def private(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        return open(
            self.baseFilename, self.mode, encoding="utf-8", errors=self.errors, opener=private
        )

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Tell the first time that a line could not be written, and what it says."""
        if not self.is_whole:
            return
        self.is_whole = False
        error = sys.exception()
        if isinstance(error, OSError):
            why = f"cannot be written ({error.strerror})"
            said = self._redacted(record.getMessage())
        else:  # what was to be logged does not fit its own words
            why, said = f"does not take a line ({type(error).__name__})", str(record.msg)
        self._failed(f"{self.baseFilename} {why}, so this is in no log: {said}")

    def close(self) -> None:
        """Close it; what the disk did not take is lost."""
        with suppress(OSError):
            super().close()
