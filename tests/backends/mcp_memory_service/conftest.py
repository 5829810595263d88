from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.mcp_memory_service.server import RealServer, StandIn

Server = RealServer | StandIn


_SERVERS = ["stand-in", "real"] if RealServer.is_installed() else ["stand-in"]


@pytest.fixture(scope="session", params=_SERVERS)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    is_real = request.param == "real"
    server = RealServer(tmp_path_factory.mktemp("memories")) if is_real else StandIn()
    yield server
    server.stop()


@pytest.fixture
def server(running: Server) -> Server:
    """The server, empty."""
    running.empty()
    return running
