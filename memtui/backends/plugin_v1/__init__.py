"""The memory plugin contract v1 as a provider: a client of it over HTTP (seed 001)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from decimal import Decimal
from functools import partial
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

from . import changing, reading
from .config import NamespaceMap, PluginConfig, Templates, is_namespace, kind_of
from .id_cache import IdCache
from .listing import Lister
from .memories import IN_DETAILS, KEY, places, split
from .plugin import Plugin

_CACHE = "plugin.sqlite3"
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
            bundle, stages = await reading.query(self._plugin, request)
            return bundle.model_copy(update=usage(bundle.usage)), stages

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
            found = await reading.browse(self._plugin, self._lister, request)
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
