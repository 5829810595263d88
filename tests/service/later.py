"""A provider that makes memories of a text, and stores them later."""

from __future__ import annotations

from typing import Any, ClassVar

from memtui.contract import (
    BindingContext,
    Invalid,
    NotFound,
    Record,
    RecordHandle,
    Scope,
    Usage,
    WriteReply,
    WriteRequest,
)
from tests.service.fake import FakeAdapter


class LaterAdapter(FakeAdapter):
    """It stores each sentence of a text, once a test says so."""

    key = "later"
    said: ClassVar[dict[str, WriteRequest]] = {}
    """The writes that are not stored yet, by event."""
    ended: ClassVar[dict[str, WriteReply]] = {}
    failed: ClassVar[dict[str, str]] = {}
    asked: ClassVar[list[str]] = []

    def __init__(self, context: BindingContext) -> None:
        super().__init__(context)
        update: dict[str, Any] = {
            "async_ingestion": True, "provider_managed_extraction": True, "restore": False,
            "keeps_ids": False,
        }  # fmt: skip
        self.capabilities = self.capabilities.model_copy(update=update)
        type(self).last = self

    last: ClassVar[LaterAdapter]

    @classmethod
    def reset(cls) -> None:
        super().reset()
        for one in (cls.said, cls.ended, cls.failed):
            one.clear()
        cls.asked.clear()

    async def write(self, request: WriteRequest) -> WriteReply:
        await self._called("write")
        name = f"event-{len(self.said) + len(self.ended) + 1}"
        self.said[name] = request
        return WriteReply(event=name)

    @classmethod
    def store(cls, name: str) -> list[str]:
        """End an event; return the ids of what was stored."""
        request = cls.said.pop(name)
        handles = []
        for number, text in enumerate(request.content.split(". ")):
            handle = RecordHandle(provider_key="later", provider_record_id=f"{name}-{number}")
            cls.last.held[handle.provider_record_id] = Record(
                handle=handle, text=text.rstrip("."), scope=request.scope, revision="1"
            )
            handles.append(handle)
        usage = Usage(provider="later", input_tokens=7)
        cls.ended[name] = WriteReply(records=tuple(handles), usage=(usage,))
        return [one.provider_record_id for one in handles]

    async def ingested(self, event: str, scope: Scope) -> WriteReply | None:
        self.asked.append(event)
        await self._called("ingested")
        if event in self.failed:
            raise Invalid(self.failed[event])
        if event in self.said:
            return None
        if event not in self.ended:
            raise NotFound("There is no such event.")
        return self.ended[event]
