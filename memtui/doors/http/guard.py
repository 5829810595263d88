"""What every request passes first: the name it asked for, and an address that can be read."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import quote, unquote_to_bytes

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memtui.doors.http.errors import ErrorStyle

_DROP_SECONDS = 2.0
_DROP_BYTES = 67_108_864
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Guard:
    """Refuse foreign host names, and hand on the path with each segment still percent-encoded.

    What is left of a body when the answer is there is read first and dropped: a connection that is
    closed over unread bytes takes the answer with it, and a client would never learn why.

    A page of a stranger's site can let its own name point at this machine (DNS rebinding), so a
    server on loopback answers to loopback's names only; `names` None answers to any. An encoded
    path keeps an id with a `/` in it one segment.
    """

    def __init__(self, app: ASGIApp, *, style: ErrorStyle, names: frozenset[str] | None) -> None:
        self._app = app
        self._style = style
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(receive, Headers(scope=scope))
        await self._answer(scope, body.receive, body.ahead_of(send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = _without_port(Headers(scope=scope).get("host", ""))
        if self._names is not None and host not in self._names:
            names = " or ".join(sorted(self._names))
            refusal = self._style.reply(403, f"This server answers to {names} only.")
            await refusal(scope, receive, send)
            return
        try:
            path = _canonical(scope["raw_path"])
        except UnicodeDecodeError:
            refusal = self._style.reply(400, "The address is not UTF-8; encode it as UTF-8.")
            await refusal(scope, receive, send)
            return
        await self._app({**scope, "path": path}, receive, send)


class _Body:
    """A request's body as it is read, and what of it nobody has read."""

    def __init__(self, receive: Receive, headers: Headers) -> None:
        self._receive = receive
        sent = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        self._is_coming = sent and "expect" not in headers

    async def receive(self) -> Message:
        """Return the next part."""
        message = await self._receive()
        self._is_coming = self._is_coming and bool(message.get("more_body"))
        return message

    def ahead_of(self, send: Send) -> Send:
        """Return a `send` that drops the rest of the body before the answer begins."""

        async def after_the_body(message: Message) -> None:
            if self._is_coming:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_DROP_SECONDS):
                        await self._drop()
            await send(message)

        return after_the_body

    async def _drop(self) -> None:
        dropped = 0
        while self._is_coming and dropped < _DROP_BYTES:
            dropped += len((await self.receive()).get("body", b""))
        self._is_coming = False


def _without_port(host: str) -> str:
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()


def _canonical(raw_path: bytes) -> str:
    """Return a path with every segment percent-encoded in one way."""
    segments = (unquote_to_bytes(segment).decode("utf-8") for segment in raw_path.split(b"/"))
    return "/".join(quote(segment, safe="") for segment in segments)
