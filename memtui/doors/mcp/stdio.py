"""Standard input and output of the MCP server, read before the SDK is imported.

Codex starts without the tools of a server that does not answer `initialize` within half a second,
and importing the SDK alone takes longer. A thread therefore reads the input from the start of the
process on and answers `initialize` itself. The SDK gets the same request later; its answer is not
sent. Nothing here may import more than the standard library until the SDK reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from queue import Queue
from threading import Lock, Thread
from typing import Any

from memtui import __version__
from memtui.doors.helper.words import command_words
from memtui.doors.mcp.guide import INSTRUCTIONS
from memtui.json_text import lenient_json

MAX_LINE_BYTES = 16 << 20
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The protocol versions that begin with `initialize`, the newest last."""
SERVER_INFO = {"name": "memtui", "title": "memtui", "version": __version__}
CAPABILITIES = {
    "prompts": {"listChanged": False},
    "resources": {"listChanged": False, "subscribe": False},
    "tools": {"listChanged": True},
}

_NO_JSON, _NO_REQUEST = -32700, -32600  # JSON-RPC 2.0 §5.1
_QUEUED_LINES = 64

_opened: list[StandardStreams] = []


class StandardStreams:
    """The streams of one client: lines of input with a request each, and lines of output.

    Descriptor 0 becomes empty and 1 becomes standard error, so that nothing that a library prints
    or reads gets between the messages.
    """

    def __init__(self) -> None:
        self._input = os.fdopen(os.dup(0), "rb")
        self._output = os.dup(1)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        os.dup2(2, 1)
        self._lines: Queue[bytes] = Queue(_QUEUED_LINES)
        self._writing = Lock()
        self._answered: Any = None
        """The id of the `initialize` that was answered here, until the SDK answers it too."""
        Thread(target=self._pump, name="memtui-mcp-input", daemon=True).start()

    def _pump(self) -> None:
        is_first = True
        while line := self._input.readline(MAX_LINE_BYTES):
            if not line.endswith(b"\n") and len(line) == MAX_LINE_BYTES:
                self._skip_line()
                self._refuse(_NO_REQUEST, f"A message has {MAX_LINE_BYTES:,} bytes at most.", None)
            elif line.strip():
                if is_first:
                    self._answer_initialize(line)
                is_first = False
                self._lines.put(line)
        self._lines.put(b"")

    def _skip_line(self) -> None:
        while (rest := self._input.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
            pass

    def _answer_initialize(self, line: bytes) -> None:
        with suppress(ValueError, RecursionError, TypeError, KeyError):
            request = lenient_json(line)
            version, client = request["params"]["protocolVersion"], request["params"]["clientInfo"]
            texts = version, client["name"], client["version"]
            if not (
                (request["jsonrpc"], request["method"]) == ("2.0", "initialize")
                and isinstance(request["id"], str | int)
                and isinstance(request["params"]["capabilities"], dict)
                and all(isinstance(one, str) for one in texts)
            ):
                return  # the SDK says what is wrong
            result = {
                "protocolVersion": version if version in VERSIONS else VERSIONS[-1],
                "capabilities": CAPABILITIES,
                "serverInfo": SERVER_INFO,
                "instructions": INSTRUCTIONS,
            }
            self._answered = request["id"]
            with suppress(BrokenPipeError):  # the SDK's first message finds the same
                self._send({"jsonrpc": "2.0", "id": request["id"], "result": result})

    def readline(self) -> str:
        """Return the next message that the SDK reads, empty at the end; refuse what it cannot."""
        from mcp_types import jsonrpc_message_adapter

        while line := self._lines.get():
            try:
                message = lenient_json(line)
            except (ValueError, RecursionError) as error:
                self._refuse(_NO_JSON, f"This line is not JSON: {str(error)[:200]}.", None)
                continue
            text = json.dumps(message)
            try:
                jsonrpc_message_adapter.validate_json(text, by_name=False)
            except ValueError:
                self._refuse_message(message)
            else:
                return text
        return ""

    def write(self, text: str) -> None:
        """Send a message of the SDK."""
        if self._answered is not None:
            answer = json.loads(text)
            if answer.get("id") == self._answered and "method" not in answer:
                self._answered = None
                return
        self._write(text.encode())

    def flush(self) -> None:
        """Do nothing: each message is written at once."""

    def _refuse_message(self, message: Any) -> None:
        named = message.get("id") if isinstance(message, dict) else None
        is_notification = isinstance(message, dict) and "method" in message and "id" not in message
        if not is_notification:
            request_id = named if isinstance(named, str | int) else None
            self._refuse(_NO_REQUEST, "This is not a JSON-RPC 2.0 request.", request_id)

    def _refuse(self, code: int, sentence: str, request_id: str | int | None) -> None:
        error = {"code": code, "message": sentence}
        self._send({"jsonrpc": "2.0", "id": request_id, "error": error})

    def _send(self, document: dict[str, Any]) -> None:
        self._write(json.dumps(document).encode() + b"\n")

    def _write(self, line: bytes) -> None:
        with self._writing:
            while line:
                line = line[os.write(self._output, line) :]


def streams() -> StandardStreams:
    """Return the process's streams, opened at the first call."""
    if not _opened:
        _opened.append(StandardStreams())
    return _opened[0]


def open_early(arguments: Sequence[str]) -> None:
    """Open the streams at once where a command line serves MCP over them."""
    _, words = command_words(arguments)
    serves = words[:1] == ["mcp"] and (
        len(words) == 1 or words[1] == "serve" or words[1][:1] == "-"
    )
    if serves and not {"--http", "--help"} & set(words):
        with suppress(OSError):  # a closed stream: the command itself says so
            streams()
