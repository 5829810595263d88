"""Threads for blocking calls that can be abandoned, so that none keeps the program from ending.

asyncio's own pool joins its threads when the loop ends and again when the interpreter does, so one
hanging call, on a dead network mount for example, keeps the program from quitting. The pool is
small too: a handful of hanging calls block all others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, wraps
from threading import Condition, Lock, Thread
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_MOST_THREADS = 32
_LAST_CALLS_S = 30.0
"""How long shutdown waits for calls whose caller still waits, such as the write of a log row."""
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
