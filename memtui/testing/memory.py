"""A provider with its records in this process, for trials and for tests of callers."""

import asyncio
import uuid
from collections.abc import Collection, Sequence
from typing import ClassVar, Self

from pydantic import Field

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
    ForgetReply,
    ForgetRequest,
    Health,
    Model,
    NotFound,
    QueryRequest,
    Record,
    RecordHandle,
    RecordVersion,
    Scope,
    Snapshot,
    Snippet,
    Unavailable,
    WriteMode,
    WriteReply,
    WriteRequest,
)
from memtui.provider_kit import check_revision, read_config
from memtui.provider_kit.matching import has_metadata, matcher, within
from memtui.provider_kit.pages import page

_CHANGES = ("text", "pinned", "summary", "topic", "tags", "expires_at")


class InMemoryConfig(Model):
    """A provider without a store; its knobs make a slow or failing provider for tests."""

    latency_ms: float = Field(default=0.0, ge=0)
    """How long every call takes, in milliseconds."""
    failing: tuple[str, ...] = ()
    """Names of methods that raise `Unavailable`."""


class InMemoryAdapter(Adapter):
    """Stores records in a dictionary; search counts the query's words."""

    key: ClassVar[str] = "memory"
    config_model = InMemoryConfig
    capabilities = Capabilities(
        browse=True, correction=True, history=True, restore=True, keeps_ids=True, expiry=True,
        pin=True, summaries=True, full_text=True, without=True,
    )  # fmt: skip

    def __init__(self, context: BindingContext, config: InMemoryConfig) -> None:
        self._context = context
        self._config = config
        self._records: dict[str, Record] = {}
        self._versions: dict[str, list[Record]] = {}
        self._revision = 0

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open an empty provider."""
        return cls(context, read_config(InMemoryConfig, context))

    async def _enter(self, method: str) -> None:
        await asyncio.sleep(self._config.latency_ms / 1000)
        if method in self._config.failing:
            raise Unavailable("The memory provider was told to fail.", sent=True)

    def _put(self, record: Record) -> Record:
        self._revision += 1
        update = {"revision": str(self._revision), "updated_at": self._context.now()}
        stored = record.model_copy(update=update)
        record_id = record.handle.provider_record_id
        self._records[record_id] = stored
        self._versions.setdefault(record_id, []).insert(0, stored)
        return stored

    def lists(self, scope: Scope, owner: Scope) -> bool:
        """Whether `browse` lists an owner's records: every id of the scope narrows."""
        return within(scope, owner)

    def sees(self, scope: Scope, record: Record) -> bool:
        """Whether a scope names no other project than a record."""
        return not scope.project_id or record.scope.project_id in {None, scope.project_id}

    def _visible(self, record_id: str, scope: Scope) -> Record | None:
        record = self._records.get(record_id)
        expired = record and record.expires_at and record.expires_at <= self._context.now()
        if record is None or expired or scope.company_id != self._context.company_id:
            return None
        return record if self.sees(scope, record) else None

    def _all(self, scope: Scope) -> list[Record]:
        found = [self._visible(record_id, scope) for record_id in self._records]
        return [record for record in found if record]

    async def write(self, request: WriteRequest) -> WriteReply:
        """Store a record; a given id is kept."""
        await self._enter("write")
        record_id = request.record_id or str(uuid.uuid4())
        if record_id in self._records and request.mode is not WriteMode.UPSERT:
            raise Conflict(f"There is already a record {record_id}; write it with mode upsert.")
        handle = RecordHandle(provider_key=self.key, provider_record_id=record_id)
        self._put(
            Record.like(
                request,
                handle=handle,
                text=request.content,
                created_at=request.created_at or self._context.now(),
            )
        )
        return WriteReply(records=(handle,))

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Rank by the share of the query's words that a record contains."""
        await self._enter("query")
        words = set(request.query.casefold().split())
        scored = []
        for record in self._all(request.scope):
            pending = sum(word in record.text.casefold() for word in words)
            if pending and has_metadata(record, request.metadata_filter):
                scored.append(Snippet(**dict(record), score=pending / len(words)))
        scored.sort(key=lambda snippet: -(snippet.score or 0))
        top = tuple(scored[: request.top_k])
        return ContextBundle(snippets=top, capped=len(scored) > len(top))

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return a record."""
        await self._enter("get")
        return self._visible(handle.provider_record_id, scope)

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Remove records, all or none."""
        await self._enter("forget")
        missing, gone = [], []
        for handle in request.handles:
            record = self._visible(handle.provider_record_id, request.scope)
            if record is None:
                missing.append(handle)
                continue
            check_revision(record, request.revisions.get(handle.provider_record_id))
            gone.append(handle.provider_record_id)
        for record_id in gone:
            self._records.pop(record_id, None)
        return ForgetReply(missing=tuple(missing))

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page; every id of the scope narrows."""
        await self._enter("browse")
        asked, fits = request.scope, matcher(request.filter)
        found = [one for one in self._all(asked) if self.lists(asked, one.scope) and fits(one)]
        return page(found, request)

    async def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a record in place."""
        await self._enter("correct")
        record = self._visible(request.handle.provider_record_id, request.scope)
        if record is None:
            raise NotFound("There is no such record in this scope.")
        check_revision(record, request.revision, request.text)
        self._put(record.model_copy(update=request.changes(*_CHANGES)))
        return CorrectReply(handle=request.handle)

    async def history(self, handle: RecordHandle, scope: Scope) -> Sequence[RecordVersion]:
        """Return every version, newest first."""
        await self._enter("history")
        if self._visible(handle.provider_record_id, scope) is None:
            return []
        return [
            RecordVersion(text=version.text, created_by=version.created_by, source=version.source)
            for version in self._versions[handle.provider_record_id]
        ]

    async def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return each record as it is."""
        await self._enter("snapshot")
        found = [self._visible(handle.provider_record_id, scope) for handle in handles]
        return [Snapshot(handle=h, record=r) for h, r in zip(handles, found, strict=True)]

    async def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:  # noqa: ARG002
        """Restore records, or remove them."""
        await self._enter("restore")
        for snapshot in snapshots:
            now = self._records.get(snapshot.handle.provider_record_id)
            if now and snapshot.record and now.created_at != snapshot.record.created_at:
                raise Conflict("Another record has taken its place.", current=now)
        for snapshot in snapshots:
            record_id = snapshot.handle.provider_record_id
            if snapshot.record is None:
                self._records.pop(record_id, None)
            else:
                self._records[record_id] = snapshot.record
        return WriteReply(records=tuple(s.handle for s in snapshots if s.record is not None))

    async def without(self, record_ids: Collection[str]) -> Adapter:
        """Return a copy without some records."""
        await self._enter("without")
        copy = type(self)(self._context, self._config)
        kept = {name: one for name, one in self._records.items() if name not in record_ids}
        vars(copy)["_records"] = kept
        return copy

    async def health(self) -> Health:
        """Return the number of records; down if the config lists `health` as failing."""
        status = "down" if "health" in self._config.failing else "ok"
        return Health(status=status, records=len(self._records))
