"""Targets are switched only after a proof, and come back."""

from __future__ import annotations

import stat

import pytest

from memtui.config import Paths
from memtui.contract import Conflict, Denied, ForgetRequest, Scope, WriteRequest
from memtui.migration.cutover import switch
from memtui.migration.endpoints import Endpoints, ProgressFile
from memtui.migration.moving import MigrationProgress, apply
from memtui.migration.syncing import sync
from memtui.migration.verifying import verdict, verify
from memtui.presenters.format import changed
from memtui.service import Caller, Membership, MemoryService, Role
from memtui.service.review.proposals import AwaitsSecond
from tests.migration.conftest import ends_of, fill, held, requests


async def serving(service: MemoryService, caller: Caller, **ids: str) -> str:
    return (await service.resolve(caller, Scope(company_id="local", **ids))).binding_key


async def test_a_switch_waits_for_a_proof_and_goes_back(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", 20)
    await service.bindings.set_target(caller, "project", "p1", "default")
    await service.bindings.set_target(caller, "agent", "x", "lossy")
    with pytest.raises(Conflict, match="migrate verify"):
        await switch(await ends_of(service, caller, "default", "memory"), paths.data)
    await apply(await ends_of(service, caller, "default", "memory"), paths.data)
    with pytest.raises(Conflict, match="migrate verify"):
        await switch(await ends_of(service, caller, "default", "memory"), paths.data)
    part = await ends_of(service, caller, "default", "memory", project_id="p1")
    assert (await verify(part, paths.data)).passed
    with pytest.raises(Conflict, match="migrate verify"):
        await switch(await ends_of(service, caller, "default", "memory"), paths.data)
    assert (await verify(await ends_of(service, caller, "default", "memory"), paths.data)).passed
    done = await switch(await ends_of(service, caller, "default", "memory"), paths.data)
    assert {one.target_type for one in done.targets} == {"company", "project"}
    assert await serving(service, caller) == "memory"
    assert await serving(service, caller, project_id="p1") == "memory"
    assert await serving(service, caller, agent_id="x") == "lossy"
    assert len(await held(service, caller, "default")) == 20
    with pytest.raises(Conflict, match="serves no company"):
        await switch(await ends_of(service, caller, "default", "memory"), paths.data)
    await service.bindings.set_target(caller, "project", "p1", "second")
    back = await switch(await ends_of(service, caller, "default", "memory"), paths.data, back=True)
    assert [one.target_type for one in back.targets] == ["company"]
    assert [one.target_type for one in back.left] == ["project"]
    assert await serving(service, caller) == "default"
    assert await serving(service, caller, project_id="p1") == "second"
    with pytest.raises(Conflict, match="nothing to give back"):
        await switch(await ends_of(service, caller, "default", "memory"), paths.data, back=True)


async def test_no_copy_is_made_or_served_of_what_is_held(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", 3)
    ends = await ends_of(service, caller, "default", "memory")
    await apply(ends, paths.data)
    assert (await verify(ends, paths.data)).passed
    [record, *_] = await held(service, caller, "default")
    request = ForgetRequest(scope=record.scope, handles=(record.handle,), binding_key="default")
    await service.review.hold(caller, request, "it came of the forum")
    for refused in (
        apply(ends, paths.data),
        sync(ends, paths.data),
        sync(await ends_of(service, caller, "memory", "default"), paths.data),
        switch(ends, paths.data),
        switch(ends, paths.data, force=True),
    ):
        with pytest.raises(Conflict, match="held for review, and agents would get their copies"):
            await refused
    [waiting] = await service.review.waiting(caller)
    await service.review.refuse(caller, waiting.pending_id)
    await switch(ends, paths.data)
    assert await serving(service, caller) == "memory"


async def test_a_sample_gives_no_leave_and_takes_none(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", 5)
    ends = await ends_of(service, caller, "default", "memory")
    await apply(ends, paths.data)
    assert (await verify(ends, paths.data, sample=3, seed=1)).passed
    with pytest.raises(Conflict, match="migrate verify"):
        await switch(ends, paths.data)
    assert (await verify(ends, paths.data)).passed
    assert (await verify(ends, paths.data, sample=3, seed=1)).passed
    await switch(ends, paths.data)
    assert await serving(service, caller) == "memory"


async def test_a_failed_proof_and_a_new_run_take_the_leave_away(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", 5)
    ends = await ends_of(service, caller, "default", "memory")
    await apply(ends, paths.data)
    assert (await verify(ends, paths.data)).passed
    more: WriteRequest = requests(9)[8]
    await service.write(caller, more.model_copy(update={"binding_key": "default"}))
    assert not (await verify(ends, paths.data)).passed
    with pytest.raises(Conflict, match="migrate verify"):
        await switch(ends, paths.data)
    await apply(ends, paths.data)
    with pytest.raises(Conflict, match="migrate verify"):
        await switch(ends, paths.data)
    await switch(ends, paths.data, force=True)
    assert await serving(service, caller) == "memory"


async def test_a_run_that_is_stopped_has_begun_and_is_not_applied(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", 5)
    ends = await ends_of(service, caller, "default", "memory")

    def stop(now: MigrationProgress) -> None:
        if now.done:
            raise KeyError(now.done)

    with pytest.raises(KeyError):
        await apply(ends, paths.data, stop)
    stopped = ProgressFile(paths.data, ends).read()
    assert stopped.begun_at is not None
    assert stopped.applied_at is None
    await apply(ends, paths.data)
    ended = ProgressFile(paths.data, ends).read()
    assert ended.applied_at is not None
    assert ended.begun_at is not None
    assert stopped.begun_at < ended.begun_at < ended.applied_at


async def test_the_state_is_private_and_a_broken_one_tells_nothing(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    ends = await ends_of(service, caller, "default", "memory")
    await verify(ends, paths.data)
    folder = paths.data / "migrations" / "local"
    [file] = folder.glob("*.json")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_bytes(b"\xff{")
    with pytest.raises(Conflict, match="migrate verify"):
        await switch(ends, paths.data)


async def test_what_cannot_be_read_gives_no_leave(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", 5)
    pair = await ends_of(service, caller, "default", "memory")
    await apply(pair, paths.data)
    assert (await verify(pair, paths.data)).passed
    vault = paths.data / "bindings" / "local" / "default" / "vault"
    (vault / "broken.md").write_text("---\nproject_id: [\n---\nwhose?")
    await service.sync(caller, "default")
    found = await verify(pair, paths.data)
    assert (found.is_same, found.passed) == (True, False)
    [problem] = found.problems
    assert "broken.md" in problem
    assert verdict(found, "default", "memory").endswith("but not all of default can be read")
    with pytest.raises(Conflict, match="listed completely"):
        await switch(pair, paths.data)


async def test_one_undo_takes_a_switch_back(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await service.bindings.set_target(caller, "project", "p1", "default")
    pair = await ends_of(service, caller, "default", "memory")
    await switch(pair, paths.data, force=True)
    [last] = await service.undoable(caller, 1)
    assert changed(last) == (
        "binding default: read only and target company local: binding id and "
        "target project p1: binding id"
    )
    await service.undo_together(caller)
    assert await serving(service, caller) == "default"
    assert await serving(service, caller, project_id="p1") == "default"
    await service.write(caller, requests(1)[0])


async def test_the_old_binding_is_read_only_until_it_is_given_back(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    async def write() -> None:
        request = requests(9)[8].model_copy(update={"binding_key": "default"})
        await service.write(caller, request)

    await fill(service, caller, "default", 2)
    await apply(await ends_of(service, caller, "default", "memory"), paths.data)
    ends = await ends_of(service, caller, "default", "memory")
    assert (await switch(ends, paths.data, force=True)).closed
    with pytest.raises(Denied, match="read-only"):
        await write()
    ends = await ends_of(service, caller, "default", "memory")
    assert (await switch(ends, paths.data, back=True)).opened
    await write()


async def test_one_that_was_closed_opens_again_though_a_run_came_after(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", 2)
    ends = await ends_of(service, caller, "default", "memory")
    assert (await switch(ends, paths.data, force=True)).closed
    await apply(await ends_of(service, caller, "default", "memory"), paths.data)
    ends = await ends_of(service, caller, "default", "memory")
    assert (await switch(ends, paths.data, back=True)).opened
    assert not (await service.bindings.all(caller))[0].read_only


async def test_what_was_switched_in_two_steps_is_given_back_whole(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    async def pair() -> Endpoints:
        return await ends_of(service, caller, "default", "memory")

    assert (await switch(await pair(), paths.data, force=True)).closed
    for place in ("p1", "p2"):
        await service.bindings.set_target(caller, "project", place, "default")
        assert not (await switch(await pair(), paths.data, force=True)).closed
        assert await serving(service, caller, project_id=place) == "memory"
    back = await switch(await pair(), paths.data, back=True)
    assert sorted(one.target_id for one in back.targets) == ["local", "p1", "p2"]
    assert back.opened
    for ids in ({}, {"project_id": "p1"}, {"project_id": "p2"}):
        assert await serving(service, caller, **ids) == "default"
    assert not (await service.bindings.all(caller))[0].read_only


async def test_one_that_was_read_only_before_stays_so(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", 2)
    await service.bindings.update(caller, "default", read_only=True)
    ends = await ends_of(service, caller, "default", "memory")
    assert not (await switch(ends, paths.data, force=True)).closed
    ends = await ends_of(service, caller, "default", "memory")
    assert not (await switch(ends, paths.data, back=True)).opened
    assert (await service.bindings.all(caller))[0].read_only


@pytest.mark.parametrize("agrees", [True, False])
async def test_a_second_person_agrees_to_a_whole_cutover(
    service: MemoryService, caller: Caller, paths: Paths, *, agrees: bool
) -> None:
    async def pair() -> Endpoints:
        return await ends_of(service, caller, "default", "memory")

    async def stands() -> tuple[object, ...]:
        source = (await service.bindings.all(caller))[0]
        state = ProgressFile(paths.data, await pair()).read()
        assert state.closed == bool(state.switched) == source.read_only
        found = [await serving(service, caller, **ids) for ids in ({}, {"project_id": "p1"})]
        return (*found, source.read_only)

    ben = caller.model_copy(update={"principal": "user:ben"})
    for one in (caller, ben):
        await service.members.set(caller, Membership(principal=one.principal, role=Role.OWNER))
    await service.bindings.set_target(caller, "project", "p1", "default")
    await service.companies.update(caller, second_yes=True)
    before, after = ("default", "default", False), ("memory", "memory", True)
    with pytest.raises(AwaitsSecond, match="Nothing is changed yet"):
        await switch(await pair(), paths.data, force=True)
    assert await stands() == before
    with pytest.raises(Conflict, match="nothing to give back"):
        await switch(await pair(), paths.data, back=True)
    await apply(await pair(), paths.data)
    [waits] = await service.review.waiting(ben)
    if not agrees:
        await service.review.refuse(ben, waits.pending_id)
        assert await stands() == before
        return
    await service.review.accept(ben, waits.pending_id)
    assert await stands() == after
    with pytest.raises(AwaitsSecond):
        await switch(await pair(), paths.data, back=True)
    assert await stands() == after
    [waits] = await service.review.waiting(ben)
    await service.review.accept(ben, waits.pending_id)
    assert await stands() == before
