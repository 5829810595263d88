"""A client of the contract's seven endpoints, with the meaning of each status (seed 001)."""

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import quote

from memtui.contract import Denied, Invalid, Json, Namespace, NotFound, Unavailable, Unsupported
from memtui.provider_kit.servers import HttpClient, HttpReply, NoReply, json_bytes

from .config import PluginConfig
from .wire import (
    CURSOR,
    EXTENSIONS,
    IDS,
    HealthReply,
    Hits,
    as_object,
    read_health,
    read_hits,
    read_namespace,
    read_written,
)

_PENDING = 202
_THREAD_BYTES = 500_000
"""JSON longer than this is parsed in a thread."""
_NO_NAMESPACE = re.compile(
    r"foreign key|violates.*constraint|namespace.*(not|n't) exist", re.IGNORECASE
)
_BAD_VALUE = re.compile(
    r"type uuid|invalid byte sequence|0x00|\\u0000|22P02|22021|22P05"
    r"|expected \d+ dimensions|different vector dimensions",
    re.IGNORECASE,
)
_KINDS = {401: Denied, 403: Denied, 404: NotFound, 405: Unsupported, 408: Unavailable,
          410: NotFound, 425: Unavailable, 429: Unavailable}  # fmt: skip
"""The error for a status; any other refusal is `Invalid`."""
_NO_REPLY = {
    "unreachable": "cannot be reached; check that it runs and that the binding's address is right",
    "late": "did not answer within {0.timeout_seconds:g} s; raise the binding's timeout_seconds if "
    "it needs longer",
    "broken": "broke off its answer ({error}); check its log",
    "compressed": "sent a compressed answer, which memtui does not read; turn compression off",
    "long": "answered with more than {0.max_reply_mb:g} MB; raise the binding's max_reply_mb to "
    "read it",
}


class PluginClient:
    """Calls a plugin; every error is one of the contract's, in one sentence.

    The reference server answers some errors of the caller (a foreign key, a malformed UUID, a NUL)
    with a 5xx: these are `NotFound` or `Invalid`, not an outage. For a change, `Unavailable.sent`
    is True once the plugin may have read it; for other calls, it is False only if an immediate
    retry may help.
    """

    def __init__(self, config: PluginConfig) -> None:
        self._config = config
        self._http = HttpClient(
            config.url or "http://plugin",
            socket=config.uds,
            seconds=config.timeout_seconds,
            most_bytes=int(config.max_reply_mb * 1_000_000),
            headers={"accept": "application/json"},
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def health(self) -> HealthReply:
        """Return the plugin's health and capabilities; 503 means degraded.

        A plugin without this endpoint is treated as one with unknown capabilities.
        """
        reply = await self._send("GET", "/v1/health", changes=False)
        if reply.status in {404, 405, 501}:
            return HealthReply("ok", message="The plugin has no health endpoint.")
        if reply.status == 503:
            return HealthReply("degraded", message=f"The plugin answers 503: {_said(reply)}.")
        if not 200 <= reply.status < 400:
            raise Unavailable(f"The plugin's health answered {reply.status}: {_said(reply)}.")
        self._check(reply, changes=False)
        found = read_health(await _parsed(reply, changes=False))
        if found.capabilities is None:
            return found
        extensions = reply.headers.get(EXTENSIONS, "").split()
        own = {word for word in (CURSOR, IDS) if word in extensions}
        return replace(found, capabilities=found.capabilities | own)

    async def put_namespace(
        self, name: str, kind: str, expires_at: datetime | None = None, metadata: Json | None = None
    ) -> Namespace:
        """Create a namespace, or replace it: an omitted expiry or metadata is cleared."""
        body = {"kind": kind, **_fields(expires_at, metadata)}
        return read_namespace(await self._ask("PUT", _namespace(name), body), name)

    async def patch_namespace(
        self, name: str, expires_at: datetime | None = None, metadata: Json | None = None
    ) -> Namespace:
        """Set a namespace's expiry, or replace its metadata; neither can be cleared by this."""
        body = _fields(expires_at, metadata)
        return read_namespace(await self._ask("PATCH", _namespace(name), body), name)

    async def delete_namespace(self, name: str) -> None:
        """Remove a namespace with every memory in it."""
        self._check(await self._send("DELETE", _namespace(name)))

    async def write(self, namespace: str, body: Json) -> str:
        """Store a memory and return its id. Raises `NotFound` for an unknown namespace."""
        answer = await self._ask("POST", f"{_namespace(namespace)}/memories", body)
        try:
            return read_written(answer)
        except Unavailable as error:
            raise Unavailable(str(error), sent=True) from error

    async def search(self, namespaces: Sequence[str], **asked: Any) -> Hits:
        """Search several namespaces by query, kinds and embedding, or by ids or cursor.

        The extension `memtui.ids` takes at most 100 ids; `memtui.cursor` starts with an empty one.
        """
        body = {"namespaces": list(namespaces), **asked}
        return read_hits(await self._ask("POST", "/v1/search", body, changes=False))

    async def forget(self, identity: str, namespace: str) -> bool:
        """Remove a memory; False if the namespace has none of this id.

        This includes ids that the plugin refuses, such as those that are no UUID.
        """
        path = f"/v1/memories/{quote(identity, safe='', errors='replace')}"
        reply = await self._send("DELETE", path, {"requested_by_namespace": namespace})
        try:
            self._check(reply)
        except (NotFound, Invalid):
            return False
        return True

    async def _ask(self, method: str, path: str, body: Json, *, changes: bool = True) -> Any:
        reply = await self._send(method, path, body, changes=changes)
        self._check(reply, changes=changes)
        return await _parsed(reply, changes=changes)

    async def _send(
        self, method: str, path: str, body: Json | None = None, *, changes: bool = True
    ) -> HttpReply:
        content = None if body is None else json_bytes(body)
        headers = {} if body is None else {"content-type": "application/json"}
        try:
            reply = await self._http.send(method, path, content, headers)
            reply.require_plain()
        except NoReply as error:
            may_help = error.why == "unreachable" or (error.why == "broken" and not changes)
            said = _NO_REPLY[error.why].format(self._config, error=error)
            raise Unavailable(
                f"The memory plugin at {self._config.place} {said}.", sent=not may_help
            ) from error
        return reply

    def _check(self, reply: HttpReply, *, changes: bool = True) -> None:
        if reply.status == _PENDING and '"pending"' in _text(reply):
            raise Denied(
                f"The memory plugin at {self._config.place} holds the change for review by a "
                "person; nothing changes until it is accepted."
            )
        if 200 <= reply.status < 300:
            return
        if 300 <= reply.status < 400:
            raise Unavailable(
                f"The memory plugin at {self._config.place} answered with a redirect, which memtui "
                "does not follow; give the binding the final address.",
            )
        said = _said(reply)
        if reply.status < 500:
            kind = _KINDS.get(reply.status, Invalid)
            raise kind(f"The plugin refused the call ({reply.status}): {said}.")
        if _BAD_VALUE.search(said):
            raise Invalid(f"The plugin cannot store this value: {said}.")
        if _NO_NAMESPACE.search(said):
            raise NotFound(f"The plugin knows no such namespace: {said}.")
        if reply.status == 501:
            raise Unsupported(f"The plugin does not offer this call: {said}.")
        raise Unavailable(
            f"The memory plugin at {self._config.place} failed ({reply.status}): {said}.",
            sent=changes,
        )


def _namespace(name: str) -> str:
    return f"/v1/namespaces/{quote(name, safe='')}"


def _fields(expires_at: datetime | None, metadata: Json | None) -> Json:
    found: Json = {} if expires_at is None else {"expires_at": expires_at.isoformat()}
    return found if metadata is None else {**found, "metadata": metadata}


def _text(reply: HttpReply) -> str:
    return reply.body[:4000].decode("utf-8", "replace")


def _said(reply: HttpReply) -> str:
    """Return the message of an error body, JSON or not, short and on one line."""
    text = _text(reply)
    with suppress(ValueError, RecursionError, Unavailable):  # plain text is used as it is
        found = as_object(json.loads(reply.body), "an error")
        text = f"{found.get('message') or found.get('code') or text}"
    return " ".join(text.split())[:200].rstrip(".") or "without a word"


async def _parsed(reply: HttpReply, *, changes: bool) -> Any:
    try:
        if len(reply.body) > _THREAD_BYTES:
            return await asyncio.to_thread(json.loads, reply.body)
        return json.loads(reply.body)
    except (ValueError, RecursionError) as error:
        start = " ".join(_text(reply).split())[:60] or "nothing"
        raise Unavailable(
            f"The plugin answered {reply.status} with something that is not JSON ({start}); "
            "check that the address is a memory plugin's.",
            sent=changes,
        ) from error
