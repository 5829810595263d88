"""Notices changes that are made to a binding's records outside of memtui."""

from __future__ import annotations

from collections.abc import Callable

from memtui.contract import MemtuiError, Unsupported
from memtui.screens.base import MemtuiScreen
from memtui.widgets.background import Background


class Watch:
    """Follows one binding at a time and calls `changed` for each batch of changes."""

    def __init__(self, screen: MemtuiScreen, changed: Callable[[], None]) -> None:
        self._screen = screen
        self._changed = changed
        self._watching = Background(screen, "records-watch")
        self._key: str | None = None

    def follow(self, binding_key: str) -> None:
        """Watch a binding, unless it is the one that is watched already."""
        if binding_key != self._key or not self._watching.busy:
            self._key = binding_key
            self._watching.latest(lambda: self._wait(binding_key), self._ended, self._failed)

    async def _wait(self, binding_key: str) -> None:
        session = self._screen.session
        async for _ in session.service.watch(session.caller, binding_key):
            self._changed()

    def _ended(self, _: None) -> None:
        self._key = None

    def _failed(self, error: MemtuiError) -> None:
        if not isinstance(error, Unsupported):
            self._screen.fail(error)
