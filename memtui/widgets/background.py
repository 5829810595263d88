"""Background work of a pane, so that the screen never waits.

For a screen author: make one `Background` for each pane that loads separately, in `__init__`:

    self._page = Background(self, "page")

Work is given as a function without arguments that returns an awaitable.

Reading: `self._page.latest(lambda: service.browse(caller, request), self._show, self._show_error)`.
Only the newest call of this pane delivers: an older one is cancelled, and if its result still
arrives, it is dropped by its generation number. `await self._page.delivered()` waits for it.

Changing: `self._page.every(lambda: service.forget(caller, request), self._gone, self._show_error)`.
A change is never cancelled by another, and each delivers; `await self._page.settled()` waits for
all changes begun.

Talking: `self._page.talk(self._forget(), self._show_error)` runs a coroutine that asks the person
and makes changes; it waits for `change(work)` and for futures, and for nothing else.

Callbacks run on the event loop, and only while the pane is mounted. `failed` gets one of the
contract's errors with a sentence to show; any other exception is logged and passed as
`Unexpected`.
"""

import asyncio
import logging
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, Generic, TypeVar

from textual.dom import DOMNode
from textual.worker import Worker

from memtui.contract import MemtuiError

T = TypeVar("T")
Work = Callable[[], Awaitable[T]]

_TALK = "talk"

_log = logging.getLogger(__name__)


class Unexpected(MemtuiError):
    """A bug in memtui; the log has the traceback."""

    def __init__(self, error: Exception) -> None:
        super().__init__(
            f"Something went wrong inside memtui ({type(error).__name__}); the log tells more."
        )


class Background:
    """Owns the background work of one pane of `owner`."""

    def __init__(self, owner: DOMNode, name: str) -> None:
        self._owner = owner
        self._name = name
        self._generation = 0
        self._reading: Worker[None] | None = None
        self._delivered = asyncio.Event()
        """Set once the newest read has ended or was cancelled."""
        self._delivered.set()
        self._changes: list[asyncio.Event] = []
        """One event for each change, set once the change has ended."""

    @property
    def busy(self) -> bool:
        """Whether the newest read is still running."""
        return self._reading is not None and not self._reading.is_finished

    @property
    def changing(self) -> bool:
        """Whether a change is still running."""
        return not all(one.is_set() for one in self._changes)

    def latest(
        self,
        work: Work[T],
        done: Callable[[T], None],
        failed: Callable[[MemtuiError], None],
    ) -> None:
        """Run a read; deliver its outcome unless a newer one was begun meanwhile."""
        self._generation += 1
        mine = self._generation
        if self._reading is not None:
            self._reading.cancel()
        self._delivered.set()
        self._delivered = ended = asyncio.Event()

        async def read() -> None:
            try:
                await _guard(work, done, failed, lambda: mine == self._generation and self._alive)
            finally:
                ended.set()

        self._reading = self._start(read, "read")

    async def delivered(self) -> None:
        """Wait until no read is running and the newest outcome was delivered."""
        while not self._delivered.is_set():
            await self._delivered.wait()

    def every(
        self,
        work: Work[T],
        done: Callable[[T], None],
        failed: Callable[[MemtuiError], None],
    ) -> None:
        """Run a change; a later one never cancels it, and its outcome is always delivered."""
        ended = asyncio.Event()
        self._changes = [*(one for one in self._changes if not one.is_set()), ended]

        async def change() -> None:
            try:
                await _guard(work, done, failed, lambda: self._alive)
            finally:
                ended.set()

        self._start(change, "change")

    async def settled(self) -> None:
        """Wait until every change has ended and was delivered."""
        while under_way := [one for one in self._changes if not one.is_set()]:
            await under_way[0].wait()

    def talk(
        self, conversation: Coroutine[Any, Any, object], failed: Callable[[MemtuiError], None]
    ) -> None:
        """Begin a conversation with the person.

        It runs at once up to its first question, like an eager task of Python 3.12, so that the
        next key answers that question and never reaches the screen below.
        """
        talked = _guard(lambda: conversation, lambda _: None, failed, lambda: self._alive)
        try:
            waits_for = talked.send(None)
        except StopIteration:
            return

        async def rest() -> None:
            await _go_on(talked, waits_for)

        self._start(rest, _TALK)

    async def change(self, work: Work[T]) -> T:
        """Run a change in a conversation and return its result, or raise its error."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.every(work, outcome.set_result, outcome.set_exception)
        return await outcome

    def forget(self) -> None:
        """Cancel the newest read; its outcome is not delivered."""
        self._generation += 1
        self._delivered.set()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    @property
    def _alive(self) -> bool:
        # A closing app or screen removes its widgets while the screen is still attached; a closing
        # screen is not displayed, although its styles say so.
        owner = self._owner
        is_leaving = not owner.display and owner.styles.display != "none"
        return owner.is_attached and not is_leaving and owner.app.is_running

    def _start(self, work: Callable[[], Coroutine[None, None, None]], sort: str) -> Worker[None]:
        group = f"{self._name}:{sort}"
        return self._owner.run_worker(
            work, name=group, group=group, exclusive=False, exit_on_error=True
        )


def is_talk(worker: Worker[Any]) -> bool:
    """Whether a worker is a conversation: it waits for the person or for a change."""
    return worker.group.endswith(f":{_TALK}")


@types.coroutine
def _go_on(begun: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, None, None]:
    """Run the rest of a coroutine that already waits for a future."""
    with suppress(Exception):  # the coroutine gets the error from the future
        yield waits_for
    yield from begun.__await__()


async def _guard(
    work: Work[T],
    done: Callable[[T], None],
    failed: Callable[[MemtuiError], None],
    wanted: Callable[[], bool],
) -> None:
    try:
        result = await work()
        if wanted():
            done(result)
    except asyncio.CancelledError:
        raise
    except MemtuiError as error:
        if wanted():
            failed(error)
    except Exception as error:  # noqa: BLE001 - the boundary where a fault becomes one sentence
        _log.exception("Unexpected error in background work.", exc_info=error)
        if wanted():
            failed(Unexpected(error))


class Stoppable(Generic[T]):
    """Runs one stoppable task at a time for `owner`.

    `stop` cancels the task; once its clean-up has ended, `stopped` is called. Removing the owner
    also cancels the task and waits for its clean-up.
    """

    def __init__(self, owner: DOMNode, name: str) -> None:
        self._background = Background(owner, name)
        self._task: asyncio.Task[T] | None = None

    @property
    def busy(self) -> bool:
        """Whether a task runs or is still cleaning up."""
        return self._task is not None

    @property
    def stopping(self) -> bool:
        """Whether the task was cancelled and is still cleaning up."""
        return self._task is not None and self._task.cancelling() > 0

    def start(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        done: Callable[[T], None],
        stopped: Callable[[], None],
        failed: Callable[[MemtuiError], None],
    ) -> None:
        """Run `work`, then call `done`, `stopped` or `failed` on the event loop."""
        task = asyncio.create_task(work())
        self._task = task

        async def guarded() -> asyncio.Task[T]:
            try:
                await asyncio.wait({task})
            finally:
                self.stop()
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
        """Cancel the task, once: a second cancel would interrupt its clean-up."""
        if self._task is not None and not self.stopping:
            self._task.cancel()

    async def end(self) -> None:
        """Stop the task, if any, and wait until it has cleaned up."""
        task = self._task
        if task is not None:
            self.stop()
            await asyncio.wait({task})
