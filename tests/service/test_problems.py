"""Every answer tells of what could not be read where it was read from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memtui.config import Paths, load_settings
from memtui.context.assembly import WarningKind
from memtui.contract import (
    BrowseRequest,
    Denied,
    NotFound,
    OperationType,
    QueryRequest,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteRequest,
)
from memtui.service import Caller, Membership, MemoryService, Role, open_service
from memtui.service.context.contexts import ContextRequest
from memtui.service.context.pruning import PruneRequest

ANA = Caller(company_id="local", principal="user:ana", channel="test")
SCOPE = Scope(company_id="local", subject_id="ana")
SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    for name in ("ana", "bob"):
        (folder / "users" / name).mkdir(parents=True)
        (folder / "users" / name / "facts.md").write_bytes(b"- likes tabs\n- b\xffd\n")
    return folder


@pytest.fixture
async def service(paths: Paths, vault: Path) -> AsyncIterator[MemoryService]:
    opened = await open_service(paths, load_settings(paths, principal="user:ana"))
    await opened.bindings.add(ANA, "files", "vault", {"path": str(vault), "refresh_seconds": 0})
    await opened.bindings.set_target(ANA, "company", "local", "files")
    yield opened
    await opened.close()


async def test_every_read_tells(service: MemoryService, vault: Path) -> None:
    page = await service.browse(ANA, BrowseRequest(scope=SCOPE))
    assert {record.text for record in page.records} == {"likes tabs", "b\ufffdd"}
    handle = page.records[0].handle
    pruning = await service.pruning.plan(ANA, PruneRequest(scope=SCOPE))
    for answer in (
        page,
        await service.query(ANA, QueryRequest(scope=SCOPE, query="tabs")),
        await service.get(ANA, handle, SCOPE),
        await service.history(ANA, handle, SCOPE),
        await service.explain(ANA, QueryRequest(scope=SCOPE, query="tabs")),
        pruning,
    ):
        [problem] = answer.problems
        assert problem.sentence().startswith(f"{vault}/users/ana/facts.md:2: ")
    log = await service.log.page(ANA, limit=6)
    assert all(one.request["problems"] == 1 for one in log.operations)
    elsewhere = Scope(company_id="local", project_id="web")
    assert (await service.browse(ANA, BrowseRequest(scope=elsewhere))).problems == ()


async def test_the_context_of_a_model_warns_first_of_what_it_lacks(
    service: MemoryService, vault: Path
) -> None:
    answer = await service.context(ANA, ContextRequest(scope=SCOPE, budget=1, delivered=True))
    assert len(answer.problems) == 1
    assert answer.warnings[0].kind is WarningKind.UNREAD
    assert f"{vault}/users/ana/facts.md:2" in answer.warnings[0].message
    [logged, *_] = (await service.log.page(ANA, limit=1)).operations
    assert logged.operation_type is OperationType.CONTEXT
    assert logged.request["problems"] == 1
    (vault / "users/ana/facts.md").write_text("- likes tabs\n")
    answer = await service.context(ANA, ContextRequest(scope=SCOPE))
    assert not answer.problems
    assert not answer.warnings


async def test_nobody_is_told_of_files_of_others(service: MemoryService) -> None:
    company = Scope(company_id="local")
    assert len((await service.browse(ANA, BrowseRequest(scope=company))).problems) == 2
    member = Membership(principal="user:ana", subject_id="ana", role=Role.OWNER)
    await service.members.set(ANA, member)
    page = await service.browse(ANA, BrowseRequest(scope=company))
    assert [one.scope and one.scope.subject_id for one in page.problems] == ["ana"]
    bob = Scope(company_id="local", subject_id="bob")
    with pytest.raises(Denied):
        await service.browse(ANA, BrowseRequest(scope=bob))


async def test_many_problems_are_counted(service: MemoryService, vault: Path) -> None:
    for number in range(30):
        (vault / "users/ana" / f"{number}.md").write_text("---\nnever closed")
    page = await service.browse(ANA, BrowseRequest(scope=SCOPE))
    assert len(page.problems) == 21
    assert "11 more problems" in page.problems[-1].message
    context = await service.context(ANA, ContextRequest(scope=SCOPE))
    assert context.problems == page.problems
    logged = await service.log.get(ANA, context.operation_id)
    assert logged.request["problems"] == 31


async def test_a_write_tells_of_none(service: MemoryService) -> None:
    request = WriteRequest(scope=SCOPE, source=SOURCE, content="a note")
    assert (await service.write(ANA, request)).problems == ()


async def test_a_note_that_cannot_be_read_is_not_said_to_be_missing(
    service: MemoryService, vault: Path
) -> None:
    note = vault / "users" / "ana" / "notes" / "plan.md"
    note.parent.mkdir()
    note.write_text("---\nsubject_id: [\n---\nThe plan.\n", encoding="utf-8")
    await service.browse(ANA, BrowseRequest(scope=SCOPE))
    with pytest.raises(Unavailable, match=r"cannot be read.*plan.md:1: "):
        await service.get(ANA, "users/ana/notes/plan.md", SCOPE)
    with pytest.raises(NotFound, match="There is no record"):
        await service.get(ANA, "users/ana/notes/other.md", SCOPE)
