"""The log file: unexpected errors and failed providers; only its owner can read it."""

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any


class LogFile(RotatingFileHandler):
    """A log rotated at 1 MB. A log that cannot be written never stops the work."""

    def __init__(
        self, path: Path, failed: Callable[[str], object], redacted: Callable[[str], str]
    ) -> None:
        """Take the path; the file is made with the first line.

        `failed` gets the message if a line cannot be written. `redacted` removes secrets from a
        line and its traceback.
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
        """Whether every line so far was written."""
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def format(self, record: logging.LogRecord) -> str:
        """Return the line with secrets removed: errors of other programs may contain them."""
        return self._redacted(super().format(record))

    def _open(self) -> Any:
        def private(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        return open(
            self.baseFilename, self.mode, encoding="utf-8", errors=self.errors, opener=private
        )

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Report the first line that could not be written, with its text."""
        if not self.is_whole:
            return
        self.is_whole = False
        error = sys.exception()
        if isinstance(error, OSError):
            why = f"cannot be written ({error.strerror})"
            said = self._redacted(record.getMessage())
        else:  # the arguments do not fit the format string
            why, said = f"does not take a line ({type(error).__name__})", str(record.msg)
        self._failed(f"{self.baseFilename} {why}, so this is in no log: {said}")

    def close(self) -> None:
        """Close the file; lines that the disk did not take are lost."""
        with suppress(OSError):
            super().close()
