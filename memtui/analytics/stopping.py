"""Stopping a question about the log that a newer one took the place of."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memtui.analytics.engine import guarded
from memtui.contract import Unavailable

if TYPE_CHECKING:
    import duckdb


class Interrupted(Unavailable):
    """A newer question took the place of this one."""

    def __init__(self) -> None:
        super().__init__("A newer question took the place of this one.")


class Stop:
    """Stops an opening from another thread, which then raises `Interrupted`."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._cursor: duckdb.DuckDBPyConnection | None = None

    @property
    def stopped(self) -> bool:
        """Whether it was stopped."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Stop it now, or as soon as it begins."""
        self._stopped.set()
        if self._cursor is not None:
            self._cursor.interrupt()

    def check(self) -> None:
        """Raise `Interrupted` if it was stopped."""
        if self.stopped:
            raise Interrupted

    @contextmanager
    def reaching(self, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Let `stop` reach what the cursor does in the block."""
        import duckdb

        self._cursor = cursor
        self.check()
        try:
            with guarded():
                yield
        except Unavailable as error:
            if isinstance(error.__cause__, duckdb.InterruptException):
                raise Interrupted from error
            raise
        finally:
            self._cursor = None
        self.check()
