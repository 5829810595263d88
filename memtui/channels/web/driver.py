"""Textual's web driver for the app in a browser tab; it quits the app as `q` does."""

import os
from collections.abc import Callable
from functools import partial
from threading import Timer
from typing import Any

from textual.drivers.web_driver import WebDriver

LEAVE_SECONDS = 15.0
"""Seconds that an app may take to quit after its tab or its server is gone."""


class TabDriver(WebDriver):
    """Quits the app once its tab or its server is gone, so that it saves its session."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._write = partial(self._write_or_leave, self._write)
        self._left = False

    def _write_or_leave(self, write: Callable[[bytes], int], data: bytes) -> int:
        """Write; if the server is gone, drop the output and quit."""
        try:
            return write(data)
        except BrokenPipeError:
            self._leave()
            return 0

    def run_input_thread(self) -> None:
        """Read input until the server closes its end of the pipe."""
        super().run_input_thread()
        if not self.exit_event.is_set():
            self._leave()

    def on_meta(self, packet_type: str, payload: dict[str, Any]) -> None:
        """Quit if the server requests it."""
        if packet_type == "quit":
            self._leave()
        else:
            super().on_meta(packet_type, payload)

    def _leave(self) -> None:
        if not self._left:
            self._left = True
            self._app.call_later(self._app.run_action, "quit")
            # A busy app may never run the action, and no other process would end it.
            ending = Timer(LEAVE_SECONDS, os._exit, (1,))
            ending.daemon = True
            ending.start()
