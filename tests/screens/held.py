"""A real service whose answers are held back, or refused, for as long as a test wants."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from memtui.contract import MemtuiError


class Gate:
    """Lets calls through while it is open; with an error, each call fails with it."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.error: MemtuiError | None = None

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def through(self) -> None:
        await self._open.wait()
        if self.error is not None:
            raise self.error


class Held:
    """Stands for a service, or a group of its calls; every call that is awaited waits first."""

    def __init__(self, inner: Any, gate: Gate) -> None:
        self._inner = inner
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if inspect.iscoroutinefunction(found) and name != "close":
            return self._held(found)
        group = type(found).__module__.startswith("memtui.service.") and not callable(found)
        return Held(found, self._gate) if group and not name.startswith("_") else found

    def _held(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def held(*arguments: Any, **named: Any) -> Any:
            await self._gate.through()
            return await call(*arguments, **named)

        return held
