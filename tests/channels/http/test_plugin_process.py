"""`memtui serve plugin` as a process: its address, its socket, its warning."""

from __future__ import annotations

import asyncio
import signal
import stat
from pathlib import Path

import httpx
import pytest

from tests.channels.http.test_serve import ToLoopback, end, home, refused, started

__all__ = ["home"]

pytestmark = pytest.mark.slow


def test_start_answer_and_stop(home: Path) -> None:
    with started(home, "plugin", "--host", "0.0.0.0", "--port", "0") as (process, told):
        assert told == {
            "contract": "plugin",
            "company_id": "local",
            "binding_key": "default",
            "url": told["url"],
            "socket": None,
        }
        port = httpx.URL(told["url"]).port

        async def ask() -> str:
            async with httpx.AsyncClient(transport=ToLoopback()) as client:
                reply = await client.get(f"http://lan.test:{port}/v1/health")
                return str(reply.json()["status"])

        assert asyncio.run(ask()) == "ok"
        code, out, said = end(process, signal.SIGTERM)
    assert (code, out) == (0, "")
    assert "asks for no login" in said


def test_a_unix_socket_that_only_its_owner_opens(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "plugin.sock"
    with started(home, "plugin", "--binding", "default", "--uds", str(path)) as (process, told):
        assert told["socket"] == str(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            assert client.get("http://plugin/v1/health").json()["status"] == "ok"
        assert end(process, signal.SIGTERM) == (0, "", "")
    assert not path.exists()


def test_refusals_to_start(home: Path) -> None:
    assert refused(home, "plugin", "--binding", "nothing")[0] == 1
    assert refused(home, "facts", "--binding", "default")[0] == 2
