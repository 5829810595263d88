"""A wrapped server over streamable HTTP: the agent speaks stdio, and each message is a request.

The body of each request is the agent's line, and each message of the server becomes a line; only
line ends within one, which JSON has between its tokens alone, become spaces.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from http import HTTPStatus
from threading import Event, Lock, Thread, current_thread
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit, urlunsplit

import httpx

from memtui.channels.wrap.logging_process import LoggingProcess
from memtui.channels.wrap.passing import SIGNALS, Passing, pump, write_to
from memtui.contract import Invalid
from memtui.provider_kit.servers import is_loopback

_CONNECT_S = 10.0
_LAST_S = 5.0
"""How long the answers that are still missing are waited for once the agent has ended."""
_RETRY_S, _MOST_RETRY_S = 1.0, 60.0
_SESSION, _VERSION, _LAST_EVENT = "mcp-session-id", "mcp-protocol-version", "last-event-id"
_NO_ANSWER = -32000
_UNREACHABLE = 3


class ServerEvent(NamedTuple):
    """One event of a stream."""

    data: bytes
    event_id: str | None
    retry_s: float | None


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
        self.log = LoggingProcess()
        self.log.refused = self._ended.set
        self._passing = Passing(self._post, write_to(1), self.log, by_line=True)
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
        deadline = monotonic() + _LAST_S
        for one in list(self._exchanges):
            one.join(max(0.0, deadline - monotonic()))
        self._ended.set()

    def _post(self, line: bytes) -> None:
        """Send a message; what others depend on is waited for."""
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            said = None
        said = said if isinstance(said, dict) else {}
        is_request = "method" in said and "id" in said
        thread = Thread(target=self._exchange, args=[line.strip(b"\r\n"), said], daemon=True)
        self._exchanges.add(thread)
        thread.start()
        if not is_request or said["method"] == "initialize":
            thread.join()
        if said.get("method") == "notifications/initialized" and not self._listens:
            self._listens = True
            Thread(target=self._stream, args=[{}], name="memtui-wrap-listen", daemon=True).start()

    def _exchange(self, body: bytes, said: dict[str, Any]) -> None:
        """Post a message and pass on what the server answers."""
        try:
            if body:
                self._answer(body, said)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:  # the server's headers too
            self._fail(said, f"{self._shown} does not answer ({type(error).__name__})")
        finally:
            self._exchanges.discard(current_thread())

    def _answer(self, body: bytes, said: dict[str, Any], *, again: bool = True) -> None:
        headers = {"content-type": "application/json",
                   "accept": "application/json, text/event-stream", **self._session}  # fmt: skip
        with self._client.stream("POST", self._url, content=body, headers=headers) as response:
            self._has_answered = True
            moved = urljoin(self._url, response.headers.get("location", ""))
            if (
                response.status_code in {307, 308}
                and again
                and _origin(moved) == _origin(self._url)
            ):
                self._url = moved
                self._answer(body, said, again=False)
                return
            if said.get("method") == "initialize" and _SESSION in response.headers:
                self._session[_SESSION] = response.headers[_SESSION]
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                self._stream(said, response)
                return
            message = response.read()
            if response.status_code >= HTTPStatus.MULTIPLE_CHOICES and not _is_message(message):
                self._fail(said, f"{self._shown} answered {response.status_code}")
            elif message.strip():
                self._deliver(message, said)

    def _stream(self, said: dict[str, Any], response: httpx.Response | None = None) -> None:
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
                for event in events(found.iter_bytes()):
                    last, retry = event.event_id or last, event.retry_s or retry
                    if event.data and self._deliver(event.data, said):
                        return
            if response and not last:
                self._fail(said, f"{self._shown} broke off before it had answered")
                return
            response = None
            self._ended.wait(retry)

    def _deliver(self, message: bytes, said: dict[str, Any]) -> bool:
        """Pass on a message of the server; return whether it answers what the agent said."""
        line = message.replace(b"\r\n", b" ").replace(b"\n", b" ").replace(b"\r", b" ") + b"\n"
        answers = False
        if "id" in said and "method" in said:
            with suppress(ValueError, RecursionError):
                found = json.loads(line)
                found = found if isinstance(found, dict) else {}
                answers = found.get("id") == said["id"] and "method" not in found
                if answers and said["method"] == "initialize":
                    result = found.get("result")
                    version = result.get("protocolVersion") if isinstance(result, dict) else None
                    if isinstance(version, str) and version.isascii():
                        self._session[_VERSION] = version
        with self._delivering, suppress(OSError):  # the agent is gone
            self._passing.from_server(line)
        return answers

    def _fail(self, said: dict[str, Any], why: str) -> None:
        """Answer a request that the server did not answer."""
        if "id" in said and "method" in said:
            error = {"code": _NO_ANSWER, "message": f"{why}."}
            document = {"jsonrpc": "2.0", "id": said["id"], "error": error}
            self._deliver(json.dumps(document).encode(), {})


def events(chunks: Iterable[bytes]) -> Iterator[ServerEvent]:
    """Yield the events of a stream (html.spec.whatwg.org, "Server-sent events")."""
    rest, data, event_id, retry = b"", list[bytes](), None, None
    for chunk in chunks:
        rest += chunk
        held = b"\r" if rest.endswith(b"\r") else b""  # a line feed may follow
        *lines, rest = (
            rest.removesuffix(held).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        )
        rest += held
        for line in lines:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if not line:
                if data or event_id is not None or retry is not None:
                    yield ServerEvent(b"\n".join(data), event_id, retry)
                data, event_id, retry = [], None, None
            elif name == b"data":
                data.append(value)
            elif name == b"id" and b"\0" not in value:
                event_id = value.decode("utf-8", "replace")
            elif name == b"retry" and value.isdigit():
                retry = min(int(value[:9]) / 1_000, _MOST_RETRY_S)


def _is_message(body: bytes) -> bool:
    with suppress(ValueError, RecursionError):
        said = json.loads(body)
        return isinstance(said, dict) and "jsonrpc" in said
    return False


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
