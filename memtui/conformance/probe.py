"""The base of the checks: their registration, the contract's calls, and cleanup of namespaces.

A function with the decorator `@check` is a check: its name is the check's, its docstring the rule.
Checks are listed in the order of their definition.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import secrets
import string
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, TypeVar

from memtui.contract import Json

from .wire import JSON_TYPE, Exchange, Failed, ProbeClient, memory_path, namespace_path, readable

# Where the contract states its rules: in the guide for plugin authors or the OpenAPI file.
GUIDE = "Writing a Memory Plugin"
IMPLEMENT = f"{GUIDE}, What you implement"
CONTRACT = f"{GUIDE}, What the contract is"
CAPABILITIES = f"{GUIDE}, Capability negotiation"
IDEMPOTENCY = f"{GUIDE}, Memory idempotency"
CARE = f"{GUIDE}, What workspace-server takes care of"
HEALTH = "OpenAPI v1, GET /v1/health"
PUT = "OpenAPI v1, PUT /v1/namespaces/{name}"
PATCH = "OpenAPI v1, PATCH /v1/namespaces/{name}"
DELETE = "OpenAPI v1, DELETE /v1/namespaces/{name}"
WRITE = "OpenAPI v1, POST /v1/namespaces/{name}/memories"
SEARCH = "OpenAPI v1, POST /v1/search"
FORGET = "OpenAPI v1, DELETE /v1/memories/{id}"
ERRORS = "OpenAPI v1, Error"

MARK = "memtui-conformance"
"""Part of the name of every namespace that a run creates."""
TURN_S = 0.02
"""Seconds between two writes whose order matters."""
_GRACE_S = 0.25
"""Seconds after an expiry by which a memory must be gone."""
_WRITES_AT_ONCE = 10
_REMOVALS_AT_ONCE = 8
_ROUNDS = 5
_SPACES_A_SEARCH = 50
_LEAST_SECONDS = 10.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ContractCheck:
    """One rule of the contract."""

    name: str
    rule: str
    """One sentence."""
    source: str
    """The rule's place in the contract."""
    needs: tuple[str, ...]
    """The capabilities that it requires."""
    alone: bool
    """It loads or attacks the server, so it runs alone, after the others."""
    run: Try


Try = Callable[["Probe"], Awaitable[None]]
"""Tests a rule: returns if it holds, raises `Failed` if it is broken."""
DEFINED: list[ContractCheck] = []


Checking = Callable[..., Awaitable[None]]
"""A check as it is written: it takes the probe and, if it names a `space`, a new namespace."""


def check(source: str, *needs: str, alone: bool = False) -> Callable[[Checking], Checking]:
    """Register a function as a check, with its rule's place and the capabilities it requires."""

    def add(function: Checking) -> Checking:
        async def run(probe: Probe) -> None:
            await function(probe, **({"space": await probe.space()} if takes_space else {}))

        takes_space = "space" in inspect.signature(function).parameters
        name = str(getattr(function, "__name__", "")).replace("_", "-")
        rule = " ".join((inspect.getdoc(function) or "").split())
        DEFINED.append(ContractCheck(name, rule, source, needs, alone, run))
        return function

    return add


class Spaces:
    """Records the namespaces that a run creates, to remove them."""

    def __init__(self, wire: ProbeClient) -> None:
        self._wire = wire
        self._run = secrets.token_hex(4)
        self._made: dict[str, bool] = {}
        """Each name that is not removed yet, and whether the server may have created it."""
        self._memories: dict[str, None] = {}
        """The memories that could not be removed."""
        self._gate = asyncio.Semaphore(_REMOVALS_AT_ONCE)

    def name(self, kind: str) -> str:
        """Return a new name, without creating a namespace."""
        return f"{kind}:{MARK}-{self._run}-{secrets.token_hex(4)}"

    def add(self, name: str) -> bool:
        """Record a namespace that may exist from now on; return whether it is new."""
        is_new = name not in self._made
        self._made[name] = True
        return is_new

    def refused(self, name: str) -> None:
        """Record that the server refused a namespace; its removal is still tried."""
        self._made[name] = False

    async def clear(self) -> None:
        """Remove every namespace and memory of the run, as far as the server allows.

        It first waits for requests of failed checks that are still running, to include their
        results.
        """
        await self._wire.settle()
        names = list(self._made)
        try:
            async with asyncio.timeout(max(_LEAST_SECONDS, 2 * self._wire.timeout_s)):
                gone = await asyncio.gather(*(self._gone(namespace_path(name)) for name in names))
                for start in range(0, len(names), _SPACES_A_SEARCH):
                    await self._sweep(names[start : start + _SPACES_A_SEARCH])
        except TimeoutError:
            return
        for name, is_gone in zip(names, gone, strict=True):
            if is_gone:
                del self._made[name]

    @property
    def leftovers(self) -> tuple[str, ...]:
        """Namespaces and memories that could not be removed, as a person would look them up."""
        spaces = [f"namespace {name}" for name, may_exist in self._made.items() if may_exist]
        return (*spaces, *self._memories)

    async def _sweep(self, names: Sequence[str]) -> None:
        """Forget the memories that remain after the removal of their namespaces."""
        for _ in range(_ROUNDS):
            rows = await self._rows(names)
            if not rows:
                return
            await asyncio.gather(
                *(
                    self._gone(memory_path(identity), {"requested_by_namespace": name})
                    for identity, name in rows
                )
            )
        left = await self._rows(names)
        self._memories |= {f"memory {identity} in {name}": None for identity, name in left}

    async def _rows(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """Return the id and namespace of memories that are still found in namespaces of the run."""
        body = {"namespaces": list(names), "limit": 100}
        reply = await self._ask("POST", "/v1/search", body)
        if reply is None or reply.status != 200:
            return []  # a server may refuse to search missing namespaces
        try:
            rows = reply.fields.get("memories")
        except Failed:
            return []  # the checks of searching report it
        known = set(names)
        return [
            (readable(str(row.get("id"))), row["namespace"])
            for row in (rows if isinstance(rows, list) else [])
            if isinstance(row, dict) and str(row.get("namespace")) in known
        ]

    async def _gone(self, path: str, body: Json | None = None) -> bool:
        reply = await self._ask("DELETE", path, body)
        return reply is not None and (reply.is_ok or reply.status in {400, 404, 410})

    async def _ask(self, method: str, path: str, body: Json | None = None) -> Exchange | None:
        async with self._gate:
            try:
                return await self._wire.send(method, path, body)
            except Failed:
                return None


@dataclass(frozen=True, slots=True)
class SearchRows:
    """A search's rows, and their reply."""

    rows: list[Json]
    reply: Exchange

    @property
    def ids(self) -> list[str]:
        """The rows' ids, in order."""
        return [str(row.get("id")) for row in self.rows]

    def row(self, identity: str) -> Json:
        """Return the row of an id. Raises `Failed` if there is none."""
        row = next((row for row in self.rows if row.get("id") == identity), None)
        if row is None:
            self.fail(f"The memory {identity} was stored, and the search does not return it.")
        return row

    def fail(self, sentence: str) -> NoReturn:
        """Raise `Failed` with the search and its reply."""
        self.reply.fail(sentence)


@dataclass(slots=True)
class Probe:
    """One check's access to the server."""

    wire: ProbeClient
    spaces: Spaces
    capabilities: frozenset[str]
    ttl_s: float
    """Distance of a short expiry, in seconds."""
    remark: str = ""
    """A note for a person although the check passes."""
    _last: Exchange | None = field(default=None, init=False)

    async def call(
        self,
        method: str,
        path: str,
        body: Json | bytes | None = None,
        content_type: str | None = JSON_TYPE,
        patience: float = 1.0,
    ) -> Exchange:
        """Send one request. Raises `Silent` without a complete reply."""
        self._last = await self.wire.send(method, path, body, content_type, patience)
        return self._last

    def fail(self, sentence: str) -> NoReturn:
        """Raise `Failed` with the last request and reply."""
        if self._last is None:
            raise Failed(sentence)
        self._last.fail(sentence)

    def name(self, kind: str = "custom") -> str:
        """Return an unused name for a namespace, which is removed if it is created."""
        return self.spaces.name(kind)

    async def put(self, name: str, body: Json) -> Exchange:
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

    async def delete(self, space: str) -> Exchange:
        """Ask to remove a namespace."""
        return await self.call("DELETE", namespace_path(space))

    async def post(self, space: str, body: Json | bytes, patience: float = 1.0) -> Exchange:
        """Send one memory to a namespace."""
        path = f"{namespace_path(space)}/memories"
        return await self.call("POST", path, body, patience=patience)

    async def write(self, space: str, content: str, **fields: Any) -> str:
        """Store a memory and return its id; any success status is accepted."""
        reply = (await self.post(space, memory(content, **fields))).expect_ok()
        identity = reply.fields.get("id")
        if not isinstance(identity, str) or not identity:
            reply.fail("The reply names no id.")
        return identity

    async def fill(self, space: str, contents: Iterable[str]) -> list[str]:
        """Store many memories, several at once, and return their ids."""
        gate = asyncio.Semaphore(_WRITES_AT_ONCE)

        async def one(content: str) -> str:
            async with gate:
                return await self.write(space, content)

        return await together(one(content) for content in contents)

    async def search(self, *spaces: str, **fields: Any) -> SearchRows:
        """Search namespaces, with a default limit of 100; null counts as no rows."""
        reply = await self.call(
            "POST", "/v1/search", {"namespaces": list(spaces), "limit": 100, **fields}
        )
        rows = reply.expect(200).fields.get("memories") or []
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            reply.fail("memories is not a list of objects.")
        return SearchRows(rows, reply)

    async def stored(self, space: str, identity: str) -> Json:
        """Return a memory as a search without a query returns it."""
        return (await self.search(space)).row(identity)

    async def forget(self, identity: str, space: str) -> Exchange:
        """Ask to remove a memory on behalf of a namespace."""
        body = {"requested_by_namespace": space}
        return await self.call("DELETE", memory_path(identity), body)

    async def until_past(self, moment: datetime) -> None:
        """Wait until a moment is past, and a little longer."""
        left = (moment - datetime.now(UTC)).total_seconds()
        await asyncio.sleep(max(0.0, left) + _GRACE_S)

    def soon(self, stretch: int = 1) -> datetime:
        """Return the moment of a short expiry, or of one `stretch` times as far away."""
        return datetime.now(UTC) + timedelta(seconds=self.ttl_s * stretch)


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of several calls; the first error cancels the others."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def memory(content: str, **fields: Any) -> Json:
    """Return the body of a valid write."""
    return {"content": content, "kind": "fact", "source": "agent"} | fields


def word() -> str:
    """Return a random word."""
    return "".join(random.choices(string.ascii_lowercase, k=14))  # noqa: S311 - no secret


def fresh_id() -> str:
    """Return an unused id."""
    return str(uuid.uuid4())


def hours(number: float) -> datetime:
    """Return the moment `number` hours from now."""
    return datetime.now(UTC) + timedelta(hours=number)


def same_items(one: Sequence[object], other: Sequence[object]) -> bool:
    """Whether two lists have the same items, in any order."""
    return sorted(map(repr, one)) == sorted(map(repr, other))
