"""The server of `memtui serve web`: for one person, in a browser of this machine.

The address admits one browser, once: its token is exchanged for a cookie and then invalid. Every
other request needs the cookie, and this server's own Host and Origin, so that no other site in the
browser can reach it.
"""

import asyncio
import hmac
import json
import logging
import secrets
import signal
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from aiohttp import web
from textual_serve.app_service import AppService
from textual_serve.server import Server, to_int

from memtui.channels.listening import Listener
from memtui.processes import end_process

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_log = logging.getLogger(__name__)
_OWN = Path(__file__).parent
_MOST_TABS = 8
_GONE_SECONDS = 60.0
"""Seconds without an open tab after which the server stops; a reload closes its tab briefly."""
_STOP_SECONDS = 10.0
_MOST_CELLS = 1_000
"""Most columns or rows of a tab, since an app's memory use grows with its size."""
_MOST_MESSAGE_BYTES = 1 << 18
"""Most bytes of a message from a page, such as pasted text; a longer one closes the tab."""
_USED = (
    "This address was used already, or is not the one that memtui serve web printed; stop it and "
    "start it again for another."
)
_FOREIGN = "This request does not come from a page of memtui serve web itself."
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",  # a page that it opens cannot lead it elsewhere
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": (
        "default-src 'self'; connect-src 'self' {sockets}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
}


class Tab(AppService):
    """The process of the app for one browser tab."""

    def __init__(self, arguments: Sequence[str], **options: Any) -> None:
        super().__init__("", **options)
        self._arguments = arguments
        self._stopping = False
        self.left = False
        """Whether the user quit the app in this tab."""

    def _build_environment(self, width: int = 80, height: int = 24) -> dict[str, str]:
        built: dict[str, str] = super()._build_environment(width, height)
        return built | {"TEXTUAL_DRIVER": "memtui.channels.web.driver:TabDriver"}

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        self._process = process = await create_subprocess_exec(
            *self._arguments,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=self._build_environment(width, height),
            start_new_session=True,  # ctrl+c goes to the server only, which then stops the app
        )
        self._stdin = process.stdin
        return process

    async def start(self, width: int, height: int) -> None:
        """Start the app with a bounded size."""
        await super().start(_cells(width), _cells(height))

    async def set_terminal_size(self, width: int, height: int) -> None:
        """Resize the app within bounds."""
        await super().set_terminal_size(_cells(width), _cells(height))

    async def on_meta(self, data: bytes) -> None:
        """Record that the user quit, before the tab is notified."""
        is_exit = json.loads(data)["type"] == "exit"
        self.left = self.left or (is_exit and not self._stopping)
        await super().on_meta(data)

    async def stop(self) -> None:
        """Quit the app, so that it saves its session; kill it if that takes too long."""
        self._stopping = True
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await super().stop()
            if self._process is not None:  # it is still saving its session
                await asyncio.wait_for(self._process.wait(), _STOP_SECONDS)
        except TimeoutError:
            _log.warning("The app of a tab did not end, and was killed.")
        finally:  # even if the server's own shutdown time is over
            if self._process is not None:
                await end_process(self._process, *([self._task] if self._task else []))


def _cells(number: object) -> int:
    if not isinstance(number, int):
        raise TypeError(f"A size is a whole number, not {number!r}")
    return max(1, min(number, _MOST_CELLS))


class WebServer(Server):
    """Serves the app to the browser that opens its address; `run` ends when the app is left."""

    def __init__(self, arguments: Sequence[str], listener: Listener) -> None:
        """Set up the server of the app with these command line `arguments`."""
        super().__init__("memtui", public_url=listener.url, templates_path=str(_OWN))
        self._arguments = arguments
        self._listener = listener
        self._host = listener.url.removeprefix("http://")
        self._token: str | None = secrets.token_urlsafe(32)
        self._key = secrets.token_urlsafe(32)
        self._cookie = f"memtui-{listener.url.rpartition(':')[2]}"  # a host's ports share cookies
        self._ended = asyncio.Event()
        self._open: set[web.WebSocketResponse] = set()
        self._going: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """The address that opens the app in a browser, once."""
        return f"{self.public_url}/?token={self._token}"

    async def run(self) -> None:
        """Serve until the user quits the app, its last tab is gone, or a signal stops it."""

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._guarded(request, handler)

        app = await self._make_app()
        app.middlewares.append(guarded)
        app.router.add_get("/page.js", self._handle_script)
        app.on_response_prepare.append(self._add_headers)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=2 * _STOP_SECONDS)
        await runner.setup()
        loop = asyncio.get_running_loop()
        signals = signal.SIGINT, signal.SIGTERM
        for one in signals:
            loop.add_signal_handler(one, self._ended.set)
        try:
            await web.SockSite(runner, self._listener.socket).start()
            await self._ended.wait()
        finally:
            await runner.cleanup()
            for one in signals:
                loop.remove_signal_handler(one)

    async def on_startup(self, app: web.Application) -> None:
        """Print nothing: the command prints the address."""

    async def on_shutdown(self, app: web.Application) -> None:  # noqa: ARG002 - aiohttp gives it
        """Close the tabs' connections, which quits their apps."""
        await asyncio.gather(*(one.close() for one in tuple(self._open)))

    async def _handle_script(self, _: web.Request) -> web.FileResponse:
        return web.FileResponse(_OWN / "page.js")

    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        # A browser sends no Origin for a typed address.
        may_lack = "" if request.path == "/ws" else self.public_url
        origin = request.headers.get("Origin", may_lack)
        if request.host != self._host or origin != self.public_url:
            return web.Response(status=403, text=_FOREIGN)
        token = request.query.get("token")
        if request.path == "/" and token is not None and request.method == "GET":
            return self._let_in(token)
        cookie = request.cookies.get(self._cookie, "")
        if not hmac.compare_digest(cookie.encode(), self._key.encode()):
            return web.Response(status=403, text=_USED)
        return await handler(request)

    def _let_in(self, token: str) -> web.Response:
        """Exchange the token for the cookie, and redirect to the address without it."""
        if self._token is None or not hmac.compare_digest(token.encode(), self._token.encode()):
            return web.Response(status=403, text=_USED)
        self._token = None
        answer = web.Response(status=303, headers={"Location": "/"})
        answer.set_cookie(self._cookie, self._key, httponly=True, samesite="Strict", path="/")
        return answer

    async def _add_headers(self, _: web.Request, response: web.StreamResponse) -> None:
        for name, value in _HEADERS.items():
            response.headers[name] = value.format(sockets=f"ws://{self._host}")

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Run the app for a tab until the app or the tab ends."""
        if len(self._open) >= _MOST_TABS:
            raise web.HTTPServiceUnavailable(text=f"At most {_MOST_TABS} tabs can be open.")
        socket = web.WebSocketResponse(heartbeat=15, max_msg_size=_MOST_MESSAGE_BYTES)
        await socket.prepare(request)
        tab = Tab(
            self._arguments,
            write_bytes=socket.send_bytes,
            write_str=socket.send_str,
            close=socket.close,
            download_manager=self.download_manager,
        )
        self._came(socket)
        try:
            size = (to_int(request.query.get(name, ""), 80) for name in ("width", "height"))
            await tab.start(*size)
            await self._process_messages(socket, tab)
        except (ValueError, LookupError, TypeError, AssertionError) as error:
            _log.warning("A tab sent an invalid message: %s", error)
        finally:
            try:
                await tab.stop()
            finally:
                self._went(socket, left=tab.left)
        return socket

    def _came(self, socket: web.WebSocketResponse) -> None:
        self._open.add(socket)
        if self._going is not None:
            self._going.cancel()
            self._going = None

    def _went(self, socket: web.WebSocketResponse, *, left: bool) -> None:
        self._open.discard(socket)
        if self._open:
            return
        if left:
            self._ended.set()
        else:
            self._going = asyncio.get_running_loop().call_later(_GONE_SECONDS, self._ended.set)
