"""mem0 as a provider: its platform, its open server, or its library over a local store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic, perf_counter
from typing import ClassVar, Self

from memtui.backends.mem0 import memories
from memtui.backends.mem0.config import Mem0Config
from memtui.backends.mem0.library import (
    LibraryStore,
    import_parts,
    places_of,
    read_library_config,
)
from memtui.backends.mem0.memories import KEY, Mem0Memory, MemoryPage, handle_of
from memtui.backends.mem0.stores import Mem0ServerStore, Mem0Store, PlatformStore
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
    ExplainStage,
    Explanation,
    ForgetReply,
    ForgetRequest,
    Health,
    Invalid,
    Json,
    MemtuiError,
    Namespace,
    NotFound,
    Profile,
    QueryRequest,
    Record,
    RecordHandle,
    RecordVersion,
    Scope,
    Snippet,
    Unavailable,
    Unsupported,
    Usage,
    WriteReply,
    WriteRequest,
    owner_of,
    place_of_url,
    sees,
)
from memtui.provider_kit import abilities_in, check_revision, require_writable, together
from memtui.provider_kit.matching import eligible, matcher
from memtui.provider_kit.pages import page

_MOST_HITS = 1_000
_LEAST_HITS = 50
"""Hits requested at first; those that are not visible to the scope are removed afterwards."""
_KEPT_SECONDS = 60.0


class Mem0Adapter(Adapter):
    """A client of any mem0, which assigns ids and has no revisions of its own (see `memories`).

    Lists read everything that has an owner, up to the binding's `max_listed`; later pages come from
    the first page's list. mem0 has no conditional writes: another program may change a memory
    between the check of its revision and the change. It reports no cost, so usage is unpriced.
    """

    key: ClassVar[str] = KEY
    config_model = Mem0Config
    capabilities = Capabilities(
        browse=True, correction=True, history=True, namespaces=True, expiry=True, pin=True,
        summaries=True, semantic=True, chosen_owners=True, explain=True,
    )  # fmt: skip

    def __init__(self, context: BindingContext, config: Mem0Config, store: Mem0Store) -> None:
        self._context, self._config, self._store = context, config, store
        extracted = {
            "profile": config.is_platform,
            "provider_managed_extraction": config.infer,
            "async_ingestion": config.infer and config.is_platform,
        }
        abilities = type(self).capabilities.model_copy(update=extracted)
        self.capabilities = abilities_in(context, abilities)
        self._changing = asyncio.Lock()
        self._listed: tuple[float, MemoryPage] | None = None

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
            return cls(context, config, LibraryStore(library))
        key = config.find_key(context)
        store = PlatformStore(config, key) if config.is_platform else Mem0ServerStore(config, key)
        return cls(context, config, store)

    async def close(self) -> None:
        """Close the connections or the store."""
        await self._store.close()

    @asynccontextmanager
    async def _call(self, *, changes: bool = False) -> AsyncIterator[Callable[..., Json]]:
        """Yield a function that returns the call's usage; a change discards the cached list."""
        started = perf_counter()

        def usage(**details: str) -> Json:
            latency_ms = (perf_counter() - started) * 1000
            return {"usage": (Usage(provider=KEY, latency_ms=latency_ms, details=details),)}

        if not changes:
            yield usage
            return
        require_writable(self._context, "These memories are")
        try:
            yield usage
        finally:
            self._listed = None

    async def write(self, request: WriteRequest) -> WriteReply:
        """Store a text, or pass it to mem0's model, whose later memories have no id yet."""
        async with self._call(changes=True) as usage:
            draft = memories.draft_of(
                request, self._config.shared_user, has_apps=self._store.has_apps
            )
            try:
                added = await self._store.add(draft, infer=self._config.infer)
            except Unavailable as error:
                raise self._without_model(error) from error
            details = {"event_id": added.event} if added.event else {}
            return WriteReply(records=tuple(map(handle_of, added.ids)), **usage(**details))

    def _without_model(self, error: Unavailable) -> Unavailable:
        if not (self._config.infer and error.sent):
            return error
        hint = "With infer on, mem0 needs a model; configure one in mem0, or turn infer off."
        return Unavailable(f"{error} {hint}", sent=True)

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Search with mem0's own search."""
        async with self._call() as usage:
            found, is_all = await self._search(request)
            best = found[: request.top_k]
            return ContextBundle(
                snippets=tuple(Snippet(**dict(record), score=one.score) for one, record in best),
                capped=len(found) > request.top_k or not is_all,
                **usage(),
            )

    async def explain(self, request: QueryRequest) -> Explanation:
        """Return the parts of mem0's scores, where it reports them."""
        async with self._call() as usage:
            found = [one for one, _ in (await self._search(request, explain=True))[0]]
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

    async def _search(
        self, request: QueryRequest, *, explain: bool = False
    ) -> tuple[list[tuple[Mem0Memory, Record]], bool]:
        """Return the hits visible to the scope, best first, and whether these are all.

        It requests more until enough of the hits are visible.
        """
        if not request.query.strip():
            return [], True
        asked = max(_LEAST_HITS, 2 * request.top_k)
        while True:
            asked = min(asked, _MOST_HITS)
            rows = await self._store.search(request.query, asked, explain=explain)
            found = await asyncio.to_thread(self._fitting, rows, request)
            if len(found) > request.top_k or not rows.more or asked == _MOST_HITS:
                return found, not rows.more
            asked *= 4

    def _fitting(self, rows: MemoryPage, request: QueryRequest) -> list[tuple[Mem0Memory, Record]]:
        may_be = eligible(request)
        return [(one, record) for one, record in self._visible(rows, request) if may_be(record)]

    def _visible(
        self, rows: MemoryPage, request: QueryRequest | BrowseRequest, *, expired: bool = False
    ) -> Iterator[tuple[Mem0Memory, Record]]:
        """Yield the memories visible to a request's scope, and of its owners if it has any."""
        owners = frozenset(map(owner_of, request.owners))
        for memory in rows.items:
            record = self._seen(memory, request.scope, expired=expired)
            if record is not None and (not owners or owner_of(record.scope) in owners):
                yield memory, record

    def _record(self, memory: Mem0Memory) -> Record:
        return memories.record_of(memory, self._context.company_id, self._config.shared_user)

    def _seen(self, memory: Mem0Memory, scope: Scope, *, expired: bool = False) -> Record | None:
        """Return a memory's record; None if it is not visible to the scope, or expired."""
        record = self._record(memory)
        ends = record.expires_at
        is_past = ends is not None and ends <= self._context.now()
        return record if sees(scope, record.scope) and (expired or not is_past) else None

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return one memory."""
        found = await self._memory(handle, scope)
        return None if found is None else self._record(found)

    async def _memory(self, handle: RecordHandle, scope: Scope) -> Mem0Memory | None:
        """Return the memory of a handle; None if none is visible to the scope."""
        if not memories.may_be_id(handle.provider_record_id):
            return None
        found = await self._store.get(handle.provider_record_id)
        return found if found and self._seen(found, scope) else None

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Delete memories, one request each, after checking all of them."""
        async with self._call(changes=True) as usage, self._changing:
            handles = request.handles
            there = await together(
                partial(self._memory, handle, request.scope) for handle in handles
            )
            for memory in there:
                if memory is not None:
                    check_revision(self._record(memory), request.revisions.get(memory.id))
            gone: list[str] = []

            async def delete(memory: Mem0Memory | None) -> bool:
                if memory is None or not await self._store.delete(memory.id):
                    return False
                gone.append(memory.id)
                return True

            try:
                done = await together(partial(delete, memory) for memory in there)
            except MemtuiError as error:
                if not gone:
                    raise
                raise Unavailable(
                    f"{len(gone)} of {len(handles)} memories were forgotten, then it failed: "
                    f"{error}",
                    sent=True,
                ) from error
            missing = [one for one, was_there in zip(handles, done, strict=True) if not was_there]
            return ForgetReply(missing=tuple(missing), **usage())

    async def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a memory in place; mem0 embeds the new text and keeps the old one as history."""
        async with self._call(changes=True) as usage, self._changing:
            memory = await self._memory(request.handle, request.scope)
            if memory is None:
                raise NotFound(
                    f"There is no memory {request.handle.provider_record_id} in this scope; list "
                    "them again."
                )
            check_revision(self._record(memory), request.revision, request.text)
            text = memory.memory if request.text is None else request.text
            if not text.strip():
                raise Invalid("A memory needs some text; forget it instead of emptying it.")
            memories.check_text(text)
            details = memories.details_of(memory).corrected(request)
            expires = memories.last_day(details.expires_at)
            if not request.sets_expiry and details.expires_at is None:
                expires = memories.day(memory.expiration_date)
            metadata = memory.metadata | memories.written(details)
            await self._store.update(memory.id, text, metadata, expires)
            return CorrectReply(handle=request.handle, **usage())

    async def history(self, handle: RecordHandle, scope: Scope) -> Sequence[RecordVersion]:
        """Return a memory's texts; none for a forgotten one, whose owner mem0 no longer tells."""
        if await self._memory(handle, scope) is None:
            return ()
        return memories.versions_of(await self._store.history(handle.provider_record_id))

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page of the memories that were read."""
        async with self._call() as usage:
            rows = await self._rows(fresh=request.cursor is None)
            found = await asyncio.to_thread(self._page, rows, request)
            unread = _unread(rows, self._config)
            return found.model_copy(update={"at_least": bool(unread), "unread": unread, **usage()})

    def _page(self, rows: MemoryPage, request: BrowseRequest) -> BrowsePage:
        fits = matcher(request.filter)
        visible = self._visible(rows, request, expired=request.expired)
        return page([record for _, record in visible if fits(record)], request)

    async def _rows(self, *, fresh: bool) -> MemoryPage:
        """Return all memories, from the cached list unless `fresh` or the list is too old."""
        if self._listed and not fresh and monotonic() - self._listed[0] < _KEPT_SECONDS:
            return self._listed[1]
        rows = await self._store.list(self._config.max_listed)
        self._listed = monotonic(), rows
        return rows

    async def namespaces(self) -> Sequence[Namespace]:
        """List mem0's users, agents, runs and apps, with the number of memories read of each."""
        async with self._call():
            rows = await self._rows(fresh=True)
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
        async with self._call() as usage:
            summary = await self._store.profile(scope.subject_id) if scope.subject_id else ""
            return Profile(summary=summary, **usage())

    async def erase(self, request: EraseRequest) -> EraseReply:
        """Erase the history of deleted memories if it is a local file; report other copies."""
        texts = await self._store.erase(request.record_ids, apply=request.apply)
        beyond = (_KEEPS if texts is None else _STORE_KEEPS).format(self._context.binding_key)
        kept = {"mem0's history": len(texts)} if texts else {}
        return EraseReply(kept=kept, texts=tuple(texts or ()), beyond=(beyond,))

    async def health(self) -> Health:
        """Return the result of a minimal request."""
        try:
            return Health(message=await self._store.check())
        except MemtuiError as error:
            return Health(status="down", message=str(error))


_KEEPS = (
    "mem0's history keeps the old texts of memories that {} has forgotten or corrected; ask its "
    "administrator to erase them."
)
_STORE_KEEPS = (
    "The files of mem0's vector store behind {} may contain words of deleted memories until their "
    "space is used again."
)


def _unread(rows: MemoryPage, config: Mem0Config) -> tuple[str, ...]:
    """Return sentences on the memories that a list lacks."""
    said: list[str] = []
    if rows.more:
        hint = (
            "raise the binding's max_listed to read further."
            if len(rows.items) >= config.max_listed
            else "mem0's server returns no pages and may have cut the list there."
        )
        said.append(f"{len(rows.items):,} memories were read; {hint}")
    if rows.unreadable:
        said.append(f"{rows.unreadable:,} memories that mem0 returned could not be read.")
    return tuple(said)
