"""Seed 004 §6.5 cell by cell, through the service, and every way around it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memtui.config import Paths, Settings, load_settings
from memtui.contract import (
    EVERYTHING,
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Denied,
    ForgetRequest,
    Invalid,
    OperationStatus,
    OperationType,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceRef,
    WriteMode,
    WriteRequest,
)
from memtui.service import Caller, Membership, MemoryService, Role, open_service
from memtui.service.context.contexts import ContextRequest
from memtui.service.context.pruning import PruneRequest
from memtui.store.log import OperationStore
from memtui.store.operation import Operation
from tests.homes import furnish, make_home
from tests.service.fake import FakeAdapter

SOURCE = SourceRef(kind="manual_note", company_id="local")
ANA = Scope(company_id="local", subject_id="ana")
APOLLO = Scope(company_id="local", project_id="apollo")
COMPANY = Scope(company_id="local")
OWN = ("ana", "bob")
PEOPLE = ("owner", "admin", "member", "ana", "outsider")


def caller(principal: str, acts_for: str | None = None) -> Caller:
    return Caller(company_id="local", principal=principal, acts_for=acts_for, channel="test")


def person(name: str) -> Caller:
    return caller(f"user:{name}")


def agent_of(name: str) -> Caller:
    return caller("agent:helper", f"user:{name}")


def fact(scope: Scope, text: str = "Prefers tabs", **fields: object) -> WriteRequest:
    given = {"scope": scope, "source": SOURCE, "content": text, "kind": "fact"}
    return WriteRequest.model_validate(given | fields)


@pytest.fixture
def settings(paths: Paths, database_url: str) -> Settings:
    return load_settings(paths, principal="user:setup", database_url=database_url)


async def start(paths: Paths, database_url: str = "") -> MemoryService:
    settings = load_settings(paths, principal="user:setup", database_url=database_url)
    service = await open_service(paths, settings)
    setup = caller("user:setup")
    for member in (
        Membership(principal="user:boss", role=Role.OWNER),
        Membership(principal="user:owner", role=Role.OWNER, project_id="apollo"),
        Membership(principal="user:admin", role=Role.ADMIN, project_id="apollo"),
        Membership(principal="user:member", role=Role.MEMBER, project_id="apollo"),
        Membership(principal="user:ana", role=Role.MEMBER, project_id="zeus", subject_id="ana"),
    ):
        await service.members.set(setup, member)
        setup = person("boss")
    return service


@pytest.fixture(scope="session")
def populated(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that was started like that, to be copied."""
    return make_home(tmp_path_factory.mktemp("populated") / "home", empty_database, start)


@pytest.fixture
async def opened(paths: Paths, settings: Settings, populated: Path) -> AsyncIterator[MemoryService]:
    if settings.database_url:
        service = await start(paths, settings.database_url)
    else:
        furnish(paths, settings, populated)
        service = await open_service(paths, settings)
    yield service
    await service.close()


def logged(service: MemoryService, count: int) -> tuple[Operation, ...]:
    """Return the newest operations, whoever may see them."""
    with service.analysis.database.read() as connection:
        return OperationStore(connection, "local").page(EVERYTHING, limit=count).operations


async def held(service: MemoryService, scope: Scope, text: str = "Kept") -> RecordHandle:
    """Put a fact there, past the roles, as a hand in the vault would."""
    boss = person("boss")
    member = Membership(principal="user:boss", role=Role.OWNER, subject_id=scope.subject_id)
    await service.members.set(boss, member)
    handle = (await service.write(boss, fact(scope, text))).handles[0]
    await service.members.set(boss, Membership(principal="user:boss", role=Role.OWNER))
    return handle


async def attempt(service: MemoryService, who: Caller, action: str, scope: Scope) -> bool:
    """Try one cell; return whether it was allowed, and check what the log says of it."""
    expected = OperationType.BROWSE if action == "view" else OperationType.WRITE
    try:
        if action == "view":
            await service.browse(who, BrowseRequest(scope=scope))
        elif action == "delete":
            expected = OperationType.FORGET
            handle = await held(service, scope)
            await service.forget(who, ForgetRequest(scope=scope, handles=(handle,)))
        elif action == "correct":
            expected = OperationType.CORRECT
            handle = await held(service, scope)
            request = CorrectRequest(scope=scope, handle=handle, text=f"Other {who.principal}")
            await service.correct(who, request)
        else:
            await service.write(who, fact(scope))
        allowed = True
    except Denied:
        allowed = False
    [operation] = logged(service, 1)
    status = OperationStatus.OK if allowed else OperationStatus.DENIED
    assert (operation.operation_type, operation.status) == (expected, status)
    assert operation.principal == who.principal
    return allowed


TABLE = {
    ("view", "user"): {"ana"},
    ("add", "user"): {"ana"},
    ("add by ai", "user"): {"ana"},
    ("delete", "user"): {"ana"},
    ("correct", "user"): {"ana"},
    ("view", "drive"): {"owner", "admin", "member"},
    ("add", "drive"): {"owner", "admin"},
    ("add by ai", "drive"): {"owner", "admin", "member"},
    ("delete", "drive"): {"owner", "admin"},
    ("correct", "drive"): {"owner", "admin"},
}


@pytest.mark.parametrize(("cell", "allowed"), TABLE.items(), ids=lambda one: "-".join(sorted(one)))
async def test_the_table(opened: MemoryService, cell: tuple[str, str], allowed: set[str]) -> None:
    action, memory = cell
    scope = ANA if memory == "user" else APOLLO
    who = agent_of if action == "add by ai" else person
    seen = {name for name in PEOPLE if await attempt(opened, who(name), action, scope)}
    assert seen == allowed


@pytest.mark.parametrize("action", ["view", "delete"])
async def test_an_agent_may_do_what_its_person_may(opened: MemoryService, action: str) -> None:
    assert await attempt(opened, agent_of("ana"), action, ANA)
    assert not await attempt(opened, agent_of("admin"), action, ANA)
    assert await attempt(opened, agent_of("admin"), action, APOLLO)
    assert await attempt(opened, agent_of("member"), action, APOLLO) is (action == "view")
    assert not await attempt(opened, caller("agent:helper"), action, APOLLO)


async def test_the_companys_memory_is_its_managers(opened: MemoryService) -> None:
    for action in ("view", "add", "delete"):
        assert await attempt(opened, person("boss"), action, COMPANY)
        for name in PEOPLE:
            assert not await attempt(opened, person(name), action, COMPANY)


async def test_a_role_in_the_company_holds_in_every_project(opened: MemoryService) -> None:
    boss = person("boss")
    await opened.members.set(boss, Membership(principal="user:eve", role=Role.ADMIN))
    assert await attempt(opened, person("eve"), "delete", APOLLO)
    assert not await attempt(opened, person("eve"), "view", ANA)
    await opened.members.set(boss, Membership(principal="user:eve", role=Role.MEMBER))
    assert not await attempt(opened, person("eve"), "delete", APOLLO)
    assert await attempt(opened, person("eve"), "view", APOLLO)
    await opened.members.remove(boss, "user:eve")
    assert not await attempt(opened, person("eve"), "view", APOLLO)


async def test_other_reads_are_held_to_the_same_roles(opened: MemoryService) -> None:
    handle = await held(opened, APOLLO)
    out = person("outsider")
    for call in (
        opened.query(out, QueryRequest(scope=APOLLO, query="kept")),
        opened.explain(out, QueryRequest(scope=APOLLO, query="kept")),
        opened.get(out, handle, APOLLO),
        opened.history(out, handle, APOLLO),
        opened.context(out, ContextRequest(scope=APOLLO)),
        opened.pruning.plan(out, PruneRequest(scope=APOLLO)),
    ):
        with pytest.raises(Denied):
            await call
    assert {operation.status for operation in logged(opened, 6)} == {OperationStatus.DENIED}


async def test_a_view_of_both_needs_both_rights(opened: MemoryService) -> None:
    both = Scope(company_id="local", subject_id="ana", project_id="apollo")
    for name in PEOPLE:
        assert not await attempt(opened, person(name), "view", both)
    joined = Membership(
        principal="user:ana", role=Role.MEMBER, project_id="apollo", subject_id="ana"
    )
    await opened.members.set(person("boss"), joined)
    assert await attempt(opened, person("ana"), "view", both)


async def test_naming_a_project_too_does_not_open_a_users_memory(opened: MemoryService) -> None:
    both = Scope(company_id="local", subject_id="ana", project_id="apollo")
    handle = await held(opened, ANA)
    for call in (
        opened.forget(person("admin"), ForgetRequest(scope=both, handles=(handle,))),
        opened.correct(person("admin"), CorrectRequest(scope=both, handle=handle, text="x")),
    ):
        with pytest.raises(Denied, match="Only ana"):
            await call
    page = await opened.browse(person("ana"), BrowseRequest(scope=ANA))
    assert [record.text for record in page.records] == ["Kept"]


async def test_a_project_admin_does_not_change_the_companys_memory(opened: MemoryService) -> None:
    handle = await held(opened, COMPANY)
    with pytest.raises(Denied, match=r"the company.s memories"):
        await opened.forget(person("admin"), ForgetRequest(scope=APOLLO, handles=(handle,)))
    assert (await opened.get(person("boss"), handle, COMPANY)).record.text == "Kept"


async def test_a_user_does_not_delete_what_a_project_says_about_them(opened: MemoryService) -> None:
    both = Scope(company_id="local", subject_id="ana", project_id="apollo")
    handle = (await opened.write(person("admin"), fact(both, "Ana reviews"))).handles[0]
    with pytest.raises(Denied):
        await opened.forget(person("ana"), ForgetRequest(scope=ANA, handles=(handle,)))
    assert (await opened.get(person("admin"), handle, APOLLO)).record.text == "Ana reviews"


async def test_an_agent_of_a_member_adds_and_does_not_replace(opened: MemoryService) -> None:
    await opened.write(person("admin"), fact(APOLLO, "deploy: release"))
    mine = agent_of("member")
    with pytest.raises(Denied):
        await opened.write(mine, fact(APOLLO, "deploy: main", mode=WriteMode.UPSERT))
    page = await opened.browse(person("admin"), BrowseRequest(scope=APOLLO))
    assert [record.text for record in page.records] == ["deploy: release"]
    await opened.write(agent_of("admin"), fact(APOLLO, "deploy: main", mode=WriteMode.UPSERT))
    page = await opened.browse(person("admin"), BrowseRequest(scope=APOLLO))
    assert [record.text for record in page.records] == ["deploy: main"]


async def test_undo_is_held_to_the_roles_of_what_it_takes_back(opened: MemoryService) -> None:
    written = await opened.write(agent_of("member"), fact(APOLLO))
    with pytest.raises(Denied):
        await opened.undo(person("member"), written.operation_id)
    await opened.undo(person("admin"), written.operation_id)
    page = await opened.browse(person("admin"), BrowseRequest(scope=APOLLO))
    assert page.records == ()


async def test_roles_of_one_company_are_none_in_another(opened: MemoryService) -> None:
    other = Caller(company_id="acme", principal="user:boss", channel="test")
    await opened.companies.add(other, "Acme")
    await opened.bindings.add(other, "default", "vault", {})
    await opened.bindings.set_target(other, "company", "acme", "default")
    acme = Scope(company_id="acme", project_id="apollo")
    await opened.members.set(other, Membership(principal="user:zoe", role=Role.OWNER))
    with pytest.raises(Denied):
        await opened.browse(other, BrowseRequest(scope=acme))
    with pytest.raises(Denied):
        await opened.browse(person("boss"), BrowseRequest(scope=acme))


async def test_without_members_everybody_may(paths: Paths, settings: Settings) -> None:
    service = await open_service(paths, settings)
    try:
        for scope in (ANA, APOLLO, COMPANY):
            written = await service.write(person("anyone"), fact(scope))
            await service.forget(
                caller("agent:x"), ForgetRequest(scope=scope, handles=written.handles)
            )
    finally:
        await service.close()


async def test_the_limits_count_a_users_own_facts(paths: Paths) -> None:
    from memtui.config import load_settings

    service = await open_service(paths, load_settings(paths, fact_max_count=2))
    who, both = person("ana"), Scope(company_id="local", subject_id="ana", project_id="apollo")
    try:
        for number in range(2):
            await service.write(who, fact(both, f"In the project {number}"))
            await service.write(who, fact(ANA, f"Of the user {number}"))
        for scope in (ANA, APOLLO):
            with pytest.raises(Invalid, match="holds 2 facts"):
                await service.write(who, fact(scope, "One more"))
        for number in range(4):
            await service.write(who, fact(COMPANY, f"Of the company {number}"))
    finally:
        await service.close()


async def test_a_limit_above_a_page_is_kept(paths: Paths) -> None:
    from memtui.config import load_settings

    service = await open_service(paths, load_settings(paths, fact_max_count=5_000))
    try:
        assert (await service.write(person("ana"), fact(ANA))).handles
    finally:
        await service.close()


async def test_a_member_is_given_what_an_agent_type_knows(opened: MemoryService) -> None:
    of_agent = Scope(company_id="local", agent_id="coding")
    written = await opened.write(person("boss"), fact(of_agent))
    for who in (person("member"), agent_of("member")):
        page = await opened.browse(who, BrowseRequest(scope=of_agent))
        assert [one.handle for one in page.records] == list(written.handles)
        asked = APOLLO.model_copy(update={"agent_id": "coding"})
        assert (await opened.context(who, ContextRequest(scope=asked))).text
    with pytest.raises(Denied):
        await opened.browse(person("member"), BrowseRequest(scope=COMPANY))


@pytest.mark.parametrize("order", [1, -1])
async def test_one_record_of_somebody_else_refuses_the_change_of_all(
    opened: MemoryService, order: int
) -> None:
    """A project's scope shows the company's records too."""
    handles = [await held(opened, APOLLO), await held(opened, COMPANY, "Everybody's")][::order]
    with pytest.raises(Denied):
        await opened.forget(person("admin"), ForgetRequest(scope=APOLLO, handles=tuple(handles)))
    for handle in handles:
        assert (await opened.get(person("boss"), handle, COMPANY)).record


@pytest.mark.parametrize("kind", ["fact", "note"])
async def test_nobody_writes_over_somebody_elses_record(opened: MemoryService, kind: str) -> None:
    wrote = await opened.write(person("boss"), fact(COMPANY, "Everybody's", kind=kind))
    [handle] = wrote.handles
    over = fact(
        APOLLO, "Mine", kind=kind, mode=WriteMode.UPSERT, record_id=handle.provider_record_id
    )
    with pytest.raises(Denied):
        await opened.write(person("admin"), over)
    assert (await opened.get(person("boss"), handle, COMPANY)).record.text == "Everybody's"


async def test_a_conflict_tells_of_no_record_that_one_may_not_read(
    service: MemoryService, fake: type[FakeAdapter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider of one name for every user finds the record of somebody else under it."""
    ana, bob = (Caller(company_id="acme", principal=f"user:{one}", channel="test") for one in OWN)
    await service.members.set(ana, Membership(principal=ana.principal, role=Role.OWNER))
    await service.members.set(ana, Membership(principal=bob.principal, role=Role.MEMBER))
    source = SourceRef(kind="manual_note", company_id="acme")
    scopes = [Scope(company_id="acme", subject_id=one) for one in OWN]
    mine, his = (
        WriteRequest(scope=one, source=source, content="x", record_id="1") for one in scopes
    )
    await service.write(bob, his)
    held = fake.records["acme/default"]["1"]

    async def taken(_self: FakeAdapter, _request: WriteRequest) -> None:
        raise Conflict("There is one already.", current=held)

    monkeypatch.setattr(fake, "write", taken)
    told = []
    for who, request in ((ana, mine), (bob, his)):
        with pytest.raises(Conflict) as caught:
            await service.write(who, request)
        told.append(caught.value.current)
    assert told == [None, held]
