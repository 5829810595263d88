"""`memtui serve` as a process: its start, its refusals to start, its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import httpx
import pytest

from memtui.channels.cli.main import run
from memtui.channels.listening import on_port
from memtui.config import Paths, load_settings
from memtui.service import Caller, open_service
from tests.channels.cli.conftest import Stream
from tests.channels.http.conftest import USER_PATH, client_of
from tests.processes import Forked

pytestmark = pytest.mark.slow

ANA = Caller(company_id="local", principal="user:ana", channel="test")
Server = subprocess.Popen[str] | Forked


@pytest.fixture
def home(paths: Paths) -> Path:
    return paths.data


@pytest.fixture
def token(paths: Paths) -> str:
    """A token of the home's company."""

    async def make() -> str:
        service = await open_service(paths, load_settings(paths))
        made = await service.tokens.add(ANA, "laptop", "user:ana")
        await service.close()
        return made.token

    return asyncio.run(make())


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MEMTUI_")}


def refused(home: Path, *arguments: str) -> tuple[int, str]:
    """Run a command that must not start, in this process; give its code and what it said."""
    out, err = Stream(), Stream()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(["--home", str(home), "serve", *arguments])
    assert out.text() == ""
    assert len(err.text().splitlines()) == 1
    return code, err.text()


@contextmanager
def started(
    home: Path, *arguments: str, before: tuple[str, ...] = (), as_itself: bool = False
) -> Iterator[tuple[Server, Any]]:
    """Run the command until the block ends; gives the process and what it said of itself.

    It is forked, unless it has to be the program itself.
    """
    words = ["--home", str(home), *before, "serve", *arguments, "--json"]
    process = program(words) if as_itself else Forked(words, environment())
    with process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def program(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "memtui", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def end(process: Server, how: signal.Signals) -> tuple[int | None, str, str]:
    process.send_signal(how)
    out, err = process.communicate()
    return process.returncode, out, err


class ToLoopback(httpx.AsyncHTTPTransport):
    """Reaches this machine under any name, as a name that points here does."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(host="127.0.0.1")
        return await super().handle_async_request(request)


async def get(url: str, token: str, **more: Any) -> httpx.Response:
    async with client_of(url, token, **more) as client:
        return await client.get(USER_PATH)


def test_start_answer_and_stop(home: Path, token: str) -> None:
    with started(home, "facts", "--port", "0", as_itself=True) as (process, told):
        assert told.keys() == {"contract", "company_id", "url", "socket"}
        assert (told["contract"], told["company_id"], told["socket"]) == ("facts", "local", None)
        assert told["url"].startswith("http://127.0.0.1:")
        reply = asyncio.run(get(told["url"], token))
        assert reply.json() == {"memories": [], "atLeast": False}
        assert asyncio.run(get(told["url"], "memtui_guessed")).status_code == 401
        assert end(process, signal.SIGINT) == (0, "", "")
    log = (home / "memtui.log").read_text()
    assert "The bearer token is not known here" in log
    assert "memtui_guessed" not in log


def test_it_stops_while_a_client_holds_its_connection(home: Path, token: str) -> None:
    with started(home, "--port", "0") as (process, told):
        address = httpx.URL(told["url"])
        with socket.create_connection((address.host, address.port or 0)) as idle:
            idle.sendall(b"GET /api/memory/user HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert idle.recv(100).startswith(b"HTTP/1.1 401")
            assert end(process, signal.SIGTERM) == (0, "", "")


def test_without_a_token_it_does_not_start(home: Path) -> None:
    code, said = refused(home, "--port", "0")
    assert code == 2
    assert "memtui companies tokens add" in said


def test_a_port_that_is_taken(home: Path, token: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = refused(home, "--port", str(taken.getsockname()[1]))
    assert code == 3
    assert "--port" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("--host", "no.such.host.invalid"),
        ("--host", "127.0.0.1", "--uds", "s"),
        ("--port", "70000"),
        ("gopher",),
    ],
)
def test_wrong_usage(home: Path, token: str, arguments: tuple[str, ...]) -> None:
    assert refused(home, *arguments)[0] == 2


def test_read_only_at_another_host_warns_and_refuses_every_change(home: Path, token: str) -> None:
    arguments = "--host", "0.0.0.0", "--port", "0"
    with started(home, *arguments, before=("--read-only",)) as (process, told):
        address = f"http://lan.test:{httpx.URL(told['url']).port}"

        async def add() -> httpx.Response:
            async with client_of(address, token, transport=ToLoopback()) as client:
                assert (await client.get(USER_PATH)).status_code == 200
                return await client.post(USER_PATH, json={"fact": "No."})

        reply = asyncio.run(add())
        assert reply.status_code == 403
        assert "read-only" in reply.json()["error"]["message"]
        code, _, said = end(process, signal.SIGTERM)
    assert code == 0
    assert "unencrypted" in said


def test_a_unix_socket_is_private_and_goes_with_the_server(
    home: Path, token: str, tmp_path: Path
) -> None:
    path = tmp_path / "facts.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with started(home, "--uds", str(path)) as (process, told):
        assert told["socket"] == str(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        reply = asyncio.run(get("http://anything", token, transport=transport))
        assert reply.json() == {"memories": [], "atLeast": False}
        code, said = refused(home, "--uds", str(path))
        assert (code, "Another server" in said) == (3, True)
        assert end(process, signal.SIGTERM) == (0, "", "")
    assert not path.exists()


def test_a_file_in_the_sockets_place_is_kept(home: Path, token: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("mine")
    assert refused(home, "--uds", str(path))[0] == 2
    assert path.read_text() == "mine"
    assert refused(home, "--uds", str(tmp_path / ("x" * 200)))[0] == 2
    assert refused(home, "--uds", str(tmp_path / "no" / "folder"))[0] == 2


def test_an_answer_in_two_parts_does_not_wait_for_an_acknowledgement() -> None:
    with on_port("127.0.0.1", 0) as listener:
        address = listener.socket.getsockname()
        with socket.create_connection(address), listener.socket.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
