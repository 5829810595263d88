from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from memtui.contract import Adapter, BindingContext

A = TypeVar("A", bound=Adapter)
OpenAdapter = Callable[..., Awaitable[Any]]


@pytest.fixture
async def open_adapter(tmp_path: Path) -> AsyncIterator[OpenAdapter]:
    """Open an adapter on a config; all are closed when the test ends."""
    opened: list[Adapter] = []

    async def open_one(kind: type[A], **config: Any) -> A:
        context = BindingContext(
            company_id="acme",
            binding_key="found",
            config={name: str(value) for name, value in config.items()},
            read_only=True,
            data_dir=tmp_path / "state",
        )
        adapter = await kind.open(context)
        opened.append(adapter)
        return adapter

    yield open_one
    for adapter in opened:
        await adapter.close()
