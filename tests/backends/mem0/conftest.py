from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends.mem0.servers import Embeddings, OpenServer, Platform


@pytest.fixture(scope="session", autouse=True)
def _mem0_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """mem0 makes a folder in the home, and tells its maker what it does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEM0_DIR", str(tmp_path_factory.mktemp("mem0")))
        patch.setenv("MEM0_TELEMETRY", "False")
        for name in [one for one in os.environ if one.lower().endswith("_proxy")]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def embeddings() -> Iterator[Embeddings]:
    running = Embeddings()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def whole_server(embeddings: Embeddings) -> Iterator[OpenServer]:
    running = OpenServer(embeddings.config(None))
    yield running
    running.stop()


@pytest.fixture
def server(whole_server: OpenServer) -> OpenServer:
    """The open server, empty."""
    whole_server.memory.reset()
    whole_server.calls.clear()
    whole_server.bodies.clear()
    return whole_server


@pytest.fixture
def platform() -> Iterator[Platform]:
    running = Platform()
    yield running
    running.stop()


@pytest.fixture
def library(embeddings: Embeddings, tmp_path: Path) -> Path:
    """The config of a library whose store is empty."""
    path = tmp_path / "mem0.json"
    path.write_text(json.dumps(embeddings.config(tmp_path)))
    return path
