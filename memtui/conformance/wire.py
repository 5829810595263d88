"""Requests to the server under test: bounded in time and size, each kept with its reply."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self
from urllib.parse import quote, urlsplit

from memtui.contract import Invalid, Json

from .report import SeenReply, SentRequest

if TYPE_CHECKING:
    import httpx

JSON_TYPE = "application/json"
_CONNECTIONS = 100
"""A hundred writes at once are a hundred connections."""
_MOST_BYTES = 32_000_000
_SHOWN_CHARACTERS = 2_000


class Failed(Exception):
    """A rule is broken; the text is one sentence that says how."""

    def __init__(
        self, sentence: str, request: SentRequest | None = None, reply: SeenReply | None = None
    ) -> None:
        super().__init__(sentence)
        self.request, self.reply = request, reply


class NoReply(Failed):
    """No whole reply came."""


@dataclass(frozen=True)
class Reply:
    """A request and what came back."""

    request: SentRequest
    status: int
    content_type: str | None
    body: bytes

    @cached_property
    def document(self) -> Any:
        """The body's JSON. Raises `Failed` where it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            self.fail(f"The body of this {self.status} is no JSON.")

    @property
    def fields(self) -> Json:
        """The body's JSON object. Raises `Failed` where it is none."""
        if not isinstance(self.document, dict):
            self.fail("The body is no JSON object.")
        return self.document

    @property
    def is_ok(self) -> bool:
        """Whether the status is one of success."""
        return 200 <= self.status < 300

    @property
    def is_refusal(self) -> bool:
        """Whether the status blames the caller."""
        return 400 <= self.status < 500

    @property
    def is_json(self) -> bool:
        """Whether the content type says JSON."""
        return (self.content_type or "").partition(";")[0].strip().lower() == JSON_TYPE

    def expect(self, *statuses: int, when: str = "") -> Self:
        """Return itself. Raises `Failed` for any other status."""
        if self.status not in statuses:
            due = " or ".join(str(status) for status in statuses)
            self.fail(f"Answered {self.status}{when and f' {when}'}; {due} is due.")
        return self

    def expect_ok(self) -> Self:
        """Return itself. Raises `Failed` unless the status is one of success."""
        if not self.is_ok:
            self.fail(f"Answered {self.status} to a good request.")
        return self

    def moment(self, name: str, fields: Json | None = None) -> datetime:
        """Return a field that is a moment with its zone. Raises `Failed` where it is none."""
        value = (self.fields if fields is None else fields).get(name)
        found = as_moment(value)
        if found is None:
            self.fail(f"{name} is {json.dumps(value)[:60]}, no RFC 3339 time with a zone.")
        return found

    def fail(self, sentence: str) -> NoReturn:
        """Raise `Failed` with this request and reply."""
        raise Failed(sentence, self.request, self.seen)

    @property
    def seen(self) -> SeenReply:
        """The reply as the report holds it."""
        return SeenReply(
            status=self.status, content_type=self.content_type, body=shortened(self.body)
        )


class Wire:
    """Kept connections to one server."""

    def __init__(self, base_url: str, uds: Path | None, timeout_s: float) -> None:
        import httpx

        self.timeout_s = timeout_s
        limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=20)
        is_tls = base_url.startswith("https:")  # its certificates take a while to load
        self._client = httpx.AsyncClient(
            base_url=base_url,
            transport=httpx.AsyncHTTPTransport(
                verify=is_tls, uds=str(uds) if uds else None, limits=limits
            ),
            timeout=None,  # noqa: S113 - `send` bounds each request as a whole
            headers={"accept": JSON_TYPE, "accept-encoding": "identity"},
            follow_redirects=False,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    async def send(
        self,
        method: str,
        path: str,
        body: Json | bytes | None = None,
        content_type: str | None = JSON_TYPE,
        patience: float = 1.0,
    ) -> Reply:
        """Send one request and return its reply, whatever the status.

        `patience` stretches the time that it may take.

        Raises:
            NoReply: nothing, or nothing whole, came back in time.
        """
        import httpx

        content = encoded(body) if isinstance(body, dict) else body
        shown = None if content is None else shortened(content)
        sent = SentRequest(method=method, path=path, body=shown)
        headers = {"content-type": content_type} if content is not None and content_type else {}
        longest = self.timeout_s * patience
        try:
            async with asyncio.timeout(longest):
                return await self._exchange(sent, content, headers)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise NoReply(f"No answer within {longest:g} s.", sent) from error
        except httpx.ConnectError as error:
            raise NoReply("The server takes no connection.", sent) from error
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
            name = type(error).__name__
            raise NoReply(f"The server broke the connection off ({name}).", sent) from error

    async def _exchange(
        self, sent: SentRequest, content: bytes | None, headers: dict[str, str]
    ) -> Reply:
        async with self._client.stream(
            sent.method, sent.path, content=content, headers=headers
        ) as response:
            body = await _bounded(response, sent)
            return Reply(sent, response.status_code, response.headers.get("content-type"), body)


async def _bounded(response: httpx.Response, sent: SentRequest) -> bytes:
    parts = bytearray()
    async for chunk in response.aiter_raw():
        parts += chunk
        if len(parts) > _MOST_BYTES:
            raise NoReply(f"The reply is longer than {_MOST_BYTES // 1_000_000} MB.", sent)
    return bytes(parts)


def checked_url(base_url: str) -> str:
    """Return the address without a slash at its end. Raises `Invalid` where it is none."""
    try:
        parts = urlsplit(base_url)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or parts.query or parts.fragment:
        raise Invalid("Give the plugin's address as a URL such as http://localhost:9100.")
    if parts.username or parts.password:
        raise Invalid("A plugin has no login; take the user and password out of the URL.")
    return base_url.rstrip("/")


def encoded(body: Json) -> bytes:
    """Return a body's bytes; characters stand for themselves, as most clients send them."""
    return json.dumps(body, ensure_ascii=False).encode()


def namespace_path(name: str) -> str:
    """Return a namespace's path, its colons unescaped as Go's clients send them."""
    return f"/v1/namespaces/{quote(name, safe=':')}"


def memory_path(identity: str) -> str:
    """Return a memory's path."""
    return f"/v1/memories/{quote(identity, safe='', errors='replace')}"


def as_moment(value: object) -> datetime | None:
    """Return an RFC 3339 time with its zone; None for anything else."""
    if not isinstance(value, str) or "T" not in value.upper():
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def readable(text: str) -> str:
    """Return a server's text without half characters, which no JSON of ours can carry."""
    return text.encode("utf-8", "replace").decode()


def shortened(content: bytes) -> str:
    """Return the start of a body as text, and how long it is where it was cut."""
    text = content[: _SHOWN_CHARACTERS * 4].decode("utf-8", "replace")[:_SHOWN_CHARACTERS]
    cut = len(text.encode()) < len(content)
    return f"{text}… ({len(content):,} bytes)" if cut else text
