"""A client of an MCP server, over the standard streams of a process or over streamable HTTP.

The server is not trusted. Each reply is limited in time and size; what is not the reply (log lines,
notifications, replies of other ids) is skipped and counts towards the size. Nothing is read between
calls, so a server that floods waits at its full pipe.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from memtui import __version__
from memtui.contract import Invalid, Json, MemtuiError, NotFound, Unavailable
from memtui.json_text import json_object
from memtui.mcp_mapping import read_only_hint, tools_of
from memtui.processes import end_process, kill_group
from memtui.provider_kit.server_events import EventReader
from memtui.provider_kit.servers import JsonApi, NoReply, json_bytes

_VERSION = "2025-06-18"
"""The protocol version that is asked for; a server may answer with another one."""
_NOT_CARRIED_OUT = frozenset({-32700, -32600, -32601, -32602})
"""JSON-RPC errors of requests that the server did not begin."""
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_THREAD_BYTES = 500_000
_SAID_CHARS = 300
_START_SECONDS = 60.0
"""A program that is started may have to be fetched first."""
_STOP_SECONDS = 2.0
_MOST_TOOLS = 1_000


class ToolClient:
    """Calls the tools of one server, one call at a time; a server that died is started again."""

    def __init__(self, who: str, channel: StdioChannel | HttpChannel) -> None:
        self._who, self._channel = who, channel
        self._turn = asyncio.Lock()
        self._ids = count(1)
        self.changes = 0
        """How many calls that change something the server has carried out."""
        self._numbers: dict[str, set[str]] = {}
        """The arguments of each tool that are whole numbers."""
        self.server: Json = {}
        """The server's `name` and `version`, as it reports them."""

    async def close(self) -> None:
        """Stop the server."""
        await self._channel.close()

    async def tools(self) -> dict[str, bool | None]:
        """Return the server's tools, each with its word that it only reads; None: it says none."""
        found: dict[str, bool | None] = {}
        params: Json = {}
        while len(found) < _MOST_TOOLS:
            reply = await self.ask("tools/list", params)
            for name, one in tools_of(reply).items():
                found[name] = read_only_hint(one)
                self._numbers[name] = _numbers_of(one.get("inputSchema"))
            if not reply.get("tools") or not reply.get("nextCursor"):
                break
            params = {"cursor": reply["nextCursor"]}
        return found

    async def call(self, tool: str, arguments: Json, *, changes: bool) -> Json:
        """Call a tool and return its result, which may say `isError`.

        An id is a text in memtui, and is sent as a number where the tool takes one.
        """
        numbers = self._numbers.get(tool, ())
        sent = {
            name: int(value) if name in numbers and _NUMBER.fullmatch(str(value)) else value
            for name, value in arguments.items()
        }
        params = {"name": tool, "arguments": sent}
        result = await self.ask("tools/call", params, changes=changes)
        self.changes += changes
        return result

    async def ask(self, method: str, params: Json, *, changes: bool = False) -> Json:
        """Send a request and return its result.

        Raises:
            Invalid: the server refused the request before it began.
            Unavailable: it is down, late, or answered something else.
        """
        async with self._turn:
            if not self._channel.is_open:
                await self._begin()
            try:
                return await self._request(method, params, changes=changes)
            except NotFound:  # over HTTP: the session has ended
                await self._begin()
                return await self._request(method, params, changes=changes)

    async def _begin(self) -> None:
        """Open the channel and introduce memtui."""
        await self._channel.open()
        try:
            who = {"name": "memtui", "version": __version__}
            params = {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": who}
            reply = await self._request("initialize", params)
            server = reply.get("serverInfo")
            self.server = server if isinstance(server, dict) else {}
            ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await self._channel.exchange(ready, changes=False)
        except BaseException:
            await self._channel.close()
            raise

    async def _request(self, method: str, params: Json, *, changes: bool = False) -> Json:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        reply = await self._channel.exchange(message, changes=changes)
        error = reply.get("error")
        if isinstance(error, dict):
            said = f"{self._who} refused the request: {shortened(error.get('message'))}"
            if error.get("code") in _NOT_CARRIED_OUT:
                raise Invalid(said)
            raise Unavailable(said, sent=changes)
        result = reply.get("result")
        if not isinstance(result, dict):
            said = f"{self._who} answered something unreadable: it has no result."
            raise Unavailable(said, sent=changes)
        return result


def _numbers_of(schema: object) -> set[str]:
    """Return the names of the arguments that a tool's schema says are numbers."""
    found = schema.get("properties") if isinstance(schema, dict) else None
    arguments = found.items() if isinstance(found, dict) else ()
    kinds = {name: one.get("type") for name, one in arguments if isinstance(one, dict)}
    return {name for name, kind in kinds.items() if kind in ("integer", "number")}


def shortened(said: object) -> str:
    """Return a server's words on one line, as the end of a sentence."""
    words = " ".join(str(said)[: 4 * _SAID_CHARS].split())[:_SAID_CHARS].rstrip(".")
    return f"{words or 'it says no more'}."


class StdioChannel:
    """A server that is started without a shell and talks on its standard streams."""

    def __init__(
        self,
        who: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        seconds: float,
        most_bytes: int,
        redact: Callable[[str], str],
    ) -> None:
        self._who, self._command, self._environment = who, command, environment
        self._seconds, self._most_bytes, self._redact = seconds, most_bytes, redact
        self.is_open = False
        self._process: asyncio.subprocess.Process | None = None
        self._errors: deque[bytes] = deque(maxlen=1)
        """The last piece of what the server wrote on its standard error."""
        self._draining: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start the process, in a session of its own, so that ctrl+c does not reach it."""
        await self.close()
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe, stderr=pipe, limit=self._most_bytes,
                env=self._environment, cwd=Path.home(), start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it contains an invalid character"
            raise Unavailable(
                f"{self._who} cannot be started ({why}); check the binding's command."
            ) from error
        self._draining = asyncio.create_task(self._drain(self._process))
        self.is_open = True

    async def _drain(self, process: asyncio.subprocess.Process) -> None:
        while process.stderr is not None and (piece := await process.stderr.read(4096)):
            self._errors.append(piece)

    async def exchange(self, message: Json, *, changes: bool) -> Json:
        """Write a line and read lines until the reply comes.

        Raises:
            Unavailable: the process ended, is late, or wrote more than a reply may have.
        """
        process = self._process
        if process is None or process.stdin is None or process.returncode is not None:
            self.is_open = False
            raise Unavailable(f"{self._who} has ended{await self._last_words()}; try again.")
        line, starts = json_bytes(message), message["method"] == "initialize"
        try:
            async with asyncio.timeout(max(self._seconds, _START_SECONDS * starts)):
                process.stdin.write(line + b"\n")
                await process.stdin.drain()
                return await self._reply(process, message["id"]) if "id" in message else {}
        except TimeoutError as error:
            said = NoReply("late").words(self._seconds, self._most_bytes)
            raise Unavailable(f"{self._who} {said}.", sent=True) from error
        except NoReply as error:
            await self.close()
            said = error.words(self._seconds, self._most_bytes)
            raise Unavailable(f"{self._who} {said}.", sent=changes) from error
        except (OSError, asyncio.IncompleteReadError) as error:
            said = f"{self._who} ended before it answered{await self._last_words()}"
            await self.close()
            raise Unavailable(f"{said}; try again.", sent=changes) from error

    async def _reply(self, process: asyncio.subprocess.Process, wanted: int) -> Json:
        if process.stdout is None or process.stdin is None:
            raise NoReply("broken")
        size = 0
        while True:
            try:
                line = await process.stdout.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                raise NoReply("long") from error
            size += len(line)
            if size > self._most_bytes:
                raise NoReply("long")
            message = await _parsed(line)
            if _is_reply(message, wanted):
                return message
            if "method" in message and "id" in message:
                process.stdin.write(json_bytes(_answer(message)) + b"\n")
                await process.stdin.drain()
            await asyncio.sleep(0)  # lines that are there already are read without a pause

    async def _last_words(self) -> str:
        """Return the end of what the server wrote on its standard error, in brackets."""
        if self._draining is not None:
            await asyncio.wait([self._draining], timeout=_STOP_SECONDS / 10)
        lines = b"".join(self._errors).decode("utf-8", "replace").strip().splitlines()
        return f" ({self._redact(lines[-1][:_SAID_CHARS])})" if lines else ""

    async def close(self) -> None:
        """Close its input; a process that stays is asked to end, and then killed, with its own."""
        process, self._process, self.is_open = self._process, None, False
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            if not await _ends(process):
                process.terminate()
                await _ends(process)
        finally:
            kill_group(process)
            await end_process(process, *filter(None, [self._draining]))


async def _ends(process: asyncio.subprocess.Process) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    return process.returncode is not None


class HttpChannel:
    """A server behind a URL, by streamable HTTP."""

    def __init__(self, who: str, api: JsonApi, path: str) -> None:
        self._who, self._api, self._path = who, api, path
        self.is_open = False
        self._headers: dict[str, str] = {}

    async def open(self) -> None:
        """Begin without a session; the server's first reply may name one."""
        self._headers = {"Accept": "application/json, text/event-stream"}
        self.is_open = True

    async def exchange(self, message: Json, *, changes: bool) -> Json:
        """Post a message; the reply is JSON, or an event of a stream that is read up to it."""
        stream = _ReplyStream(message.get("id"))
        try:
            reply = await self._api.send(
                "POST",
                self._path,
                message,
                changes=changes,
                headers=self._headers,
                is_all=stream.add,
            )
        except NotFound as error:
            has_session = "Mcp-Session-Id" in self._headers
            self.is_open = False
            if not has_session:
                raise Unavailable(f"{error}") from error
            raise
        if "id" not in message:
            return {}
        stream.add(b"\n\n")  # some end it within its last event
        found = stream.reply or await _parsed(reply.body)
        if not _is_reply(found, message["id"]):
            said = f"{self._who} answered something unreadable: it is no reply to the request."
            raise Unavailable(said, sent=changes)
        if message["method"] == "initialize":
            self._headers["MCP-Protocol-Version"] = _version_of(found)
            if session := reply.headers.get("mcp-session-id"):
                self._headers["Mcp-Session-Id"] = session
        return found

    async def close(self) -> None:
        """End the session and close the connections."""
        if "Mcp-Session-Id" in self._headers and self.is_open:
            with suppress(MemtuiError):
                await self._api.send("DELETE", self._path, changes=False, headers=self._headers)
        self.is_open = False
        await self._api.close()


class _ReplyStream:
    """Finds the reply to a request among the events of a stream."""

    def __init__(self, wanted: object) -> None:
        self._events, self._wanted = EventReader(), wanted
        self.reply: Json | None = None

    def add(self, piece: bytes) -> bool:
        """Add a piece of the body; return whether the reply has come."""
        for event in self._events.add(piece):
            if _is_reply(message := json_object(event.data), self._wanted):
                self.reply = message
        return self.reply is not None


def _version_of(reply: Json) -> str:
    said = reply["result"].get("protocolVersion") if isinstance(reply.get("result"), dict) else None
    return said if isinstance(said, str) and said.isascii() and said.isprintable() else _VERSION


async def _parsed(line: bytes) -> Json:
    is_long = len(line) > _THREAD_BYTES
    return await asyncio.to_thread(json_object, line) if is_long else json_object(line)


def _is_reply(message: Json, wanted: object) -> bool:
    found = message.get("id")
    return type(found) is int and found == wanted and "method" not in message


def _answer(request: Json) -> Json:
    """Return the answer to a server's request: memtui answers `ping` and offers nothing."""
    reply: Json = {"jsonrpc": "2.0", "id": request["id"]}
    if request["method"] == "ping":
        return {**reply, "result": {}}
    return {**reply, "error": {"code": -32601, "message": "memtui offers no such method."}}
