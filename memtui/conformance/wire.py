"""Requests to the server under test, bounded in time and size and recorded with their replies."""

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, Self
from urllib.parse import quote, urlsplit

from memtui.contract import Invalid, Json, Model
from memtui.provider_kit.servers import HttpClient, HttpReply, NoReply

JSON_TYPE = "application/json"
_CONNECTIONS = 100
"""Most connections: one check sends a hundred writes at once."""
_MOST_BYTES = 32_000_000
_SHOWN_CHARACTERS = 2_000
_SECOND = timedelta(seconds=1)


class SentRequest(Model):
    """A request as it was sent."""

    method: str
    path: str
    body: str | None = None
    """The body as text, truncated after some thousand characters; None without a body."""


class SeenReply(Model):
    """A reply as received. Foreign text: show it through `visible()`."""

    status: int
    content_type: str | None = None
    body: str = ""
    """The body as text, truncated after some thousand characters."""


class Failed(Exception):
    """A rule is broken; the message is one sentence that says how."""

    def __init__(
        self, sentence: str, request: SentRequest | None = None, reply: SeenReply | None = None
    ) -> None:
        super().__init__(sentence)
        self.request, self.reply = request, reply


class Silent(Failed):
    """No complete reply was received."""


@dataclass(frozen=True)
class Exchange:
    """A request and its reply."""

    request: SentRequest
    status: int
    content_type: str | None
    body: bytes

    @cached_property
    def document(self) -> Any:
        """The body as JSON. Raises `Failed` if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            self.fail(f"The body of this {self.status} is not JSON.")

    @property
    def fields(self) -> Json:
        """The body as a JSON object. Raises `Failed` if it is none."""
        if not isinstance(self.document, dict):
            self.fail("The body is not a JSON object.")
        return self.document

    @property
    def is_ok(self) -> bool:
        """Whether the status is a success (2xx)."""
        return 200 <= self.status < 300

    @property
    def is_refusal(self) -> bool:
        """Whether the status is a client error (4xx)."""
        return 400 <= self.status < 500

    @property
    def is_json(self) -> bool:
        """Whether the content type is JSON."""
        return (self.content_type or "").partition(";")[0].strip().lower() == JSON_TYPE

    def expect(self, *statuses: int, when: str = "") -> Self:
        """Return self. Raises `Failed` for any other status."""
        if self.status not in statuses:
            due = " or ".join(str(status) for status in statuses)
            self.fail(f"Answered {self.status}{when and f' {when}'}; {due} is expected.")
        return self

    def expect_ok(self) -> Self:
        """Return self. Raises `Failed` unless the status is a success."""
        if not self.is_ok:
            self.fail(f"Answered {self.status} to a valid request.")
        return self

    def expect_fields(self, wanted: Json, row: Json | None = None) -> None:
        """Raise `Failed` unless the body, or an object in it, has these values."""
        row = self.fields if row is None else row
        for field, value in wanted.items():
            if row.get(field) != value:
                self.fail(f"{field} is {quoted(row.get(field))}; {quoted(value)} is expected.")

    def expect_expiry(self, wanted: datetime, row: Json | None = None) -> None:
        """Raise `Failed` unless the body, or an object in it, expires at this moment."""
        moment = self.moment("expires_at", row)
        if abs(moment - wanted) > _SECOND:
            self.fail(f"expires_at is {moment.isoformat()}; {wanted.isoformat()} is expected.")

    def expect_message(self) -> None:
        """Raise `Failed` for a refusal without a message."""
        if not self.fields.get("message"):
            self.fail("The refusal does not say why.")

    def moment(self, name: str, fields: Json | None = None) -> datetime:
        """Return a field's time with zone. Raises `Failed` if the field has none."""
        value = (self.fields if fields is None else fields).get(name)
        found = as_moment(value)
        if found is None:
            self.fail(f"{name} is {json.dumps(value)[:60]}, no RFC 3339 time with a zone.")
        return found

    def fail(self, sentence: str) -> NoReturn:
        """Raise `Failed` with this request and reply."""
        seen = SeenReply(
            status=self.status, content_type=self.content_type, body=_shortened(self.body)
        )
        raise Failed(sentence, self.request, seen)


class ProbeClient:
    """Persistent connections to one server."""

    def __init__(self, base_url: str, uds: Path | None, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._client = HttpClient(
            base_url,
            socket=uds,
            seconds=timeout_s,
            most_bytes=_MOST_BYTES,
            headers={"accept": JSON_TYPE},
            connections=_CONNECTIONS,
        )
        self._under_way: set[asyncio.Task[HttpReply]] = set()

    async def settle(self) -> None:
        """Wait for the replies of abandoned requests, on which the server may still act."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=self.timeout_s)

    async def aclose(self) -> None:
        """Close the connections."""
        for request in self._under_way:
            request.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self._client.close()

    async def send(
        self,
        method: str,
        path: str,
        body: Json | bytes | None = None,
        content_type: str | None = JSON_TYPE,
        patience: float = 1.0,
    ) -> Exchange:
        """Send one request and return its reply, whatever the status.

        `patience` multiplies the time limit.

        Raises:
            Silent: no complete reply was received in time.
        """
        content = encoded(body) if isinstance(body, dict) else body
        shown = None if content is None else _shortened(content)
        sent = SentRequest(method=method, path=path, body=shown)
        headers = {"content-type": content_type} if content is not None and content_type else {}
        longest = self.timeout_s * patience
        request = asyncio.create_task(
            self._client.send(method, path, content, headers, seconds=longest)
        )
        self._under_way.add(request)
        request.add_done_callback(self._answered)
        try:
            reply = await asyncio.shield(request)
        except NoReply as error:
            sentences = {
                "late": f"No answer within {longest:g} s.",
                "unreachable": "The server accepts no connection.",
                "broken": f"The server broke off the connection ({error}).",
                "long": f"The reply is longer than {_MOST_BYTES // 1_000_000} MB.",
            }
            raise Silent(sentences[error.why], sent) from error
        return Exchange(sent, reply.status, reply.headers.get("content-type"), reply.body)

    def _answered(self, request: asyncio.Task[HttpReply]) -> None:
        self._under_way.discard(request)
        if not request.cancelled():
            request.exception()  # retrieved, so that asyncio does not report it


def checked_url(base_url: str) -> str:
    """Return the address without a trailing slash. Raises `Invalid` if it is malformed."""
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
    """Return a body as UTF-8 without escapes, as most clients send it."""
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


def quoted(value: object) -> str:
    """Return a value as JSON for a sentence, truncated."""
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"


def readable(text: str) -> str:
    """Return a server's text with lone surrogates replaced, as our JSON cannot encode them."""
    return text.encode("utf-8", "replace").decode()


def _shortened(content: bytes) -> str:
    """Return a body as text; if truncated, with its length in bytes."""
    text = content[: _SHOWN_CHARACTERS * 4].decode("utf-8", "replace")[:_SHOWN_CHARACTERS]
    cut = len(text.encode()) < len(content)
    return f"{text}… ({len(content):,} bytes)" if cut else text
