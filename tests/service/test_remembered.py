from __future__ import annotations

import pytest

from memtui.contract import Scope, SourceKind, SourceRef, WriteRequest
from memtui.service import Caller, MemoryService
from memtui.service.usecases import remembered as counting


async def test_every_binding_and_page_is_counted_by_owner(
    service: MemoryService, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id=caller.company_id)
    await service.bindings.add(caller, "more", "fake", {})
    company, web = (
        Scope(company_id=caller.company_id),
        Scope(company_id=caller.company_id, project_id="web"),
    )
    for scope, key, kind in (
        (company, "default", "note"), (web, "default", "fact"), (web, "more", "note"),
        (web, "more", "fact"),
    ):  # fmt: skip
        text = f"A {kind} of {key} and {scope.project_id}"
        values = {"scope": scope, "binding_key": key, "content": text, "kind": kind}
        asked = WriteRequest(source=source, **values)
        await service.write(caller, asked)
    found = await counting.remembered(service, caller, "gpt-4o")
    assert {(one.owner, one.binding_key, one.records, one.in_contexts) for one in found.shares} == {
        (company, "default", 1, 0),
        (web, "default", 1, 1),
        (web, "more", 2, 1),
    }
    assert (found.records, found.is_whole, found.unread) == (4, True, ())
    assert all(one.tokens > 5 * one.records for one in found.shares)
    monkeypatch.setattr(counting, "_MOST", 1)
    assert not (await counting.remembered(service, caller, "gpt-4o")).is_whole
