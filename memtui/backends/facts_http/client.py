"""The endpoints of seed 004 §6.4, and the bodies that the seed leaves open.

Every request carries `Authorization: Bearer TOKEN`; the token's owner is the user that
`/api/memory/user` speaks of.

| call                                | request           | reply                       |
|-------------------------------------|-------------------|-----------------------------|
| `GET /api/memory/user`              |                   | 200 `{"memories": [FACT]}`  |
| `POST /api/memory/user`             | `{"fact": "…"}`   | 201 FACT                    |
| `DELETE /api/memory/user/{id}`      |                   | 204                         |
| `GET /api/memory/drive/{driveId}`   |                   | 200 `{"memories": [FACT]}`  |
| `POST /api/memory/drive/{driveId}`  | `{"fact": "…"}`   | 201 FACT                    |
| `DELETE /api/memory/drive/{id}`     |                   | 204                         |

FACT is `{"id", "fact", "createdAt", "source", "createdBy"}`; `createdAt` is ISO 8601 in UTC,
`source` is `ai`, `user` or null, `createdBy` is there for drives. A refusal is
`{"error": {"kind": "…", "message": "…"}}` under 400 or 422 (invalid), 401 or 403 (denied), 404
(not found), 409 (conflict), 5xx (unavailable). Read with tolerance: a bare list, a null list, a
fact inside `{"memory": FACT}`, ids that are numbers, missing and unknown fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from memtui.contract import (
    Conflict,
    Denied,
    Invalid,
    MemtuiError,
    NotFound,
    RecordHandle,
    Unavailable,
)
from memtui.provider_kit import HttpClient, NoReply

T = TypeVar("T")

KEY = "facts-http"
_MESSAGE_CHARS = 200
_NO_REPLY = {
    "unreachable": "cannot be reached; check its url and whether it runs",
    "late": "did not answer within {0:g} s; try again",
    "broken": "broke off ({2}); try again",
    "compressed": "answered something unreadable: it is compressed, and nobody asked for that",
    "long": "answered something unreadable: it is larger than {1:,} bytes",
}


class FactsClient:
    """The calls, as one user.

    Every call raises the contract's errors; `Unavailable.sent` is true where a change may have
    been made all the same.
    """

    def __init__(
        self, url: str, token: str, *, socket: Path | None, seconds: float, most_bytes: int
    ) -> None:
        self._seconds, self._most_bytes = seconds, most_bytes
        self._http = HttpClient(
            url,
            socket=socket,
            seconds=seconds,
            most_bytes=most_bytes,
            headers={"Authorization": f"Bearer {token}"},
            trust_env=True,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def list_facts(self, kind: str, owner: str) -> list[WireFact]:
        """Return the facts of the token's `user`, or of the `drive` of that id."""
        return await self._call("GET", _path(kind, owner), _facts_of, sent=False)

    async def add(self, kind: str, owner: str, text: str) -> RecordHandle:
        """Store a fact about the token's `user`, or about the `drive` of that id."""
        fact = await self._call("POST", _path(kind, owner), _fact_of, text=text)
        return handle_of(kind, fact.id)

    async def delete(self, handle: RecordHandle) -> None:
        """Delete a fact. Raises `NotFound`."""
        kind, _, fact_id = handle.provider_record_id.partition(":")
        path = f"/api/memory/{kind}/{_segment(fact_id, what='The fact')}"
        await self._call("DELETE", path, lambda _body: None)

    async def _call(
        self,
        method: str,
        path: str,
        parse: Callable[[bytes], T],
        *,
        text: str | None = None,
        sent: bool = True,
    ) -> T:
        content, headers = None, {}
        if text is not None:
            body = json.dumps({"fact": text}, ensure_ascii=False, separators=(",", ":"))
            content, headers = body.encode(), {"Content-Type": "application/json"}
        try:
            reply = await self._http.send(method, path, content, headers)
            reply.require_plain()
            if not 200 <= reply.status < 300:
                raise _refusal(reply.status, reply.body, sent=sent)
            return parse(reply.body)
        except NoReply as error:
            said = _NO_REPLY[error.why].format(self._seconds, self._most_bytes, error)
            is_sent = sent and error.why != "unreachable"
            raise Unavailable(f"The facts' server {said}.", sent=is_sent) from error
        except _Unreadable as error:
            said = f"The facts' server answered something unreadable: {error}."
            raise Unavailable(said, sent=sent) from error


def handle_of(kind: str, fact_id: str) -> RecordHandle:
    """Return the handle of a fact of a `user` or a `drive`."""
    return RecordHandle(provider_key=KEY, provider_record_id=f"{kind}:{fact_id}")


def _path(kind: str, owner: str) -> str:
    if kind == "user":
        return "/api/memory/user"
    return f"/api/memory/drive/{_segment(owner, what='The drive')}"


def _as_text(value: object) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number else value


class WireFact(BaseModel):
    """A fact as the server tells it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: Annotated[str, BeforeValidator(_as_text), Field(min_length=1, max_length=1000)]
    fact: str
    created_at: Annotated[str | None, Field(alias="createdAt")] = None
    source: str | None = None
    created_by: Annotated[str | None, Field(alias="createdBy")] = None


class _Unreadable(Exception):
    """A reply that is not what the endpoints answer; its text says what is wrong."""


def _facts_of(body: bytes) -> list[WireFact]:
    """Return the facts of a list. Raises `Unreadable`."""
    value = _json(body)
    if isinstance(value, dict):
        if "memories" not in value:
            raise _Unreadable("the list has no memories")
        value = value["memories"]
    if value is None:
        return []
    if not isinstance(value, list):
        raise _Unreadable("memories is no list")
    return [_fact(item) for item in value]


def _fact_of(body: bytes) -> WireFact:
    """Return the fact that was stored. Raises `Unreadable`."""
    value = _json(body)
    if isinstance(value, dict) and isinstance(value.get("memory"), dict):
        value = value["memory"]
    return _fact(value)


def _refusal(status: int, body: bytes, *, sent: bool) -> MemtuiError:
    """Return the contract's error for a status that is no success."""
    said = _said(body)
    if status in {401, 403}:
        hint = "check the token" if status == 401 else "ask an owner for the right"
        return Denied(f"The facts' server refused{said}; {hint}.")
    if status == 404:
        return NotFound(f"The facts' server does not know it{said}; check the id and the url.")
    if status == 409:
        return Conflict(f"The facts' server has a conflict{said}; read the fact again.")
    if status in {400, 413, 422}:
        return Invalid(f"The facts' server does not take it{said}.")
    if 300 <= status < 400:
        return Unavailable("The facts' server redirects elsewhere; set url to its real address.")
    return Unavailable(f"The facts' server answered {status}{said}; try again.", sent=sent)


def _segment(name: str, *, what: str) -> str:
    """Return an id as one segment of a path. Raises `Invalid` where it cannot be one."""
    if name in {"", ".", ".."} or any("\ud800" <= char <= "\udfff" for char in name):
        raise Invalid(f"{what} has the id {name!r}, which no address can carry; use another.")
    return quote(name, safe="")


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _Unreadable("it is no JSON") from error


def _fact(value: object) -> WireFact:
    try:
        return WireFact.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "it"
        raise _Unreadable(f"a fact is wrong at {where}: {first['msg']}") from error


def _said(body: bytes) -> str:
    try:
        error = json.loads(body)["error"]
        message = error["message"] if isinstance(error, dict) else error
    except (ValueError, RecursionError, KeyError, TypeError):
        return ""
    words = " ".join(str(message)[: 4 * _MESSAGE_CHARS].split())[:_MESSAGE_CHARS]
    return f" ({words.rstrip('.')})" if words else ""
