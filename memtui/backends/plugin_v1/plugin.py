"""One open plugin: its client, what is known of it, and searching it with the reply cleaned."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TypeVar

from memtui.contract import BindingContext, NotFound, Scope, Unavailable

from .abilities import Abilities
from .client import PluginClient
from .config import PluginConfig
from .details import is_expired
from .notebook import Notebook
from .records import Place, Reader
from .scoping import NamespaceMap
from .wire import MOST_ROWS, HealthReply, Row

T = TypeVar("T")

_AT_ONCE = 8
_MOST_NOTED = 100_000
_SCOPE_IDS = ("project_id", "agent_id", "subject_id")


@dataclass(frozen=True, slots=True)
class Hits:
    """What a search returned, without what must not be shown.

    `capped`: as many rows came as were asked for, or as the plugin was seen to give at most, so
    there may be more. One that returns more than it was asked for ignores the limit.
    """

    rows: tuple[Row, ...] = ()
    returned: int = 0
    """How many came, with those left out here."""
    capped: bool = False
    expired: int = 0
    strangers: int = 0
    """Rows of namespaces or kinds that were not asked for."""
    unreadable: int = 0

    @property
    def whole(self) -> bool:
        """Whether these are all the memories there are."""
        return not (self.capped or self.unreadable)

    def joined(self, other: Hits) -> Hits:
        """Return both."""
        return Hits(
            (*self.rows, *other.rows),
            self.returned + other.returned,
            self.capped or other.capped,
            self.expired + other.expired,
            self.strangers + other.strangers,
            self.unreadable + other.unreadable,
        )


class Plugin:
    """What the parts of the adapter share."""

    def __init__(self, context: BindingContext, config: PluginConfig, notebook: Notebook) -> None:
        self.config = config
        self.client = PluginClient(config)
        self.notebook = notebook
        self.namespaces = NamespaceMap(config.templates, context.company_id)
        self.reader = Reader(context.company_id, self.namespaces)
        self.now = context.now
        self.abilities = Abilities()
        self.changing = asyncio.Lock()
        self.changing_namespaces = asyncio.Lock()
        self.generation = 0
        """Grows with every change made here; lists made before are stale."""
        self._noted: dict[Place, int] = {}
        """The hashes of texts that the notebook has, so that none is written at every search."""
        self.honest_rows = 0
        """So many rows came once and were seen to be all, so fewer are all of theirs too."""
        self._most_rows: int | None = None
        """How many rows the plugin gives at most where that is less than it is asked for."""
        self._asked_at: float | None = None

    async def close(self) -> None:
        """Close the connections and the notes."""
        await self.client.close()
        await asyncio.to_thread(self.notebook.close)

    async def recall(self) -> None:
        """Take up what was known of the plugin when it was last open."""

        def read() -> tuple[Abilities, int, int]:
            listed = json.loads(self.notebook.fact("capabilities") or "null")
            seen = [self.notebook.fact(name) for name in ("ids", "details")]
            ids, details = (value == "yes" if value else None for value in seen)
            known = Abilities(None if listed is None else frozenset(listed), ids, details)
            honest, most = (int(self.notebook.fact(name) or 0) for name in ("honest", "most"))
            return known, honest, most

        self.abilities, self.honest_rows, most = await asyncio.to_thread(read)
        self._most_rows = most or None

    async def ask_health(self) -> HealthReply:
        """Ask for health and take over the capabilities it lists. Raises `Unavailable`."""
        reply = await self.client.health()
        if reply.status == "ok" or reply.capabilities is not None:
            if reply.capabilities != self.abilities.listed:
                self.abilities = replace(
                    self.abilities, listed=reply.capabilities, details_seen=None
                )
                known = None if reply.capabilities is None else sorted(reply.capabilities)
                await asyncio.to_thread(self.notebook.learn, "capabilities", json.dumps(known))
                await asyncio.to_thread(self.notebook.learn, "details", "")
            self._asked_at = monotonic()
        return reply

    async def ready(self) -> None:
        """Refresh the capabilities where they are old; without any, the plugin must answer."""
        if self._asked_at is None:
            await self.ask_health()
        elif monotonic() - self._asked_at > self.config.refresh_seconds:
            self._asked_at = monotonic()
            try:
                await self.ask_health()
            except Unavailable:
                return  # the call itself will tell, and the old list is the best there is

    async def learn(self, *, ids: bool | None = None, details: bool | None = None) -> None:
        """Note what the plugin was seen to do."""
        for name, value in (("ids", ids), ("details", details)):
            if value is not None and getattr(self.abilities, f"{name}_seen") is not value:
                word = "yes" if value else "no"
                await asyncio.to_thread(self.notebook.learn, name, word)
        self.abilities = replace(
            self.abilities,
            ids_seen=self.abilities.ids_seen if ids is None else ids,
            details_seen=self.abilities.details_seen if details is None else details,
        )

    @staticmethod
    def is_company_wide(scope: Scope) -> bool:
        """Whether a scope sees every namespace that is known."""
        return all(getattr(scope, name) is None for name in _SCOPE_IDS)

    async def readable(self, scope: Scope) -> tuple[str, ...]:
        """Return the namespaces of a scope, the nearest first; the company's are all known ones."""
        names = self.namespaces.readable(scope, wider=self.config.read_wider)
        if not self.is_company_wide(scope):
            return names
        met = await asyncio.to_thread(self.notebook.namespaces)
        return tuple(dict.fromkeys((*names, *self.config.namespaces, *met)))

    async def search(
        self,
        namespaces: Sequence[str],
        *,
        query: str | None = None,
        kinds: Sequence[str] | None = None,
        limit: int | None = None,
        embedding: Sequence[float] | None = None,
    ) -> Hits:
        """Search, drop what the plugin should not have returned, and remember what is seen.

        Without a `limit` a whole page is asked for.
        """
        if not namespaces:
            return Hits()
        limit = limit or self.config.page_size
        try:
            rows, unreadable = await self.client.search(
                namespaces, query=query, kinds=kinds, limit=limit, embedding=embedding
            )
        except NotFound:
            return await self._each_alone(namespaces, query, kinds, limit, embedding)
        hits = await self._cleaned(rows, unreadable, namespaces, kinds)
        returned = len(rows) + unreadable
        most = min(limit, self._most_rows or limit)
        return replace(hits, returned=returned, capped=most <= returned <= limit)

    @property
    def page_rows(self) -> int:
        """How many rows a search shows at most, as far as is known."""
        return min(self.config.page_size, self._most_rows or self.config.page_size)

    def trust(self, rows: int) -> None:
        """Note that a search which returned so many rows returned all there were. Blocks."""
        self.honest_rows = max(rows, self.honest_rows)
        self.notebook.learn("honest", str(self.honest_rows))
        if self._most_rows is not None and rows > self._most_rows:
            self._most_rows = None
            self.notebook.learn("most", "")

    def cut_at(self, rows: int) -> None:
        """Note that a search returns so many rows at most, whatever it is asked for. Blocks."""
        self._most_rows = rows
        self.notebook.learn("most", str(rows))

    async def by_ids(self, namespaces: Sequence[str], ids: Sequence[str]) -> Hits:
        """Return the memories of these ids; extension `memtui.ids`."""
        found = Hits()
        for start in range(0, len(ids), MOST_ROWS):
            part = await self.client.by_ids(namespaces, ids[start : start + MOST_ROWS])
            found = found.joined(await self._cleaned(*part, namespaces))
        return found

    async def page(self, namespaces: Sequence[str], cursor: str) -> tuple[Hits, str | None]:
        """Return a page and where the list goes on; extension `memtui.cursor`."""
        rows, unreadable, more = await self.client.page(namespaces, cursor)
        return await self._cleaned(rows, unreadable, namespaces), more

    async def _cleaned(
        self,
        rows: Sequence[Row],
        unreadable: int,
        namespaces: Sequence[str],
        kinds: Sequence[str] | None = None,
    ) -> Hits:
        asked, now = set(namespaces), self.now()
        wanted = [
            row for row in rows if row.namespace in asked and (not kinds or row.kind in kinds)
        ]
        kept = tuple(row for row in wanted if not is_expired(row, now))
        await self.remember(kept)
        return Hits(
            rows=kept,
            expired=len(wanted) - len(kept),
            strangers=len(rows) - len(wanted),
            unreadable=unreadable,
        )

    async def _each_alone(
        self,
        namespaces: Sequence[str],
        query: str | None,
        kinds: Sequence[str] | None,
        limit: int,
        embedding: Sequence[float] | None,
    ) -> Hits:
        """Search each namespace by itself: the plugin does not know one of them."""
        if len(namespaces) == 1:
            return Hits()
        found = Hits()
        for name in namespaces:
            found = found.joined(
                await self.search(
                    [name], query=query, kinds=kinds, limit=limit, embedding=embedding
                )
            )
        return found

    async def remember(self, rows: Iterable[Row]) -> None:
        """Note where rows are, so that they can be found again."""
        known = self._noted
        seen = [row for row in rows if known.get((row.namespace, row.id)) != hash(row.content)]
        if not seen:
            return
        await asyncio.to_thread(
            self.notebook.note, [(row.namespace, row.id, row.content) for row in seen]
        )
        if len(known) > _MOST_NOTED:
            known.clear()
        known.update(((row.namespace, row.id), hash(row.content)) for row in seen)


async def together(calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Make calls a few at a time and return their answers in order.

    All end before the first error, if any, is raised.
    """
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Callable[[], Awaitable[T]]) -> T:
        async with turn:
            return await call()

    answers = await asyncio.gather(*map(one, calls), return_exceptions=True)
    done: list[T] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        done.append(answer)
    return done
