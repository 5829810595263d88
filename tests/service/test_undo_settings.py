"""Undo takes back the last change, whatever it was, or says why not and stops there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from decimal import Decimal

import pytest

from memtui.contract import (
    Conflict,
    Denied,
    ForgetRequest,
    Invalid,
    Json,
    NotFound,
    OperationStatus,
    OperationType,
    Scope,
    Unavailable,
    WriteRequest,
)
from memtui.service import Caller, Capture, MemoryService
from memtui.service.operations.namespaces import MemoryName
from memtui.service.spending import LimitMeasure, LimitPeriod, LimitTarget, SpendingLimit
from memtui.service.visibility import Membership, Role
from tests.databases import ON_BOTH
from tests.service.fake import FakeAdapter

Change = Callable[[MemoryService, Caller], Awaitable[object]]


def a_limit(amount: int) -> SpendingLimit:
    return SpendingLimit(
        target_type=LimitTarget.AGENT,
        target_id="coding",
        measure=LimitMeasure.TOKENS,
        amount=amount,
        period=LimitPeriod.DAY,
    )


def dollars(amount: str) -> SpendingLimit:
    return SpendingLimit(
        target_type=LimitTarget.COMPANY,
        target_id="acme",
        measure=LimitMeasure.USD,
        amount=Decimal(amount),
        period=LimitPeriod.MONTH,
    )


OWNER = Membership(principal="user:ana", subject_id="ana", role=Role.OWNER)
BOB = Membership(principal="user:bob", project_id="p", role=Role.MEMBER)


async def settings_of(service: MemoryService, caller: Caller) -> Json:
    return {
        "bindings": [one.model_dump() for one in await service.bindings.all(caller)],
        "members": [one.model_dump() for one in await service.members.all(caller)],
        "limits": [one.model_dump() for one in await service.limits.all(caller)],
        "namespaces": [
            one.model_dump() for one in await service.plugin.namespaces(caller, "default")
        ],
        "tokens": [one.model_dump() for one in await service.tokens.all(caller)],
    }


async def prepare(service: MemoryService, caller: Caller) -> None:
    await service.members.set(caller, OWNER)
    await service.members.set(caller, BOB)
    await service.bindings.add(caller, "other", "fake", {"label": "x"}, read_only=True)
    await service.bindings.set_target(caller, "project", "q", "other")
    await service.bindings.set_target(caller, "agent", "coding", "other")
    await service.limits.set(caller, a_limit(5))
    await service.limits.set(caller, dollars("1.5"))
    await service.plugin.put(caller, "default", "workspace:p", "workspace", metadata={"a": 1})


CHANGES: dict[str, Change] = {
    "limit set": lambda s, c: s.limits.set(c, a_limit(7)),
    "limit added": lambda s, c: s.limits.set(
        c, a_limit(7).model_copy(update={"target_id": "review"})
    ),
    "limits removed": lambda s, c: s.limits.remove(c, LimitTarget.COMPANY, "acme"),
    "member added": lambda s, c: s.members.set(
        c, BOB.model_copy(update={"principal": "user:eve", "subject_id": "eve"})
    ),
    "role changed": lambda s, c: s.members.set(c, BOB.model_copy(update={"role": Role.ADMIN})),
    "member removed": lambda s, c: s.members.remove(c, "user:bob", "p"),
    "binding added": lambda s, c: s.bindings.add(c, "third", "fake", {}),
    "binding disabled": lambda s, c: s.bindings.update(c, "default", enabled=False),
    "binding configured": lambda s, c: s.bindings.update(c, "other", config={"label": "y"}),
    "binding captures": lambda s, c: s.bindings.update(
        c, "default", capture={Capture.POST_RUN: True}
    ),
    "binding with targets removed": lambda s, c: s.bindings.remove(c, "other"),
    "target set": lambda s, c: s.bindings.set_target(c, "project", "q", "default"),
    "target cleared": lambda s, c: s.bindings.clear_target(c, "agent", "coding"),
    "token added": lambda s, c: s.tokens.add(c, "ci", "agent:ci", acts_for="user:ana"),
    "namespace put": lambda s, c: s.plugin.put(c, "default", "team:x", "team"),
    "namespace patched": lambda s, c: s.plugin.patch(
        c, "default", "workspace:p", metadata={"b": 2}
    ),
    "namespace removed": lambda s, c: s.plugin.remove(
        c, "default", "workspace:p", Scope(company_id=c.company_id, project_id="p")
    ),
}


async def test_every_change_of_the_settings_is_taken_back_and_done_again(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    await prepare(service, caller)
    written = await service.write(caller, note)
    for name, change in CHANGES.items():
        was = await settings_of(service, caller)
        await change(service, caller)
        changed = await settings_of(service, caller)
        assert changed != was, name

        undone = await service.undo(caller)
        assert await settings_of(service, caller) == was, name
        [candidate] = await service.undoable(caller, 1)
        assert candidate.operation.operation_id == written.operation_id, name
        assert undone.settings, name

        if name != "token added":
            await service.undo(caller, undone.operation_id)
            assert await settings_of(service, caller) == changed, name
            await service.undo(caller)
            assert await settings_of(service, caller) == was, name
    assert (await service.get(caller, written.handles[0], note.scope)).record


async def test_the_setup_of_a_home_is_no_change_and_nothing_is_reached_past(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope
) -> None:
    with pytest.raises(NotFound, match="nothing to undo"):
        await service.undo(caller)
    written = await service.write(caller, note)
    await service.tokens.add(caller, "ci", "agent:ci")
    await service.tokens.remove(caller, "ci")
    with pytest.raises(Invalid, match=r"last change, configure #\d+, cannot .* stays revoked"):
        await service.undo(caller)
    assert (await service.get(caller, written.handles[0], scope)).record.text == note.content
    [candidate, *_] = await service.undoable(caller)
    assert candidate.why_not is not None
    assert "stays revoked" in candidate.why_not

    await service.undo(caller, written.operation_id)
    with pytest.raises(NotFound):
        await service.get(caller, written.handles[0], scope)


async def test_what_a_plugin_kept_comes_back_with_its_binding_and_is_no_other_ones(
    service: MemoryService, caller: Caller
) -> None:
    async def kept() -> tuple[list[str], list[MemoryName]]:
        there = await service.plugin.namespaces(caller, "notes")
        return [one.name for one in there], await service.plugin.names(
            caller, "notes", memory_ids=["1"]
        )

    name = MemoryName(memory_id="1", record_id="r1", namespace="team:x", mark={"a": 1})
    await service.bindings.add(caller, "notes", "fake", {})
    await service.plugin.put(caller, "notes", "team:x", "team")
    await service.plugin.note(caller, "notes", [name])
    await service.bindings.remove(caller, "notes")
    await service.undo(caller)
    assert await kept() == (["team:x"], [name])
    await service.bindings.remove(caller, "notes")
    await service.bindings.add(caller, "notes", "fake", {"label": "another"})
    assert await kept() == ([], [])
    await service.undo(caller)
    await service.undo(caller)
    assert (await kept())[0] == ["team:x"]


async def test_a_revoked_token_does_not_come_back(service: MemoryService, caller: Caller) -> None:
    made = await service.tokens.add(caller, "ci", "agent:ci")
    undone = await service.undo(caller)
    with pytest.raises(Denied):
        await service.tokens.authenticate("acme", made.token, "http")
    with pytest.raises(Invalid, match="stays revoked"):
        await service.undo(caller, undone.operation_id)
    assert await service.tokens.all(caller) == []


async def test_a_setting_that_has_changed_since_is_a_conflict(
    service: MemoryService, caller: Caller
) -> None:
    await service.limits.set(caller, a_limit(5))
    first = (await service.undoable(caller, 1))[0].operation
    await service.limits.set(caller, a_limit(6))
    with pytest.raises(Conflict, match=r"limit agent coding tokens day has changed"):
        await service.undo(caller, first.operation_id)
    [limit] = await service.limits.all(caller)
    assert limit.amount == 6
    await service.undo(caller)
    await service.undo(caller)
    assert await service.limits.all(caller) == []


async def test_settings_that_do_not_go_together_are_not_put_back(
    service: MemoryService, caller: Caller
) -> None:
    await service.bindings.add(caller, "other", "fake", {})
    added = (await service.undoable(caller, 1))[0].operation
    await service.bindings.set_target(caller, "project", "q", "other")
    with pytest.raises(Conflict, match="project q would be served by other"):
        await service.undo(caller, added.operation_id)

    await service.members.set(caller, OWNER)
    first = (await service.undoable(caller, 1))[0].operation
    await service.members.set(caller, BOB)
    with pytest.raises(Conflict, match="without an owner"):
        await service.undo(caller, first.operation_id)
    assert len(await service.members.all(caller)) == 2


async def test_only_who_may_configure_takes_a_configuration_back(
    service: MemoryService, caller: Caller
) -> None:
    await service.limits.set(caller, a_limit(5))
    await service.members.set(caller, OWNER)
    manager = Membership(principal="user:bob", project_id="p", role=Role.OWNER)
    await service.members.set(caller, manager)
    await service.limits.set(caller, a_limit(6))
    bob = caller.model_copy(update={"principal": "user:bob"})
    page = await service.log.page(caller, limit=1)
    with pytest.raises(NotFound, match="nothing to undo"):
        await service.undo(bob)
    with pytest.raises(NotFound, match="no operation"):
        await service.undo(bob, page.operations[0].operation_id)
    [limit] = await service.limits.all(caller)
    assert limit.amount == 6


async def test_a_change_without_effect_is_none(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    written = await service.write(caller, note)
    await service.bindings.update(caller, "default", enabled=True)
    assert (await service.undo(caller)).undoes == written.operation_id


@ON_BOTH
async def test_nothing_is_put_into_another_binding_of_the_same_key(
    service: MemoryService, caller: Caller, note: WriteRequest, fake: type[FakeAdapter]
) -> None:
    of_notes = note.model_copy(update={"binding_key": "notes"})
    await service.bindings.add(caller, "notes", "fake", {})
    handles = (await service.write(caller, of_notes)).handles
    gone = ForgetRequest(scope=note.scope, handles=handles, binding_key="notes")
    forgotten = await service.forget(caller, gone)
    fake.fault_after = Unavailable("The line broke.", sent=True)
    with pytest.raises(Unavailable) as caught:
        await service.write(caller, of_notes)
    fake.fault_after = None
    assert caught.value.operation_id is not None

    await service.bindings.remove(caller, "notes")
    await service.bindings.add(caller, "notes", "fake", {"label": "another"})
    other = await service.write(caller, of_notes)
    fake.calls.clear()
    with pytest.raises(Conflict, match="name today is another"):
        await service.undo(caller, forgotten.operation_id)
    with pytest.raises(Conflict, match="name today is another"):
        await service.check_outcome(caller, caught.value.operation_id)
    assert fake.calls == []

    undone = await service.undo(caller, other.operation_id)
    await service.undo(caller)
    back = await service.undo(caller)
    assert [one.name for one in back.settings] == ["binding notes"]
    assert (await service.check_outcome(caller, caught.value.operation_id)).happened
    assert (await service.undo(caller, forgotten.operation_id)).handles == handles
    with pytest.raises(Conflict, match="name today is another"):
        await service.undo(caller, undone.operation_id)


async def test_a_change_and_its_place_in_the_log_are_one_transaction(
    service: MemoryService, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.limits.set(caller, a_limit(5))
    before = (await service.log.page(caller)).total

    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(service._runtime.recorder, "append_within", full)
    with pytest.raises(OSError, match="disk full"):
        await service.limits.set(caller, a_limit(6))
    [limit] = await service.limits.all(caller)
    assert limit.amount == 5
    page = await service.log.page(caller)
    assert page.total == before + 1
    assert page.operations[0].operation_type is OperationType.CONFIGURE
    assert page.operations[0].status is OperationStatus.ERROR
