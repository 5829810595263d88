"""HTTP to untrusted servers, with limits on time and size, and errors as sentences."""

import asyncio
import ipaddress
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlsplit

from memtui.contract import (
    Conflict,
    Denied,
    Invalid,
    Json,
    MemtuiError,
    NotFound,
    Unavailable,
    Unsupported,
)

T = TypeVar("T")

_CONNECT_SHARE = 0.8
"""Share of the time allowed for connecting, so that a host that never answers is reported as
unreachable: nothing was sent."""


class NoReply(Exception):
    """No complete reply came; `why` is the reason, the text the connection's error."""

    def __init__(
        self, why: Literal["unreachable", "late", "broken", "compressed", "long"], detail: str = ""
    ) -> None:
        super().__init__(detail)
        self.why = why

    def words(self, seconds: float, most_bytes: int) -> str:
        """Return what the server did, without its name and a full stop; the limits were these."""
        return _NO_REPLY[self.why].format(seconds, most_bytes, self)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A server's reply."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def require_plain(self) -> None:
        """Raise `NoReply` for a compressed body: it was not requested, and may be a bomb."""
        if self.headers.get("content-encoding", "identity") != "identity":
            raise NoReply("compressed")


class HttpClient:
    """HTTP client of one server with a connection pool, time and size limits, no redirects."""

    def __init__(
        self,
        url: str,
        *,
        socket: Path | None,
        seconds: float,
        most_bytes: int,
        headers: Mapping[str, str],
        connections: int = 16,
        trust_env: bool = False,
    ) -> None:
        import httpx

        self._seconds, self._most_bytes = seconds, most_bytes
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=16)
        is_tls = url.startswith("https:")  # loading certificates is slow
        transport = None  # httpx's default uses the environment's proxies
        if socket or not trust_env:
            transport = httpx.AsyncHTTPTransport(
                verify=is_tls, uds=str(socket) if socket else None, limits=limits
            )
        self._client = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            transport=transport,
            verify=is_tls,
            limits=limits,
            timeout=None,  # noqa: S113 — `send` bounds each request as a whole
            headers={**headers, "accept-encoding": "identity"},
            follow_redirects=False,
            trust_env=trust_env,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def send(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        seconds: float | None = None,
        is_all: Callable[[bytes], bool] | None = None,
    ) -> HttpReply:
        """Send one request and return its reply, whatever the status.

        Raises `NoReply`, or `Invalid` for an impossible address.

        `is_all` gets each piece of the body, and says whether the rest need not be read.
        """
        import httpx

        longest = seconds or self._seconds
        waiting = longest * _CONNECT_SHARE
        try:
            async with asyncio.timeout(longest):
                return await self._exchange(
                    method,
                    path,
                    is_all,
                    content=content,
                    headers=headers,
                    timeout=httpx.Timeout(None, connect=waiting, pool=waiting),
                )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise NoReply("unreachable", type(error).__name__) from error
        except (TimeoutError, httpx.TimeoutException) as error:
            raise NoReply("late") from error
        except httpx.InvalidURL as error:
            raise Invalid("The request's address is too long; shorten what you ask for.") from error
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise NoReply("broken", type(error).__name__) from error

    async def _exchange(
        self, method: str, path: str, is_all: Callable[[bytes], bool] | None, **request: Any
    ) -> HttpReply:
        async with self._client.stream(method, path, **request) as response:
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > self._most_bytes:
                    raise NoReply("long")
                if is_all is not None and is_all(chunk):
                    break
            return HttpReply(response.status_code, response.headers, bytes(body))


_NO_REPLY = {
    "unreachable": "cannot be reached; check its url and whether it runs",
    "late": "did not answer within {0:g} s",
    "broken": "broke off ({2})",
    "compressed": "answered something unreadable: it is compressed, which memtui did not request",
    "long": "answered something unreadable: it is larger than {1:,} bytes",
}

_REFUSED = (Invalid, "refused the request{0}")
_NOT_THERE = (NotFound, "has no such record or address{0}; check the id and the url")
_NOT_OFFERED = (Unsupported, "does not offer this call{0}")
_REFUSALS: dict[int, tuple[type[MemtuiError], str]] = {
    401: (Denied, "refused{0}; check the token"),
    403: (Denied, "refused{0}; ask its owner for permission"),
    404: _NOT_THERE,
    405: _NOT_OFFERED,
    409: (Conflict, "reports a conflict{0}; read the record again"),
    410: _NOT_THERE,
    501: _NOT_OFFERED,
}
"""The error for a status, and what the server did; `{0}` is its message."""
_TRY_AGAIN = frozenset({408, 425, 429})
"""Refusals of a request that the server did not begin, as it has no time for it now."""
_MESSAGE_CHARS = 200
_THREAD_BYTES = 500_000
"""A longer reply is read in a thread."""


class Unreadable(Exception):
    """A reply without the expected content; the message says what is wrong."""


class JsonApi:
    """Client of a JSON server; its error statuses are raised as the contract's errors.

    `who` begins their sentences. `Unavailable.sent` is true where a change may have happened, and
    for a late, long or compressed reply, since an immediate retry would only bring it again.
    "Try again" stands only where no change may have happened, or it would happen twice.
    """

    changes = 0
    """How many requests for a change the server has carried out."""

    def __init__(
        self,
        who: str,
        url: str,
        *,
        seconds: float,
        most_bytes: int,
        headers: Mapping[str, str],
        socket: Path | None = None,
    ) -> None:
        self._who, self._seconds, self._most_bytes = who, seconds, most_bytes
        parts = urlsplit(url)
        # A proxy may be another machine, and could read unencrypted requests to this one.
        stays_here = parts.scheme == "http" and is_loopback(parts.hostname or "")
        self._http = HttpClient(
            url,
            socket=socket,
            seconds=seconds,
            most_bytes=most_bytes,
            headers=headers,
            trust_env=not stays_here,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def ask(
        self,
        method: str,
        path: str,
        parse: Callable[[bytes], T],
        body: Json | None = None,
        *,
        changes: bool = True,
    ) -> T:
        """Send a request and return the reply's body parsed by `parse` (see `read_json`).

        Raises:
            MemtuiError: the server refused, or sent no reply that `parse` can read (`Unreadable`).
        """
        reply = await self.send(method, path, body, changes=changes)
        return await self.read(reply, parse, changes=changes)

    async def read(self, reply: HttpReply, parse: Callable[[bytes], T], *, changes: bool) -> T:
        """Return a reply's body parsed by `parse`. Raises `Unavailable`, or as `parse` does."""
        try:
            if len(reply.body) > _THREAD_BYTES:
                return await asyncio.to_thread(parse, reply.body)
            return parse(reply.body)
        except (Unreadable, RecursionError) as error:
            said = f"{self._who} answered something unreadable: {error}."
            raise Unavailable(said, sent=changes) from error

    async def send(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        changes: bool,
        headers: Mapping[str, str] = {},
        is_all: Callable[[bytes], bool] | None = None,
    ) -> HttpReply:
        """Send a request and return the reply, of a status that says success.

        `is_all` is that of `HttpClient.send`. Raises the contract's errors.
        """
        reply = await self.exchange(
            method, path, body, changes=changes, headers=headers, is_all=is_all
        )
        if (error := self.refusal(reply, changes=changes)) is not None:
            raise error
        self.changes += changes
        return reply

    async def exchange(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        changes: bool,
        headers: Mapping[str, str] = {},
        is_all: Callable[[bytes], bool] | None = None,
    ) -> HttpReply:
        """Send a request and return the reply, whatever its status. Raises `Unavailable`."""
        content = None
        if body is not None:
            content, headers = json_bytes(body), {"Content-Type": "application/json", **headers}
        try:
            reply = await self._http.send(method, path, content, headers, is_all=is_all)
            reply.require_plain()
        except NoReply as error:
            said = error.words(self._seconds, self._most_bytes)
            is_final = error.why in {"late", "long", "compressed"}
            is_sent = is_final or (changes and error.why != "unreachable")
            hint = "; try again" if error.why in {"late", "broken"} and not changes else ""
            raise Unavailable(f"{self._who} {said}{hint}.", sent=is_sent) from error
        return reply

    def refusal(self, reply: HttpReply, *, changes: bool) -> MemtuiError | None:
        """Return the contract's error for a reply; None: its status says success."""
        status = reply.status
        if 200 <= status < 300:
            return None
        said = said_in(reply.body)
        if status in _REFUSALS or (400 <= status < 500 and status not in _TRY_AGAIN):
            kind, words = _REFUSALS.get(status, _REFUSED)
            return kind(f"{self._who} {words.format(said)}.")
        if 300 <= status < 400:
            return Unavailable(f"{self._who} redirects elsewhere; set url to its real address.")
        is_sent = changes and status not in _TRY_AGAIN
        hint = "" if is_sent else "; try again"
        return Unavailable(f"{self._who} answered {status}{said}{hint}.", sent=is_sent)


def json_bytes(body: Json) -> bytes:
    """Return a request's body. Raises `Invalid` for values that JSON cannot represent."""
    try:
        words = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return words.encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise Invalid(
            "The record contains a value that JSON cannot represent, such as an infinite number or "
            "half a character; remove it."
        ) from error


def read_json(body: bytes) -> Any:
    """Return a reply's JSON. Raises `Unreadable`."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unreadable("it is not JSON") from error


def read_object(body: bytes) -> Json:
    """Return a reply's JSON object. Raises `Unreadable`."""
    reply = read_json(body)
    if not isinstance(reply, dict):
        raise Unreadable("it is not an object")
    return reply


def as_text(value: object) -> object:
    """Return an integer as text, for servers that send numbers where texts are specified."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number else value


def said_in(body: bytes) -> str:
    """Return a refusal's message in brackets: `error`, `message` or `detail` of its JSON.

    Of a list, as FastAPI sends, the first message; what it repeats of the request is left out.
    Plain text is the message itself; a page of HTML has none, nor has what is long to read.
    """
    if len(body) > _THREAD_BYTES:
        return ""
    try:
        reply = json.loads(body)
        reply = next(reply[name] for name in ("error", "message", "detail") if name in reply)
        reply = reply[0] if isinstance(reply, list) else reply
        names = ("message", "msg", "error_description")
        is_object = isinstance(reply, dict)
        message = next(reply[name] for name in names if name in reply) if is_object else reply
    except (ValueError, RecursionError):
        message = body[: 4 * _MESSAGE_CHARS].decode("utf-8-sig", "replace")
        message = "" if message.lstrip().startswith("<") else message
    except (LookupError, TypeError, StopIteration):
        return ""
    words = " ".join(str(message)[: 4 * _MESSAGE_CHARS].split())[:_MESSAGE_CHARS]
    return f" ({words.rstrip('.')})" if words else ""


def path_segment(name: str, *, what: str) -> str:
    """Return an id quoted as one segment of a URL path. Raises `Invalid` if impossible."""
    if name in {"", ".", ".."} or any("\ud800" <= char <= "\udfff" for char in name):
        raise Invalid(
            f"{what} has the id {name!r}, which cannot be part of an address; use another."
        )
    return quote(name, safe="")


def check_address(url: str, *, what: str, is_private: bool) -> None:
    """Raise `Invalid` for an invalid URL, or one that would send a token unencrypted.

    `what` begins the sentences. `is_private`: nobody can eavesdrop, or the person allows it.
    """
    try:
        parts = urlsplit(url)
        host, is_odd = parts.hostname or "", parts.username or parts.query or parts.fragment
        _ = parts.port
    except ValueError as error:
        raise Invalid(f"{what} is not an address; write it as https://host.") from error
    if parts.scheme not in {"http", "https"} or not host or is_odd:
        raise Invalid(
            f"{what} must be an address such as https://host, without a user, query or fragment."
        )
    if not (parts.scheme == "https" or is_private or is_loopback(host)):
        raise Invalid(
            f"The token would go to {host} unencrypted; use https, or set allow_http to true."
        )


def is_loopback(host: str) -> bool:
    """Whether a URL's host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
