"""`memtui serve web` as it starts, with a real browser's protocol and a terminal that reads it."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pyte
import pytest
from textual_serve.download_manager import DownloadManager

from memtui.channels.cli.main import run
from memtui.channels.cli.session import Invocation, global_options
from memtui.channels.listening import on_port
from memtui.channels.web import server
from memtui.config import Paths
from memtui.service import MemoryService
from tests.channels.cli.conftest import Stream

LONGEST_SECONDS = 60
_DRAWN = {aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT}


@dataclass
class Served:
    """A running `memtui serve web`."""

    process: asyncio.subprocess.Process
    home: Path
    url: str
    address: str
    read_only: bool

    def tabs(self) -> list[str]:
        """Return the ids of the tabs' processes that run."""
        lines = running().splitlines()
        return [one.split()[0] for one in lines if "web.tab" in one and str(self.home) in one]

    async def ended(self) -> int:
        return await asyncio.wait_for(self.process.wait(), LONGEST_SECONDS)


@asynccontextmanager
async def serving(home: Path, *options: str) -> AsyncIterator[Served]:
    command = [
        sys.executable,
        "-m",
        "memtui",
        "--home",
        str(home),
        "serve",
        "web",
        "--json",
        *options,
    ]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        told = json.loads(await asyncio.wait_for(process.stdout.readline(), LONGEST_SECONDS))
        yield Served(process, home, **told)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def running() -> str:
    told = subprocess.run(["ps", "-A", "-ww", "-o", "pid,args"], check=True, capture_output=True)
    return told.stdout.decode("utf-8", "replace")


def browser() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


class Page:
    """The terminal in a tab, as far as it was drawn."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.screen = pyte.Screen(100, 30)
        self._stream = pyte.ByteStream(self.screen)

    async def until(self, true: Callable[[str], object]) -> None:
        """Read what is drawn until something is true of it."""
        shown = ""
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                while not true(shown := "\n".join(self.screen.display)):
                    message = await self.socket.receive()
                    assert message.type in _DRAWN, "the tab was closed"
                    if message.type is aiohttp.WSMsgType.BINARY:
                        self._stream.feed(message.data)
        except TimeoutError as error:
            raise AssertionError(f"it never came true of\n{shown}") from error

    async def press(self, keys: str) -> None:
        await self.socket.send_json(["stdin", keys])


@asynccontextmanager
async def tab(session: aiohttp.ClientSession, served: Served) -> AsyncIterator[Page]:
    at = f"{served.url}/ws?width=100&height=30"
    async with session.ws_connect(at, origin=served.url, max_msg_size=0) as socket:
        yield Page(socket)


async def status(session: aiohttp.ClientSession, url: str, **headers: str) -> int:
    async with session.get(url, headers=headers, allow_redirects=False) as answer:
        assert "no-store" in answer.headers["Cache-Control"]
        return answer.status


async def test_one_browser_of_this_machine_is_let_in_once_and_leaves(
    paths: Paths, service: MemoryService
) -> None:
    async with serving(paths.data, "--read-only") as served, browser() as own, browser() as other:
        token = served.address.partition("token=")[2]
        assert served.read_only
        assert served.url.startswith("http://127.0.0.1:")
        for path in ("/", "/ws", "/static/js/textual.js", "/download/x", "/?token=x"):
            assert await status(own, served.url + path) == 403
        assert await status(own, served.address, Host="evil.example") == 403
        assert await status(own, served.address, Origin="http://evil.example") == 403

        async with own.get(served.address, allow_redirects=False) as let_in:
            assert (let_in.status, let_in.headers["Location"]) == (303, "/")
            cookie = let_in.headers["Set-Cookie"]
            assert {"HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
            assert token not in cookie
        assert await status(other, served.address) == 403
        async with own.get(served.url) as page:
            text = await page.text()
            assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
            assert page.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        elsewhere = text.replace(served.url, "").replace(served.url.replace("http", "ws"), "")
        assert "://" not in elsewhere, "nothing is fetched from another place"
        assert token not in text

        port = served.url.rpartition(":")[2]
        for origin in (None, "null", f"http://localhost:{port}"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await own.ws_connect(f"{served.url}/ws", origin=origin)
            assert refused.value.status == 403

        async with own.ws_connect(f"{served.url}/ws", origin=served.url) as odd:
            await odd.send_str("no message")
            async for _ in odd:
                pass  # until it is closed
        async with tab(own, served) as page_of_app:
            await page_of_app.until(lambda shown: "Welcome to memtui" in shown)
            await page_of_app.press("\r")
            await page_of_app.until(lambda shown: "read-only" in shown and "vault·default" in shown)
            await page_of_app.press("1")
            await page_of_app.until(lambda shown: "whole company" in shown)
            assert token not in running()
            await page_of_app.press("q")
            assert await served.ended() == 0
        assert served.tabs() == []
        log = paths.log_file.read_text() if paths.log_file.exists() else ""
        assert token not in log


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
async def test_no_tab_outlives_its_server(paths: Paths, sent: signal.Signals) -> None:
    async with serving(paths.data) as served, browser() as own:
        assert not served.read_only
        async with own.get(served.address) as page:
            assert page.status == 200
        async with tab(own, served) as page_of_app:
            await page_of_app.until(lambda shown: "Welcome to memtui" in shown)
            await page_of_app.press("\r2")
            await page_of_app.until(lambda shown: "● ok" in shown and "F follow" in shown)
            assert len(served.tabs()) == 1
            served.process.send_signal(sent)
            assert await served.ended() == (0 if sent is signal.SIGTERM else -signal.SIGKILL)
        async with asyncio.timeout(LONGEST_SECONDS):
            while served.tabs():
                await asyncio.sleep(0.1)
    kept: Any = json.loads(paths.session_file.read_text())
    assert kept["companies"]["local"]["screen"] == "operations", "it comes back where it was left"


async def test_a_tab_whose_server_reads_no_more_leaves_as_it_draws(paths: Paths) -> None:
    app = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "memtui.channels.web.tab", "--home", str(paths.data)),
        env=os.environ | {"TEXTUAL_DRIVER": "memtui.channels.web.driver:TabDriver"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert app.stdin is not None
    assert app.stdout is not None

    def press(keys: bytes) -> None:
        assert app.stdin is not None
        app.stdin.write(b"D" + len(keys).to_bytes(4, "big") + keys)

    screen = pyte.Screen(80, 24)
    drawing = pyte.ByteStream(screen)
    async with asyncio.timeout(LONGEST_SECONDS):
        for shown, keys in (("Welcome to memtui", b"\r2"), ("● ok", b"1")):
            while shown not in "\n".join(screen.display):
                drawing.feed(await app.stdout.read(65536))
            if keys == b"1":
                app._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
            press(keys)
        assert await app.wait() == 0
    assert not paths.log_file.exists()
    assert "local" in json.loads(paths.session_file.read_text())["companies"]


async def test_it_ends_once_its_last_tab_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_GONE_SECONDS", 0)
    app = "import sys; print('__GANGLION__', flush=True); sys.stdin.read(1)"
    with on_port("127.0.0.1", 0) as listener:
        web = server.WebServer([sys.executable, "-c", app], listener)
        address = web.address
        serving_it = asyncio.create_task(web.run())
        async with browser() as own:
            async with own.get(address) as page:
                assert page.status == 200
            async with (
                own.ws_connect(f"{listener.url}/ws", origin=listener.url),
                own.ws_connect(f"{listener.url}/ws", origin=listener.url),
            ):
                assert not serving_it.done()
            await asyncio.wait_for(serving_it, LONGEST_SECONDS)


async def test_looking_at_the_address_does_not_spend_it(tmp_path: Path) -> None:
    with on_port("127.0.0.1", 0) as listener:
        web = server.WebServer([sys.executable, "-c", ""], listener)
        serving_it = asyncio.create_task(web.run())
        async with browser() as own:
            async with own.head(web.address) as looked:
                assert looked.status == 403
            async with own.get(web.address) as page:
                assert page.status == 200
        web._ended.set()
        await asyncio.wait_for(serving_it, LONGEST_SECONDS)


@pytest.mark.parametrize(
    "message",
    [
        ["resize", {"width": 999_999_999, "height": 999_999_999}],
        ["resize", {"width": "wide", "height": 1}],
        ["stdin", "x" * 1_000_000],
    ],
)
async def test_a_busy_tab_ends_with_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: list[Any]
) -> None:
    monkeypatch.setattr(server, "_STOP_SECONDS", 0.5)
    file = tmp_path / "pid"
    app = (
        "import os, pathlib, time\n"
        f"pathlib.Path({str(file)!r}).write_text(str(os.getpid()))\n"
        "print('__GANGLION__', flush=True)\n"
        "time.sleep(1000)"
    )
    with on_port("127.0.0.1", 0) as listener:
        web = server.WebServer([sys.executable, "-c", app], listener)
        serving_it = asyncio.create_task(web.run())
        async with browser() as own:
            async with own.get(web.address) as page:
                assert page.status == 200
            async with own.ws_connect(f"{listener.url}/ws", origin=listener.url) as socket:
                while not (file.exists() and file.read_text()):
                    await asyncio.sleep(0.05)
                await socket.send_json(message)
                web._ended.set()
                await asyncio.wait_for(serving_it, LONGEST_SECONDS)
    async with asyncio.timeout(LONGEST_SECONDS):
        with suppress(ProcessLookupError):
            while True:
                os.kill(int(file.read_text()), 0)
                await asyncio.sleep(0.05)


def test_a_size_has_bounds() -> None:
    assert [server._cells(one) for one in (-1, 0, 80, 999_999_999)] == [1, 1, 80, 1_000]


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"MEMTUI_THEME": "memtu"}, "did you mean memtui?"),
        ({"MEMTUI_THEM": "x"}, "There is no setting MEMTUI_THEM"),
    ],
)
def test_settings_that_do_not_fit_are_told_before_anything_is_served(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], said: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out, err = Stream(), Stream()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(["--home", str(paths.data), "serve", "web"])
    assert (code, out.text()) == (2, "")
    assert said in err.text()


def test_a_tab_gets_the_options_of_its_server(tmp_path: Path) -> None:
    given = Invocation(home=tmp_path, company="A & Co", acts_for="user:a=b", read_only=True)
    assert global_options(given.words()) == given
    assert Invocation().words() == []


@pytest.mark.parametrize("turns", range(1, 7))
async def test_a_tab_that_is_cancelled_as_it_stops_leaves_no_process(turns: int) -> None:
    async def nothing(*_: Any) -> None: ...

    script = "import time; print('__GANGLION__', flush=True); print('x' * 500_000); time.sleep(600)"
    tab = server.Tab(
        [sys.executable, "-c", script], write_bytes=nothing, write_str=nothing, close=nothing,
        download_manager=DownloadManager(),
    )  # fmt: skip
    await tab.start(80, 24)
    process = tab._process
    assert process is not None
    stopping = asyncio.create_task(tab.stop())
    for _ in range(turns):
        await asyncio.sleep(0)
    for _ in range(3):
        stopping.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert process.returncode == -signal.SIGKILL
    with warnings.catch_warnings(record=True) as told:
        del tab, process, stopping
        gc.collect()
    assert not [one for one in told if one.category is ResourceWarning]
