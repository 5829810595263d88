"""The namespaces that a run made, and their removal."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

from memtui.contract import Json

from .wire import Failed, Reply, Wire, memory_path, namespace_path, readable

MARK = "memtui-conformance"
"""Stands in the name of every namespace that a run makes."""
_AT_ONCE = 8
_ROUNDS = 5
_SPACES_A_SEARCH = 50
_LEAST_SECONDS = 10.0


class Spaces:
    """Keeps account of what was made, so that it can go."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._run = secrets.token_hex(4)
        self._made: dict[str, bool] = {}
        """Each name that is not cleared yet, and whether the server may have made it."""
        self._memories: dict[str, None] = {}
        """The memories that outlived everything."""
        self._gate = asyncio.Semaphore(_AT_ONCE)

    def name(self, kind: str) -> str:
        """Return a new name. It is not made by that."""
        return f"{kind}:{MARK}-{self._run}-{secrets.token_hex(4)}"

    def add(self, name: str) -> bool:
        """Remember a namespace that may exist from now on; return whether it is a new one."""
        is_new = name not in self._made
        self._made[name] = True
        return is_new

    def refused(self, name: str) -> None:
        """Remember that the server did not make a namespace; its removal is tried all the same."""
        self._made[name] = False

    async def clear(self) -> None:
        """Remove every namespace and memory of the run, as far as the server lets it."""
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
        """What could not be removed, as a person would look it up."""
        spaces = [f"namespace {name}" for name, may_exist in self._made.items() if may_exist]
        return (*spaces, *self._memories)

    async def _sweep(self, names: Sequence[str]) -> None:
        """Forget the memories that outlived their namespaces."""
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
            return []  # a server may refuse to search where nothing is
        try:
            rows = reply.fields.get("memories")
        except Failed:
            return []  # the checks of searching say so
        known = set(names)
        return [
            (readable(str(row.get("id"))), row["namespace"])
            for row in (rows if isinstance(rows, list) else [])
            if isinstance(row, dict) and str(row.get("namespace")) in known
        ]

    async def _gone(self, path: str, body: Json | None = None) -> bool:
        reply = await self._ask("DELETE", path, body)
        return reply is not None and (reply.is_ok or reply.status in {400, 404, 410})

    async def _ask(self, method: str, path: str, body: Json | None = None) -> Reply | None:
        async with self._gate:
            try:
                return await self._wire.send(method, path, body)
            except Failed:
                return None
