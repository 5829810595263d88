"""The log file: unexpected errors and degraded providers, never the terminal."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path

_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Send warnings and errors of every module to `path` (mode 0600, rotated at 1 MB).

    A log that cannot be written is no reason to refuse a command; warnings are dropped then.
    """
    handler = _handler(path) or logging.NullHandler()
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def log_failure(path: Path, error: Exception) -> bool:
    """Write an unexpected error with its traceback to `path`; return whether that was possible."""
    handler = _handler(path)
    if handler is None:
        return False
    with_traceback = (type(error), error, error.__traceback__)
    handler.handle(
        logging.LogRecord(
            "memtui", logging.ERROR, __file__, 0, "unexpected error", (), with_traceback
        )
    )
    handler.close()
    return True


def _handler(path: Path) -> RotatingFileHandler | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        handler = RotatingFileHandler(
            path, maxBytes=1_000_000, backupCount=2, encoding="utf-8", errors="backslashreplace"
        )
    except OSError:
        return None
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter(_LINE))
    return handler
