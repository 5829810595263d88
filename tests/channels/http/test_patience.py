"""Clients that half open a connection, trickle a request, or do not read: closed, others served."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import AsyncIterator

import pytest
from starlette.types import Message, Receive, Scope, Send

from memtui.channels.http.server import Patience, make_server
from memtui.channels.listening import on_port

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
QUICK = Patience(head=0.2, body=0.3, answer=0.2)
Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body, or at /flood with more than any socket holds."""
    message: Message = {"more_body": True}
    body = b""
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(64 if scope["path"] == "/flood" else 0):
        await send({"type": "http.response.body", "body": bytes(1_000_000), "more_body": True})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    with on_port("127.0.0.1", 0) as listener:
        server = make_server(echo, QUICK)
        running = asyncio.create_task(server.serve(sockets=[listener.socket]))
        yield listener.socket.getsockname()[1]
        server.should_exit = True
        await running


async def connected(port: int, sent: bytes = b"") -> Opened:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    await writer.drain()
    return reader, writer


async def rest(opened: Opened) -> bytes:
    """Return what still comes until the server closes, which it must."""
    reader, writer = opened
    async with asyncio.timeout(30):
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


async def test_what_is_never_finished_is_closed(port: int) -> None:
    begun = (
        b"PO",
        b"POST / HTTP/1.1\r\nHost: x\r\nX-A: ",
        HEAD,
        HEAD + b"ab",
        HEAD.replace(b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    )
    nothing = await connected(port)
    opened = [await connected(port, sent) for sent in begun]
    for sent, one in zip(begun, opened, strict=True):
        assert (await rest(one)).startswith(b"HTTP/1.1 408 "), sent
    assert await rest(nothing) == b""


async def test_what_trickles_gets_no_more_time(port: int) -> None:
    assert (await asyncio.to_thread(trickled, port)).startswith(b"HTTP/1.1 408 ")


def trickled(port: int) -> bytes:
    """Send byte after byte until an answer comes, and return that.

    A stream of asyncio's would lose the answer where a byte meets a connection closed already.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"GET / HTTP/1.1\r\nX-Long: ")
        while not select.select([client], [], [], 0.02)[0]:
            client.sendall(b"a")
        return client.recv(1000)


async def test_the_second_request_of_a_connection_is_waited_for_no_longer(port: int) -> None:
    opened = await connected(port, HEAD + b"abcde")
    assert b"abcde" in await opened[0].readuntil(b"abcde\r\n0\r\n\r\n")
    opened[1].write(b"GET / HT")
    assert (await rest(opened)).startswith(b"HTTP/1.1 408 ")


async def test_an_answer_that_nobody_reads_is_given_up(port: int) -> None:
    reader, writer = await connected(port, HEAD.replace(b"/ ", b"/flood ", 1) + b"abcde")
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket has it

    async def speak() -> None:
        while True:  # as long as the server holds the connection
            writer.write(b"x")
            await writer.drain()
            await asyncio.wait({asyncio.create_task(reader.read(0))}, timeout=0.02)

    async with asyncio.timeout(30):
        with pytest.raises(ConnectionError):
            await speak()
    writer.close()


async def test_others_are_served_meanwhile(port: int) -> None:
    waiting = [await connected(port, HEAD) for _ in range(50)]
    served = await connected(port, HEAD + b"abcde")
    assert (await served[0].readline()).startswith(b"HTTP/1.1 200 ")
    served[1].close()
    for opened in waiting:
        assert (await rest(opened)).startswith(b"HTTP/1.1 408 ")
