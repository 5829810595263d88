"""A plugin that misbehaves in one way on one call, and is the reference server otherwise."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable

from .loopback import Request, response, talk
from .reference import Reference

Trick = Callable[[asyncio.StreamWriter], Awaitable[bool]]
_ROW = {"id": "1", "namespace": "workspace:web", "content": "x", "kind": "fact", "source": "user"}


class Nasty:
    """Plays `trick` on every call to a path that begins with `path`, while there is a trick.

    With `acts` it does first what was asked, and spoils the answer only.
    """

    def __init__(
        self, trick: Trick | None = None, path: str = "/v1/search", *, acts: bool = False
    ) -> None:
        self.reference = Reference()
        self.trick = trick
        self.path = path
        self.acts = acts
        self._well = talk(self.reference)

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        if self.trick is not None and request.path.startswith(self.path):
            if self.acts:
                self.reference(request)
            return await self.trick(writer)
        return await self._well(request, writer)


def says(raw: bytes, *, keep: bool = False) -> Trick:
    async def trick(writer: asyncio.StreamWriter) -> bool:
        writer.write(raw)
        await writer.drain()
        return keep

    return trick


def answers(status: int, body: object) -> Trick:
    return says(response(status, body), keep=True)


async def never(writer: asyncio.StreamWriter) -> bool:
    await asyncio.Event().wait()
    return False


async def drips(writer: asyncio.StreamWriter) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


async def drips_headers(writer: asyncio.StreamWriter) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\nx: ")
    while True:
        writer.write(b"y")
        await writer.drain()
        await asyncio.sleep(0.02)


async def resets(writer: asyncio.StreamWriter) -> bool:
    writer.transport.abort()
    return False


async def resets_midway(writer: asyncio.StreamWriter) -> bool:
    writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"memor')
    await writer.drain()
    writer.transport.abort()
    return False


async def floods(writer: asyncio.StreamWriter) -> bool:
    """Send 100 MB."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
    for _ in range(100):
        writer.write(b" " * 1_000_000)
        await writer.drain()
    return True


def _head(*lines: str) -> bytes:
    return "\r\n".join(("HTTP/1.1 200 OK", *lines, "", "")).encode()


_BOMB = gzip.compress(b" " * 50_000_000)

TRICKS: dict[str, Trick] = {
    "never answers": never,
    "drips its body": drips,
    "drips its headers": drips_headers,
    "resets": resets,
    "resets midway": resets_midway,
    "100 MB": floods,
    "gzip bomb": says(_head("content-encoding: gzip", f"content-length: {len(_BOMB)}") + _BOMB),
    "truncated JSON": answers(200, b'{"memories": [{"id": "1", "cont'),
    "no JSON": answers(200, b"<html>It works!</html>"),
    "empty": answers(200, b""),
    "500 text": answers(500, b"Internal Server Error\nat line 3"),
    "500 JSON": answers(500, {"code": "internal", "message": "disk\x1b[31m full"}),
    "502 empty": answers(502, None),
    "429": answers(429, b"slow down"),
    "418": answers(418, b"teapot"),
    "redirect": says(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\n"
                     b"content-length: 0\r\n\r\n", keep=True),
    "redirect to itself": says(b"HTTP/1.1 307 X\r\nlocation: /v1/search\r\n"
                               b"content-length: 0\r\n\r\n", keep=True),
    "body too short": says(_head("content-length: 500") + b'{"memories": []}'),
    "length is not a number": says(_head("content-length: many") + b"{}"),
    "length below zero": says(_head("content-length: -5") + b"{}"),
    "two lengths": says(_head("content-length: 2", "content-length: 30") + b"{}"),
    "chunk of nonsense": says(_head("transfer-encoding: chunked") + b"zz\r\n{}\r\n0\r\n\r\n"),
    "no HTTP": says(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
    "huge header": says(_head("x: " + "y" * 200_000) + b"{}"),
    "a list": answers(200, []),
    "null": answers(200, b"null"),
    "a number": answers(200, b"17"),
    "memories are not named": answers(200, {"more": 1}),
    "memories with an odd cursor": answers(200, {"memories": [_ROW], "next_cursor": 7}),
    "memories is text": answers(200, {"memories": "none"}),
    "memories is a number": answers(200, {"memories": 17}),
    "memories is an object": answers(200, {"memories": {"1": _ROW}}),
    "memories of numbers": answers(200, {"memories": [1, 2]}),
    "memories without ids": answers(200, {"memories": [{**_ROW, "id": None}]}),
    "content is a list": answers(200, {"memories": [{**_ROW, "content": ["x"]}]}),
    "deep": answers(200, b"[" * 200_000),
    "long number": answers(200, b'{"memories": ' + b"9" * 10_000 + b"}"),
    "no UTF-8": answers(200, b'{"memories": "\xff\xfe"}'),
}  # fmt: skip
"""Each makes a search fail."""

ROW_TRICKS = {name for name in TRICKS if name.startswith(("memor", "content"))}
"""Those that only a search minds."""

ODD: dict[str, bytes] = {
    "null list": b'{"memories": null}',
    "one row of many is readable": json.dumps(
        {"memories": [7, _ROW, {"id": 3}, None], "extra": True}
    ).encode(),
    "odd fields": json.dumps(
        {"memories": [{**_ROW, "kind": "dream", "source": 7, "pin": "yes", "score": "high",
                       "created_at": "", "expires_at": "", "propagation": [1], "new": {}}]}
    ).encode(),
    "half a character": b'{"memories": [{"id": "1", "namespace": "workspace:web", '
                        b'"content": "a\\ud800b", "propagation": {"\\udfff": "\\ud800"}}]}',
    "half a character in an id": json.dumps(
        {"memories": [{**_ROW, "id": "a\ud800"}, {**_ROW, "namespace": "a:\ud800"}, _ROW]}
    ).encode(),
    "times that no float holds": json.dumps(
        {"memories": [{**_ROW, "created_at": 10**400, "expires_at": 10**400}]}
    ).encode(),
}  # fmt: skip
"""Bodies that a search copes with."""
