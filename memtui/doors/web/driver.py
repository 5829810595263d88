"""How the app draws into a tab of a browser: Textual's driver, which leaves as `q` does."""

from __future__ import annotations

from typing import Any

from textual.drivers.web_driver import WebDriver


class TabDriver(WebDriver):
    """Leaves the app, which then remembers where it was, once its tab or its server is gone."""

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
        self._app.call_later(self._app.run_action, "quit")
