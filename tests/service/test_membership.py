"""Members and tokens: who there is, and what the first, the last and a stranger may not do."""

from __future__ import annotations

import asyncio
import stat
from typing import Any

import pytest

from memtui.config import Paths, Settings, load_settings
from memtui.contract import (
    Conflict,
    Denied,
    Invalid,
    NotFound,
    OperationStatus,
    OperationType,
    Scope,
    SourceRef,
    WriteRequest,
)
from memtui.service import Caller, Membership, MemoryService, Role, open_service
from memtui.service.runtime import ServiceRuntime
from memtui.service.spending import SpendingLimit
from tests.service.conftest import start

ANA = Caller(company_id="acme", principal="user:ana", channel="test")
BOB = Caller(company_id="acme", principal="user:bob", channel="test")
OWNER = Membership(principal="user:ana", role=Role.OWNER, subject_id="ana")


async def test_members_are_kept_by_principal_and_project(service: MemoryService) -> None:
    assert await service.members.all(ANA) == []
    await service.members.set(ANA, OWNER)
    here = Membership(principal="user:bob", role=Role.ADMIN, project_id="apollo", subject_id="bob")
    await service.members.set(ANA, here)
    await service.members.set(ANA, here.model_copy(update={"role": Role.MEMBER}))
    everywhere = await service.members.set(ANA, Membership(principal="user:bob", role=Role.MEMBER))
    assert everywhere.subject_id == "bob"
    assert await service.members.all(ANA) == [
        OWNER, everywhere, here.model_copy(update={"role": Role.MEMBER})
    ]  # fmt: skip
    await service.members.remove(ANA, "user:bob", "apollo")
    assert await service.members.all(ANA) == [OWNER, everywhere]


@pytest.mark.parametrize(
    "first",
    [
        Membership(principal="user:ana", role=Role.ADMIN),
        Membership(principal="user:ana", role=Role.MEMBER),
        Membership(principal="user:ana", role=Role.OWNER, project_id="apollo"),
    ],
)
async def test_the_first_member_owns_the_company(service: MemoryService, first: Membership) -> None:
    with pytest.raises(Invalid, match="first member"):
        await service.members.set(ANA, first)
    assert await service.members.all(ANA) == []


async def test_a_company_with_members_keeps_an_owner(service: MemoryService) -> None:
    await service.members.set(ANA, OWNER)
    with pytest.raises(Invalid, match="last owner"):
        await service.members.set(ANA, OWNER.model_copy(update={"role": Role.ADMIN}))
    await service.members.set(ANA, Membership(principal="user:bob", role=Role.MEMBER))
    with pytest.raises(Invalid, match="last owner"):
        await service.members.remove(ANA, "user:ana")
    await service.members.set(ANA, Membership(principal="user:bob", role=Role.OWNER))
    await service.members.set(ANA, OWNER.model_copy(update={"role": Role.MEMBER}))
    with pytest.raises(Denied):
        await service.members.remove(ANA, "user:bob")
    await service.members.remove(BOB, "user:ana")
    await service.members.remove(BOB, "user:bob")
    assert await service.members.all(BOB) == []


async def test_two_owners_who_demote_each_other_leave_one(
    service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = [OWNER, Membership(principal="user:bob", role=Role.OWNER, subject_id="bob")]
    for one in owners:
        await service.members.set(ANA, one)
    both, configure = asyncio.Barrier(2), ServiceRuntime.configure

    async def together(core: ServiceRuntime, *args: Any) -> Any:
        """Both have looked at the members before one of them changes anything."""
        await both.wait()
        return await configure(core, *args)

    monkeypatch.setattr(ServiceRuntime, "configure", together)
    demoted = [one.model_copy(update={"role": Role.MEMBER}) for one in owners]
    ended = await asyncio.gather(
        service.members.set(ANA, demoted[1]),
        service.members.set(BOB, demoted[0]),
        return_exceptions=True,
    )
    assert sorted(type(one).__name__ for one in ended) == ["Invalid", "Membership"]
    there = await service.members.all(ANA)
    assert there in ([owners[0], demoted[1]], [demoted[0], owners[1]])


async def test_an_agent_is_no_member(service: MemoryService) -> None:
    with pytest.raises(Invalid, match="An agent acts for a person"):
        await service.members.set(ANA, Membership(principal="agent:x", role=Role.OWNER))


async def test_only_managers_change_members_and_tokens(service: MemoryService) -> None:
    await service.members.set(ANA, OWNER)
    await service.members.set(
        ANA, Membership(principal="user:bob", role=Role.OWNER, project_id="apollo")
    )
    promoted = Membership(principal="user:bob", role=Role.OWNER)
    for call in (
        service.members.set(BOB, promoted),
        service.members.remove(BOB, "user:ana"),
        service.tokens.add(BOB, "mine", "user:ana"),
        service.tokens.remove(BOB, "mine"),
        service.bindings.add(BOB, "other", "fake", {}),
        service.members.set(ANA.model_copy(update={"principal": "agent:x"}), promoted),
    ):
        with pytest.raises(Denied):
            await call
    page = await service.log.page(ANA, limit=6)
    found = {(operation.operation_type, operation.status) for operation in page.operations}
    assert found == {(OperationType.CONFIGURE, OperationStatus.DENIED)}


async def test_a_role_that_is_not_there_is_not_found(service: MemoryService) -> None:
    await service.members.set(ANA, OWNER)
    for principal, project_id in (("user:bob", None), ("user:ana", "apollo")):
        with pytest.raises(NotFound, match="no such role"):
            await service.members.remove(ANA, principal, project_id)


async def test_a_token_stands_for_its_principal(service: MemoryService) -> None:
    made = await service.tokens.add(ANA, "laptop", "agent:coding", acts_for="user:ana")
    assert made.token.startswith("memtui_")
    assert len(made.token) > 40
    caller = await service.tokens.authenticate("acme", made.token, "http")
    assert caller == Caller(
        company_id="acme", principal="agent:coding", acts_for="user:ana", channel="http"
    )
    assert caller.by_ai
    (view,) = await service.tokens.all(ANA)
    assert (view.label, view.principal, view.acts_for) == ("laptop", "agent:coding", "user:ana")
    assert made.token not in view.model_dump_json()
    [logged, *_] = (await service.log.page(ANA)).operations
    assert (logged.request["add_token"], logged.request["label"]) == (True, "laptop")
    with pytest.raises(Conflict, match="already a token laptop"):
        await service.tokens.add(ANA, "laptop", "user:bob")
    await service.tokens.remove(ANA, "laptop")
    with pytest.raises(Denied, match="not known"):
        await service.tokens.authenticate("acme", made.token, "http")
    with pytest.raises(NotFound, match="no token laptop"):
        await service.tokens.remove(ANA, "laptop")


@pytest.mark.parametrize("token", ["", "memtui_", "x" * 100_000, "\ud800", "memtui_\x00"])
async def test_no_other_token_is_one(service: MemoryService, token: str) -> None:
    await service.tokens.add(ANA, "laptop", "user:ana")
    with pytest.raises(Denied):
        await service.tokens.authenticate("acme", token, "http")


@pytest.mark.parametrize(("label", "principal"), [("", "user:ana"), (" ", "x"), ("x", " ")])
async def test_a_token_needs_a_name_and_a_holder(
    service: MemoryService, label: str, principal: str
) -> None:
    with pytest.raises(Invalid):
        await service.tokens.add(ANA, label, principal)
    assert await service.tokens.all(ANA) == []


async def test_tokens_and_members_of_a_company_are_its_own(service: MemoryService) -> None:
    other = Caller(company_id="other", principal="user:ana", channel="test")
    await service.companies.add(other, "Other")
    await service.tokens.add(ANA, "laptop", "user:ana")
    await service.members.set(ANA, OWNER)
    assert await service.tokens.all(other) == []
    assert await service.members.all(other) == []
    with pytest.raises(NotFound):
        await service.tokens.remove(other, "laptop")
    assert (await service.tokens.add(other, "laptop", "user:bob")).label == "laptop"


async def test_no_token_is_kept_anywhere(paths: Paths, caller: Caller) -> None:
    opened = await start(paths, load_settings(paths), caller)
    made = await opened.tokens.add(caller, "laptop", "user:ana")
    await opened.close()
    assert stat.S_IMODE(paths.database.stat().st_mode) == 0o600
    secret = made.token.removeprefix("memtui_").encode()
    for path in paths.data.rglob("*"):
        assert not path.is_file() or secret not in path.read_bytes()


async def test_read_only_changes_nobody(paths: Paths, settings: Settings, caller: Caller) -> None:
    opened = await start(paths, settings, caller)
    await opened.members.set(caller, OWNER)
    await opened.close()
    looking = await open_service(paths, settings.model_copy(update={"read_only": True}))
    try:
        with pytest.raises(Denied, match="read-only"):
            await looking.members.remove(caller, "user:ana")
        with pytest.raises(Denied, match="read-only"):
            await looking.tokens.add(caller, "x", "user:ana")
        assert await looking.members.all(caller) == [OWNER]
    finally:
        await looking.close()


async def test_a_read_only_company_refuses_every_change(service: MemoryService) -> None:
    scope = Scope(company_id="acme")
    source = SourceRef(kind="manual_note", company_id="acme")
    limit = {"target_type": "agent", "target_id": "x", "measure": "usd", "period": "day"}
    await service.companies.set_read_only(ANA, read_only=True)
    for change in (
        service.write(ANA, WriteRequest(scope=scope, source=source, content="x")),
        service.limits.set(ANA, SpendingLimit.model_validate({**limit, "amount": 1})),
        service.tokens.add(ANA, "t", "user:ana"),
        service.members.set(ANA, OWNER),
        service.bindings.add(ANA, "b", "fake", {}),
        service.bindings.update(ANA, "default", enabled=False),
        service.bindings.set_target(ANA, "project", "p", "default"),
        service.plugin.put(ANA, "default", "custom:x", "custom"),
    ):
        with pytest.raises(Denied, match="acme is read-only"):
            await change
    assert (await service.analysis.seal(ANA)).operations == 0
    await service.companies.set_read_only(ANA, read_only=False)
    await service.members.set(ANA, OWNER)
