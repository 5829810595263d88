"""Reads a plugin's replies leniently: nulls, missing and extra fields, any format of time.

An invalid row is left out and counted; an unreadable reply raises `Unreadable`. Text is not
changed.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from datetime import datetime

from memtui.contract import Json, Namespace
from memtui.provider_kit import from_epoch, read_moment
from memtui.provider_kit.servers import Unreadable, read_object

Place = tuple[str, str]
"""A namespace and the plugin's id of a memory in it."""
KINDS = ("fact", "summary", "checkpoint")
SOURCES = ("agent", "runtime", "user")
MOST_ROWS = 100
"""The most rows that the contract lets a search return."""
EXTENSIONS = "memtui-extensions"
"""The header of a health reply in which memtui's own server lists its extensions."""
CURSOR = "memtui.cursor"
"""The extension for listing page by page beyond that limit."""
IDS = "memtui.ids"
"""The extension for searching by memories' ids."""
_EPOCH_MS = 100_000_000_000
"""A time from this number on is in milliseconds since 1970, below it in seconds."""


@dataclass(frozen=True, slots=True)
class HealthReply:
    """A plugin's health. `capabilities` None: the plugin lists none."""

    status: str
    version: str | None = None
    capabilities: frozenset[str] | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class PluginMemory:
    """A memory from a search; `raw` is the unchanged row."""

    id: str
    namespace: str
    content: str
    kind: str
    source: str
    pin: bool
    created_at: datetime | None
    expires_at: datetime | None
    score: float | None
    raw: Json

    @property
    def revision(self) -> str:
        """A digest of the row, independent of the server's time zone."""
        created = self.created_at.isoformat() if self.created_at else None
        expires = self.expires_at.isoformat() if self.expires_at else self.raw.get("expires_at")
        pending = [self.namespace, self.id, self.content, self.kind, self.source, self.pin,
                self.raw.get("propagation") or None, created, expires]  # fmt: skip
        text = json.dumps(pending, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Hits:
    """The memories of a search; `Plugin` removes those that must not be shown."""

    memories: tuple[PluginMemory, ...] = ()
    returned: int = 0
    """Number of rows in the reply, including those removed here."""
    capped: bool = False
    """The reply has as many rows as requested, or as the plugin's known limit, so there may be
    more. A plugin that returns more than requested ignores the limit."""
    expired: int = 0
    strangers: int = 0
    """Number of memories of namespaces or kinds that were not requested."""
    unreadable: int = 0
    cursor: str | None = None
    """The next page's cursor; extension `memtui.cursor`."""

    @property
    def whole(self) -> bool:
        """Whether these are all memories."""
        return not (self.capped or self.unreadable)

    def by_place(self) -> dict[Place, PluginMemory]:
        """Return the memories by their place."""
        return {(one.namespace, one.id): one for one in self.memories}

    def joined(self, other: Hits) -> Hits:
        """Return the hits of both searches."""
        return Hits(
            (*self.memories, *other.memories),
            self.returned + other.returned,
            self.capped or other.capped,
            self.expired + other.expired,
            self.strangers + other.strangers,
            self.unreadable + other.unreadable,
        )


def moment(value: object) -> datetime | None:
    """Read a time in any format; without an offset it is UTC; None if it is no time."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return read_moment(value)
    return from_epoch(value, 1000 if value >= _EPOCH_MS else 1)


def read_health(body: bytes) -> HealthReply:
    """Read the reply of `GET /v1/health`. Raises `Unreadable`."""
    found = read_object(body)
    listed = found.get("capabilities")
    status, version = found.get("status"), found.get("version")
    return HealthReply(
        status="ok" if status == "ok" else "degraded",
        version=version if isinstance(version, str) else None,
        capabilities=(
            frozenset(one for one in listed if isinstance(one, str))
            if isinstance(listed, list)
            else None
        ),
        message="" if status == "ok" else f"The plugin says that it is {status!r}.",
    )


def read_namespace(body: bytes, name: str) -> Namespace:
    """Read a namespace. Raises `Unreadable`."""
    found = read_object(body)
    kind, metadata = found.get("kind"), found.get("metadata")
    return Namespace(
        name=name,
        kind=kind if isinstance(kind, str) else "custom",
        expires_at=moment(found.get("expires_at")),
        metadata=metadata if isinstance(metadata, dict) else {},
    )


def read_written(body: bytes) -> str:
    """Return the id that a write was stored under. Raises `Unreadable`."""
    found = _identity(read_object(body).get("id"))
    if found is None:
        raise Unreadable("the write has no id, so it may have failed")
    return found


def read_hits(body: bytes) -> Hits:
    """Read the reply of a search. Raises `Unreadable`.

    `memories` may be null, as servers in Go write an empty list, but must be present.
    """
    fields = read_object(body)
    listed, cursor = fields.get("memories"), fields.get("next_cursor")
    if "memories" not in fields or not isinstance(listed, list | None):
        raise Unreadable("the search has no list of memories")
    if not isinstance(cursor, str | None):
        raise Unreadable("the search's cursor is no text")
    found = tuple(one for one in map(read_memory, listed or ()) if one is not None)
    if listed and not found:
        raise Unreadable("none of the search's memories can be read")
    returned = len(listed or ())
    return Hits(
        found, returned, unreadable=returned - len(found),
        cursor=cursor or None,
    )  # fmt: skip


def read_memory(found: object) -> PluginMemory | None:
    """Read a row of a search; None if it is no memory."""
    if not isinstance(found, dict):
        return None
    identity, namespace, content = (found.get(name) for name in ("id", "namespace", "content"))
    identity = _identity(identity)
    if identity is None or not (isinstance(namespace, str) and isinstance(content, str)):
        return None
    kind, source = found.get("kind"), found.get("source")
    return PluginMemory(
        id=identity,
        namespace=namespace,
        content=content,
        kind=kind if isinstance(kind, str) and kind else "fact",
        source=source if isinstance(source, str) and source else "agent",
        pin=found.get("pin") is True,
        created_at=moment(found.get("created_at")),
        expires_at=moment(found.get("expires_at")),
        score=_number(found.get("score")),
        raw=found,
    )


def _identity(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < 2**128 else None
    if not isinstance(value, str) or any("\ud800" <= char <= "\udfff" for char in value):
        return None
    return value or None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
