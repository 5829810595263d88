"""What every request passes first: the name it asked for, and an address that can be read."""

from __future__ import annotations

from urllib.parse import quote, unquote_to_bytes

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from memtui.doors.http.errors import ErrorStyle

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Guard:
    """Refuse foreign host names, and hand on the path with each segment still percent-encoded.

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


def _without_port(host: str) -> str:
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()


def _canonical(raw_path: bytes) -> str:
    """Return a path with every segment percent-encoded in one way."""
    segments = (unquote_to_bytes(segment).decode("utf-8") for segment in raw_path.split(b"/"))
    return "/".join(quote(segment, safe="") for segment in segments)
