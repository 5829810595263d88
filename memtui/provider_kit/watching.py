"""Helper for adapters that watch files."""

import asyncio


class WatchEnd(asyncio.Event):
    """Stop event of one watch; it is also set once `closed`, shared by all watches, is set.

    watchfiles sets its stop event when a watch is cancelled. If that were the shared event, one
    cancelled watch would end all others.
    """

    def __init__(self, closed: asyncio.Event) -> None:
        """Take the event that ends all watches of the adapter."""
        super().__init__()
        self._closed = closed

    def is_set(self) -> bool:
        """Whether the watch must end."""
        return super().is_set() or self._closed.is_set()
