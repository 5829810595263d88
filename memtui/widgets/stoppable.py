"""Long work behind a pane that a person may stop, and that cleans up before it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from textual.dom import DOMNode

from memtui.contract import MemtuiError
from memtui.widgets.background import Background

T = TypeVar("T")


class Stoppable(Generic[T]):
    """Runs one thing at a time for `owner`.

    `stop` cancels the work and waits until it has ended, cleaning up included; then `stopped` is
    called. The same is waited for when the owner goes away.
    """

    def __init__(self, owner: DOMNode, name: str) -> None:
        self._background = Background(owner, name)
        self._task: asyncio.Task[T] | None = None

    @property
    def busy(self) -> bool:
        """Whether something runs, or is still cleaning up."""
        return self._task is not None

    def start(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        done: Callable[[T], None],
        stopped: Callable[[], None],
        failed: Callable[[MemtuiError], None],
    ) -> None:
        """Run `work`, then call one of the three on the event loop."""
        task = asyncio.create_task(work())
        self._task = task

        async def guarded() -> asyncio.Task[T]:
            try:
                await asyncio.wait({task})
            finally:
                task.cancel()
                await asyncio.wait({task})
                self._task = None
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
            return task

        def ended(finished: asyncio.Task[T]) -> None:
            if finished.cancelled():
                stopped()
            else:
                done(finished.result())

        self._background.every(guarded, ended, failed)

    def stop(self) -> None:
        """Ask the work to end."""
        if self._task is not None:
            self._task.cancel()

    async def end(self) -> None:
        """Stop what runs, if anything, and wait until it has cleaned up."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
