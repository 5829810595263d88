"""Standard input and output of the MCP server, read before the SDK is imported.

Codex starts without the tools of a server that does not answer `initialize` within half a second,
and importing the SDK alone takes longer. So a thread reads the input from the start of the process
and answers `initialize` itself, and `tools/list` with the tools that the same command line listed
last. The SDK gets the same requests later; its answers are not sent, but if it lists other tools,
the client gets a list-changed notification. Until the SDK reads, this module may import only the
standard library.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from queue import Queue
from threading import Lock, Thread
from typing import Any

from memtui import __version__
from memtui.channels.helper.words import command_words
from memtui.channels.mcp.guide import INSTRUCTIONS
from memtui.json_text import lenient_json
from memtui.paths import find_paths

MAX_LINE_BYTES = 16 << 20
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Protocol versions whose sessions begin with `initialize`, the newest last."""
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
    """The streams of one client: one request for each input line, and lines of output.

    Descriptor 0 becomes empty and 1 becomes standard error, so that a library that prints or reads
    does not disturb the messages.
    """

    def __init__(self, kept: Path | None = None) -> None:
        """Open the streams; `kept` is the file with the last tool list."""
        self._kept = kept
        self._input = os.fdopen(os.dup(0), "rb")
        self._output = os.dup(1)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        os.dup2(2, 1)
        self._lines: Queue[bytes] = Queue(_QUEUED_LINES)
        self._writing = Lock()
        self._answered: dict[str | int, Any] = {}
        """Answers sent by this class, by request id, until the SDK answers too."""
        self._listings: set[str | int] = set()
        """Ids of `tools/list` requests that the SDK has not answered yet."""
        self._is_read = False
        Thread(target=self._pump, name="memtui-mcp-input", daemon=True).start()

    def _pump(self) -> None:
        is_first = True
        while line := self._input.readline(MAX_LINE_BYTES):
            if not line.endswith(b"\n") and len(line) == MAX_LINE_BYTES:
                while (rest := self._input.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                    pass
                self._refuse(_NO_REQUEST, f"A message has {MAX_LINE_BYTES:,} bytes at most.", None)
            elif line.strip():
                if is_first:
                    self._answer_initialize(line)
                elif not self._is_read:
                    self._answer_tools(line)
                is_first = False
                self._lines.put(line)
        self._lines.put(b"")

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
                return  # the SDK reports the error
            result = {
                "protocolVersion": version if version in VERSIONS else VERSIONS[-1],
                "capabilities": CAPABILITIES,
                "serverInfo": SERVER_INFO,
                "instructions": INSTRUCTIONS,
            }
            self._answer(request["id"], result)

    def _answer_tools(self, line: bytes) -> None:
        with suppress(ValueError, RecursionError, TypeError, KeyError):
            request = lenient_json(line)
            is_asked = (request["jsonrpc"], request["method"]) == ("2.0", "tools/list")
            if not is_asked or not isinstance(request["id"], str | int):
                return
            if (result := self._kept_tools()) is not None:
                self._answer(request["id"], result)

    def _answer(self, request_id: str | int, result: Any) -> None:
        self._answered[request_id] = result
        with suppress(BrokenPipeError):  # the SDK's first message meets the same error
            self._send({"jsonrpc": "2.0", "id": request_id, "result": result})

    def _kept_tools(self) -> Any:
        """Return the last tool list of this command line and version; None: not stored."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            kept = json.loads(self._kept.read_bytes()) if self._kept else {}
            if kept["version"] == __version__ and "tools" in kept["result"]:
                return kept["result"]
        return None

    def _keep_tools(self, result: Any) -> None:
        if self._kept is None or self._kept_tools() == result:
            return
        with suppress(OSError):  # then the next start answers later
            self._kept.parent.mkdir(mode=0o700, exist_ok=True)
            new = self._kept.with_suffix(f".{os.getpid()}")
            with open(new, "w", opener=_private) as file:
                json.dump({"version": __version__, "result": result}, file)
            new.replace(self._kept)

    def readline(self) -> str:
        """Return the next message for the SDK, empty at the end; refuse unreadable ones."""
        from mcp_types import jsonrpc_message_adapter

        self._is_read = True
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
                if message.get("method") == "tools/list" and "id" in message:
                    self._listings.add(message["id"])
                return text
        return ""

    def write(self, text: str) -> None:
        """Send the SDK's message, unless it was already answered."""
        if self._answered or self._listings:
            answer = json.loads(text)
            request_id = None if "method" in answer else answer.get("id")
            result = answer.get("result")
            if request_id in self._listings:
                self._listings.remove(request_id)
                if result is not None:
                    self._keep_tools(result)
            if request_id in self._answered:
                answered = self._answered.pop(request_id)
                if "tools" in answered and result not in (answered, None):
                    changed = "notifications/tools/list_changed"
                    self._send({"jsonrpc": "2.0", "method": changed})
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


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def streams(kept: Path | None = None) -> StandardStreams:
    """Return the process's streams; the first call opens them with the tool list's file."""
    if not _opened:
        _opened.append(StandardStreams(kept))
    return _opened[0]


def _kept_file(arguments: Sequence[str]) -> Path | None:
    """Return the file of a command line's tool list; None: nothing may be written."""
    home, _ = command_words(arguments)
    if "--read-only" in arguments:
        return None
    try:
        folder = find_paths(Path(home) if home else None).data
    except Exception:  # noqa: BLE001 - to name its type imports pydantic; the command says it
        return None
    name = sha256("\0".join(arguments).encode(errors="surrogateescape")).hexdigest()[:16]
    return folder / "mcp-tools" / f"{name}.json"


def open_early(arguments: Sequence[str]) -> None:
    """Open the streams at once if a command line serves MCP over stdio."""
    _, words = command_words(arguments)
    serves = words[:1] == ["mcp"] and (
        len(words) == 1 or words[1] == "serve" or words[1][:1] == "-"
    )
    if serves and not {"--http", "--help"} & set(words):
        with suppress(OSError):  # a closed stream: the command reports it
            streams(_kept_file(arguments))
