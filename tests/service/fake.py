"""A provider in memory that can be told to be slow, down, malformed or forgetful of forgetting."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict

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
    NotFound,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    Snippet,
    Unavailable,
    Usage,
    WriteReply,
    WriteRequest,
)


class FakeConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")
    label: str = ""
    restore: bool = True
    keeps_ids: bool = True
    browse: bool = True
    similar: bool = False


_KEPT = ("title", "summary", "kind", "topic", "tags", "pinned", "metadata", "created_at",
         "created_by", "expires_at", "valid_from")  # fmt: skip


class FakeAdapter(Adapter):
    key: ClassVar[str] = "fake"
    config_model: ClassVar[type[BaseModel]] = FakeConfig
    records: ClassVar[dict[str, dict[str, Record]]] = {}
    fault: ClassVar[BaseException | None] = None
    fault_after: ClassVar[BaseException | None] = None
    delay: ClassVar[float] = 0
    haunted: ClassVar[bool] = False
    calls: ClassVar[list[str]] = []
    received: ClassVar[list[Any]] = []
    usage: ClassVar[tuple[Usage, ...]] = ()

    def __init__(self, context: BindingContext) -> None:
        config = FakeConfig.model_validate(context.config)
        self.context = context
        self.capabilities = Capabilities(
            browse=config.browse,
            correction=True,
            restore=config.restore,
            keeps_ids=config.keeps_ids,
            similar=config.similar,
            summaries=True,
            full_text=True,
        )
        self.held = self.records.setdefault(f"{context.company_id}/{context.binding_key}", {})

    @classmethod
    def reset(cls) -> None:
        cls.records.clear()
        cls.calls.clear()
        cls.received.clear()
        cls.fault = cls.fault_after = None
        cls.delay, cls.haunted, cls.usage = 0, False, ()

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        return cls(context)

    async def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.fault is not None:
            raise self.fault

    async def write(self, request: WriteRequest) -> WriteReply:
        await self._called("write")
        self.received.append(request)
        keep = request.record_id if self.capabilities.keeps_ids else None
        record_id = keep or f"r{len(self.calls)}"
        handle = RecordHandle(provider_key=self.key, provider_record_id=record_id)
        before = Snapshot(handle=handle, record=self.held.get(record_id))
        self.held[record_id] = Record(
            handle=handle,
            text=request.content,
            scope=request.scope,
            source=request.source,
            revision="1",
            **{name: getattr(request, name) for name in _KEPT},
        )
        if self.fault_after is not None:
            raise self.fault_after
        return WriteReply(
            records=(handle,),
            before=(before,) if self.capabilities.restore else (),
            usage=self.usage,
        )

    async def query(self, request: QueryRequest) -> ContextBundle:
        await self._called("query")
        self.received.append(request)
        words = request.query.lower().split()
        found = [
            Snippet(**dict(record), score=1.0)
            for record in self.held.values()
            if any(word in record.text.lower() for word in words)
        ]
        top = tuple(found[: request.top_k])
        return ContextBundle(snippets=top, capped=len(found) > len(top), usage=self.usage)

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        await self._called("get")
        return self.held.get(handle.provider_record_id)

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        await self._called("forget")
        self.received.append(request)
        if not self.haunted:
            for handle in request.handles:
                self.held.pop(handle.provider_record_id, None)
        return ForgetReply(usage=self.usage)

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        await self._called("browse")
        self.received.append(request)
        return BrowsePage(records=tuple(self.held.values()), total=len(self.held))

    async def correct(self, request: CorrectRequest) -> CorrectReply:
        await self._called("correct")
        current = self.held.get(request.handle.provider_record_id)
        if current is None:
            raise NotFound("gone")
        if request.revision not in (None, current.revision):
            raise Conflict("It changed meanwhile.", current=current, proposed=request.text)
        named = ("text", "summary", "pinned", "topic", "tags")
        update = {name: getattr(request, name) for name in named}
        update = {name: value for name, value in update.items() if value is not None}
        if request.sets_expiry:
            update["expires_at"] = request.expires_at
        self.received.append(request)
        self.held[request.handle.provider_record_id] = current.model_copy(
            update=update | {"revision": str(int(current.revision or 0) + 1)}
        )
        if self.fault_after is not None:
            raise self.fault_after
        return CorrectReply(handle=request.handle)

    async def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        return [
            Snapshot(handle=handle, record=self.held.get(handle.provider_record_id))
            for handle in handles
        ]

    async def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        await self._called("restore")
        for snapshot in snapshots:
            if snapshot.record is None:
                self.held.pop(snapshot.handle.provider_record_id, None)
            else:
                self.held[snapshot.handle.provider_record_id] = snapshot.record
        return WriteReply(records=tuple(snapshot.handle for snapshot in snapshots))


def down() -> Unavailable:
    return Unavailable("The provider is down; try again.")
