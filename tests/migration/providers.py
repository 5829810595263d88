"""Providers that hold less than they are given, and say so or do not."""

from __future__ import annotations

import uuid
from typing import ClassVar

from memtui.contract import (
    Capabilities,
    Record,
    RecordHandle,
    WriteReply,
    WriteRequest,
)
from memtui.testing import InMemoryAdapter


class LossyAdapter(InMemoryAdapter):
    """Keeps text, scope and metadata, with a field of its own; nothing else, and no ids."""

    key: ClassVar[str] = "lossy"
    capabilities: ClassVar[Capabilities] = Capabilities(  # type: ignore[misc]
        browse=True, correction=True, full_text=True
    )

    async def write(self, request: WriteRequest) -> WriteReply:
        assert request.expires_at is None
        assert not request.pinned
        handle = RecordHandle(provider_key=self.key, provider_record_id=str(uuid.uuid4()))
        self._put(
            Record(
                handle=handle,
                text=request.content,
                scope=request.scope,
                created_at=self._context.now(),
                metadata=self.kept(request),
            )
        )
        return WriteReply(records=(handle,))

    def kept(self, request: WriteRequest) -> dict[str, object]:
        return {**request.metadata, "shard": 3}


class BareAdapter(LossyAdapter):
    """Keeps not even metadata."""

    key: ClassVar[str] = "bare"

    def kept(self, request: WriteRequest) -> dict[str, object]:
        return {}
