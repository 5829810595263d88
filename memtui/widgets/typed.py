"""A queue of typed keys: each goes to the app once the one before has had its effect.

Textual sends a key to the focused widget and takes the next one at once. The effect of the first
comes some messages later: it may open a dialog, answer one, or go to another screen. The next key
would reach the old screen, and be lost or act on the wrong one.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from textual.app import App
from textual.events import Callback, Key, Paste
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.widget import Widget

_Place = tuple[Screen[Any], Widget | None]
_PASSES = 2
"""Rounds of waiting after a key: a filter line passes it up, and acts on it only after that."""


@dataclass
class KeysFree(Message):
    """A screen stops holding keys; with `drops`, the keys typed meanwhile are dropped."""

    drops: bool = False


class Typed:
    """The queue of keys and pastes typed into `app`.

    `give` handles each of them, in the app's task. Those for which `stays` is true only write or
    move the cursor, so that several are given without waiting in between. A screen with
    `keeps_keys` gets only keys for which `leaves` is true; keys queued before such a key are
    dropped. While a screen has `holds_keys`, no key is given. Keys pressed before a screen's
    `takes_since` are dropped, except those for which `leaves` is true.
    """

    def __init__(
        self,
        app: App[Any],
        give: Callable[[Key | Paste], Awaitable[None]],
        stays: Callable[[Key | Paste], bool],
        leaves: Callable[[Key | Paste], bool],
    ) -> None:
        self._app = app
        self._give = give
        self._stays = stays
        self._leaves = leaves
        self._waiting: deque[Key | Paste] = deque()
        self._giving: asyncio.Task[None] | None = None
        self.paused = True
        """Whether no key is given for now."""
        self._rested: _Place | None = None
        """Screen and focus when the effect of the last key was complete."""
        self._passes = 0
        """Rounds of waiting that are left."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, event: Key | Paste) -> None:
        """Queue a key or a paste."""
        self._waiting.append(event)
        self.begin()

    def begin(self) -> None:
        """Start giving the queued keys, if possible."""
        if self._giving is None and self._may_give():
            self._giving = asyncio.create_task(self._give_all())

    def drop(self) -> None:
        """Drop the queued keys."""
        self._waiting.clear()

    def end(self) -> None:
        """Stop, as the app ends."""
        self.drop()
        if self._giving is not None:
            self._giving.cancel()

    async def _give_all(self) -> None:
        try:
            while self._may_give():
                await self._rest()
                self._app.call_later(self._give_some)
                await _reached(self._app)
        finally:
            self._giving = None

    async def _give_some(self) -> None:
        """Give the next key, and keys after it that only write or move in the same place."""
        stays = True
        while stays and self._place == self._rested and self._may_give():
            event = self._waiting.popleft()
            self._passes, stays = _PASSES, self._stays(event)
            await self._give(event)
            await asyncio.sleep(0)  # a flood of keys must not keep a signal
            stays = stays and bool(self._waiting) and self._stays(self._waiting[0])

    def _may_give(self) -> bool:
        """Whether a queued key can be given now; drop keys that never can."""
        if self.paused or self._app.return_code is not None:
            return False
        shown = self._app.screen
        # Any screen of the stack, as one below the top may be about to open a dialog.
        if any(getattr(one, "holds_keys", False) for one in self._app.screen_stack):
            return False
        since = getattr(shown, "takes_since", 0.0)
        while (
            self._waiting and self._waiting[0].time < since and not self._leaves(self._waiting[0])
        ):
            self._waiting.popleft()
        if self._waiting and getattr(shown, "keeps_keys", False):
            leaving = next((n for n, one in enumerate(self._waiting) if self._leaves(one)), None)
            if leaving is None:
                return False
            for _ in range(leaving):
                self._waiting.popleft()
        return bool(self._waiting)

    @property
    def _place(self) -> _Place:
        return self._app.screen, self._app.screen.focused

    async def _rest(self) -> None:
        """Wait until the effect of the last key is complete, and the shown screen can take keys."""
        while self._passes or self._place != self._rested:
            before, self._rested = self._rested, self._place
            for one in dict.fromkeys([*_way_up(before), *_way_up(self._rested)]):
                await _reached(one)
            for screen in reversed(self._app.screen_stack):
                await _reached(screen)  # it may have asked a question that was answered
            await _reached(self._app)
            self._passes = max(0, self._passes - 1)


def _way_up(place: _Place | None) -> Iterator[MessagePump]:
    """Yield the widgets that a message bubbles through; in a dialog, all its widgets first."""
    if place is not None:
        screen, focused = place
        if screen.is_modal:
            yield from screen.walk_children(Widget, method="breadth", reverse=True)
        yield from (focused or screen).ancestors_with_self


async def _reached(one: MessagePump) -> None:
    """Wait until `one` has handled all messages sent to it before."""
    reached = asyncio.Event()
    # Not `call_later`: it wraps its argument, and Textual inspects the parameters each time.
    if one.post_message(Callback(callback=reached.set)):
        await reached.wait()
