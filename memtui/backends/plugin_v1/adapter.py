"""The memory plugin contract v1 as a provider (seed 001)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from decimal import Decimal
from time import perf_counter
from typing import ClassVar, Self

from memtui.contract import (
    Adapter,
    BindingContext,
    BrowsePage,
    BrowseRequest,
    Capabilities,
    ContextBundle,
    CorrectReply,
    CorrectRequest,
    EraseReply,
    EraseRequest,
    Explanation,
    ForgetReply,
    ForgetRequest,
    Health,
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

from . import browsing, changing, restoring, search, spaces, writing
from .config import PluginConfig
from .listing import Lister
from .lookup import find
from .notebook import Notebook
from .plugin import Plugin
from .records import PROVIDER, places
from .scoping import NamespaceMap

NOTES = "plugin.sqlite3"


class PluginAdapter(Adapter):
    """A client of any memory plugin. The wire has neither a lookup by id nor a cursor.

    A server of memtui's own has both, and lists `memtui.ids` and `memtui.cursor`. What follows
    elsewhere: `get` and the handles of queries work by searching, so a record that is not among a
    namespace's newest 100, nor found by words it was seen with, is `NotFound` with a sentence that
    says so; lists of larger namespaces are "at least". Opening succeeds while the plugin is down,
    with the capabilities last known; calls raise `Unavailable` until it is back.

    A plugin says nothing of cost: usage is unpriced unless the binding's config says `free`.
    """

    key: ClassVar[str] = PROVIDER
    config_model = PluginConfig
    capabilities = Capabilities()

    def __init__(self, context: BindingContext, plugin: Plugin) -> None:
        self._context = context
        self._plugin = plugin
        self._lister = Lister(plugin)
        self._show_abilities()

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Name the server and the namespaces that are written or read there."""
        config = PluginConfig.of(context)
        server = place_of_path(config.uds) if config.uds else place_of_url(config.place)
        names = NamespaceMap(config.templates, context.company_id).spelled(config.namespaces)
        return [(*server, *name) for name in names]

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open a plugin, up or down. Raises `Invalid` for a bad config."""
        config = PluginConfig.of(context)
        notebook = await asyncio.to_thread(Notebook, context.data_dir / NOTES)
        plugin = Plugin(context, config, notebook)
        await plugin.recall()
        with suppress(Unavailable):  # health and every call say so
            await plugin.ask_health()
        return cls(context, plugin)

    async def close(self) -> None:
        """Close the connections."""
        await self._plugin.close()

    @asynccontextmanager
    async def _call(self, *, changes: bool = False) -> AsyncIterator[_Timer]:
        """Refresh what is known of the plugin, and show it after the call."""
        if changes and self._context.read_only:
            raise Unsupported("This plugin is open read-only; open it writable to change it.")
        timer = _Timer(self._plugin.config.cost)
        await writing.unsent(self._plugin.ready())
        try:
            yield timer
        finally:
            self._show_abilities()

    def _show_abilities(self) -> None:
        abilities = self._plugin.abilities
        self.capabilities = abilities.capabilities(read_only=self._context.read_only)

    async def write(self, request: WriteRequest) -> WriteReply:
        """Store a record; one with a `record_id` replaces the record of that id."""
        async with self._call(changes=True) as timer:
            reply = await writing.write(self._plugin, request)
            return reply.model_copy(update={"usage": timer.usage()})

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Search the scope's namespaces in one call; `as_of` is not honoured by the wire."""
        async with self._call() as timer:
            answer = await search.query(self._plugin, request)
            return ContextBundle(
                snippets=answer.snippets, capped=answer.capped, usage=timer.usage()
            )

    async def explain(self, request: QueryRequest) -> Explanation:
        """Say which namespaces were asked, what came, and what was left out."""
        async with self._call() as timer:
            answer = await search.query(self._plugin, request)
            return Explanation(stages=answer.stages, usage=timer.usage())

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Find a record by searching its namespace.

        Raises:
            NotFound: it is not within reach, so nobody can say whether it exists.
        """
        async with self._call():
            record_id = handle.provider_record_id
            readable = await self._plugin.readable(scope)
            found = await find(self._plugin, places(record_id, readable))
            if found.row is not None:
                return self._plugin.reader.record(found.row)
            if not found.certain:
                raise changing.out_of_reach(record_id, found)
            return None

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Remove records, each in the name of its own namespace."""
        async with self._call(changes=True) as timer:
            reply = await changing.forget(self._plugin, request)
            return reply.model_copy(update={"usage": timer.usage()})

    async def correct(self, request: CorrectRequest) -> CorrectReply:
        """Write a record again under its id, or anew where the plugin keeps no ids."""
        async with self._call(changes=True) as timer:
            reply = await changing.correct(self._plugin, request)
            return reply.model_copy(update={"usage": timer.usage()})

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """List what can be reached; pages after the first are of the first one's list."""
        async with self._call() as timer:
            page = await browsing.browse(self._plugin, self._lister, request)
            return page.model_copy(update={"usage": timer.usage()})

    async def namespaces(self) -> Sequence[Namespace]:
        """Return the namespaces that memtui has met or was told of."""
        async with self._call():
            scope = Scope(company_id=self._context.company_id)
            return await spaces.known(self._plugin, scope)

    async def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return each record's row as it came."""
        async with self._call():
            self._check_exact()
            return await restoring.snapshot(self._plugin, handles, scope)

    async def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Write rows again as they were."""
        async with self._call(changes=True) as timer:
            self._check_exact()
            reply = await restoring.restore(self._plugin, snapshots, scope)
            return reply.model_copy(update={"usage": timer.usage()})

    def _check_exact(self) -> None:
        abilities = self._plugin.abilities
        if not (abilities.keeps_ids and abilities.keeps_details):
            raise Unsupported("This plugin keeps no ids or no propagation, so nothing is restored.")

    async def erase(self, request: EraseRequest) -> EraseReply:
        """Take the words of gone records out of the notebook; the plugin's own copies stay."""
        return await asyncio.to_thread(self._erase, request)

    def _erase(self, request: EraseRequest) -> EraseReply:
        notebook, beyond = self._plugin.notebook, _PLUGINS_OWN.format(self._context.binding_key)
        namespaces = tuple(notebook.namespaces())
        wanted = [one for record_id in request.record_ids for one in places(record_id, namespaces)]
        kept = notebook.kept(wanted)
        if request.apply:
            notebook.strike(wanted)
            notebook.scrub()
        return EraseReply(kept={NOTES: len(kept)} if kept else {}, beyond=(beyond,))

    async def health(self) -> Health:
        """Ask the plugin: down if it cannot be reached, degraded if it says so or answers 503."""
        try:
            reply = await self._plugin.ask_health()
        except MemtuiError as error:
            return Health(status="down", message=str(error))
        self._show_abilities()
        listed = reply.capabilities
        said = "nothing" if not listed else ", ".join(sorted(listed))
        message = reply.message or f"The plugin lists {said}."
        return Health(status=reply.status, message=message, version=reply.version)

    async def create_namespace(
        self,
        name: str,
        *,
        expires_at: datetime | None = None,
        metadata: Json | None = None,
    ) -> Namespace:
        """Create a namespace, or replace one whole: an expiry or metadata left out is cleared."""
        async with self._call(changes=True):
            return await spaces.create(self._plugin, name, expires_at, metadata)

    async def patch_namespace(
        self,
        name: str,
        *,
        expires_at: datetime | None = None,
        metadata: Json | None = None,
    ) -> Namespace:
        """Set a namespace's expiry, or its metadata whole; raises `NotFound`, `Unsupported`."""
        async with self._call(changes=True):
            return await spaces.patch(self._plugin, name, expires_at, metadata)

    async def delete_namespace(self, name: str) -> None:
        """Remove a namespace and every record in it, beyond recall; raises `NotFound`."""
        async with self._call(changes=True):
            await spaces.delete(self._plugin, name)


_PLUGINS_OWN = (
    "What the plugin of {} keeps of forgotten memories (its log, its backups) is not in memtui's "
    "reach; ask who runs it."
)


class _Timer:
    """Measures one call from its beginning."""

    def __init__(self, cost: str) -> None:
        self._free = cost == "free"
        self._started = perf_counter()

    def usage(self) -> tuple[Usage, ...]:
        """Return what the call took; a plugin that is not free is unpriced."""
        latency_ms = (perf_counter() - self._started) * 1000
        cost_usd = Decimal(0) if self._free else None
        return (Usage(provider=PROVIDER, cost_usd=cost_usd, latency_ms=latency_ms),)
