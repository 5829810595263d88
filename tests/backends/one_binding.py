"""Requests about the memories of one binding of the company `local`, by the binding's key."""

from __future__ import annotations

from typing import Any

from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    ForgetRequest,
    Record,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.service.memory import MemoryService
from memtui.service.visibility import Caller

SCOPE = Scope(company_id="local")
SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")


async def by_id(service: MemoryService, caller: Caller, *, key: str) -> dict[str, Record]:
    request = BrowseRequest(binding_key=key, scope=SCOPE, limit=1000)
    found = await service.browse(caller, request)
    return {one.handle.provider_record_id: one for one in found.records}


async def by_text(service: MemoryService, caller: Caller, *, key: str) -> dict[str, Record]:
    found = await by_id(service, caller, key=key)
    return {one.text: one for one in found.values()}


def note(text: str, *, key: str, **fields: Any) -> WriteRequest:
    asked = {"binding_key": key, "scope": SCOPE, "source": SOURCE, "content": text}
    return WriteRequest.model_validate({**asked, **fields})


def corrected(record: Record, text: str, *, key: str, **fields: Any) -> CorrectRequest:
    return CorrectRequest(binding_key=key, scope=SCOPE, handle=record.handle, text=text, **fields)


def forgetting(*records: Record, key: str) -> ForgetRequest:
    return ForgetRequest.of(records, SCOPE, key)
