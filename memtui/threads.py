"""Threads for blocking calls that can be abandoned, so that none keeps the program from ending.

asyncio's own pool joins its threads when the loop ends and again when the interpreter does, so one
hanging call, on a dead network mount for example, keeps the program from quitting. The pool is
small too: a handful of hanging calls block all others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial, wraps
from threading import Condition, Lock, Thread
from typing import Any, ParamSpec, TypeVar

_going_on: ContextVar[Callable[[], None]] = ContextVar("_going_on")
"""Begins the limit of the present call anew."""

P = ParamSpec("P")
T = TypeVar("T")

_MOST_THREADS = 32
_LAST_CALLS_S = 30.0
"""How long shutdown waits for calls whose caller still waits, such as the write of a log row."""
_LOOK_S = 0.5
"""Seconds between two looks of a waiter at the progress of the lock's holder."""
_GIVEN_UP_S = 1.0
"""How long shutdown waits for abandoned calls."""


def use_loose_threads() -> None:
    """Make `asyncio.to_thread` use `LooseThreads` on the running loop."""
    loop = asyncio.get_running_loop()
    if not isinstance(getattr(loop, "_default_executor", None), LooseThreads):
        loop.set_default_executor(LooseThreads())


def in_thread(method: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Let a blocking method run in a thread, as a coroutine; several calls run at once."""

    @wraps(method)
    async def threaded(*args: P.args, **named: P.kwargs) -> T:
        return await asyncio.to_thread(method, *args, **named)

    return threaded


@asynccontextmanager
async def silent_at_most(seconds: float) -> AsyncIterator[None]:
    """Raise `TimeoutError` so many seconds after the begin, or after the last `goes_on`."""
    loop, outer = asyncio.get_running_loop(), _going_on.get(None)
    async with asyncio.timeout(seconds) as limit:

        def later() -> None:
            with suppress(RuntimeError):  # it is over
                limit.reschedule(loop.time() + seconds)

        def sign() -> None:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits for the call
                loop.call_soon_threadsafe(later)
            if outer is not None:
                outer()

        token = _going_on.set(sign)
        try:
            yield
        finally:
            _going_on.reset(token)


def goes_on() -> None:
    """Signal progress to the time limit of this call; any thread may call it."""
    if (sign := _going_on.get(None)) is not None:
        sign()


class TurnLock:
    """A lock for threads; who waits for it goes on as long as its holder does."""

    def __init__(self) -> None:
        self._lock, self._signs = Lock(), 0

    def __enter__(self) -> None:
        seen = self._signs
        while not self._lock.acquire(timeout=_LOOK_S):
            if self._signs != seen:
                seen = self._signs
                goes_on()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def goes_on(self) -> None:
        """Signal progress, to the holder's time limit and to those who wait for the lock."""
        self._signs += 1
        goes_on()


class _Call(Future[Any]):
    """A call in a thread, whose caller may abandon it while it runs."""

    def __init__(self, work: Callable[[], Any], give_up: Callable[[_Call], None]) -> None:
        super().__init__()
        self.work = work
        self.is_given_up = False
        self.has_ended = False
        self._give_up = give_up

    def cancel(self) -> bool:
        """Cancel a call not started yet; abandon a running one and return False."""
        if super().cancel():
            return True
        self._give_up(self)
        return False


class LooseThreads(ThreadPoolExecutor):
    """An executor of daemon threads. Abandoned calls do not count against its limit."""

    def __init__(self, most: int = _MOST_THREADS) -> None:
        super().__init__(max_workers=1)  # its threads are never started; asyncio asks for the type
        self._most = most
        self._calls: deque[_Call] = deque()
        self._counted = self._idle = self._loose = 0
        self._is_ended = False
        self._lock = Lock()
        self._has_calls = Condition(self._lock)
        self._has_fewer = Condition(self._lock)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Schedule `fn` in a thread."""
        call = _Call(partial(fn, *args, **kwargs), self._give_up)
        with self._lock:
            if self._is_ended:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._calls.append(call)
            self._serve()
        return call

    def _serve(self) -> None:
        if self._idle >= len(self._calls):
            self._has_calls.notify()
        elif self._counted < self._most:
            Thread(target=self._work, name="memtui-call", daemon=True).start()
            self._counted += 1

    def _work(self) -> None:
        while (call := self._next()) is not None:
            if call.set_running_or_notify_cancel():
                _run(call)
            with self._lock:
                call.has_ended = True
                if call.is_given_up:
                    self._loose -= 1
                    self._has_fewer.notify_all()
                    return
            # Release its objects now: a library's object freed in a thread while Python ends can
            # abort the program.
            del call

    def _next(self) -> _Call | None:
        with self._lock:
            while not self._calls:
                if self._is_ended:
                    self._counted -= 1
                    self._has_fewer.notify_all()
                    return None
                self._idle += 1
                self._has_calls.wait()
                self._idle -= 1
            return self._calls.popleft()

    def _give_up(self, call: _Call) -> None:
        with self._lock:
            if call.is_given_up or call.has_ended or call.done():
                return
            call.is_given_up = True
            self._counted -= 1
            self._loose += 1
            self._has_fewer.notify_all()
            if self._calls:
                self._serve()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  # the base class's
        """Accept no more calls; wait a limited time for the last ones."""
        with self._lock:
            self._is_ended = True
            if cancel_futures:
                for call in self._calls:
                    Future.cancel(call)
            self._has_calls.notify_all()
            if wait:
                self._has_fewer.wait_for(lambda: not self._counted, _LAST_CALLS_S)
                self._has_fewer.wait_for(lambda: not self._loose, _GIVEN_UP_S)


def _run(call: _Call) -> None:
    try:
        result = call.work()
    except (SystemExit, KeyboardInterrupt) as error:
        # Raised again on the event loop, it would end the whole program.
        call.set_exception(RuntimeError(f"{type(error).__name__} was raised in a thread"))
    except BaseException as error:  # noqa: BLE001 — the call's caller gets it
        call.set_exception(error)
    else:
        call.set_result(result)
