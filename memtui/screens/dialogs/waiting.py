"""What lies over a screen while a question to the person is still being read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Static

from memtui.contract import MemtuiError
from memtui.widgets.background import Background, Work
from memtui.widgets.display import DIM, display

T = TypeVar("T")

_SHOWN_AFTER_SECONDS = 0.3


class Waiting(ModalScreen[None], Generic[T]):
    """Reads something and goes on with it in `then`, which opens the dialog, if any.

    It takes the keys meanwhile, so that none falls through to the screen below, and gives them to
    whatever is there once it has been read; `esc` stops it and drops them. Where it fails, `failed`
    is called and they are dropped too, as they always are without `gives_keys`. It shows itself
    only where the reading takes long.
    """

    BINDINGS = [("escape", "stop", "stop")]

    def __init__(
        self,
        words: str,
        work: Work[T],
        then: Callable[[T], None],
        failed: Callable[[MemtuiError], None],
        *,
        gives_keys: bool = True,
    ) -> None:
        super().__init__()
        self._words = words
        self._work = work
        self._then = then
        self._failed = failed
        self._keys: list[Key] = []
        self._gives_keys = gives_keys
        self._reading = Background(self, "waiting")

    def compose(self) -> ComposeResult:
        """Lay out what is waited for."""
        with Vertical(classes="dialog"):
            yield Static(display(f"… {self._words}", limit=400))
            yield Static(display("esc stops it", style=DIM), classes="dialog-keys")

    def on_mount(self) -> None:
        """Begin to read."""
        self.set_timer(_SHOWN_AFTER_SECONDS, lambda: self.add_class("-shown"))
        self._reading.latest(self._work, self._read, self._broken)

    def on_key(self, event: Key) -> None:
        """Keep a key for what comes."""
        event.stop()
        self._keys.append(event)

    def _read(self, found: T) -> None:
        self.dismiss(None)
        self._then(found)
        if self._gives_keys:  # after what `then` goes on with, which may open a dialog for them
            asyncio.get_running_loop().call_soon(self._give_keys, self.app)

    def _give_keys(self, app: App[Any]) -> None:
        for key in self._keys:
            app.post_message(key.copy())

    def _broken(self, error: MemtuiError) -> None:
        self.dismiss(None)
        self._failed(error)

    def action_stop(self) -> None:
        """Stop reading."""
        self.dismiss(None)
