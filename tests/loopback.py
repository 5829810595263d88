"""Servers on loopback ports, each in a thread of its own: JSON, and embeddings as OpenAI's."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DIMENSIONS = 256
Answer = tuple[int, Any]


class _Listener(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


class Loopback:
    """Answers JSON in a thread; a subclass says what."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.turn = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                return

            def __getattr__(self, name: str) -> Any:
                """Serve any method: the base class looks for `do_GET` and so on."""
                if name.startswith("do_"):
                    return lambda: server.serve(self)
                raise AttributeError(name)

        self._http = _Listener(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def stop(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        method, path = handler.command, handler.path
        length = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(length)
        if len(body) < length:
            return  # who asked was killed
        told = json.loads(body) if body else {}
        with self.turn:
            self.calls.append((method, path))
            self.bodies.append(told)
            status, value = self.answer(method, path, dict(handler.headers), told)
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n\r\n"
        handler.wfile.write(head.encode() + content)  # in one piece, or the second waits

    def answer(self, method: str, path: str, headers: dict[str, str], body: Any) -> Answer:
        raise NotImplementedError


def vector(text: str) -> list[float]:
    """Return a bag of words: texts that share none are at right angles."""
    found = [0.0] * DIMENSIONS
    for word in re.findall(r"\w+", text.lower())[:2000]:
        found[int(hashlib.sha256(word.encode()).hexdigest(), 16) % DIMENSIONS] += 1
    return found if any(found) else [1.0, *found[1:]]


class Embeddings(Loopback):
    """An OpenAI-compatible embeddings endpoint; it has no chat model."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        """Unset, it answers nothing."""
        self.gate.set()
        self.dimensions = DIMENSIONS
        """The length of its vectors, of which it leaves out the rest."""
        self.keys: list[str | None] = []
        """What each call came with as its key."""
        self.refusals: list[int] = []
        """Statuses that the next calls are answered with."""
        super().__init__()

    @property
    def embedding(self) -> str:
        """The name of its model for memtui."""
        return f"openai:{self.url}/v1#words"

    @property
    def texts(self) -> list[str]:
        """Every text that it was sent."""
        return [text for body in self.bodies for text in body["input"]]

    def stop(self) -> None:
        self.gate.set()
        super().stop()

    def answer(self, method: str, path: str, headers: dict[str, str], body: Any) -> Answer:
        if not path.endswith("/embeddings"):
            return 404, {"error": {"message": "There is no chat model here."}}
        self.keys.append(headers.get("authorization"))
        self.gate.wait()
        if self.refusals:
            return self.refusals.pop(0), {"error": {"message": "Not now."}}
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        data = [
            {"object": "embedding", "index": number, "embedding": vector(text)[: self.dimensions]}
            for number, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return 200, {"object": "list", "model": body["model"], "data": data, "usage": usage}
