"""The memory plugin contract v1 as a provider: a client of it over HTTP (seed 001)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import product
from time import perf_counter
from typing import ClassVar, Self

from pydantic import ValidationError

from memtui.contract import (
    Adapter,
    BindingContext,
    BrowsePage,
    BrowseRequest,
    Capabilities,
    ContextBundle,
    CorrectReply,
    CorrectRequest,
    Embedding,
    EmbedReply,
    EraseReply,
    EraseRequest,
    ExplainStage,
    Explanation,
    Filter,
    ForgetReply,
    ForgetRequest,
    Health,
    Invalid,
    Json,
    MemtuiError,
    Namespace,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    Snippet,
    Unavailable,
    Unsupported,
    Usage,
    WriteReply,
    WriteRequest,
    place_of_path,
    place_of_url,
)
from memtui.embedding import open_embedder
from memtui.provider_kit import abilities_in, blocking, read_config, require_writable, together
from memtui.provider_kit.kept import not_shown
from memtui.provider_kit.matching import has_metadata, matcher
from memtui.provider_kit.pages import page
from memtui.provider_kit.search import ranked

from . import changing
from .config import NamespaceMap, PluginConfig, Templates, is_namespace, kind_of
from .id_cache import IdCache
from .listing import Lister, Listing
from .memories import IN_DETAILS, KEY, handle_of, places, split
from .plugin import SCOPE_IDS, Embedded, Plugin
from .wire import Hits, Place

_CACHE = "plugin.sqlite3"
_RANK_WEIGHT = 60
"""Weakens the first ranks of a search beside those that both searches find."""
_QUERY_CHARACTERS = 2000
"""Most characters of a query that are sent."""
_PLUGINS_OWN = (
    "The plugin of {} may keep forgotten memories in its log and backups, which memtui cannot "
    "reach; ask its administrator."
)


class PluginAdapter(Adapter):
    """A client of any memory plugin. The contract has neither a lookup by id nor a cursor.

    memtui's own server has both, and lists `memtui.ids` and `memtui.cursor`. With other plugins,
    `get` finds a record by searching: one that is neither among a namespace's newest 100 nor found
    by words it was seen with raises `NotFound`, with a sentence on that; totals of larger
    namespaces are "at least". Opening succeeds while the plugin is down, with the capabilities last
    known; calls raise `Unavailable` until it is back.

    A plugin reports no cost: usage is unpriced unless the binding's config says `free`.
    """

    key: ClassVar[str] = KEY
    config_model = PluginConfig
    capabilities = Capabilities()
    speaks_plugin_contract = True

    def __init__(self, context: BindingContext, plugin: Plugin) -> None:
        self._context = context
        self._plugin = plugin
        self._lister = Lister(plugin)
        self._show_abilities()

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Return the server and the namespaces that are written or read there."""
        config = read_config(PluginConfig, context)
        server = place_of_path(config.uds) if config.uds else place_of_url(config.place)
        names = NamespaceMap(config.templates, context.company_id).spelled(config.namespaces)
        return [(*server, *name) for name in names]

    @classmethod
    def home_of(cls, config: Json, scope: Scope) -> str | None:
        """Return the namespace of a scope; None if the templates are invalid."""
        try:
            templates = Templates.model_validate(config.get("templates", {}))
        except ValidationError:
            return None
        return NamespaceMap(templates, scope.company_id).target(scope)

    @classmethod
    def home_of_copy(cls, config: Json, record: Record) -> str | None:
        """Return the namespace that the record's id names, if it is the company's, else `home_of`.

        Raises:
            Invalid: the binding does not name that namespace.
        """
        own = cls.home_of(config, record.scope)
        named = split(record.handle.provider_record_id)
        if own is None or named is None or not Plugin.is_company_wide(record.scope):
            return own
        return changing.company_namespace(named[0], {own, *config.get("namespaces", ())})

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open a plugin, up or down. Raises `Invalid` for a bad config."""
        config = read_config(PluginConfig, context)
        cache = await asyncio.to_thread(IdCache, context.data_dir / _CACHE)
        embedder, trouble = None, ""
        try:
            embedder = open_embedder(config, context)
        except Invalid as error:  # of a package or a secret that is missing; words still work
            trouble = str(error)
        plugin = Plugin(context, config, cache, embedder, trouble)
        await plugin.recall()
        with suppress(Unavailable):  # health and every call report it
            await plugin.ask_health()
        return cls(context, plugin)

    async def close(self) -> None:
        """Close the connections."""
        await self._plugin.close()

    @asynccontextmanager
    async def _call(self, *, changes: bool = False) -> AsyncIterator[Callable[..., Json]]:
        """Refresh the plugin's abilities before a call, and update the capabilities after it.

        Yields a function that returns the call's usage; a plugin that is not free is unpriced.
        """
        if changes:
            require_writable(self._context, "This plugin is")
        started = perf_counter()

        def usage(embedded: tuple[Usage, ...] = ()) -> Json:
            latency_ms = (perf_counter() - started) * 1000
            cost_usd = Decimal(0) if self._plugin.config.cost == "free" else None
            own = Usage(provider=KEY, cost_usd=cost_usd, latency_ms=latency_ms)
            return {"usage": (own, *embedded)}

        await changing.unsent(self._plugin.ready())
        try:
            yield usage
        finally:
            self._show_abilities()

    def _show_abilities(self) -> None:
        abilities = self._plugin.abilities
        by_meaning = self._plugin.embedder is not None and abilities.has("embedding")
        able = abilities.capabilities.model_copy(update={"semantic": by_meaning})
        self.capabilities = abilities_in(self._context, able)
        self.lacks = frozenset() if abilities.keeps_details else IN_DETAILS

    async def write(self, request: WriteRequest) -> WriteReply:
        """Store a record; one with a `record_id` replaces the record of that id."""
        async with self._call(changes=True) as usage:
            reply = await changing.write(self._plugin, request)
            return reply.model_copy(update=usage(reply.usage))

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Search the scope's namespaces in one call; the contract does not support `as_of`."""
        return (await self._query(request))[0]

    async def explain(self, request: QueryRequest) -> Explanation:
        """Return the namespaces searched, the hits, and the hits that were left out."""
        bundle, stages = await self._query(request)
        return Explanation(stages=stages, usage=bundle.usage)

    async def _query(self, request: QueryRequest) -> tuple[ContextBundle, tuple[ExplainStage, ...]]:
        async with self._call() as usage:
            bundle, stages = await self._searched(request)
            return bundle.model_copy(update=usage(bundle.usage)), stages

    async def _searched(
        self, request: QueryRequest
    ) -> tuple[ContextBundle, tuple[ExplainStage, ...]]:
        """Search the namespaces of the scope in one call; return the results and the stages.

        The reference server finds nothing for stop words, prefixes of words and text without
        spaces; then the newest records are searched here. The same applies to plugins that do not
        list full-text search, since they may have ignored the query.
        """
        plugin = self._plugin
        names = await plugin.readable(request.scope)
        given = request.embedding if plugin.abilities.has("embedding") else None
        asked = request.query.replace("\0", " ").strip()[:_QUERY_CHARACTERS]
        narrows = bool(request.metadata_filter or request.topic or request.filter != Filter())
        most = plugin.config.page_size
        limit = most if narrows else min(most, request.top_k + 1)
        embedded = await plugin.embed(asked, is_query=True) if given is None else Embedded()
        hits = await plugin.search(names, query=asked, limit=limit, embedding=given)
        if embedded.vector is not None:
            try:
                near = await plugin.search(
                    names, query=asked, limit=limit, embedding=embedded.vector
                )
            except (Invalid, Unavailable) as error:  # what the words found is left
                lacking = f"The plugin did not search by the query's vector: {error}"
                embedded = Embedded(None, embedded.usage, lacking)
            else:
                hits = _fused(hits, near) if plugin.abilities.has("fts") else near
        by_vector = bool(given or embedded.vector)
        trusted = plugin.abilities.has("fts") or by_vector or not asked
        stages = [_reach(plugin, names), _served(hits, limit, by_vector=by_vector)]
        found: list[Snippet] = []
        if trusted:
            # Pinned memories first, then by score, or in the plugin's order without scores.
            last = float("-inf")
            ranked = sorted(
                hits.memories, key=lambda one: (one.pin, last if one.score is None else one.score),
                reverse=True,
            )  # fmt: skip
            found = [Snippet(**dict(plugin.record(one)), score=one.score) for one in ranked]
            found = [snippet for snippet in found if _fits(snippet, request)]
        capped = hits.capped
        if asked and not found and (plugin.config.local_fallback or not trusted):
            newest = await plugin.search(names)
            pending = newest if trusted else hits.joined(newest)
            found = await asyncio.to_thread(_looked_through, plugin, request, asked, pending)
            capped = newest.capped
            stages.append(_looked(found, newest, trusted=trusted))
        stages.append(
            ExplainStage(
                name="dropped",
                detail=f"Left out of the plugin's answer: {hits.expired} expired, "
                f"{hits.strangers} of namespaces or kinds not asked for, {hits.unreadable} "
                "unreadable.",
            )
        )
        if embedded.lacking:
            stages.append(ExplainStage(name="meaning", detail=embedded.lacking))
        top = tuple(found[: request.top_k])
        is_capped = capped or len(found) > len(top)
        return ContextBundle(snippets=top, capped=is_capped, usage=embedded.usage), tuple(stages)

    def lists(self, scope: Scope, owner: Scope) -> bool:
        """Whether a scope reads an owner's namespace."""
        own = self._plugin.namespaces.readable(owner, wider=False)[:1]
        return self._plugin.is_company_wide(scope) or any(self._reads(scope, name) for name in own)

    def sees(self, scope: Scope, record: Record) -> bool:
        """Whether a scope reads a record's namespace, which only some ids name."""
        place = split(record.handle.provider_record_id)
        if place is None or self._plugin.is_company_wide(scope):
            return self.lists(scope, record.scope)
        return self._reads(scope, place[0])

    def _reads(self, scope: Scope, namespace: str) -> bool:
        wider = self._plugin.config.read_wider
        return namespace in self._plugin.namespaces.readable(scope, wider=wider)

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Find a record by searching its namespace.

        Raises:
            NotFound: it is out of reach, so its existence is unknown.
        """
        async with self._call():
            record_id, readable = handle.provider_record_id, await self._plugin.readable(scope)
            found = await self._plugin.find(places(record_id, readable))
            if found.memory is None and not found.certain:
                raise changing.out_of_reach(record_id, found)
            return self._plugin.record(found.memory) if found.memory else None

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Remove records, each in the name of its own namespace."""
        async with self._call(changes=True) as usage:
            return (await changing.forget(self._plugin, request)).model_copy(update=usage())

    async def correct(self, request: CorrectRequest) -> CorrectReply:
        """Write a record again under its id, or under a new one if the plugin keeps no ids."""
        async with self._call(changes=True) as usage:
            reply = await changing.correct(self._plugin, request)
            return reply.model_copy(update=usage(reply.usage))

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """List the records within reach; later pages come from the first page's list."""
        async with self._call() as usage:
            names = await _names(self._plugin, request.scope, request.filter)
            if request.namespace is not None:
                names = tuple(name for name in names if name == request.namespace)
            listing = await self._lister.list(
                names, request.filter.text, fresh=request.cursor is None
            )
            found = await asyncio.to_thread(_page, self._plugin, listing, request)
            return found.model_copy(update=usage())

    async def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return each record's memory as the plugin sent it."""
        async with self._call():
            self._require_exact()
            return await changing.snapshot(self._plugin, handles, scope)

    async def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Write memories again as they were."""
        async with self._call(changes=True) as usage:
            self._require_exact()
            reply = await changing.restore(self._plugin, snapshots, scope)
            return reply.model_copy(update=usage(reply.usage))

    def _require_exact(self) -> None:
        if not self._plugin.abilities.is_exact:
            raise Unsupported(
                "This plugin stores no ids or no propagation, so nothing can be restored."
            )

    @blocking
    def erase(self, request: EraseRequest) -> EraseReply:
        """Erase the words of deleted records from the id cache; the plugin's own copies stay."""
        cache, beyond = self._plugin.cache, _PLUGINS_OWN.format(self._context.binding_key)
        namespaces = tuple(cache.namespaces())
        wanted = [one for record_id in request.record_ids for one in places(record_id, namespaces)]
        kept = {place for place in wanted if cache.words(place)}
        if request.apply:
            cache.strike(wanted)
            cache.scrub()
        return EraseReply(kept={_CACHE: len(kept)} if kept else {}, beyond=(beyond,))

    async def health(self) -> Health:
        """Return the plugin's health: down if unreachable, degraded if it says so or sends 503."""
        try:
            reply = await self._plugin.ask_health()
        except MemtuiError as error:
            return Health(status="down", message=str(error))
        self._show_abilities()
        listed = ", ".join(sorted(reply.capabilities or ())) or "nothing"
        message = reply.message or f"The plugin lists {listed}."
        if self._plugin.trouble:
            message += f" The model {self._plugin.config.embedding} fails: {self._plugin.trouble}"
        return Health(status=reply.status, message=message, version=reply.version)

    async def embed(self, most: int) -> EmbedReply:
        """Return the model. A memory gets its vector as it is written, so nothing is left."""
        del most
        own = self._plugin.embedder
        if own is None:
            none = "This binding has no embedding model; set embedding in its config."
            raise Unsupported(self._plugin.trouble or none)
        return EmbedReply(
            embedding=Embedding(
                model=own.name, dimensions=own.dimensions, texts=0, embedded=0, serving=own.name,
                address=own.address, agreed=own.is_agreed,
            )
        )  # fmt: skip

    async def namespaces(self) -> Sequence[Namespace]:
        """Return the known namespaces, seen or configured; a plugin cannot list its own.

        For one with at least as many records as a search returns, `records` is None, and
        `metadata["at_least"]` is that number.
        """
        plugin = self._plugin

        async def one(name: str) -> Namespace:
            hits = await plugin.search([name])
            expires_at, metadata = met.get(name, (None, {}))
            return Namespace(
                name=name,
                kind=kind_of(name),
                records=None if hits.capped else len(hits.memories),
                expires_at=expires_at,
                metadata=metadata | ({"at_least": hits.returned} if hits.capped else {}),
            )

        async with self._call():
            met = await asyncio.to_thread(plugin.cache.namespaces)
            readable = await plugin.readable(Scope(company_id=self._context.company_id))
            return await together(partial(one, name) for name in readable)

    async def create_namespace(
        self, name: str, *, expires_at: datetime | None = None, metadata: Json | None = None
    ) -> Namespace:
        """Create a namespace, or replace it: an expiry or metadata left out is cleared.

        Raises:
            Invalid: the name is not valid for a namespace.
        """
        async with self._call(changes=True):
            if not is_namespace(name):
                raise Invalid(
                    f"{name!r} is not a namespace; name it like workspace:web, small letters "
                    "before the first colon, and letters, digits and _ : . - after it."
                )
            put = self._plugin.client.put_namespace
            return await self._met(await put(name, kind_of(name), expires_at, metadata))

    async def patch_namespace(
        self, name: str, *, expires_at: datetime | None = None, metadata: Json | None = None
    ) -> Namespace:
        """Set a namespace's expiry, or replace its metadata; raises `NotFound`, `Unsupported`."""
        async with self._call(changes=True):
            if expires_at is None and metadata is None:
                raise Invalid("Give an expiry or metadata to set.")
            patch = self._plugin.client.patch_namespace
            return await self._met(await patch(name, expires_at, metadata))

    async def _met(self, found: Namespace) -> Namespace:
        await asyncio.to_thread(self._plugin.cache.meet, found)
        return found

    async def delete_namespace(self, name: str) -> None:
        """Delete a namespace and its records, irreversibly; raises `NotFound`."""
        async with self._call(changes=True):
            self._plugin.generation += 1
            await self._plugin.client.delete_namespace(name)
            await asyncio.to_thread(self._plugin.cache.leave, name)


def _fused(words: Hits, near: Hits) -> Hits:
    """Return the hits by words and by meaning, scored by their ranks in both."""
    scores: dict[Place, float] = {}
    for hits in (words, near):
        for rank, place in enumerate(hits.by_place()):
            scores[place] = scores.get(place, 0.0) + 1 / (_RANK_WEIGHT + rank)
    both = words.joined(near)
    memories = both.by_place()
    scored = tuple(replace(memories[place], score=scores[place]) for place in scores)
    return replace(both, memories=scored)


def _looked_through(
    plugin: Plugin, request: QueryRequest, asked: str, pending: Hits
) -> list[Snippet]:
    records = [plugin.record(memory) for memory in pending.by_place().values()]
    found = ranked([record for record in records if _fits(record, request)], asked)
    return sorted(found, key=lambda one: not one.pinned)


def _fits(record: Record, request: QueryRequest) -> bool:
    is_of_topic = request.topic is None or record.topic == request.topic
    fits = matcher(request.filter)
    return is_of_topic and fits(record) and has_metadata(record, request.metadata_filter)


def _reach(plugin: Plugin, names: Sequence[str]) -> ExplainStage:
    listed = plugin.abilities.listed
    can = "says nothing of its abilities" if listed is None else f"offers {_list(sorted(listed))}"
    return ExplainStage(name="namespaces", detail=f"Asked {_list(names)}; the plugin {can}.")


def _served(hits: Hits, limit: int, *, by_vector: bool) -> ExplainStage:
    how = " and its vector" if by_vector else ""
    more = "; it may hold more" if hits.capped else ""
    return ExplainStage(
        name="plugin",
        detail=f"For the query{how} it returned {len(hits.memories)} of at most {limit} records"
        f"{more}.",
        scores={
            handle_of(one).provider_record_id: one.score
            for one in hits.memories
            if one.score is not None
        },
    )


def _looked(found: Sequence[Snippet], newest: Hits, *, trusted: bool) -> ExplainStage:
    why = "The plugin found nothing" if trusted else "The plugin lists no full text"
    return ExplainStage(
        name="local fallback",
        detail=f"{why}, so its newest {len(newest.memories)} records were searched here: "
        f"{len(found)} match.",
        scores={one.handle.provider_record_id: one.score or 0.0 for one in found},
    )


def _list(words: Sequence[str]) -> str:
    shown = ", ".join(words[:5]) or "none"
    return f"{shown} and {len(words) - 5} more" if len(words) > 5 else shown


async def _names(plugin: Plugin, scope: Scope, chosen: Filter) -> tuple[str, ...]:
    names = await plugin.readable(scope)
    asked = {
        name: values
        for name in SCOPE_IDS
        if getattr(scope, name) is None and (values := chosen.any_of(name))
    }
    narrower = (
        name
        for ids in product(*asked.values())
        for name in plugin.namespaces.readable(
            scope.model_copy(update=dict(zip(asked, ids, strict=True))), wider=False
        )
    )
    return tuple(dict.fromkeys((*narrower, *names))) if asked else names


def _page(plugin: Plugin, listing: Listing, request: BrowseRequest) -> BrowsePage:
    records = map(plugin.record, listing.memories.values())
    found = page(list(filter(matcher(request.filter), records)), request)
    is_named = request.namespace is not None or bool(plugin.config.namespaces)
    unlisted = plugin.is_company_wide(request.scope) and not is_named
    unread = tuple(_unread(plugin, listing, unlisted=unlisted))
    update = {"at_least": bool(unread), "unread": unread, "unfinished": not listing.finished}
    return found.model_copy(update=update)


def _unread(plugin: Plugin, listing: Listing, *, unlisted: bool) -> Iterator[str]:
    """Yield sentences on memories that may be missing, and on the setting to read further."""
    if unlisted:
        yield (
            "A plugin cannot list its namespaces, so memtui reads only those that it has used "
            "before and those that `namespaces` in the binding's config names."
        )
    if listing.larger:
        names = listing.larger[0]
        if more := len(listing.larger) - 1:
            names += f" and {more:,} more"
        yield (
            f"{names} may contain more records than were found, because a search returns "
            f"{plugin.page_rows:,} at most; raise `page_size` in the binding's config if the "
            "plugin allows more."
        )
    if not listing.finished:
        yield (
            "Time ran out before everything was searched; list again to go on, or raise "
            "`search_seconds` and `max_searches` in the binding's config."
        )
    if listing.endless:
        yield "The plugin kept returning pages without new records, so memtui stopped reading."
    if listing.unreadable:
        yield not_shown(listing.unreadable)
