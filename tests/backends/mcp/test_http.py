"""Servers behind a URL: sessions that end, streams that do not, and replies that are no JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from memtui.backends.mcp import McpAdapter
from memtui.contract import BindingContext, BrowseRequest, Denied, Scope, Unavailable, WriteRequest
from tests.backends.mcp.conftest import MAPPING
from tests.backends.mcp.fakes import NOTE, TOOLS

Message = dict[str, Any]
SCOPE = Scope(company_id="acme")
BROWSE = BrowseRequest(scope=SCOPE)


class Server(ThreadingHTTPServer):
    """Answers each request as `odd` says, and else well; its sessions are numbered."""

    def __init__(self) -> None:
        self.session = 0
        self.odd: Callable[[Handler, Message], bool] = lambda *_: False
        self.seen: list[tuple[str, Message, dict[str, str]]] = []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None: ...

    def do_DELETE(self) -> None:
        self.server.seen.append(("DELETE", {}, dict(self.headers)))
        self.say(200, b"")

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append(("POST", message, dict(self.headers)))
        if self.server.odd(self, message):
            return
        if "id" not in message:
            self.say(202, b"")
        elif message["method"] == "initialize":
            self.server.session += 1
            info = {"serverInfo": {"name": "notes"}, "protocolVersion": "2025-03-26"}
            self.reply(message, info, **{"Mcp-Session-Id": f"s{self.server.session}"})
        elif self.headers["Mcp-Session-Id"] != f"s{self.server.session}":
            self.say(404, b"no such session")
        elif message["method"] == "tools/list":
            self.reply(message, {"tools": [{"name": one} for one in TOOLS]})
        else:
            self.reply(message, {"structuredContent": {"notes": [NOTE], **NOTE}})

    def reply(self, message: Message, result: Message, **headers: str) -> None:
        body = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        self.say(200, json.dumps(body).encode(), **headers)

    def say(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def stream(self, *events: object) -> None:
        """Begin a stream that is not ended."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for one in events:
            self.wfile.write(b"event: message\r\ndata: " + json.dumps(one).encode() + b"\r\n\r\n")
        self.wfile.flush()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


async def opened(server: Server, tmp_path: Path, **config: Any) -> McpAdapter:
    url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
    given = {"url": url, "mapping": MAPPING, **config}
    return await McpAdapter.open(
        BindingContext(
            company_id="acme",
            binding_key="notes",
            config=given,
            data_dir=tmp_path,
            secret={"KEY": "t0ken"}.get,
        )
    )


async def texts(adapter: McpAdapter) -> list[str]:
    return [one.text for one in (await adapter.browse(BROWSE)).records]


async def test_a_session_is_named_begun_again_and_ended(server: Server, tmp_path: Path) -> None:
    adapter = await opened(server, tmp_path, token_secret="KEY")
    assert await texts(adapter) == ["An otter."]
    server.session += 1
    assert await texts(adapter) == ["An otter."]
    await adapter.close()
    method, _, headers = server.seen[-1]
    assert method == "DELETE"
    assert headers["Mcp-Session-Id"] == "s3"
    assert headers["MCP-Protocol-Version"] == "2025-03-26"
    assert {one["Authorization"] for *_, one in server.seen} == {"Bearer t0ken"}


async def test_a_stream_is_read_up_to_the_reply(server: Server, tmp_path: Path) -> None:
    def streams(handler: Handler, message: Message) -> bool:
        if message["method"] != "tools/call":
            return False
        progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}
        other = {"jsonrpc": "2.0", "id": 10_000, "result": {}}
        right = {"structuredContent": {"notes": [NOTE]}}
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": right}
        handler.stream(progress, 7, other, reply)
        done.wait()
        return True

    done = threading.Event()
    server.odd = streams
    adapter = await opened(server, tmp_path)
    assert await texts(adapter) == ["An otter."]
    done.set()
    await adapter.close()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>", "it is no reply"),
        (b"[1]", "it is no reply"),
        (b'{"jsonrpc": "2.0", "id": 99, "result": {}}', "it is no reply"),
        (b"x" * 300_000, "larger than 200,000 bytes"),
        (b"[" * 100_000, "it is no reply"),
    ],
)
async def test_what_is_no_reply_is_unreadable(
    server: Server, tmp_path: Path, body: bytes, why: str
) -> None:
    adapter = await opened(server, tmp_path, max_body_mb=0.2)

    def lies(handler: Handler, message: Message) -> bool:
        if message["method"] == "tools/call":
            handler.say(200, body)
        return bool(message["method"] == "tools/call")

    server.odd = lies
    with pytest.raises(Unavailable, match=why) as read:
        await texts(adapter)
    assert read.value.sent == ("larger" in why)  # then it is not read again
    with pytest.raises(Unavailable) as written:
        await adapter.write(WriteRequest(scope=SCOPE, source=None, content="A badger."))
    assert written.value.sent
    await adapter.close()


async def test_a_stream_that_never_has_the_reply_is_given_up(
    server: Server, tmp_path: Path
) -> None:
    def floods(handler: Handler, message: Message) -> bool:
        if message["method"] != "tools/call":
            return False
        try:
            handler.stream()
            while True:
                handler.wfile.write(b"data: {}\n\n" * 1_000)
        except OSError:
            return True

    server.odd = floods
    adapter = await opened(server, tmp_path, max_body_mb=0.2)
    with pytest.raises(Unavailable, match="larger than 200,000 bytes"):
        await texts(adapter)
    await adapter.close()


async def test_a_refused_token_is_denied(server: Server, tmp_path: Path) -> None:
    def refuses(handler: Handler, _: Message) -> bool:
        handler.say(401, b'{"error": "no"}')
        return True

    server.odd = refuses
    with pytest.raises(Denied, match="check the token"):
        await opened(server, tmp_path)
