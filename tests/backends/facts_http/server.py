"""A small server of the endpoints, on a loopback port; it can be told to misbehave."""

from __future__ import annotations

import itertools
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class _Listener(ThreadingHTTPServer):
    request_queue_size = 128


class Server:
    """Facts in memory; `rude` answers bytes of its own to the calls of one method."""

    def __init__(self) -> None:
        self.facts: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.rude: dict[str, list[bytes]] = {}
        """Raw replies by method, each used once; empty bytes close the connection."""
        self.stalls: set[str] = set()
        """Methods whose reply trickles until the server stops."""
        self.most = 1_000
        """How many facts a list takes."""
        self.refused: set[str] = set()
        """Texts that are not taken."""
        self.calls: list[tuple[str, str]] = []
        self.stopped = threading.Event()
        self._numbers = itertools.count(1)
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                return

            def do_GET(self) -> None:
                server.answer(self)

            def do_POST(self) -> None:
                server.answer(self)

            def do_DELETE(self) -> None:
                server.answer(self)

        self._http = _Listener(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def stop(self) -> None:
        self.stopped.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        method, path = handler.command, handler.path
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.calls.append((method, path))
        if method in self.stalls:
            self._trickle(handler)
        elif self.rude.get(method):
            handler.wfile.write(self.rude[method].pop(0))
            handler.close_connection = True
        elif handler.headers.get("Authorization") != "Bearer t0ken":
            _reply(handler, 401, {"error": {"kind": "denied", "message": "Who are you?"}})
        else:
            _reply(handler, *self._serve(method, path.split("/")[3:], body))

    def _trickle(self, handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        handler.close_connection = True
        while not self.stopped.wait(0.02):
            try:
                handler.wfile.write(b" ")
            except OSError:
                return

    def _serve(self, method: str, parts: list[str], body: bytes) -> tuple[int, Any]:
        kind, *rest = parts
        name = unquote(rest[0]) if rest else "me"
        if method == "GET":
            return 200, {"memories": self.facts.get((kind, name), []), "more": "fields"}
        if method == "POST":
            text, rows = json.loads(body)["fact"], self.facts.setdefault((kind, name), [])
            if len(rows) >= self.most or text in self.refused:
                return 422, {"error": {"kind": "invalid", "message": "No more of this."}}
            row = {
                "id": f"id/{next(self._numbers)}",
                "fact": text,
                "createdAt": f"2026-01-16T10:00:00.{len(self.calls):06d}Z",
                "source": "user",
            }
            rows.append(row)
            return 201, row
        for (held, _), rows in self.facts.items():
            for row in rows:
                if held == kind and row["id"] == name:
                    rows.remove(row)
                    return 204, None
        return 404, {"error": {"kind": "not_found", "message": "There is no such fact."}}


def _reply(handler: BaseHTTPRequestHandler, status: int, value: Any) -> None:
    content = b"" if value is None else json.dumps(value).encode()
    length = "" if status == 204 else f"Content-Length: {len(content)}\r\n"
    # In one piece, or the second waits.
    handler.wfile.write(f"HTTP/1.1 {status} X\r\n{length}\r\n".encode() + content)


def raw(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """Return a whole reply with the right length."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
