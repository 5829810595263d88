"""One HTTP request to a plugin: bounded in time and size, no redirect, no traceback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memtui.contract import Invalid, Json, Unavailable

from .config import PluginConfig
from .wire import EXTENSIONS

if TYPE_CHECKING:
    import httpx

_CONNECT_SHARE = 0.8
"""Waiting for a connection may take that share of the time, so that a host that never answers is
known as one that was not sent anything."""
_THREAD_BYTES = 500_000
"""Longer JSON is read in a thread."""
_CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class Reply:
    """A status and the body's bytes, and which extensions of memtui's own the server lists."""

    status: int
    body: bytes
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The body as text, cut short: for messages only."""
        return self.body[:4000].decode("utf-8", "replace")


class Transport:
    """Sends requests to one plugin over kept connections."""

    def __init__(self, config: PluginConfig) -> None:
        import httpx

        self._place = config.place
        self._seconds = config.timeout_seconds
        self._most = int(config.max_reply_mb * 1_000_000)
        waiting = self._seconds * _CONNECT_SHARE
        limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
        is_tls = self._place.startswith("https:")  # its certificates take a while to load
        self._client = httpx.AsyncClient(
            base_url=config.url or "http://plugin",
            transport=httpx.AsyncHTTPTransport(
                verify=is_tls, uds=str(config.uds) if config.uds else None, limits=limits
            ),
            timeout=httpx.Timeout(self._seconds, connect=waiting, pool=waiting),
            headers={"accept": "application/json", "accept-encoding": "identity"},
            follow_redirects=False,
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def read(self, method: str, path: str, body: Json | None = None) -> Reply:
        """Send a request that changes nothing.

        Raises:
            Unavailable: `sent` is False only where trying again at once may help.
        """
        try:
            return await self._send(method, path, body)
        except _Broken as error:
            raise Unavailable(str(error)) from error

    async def change(self, method: str, path: str, body: Json | None = None) -> Reply:
        """Send a request that changes something, once.

        Raises:
            Unavailable: `sent` is True from the moment at which the plugin may have read it.
        """
        return await self._send(method, path, body)

    async def _send(self, method: str, path: str, body: Json | None) -> Reply:
        import httpx

        content = None if body is None else encoded(body)
        headers = {} if body is None else {"content-type": "application/json"}
        try:
            async with asyncio.timeout(self._seconds):
                return await self._exchange(method, path, content, headers)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise Unavailable(
                f"The memory plugin at {self._place} cannot be reached; "
                "see that it runs and that the binding's address is right."
            ) from error
        except (TimeoutError, httpx.TimeoutException) as error:
            raise Unavailable(
                f"The memory plugin at {self._place} did not answer within {self._seconds:g} s; "
                "raise the binding's timeout_seconds if it needs longer.",
                sent=True,
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise _Broken(
                f"The memory plugin at {self._place} broke its answer off "
                f"({type(error).__name__}); look at its log.",
                sent=True,
            ) from error

    async def _exchange(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Reply:
        async with self._client.stream(method, path, content=content, headers=headers) as response:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise Unavailable(
                    f"The memory plugin at {self._place} answered compressed, which memtui does "
                    "not read; turn compression off between the two.",
                    sent=True,
                )
            listed = response.headers.get(EXTENSIONS, "")
            body = await self._body(response)
            return Reply(response.status_code, body, tuple(listed.split()))

    async def _body(self, response: httpx.Response) -> bytes:
        parts = bytearray()
        chunks: AsyncIterator[bytes] = response.aiter_raw()
        async for chunk in chunks:
            parts += chunk
            if len(parts) > self._most:
                raise Unavailable(
                    f"The memory plugin at {self._place} answered with more than "
                    f"{self._most / 1_000_000:g} MB; raise the binding's max_reply_mb to read it.",
                    sent=True,
                )
        return bytes(parts)


class _Broken(Unavailable):
    """The connection ended before the answer did."""


def encoded(body: Json) -> bytes:
    """Return a request's body. Raises `Invalid` for what JSON cannot hold."""
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise Invalid(
            "The record holds something that JSON cannot carry, such as a number that is not "
            "finite or half a character; take it out."
        ) from error


async def parsed(reply: Reply, *, sent: bool) -> Any:
    """Return a reply's JSON. Raises `Unavailable` where it is none."""
    if len(reply.body) > _THREAD_BYTES:
        return await asyncio.to_thread(_parsed, reply, sent=sent)
    return _parsed(reply, sent=sent)


def _parsed(reply: Reply, *, sent: bool) -> Any:
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError) as error:
        start = " ".join(reply.text.split())[:60] or "nothing"
        raise Unavailable(
            f"The plugin answered {reply.status} with something that is no JSON ({start}); "
            "check that the address is a memory plugin's.",
            sent=sent,
        ) from error
