"""A small HTTP/1.1 server on a loopback socket, for handlers that are plain functions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: bytes

    @property
    def parts(self) -> list[str]:
        """The path's parts after /v1, decoded."""
        return [unquote(part) for part in self.path.split("/")[2:]]

    def json(self) -> Any:
        return json.loads(self.body or b"{}")


Talk = Callable[[Request, asyncio.StreamWriter], Awaitable[bool]]
"""Answers a request on the raw connection; True keeps the connection open."""
Answer = tuple[int, Any]
"""A status, and bytes for text/plain, None for no body, else JSON."""


def response(status: int, body: Any) -> bytes:
    """Return the whole answer as it goes over the wire."""
    kind = "text/plain" if isinstance(body, bytes) else "application/json"
    content = (
        body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    )
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(content)}\r\n\r\n"
    return head.encode() + content


def talk(handle: Callable[[Request], Answer]) -> Talk:
    """Return what speaks plain HTTP for a handler."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> bool:
        writer.write(response(*handle(request)))
        await writer.drain()
        return True

    return answer


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {
        name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, body)


_TURNS = 5
"""Turns of the loop until a connection that was just accepted has its task; asyncio leaves one open
whose server is closed before."""


@asynccontextmanager
async def serve(answer: Talk, uds: Path | None = None, port: int = 0) -> AsyncIterator[str]:
    """Serve on a port (0: a free one), or on a unix socket; gives the address."""
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while await answer(await _read(reader), writer):
                pass
        tasks.discard(task)
        writer.close()
        with suppress(ConnectionError, asyncio.CancelledError):
            await writer.wait_closed()

    if uds is not None:
        server = await asyncio.start_unix_server(connected, uds, limit=2**20)
        address = str(uds)
    else:
        server = await asyncio.start_server(connected, "127.0.0.1", port, limit=2**20)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield address
    finally:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
