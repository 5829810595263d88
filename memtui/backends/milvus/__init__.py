"""Milvus as memory: the collections of agent-queue (seed 002 §6 and §7), in a file or on a server.

Documents are found by their vectors, facts by key and words. Changing a fact adds an entry and ends
the validity of the one before.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

from memtui.contract import (
    Adapter,
    BindingContext,
    BrowsePage,
    BrowseRequest,
    Capabilities,
    Conflict,
    ContextBundle,
    CorrectReply,
    CorrectRequest,
    Denied,
    Embedding,
    EmbedReply,
    EraseReply,
    EraseRequest,
    Explanation,
    ForgetReply,
    ForgetRequest,
    Health,
    Invalid,
    Json,
    MemtuiError,
    Namespace,
    NotFound,
    Problem,
    QueryRequest,
    Record,
    RecordHandle,
    RecordVersion,
    Scope,
    Snapshot,
    Snippet,
    SourceRef,
    SyncReply,
    Unavailable,
    Unsupported,
    Usage,
    WriteReply,
    WriteRequest,
    owner_of,
    owner_scope,
    place_of_path,
    place_of_url,
)
from memtui.embedding import Embedder
from memtui.provider_kit import (
    abilities_in,
    blocking,
    check_revision,
    read_config,
    require_whole,
    require_writable,
)
from memtui.provider_kit.pages import page

from . import reindex, search
from .changes import Entries, EntryChanges
from .config import FILE, MilvusConfig, store_of
from .erasing import erase
from .expressions import quoted
from .facts import MilvusVersion, facts_of
from .listing import all_versions, listed
from .models import Models, QueryVectors
from .naming import collection_of, may_hold, weight
from .reindex import Reindex
from .rows import (
    DOCUMENT,
    DOCUMENTS,
    EVERY,
    KEY,
    SCHEMA,
    TEMPORAL,
    VECTOR,
    RecordAddress,
    Row,
    check_row,
    record_of,
    text_to_embed,
    to_embed,
)
from .store import Collection, MilvusStore

_KEPT_SECONDS = 60.0
"""Seconds for which later pages use the list of the first page."""
_FREE = Usage(provider=KEY, cost_usd=Decimal(0))
"""A local file costs nothing: a known price of zero, not an unknown one."""
_UNPRICED = Usage(provider=KEY)
_EMBEDDED_AT_ONCE = 256


class MilvusAdapter(Adapter):
    """Reads and changes the collections of the company's scopes."""

    key: ClassVar[str] = KEY
    config_model = MilvusConfig
    capabilities = Capabilities(
        browse=True, correction=True, sync=True, explain=True, history=True, namespaces=True,
        restore=True, chosen_owners=True, expiry=True, pin=True, validity=True, semantic=True,
        summaries=True,
    )  # fmt: skip

    def __init__(self, context: BindingContext, config: MilvusConfig, store: MilvusStore) -> None:
        self._context, self._config, self._store = context, config, store
        self.capabilities = abilities_in(context, type(self).capabilities)
        self._models = Models(config, context)
        self._changing = threading.Lock()
        self._jobs: dict[str, Reindex] = {}
        self._state: Embedding | None = None
        """The embedding state, cached once all vectors are of the configured model."""
        self._listed: tuple[float, BrowseRequest, list[Record], bool] | None = None

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Return the file, or the server and its database."""
        config = read_config(MilvusConfig, context)
        if config.uri is not None:
            return [(*place_of_url(config.uri), config.database or "default")]
        return [place_of_path(config.path)] if config.path else ()

    @classmethod
    def lives_in(cls, data_dir: Path) -> bool:
        """Whether the `data_dir` contains a file of Milvus Lite."""
        return (data_dir / FILE).is_dir()

    @classmethod
    def home_of(cls, config: Json, scope: Scope) -> str | None:
        """Return the collection of a scope. Raises `Invalid` for an id that none can have."""
        return collection_of(MilvusConfig.model_validate(config).prefix, scope)

    @classmethod
    def check_record(cls, config: Json, record: Record) -> None:
        """Raise `Invalid` for a record that does not fit Milvus's fields."""
        cls.home_of(config, record.scope)
        field = "kv_value" if record.kind == "fact" else "original"
        check_row({field: record.text, "topic": record.topic or ""}, SCHEMA)

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open the store and list its collections. Raises `Invalid`, `Unavailable`, `Denied`."""
        return await asyncio.to_thread(cls._open, context)

    @classmethod
    def _open(cls, context: BindingContext) -> Self:
        config = read_config(MilvusConfig, context)
        store = store_of(config, context)
        try:
            adapter = cls(context, config, store)
            if not context.read_only:
                owner = Scope(company_id=context.company_id)
                reindex.finish(store, config.prefix, owner)
            store.collections()
        except MemtuiError:
            store.close()
            raise
        return adapter

    @blocking
    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _check_writable(self) -> None:
        require_writable(self._context, "These collections are")

    def _check_company(self, scope: Scope) -> None:
        if scope.company_id != self._context.company_id:
            raise Denied("This Milvus belongs to another company.")

    # Read

    def lists(self, scope: Scope, owner: Scope) -> bool:
        """Whether a record of an owner has a weight for a scope."""
        return weight(scope, owner_scope(owner), owner) > 0

    def _readable(self, scope: Scope) -> list[Collection]:
        self._check_company(scope)
        return [
            one
            for one in self._store.collections()
            if one.is_readable and may_hold(scope, one.owner)
        ]

    @blocking
    def query(self, request: QueryRequest) -> ContextBundle:
        """Search documents by meaning and facts by key and words."""
        found = self._search(request)
        hits = found.hits[: request.top_k]
        return ContextBundle(
            snippets=tuple(Snippet(**dict(hit.record), score=hit.score) for hit in hits),
            capped=found.is_cut or len(found.hits) > len(hits),
            stages=search.stages_of(found, request.top_k),
            usage=(self._usage, *found.usage),
        )

    @blocking
    def explain(self, request: QueryRequest) -> Explanation:
        """Return the contributions of keys, words, meaning and scope."""
        return search.explain(self._search(request), request.top_k)

    @property
    def _usage(self) -> Usage:
        return _FREE if self._config.uri is None else _UNPRICED

    def _search(self, request: QueryRequest) -> search.MilvusHits:
        vectors = QueryVectors(self._models, request.query)
        collections, now = self._readable(request.scope), self._context.now()
        found = search.search(self._store, collections, request, now, vectors.of)
        found.usage = tuple(vectors.usage)
        return found

    @blocking
    def browse(self, request: BrowseRequest) -> BrowsePage:
        """Read the records visible to a scope, at most `max_listed` per collection; return a page.

        Later pages come from the same list.
        """
        same = request.model_copy(update={"cursor": None, "limit": 1, "sort": ""})
        kept = self._listed
        is_kept = kept is not None and time.monotonic() - kept[0] < _KEPT_SECONDS
        if request.cursor is None or kept is None or not is_kept or kept[1] != same:
            records, is_cut = listed(
                self._store,
                self._readable(request.scope),
                request,
                self._context.now(),
                self._config.max_listed,
            )
            self._listed = kept = time.monotonic(), same, records, is_cut
        _, _, records, is_cut = kept
        found = page(records, request)
        most = self._config.max_listed
        return found.model_copy(
            update={
                "usage": (self._usage,),
                "at_least": is_cut,
                "unread": (
                    (
                        f"Only the first {most:,} entries of each collection were read; raise "
                        "max_listed to read more."
                    ),
                ) if is_cut else (),
            }
        )  # fmt: skip

    @blocking
    def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return one record."""
        found = self._find(handle, scope)
        return found.record if found else None

    def _find(self, handle: RecordHandle, scope: Scope, *, expired: bool = False) -> _Stored | None:
        """Return a record visible to the scope, an expired one only if `expired`."""
        place, collection = self._place(handle, scope)
        if place is None or collection is None:
            return None
        found = self._stored(place, collection)
        if found is None or weight(scope, collection.owner, found.record.scope) <= 0:
            return None
        ends = found.record.expires_at
        return None if ends and ends <= self._context.now() and not expired else found

    def _place(
        self, handle: RecordHandle, scope: Scope
    ) -> tuple[RecordAddress | None, Collection | None]:
        place = RecordAddress.of(handle.provider_record_id) if handle.provider_key == KEY else None
        if place is None:
            return None, None
        known = (one for one in self._readable(scope) if one.name == place.collection)
        return place, next(known, None)

    def _stored(self, place: RecordAddress, collection: Collection) -> _Stored | None:
        changes = self._changes(collection)
        if place.entry_id is not None:
            if _is_too_long(place.entry_id):
                return None
            row = changes.entry(place.entry_id)
            if row is None:
                return None
            record = record_of(row, collection.name, collection.owner)
            return _Stored(collection, record, row)
        name = place.fact or ""
        fact = None if _is_too_long(name) else changes.fact(name)
        version = fact.current(self._context.now()) if fact else None
        if fact is None or version is None:
            return None
        record = fact.record(version, collection.name, collection.owner)
        return _Stored(collection, record, version.row, version)

    def _changes(self, collection: Collection) -> EntryChanges:
        return EntryChanges(self._store, collection, self._context.now())

    @blocking
    def history(self, handle: RecordHandle, scope: Scope) -> Sequence[RecordVersion]:
        """Return a fact's versions, newest first; for another record only the current one."""
        place, collection = self._place(handle, scope)
        if place is None or collection is None:
            return []
        if place.fact is None:
            found = self._find(handle, scope)
            if found is None:
                return []
            return [RecordVersion.like(found.record, valid_from=found.record.created_at)]
        fact = None if _is_too_long(place.fact) else self._changes(collection).fact(place.fact)
        known = [fact.record(one, collection.name, collection.owner)
                 for one in reversed(fact.versions)] if fact else []  # fmt: skip
        seen = (one for one in known if weight(scope, collection.owner, one.scope) > 0)
        return [RecordVersion.like(one) for one in seen]

    @blocking
    def versions(self, scope: Scope) -> Sequence[Record]:
        """Return every version of every fact with its window, and other records as they are."""
        return all_versions(self._store, self._readable(scope), scope)

    @blocking
    def namespaces(self) -> Sequence[Namespace]:
        """List the collections, with the number of current entries."""
        return [
            Namespace(
                name=one.name, kind=owner_of(one.owner)[0].removesuffix("_id"),
                records=self._count(one), metadata={"made": one.made} if one.made else {},
            )
            for one in self._store.collections()
        ]  # fmt: skip

    def _count(self, collection: Collection) -> int | None:
        if not collection.is_readable or "valid_to" not in collection.fields:
            return None
        return self._store.count(collection, f"entry_type != {quoted(TEMPORAL)} or valid_to == 0")

    # Change

    @blocking
    def write(self, request: WriteRequest) -> WriteReply:
        """Store a document, or a fact; a fact in upsert mode replaces the value of its key."""
        self._check_writable()
        self._check_company(request.scope)
        is_fact = request.kind == "fact"
        if is_fact and request.summary:
            raise Invalid("A fact has no summary; leave it out, or write a note.")
        with self._changing:
            self._forget_known()
            name = collection_of(self._config.prefix, request.scope)
            collection = self._known(name)
            vector: list[float] = []
            usage: tuple[Usage, ...] = ()
            if collection is None or not is_fact:
                check_row({"original": request.content}, SCHEMA)
                text = to_embed(request.summary or request.content, request.title)
                vector, usage = self._models.document(text, collection)
            collection = collection or self._made(name, len(vector))
            if collection.unfillable:
                raise Invalid(
                    f"The collection {name} was made by another program and needs a value for "
                    f"{', '.join(collection.unfillable)}; memtui cannot write to it."
                )
            changes = self._changes(collection)
            if is_fact:
                return self._write_fact(changes, collection, request, usage)
            place = changes.document(request, vector)
            return WriteReply(records=(place.handle,), usage=(self._usage, *usage))

    def _write_fact(
        self, changes: EntryChanges, collection: Collection, request: WriteRequest,
        usage: tuple[Usage, ...],
    ) -> WriteReply:  # fmt: skip
        place, rows = changes.write_fact(request)
        before = []
        if rows:
            record: Record | None = None
            if place.fact is None:
                record = record_of(rows[0], collection.name, collection.owner)
            elif (fact := next(iter(facts_of(rows)), None)) is not None:
                version = fact.current(self._context.now())
                if version is not None:
                    record = fact.record(version, collection.name, collection.owner)
            entries = Entries(rows, collection.model)
            before.append(Snapshot(handle=place.handle, record=record, state=entries.seal()))
        return WriteReply(
            records=(place.handle,), before=tuple(before), usage=(self._usage, *usage)
        )

    def _known(self, name: str) -> Collection | None:
        return next((one for one in self._store.collections() if one.name == name), None)

    def _made(self, name: str, dimensions: int) -> Collection:
        model = self._models.own
        self._store.create(name, dimensions, model.name if model else "")
        collection = self._known(name)
        if collection is None:
            raise Unavailable(
                f"The collection {name} was not found right after it was created; try again."
            )
        return collection

    @blocking
    def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a record; another text of a fact opens a new version."""
        self._check_writable()
        with self._changing:
            self._forget_known()
            found = self._find(request.handle, request.scope)
            if found is None:
                if request.revision is None:
                    raise NotFound(
                        f"There is no record {request.handle.provider_record_id[:200]!r} in this "
                        "scope; list them again."
                    )
                raise Conflict("The record was removed since you read it.", proposed=request.text)
            check_revision(found.record, request.revision, request.text)
            if request.text is not None and not request.text.strip():
                raise Invalid("A memory needs some text; forget it instead of emptying it.")
            changes = self._changes(found.collection)
            if found.version is not None:
                if request.summary:
                    raise Invalid("A fact has no summary; leave it out.")
                place = changes.correct_fact(found.version, request)
                return CorrectReply(handle=place.handle, usage=(self._usage,))
            vector: list[float] | None = None
            usage: tuple[Usage, ...] = ()
            is_document = found.row["entry_type"] == DOCUMENT
            if is_document and (request.text is not None or request.summary is not None):
                record = found.record
                summary = record.summary if request.summary is None else request.summary
                text = record.text if request.text is None else request.text
                vector, usage = self._models.document(
                    to_embed(summary or text, record.title), found.collection
                )
            place = changes.correct(found.row, request, vector)
            return CorrectReply(handle=place.handle, usage=(self._usage, *usage))

    @blocking
    def forget(self, request: ForgetRequest) -> ForgetReply:
        """Delete documents and key-values; end the validity of facts."""
        self._check_writable()
        with self._changing:
            self._forget_known()
            missing: list[RecordHandle] = []
            there: list[_Stored] = []
            for handle in dict.fromkeys(request.handles):
                found = self._find(handle, request.scope, expired=True)
                if found is None:
                    missing.append(handle)
                    continue
                check_revision(found.record, request.revisions.get(handle.provider_record_id))
                there.append(found)
            for collection in {one.collection.name: one.collection for one in there}.values():
                own = [one for one in there if one.collection.name == collection.name]
                closed = [one.version for one in own if one.version is not None]
                gone = [str(one.row["entry_id"]) for one in own if one.version is None]
                self._changes(collection).close(closed)
                self._store.delete(collection, gone)
        return ForgetReply(missing=tuple(missing), usage=(self._usage,))

    # Put back, and erase

    @blocking
    def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return all entries of each record, vectors and expired records included."""
        taken = []
        for handle in handles:
            found = self._find(handle, scope, expired=True)
            place, collection = self._place(handle, scope)
            state: Json = {}
            if (
                place is not None
                and collection is not None
                and not _is_too_long(place.fact or place.entry_id or "")
            ):
                state = self._changes(collection).entries(place).seal()
            record = found.record if found else None
            taken.append(Snapshot(handle=handle, record=record, state=state))
        return taken

    @blocking
    def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Put all entries of each record back as they were."""
        self._check_writable()
        with self._changing:
            self._forget_known()
            ready = [(one, Entries.unseal(one.state)) for one in snapshots]
            for snapshot, entries in ready:
                self._restore(snapshot, entries, scope)
        return WriteReply(
            records=tuple(one.handle for one in snapshots if one.record is not None),
            usage=(self._usage,),
        )

    def _restore(self, snapshot: Snapshot, entries: Entries | None, scope: Scope) -> None:
        place, collection = self._place(snapshot.handle, scope)
        if place is None:
            raise Invalid(
                f"{snapshot.handle.provider_record_id[:80]!r} is not the id of a Milvus record."
            )
        if collection is None:
            if entries is not None and entries.rows:
                raise NotFound(
                    f"The collection {place.collection} is gone; nothing can be restored."
                )
            return
        changes = self._changes(collection)
        if entries is None:
            rows = changes.past(place)
        else:
            rows = [self._fitting(row, entries.model, collection) for row in entries.rows]
        changes.restore(place, rows)

    def _fitting(self, row: Row, model: str | None, collection: Collection) -> Row:
        """Return an entry with a vector for the collection, which may have been re-indexed."""
        if model == collection.model or collection.dimensions is None:
            return row
        if row.get("entry_type") != DOCUMENT:
            return {**row, VECTOR: [0.0] * collection.dimensions}
        vector, _ = self._models.document(text_to_embed(row), collection)
        return {**row, VECTOR: vector}

    @blocking
    def erase(self, request: EraseRequest) -> EraseReply:
        """Delete the entries of ended facts, and remove deleted entries from the file.

        Milvus Lite keeps deleted entries in its files, so a collection is rewritten.
        """
        if request.apply:
            self._check_writable()
        with self._changing:
            self._forget_known()
            self._jobs.clear()
            collections = self._readable(request.scope)
            reply = erase(self._store, collections, request, self._context.now())
        path = self._config.path
        return reply.model_copy(update={"folders": (path,) if path else ()})

    # State

    @blocking
    def sync(self, source: SourceRef | None = None) -> SyncReply:
        """Re-index the collections that memtui made with another model."""
        require_whole(source)
        self._check_writable()
        collections = [one for one in self._store.collections() if one.is_readable]
        seen = sum(self._store.count(one, EVERY) for one in collections)
        changed = sum(self._store.count(one, DOCUMENTS) for one in self._outdated())
        usage = [self._usage]
        while self._outdated():
            usage += self._reindex(_EMBEDDED_AT_ONCE)
        return SyncReply(seen=seen, changed=changed, usage=tuple(usage))

    @blocking
    def embed(self, most: int) -> EmbedReply:
        """Continue the re-index, until the configured model answers everywhere."""
        own = self._models.own
        if own is None:
            raise Unsupported(
                "This binding has no embedding model; set embedding to search by meaning."
            )
        usage = self._reindex(most) if most and self._outdated() else ()
        return EmbedReply(embedding=self._embedding_state(own), usage=usage)

    def _outdated(self) -> list[Collection]:
        """Return the collections that memtui made with another model than the config's."""
        if self._context.read_only:
            return []
        known = (one for one in self._store.collections() if one.is_readable)
        return [one for one in known if self._models.is_outdated(one)]

    def _reindex(self, most: int) -> tuple[Usage, ...]:
        """Continue the re-index, collection by collection, for `most` documents."""
        own = self._models.own
        used: tuple[Usage, ...] = ()
        with self._changing:
            self._forget_known()
            for collection in self._outdated():
                name = collection.name
                if own is None or most <= 0:
                    break
                job = self._jobs.pop(name, None) or Reindex(self._store, collection, own.name)
                before = job.embedded
                is_done, usage = job.step(partial(self._models.vectors, own), most)
                used, most = (*used, *usage), most - (job.embedded - before)
                if not is_done:
                    self._jobs[name] = job
        return used

    def _embedding_state(self, own: Embedder) -> Embedding:
        """Return the embedding state, counted only if it may have changed.

        The app asks every few seconds.
        """
        if self._state is not None:
            return self._state
        collections = [
            one for one in self._store.collections() if one.is_readable and one.model is not None
        ]
        outdated = self._outdated()
        serving: str | None = own.name
        if outdated:
            model = self._models.of(outdated[0])
            serving = model.name if model else None
        found = Embedding(
            model=own.name,
            dimensions=own.dimensions,
            texts=sum(self._store.count(one, DOCUMENTS) for one in collections),
            embedded=sum(reindex.embedded(self._store, one, own.name) for one in collections),
            serving=serving,
            address=own.address,
            agreed=own.address is None or own.address in self._context.agreed,
        )
        self._state = found if found.is_done else None
        return found

    def _forget_known(self) -> None:
        self._listed = self._state = None

    @blocking
    def problems(self, scope: Scope) -> Sequence[Problem]:
        """Return the collections of the scope that cannot be read or searched by meaning."""
        said = self._models.trouble
        trouble = [Problem(message=said, search_only=True)] if said else []
        seen = [one for one in self._store.collections() if may_hold(scope, one.owner)]
        return [*trouble, *self._problems(seen)]

    def _problems(self, collections: Sequence[Collection]) -> Iterator[Problem]:
        if said := self._models.outdated(collections):
            yield Problem(message=said, search_only=True)
        for one in collections:
            if not one.is_loaded:
                said = (
                    f"Milvus does not load the collection {one.name}, so its entries are not "
                    "shown; give its vectors an index, or the token the right to load it."
                )
            elif not one.is_readable:
                said = (
                    f"The collection {one.name} has no text key entry_id or no entry_type, so its "
                    "entries are not shown."
                )
            else:
                said = self._models.mismatch(one)
            if said:
                shown = one.is_loaded and one.is_readable
                yield Problem(message=said, scope=one.owner, search_only=shown)

    @blocking
    def health(self) -> Health:
        """Return the version of Milvus, and the collections that need attention."""
        try:
            version = self._store.version()
            collections = self._store.collections()
            counts = [self._count(one) or 0 for one in collections]
        except MemtuiError as error:
            return Health(status="down", message=str(error))
        problems = tuple(self._problems(collections))
        own = self._models.own
        message = problems[0].message if problems else ""
        if not collections:
            message = "The first collection will be made with the first memory."
        return Health(
            status="degraded" if problems else "ok",
            message=message,
            version=version,
            records=sum(counts),
            problems=problems,
            embedding=self._embedding_state(own) if own else None,
        )


@dataclass(frozen=True, slots=True)
class _Stored:
    """A record with its stored entry."""

    collection: Collection
    record: Record
    row: Row
    version: MilvusVersion | None = None
    """The current version, for a fact."""


def _is_too_long(name: str) -> bool:
    most = SCHEMA["entry_id"] or 0
    return len(name) > 2 * most or any("\ud800" <= char <= "\udfff" for char in name)
