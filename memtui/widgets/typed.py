"""Gives an app what is typed, one key after the other, each once the one before has had its effect.

Textual sends a key to the widget in the focus and takes the next one at once. What the first one
does comes some messages later: it may open a dialog, answer one, or lead to another screen. What
was typed behind it would go to what was there before, and be lost or act on the wrong screen.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from textual.app import App
from textual.events import Callback, Key, Paste
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.widget import Widget

_Place = tuple[Screen[Any], Widget | None]
_PASSES = 2
"""How often what a key goes through is waited for: a line sends it up, and answers after that."""


class KeysFree(Message):
    """A screen holds what is typed no longer; what was typed meanwhile may have to go."""

    def __init__(self, *, drops: bool = False) -> None:
        super().__init__()
        self.drops = drops


class Typed:
    """What is typed into `app` and waits for its turn.

    `give` is called with each in the app's own task. What `stays` says does no more than to write
    or to move the cursor need not be done before more of that sort is given. A screen with
    `keeps_keys` is given none but those that `leaves` says lead away from it; what waits before
    them is dropped. One with `holds_keys` is given none until it says `KeysFree`, and one with a
    moment `takes_since` none that were pressed before it.
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
        """Whether nothing is given for now."""
        self._rested: _Place | None = None
        """What was shown, and what was in the focus, when all was done with the last key."""
        self._passes = 0
        """How often it still has to be waited for."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, event: Key | Paste) -> None:
        """Give it when it is its turn."""
        self._waiting.append(event)
        self.begin()

    def begin(self) -> None:
        """Give what waits, where that can be."""
        if self._giving is None and self._may_give():
            self._giving = asyncio.create_task(self._give_all())

    def drop(self) -> None:
        """Give nothing of what waits."""
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
        """Give the next one, and what only moves or writes in the same place behind it."""
        stays = True
        while stays and self._place == self._rested and self._may_give():
            event = self._waiting.popleft()
            self._passes, stays = _PASSES, self._stays(event)
            await self._give(event)
            await asyncio.sleep(0)  # a flood of keys must not keep a signal
            stays = stays and bool(self._waiting) and self._stays(self._waiting[0])

    def _may_give(self) -> bool:
        """Whether something waits that can be given now; drop what never will be."""
        if self.paused or self._app.return_code is not None:
            return False
        shown = self._app.screen
        # One below may be about to ask: what lies over it lets it do so.
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
        """Wait until what was set going is done, and what is shown by then can take keys."""
        while self._passes or self._place != self._rested:
            before, self._rested = self._rested, self._place
            for one in dict.fromkeys([*_way_up(before), *_way_up(self._rested)]):
                await _reached(one)
            for screen in reversed(self._app.screen_stack):
                await _reached(screen)  # which asked a question that was answered
            await _reached(self._app)
            self._passes = max(0, self._passes - 1)


def _way_up(place: _Place | None) -> Iterator[MessagePump]:
    """Yield what a message goes through, of the widget in the focus or of another in a dialog."""
    if place is not None:
        screen, focused = place
        if screen.is_modal:
            yield from screen.walk_children(Widget, method="breadth", reverse=True)
        yield from (focused or screen).ancestors_with_self


async def _reached(one: MessagePump) -> None:
    """Wait until all is done that was sent to it before."""
    reached = asyncio.Event()
    # `call_later` wraps what it is given, and then Textual looks for its parameters each time.
    if one.post_message(Callback(callback=reached.set)):
        await reached.wait()
