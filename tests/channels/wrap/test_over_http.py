"""A server over streamable HTTP, wrapped for an agent that speaks stdio."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from memtui.contract import OperationStatus, OperationType
from memtui.service import Caller, MemoryService, ReviewRule, RuleAction, RuleTest
from tests.channels.wrap.conftest import KEY, Begin, Logged, Wrap

VERSION = "2025-06-18"
MEGABYTE = b" x" * (1 << 19)
LONG_MB = 500
MOST_MB = 300
"""Far less than what passes."""


class Handler(BaseHTTPRequestHandler):
    """Answers by JSON, by a stream, by a stream that breaks off, or not at all."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        if "content-length" not in self.headers:
            self._read_long()
            return
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.append(body)
        self.server.headers.append({name.lower(): one for name, one in self.headers.items()})
        said = json.loads(body)
        if "id" not in said or "method" not in said:
            self._send(202, b"")
            return
        kind = said.get("params", {}).get("name", said["method"])
        result: Any = {"content": [{"type": "text", "text": "é\u2028"}]}
        if kind == "initialize":
            result = {"protocolVersion": VERSION, "serverInfo": {"name": "x"}, "capabilities": {}}
        answer = {"jsonrpc": "2.0", "id": said["id"], "result": result}
        text = json.dumps(answer, indent=1, ensure_ascii=False).encode()
        if kind.startswith("long"):
            self._send_long(is_stream=kind == "long stream")
        elif kind == "gone":
            self._send(404, b"no such session")
        elif kind == "stream":
            progress = b'data: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n'
            lines = b"".join(b"data: " + one + b"\n" for one in text.split(b"\n"))
            self._send(200, progress + lines + b"\n", "text/event-stream")
        elif kind == "odd":
            self._send(200, self.server.odd, "text/event-stream")
        elif kind == "broken":
            self.server.missing = text.replace(b"\n", b"")
            self._send(200, b"id: e1\nretry: 10\ndata:\n\n", "text/event-stream")
        else:
            self._send(200, text, "application/json", {"Mcp-Session-Id": "s1"})

    def do_GET(self) -> None:
        if self.headers.get("last-event-id") == "e1":
            data = b"data: " + self.server.missing + b"\n\n"
            self._send(200, data, "text/event-stream")
            return
        asks = b'data: {"jsonrpc":"2.0","id":"s","method":"roots/list"}\n\n'
        self.server.listened.set()
        self._send(200, asks, "text/event-stream")

    def do_DELETE(self) -> None:
        self.server.deleted.append(self.headers["mcp-session-id"])
        self._send(200, b"")

    def _read_long(self) -> None:
        """Read a body that comes in chunks, and answer it."""
        size, digest = 0, sha256()
        while count := int(self.rfile.readline(), 16):
            digest.update(self.rfile.read(count))
            size += count
            self.rfile.readline()
        self.rfile.readline()
        self.server.long = (size, digest.hexdigest())
        self._send(200, b'{"jsonrpc":"2.0","id":"long","result":{}}', "application/json")

    def _send_long(self, *, is_stream: bool) -> None:
        """Answer with more than may be held in memory."""
        self.send_response(200)
        kind = "text/event-stream" if is_stream else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"id: 1\ndata: {" if is_stream else b"{")
        for _ in range(LONG_MB):
            self.wfile.write(MEGABYTE)
        self.wfile.write(b"}\n\n" if is_stream else b"}")
        self.close_connection = True

    def _send(self, status: int, body: bytes, kind: str = "text/plain", more: Any = None) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": len(body),
            **(more or {}),
        }.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """The server, and what it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.deleted: list[str] = []
        self.listened = Event()
        self.missing = self.odd = b""
        self.long: tuple[int, str] | None = None


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


async def test_messages_pass_with_session_streams_and_secret(
    wrap: Begin, server: Server, monkeypatch: pytest.MonkeyPatch, logged: Logged
) -> None:
    monkeypatch.setenv("TOY_TOKEN", "Bearer s3cret")
    url = f"http://127.0.0.1:{server.server_port}/mcp"
    toy = wrap(KEY, "--url", url, "--header-secret", "Authorization=TOY_TOKEN")
    assert toy.ask("initialize", protocolVersion=VERSION)["protocolVersion"] == VERSION
    toy.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert toy.heard() == {"jsonrpc": "2.0", "id": "s", "method": "roots/list"}
    odd = (
        b'{ "jsonrpc":"2.0", "id":"a",\t"method":"tools/call",'
        b'"params":{"name":"json","x":"\\u00e9 \xc3\xa9"} }'
    )
    assert toy.process.stdin is not None
    assert toy.process.stdout is not None
    toy.process.stdin.write(odd + b"\r\n")
    toy.process.stdin.flush()
    line = toy.process.stdout.readline()
    while b'"roots/list"' in line:
        line = toy.process.stdout.readline()
    answer = {
        "jsonrpc": "2.0",
        "id": "a",
        "result": {"content": [{"type": "text", "text": "é\u2028"}]},
    }
    sent = json.dumps(answer, indent=1, ensure_ascii=False).encode().replace(b"\n", b" ")
    assert line == sent + b"\n"
    assert server.bodies[-1] == odd
    assert server.headers[-1]["authorization"] == "Bearer s3cret"
    assert server.headers[-1]["mcp-session-id"] == "s1"
    assert server.headers[-1]["mcp-protocol-version"] == VERSION
    code, _ = toy.end()
    assert code == 0
    assert server.deleted == ["s1"]
    [one] = await logged(1)
    assert one.request["tool"] == "json"


def heard(toy: Any) -> Any:
    """Return the next message that is not of the server's own stream."""
    while (said := toy.heard()).get("id") == "s":
        pass
    return said


@pytest.mark.parametrize("tool", ["stream", "broken"])
def test_a_stream_passes_and_one_that_breaks_off_is_resumed(
    wrap: Begin, server: Server, tool: str
) -> None:
    toy = wrap(KEY, "--url", f"http://127.0.0.1:{server.server_port}/mcp")
    toy.ask("initialize", protocolVersion=VERSION)
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": tool}}
    toy.say(call)
    said = heard(toy)
    if tool == "stream":
        assert said["method"] == "notifications/progress"
        said = heard(toy)
    assert said["id"] == 7
    assert said["result"]["content"][0]["text"] == "é\u2028"


def test_what_the_server_refuses_is_an_error_of_that_request(wrap: Begin, server: Server) -> None:
    url = f"http://127.0.0.1:{server.server_port}/mcp"
    toy = wrap(KEY, "--url", url)
    toy.ask("initialize", protocolVersion=VERSION)
    assert toy.call("gone") == {"code": -32000, "message": f"{url} answered 404."}


def test_an_address_that_nobody_answers_is_told(wrap: Begin) -> None:
    toy = wrap(KEY, "--url", "http://127.0.0.1:9/mcp")
    assert "does not answer" in toy.ask("initialize", protocolVersion=VERSION)["message"]
    assert toy.end()[0] == 3


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--url", "ftp://x"], "must be an address"),
        (["--url", "http://example.org/mcp", "--header-secret", "A=TOY_TOKEN"], "unencrypted"),
        (["--url", "http://127.0.0.1/", "--header-secret", "A=NOT_THERE"], "no secret NOT_THERE"),
    ],
)
def test_addresses_and_secrets_are_checked(
    wrap: Begin, bound: MemoryService, monkeypatch: pytest.MonkeyPatch, words: list[str], why: str
) -> None:
    monkeypatch.setenv("TOY_TOKEN", "x")
    code, said = wrap(KEY, *words).end()
    assert code == 2
    assert why in said


def test_an_address_is_named_without_its_secrets(wrap: Begin, server: Server) -> None:
    address = f"127.0.0.1:{server.server_port}/mcp"
    toy = wrap(KEY, "--url", f"http://ana:s3cret@{address}?key=s3cret")
    toy.ask("initialize", protocolVersion=VERSION)
    assert toy.call("gone")["message"] == f"http://{address} answered 404."


@pytest.mark.parametrize("odd", ["retry", "id", "result"])
def test_odd_answers_end_in_an_error_or_an_answer(wrap: Begin, server: Server, odd: str) -> None:
    server.odd = {
        "retry": b"id: e1\nretry: " + b"9" * 5_000 + b"\ndata:\n\n",
        "id": b"id: \xc3\xa9\nretry: 10\ndata:\n\n",
        "result": b'data: {"jsonrpc":"2.0","id":1,"result":"x"}\n\n',
    }[odd]
    toy = wrap(KEY, "--url", f"http://127.0.0.1:{server.server_port}/mcp")
    if odd == "result":
        assert toy.ask("initialize", name="odd") == "x"
    else:
        toy.say({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "odd"}})
    _, said = toy.end()
    assert "Traceback" not in said


def peak_mb(toy: Wrap) -> int:
    """Return the most memory that the passing process had."""
    status = Path(f"/proc/{toy.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


@pytest.mark.parametrize("tool", ["long", "long stream"])
async def test_an_answer_of_any_length_passes_in_little_memory(
    wrap: Begin, server: Server, logged: Logged, tool: str
) -> None:
    toy = wrap(KEY, "--url", f"http://127.0.0.1:{server.server_port}/mcp")
    toy.ask("initialize", protocolVersion=VERSION)
    toy.say({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": tool}})
    assert toy.process.stdout is not None
    digest = sha256()
    while not (piece := os.read(toy.process.stdout.fileno(), 1 << 20)).endswith(b"\n"):
        digest.update(piece)
    digest.update(piece.removesuffix(b"\n"))
    wanted = sha256(b"{")
    for _ in range(LONG_MB):
        wanted.update(MEGABYTE)
    wanted.update(b"}")
    assert digest.hexdigest() == wanted.hexdigest()
    assert peak_mb(toy) < MOST_MB
    assert toy.call("json")["content"]
    toy.end()
    statuses = {one.request["tool"]: one.status for one in await logged(2)}
    assert statuses == {tool: OperationStatus.UNKNOWN, "json": OperationStatus.OK}


async def test_a_call_of_any_length_passes_in_little_memory_and_is_a_gap(
    wrap: Begin, server: Server, logged: Logged
) -> None:
    toy = wrap(KEY, "--url", f"http://127.0.0.1:{server.server_port}/mcp")
    toy.ask("initialize", protocolVersion=VERSION)
    assert toy.process.stdin is not None
    said = [
        b'{"jsonrpc":"2.0","id":"long","method":"tools/call","x":"',
        *[MEGABYTE] * LONG_MB,
        b'"}',
    ]
    for piece in said:
        toy.process.stdin.write(piece)
    toy.process.stdin.write(b"\n")
    toy.process.stdin.flush()
    assert toy.heard()["id"] == "long"
    line = b"".join(said) + b"\n"
    assert server.long == (len(line), sha256(line).hexdigest())
    assert peak_mb(toy) < MOST_MB
    toy.end()
    [gap] = await logged(1)
    assert gap.operation_type is OperationType.GAP


async def test_a_call_that_is_too_long_to_be_weighed_does_not_pass(
    wrap: Begin, server: Server, bound: MemoryService, caller: Caller
) -> None:
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    await bound.review.add_rule(caller, KEY, rule)
    toy = wrap(KEY, "--url", f"http://127.0.0.1:{server.server_port}/mcp")
    toy.ask("initialize", protocolVersion=VERSION)
    toy.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "x": "x" * (40 << 20)})
    assert "weighs lines of" in toy.heard()["error"]["message"]
    assert server.long is None
    assert len(server.bodies) == 1
