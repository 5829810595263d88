"""One HTTP request at a time: bounded in time and in size, never redirected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from memtui.contract import Unavailable

from .wire import Unreadable, WireFact, fact_of, facts_of, refusal, segment

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


class FactsClient:
    """The calls of `wire`, as one user.

    Every call raises the contract's errors; `Unavailable.sent` is true where a change may have
    been made all the same.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        socket: Path | None,
        timeout_seconds: float,
        max_body_bytes: int,
    ) -> None:
        import httpx

        self._timeout_seconds = timeout_seconds
        self._max_body_bytes = max_body_bytes
        self._http = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            headers={"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"},
            timeout=timeout_seconds,
            follow_redirects=False,
            transport=httpx.AsyncHTTPTransport(uds=str(socket)) if socket else None,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def list_facts(self, kind: str, owner: str) -> list[WireFact]:
        """Return the facts of the token's `user`, or of the `drive` of that id."""
        return await self._call("GET", _path(kind, owner), facts_of, None, sent=False)

    async def add(self, kind: str, owner: str, text: str) -> WireFact:
        """Store a fact about the token's `user`, or about the `drive` of that id."""
        return await self._call("POST", _path(kind, owner), fact_of, text, sent=True)

    async def delete(self, kind: str, fact_id: str) -> None:
        """Delete a fact of a `user` or a `drive`. Raises `NotFound`."""
        path = f"/api/memory/{kind}/{segment(fact_id, what='The fact')}"
        await self._call("DELETE", path, lambda _body: None, None, sent=True)

    async def _call(
        self, method: str, path: str, parse: Callable[[bytes], T], text: str | None, *, sent: bool
    ) -> T:
        import httpx

        body = None if text is None else {"fact": text}
        try:
            # The client's own timeout is one a chunk; a slow trickle would never end.
            async with asyncio.timeout(self._timeout_seconds):
                async with self._http.stream(method, path, json=body) as response:
                    content = await self._content(response)
            if not response.is_success:
                raise refusal(response.status_code, content, sent=sent)
            return parse(content)
        except Unreadable as error:
            raise Unavailable(
                f"The facts' server answered something unreadable: {error}.", sent=sent
            ) from error
        except TimeoutError as error:
            raise Unavailable(
                f"The facts' server did not answer within {self._timeout_seconds:g} s; try again.",
                sent=sent,
            ) from error
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise Unavailable(
                "The facts' server cannot be reached; check its url and whether it runs."
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(
                f"The facts' server broke off ({type(error).__name__}); try again.", sent=sent
            ) from error

    async def _content(self, response: httpx.Response) -> bytes:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise Unreadable("it is compressed, and nobody asked for that")
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > self._max_body_bytes:
                raise Unreadable(f"it is larger than {self._max_body_bytes:,} bytes")
        return bytes(content)


def _path(kind: str, owner: str) -> str:
    if kind == "user":
        return "/api/memory/user"
    return f"/api/memory/drive/{segment(owner, what='The drive')}"
