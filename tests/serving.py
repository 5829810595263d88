"""Our servers, which end as soon as a test wants them to."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import uvicorn.server

from memtui.channels.http.server import make_server

__all__ = ["make_server"]


class _Hurried(ModuleType):
    """The module asyncio, for uvicorn: its sleeps are the time between two looks for its end."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / 20)


uvicorn.server.asyncio = _Hurried("asyncio")  # type: ignore[attr-defined]
