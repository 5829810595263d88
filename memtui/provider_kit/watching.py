"""What an adapter needs that watches files."""

from __future__ import annotations

import asyncio


class WatchEnd(asyncio.Event):
    """The end of one watch: its own, or that of all watches of its adapter.

    watchfiles sets the event that it is given when a watch is cancelled. Were that the adapter's,
    nothing could be watched any more.
    """

    def __init__(self, closed: asyncio.Event) -> None:
        """Begin a watch that ends when `closed` is set at the latest."""
        super().__init__()
        self._closed = closed

    def is_set(self) -> bool:
        """Whether the watch is to end."""
        return super().is_set() or self._closed.is_set()
