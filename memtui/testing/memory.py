"""A provider that keeps its records in this process: for trials, and for tests of its callers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import ClassVar, Self

from pydantic import Field, ValidationError

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
    Filter,
    ForgetReply,
    ForgetRequest,
    Health,
    Invalid,
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
from memtui.fuzzy import finds

_SCOPE = ("agent_id", "project_id", "issue_id", "run_id", "subject_id")
_CHANGES = ("text", "pinned", "topic", "tags")


class InMemoryConfig(Model):
    """A provider without a store; its knobs make a slow or failing provider for tests."""

    latency_ms: float = Field(default=0.0, ge=0)
    """How long every call takes, in milliseconds."""
    failing: tuple[str, ...] = ()
    """Names of methods that raise `Unavailable`."""


class InMemoryAdapter(Adapter):
    """Keep records in a dictionary; search counts the query's words."""

    key: ClassVar[str] = "memory"
    config_model = InMemoryConfig
    capabilities = Capabilities(
        browse=True, correction=True, history=True, restore=True, keeps_ids=True, expiry=True,
        pin=True, full_text=True,
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
        try:
            config = InMemoryConfig.model_validate(context.config)
        except ValidationError as error:
            raise Invalid(f"The memory provider's config is wrong: {error}.") from error
        return cls(context, config)

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

    def _visible(self, record_id: str, scope: Scope) -> Record | None:
        record = self._records.get(record_id)
        expired = record and record.expires_at and record.expires_at <= self._context.now()
        if record is None or expired or scope.company_id != self._context.company_id:
            return None
        is_other = scope.project_id and record.scope.project_id not in {None, scope.project_id}
        return None if is_other else record

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
            Record(
                handle=handle, text=request.content, scope=request.scope, source=request.source,
                title=request.title, kind=request.kind, topic=request.topic, tags=request.tags,
                created_at=request.created_at or self._context.now(),
                created_by=request.created_by, expires_at=request.expires_at,
                pinned=request.pinned, metadata=request.metadata,
            )
        )  # fmt: skip
        return WriteReply(records=(handle,))

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Rank by the share of the query's words that a record holds."""
        await self._enter("query")
        words = set(request.query.casefold().split())
        scored = []
        for record in self._all(request.scope):
            held = sum(word in record.text.casefold() for word in words)
            fits = all(record.metadata.get(k) == v for k, v in request.metadata_filter.items())
            if held and fits:
                scored.append(Snippet(**dict(record), score=held / len(words)))
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
            wanted = request.revisions.get(handle.provider_record_id)
            if record is None:
                missing.append(handle)
            elif wanted is not None and wanted != record.revision:
                raise Conflict("The record changed since you read it.", current=record)
            else:
                gone.append(handle.provider_record_id)
        for record_id in gone:
            self._records.pop(record_id, None)
        return ForgetReply(missing=tuple(missing))

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page; the cursor is the last record's place in the order."""
        await self._enter("browse")
        key = request.sort.removeprefix("-")
        if key not in {"created_at", "updated_at", "title", "size", "kind", "topic"}:
            raise Invalid(f"Records cannot be sorted by {key!r}; sort by created_at.")
        chosen = [r for r in self._all(request.scope) if _matches(r, request.scope, request.filter)]
        is_down = request.sort.startswith("-")
        chosen.sort(key=lambda record: _place(record, key), reverse=is_down)
        ids = [record.handle.provider_record_id for record in chosen]
        if request.cursor is not None and request.cursor not in self._versions:
            raise Invalid("This cursor is not of this provider; begin with the first page.")
        start = 0
        if request.cursor is not None:
            last = _place(self._versions[request.cursor][0], key)
            places = [_place(record, key) for record in chosen]
            start = sum(place >= last if is_down else place <= last for place in places)
        page = chosen[start : start + request.limit]
        more = start + len(page) < len(chosen)
        cursor = ids[start + len(page) - 1] if more else None
        return BrowsePage(records=tuple(page), next_cursor=cursor, total=len(chosen))

    async def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a record in place."""
        await self._enter("correct")
        record = self._visible(request.handle.provider_record_id, request.scope)
        if record is None:
            raise NotFound("There is no such record in this scope.")
        if request.revision not in {None, record.revision}:
            raise Conflict(
                "The record changed since you read it.", current=record, proposed=request.text
            )
        values = {name: getattr(request, name) for name in _CHANGES}
        changes = {name: value for name, value in values.items() if value is not None}
        if request.sets_expiry:
            changes["expires_at"] = request.expires_at
        self._put(record.model_copy(update=changes))
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
        """Put records back, or take them away."""
        await self._enter("restore")
        for snapshot in snapshots:
            now = self._records.get(snapshot.handle.provider_record_id)
            if now and snapshot.record and now.created_at != snapshot.record.created_at:
                raise Conflict("Another record stands in its place.", current=now)
        for snapshot in snapshots:
            record_id = snapshot.handle.provider_record_id
            if snapshot.record is None:
                self._records.pop(record_id, None)
            else:
                self._records[record_id] = snapshot.record
        return WriteReply(records=tuple(s.handle for s in snapshots if s.record is not None))

    async def health(self) -> Health:
        """Say how many records there are, or that the provider was told to fail."""
        status = "down" if "health" in self._config.failing else "ok"
        return Health(status=status, records=len(self._records))


def _place(record: Record, key: str) -> tuple[str | int, str]:
    record_id = record.handle.provider_record_id
    if key == "size":
        return len(record.text), record_id
    value = getattr(record, key)
    return (value.isoformat() if hasattr(value, "isoformat") else value or ""), record_id


def _matches(record: Record, scope: Scope, wanted: Filter) -> bool:
    for name in _SCOPE:
        for value in (getattr(scope, name), getattr(wanted, name)):
            if value is not None and getattr(record.scope, name) != value:
                return False
    words = (wanted.text or "").casefold().split()
    created = record.created_at
    return (
        (wanted.source_kind is None or (record.source and record.source.kind) == wanted.source_kind)
        and (wanted.since is None or (created is not None and created >= wanted.since))
        and (wanted.until is None or (created is not None and created < wanted.until))
        and (wanted.topic is None or record.topic == wanted.topic)
        and (wanted.tag is None or wanted.tag in record.tags)
        and (wanted.kind is None or record.kind == wanted.kind)
        and all(word in f"{record.title}\n{record.text}".casefold() for word in words)
        and all(finds(word, f"{record.title}\n{record.text}") for word in wanted.fuzzy)
    )
