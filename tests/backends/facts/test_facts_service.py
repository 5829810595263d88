"""Facts through the service: logged, based on a revision, and taken back to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memtui.backends.facts import FactsAdapter
from memtui.config import Paths, Settings
from memtui.contract import (
    Conflict,
    CorrectRequest,
    ForgetRequest,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, open_service
from tests.backends.facts.kit import dump, seed
from tests.databases import ON_BOTH

ANA = Scope(company_id="local", subject_id="ana")
APOLLO = Scope(company_id="local", project_id="apollo")


async def _opened(paths: Paths, settings: Settings, caller: Caller, url: str) -> MemoryService:
    service = await open_service(paths, settings, providers={"facts": FactsAdapter})
    config: dict[str, Any] = {"url": url, "create": True} if url else {}
    await service.bindings.add(caller, "short", "facts", config)
    return service


def _request(text: str, scope: Scope) -> WriteRequest:
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
    return WriteRequest(scope=scope, source=source, content=text, binding_key="short")


@ON_BOTH
async def test_edit_forget_and_undo(
    paths: Paths, settings: Settings, caller: Caller, database_url: str
) -> None:
    if database_url:
        seed(database_url, users=("ana",), drives=("apollo",))
    service = await _opened(paths, settings, caller, database_url)
    where: str | Path = database_url
    wrote = [await service.write(caller, _request(f"Fact {n}.", ANA)) for n in range(3)]
    wrote += [await service.write(caller, _request("Of the drive.", APOLLO))]
    if not database_url:
        (file,) = paths.binding_dir("any").parent.rglob("facts.sqlite3")
        where = file.parent
    before = dump(where)
    record = wrote[0].records[0]
    assert record.created_by == "user:ana"
    change = CorrectRequest(
        scope=ANA, handle=record.handle, binding_key="short", text="New.", revision=record.revision
    )
    await service.correct(caller, change)
    with pytest.raises(Conflict):
        await service.correct(caller, change)
    handles = tuple(answer.handles[0] for answer in wrote)
    everyone = Scope(company_id="local")
    forgot = await service.forget(
        caller, ForgetRequest(scope=everyone, handles=handles, binding_key="short")
    )
    assert len(forgot.handles) == 4
    assert forgot.ghosts == ()
    assert not any(dump(where).values())
    await service.undo(caller)
    await service.undo(caller)
    assert dump(where) == before
    await service.close()
