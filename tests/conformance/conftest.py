from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest_asyncio

from memtui.conformance import ConformanceReport

from .plugin import Plugin, serving

Serve = Callable[..., Awaitable[str]]
TTL_S = 0.3
"""How long the checks of expiry wait here."""


@pytest_asyncio.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serve plugins until the test ends."""
    async with AsyncExitStack() as stack:

        async def start(plugin: Plugin, uds: Path | None = None) -> str:
            return await stack.enter_async_context(serving(plugin, uds))

        yield start


def failed(report: ConformanceReport) -> set[str]:
    """The names of the checks that failed."""
    return {found.name for found in report.checks if found.outcome == "fail"}
