"""One open plugin: its abilities, searches with cleaned replies, and lookup by id.

The contract has no lookup by id, except with the extension `memtui.ids`. A namespace of fewer than
100 memories is read completely, so an id that is not in it does not exist. In a larger one, memtui
searches the newest 100, the newest 100 of each kind, and by the words that the memory was last seen
with; an id that these do not find may or may not exist.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import NamedTuple

from memtui.contract import (
    BindingContext,
    Capabilities,
    Denied,
    Invalid,
    Json,
    NotFound,
    Record,
    Scope,
    Unavailable,
    Usage,
)
from memtui.embedding import Embedder
from memtui.provider_kit import is_uuid, together

from .client import PluginClient
from .config import NamespaceMap, PluginConfig
from .id_cache import IdCache, telling_words
from .memories import is_expired, is_readable, record_of
from .wire import IDS, KINDS, MOST_ROWS, HealthReply, Hits, Place, PluginMemory

_MOST_NOTED = 100_000
_EMBEDDED_CHARS = 6_000
"""Characters embedded of a text, as in a vault."""
_EMBED_SECONDS, _REST_SECONDS = 5.0, 30.0
"""How long a write or a query waits for the model, and how long one that failed is not asked."""
SCOPE_IDS = ("project_id", "agent_id", "subject_id")


@dataclass(frozen=True, slots=True)
class Abilities:
    """A plugin's listed and observed abilities; None: not listed, or not observed yet.

    A plugin that lists capabilities is assumed to follow the contract until observed otherwise; for
    one that lists none, nothing is assumed.
    """

    listed: frozenset[str] | None = None
    """embedding, fts, ttl, pin, propagation, and memtui's extensions."""
    ids_seen: bool | None = None
    """Whether a memory was stored under the id that was sent."""
    details_seen: bool | None = None
    """Whether `propagation` came back as it was sent."""

    def has(self, name: str) -> bool:
        """Whether the plugin lists a capability."""
        return self.listed is not None and name in self.listed

    def keeps(self, name: str) -> bool:
        """Whether an expiry (`ttl`) or a `pin` is stored, by the plugin or in `propagation`."""
        return self.has(name) or self.keeps_details

    @property
    def keeps_ids(self) -> bool:
        """Whether a write with an id is an upsert on it."""
        return self.listed is not None if self.ids_seen is None else self.ids_seen

    @property
    def keeps_details(self) -> bool:
        """Whether the plugin returns `propagation` as it was sent."""
        return self.has("propagation") if self.details_seen is None else self.details_seen

    @property
    def is_exact(self) -> bool:
        """Whether a memory can be restored exactly."""
        return self.keeps_ids and self.keeps_details

    @property
    def capabilities(self) -> Capabilities:
        """The abilities as the adapter contract's capabilities, without a model of memtui's."""
        return Capabilities(
            browse=True,
            correction=True,
            explain=True,
            namespaces=True,
            namespace_changes=True,
            restore=self.is_exact,
            keeps_ids=self.is_exact,
            summaries=self.keeps_details,
            expiry=self.has("ttl"),
            pin=self.has("pin"),
            full_text=self.has("fts"),
            given_embeddings=self.has("embedding"),
        )


@dataclass(frozen=True, slots=True)
class Lookup:
    """`memory` None and `certain`: it does not exist. Not `certain`: it was out of reach."""

    memory: PluginMemory | None = None
    certain: bool = True


class Embedded(NamedTuple):
    """A text's vector; None: it has none, and `lacking` says why."""

    vector: list[float] | None = None
    usage: tuple[Usage, ...] = ()
    lacking: str = ""


class Plugin:
    """An open plugin, shared by the parts of the adapter."""

    def __init__(
        self,
        context: BindingContext,
        config: PluginConfig,
        cache: IdCache,
        embedder: Embedder | None = None,
        trouble: str = "",
    ) -> None:
        self.config = config
        self.embedder = embedder
        self.trouble = trouble
        """Why the model could last not be used; empty: it could, or the binding has none."""
        self._rests_until = 0.0
        self.client = PluginClient(config)
        self.cache = cache
        self.namespaces = NamespaceMap(config.templates, context.company_id)
        self.now = context.now
        self.abilities = Abilities()
        self.changing = asyncio.Lock()
        self.changing_namespaces = asyncio.Lock()
        self.generation = 0
        """Grows with every change made here; earlier lists are then stale."""
        self._noted: dict[Place, int] = {}
        """Hashes of the texts in the cache, to avoid writing them again at every search."""
        self.honest_rows = 0
        """Largest number of rows that was verified as complete; fewer rows count as complete."""
        self._most_rows: int | None = None
        """The plugin's own limit of rows, where it is below the requested one."""
        self._asked_at: float | None = None

    def record(self, memory: PluginMemory) -> Record:
        """Return a memory as the contract's record."""
        return record_of(memory, self.namespaces)

    async def close(self) -> None:
        """Close the connections and the cache."""
        if self.embedder is not None:
            self.embedder.close()
        await self.client.close()
        await asyncio.to_thread(self.cache.close)

    async def embed(self, text: str, *, is_query: bool = False) -> Embedded:
        """Return the vector of a text by the binding's model, for a plugin that takes vectors.

        A model that is not reachable does not stop a write or a query: it is done without.
        """
        if not self.abilities.has("embedding") or not text.strip():
            return Embedded()
        if self.embedder is not None and monotonic() >= self._rests_until:
            work = partial(self.embedder.embed, [text[:_EMBEDDED_CHARS]], is_query=is_query)
            try:
                async with asyncio.timeout(_EMBED_SECONDS):
                    found = await asyncio.to_thread(work)
            except (Unavailable, Invalid, Denied) as error:
                self.trouble = str(error)
            except TimeoutError:
                self.trouble = f"{self.embedder.name} did not answer within {_EMBED_SECONDS:g} s."
            else:
                self.trouble = ""
                is_known = bool(found.vectors[0].any())
                return Embedded(found.vectors[0].tolist() if is_known else None, found.usage)
            self._rests_until = monotonic() + _REST_SECONDS
        return Embedded(lacking=self.trouble and f"It has no vector: {self.trouble}")

    # Abilities

    async def recall(self) -> None:
        """Load the observations on the plugin from the cache."""

        def read() -> tuple[Abilities, int, int]:
            listed = json.loads(self.cache.fact("capabilities") or "null")
            seen = [self.cache.fact(name) for name in ("ids", "details")]
            ids, details = (value == "yes" if value else None for value in seen)
            known = Abilities(None if listed is None else frozenset(listed), ids, details)
            honest, most = (int(self.cache.fact(name) or 0) for name in ("honest", "most"))
            return known, honest, most

        self.abilities, self.honest_rows, most = await asyncio.to_thread(read)
        self._most_rows = most or None

    async def ask_health(self) -> HealthReply:
        """Request the plugin's health and adopt its capabilities. Raises `Unavailable`."""
        reply = await self.client.health()
        if reply.status == "ok" or reply.capabilities is not None:
            if reply.capabilities != self.abilities.listed:
                self.abilities = replace(
                    self.abilities, listed=reply.capabilities, details_seen=None
                )
                known = None if reply.capabilities is None else sorted(reply.capabilities)
                await asyncio.to_thread(self.cache.learn, "capabilities", json.dumps(known))
                await asyncio.to_thread(self.cache.learn, "details", "")
            self._asked_at = monotonic()
        return reply

    async def ready(self) -> None:
        """Refresh old capabilities; if none are known, the plugin must answer."""
        if self._asked_at is None:
            await self.ask_health()
        elif monotonic() - self._asked_at > self.config.refresh_seconds:
            self._asked_at = monotonic()
            try:
                await self.ask_health()
            except Unavailable:
                return  # the call itself will fail if it must; until then, use the old list

    async def learn(self, name: str, *, seen: bool) -> None:
        """Store the observation whether the plugin keeps `ids` or `details`."""
        changes: Json = {f"{name}_seen": seen}
        known = replace(self.abilities, **changes)
        if known != self.abilities:
            await asyncio.to_thread(self.cache.learn, name, "yes" if seen else "no")
        self.abilities = replace(self.abilities, **changes)

    def trust(self, rows: int) -> None:
        """Record that a search with this number of rows was complete. Blocking."""
        self.honest_rows = max(rows, self.honest_rows)
        self.cache.learn("honest", str(self.honest_rows))
        if self._most_rows is not None and rows > self._most_rows:
            self._most_rows = None
            self.cache.learn("most", "")

    def cut_at(self, rows: int) -> None:
        """Record that a search returns at most this number of rows, despite `limit`. Blocking."""
        self._most_rows = rows
        self.cache.learn("most", str(rows))

    # Searching

    @staticmethod
    def is_company_wide(scope: Scope) -> bool:
        """Whether a scope reads every known namespace."""
        return all(getattr(scope, name) is None for name in SCOPE_IDS)

    async def readable(self, scope: Scope) -> tuple[str, ...]:
        """Return the namespaces of a scope, the nearest first; for the company, all known ones."""
        names = self.namespaces.readable(scope, wider=self.config.read_wider)
        if not self.is_company_wide(scope):
            return names
        met = await asyncio.to_thread(self.cache.namespaces)
        return tuple(dict.fromkeys((*names, *self.config.namespaces, *met)))

    @property
    def page_rows(self) -> int:
        """The most rows that a search returns, as far as known."""
        return min(self.config.page_size, self._most_rows or self.config.page_size)

    async def search(
        self,
        namespaces: Sequence[str],
        *,
        query: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
        embedding: Sequence[float] | None = None,
    ) -> Hits:
        """Search, drop memories that should not have been returned, and cache the others.

        Without a `limit`, a whole page is requested.
        """
        if not namespaces:
            return Hits()
        limit = limit or self.config.page_size
        optional = {"query": query, "kinds": [kind] if kind else None, "embedding": embedding}
        asked = {name: value for name, value in optional.items() if value}
        try:
            hits = await self.client.search(namespaces, limit=limit, **asked)
        except NotFound:
            # One of the namespaces is unknown to the plugin.
            found = Hits()
            for name in namespaces if len(namespaces) > 1 else ():
                more = await self.search(
                    [name], query=query, kind=kind, limit=limit, embedding=embedding
                )
                found = found.joined(more)
            return found
        most = min(limit, self._most_rows or limit)
        capped = most <= hits.returned <= limit
        return replace(await self._cleaned(hits, namespaces, kind), capped=capped)

    async def by_ids(self, namespaces: Sequence[str], ids: Sequence[str]) -> Hits:
        """Return the memories of these ids; extension `memtui.ids`."""
        found = Hits()
        for start in range(0, len(ids), MOST_ROWS):
            part = ids[start : start + MOST_ROWS]
            hits = await self.client.search(namespaces, ids=part, limit=MOST_ROWS)
            found = found.joined(await self._cleaned(hits, namespaces))
        return found

    async def page(self, namespaces: Sequence[str], cursor: str) -> Hits:
        """Return a page; extension `memtui.cursor`."""
        hits = await self.client.search(namespaces, cursor=cursor, limit=MOST_ROWS)
        return await self._cleaned(hits, namespaces)

    async def _cleaned(
        self, hits: Hits, namespaces: Sequence[str], kind: str | None = None
    ) -> Hits:
        asked, now = set(namespaces), self.now()
        wanted = [
            one for one in hits.memories if one.namespace in asked and kind in {None, one.kind}
        ]
        readable = [one for one in wanted if is_readable(one)]
        kept = tuple(one for one in readable if not is_expired(one, now))
        await self._remember(kept)
        return replace(
            hits,
            memories=kept,
            expired=len(readable) - len(kept),
            unreadable=hits.unreadable + len(wanted) - len(readable),
            strangers=len(hits.memories) - len(wanted),
        )

    async def _remember(self, memories: Iterable[PluginMemory]) -> None:
        """Store the places and words of memories in the cache."""
        known = self._noted
        seen = [one for one in memories if known.get((one.namespace, one.id)) != hash(one.content)]
        if not seen:
            return
        await asyncio.to_thread(
            self.cache.note, [(one.namespace, one.id, one.content) for one in seen]
        )
        if len(known) > _MOST_NOTED:
            known.clear()
        known.update(((one.namespace, one.id), hash(one.content)) for one in seen)

    # Finding by id

    async def find(self, places: Sequence[Place], *, text: str = "") -> Lookup:
        """Return the memory at one of `places`; `text` is its likely text, to search by."""
        return (await self.find_all([places], text=text))[0]

    async def find_all(self, wanted: Sequence[Sequence[Place]], *, text: str = "") -> list[Lookup]:
        """Return, in order, the memory at one of the places of each list."""
        names = list(dict.fromkeys(place[0] for places in wanted for place in places))
        if self.abilities.has(IDS):
            # memtui's server, which offers the extension, only has UUIDs.
            ids = {place[1]: None for places in wanted for place in places if is_uuid(place[1])}
            hits = await self.by_ids(names, list(ids))
            seen = set() if hits.unreadable else set(names)
            return [_lookup(places, hits.by_place(), seen) for places in wanted]
        found, whole = await self._newest(names)

        def missing() -> list[Place]:
            open_lists = [
                places for places in wanted if not any(place in found for place in places)
            ]
            return [place for places in open_lists for place in places if place[0] not in whole]

        for searched in await together(
            partial(self._by_words, place, text) for place in dict.fromkeys(missing())
        ):
            found |= searched
        deep = list(dict.fromkeys(place[0] for place in missing()))
        for name, kinds in zip(
            deep, await together(partial(self._by_kinds, name) for name in deep), strict=True
        ):
            for hits in kinds:
                found |= hits.by_place()
            if all(hits.whole for hits in kinds) and not holds_strange_kinds(found, name):
                whole.add(name)
        return [_lookup(places, found, whole) for places in wanted]

    async def _newest(self, names: Sequence[str]) -> tuple[dict[Place, PluginMemory], set[str]]:
        """Return the newest memories, and the namespaces that were read completely."""
        hits = await self.search(names)
        found, whole = hits.by_place(), set(names) if hits.whole else set()
        if not hits.whole and len(names) > 1:
            apart = await together(partial(self.search, [name]) for name in names)
            for name, alone in zip(names, apart, strict=True):
                found |= alone.by_place()
                if alone.whole:
                    whole.add(name)
        return found, whole

    async def _by_kinds(self, name: str) -> list[Hits]:
        return await together(partial(self.search, [name], kind=kind) for kind in KINDS)

    async def _by_words(self, place: Place, text: str) -> dict[Place, PluginMemory]:
        noted = await asyncio.to_thread(self.cache.words, place)
        queries: list[str] = []
        for words in (noted.split(), telling_words(text)):
            if words:  # all words for full-text search, the longest one for substring search
                queries += [" ".join(words), words[0]]
        found: dict[Place, PluginMemory] = {}
        for query in dict.fromkeys(queries):
            found |= (await self.search([place[0]], query=query)).by_place()
            if place in found:
                break
        return found


def holds_strange_kinds(found: Mapping[Place, PluginMemory], name: str) -> bool:
    """Whether a namespace has an unknown kind, so that searches by kind may miss memories."""
    return any(one.namespace == name and one.kind not in KINDS for one in found.values())


def _lookup(
    places: Sequence[Place], found: Mapping[Place, PluginMemory], whole: set[str]
) -> Lookup:
    memory = next((found[place] for place in places if place in found), None)
    return Lookup(memory, memory is not None or all(place[0] in whole for place in places))
