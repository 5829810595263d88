"""How the app draws into a tab of a browser: Textual's driver, which leaves as `q` does."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from threading import Timer
from typing import Any

from textual.drivers.web_driver import WebDriver

LEAVE_SECONDS = 15.0
"""How long an app may take to leave once its tab or its server is gone."""


class TabDriver(WebDriver):
    """Leaves the app, which then remembers where it was, once its tab or its server is gone."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._write = partial(self._write_or_leave, self._write)
        self._left = False

    def _write_or_leave(self, write: Callable[[bytes], int], data: bytes) -> int:
        """Write; what is drawn when the server has just gone goes nowhere."""
        try:
            return write(data)
        except BrokenPipeError:
            self._leave()
            return 0

    def run_input_thread(self) -> None:
        """Read what is typed until the server's end of the pipe is closed."""
        super().run_input_thread()
        if not self.exit_event.is_set():
            self._leave()

    def on_meta(self, packet_type: str, payload: dict[str, Any]) -> None:
        """Leave where the server asks for it."""
        if packet_type == "quit":
            self._leave()
        else:
            super().on_meta(packet_type, payload)

    def _leave(self) -> None:
        if not self._left:
            self._left = True
            self._app.call_later(self._app.run_action, "quit")
            # An app that is busy does not get to that, and nobody is left to end it.
            ending = Timer(LEAVE_SECONDS, os._exit, (1,))
            ending.daemon = True
            ending.start()
