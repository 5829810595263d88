"""A client of the contract's seven endpoints, with the meaning of each status (seed 001)."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from memtui.contract import (
    Denied,
    Invalid,
    Json,
    MemtuiError,
    Namespace,
    NotFound,
    Unavailable,
)
from memtui.provider_kit.servers import HttpReply, JsonApi, said_in

from .config import PluginConfig
from .wire import (
    CURSOR,
    EXTENSIONS,
    IDS,
    HealthReply,
    Hits,
    read_health,
    read_hits,
    read_namespace,
    read_written,
)

_PENDING = 202
_NO_NAMESPACE = re.compile(
    r"foreign key|violates.*constraint|namespace.*(not|n't) exist", re.IGNORECASE
)
_BAD_VALUE = re.compile(
    r"type uuid|invalid byte sequence|0x00|\\u0000|22P02|22021|22P05"
    r"|expected \d+ dimensions|different vector dimensions",
    re.IGNORECASE,
)


class PluginClient(JsonApi):
    """Calls a plugin; every error is one of the contract's, in one sentence.

    The reference server answers some errors of the caller (a foreign key, a malformed UUID, a NUL)
    with a 5xx: these are `NotFound` or `Invalid`, not an outage. For a change, `Unavailable.sent`
    is True once the plugin may have read it; for other calls, it is False only if an immediate
    retry may help.
    """

    def __init__(self, config: PluginConfig) -> None:
        super().__init__(
            f"The memory plugin at {config.place}",
            config.url or "http://plugin",
            seconds=config.timeout_seconds,
            most_bytes=int(config.max_reply_mb * 1_000_000),
            headers={"accept": "application/json"},
            socket=config.uds,
        )

    async def health(self) -> HealthReply:
        """Return the plugin's health and capabilities; 503 means degraded.

        A plugin without this endpoint is treated as one with unknown capabilities.
        """
        reply = await self.exchange("GET", "/v1/health", changes=False)
        if reply.status in {404, 405, 501}:
            return HealthReply("ok", message="The plugin has no health endpoint.")
        if reply.status == 503:
            return HealthReply("degraded", message=f"The plugin answers 503{said_in(reply.body)}.")
        if (error := self.refusal(reply, changes=False)) is not None:
            raise Unavailable(str(error))
        found = await self.read(reply, read_health, changes=False)
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
        return await self.ask("PUT", _namespace(name), partial(read_namespace, name=name), body)

    async def patch_namespace(
        self, name: str, expires_at: datetime | None = None, metadata: Json | None = None
    ) -> Namespace:
        """Set a namespace's expiry, or replace its metadata; neither can be cleared by this."""
        body = _fields(expires_at, metadata)
        return await self.ask("PATCH", _namespace(name), partial(read_namespace, name=name), body)

    async def delete_namespace(self, name: str) -> None:
        """Remove a namespace with every memory in it."""
        await self.send("DELETE", _namespace(name), changes=True)

    async def write(self, namespace: str, body: Json) -> str:
        """Store a memory and return its id. Raises `NotFound` for an unknown namespace."""
        return await self.ask("POST", f"{_namespace(namespace)}/memories", read_written, body)

    async def search(self, namespaces: Sequence[str], **asked: Any) -> Hits:
        """Search several namespaces by query, kinds and embedding, or by ids or cursor.

        The extension `memtui.ids` takes at most 100 ids; `memtui.cursor` starts with an empty one.
        """
        body = {"namespaces": list(namespaces), **asked}
        return await self.ask("POST", "/v1/search", read_hits, body, changes=False)

    async def forget(self, identity: str, namespace: str) -> bool:
        """Remove a memory; False if the namespace has none of this id.

        This includes ids that the plugin refuses, such as those that are no UUID.
        """
        path = f"/v1/memories/{quote(identity, safe='', errors='replace')}"
        try:
            await self.send("DELETE", path, {"requested_by_namespace": namespace}, changes=True)
        except (NotFound, Invalid):
            return False
        return True

    def refusal(self, reply: HttpReply, *, changes: bool) -> MemtuiError | None:
        """Return the contract's error for a reply; None: its status says success."""
        status = reply.status
        if status == _PENDING and b'"pending"' in reply.body[:4000]:
            return Denied(
                "The plugin holds the change for review by a person; nothing changes until it is "
                "accepted."
            )
        said = said_in(reply.body) if status >= 500 else ""  # not what it repeats of the request
        if _BAD_VALUE.search(said):
            return Invalid(f"The plugin cannot store this value{said}.")
        if _NO_NAMESPACE.search(said):
            return NotFound(f"The plugin knows no such namespace{said}.")
        return super().refusal(reply, changes=changes)


def _namespace(name: str) -> str:
    return f"/v1/namespaces/{quote(name, safe='')}"


def _fields(expires_at: datetime | None, metadata: Json | None) -> Json:
    found: Json = {} if expires_at is None else {"expires_at": expires_at.isoformat()}
    return found if metadata is None else {**found, "metadata": metadata}
