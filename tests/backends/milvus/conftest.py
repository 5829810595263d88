from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memtui.backends.milvus import MilvusAdapter
from memtui.contract import BindingContext
from tests.loopback import Embeddings

COMPANY = "acme"


class Clock:
    """The time as a test says."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)

    def tick(self, **step: float) -> datetime:
        self.now += timedelta(**step)
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Milvus Lite as a server, over TCP on loopback."""
    from milvus_lite.adapter.grpc.server import start_server_in_thread

    folder = tmp_path_factory.mktemp("milvus") / "server.db"
    running, database, port = start_server_in_thread(str(folder))
    yield f"http://127.0.0.1:{port}"
    running.stop(None).wait()
    database.close()


@pytest.fixture(scope="session")
def embeddings() -> Iterator[Embeddings]:
    running = Embeddings()
    yield running
    running.stop()


@pytest.fixture
def context(tmp_path: Path, clock: Clock) -> Callable[..., BindingContext]:
    """Make what an adapter over the test's file is opened with."""

    def make(**config: Any) -> BindingContext:
        return BindingContext(
            company_id=COMPANY,
            binding_key="milvus",
            config={"path": str(tmp_path / "milvus.db"), **config},
            data_dir=tmp_path / "data",
            now=lambda: clock.now,
        )

    return make


@pytest.fixture
async def opened(context: Callable[..., BindingContext]) -> Any:
    """Open adapters, which are closed at the end."""
    adapters: list[MilvusAdapter] = []

    async def make(**config: Any) -> MilvusAdapter:
        adapters.append(await MilvusAdapter.open(context(**config)))
        return adapters[-1]

    yield make
    for adapter in adapters:
        await adapter.close()
