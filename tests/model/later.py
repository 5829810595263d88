"""A provider of files that stores what is written only once a step says so."""

from __future__ import annotations

from typing import ClassVar

from memtui.backends.claude_memory import ClaudeMemoryAdapter
from memtui.contract import Invalid, NotFound, Record, Scope, WriteReply, WriteRequest

LOST, FAILED = "lost", "failed"


class LaterAdapter(ClaudeMemoryAdapter):
    """Claude Code's memories, each written later."""

    key: ClassVar[str] = "later"
    capabilities = ClaudeMemoryAdapter.capabilities.model_copy(update={"async_ingestion": True})
    asked: ClassVar[dict[str, WriteRequest]] = {}
    """The writes that were asked for, by event."""
    ended: ClassVar[dict[str, WriteReply | str]] = {}
    """What came of them: a reply, or why there is none."""

    async def write(self, request: WriteRequest) -> WriteReply:
        event = f"event-{len(self.asked)}"
        self.asked[event] = request
        return WriteReply(event=event)

    async def end(self, event: str, how: str) -> Record | None:
        """End an event; return what was stored. It may be `lost` although it was stored."""
        reply = WriteReply()
        if "stored" in how:
            reply = await super().write(self.asked[event])
        self.ended[event] = next((one for one in (LOST, FAILED) if one in how), reply)
        return await self.get(reply.records[0], self.asked[event].scope) if reply.records else None

    async def ingested(self, event: str, scope: Scope) -> WriteReply | None:
        del scope
        found = self.ended.get(event)
        if found == LOST:
            raise NotFound("There is no such event.")
        if isinstance(found, str):
            raise Invalid("The model refused the text.")
        return found
