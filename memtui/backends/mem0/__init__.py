"""mem0 as a provider: its platform, its open server, or its library over a local store."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Self

from memtui.backends.mem0 import memories
from memtui.backends.mem0.config import Mem0Config
from memtui.backends.mem0.library import LibraryStore, import_parts, places_of, read_library_config
from memtui.backends.mem0.memories import KEY, Mem0Memory, MemoryPage
from memtui.backends.mem0.stores import Added, Mem0ServerStore, Mem0Store, PlatformStore
from memtui.contract import (
    BindingContext,
    Capabilities,
    CorrectRequest,
    EraseReply,
    EraseRequest,
    ExplainStage,
    Explanation,
    Health,
    Json,
    Namespace,
    Profile,
    QueryRequest,
    Record,
    RecordHandle,
    RecordVersion,
    Scope,
    Snapshot,
    Unavailable,
    Unsupported,
    WriteReply,
    WriteRequest,
    place_of_url,
)
from memtui.provider_kit.server_provider import ServerProvider
from memtui.provider_kit.servers import JsonApi


class Mem0Adapter(ServerProvider[Mem0Memory]):
    """A client of any mem0, which assigns ids and has no revisions of its own (see `memories`).

    Lists read everything that has an owner.
    """

    key: ClassVar[str] = KEY
    config_model = Mem0Config
    most_hits = 1_000
    has_uuids = True
    cut_hint = "mem0's server returns no pages and may have cut the list there."
    capabilities = Capabilities(
        browse=True, correction=True, history=True, namespaces=True, expiry=True, pin=True,
        summaries=True, semantic=True, chosen_owners=True, explain=True,
    )  # fmt: skip

    def __init__(self, context: BindingContext, config: Mem0Config, store: Mem0Store) -> None:
        self._config, self._store = config, store
        super().__init__(context, config)

    def connect(self, context: BindingContext, config: Mem0Config) -> JsonApi:
        """Return the client of mem0's server."""
        del context, config
        return self._store.api

    @classmethod
    def abilities(cls, config: Mem0Config) -> Capabilities:
        """Return what this mem0 can do."""
        extracted = {
            "profile": config.is_platform,
            "provider_managed_extraction": config.infer,
            "async_ingestion": config.infer and config.is_platform,
        }
        return cls.capabilities.model_copy(update=extracted)

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Return the server or the library's store; for the platform, with the key's name."""
        config = Mem0Config.of(context)
        if config.library is not None:
            return places_of(read_library_config(config.library))
        account = ("key", config.api_key_secret or "") if config.is_platform else ()
        return [(*place_of_url(config.url), *account)]

    @classmethod
    def home_of(cls, config: Json, scope: Scope) -> str | None:
        """Return mem0's owners for a write in a scope."""
        chosen = Mem0Config.model_validate(config)
        owners = memories.owners_of(scope, chosen.shared_user, has_apps=chosen.is_platform)
        if scope.project_id and not chosen.is_platform:
            owners[memories.PROJECT] = scope.project_id
        return ", ".join(f"{name.removesuffix('_id')} {value}" for name, value in owners.items())

    @classmethod
    def check_record(cls, config: Json, record: Record) -> None:
        """Raise `Invalid` for a text or an owner that mem0 does not accept."""
        memories.check_text(record.text)
        cls.home_of(config, record.scope)

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Check the config; the first call connects to mem0. Raises `Invalid`."""
        config = Mem0Config.of(context)
        if config.library is not None:
            library = await asyncio.to_thread(read_library_config, config.library)
            await asyncio.to_thread(import_parts, library)  # too slow for within a call
            return cls(context, config, LibraryStore(config, library))
        key = config.find_key(context)
        store = PlatformStore(config, key) if config.is_platform else Mem0ServerStore(config, key)
        return cls(context, config, store)

    async def close(self) -> None:
        """Close the connections or the store."""
        await self._store.close()

    async def write(self, request: WriteRequest) -> WriteReply:
        """Store a text, or pass it to mem0's model, whose later memories have no id yet."""
        async with self.calling(changes=True, alone=False) as usage:
            added = await self._add(request)
            details = {"event_id": added.event} if added.event else {}
            return await self._stored(added, event=added.event, **usage(**details))

    async def _add(self, request: WriteRequest) -> Added:
        draft = memories.draft_of(request, self._config.shared_user, has_apps=self._store.has_apps)
        try:
            return await self._store.add(draft, infer=self._config.infer)
        except Unavailable as error:
            raise self._without_model(error) from error

    async def ingested(self, event: str, scope: Scope) -> WriteReply | None:
        """Return the memories that mem0's model made of a text."""
        del scope
        async with self.calling() as usage:
            added = await self._store.ingested(event)
            if added is None:
                return None
            self._listed = None
            return await self._stored(added, **usage())

    async def _stored(self, added: Added, **fields: Any) -> WriteReply:
        """Return a reply, without memories whose earlier text is not known: undo would lose it."""
        records, before = [], []
        for name in added.ids:
            if name in added.changed:
                now, old = await self._store.get(name), added.changed[name]
                if old is None:
                    versions = memories.versions_of(await self._store.history(name))
                    old = versions[1].text if len(versions) > 1 else None
                if now is None or old is None:
                    continue
                update = {"text": old, "revision": None}
                record = self.record_of(now).model_copy(update=update)
                before.append(Snapshot(handle=self.handle_of(name), record=record))
            records.append(self.handle_of(name))
        return WriteReply(records=tuple(records), before=tuple(before), **fields)

    def _without_model(self, error: Unavailable) -> Unavailable:
        if not (self._config.infer and error.sent):
            return error
        hint = "With infer on, mem0 needs a model; configure one in mem0, or turn infer off."
        return Unavailable(f"{error} {hint}", sent=True)

    async def explain(self, request: QueryRequest) -> Explanation:
        """Return the parts of mem0's scores, where it reports them."""
        async with self.calling() as usage:
            found, _ = await self.hits(request, partial(self._store.search, explain=True))
            stages = [
                ExplainStage(
                    name=name.replace("_", " "),
                    detail="A component of mem0's score, as mem0 reports it.",
                    scores={one.id: one.parts[name] for one in found if name in one.parts},
                )
                for name in dict.fromkeys(name for one in found for name in one.parts)
            ]
            scores = {one.id: one.score for one in found if one.score is not None}
            detail = f"The scope sees {len(found):,} of the memories that mem0 found."
            last = ExplainStage(name="score", detail=detail, scores=scores)
            return Explanation(stages=(*stages, last), **usage())

    def record_of(self, item: Mem0Memory) -> Record:
        """Return a memory as a record."""
        return memories.record_of(item, self.context.company_id, self._config.shared_user)

    async def list_items(self, most: int) -> MemoryPage:
        """Return everything that has an owner, as far as this mem0 lists it."""
        return await self._store.list(most)

    async def search(self, query: str, most: int) -> MemoryPage:
        """Search with mem0's own search."""
        return await self._store.search(query, most)

    async def fetch(self, record_id: str) -> Mem0Memory | None:
        """Return one memory."""
        return await self._store.get(record_id)

    async def store(self, request: WriteRequest) -> Sequence[str]:
        """Store a text and return the ids of what became of it."""
        return (await self._add(request)).ids

    async def remove(self, item: Mem0Memory) -> bool:
        """Delete a memory."""
        return await self._store.delete(item.id)

    async def change(self, item: Mem0Memory, request: CorrectRequest) -> str:
        """Change a memory in place; mem0 embeds the new text and keeps the old one as history."""
        text = item.memory if request.text is None else request.text
        memories.check_text(text)
        details = item.kept.corrected(request)
        expires = memories.last_day(details.expires_at)
        if not request.sets_expiry and details.expires_at is None:
            expires = memories.day(item.expiration_date)
        metadata = item.metadata | memories.written(details)
        await self._store.update(item.id, text, metadata, expires)
        return item.id

    async def history(self, handle: RecordHandle, scope: Scope) -> Sequence[RecordVersion]:
        """Return a memory's texts; none if it is forgotten, as its owner is then unknown."""
        if await self.find(handle, scope) is None:
            return ()
        return memories.versions_of(await self._store.history(handle.provider_record_id))

    async def namespaces(self) -> Sequence[Namespace]:
        """List mem0's users, agents, runs and apps, with the number of memories read of each."""
        async with self.calling():
            rows = await self.rows(fresh=True)
        counted: dict[tuple[str, str], int] = {}
        for memory in rows.items:
            for name in ("user_id", "agent_id", "run_id", "app_id"):
                if owner := getattr(memory, name):
                    place = (name.removesuffix("_id"), owner)
                    counted[place] = counted.get(place, 0) + 1
        return [
            Namespace(
                name=f"{kind}:{owner}",
                kind=kind,
                records=None if rows.more else number,
                metadata={"at_least": number} if rows.more else {},
            )
            for (kind, owner), number in sorted(counted.items())
        ]

    async def profile(self, scope: Scope) -> Profile:
        """Return the platform's profile of a user; empty for a scope without a subject."""
        if not isinstance(self._store, PlatformStore):
            raise Unsupported("Only mem0's platform makes profiles.")
        async with self.calling() as usage:
            summary = await self._store.profile(scope.subject_id) if scope.subject_id else ""
            return Profile(summary=summary, **usage())

    async def erase(self, request: EraseRequest) -> EraseReply:
        """Erase the history of deleted memories if it is a local file; report other copies."""
        texts = await self._store.erase(request.record_ids, apply=request.apply)
        beyond = (_KEEPS if texts is None else _STORE_KEEPS).format(self.context.binding_key)
        kept = {"mem0's history": len(texts)} if texts else {}
        return EraseReply(kept=kept, texts=tuple(texts or ()), beyond=(beyond,))

    async def check(self) -> Health:
        """Return the result of a minimal request."""
        return Health(message=await self._store.check())


_KEEPS = (
    "mem0's history keeps the old texts of memories that {} has forgotten or corrected; ask its "
    "administrator to erase them."
)
_STORE_KEEPS = (
    "The files of mem0's vector store behind {} may contain words of deleted memories until their "
    "space is used again."
)
