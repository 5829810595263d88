"""The seven endpoints of the contract, and what each status means (seed 001)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import NoReturn
from urllib.parse import quote

from memtui.contract import Denied, Invalid, Json, NotFound, Unavailable, Unsupported

from .config import PluginConfig
from .transport import Reply, Transport, parsed
from .wire import (
    CURSOR,
    IDS,
    MOST_ROWS,
    HealthReply,
    NamespaceReply,
    Row,
    as_object,
    read_cursor,
    read_health,
    read_namespace,
    read_rows,
    read_written,
)

_NO_NAMESPACE = re.compile(
    r"foreign key|violates.*constraint|namespace.*(not|n't) exist", re.IGNORECASE
)
_BAD_VALUE = re.compile(
    r"type uuid|invalid byte sequence|0x00|\\u0000|22P02|22021|22P05", re.IGNORECASE
)
_KINDS = {401: Denied, 403: Denied, 404: NotFound, 405: Unsupported, 408: Unavailable,
          410: NotFound, 425: Unavailable, 429: Unavailable}  # fmt: skip
"""What a refusal means; any other is `Invalid`."""


class PluginClient:
    """Calls a plugin; every error is one of the contract's, in one sentence.

    A 5xx whose text blames the caller (a foreign key, a malformed UUID, a NUL), as the reference
    server answers, is `NotFound` or `Invalid` and no outage.
    """

    def __init__(self, config: PluginConfig) -> None:
        self._place = config.place
        self._transport = Transport(config)

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def health(self) -> HealthReply:
        """Ask how the plugin is and what it can do; 503 is an answer: degraded.

        A plugin without this endpoint is taken for one that says nothing of its abilities.
        """
        reply = await self._transport.read("GET", "/v1/health")
        if reply.status in {404, 405, 501}:
            return HealthReply("ok", message="The plugin has no health endpoint.")
        if reply.status == 503:
            return HealthReply("degraded", message=f"The plugin answers 503: {_said(reply)}.")
        if not 200 <= reply.status < 400:
            raise Unavailable(f"The plugin's health answered {reply.status}: {_said(reply)}.")
        self._check(reply, sent=False)
        found = read_health(await parsed(reply, sent=False))
        if found.capabilities is None:
            return found
        own = {word for word in (CURSOR, IDS) if word in reply.extensions}
        return replace(found, capabilities=found.capabilities | own)

    async def put_namespace(
        self, name: str, kind: str, expires_at: datetime | None = None, metadata: Json | None = None
    ) -> NamespaceReply:
        """Create a namespace, or replace it whole: an omitted expiry or metadata is cleared."""
        body = {"kind": kind, **_fields(expires_at, metadata)}
        reply = await self._transport.change("PUT", _namespace(name), body)
        self._check(reply, sent=True)
        return read_namespace(await parsed(reply, sent=True), name)

    async def patch_namespace(
        self, name: str, expires_at: datetime | None = None, metadata: Json | None = None
    ) -> NamespaceReply:
        """Set a namespace's expiry, or its metadata whole; neither can be cleared so."""
        body = _fields(expires_at, metadata)
        reply = await self._transport.change("PATCH", _namespace(name), body)
        self._check(reply, sent=True)
        return read_namespace(await parsed(reply, sent=True), name)

    async def delete_namespace(self, name: str) -> None:
        """Remove a namespace with every memory in it."""
        self._check(await self._transport.change("DELETE", _namespace(name)), sent=True)

    async def write(self, namespace: str, body: Json) -> str:
        """Store a memory and return its id. Raises `NotFound` for an unknown namespace."""
        reply = await self._transport.change("POST", f"{_namespace(namespace)}/memories", body)
        self._check(reply, sent=True)
        try:
            return read_written(await parsed(reply, sent=True))
        except Unavailable as error:
            raise Unavailable(str(error), sent=True) from error

    async def search(
        self,
        namespaces: Sequence[str],
        *,
        query: str | None = None,
        kinds: Sequence[str] | None = None,
        limit: int,
        embedding: Sequence[float] | None = None,
    ) -> tuple[list[Row], int]:
        """Return what several namespaces hold, and the number of rows that cannot be read."""
        body: Json = {"namespaces": list(namespaces), "limit": limit}
        optional = {"query": query, "kinds": kinds, "embedding": embedding}
        body |= {name: value for name, value in optional.items() if value}
        reply = await self._transport.read("POST", "/v1/search", body)
        self._check(reply, sent=False)
        return read_rows(await parsed(reply, sent=False))

    async def by_ids(self, namespaces: Sequence[str], ids: Sequence[str]) -> tuple[list[Row], int]:
        """Return the memories of these ids, at most 100; extension `memtui.ids`."""
        body: Json = {"namespaces": list(namespaces), "ids": list(ids), "limit": MOST_ROWS}
        reply = await self._transport.read("POST", "/v1/search", body)
        self._check(reply, sent=False)
        return read_rows(await parsed(reply, sent=False))

    async def page(
        self, namespaces: Sequence[str], cursor: str
    ) -> tuple[list[Row], int, str | None]:
        """Return the rows of a page, the unreadable ones' number, and where the list goes on.

        Extension `memtui.cursor`; the cursor of the first page is empty.
        """
        body: Json = {"namespaces": list(namespaces), "cursor": cursor, "limit": MOST_ROWS}
        reply = await self._transport.read("POST", "/v1/search", body)
        self._check(reply, sent=False)
        answer = await parsed(reply, sent=False)
        return *read_rows(answer), read_cursor(answer)

    async def forget(self, identity: str, namespace: str) -> bool:
        """Remove a memory; False where the namespace holds none of this id.

        An id that the plugin cannot have, such as no UUID, names nothing either.
        """
        path = f"/v1/memories/{quote(identity, safe='', errors='replace')}"
        reply = await self._transport.change("DELETE", path, {"requested_by_namespace": namespace})
        try:
            self._check(reply, sent=True)
        except (NotFound, Invalid):
            return False
        return True

    def _check(self, reply: Reply, *, sent: bool) -> None:
        if 200 <= reply.status < 300:
            return
        if 300 <= reply.status < 400:
            raise Unavailable(
                f"The memory plugin at {self._place} answered with a redirect, which memtui does "
                "not follow; give the binding the final address.",
            )
        if reply.status >= 500:
            self._refuse_5xx(reply, sent=sent)
        kind = _KINDS.get(reply.status, Invalid)
        raise kind(f"The plugin refused the call ({reply.status}): {_said(reply)}.")

    def _refuse_5xx(self, reply: Reply, *, sent: bool) -> NoReturn:
        said = _said(reply)
        if _BAD_VALUE.search(said):
            raise Invalid(f"The plugin cannot store this value: {said}.")
        if _NO_NAMESPACE.search(said):
            raise NotFound(f"The plugin knows no such namespace: {said}.")
        if reply.status == 501:
            raise Unsupported(f"The plugin does not offer this call: {said}.")
        raise Unavailable(
            f"The memory plugin at {self._place} failed ({reply.status}): {said}.", sent=sent
        )


def _namespace(name: str) -> str:
    return f"/v1/namespaces/{quote(name, safe='')}"


def _fields(expires_at: datetime | None, metadata: Json | None) -> Json:
    found: Json = {}
    if expires_at is not None:
        found["expires_at"] = expires_at.isoformat()
    if metadata is not None:
        found["metadata"] = metadata
    return found


def _said(reply: Reply) -> str:
    """Return what an error body says, JSON or not, short and on one line."""
    text = reply.text
    with suppress(ValueError, RecursionError, Unavailable):  # text/plain is as good
        found = as_object(json.loads(reply.body), "an error")
        text = f"{found.get('message') or found.get('code') or text}"
    return " ".join(text.split())[:200].rstrip(".") or "without a word"
