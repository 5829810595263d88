"""A wrapped server over streamable HTTP: the agent speaks stdio, and each message is a request.

The body of each request is the agent's line, and each message of the server becomes a line; only
line ends within one, which JSON has between its tokens alone, become spaces.
"""

import json
import re
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from http import HTTPStatus
from io import BytesIO
from itertools import chain
from queue import Queue
from threading import Event, Lock, Thread, current_thread
from time import monotonic
from urllib.parse import urljoin, urlsplit, urlunsplit

import httpx

from memtui.channels.wrap.log_client import MOST_LINE_BYTES, LogClient
from memtui.channels.wrap.passing import SIGNALS, Line, Passing, pump, write_to
from memtui.contract import Invalid, Json
from memtui.json_text import json_object
from memtui.provider_kit.server_events import EventReader, ServerEvent
from memtui.provider_kit.servers import is_loopback

_CONNECT_S = 10.0
_LAST_S = 5.0
"""How long the answers that are still missing are waited for once the agent has ended."""
_RETRY_S, _MOST_RETRY_S = 1.0, 60.0
_SESSION, _VERSION, _LAST_EVENT = "mcp-session-id", "mcp-protocol-version", "last-event-id"
_NO_ANSWER = -32000
_MOST_PARTS = 16
_LINE_END = re.compile(rb"\r\n|\r|\n")
_UNKNOWN = object()
"""The id of a request that is too long to be read."""
_UNREACHABLE = 3


class WrappedUrl:
    """A server that is reached by its address."""

    pid = None
    """It is no process of this machine."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        """Pass on what comes.

        Raises:
            Invalid: the address cannot be used.
        """
        self._url = _checked(url, has_secrets=bool(headers))
        self._shown = _shown(url)
        is_here = is_loopback(urlsplit(url).hostname or "")
        self._client = httpx.Client(
            headers={**headers, "accept-encoding": "identity"},
            timeout=httpx.Timeout(None, connect=_CONNECT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16),
            trust_env=not is_here,
        )
        self._session: dict[str, str] = {}
        """The headers of the session, once it has begun."""
        self._listens = self._has_answered = False
        self._exchanges: set[Thread] = set()
        self._delivering = Lock()
        self._ended = Event()
        self._code = 0
        self._line = Line()
        self._rest: Queue[bytes] | None = None
        """What is still to come of a line that is too long to be held; empty bytes end it."""
        self.log = LogClient()
        self.log.refused = self._ended.set
        self._passing = Passing(self._take, write_to(1), self.log)
        for one in SIGNALS:
            signal.signal(one, self._signalled)
        Thread(target=self._from_agent, name="memtui-wrap-agent", daemon=True).start()

    def wait(self) -> int:
        """Wait until the agent or a signal ends it, and end the session; return the exit code."""
        self._ended.wait()
        if _SESSION in self._session:
            with suppress(httpx.HTTPError):
                self._client.delete(self._url, headers=self._session, timeout=_LAST_S)
        return self._code if self._has_answered or self._code else _UNREACHABLE

    def _signalled(self, number: int, _frame: object) -> None:
        self._code = 128 + number
        self._ended.set()

    def _from_agent(self) -> None:
        pump(0, self._passing.from_agent)
        self._passing.agent_ended()
        self._post_line()
        deadline = monotonic() + _LAST_S
        for one in list(self._exchanges):
            one.join(max(0.0, deadline - monotonic()))
        self._ended.set()

    def _take(self, data: bytes) -> None:
        """Take bytes of the agent and post each line; of a long one the parts as they come."""
        for part in BytesIO(data):
            if self._rest is not None:
                self._rest.put(part)
            else:
                self._line.add(part)
                if self._line.is_cut:
                    self._rest = Queue(_MOST_PARTS)
                    parts = chain(self._line.taken(), [part], iter(self._rest.get, b""))
                    self._begin(parts, {"method": "", "id": _UNKNOWN})
            if part.endswith(b"\n"):
                self._post_line()

    def _post_line(self) -> None:
        """Send the message that ends here; what others depend on is waited for."""
        if self._rest is not None:
            self._rest.put(b"")
            self._rest = None
            return
        line = b"".join(self._line.taken()).strip(b"\r\n")
        said = json_object(line)
        thread = self._begin(line, said)
        if not _is_request(said) or said["method"] == "initialize":
            thread.join()
        if said.get("method") == "notifications/initialized" and not self._listens:
            self._listens = True
            Thread(target=self._stream, args=[{}], name="memtui-wrap-listen", daemon=True).start()

    def _begin(self, body: bytes | Iterator[bytes], said: Json) -> Thread:
        thread = Thread(target=self._exchange, args=[body, said], daemon=True)
        self._exchanges.add(thread)
        thread.start()
        return thread

    def _exchange(self, body: bytes | Iterator[bytes], said: Json) -> None:
        """Post a message and pass on what the server answers."""
        try:
            if body:
                self._answer(body, said)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:  # the server's headers too
            self._fail(said, f"{self._shown} does not answer ({type(error).__name__})")
        finally:
            if not isinstance(body, bytes):
                deque(body, maxlen=0)  # else the agent would wait where the server read no more
            self._exchanges.discard(current_thread())

    def _answer(self, body: bytes | Iterator[bytes], said: Json, *, again: bool = True) -> None:
        headers = {"content-type": "application/json",
                   "accept": "application/json, text/event-stream", **self._session}  # fmt: skip
        with self._client.stream("POST", self._url, content=body, headers=headers) as response:
            self._has_answered = True
            moved = urljoin(self._url, response.headers.get("location", ""))
            may_follow = again and isinstance(body, bytes) and _origin(moved) == _origin(self._url)
            if response.status_code in {307, 308} and may_follow:
                self._url = moved
                self._answer(body, said, again=False)
                return
            if said.get("method") == "initialize" and _SESSION in response.headers:
                self._session[_SESSION] = response.headers[_SESSION]
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                self._stream(said, response)
                return
            pieces = response.iter_bytes()
            start = _beginning(pieces)
            is_failed = response.status_code >= HTTPStatus.MULTIPLE_CHOICES
            if is_failed and "jsonrpc" not in json_object(start):
                self._fail(said, f"{self._shown} answered {response.status_code}")
            else:
                self._deliver(chain([start], pieces), said)

    def _stream(self, said: Json, response: httpx.Response | None = None) -> None:
        """Pass on a stream until it has answered a request; one that breaks off is resumed.

        Without a `response` it is the stream of what the server sends by itself.
        """
        last, retry = "", _RETRY_S
        while not self._ended.is_set():
            given = {**self._session, "accept": "text/event-stream"}
            given |= {_LAST_EVENT: last} if last else {}
            headers = httpx.Headers(given, encoding="utf-8")
            opening = self._client.stream("GET", self._url, headers=headers)
            with suppress(httpx.HTTPError), nullcontext(response) if response else opening as found:
                if found.status_code != HTTPStatus.OK:
                    self._fail(said, f"{self._shown} answered {found.status_code}")
                    return
                reader = EventReader(MOST_LINE_BYTES)
                events = chain.from_iterable(map(reader.add, found.iter_bytes()))
                for event in events:
                    last, retry = event.event_id or last, event.retry_s or retry
                    if self._deliver(_data(event, events), said):
                        return
            if response and not (last and said):
                self._fail(said, f"{self._shown} broke off before it had answered")
                return
            response = None
            self._ended.wait(retry)

    def _deliver(self, pieces: Iterator[bytes], said: Json) -> bool:
        """Pass on a message of the server; return whether it is the response to `said`.

        A message too long to parse may be the response, so no error response is made up after it.
        """
        start = _beginning(pieces)
        answers = self._is_answer(json_object(start), said)
        if len(start) > MOST_LINE_BYTES:
            said.clear()
        if start.strip():
            with self._delivering, suppress(OSError):  # the agent is gone
                try:
                    for piece in chain([start], pieces):
                        self._passing.from_server(_LINE_END.sub(b" ", piece))
                finally:
                    self._passing.from_server(b"\n")
        return answers

    def _is_answer(self, message: Json, said: Json) -> bool:
        if not _is_request(said) or "id" not in message or "method" in message:
            return False
        if said["id"] not in (message["id"], _UNKNOWN):
            return False
        if said["method"] == "initialize":
            result = message.get("result")
            version = result.get("protocolVersion") if isinstance(result, dict) else None
            if isinstance(version, str) and version.isascii():
                self._session[_VERSION] = version
        return True

    def _fail(self, said: Json, why: str) -> None:
        """Answer a request that the server did not answer."""
        if _is_request(said):
            error = {"code": _NO_ANSWER, "message": f"{why}."}
            asked = None if said["id"] is _UNKNOWN else said["id"]
            document = {"jsonrpc": "2.0", "id": asked, "error": error}
            self._deliver(iter([json.dumps(document).encode()]), {})


def _is_request(said: Json) -> bool:
    return "id" in said and "method" in said


def _beginning(pieces: Iterator[bytes]) -> bytes:
    """Return so much of a message as is read at once: the whole, or more than may be logged."""
    found = bytearray()
    while len(found) <= MOST_LINE_BYTES and (piece := next(pieces, None)) is not None:
        found += piece
    return bytes(found)


def _data(first: ServerEvent, events: Iterator[ServerEvent]) -> Iterator[bytes]:
    """Yield the data of an event, of a long one in pieces."""
    one: ServerEvent | None = first
    while one is not None:
        yield one.data
        one = None if one.is_whole else next(events, None)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _shown(url: str) -> str:
    """Return an address without what may be secret: its user, password and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _checked(url: str, *, has_secrets: bool) -> str:
    """Return an address. Raises `Invalid`: it is none, or secrets would travel unencrypted."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    if parts.scheme not in {"http", "https"} or not host:
        raise Invalid("--url must be an address such as https://host/mcp.")
    has_secrets = has_secrets or parts.password is not None
    if has_secrets and parts.scheme == "http" and not is_loopback(host):
        raise Invalid(f"The secret would go to {host} unencrypted; use https.")
    return url
