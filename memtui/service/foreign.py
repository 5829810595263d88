"""A provider of somebody else's package: on an event loop of its own, its replies checked.

What such a package does, it does to its own binding alone: code that blocks, loops for ever or
exits never holds the loop that serves everybody else, and a reply of a wrong type is the package's
fault and says so.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import cache, partial
from threading import Thread
from typing import Any, TypeVar, cast, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from memtui.contract import (
    Adapter,
    BindingContext,
    Capabilities,
    Conflict,
    MemtuiError,
    Record,
    RecordHandle,
    Unavailable,
)
from memtui.service.resilience import unexpected
from memtui.threads import use_loose_threads

T = TypeVar("T")

_CLEARING_S = 1.0


async def open_foreign(
    provider: type[Adapter], context: BindingContext, *, package: str
) -> Adapter:
    """Open a stranger's provider on a loop of its own.

    Raises:
        Unavailable: it failed in a way of its own.
        MemtuiError: whatever the adapter said.
    """
    loop = OwnLoop(f"The provider {provider.key} of the package {package}")
    try:
        adapter, able = await loop.call(lambda: _opened(provider, context))
        return cast("Adapter", _Foreign(adapter, able, provider, loop))
    except BaseException:
        loop.stop()
        raise


class OwnLoop:
    """An event loop in a daemon thread, and who runs on it."""

    def __init__(self, who: str) -> None:
        self.who = who
        self._loop = asyncio.new_event_loop()
        self._is_stopped = False
        Thread(target=self._run, name="memtui-provider", daemon=True).start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._is_stopped:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):  # of a task that the package itself began
                continue
        with suppress(BaseException):
            self._loop.run_until_complete(_cleared())
        self._loop.close()

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` there and wait for it here.

        Raises:
            Unavailable: it failed in a way of its own.
            MemtuiError: whatever it said.
        """
        running = asyncio.run_coroutine_threadsafe(self._contained(work), self._loop)
        try:
            return await asyncio.wrap_future(running)
        except MemtuiError as error:
            raise self._sound(error) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise unexpected(self.who, RuntimeError("it cancelled its own call")) from None
        except Exception as error:
            raise unexpected(self.who, error) from error

    @staticmethod
    async def _contained(work: Callable[[], Awaitable[T]]) -> T:
        use_loose_threads()
        try:
            return await work()
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    def _sound(self, error: MemtuiError) -> MemtuiError:
        """Return an error whose further fields are what the contract says."""
        fits = isinstance(error.moved, RecordHandle | None)
        if isinstance(error, Conflict):
            fits &= isinstance(error.current, Record | None)
            fits &= isinstance(error.proposed, str | None)
        return error if fits else unexpected(self.who, error)

    def wrong(self, method: str, wanted: str, found: str) -> Unavailable:
        """Return what a reply of a wrong type means."""
        return Unavailable(
            f"{self.who} answered {method} with something else than {wanted} ({found}); "
            "update or remove the package.",
            sent=True,
        )

    def stop(self) -> None:
        """Let the thread end once it is free."""
        self._is_stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)


async def _cleared() -> None:
    """End what a package left running on its loop."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_CLEARING_S)
    await asyncio.get_running_loop().shutdown_default_executor()


async def _opened(provider: type[Adapter], context: BindingContext) -> tuple[Adapter, object]:
    """Open an adapter and ask what it can do: that may be a property that runs its code too."""
    adapter = await provider.open(context)
    return adapter, getattr(adapter, "capabilities", None)


class _Foreign:
    """A stranger's adapter, seen from this side: every coroutine of the contract, forwarded."""

    def __init__(
        self, adapter: Adapter, able: object, provider: type[Adapter], loop: OwnLoop
    ) -> None:
        if not isinstance(adapter, provider):
            raise loop.wrong("open", f"a {provider.__name__}", type(adapter).__name__)
        self._adapter = adapter
        self._loop = loop
        self.key = provider.key
        if not isinstance(able, Capabilities):
            raise loop.wrong("open", "an adapter with Capabilities", type(able).__name__)
        self.capabilities = able

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        if name not in _replies():
            raise AttributeError(name)
        return partial(self._forward, name)

    async def _forward(self, name: str, *given: Any, **named: Any) -> Any:
        reply = await self._loop.call(lambda: getattr(self._adapter, name)(*given, **named))
        wanted, words = _replies()[name]
        try:
            # A model is taken at its word, so what it holds is checked from its values.
            values = wanted.dump_python(wanted.validate_python(reply), warnings=False)
            return wanted.validate_python(values)
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            found = f"{where}: {first['msg']}" if where else first["msg"]
            raise self._loop.wrong(name, words, found) from error
        except (PydanticSerializationError, AttributeError, TypeError) as error:
            raise self._loop.wrong(name, words, str(error)) from error

    async def close(self) -> None:
        """Close the adapter, and let its thread end."""
        try:
            await self._loop.call(self._adapter.close)
        finally:
            self._loop.stop()

    async def watch(self) -> AsyncIterator[Sequence[RecordHandle]]:
        """Yield what the adapter yields."""
        changes = await self._loop.call(partial(_begun, self._adapter))
        try:
            while (batch := await self._loop.call(partial(_next, changes))) is not None:
                yield _HANDLES.validate_python(batch)
        except ValidationError as error:
            raise self._loop.wrong("watch", "handles", str(error.errors()[0]["msg"])) from error
        finally:
            if isinstance(changes, AsyncGenerator):
                await self._loop.call(changes.aclose)


_HANDLES = TypeAdapter(Sequence[RecordHandle])


async def _begun(adapter: Adapter) -> AsyncIterator[Sequence[RecordHandle]]:
    return aiter(adapter.watch())


async def _next(changes: AsyncIterator[Sequence[RecordHandle]]) -> object:
    return await anext(changes, None)


@cache
def _replies() -> dict[str, tuple[TypeAdapter[Any], str]]:
    """Each coroutine of the contract with what it returns, and that in words."""
    found = {}
    for name, member in vars(Adapter).items():
        if inspect.iscoroutinefunction(member) and name != "close":
            hint = get_type_hints(member)["return"]
            words = getattr(hint, "__name__", str(hint)).replace("memtui.contract.", "")
            found[name] = TypeAdapter(hint), words
    return found
