"""What a check works with: a server, namespaces of its own, and the calls of the contract."""

from __future__ import annotations

import asyncio
import json
import random
import string
import uuid
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, TypeVar

from memtui.contract import Json

from .spaces import Spaces
from .wire import JSON_TYPE, Failed, Reply, Wire, memory_path, namespace_path

_GRACE_S = 0.25
"""How long after an expiry a memory must be gone."""
_AT_ONCE = 10
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found:
    """A search's rows, and the reply that held them."""

    rows: list[Json]
    reply: Reply

    @property
    def ids(self) -> list[str]:
        """The rows' ids, as they stand."""
        return [str(row.get("id")) for row in self.rows]

    @property
    def contents(self) -> list[Any]:
        """The rows' contents, as they stand."""
        return [row.get("content") for row in self.rows]

    def row(self, identity: str) -> Json:
        """Return the row of an id. Raises `Failed` where there is none."""
        row = next((row for row in self.rows if row.get("id") == identity), None)
        if row is None:
            self.fail(f"The memory {identity} was stored, and the search does not return it.")
        return row

    def fail(self, sentence: str) -> NoReturn:
        """Raise `Failed` with the search and its reply."""
        self.reply.fail(sentence)


@dataclass(slots=True)
class Probe:
    """One check's way to the server."""

    wire: Wire
    spaces: Spaces
    capabilities: frozenset[str]
    ttl_s: float
    """How far ahead a short expiry lies."""
    remark: str = ""
    """What a person should know although the check passes."""
    _last: Reply | None = field(default=None, init=False)

    async def call(
        self,
        method: str,
        path: str,
        body: Json | bytes | None = None,
        content_type: str | None = JSON_TYPE,
        patience: float = 1.0,
    ) -> Reply:
        """Send one request. Raises `NoReply` where no whole reply comes."""
        self._last = await self.wire.send(method, path, body, content_type, patience)
        return self._last

    def fail(self, sentence: str) -> NoReturn:
        """Raise `Failed` with the last request and reply."""
        if self._last is None:
            raise Failed(sentence)
        self._last.fail(sentence)

    def name(self, kind: str = "custom") -> str:
        """Return the name of a namespace that nobody has; what is made of it is removed."""
        return self.spaces.name(kind)

    async def put(self, name: str, body: Json) -> Reply:
        """Create or replace a namespace; it is removed when the run is over."""
        is_new = self.spaces.add(name)
        reply = await self.call("PUT", namespace_path(name), body)
        if is_new and reply.is_refusal:
            self.spaces.refused(name)
        return reply

    async def space(self, kind: str = "custom", **fields: Any) -> str:
        """Return the name of a new namespace."""
        name = self.name(kind)
        (await self.put(name, {"kind": kind, **fields})).expect_ok()
        return name

    async def post(self, space: str, body: Json | bytes, patience: float = 1.0) -> Reply:
        """Send one memory to a namespace."""
        path = f"{namespace_path(space)}/memories"
        return await self.call("POST", path, body, patience=patience)

    async def write(self, space: str, content: str, **fields: Any) -> str:
        """Store a memory and return its id; any status of success will do."""
        reply = (await self.post(space, memory(content, **fields))).expect_ok()
        identity = reply.fields.get("id")
        if not isinstance(identity, str) or not identity:
            reply.fail("The reply names no id.")
        return identity

    async def fill(self, space: str, contents: Iterable[str]) -> list[str]:
        """Store many memories, several at once, and return their ids."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(content: str) -> str:
            async with gate:
                return await self.write(space, content)

        return await together(one(content) for content in contents)

    async def search(self, *spaces: str, **fields: Any) -> Found:
        """Search namespaces, with a limit of 100 unless told otherwise; null counts as no rows."""
        reply = await self.call(
            "POST", "/v1/search", {"namespaces": list(spaces), "limit": 100, **fields}
        )
        rows = reply.expect(200).fields.get("memories") or []
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            reply.fail("memories is no list of objects.")
        return Found(rows, reply)

    async def stored(self, space: str, identity: str) -> Json:
        """Return a memory as a search without a query returns it."""
        return (await self.search(space)).row(identity)

    async def forget(self, identity: str, space: str) -> Reply:
        """Ask to remove a memory on behalf of a namespace."""
        body = {"requested_by_namespace": space}
        return await self.call("DELETE", memory_path(identity), body)

    async def alive(self) -> None:
        """Raise `Failed` unless health answers."""
        (await self.call("GET", "/v1/health")).expect(200, when="after that")

    async def until_past(self, moment: datetime) -> None:
        """Wait until a moment is past, and a little longer."""
        left = (moment - datetime.now(UTC)).total_seconds()
        await asyncio.sleep(max(0.0, left) + _GRACE_S)

    def soon(self, stretch: int = 1) -> datetime:
        """Return the moment of a short expiry, or of one so many times as long."""
        return datetime.now(UTC) + timedelta(seconds=self.ttl_s * stretch)


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return what several calls give; the first error ends them all."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def memory(content: str, **fields: Any) -> Json:
    """Return the body of a good write."""
    return {"content": content, "kind": "fact", "source": "agent"} | fields


def word() -> str:
    """Return a word that nobody wrote before."""
    return "".join(random.choices(string.ascii_lowercase, k=14))  # noqa: S311 - no secret


def fresh_id() -> str:
    """Return an id that nobody has."""
    return str(uuid.uuid4())


def hours(number: float) -> datetime:
    """Return the moment so many hours from now."""
    return datetime.now(UTC) + timedelta(hours=number)


def quoted(value: object) -> str:
    """Return a value as JSON for a sentence, cut short."""
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"


def same_items(one: Sequence[object], other: Sequence[object]) -> bool:
    """Whether two lists hold the same, whatever the order."""
    return sorted(map(repr, one)) == sorted(map(repr, other))
