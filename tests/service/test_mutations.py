from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from memtui.config import Paths, Settings
from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Denied,
    Filter,
    ForgetReply,
    ForgetRequest,
    Invalid,
    NotFound,
    OperationStatus,
    OperationType,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, Operation
from memtui.service.context.contexts import ContextRequest
from memtui.service.operations.feedback import Verdict
from memtui.service.operations.undo import Undo
from memtui.store import appending
from tests.databases import ON_BOTH
from tests.service.conftest import start
from tests.service.fake import FakeAdapter, down


async def newest(service: MemoryService, caller: Caller):
    page = await service.log.page(caller, limit=1)
    return page.operations[0]


@ON_BOTH
async def test_a_record_goes_through_write_correct_forget_and_back(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope
) -> None:
    written = await service.write(caller, note)
    [record] = written.records
    assert record.text == note.content
    assert record.created_by == "user:ana"

    corrected = await service.correct(
        caller,
        CorrectRequest(
            scope=scope, handle=record.handle, text="We deploy from main", revision=record.revision
        ),
    )
    assert corrected.records[0].text == "We deploy from main"

    forgotten = await service.forget(caller, ForgetRequest(scope=scope, handles=(record.handle,)))
    assert forgotten.ghosts == ()
    with pytest.raises(NotFound):
        await service.get(caller, record.handle, scope)

    for expected in ("We deploy from main", "We deploy from release"):
        await service.undo(caller)
        assert (await service.get(caller, record.handle, scope)).record.text == expected
    await service.undo(caller)
    with pytest.raises(NotFound):
        await service.get(caller, record.handle, scope)
    with pytest.raises(NotFound, match="nothing to undo"):
        await service.undo(caller)


@ON_BOTH
async def test_every_step_is_logged_with_its_source(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope, source: SourceRef
) -> None:
    handle = (await service.write(caller, note)).handles[0]
    await service.get(caller, handle, scope)
    await service.correct(caller, CorrectRequest(scope=scope, handle=handle, text="other"))
    await service.history(caller, handle, scope)
    await service.forget(caller, ForgetRequest(scope=scope, handles=(handle,)))
    await service.undo(caller)
    page = await service.log.page(caller, limit=6)
    assert [operation.operation_type for operation in page.operations] == [
        "undo", "forget", "history", "correct", "get", "write",
    ]  # fmt: skip
    assert {operation.source for operation in page.operations} == {source}
    assert {operation.scope.project_id for operation in page.operations} == {"p"}
    assert all(operation.status == OperationStatus.OK for operation in page.operations)


async def test_the_source_of_a_memory_is_no_reason_for_its_change(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope, source: SourceRef
) -> None:
    [handle] = (await service.write(caller, note)).handles
    run = SourceRef(kind=SourceKind.RUN, company_id="acme", run_id="r-1")
    for text, given in (("by itself", None), ("in a run", run)):
        change = CorrectRequest(scope=scope, handle=handle, text=text, source=given)
        await service.correct(caller, change)
    await service.undo(caller)
    page = await service.log.page(caller, limit=4)
    assert [one.reason for one in page.operations] == [None, run, None, source]


async def test_an_agent_sees_in_the_log_and_undoes_what_it_did_for_others(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    agent = caller.model_copy(update={"principal": "agent:ops"})
    others = note.scope.model_copy(update={"agent_id": "coding"})
    [handle] = (await service.write(caller, note.model_copy(update={"scope": others}))).handles
    await service.forget(agent, ForgetRequest(scope=note.scope, handles=(handle,)))
    page = await service.log.page(caller, Filter(agent_id="ops"))
    assert [one.operation_type for one in page.operations] == [OperationType.FORGET]
    undone = await service.undo(caller)
    assert [one.handle for one in undone.records] == [handle]


@ON_BOTH
async def test_undoing_an_undo_redoes(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope
) -> None:
    handle = (await service.write(caller, note)).handles[0]
    forgotten = await service.forget(caller, ForgetRequest(scope=scope, handles=(handle,)))
    undone = await service.undo(caller, forgotten.operation_id)
    with pytest.raises(Conflict, match="already undone"):
        await service.undo(caller, forgotten.operation_id)
    await service.undo(caller, undone.operation_id)
    with pytest.raises(NotFound):
        await service.get(caller, handle, scope)
    await service.undo(caller, forgotten.operation_id)
    assert (await service.get(caller, handle, scope)).record.text == note.content


def once_looked(monkeypatch: pytest.MonkeyPatch, do: Callable[[], Awaitable[object]]) -> None:
    """Do something once, when an undo has looked at its records and found them as they were."""
    plain = Undo._refuse_changed

    async def looked(self, *args):
        await plain(self, *args)
        monkeypatch.setattr(Undo, "_refuse_changed", plain)
        await do()

    monkeypatch.setattr(Undo, "_refuse_changed", looked)


def holding(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[asyncio.Event, asyncio.Event]:
    """Let calls wait inside of the provider; return what tells that one is, and lets it go."""
    inside, release = asyncio.Event(), asyncio.Event()
    plain = getattr(FakeAdapter, name)

    async def held(self, request):
        inside.set()
        await release.wait()
        return await plain(self, request)

    monkeypatch.setattr(FakeAdapter, name, held)
    return inside, release


@ON_BOTH
@pytest.mark.parametrize("ended", [True, False])
async def test_one_operation_is_undone_once(
    paths: Paths, settings: Settings, caller: Caller, note: WriteRequest, scope: Scope, fake,
    monkeypatch, *, ended: bool,
) -> None:  # fmt: skip
    service = await start(paths, settings, caller, restore=False, keeps_ids=False)
    handles = (await service.write(caller, note)).handles
    forgotten = await service.forget(caller, ForgetRequest(scope=scope, handles=handles))
    inside, release = holding(monkeypatch, "write")
    first: list[asyncio.Task[object]] = []

    async def another() -> None:
        first.append(asyncio.create_task(service.undo(caller, forgotten.operation_id)))
        await inside.wait()
        if ended:
            release.set()
            await first[0]

    once_looked(monkeypatch, another)
    for _ in range(2):
        with pytest.raises(Conflict, match="already undone" if ended else "is being undone"):
            await service.undo(caller, forgotten.operation_id)
    release.set()
    await first[0]
    assert len(fake.records["acme/default"]) == 1
    await service.close()


async def test_what_cannot_be_undone_is_told_without_an_operation(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope
) -> None:
    handles = (await service.write(caller, note)).handles
    forgotten = await service.forget(caller, ForgetRequest(scope=scope, handles=handles))
    await service.refuse_undo(caller, [forgotten.operation_id])
    undone = await service.undo(caller, forgotten.operation_id)
    with pytest.raises(Conflict, match="already undone"):
        await service.refuse_undo(caller, [forgotten.operation_id])
    await service.refuse_undo(caller, [undone.operation_id, forgotten.operation_id])
    with pytest.raises(Conflict):
        await service.undo(caller, forgotten.operation_id)
    failed = (await newest(service, caller)).operation_id
    with pytest.raises(Invalid, match="changed nothing"):
        await service.refuse_undo(caller, [failed])
    assert (await newest(service, caller)).operation_id == failed


@ON_BOTH
async def test_undo_refuses_a_record_that_changed_since(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope
) -> None:
    written = await service.write(caller, note)
    await service.correct(
        caller, CorrectRequest(scope=scope, handle=written.handles[0], text="newer")
    )
    with pytest.raises(Conflict, match="changed since"):
        await service.undo(caller, written.operation_id)
    assert (await service.get(caller, written.handles[0], scope)).record.text == "newer"


@ON_BOTH
@pytest.mark.parametrize("ended", [True, False])
async def test_undo_refuses_a_record_that_is_changed_once_it_has_looked(
    service: MemoryService, paths: Paths, settings: Settings, caller: Caller, note: WriteRequest,
    scope: Scope, fake, monkeypatch, *, ended: bool,
) -> None:  # fmt: skip
    [handle] = (await service.write(caller, note)).handles
    to_blue = CorrectRequest(scope=scope, handle=handle, text="blue")
    blue = await service.correct(caller, to_blue)
    other = await start(paths, settings, caller)
    inside, release = holding(monkeypatch, "correct")
    first: list[asyncio.Task[object]] = []

    async def by_another() -> None:
        green = to_blue.model_copy(update={"text": "green"})
        first.append(asyncio.create_task(other.correct(caller, green)))
        await inside.wait()
        if ended:
            release.set()
            await first[0]

    once_looked(monkeypatch, by_another)
    with pytest.raises(Conflict, match="meanwhile" if ended else "is being changed"):
        await service.undo(caller, blue.operation_id)
    assert (await newest(service, caller)).status == OperationStatus.CONFLICT
    assert "restore" not in fake.calls
    release.set()
    await first[0]
    assert (await service.get(caller, handle, scope)).record.text == "green"
    assert (await service.undo(caller)).records[0].text == "blue"
    await other.close()


async def test_undo_forgets_no_record_that_is_changed_once_it_has_looked(
    paths: Paths, settings: Settings, caller: Caller, note: WriteRequest, fake
) -> None:
    service = await start(paths, settings, caller, restore=False)
    [record] = (await service.write(caller, note)).records
    await service.undo(caller)
    [gone] = [one for one in fake.received if isinstance(one, ForgetRequest)]
    assert gone.revisions == {record.handle.provider_record_id: record.revision}
    await service.close()


async def test_an_undo_notes_what_the_edit_had_set(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope
) -> None:
    [handle] = (await service.write(caller, note)).handles
    edits: list[dict[str, Any]] = [{"pinned": True}, {"pinned": False}, {"tags": ("one",)}]
    for edit in edits:
        await service.correct(caller, CorrectRequest(scope=scope, handle=handle, **edit))
    for _ in edits:
        await service.undo(caller)
    undone = (await service.log.page(caller, limit=3)).operations
    assert [one.request["set"] for one in undone] == [["pinned"], ["unpinned"], ["tags"]]


@ON_BOTH
async def test_a_bulk_forget_is_undone_as_one(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope
) -> None:
    handles = [(await service.write(caller, note)).handles[0] for _ in range(30)]
    await service.forget(caller, ForgetRequest(scope=scope, handles=tuple(handles)))
    assert FakeAdapter.records["acme/default"] == {}
    answer = await service.undo(caller)
    assert len(answer.records) == 30


@ON_BOTH
async def test_a_provider_that_cannot_restore_links_the_new_id(
    paths: Paths, settings: Settings, caller: Caller, note: WriteRequest, scope: Scope, fake
) -> None:
    service = await start(paths, settings, caller, restore=False, keeps_ids=False)
    try:
        old = (await service.write(caller, note)).handles[0]
        asked = await service.query(caller, QueryRequest(scope=scope, query=note.content))
        await service.feedback.say(caller, old, Verdict.HELPED, operation_id=asked.operation_id)
        await service.forget(caller, ForgetRequest(scope=scope, handles=(old,)))
        answer = await service.undo(caller)
        [new] = answer.handles
        stats = await service.log.retrieval_stats(caller, "default", [new.provider_record_id])
        read = stats[new.provider_record_id]
        assert (read.count, read.helped) == (1, 1)
        origin = await service.log.provenance(caller, "default", new)
        assert (origin.retrieval_count, len(origin.retrievals), origin.helped) == (1, 1, 1)
        assert origin.written is not None
        assert [one.operation_type for one in origin.mutations] == ["undo", "forget", "write"]
        assert answer.linked == {old.provider_record_id: new.provider_record_id}
        assert new != old
        assert (await service.get(caller, old, scope)).record.handle == new
        again = await service.undo(caller, answer.operation_id)
        assert again.handles == (new,)
        with pytest.raises(NotFound):
            await service.get(caller, old, scope)
    finally:
        await service.close()


@ON_BOTH
@pytest.mark.parametrize("again", ["undo", "forget"])
async def test_a_record_is_followed_through_all_its_ids(
    paths: Paths,
    settings: Settings,
    caller: Caller,
    note: WriteRequest,
    scope: Scope,
    fake,
    again: str,
) -> None:
    service = await start(paths, settings, caller, restore=False, keeps_ids=False)
    try:
        first = (await service.write(caller, note)).handles[0]
        request = ForgetRequest(scope=scope, handles=(first,))
        forgotten = (await service.forget(caller, request)).operation_id
        ids, kinds = [first], ["forget", "write"]
        for _ in range(3):
            back = await service.undo(caller, forgotten)
            redone = await service.undo(caller, back.operation_id)
            ids.append(back.handles[0])
            kinds = ["undo", "undo", *kinds]
            forgotten = redone.operation_id if again == "undo" else forgotten
        ids.append((await service.undo(caller, forgotten)).handles[0])
        assert len(set(ids)) == 5
        for one in ids:
            assert (await service.get(caller, one, scope)).record.handle == ids[-1]
            found = await service.past.timeline(caller, one, scope)
            assert [change.operation.operation_type for change in found.changes] == ["undo", *kinds]
            assert all(bool(one.before) is not bool(one.after) for one in found.changes)
            assert [entry.valid_to is None for entry in found.timeline] == [True] + [False] * 4
            origin = await service.log.provenance(caller, "default", one)
            assert [change.operation for change in found.changes] == list(origin.mutations)
            assert origin.written == origin.mutations[-1]
    finally:
        await service.close()


async def test_a_record_is_forgotten_under_the_id_it_came_back_under(
    paths: Paths, settings: Settings, caller: Caller, note: WriteRequest, scope: Scope, fake
) -> None:
    service = await start(paths, settings, caller, restore=False, keeps_ids=False)
    try:
        old = (await service.write(caller, note)).handles[0]
        await service.forget(caller, ForgetRequest(scope=scope, handles=(old,)))
        new = (await service.undo(caller)).handles[0]
        never = old.model_copy(update={"provider_record_id": "never"})
        request = ForgetRequest(scope=scope, handles=(never, old, new))
        answer = await service.forget(caller, request)
        assert (answer.handles, answer.missing) == ((new,), (never,))
        assert fake.records["acme/default"] == {}
        with pytest.raises(NotFound):
            await service.forget(caller, ForgetRequest(scope=scope, handles=(old,)))
    finally:
        await service.close()


async def test_a_ghost_is_named(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope, fake
) -> None:
    handle = (await service.write(caller, note)).handles[0]
    fake.haunted = True
    answer = await service.forget(caller, ForgetRequest(scope=scope, handles=(handle,)))
    assert answer.ghosts == (handle,)
    assert (await newest(service, caller)).handles[0].ghost


async def test_a_stale_revision_is_a_conflict_with_both_versions(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope
) -> None:
    record = (await service.write(caller, note)).records[0]
    first = CorrectRequest(scope=scope, handle=record.handle, text="a", revision=record.revision)
    await service.correct(caller, first)
    with pytest.raises(Conflict) as caught:
        await service.correct(caller, first.model_copy(update={"text": "b"}))
    assert caught.value.current is not None
    assert (caught.value.current.text, caught.value.proposed) == ("a", "b")
    assert (await newest(service, caller)).status == OperationStatus.CONFLICT


async def test_a_record_that_went_since_it_was_read_is_a_conflict_without_a_version(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope
) -> None:
    record = (await service.write(caller, note)).records[0]
    await service.forget(caller, ForgetRequest(scope=scope, handles=(record.handle,)))
    late = CorrectRequest(scope=scope, handle=record.handle, text="b", revision=record.revision)
    with pytest.raises(Conflict, match="was removed since you read it") as caught:
        await service.correct(caller, late)
    assert (caught.value.current, caught.value.proposed) == (None, "b")
    assert (await newest(service, caller)).status == OperationStatus.CONFLICT
    with pytest.raises(NotFound):
        await service.correct(caller, late.model_copy(update={"revision": None}))


async def test_an_agent_gets_the_companys_memory_in_a_conflict_as_it_does_elsewhere(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    everybodys = Scope(company_id="acme")
    written = await service.write(caller, note.model_copy(update={"scope": everybodys}))
    agent = caller.model_copy(update={"principal": "agent:coding"})
    [handle] = written.handles
    got = (await service.get(agent, handle, everybodys)).record
    stale = CorrectRequest(scope=everybodys, handle=handle, text="b", revision="99")
    with pytest.raises(Conflict) as caught:
        await service.correct(agent, stale)
    assert caught.value.current == got
    assert " scope=ORG " in got.text


@pytest.mark.parametrize("what", ["service", "binding"])
async def test_read_only_refuses_in_the_service_and_is_logged(
    paths: Paths, caller: Caller, note: WriteRequest, settings: Settings, fake, what: str
) -> None:
    service = await start(paths, settings, caller)
    if what == "binding":
        await service.bindings.update(caller, "default", read_only=True)
    else:
        await service.close()
        service = await start(paths, settings.model_copy(update={"read_only": True}), caller)
    try:
        fake.calls.clear()
        with pytest.raises(Denied, match="read-only"):
            await service.write(caller, note)
        assert fake.calls == []
        assert (await newest(service, caller)).status == OperationStatus.DENIED
    finally:
        await service.close()


async def test_a_company_never_reaches_another(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    other = Caller(company_id="other", principal="user:eve", channel="test")
    await service.companies.add(other, "Other")
    written = await service.write(caller, note)
    with pytest.raises(Denied):
        await service.write(other, note)
    page = await service.log.page(other)
    assert [(o.operation_type, o.status, o.scope.company_id) for o in page.operations] == [
        ("write", "denied", "other"),
        ("configure", "ok", "other"),
    ]
    with pytest.raises(NotFound):
        await service.log.get(other, written.operation_id)
    with pytest.raises(NotFound):
        await service.undo(other, written.operation_id)


async def test_secrets_leave_neither_for_the_provider_nor_for_the_log(
    service: MemoryService, caller: Caller, note: WriteRequest, fake
) -> None:
    secret = "ghp_" + "a1B2" * 9
    request = note.model_copy(
        update={
            "content": f"Use {secret} to push",
            "metadata": {"why": f"Bearer {secret}"},
            "title": secret,
        }
    )
    answer = await service.write(caller, request)
    assert set(answer.redacted) == {"GITHUB_TOKEN", "BEARER"}
    assert secret not in fake.received[-1].model_dump_json()
    operation = await newest(service, caller)
    assert secret not in operation.model_dump_json()
    assert "[REDACTED:GITHUB_TOKEN]" in operation.request["content"]


async def test_an_id_with_a_secret_reaches_neither_the_provider_nor_the_log(
    service: MemoryService, caller: Caller, note: WriteRequest, fake
) -> None:
    secret = "ghp_" + "a1B2" * 9
    with pytest.raises(Invalid, match="contains a secret"):
        await service.write(caller, note.model_copy(update={"record_id": f"notes/{secret}"}))
    assert fake.calls == []
    refused = await newest(service, caller)
    of_secret = Scope(company_id="acme", project_id=f"p-{secret}", subject_id=secret)
    there = RecordHandle(provider_key="fake", provider_record_id=f"notes/{secret}")
    held = (await service.write(caller, note)).records[0]
    fake.records["acme/default"][there.provider_record_id] = held.model_copy(
        update={"handle": there}
    )
    await service.get(caller, there, of_secret)
    got = await newest(service, caller)
    assert got.handles[0].provider_record_id == "notes/[REDACTED:GITHUB_TOKEN]"
    assert got.scope.company_id == "acme"
    assert secret not in refused.model_dump_json() + got.model_dump_json()


async def test_an_error_before_sending_is_an_error_and_after_it_unknown(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope, fake
) -> None:
    fake.fault = down()
    with pytest.raises(Unavailable):
        await service.write(caller, note)
    assert (await newest(service, caller)).status == OperationStatus.ERROR

    fake.fault, fake.fault_after = None, Unavailable("The line broke.", sent=True)
    with pytest.raises(Unavailable):
        await service.write(caller, note)
    unknown = await newest(service, caller)
    assert unknown.status == OperationStatus.UNKNOWN
    fake.fault_after = None
    found = await service.check_outcome(caller, unknown.operation_id)
    assert found.sentence.startswith("It happened")
    assert await service.log.found_outcome(caller, unknown.operation_id) == found
    before = caller.at(unknown.started_at)
    assert await service.log.found_outcome(before, unknown.operation_id) is None
    check = await newest(service, caller)
    assert (check.operation_id, check.operation_type) == (found.check_id, "check")
    assert check.request["checks"] == unknown.operation_id
    fake.calls.clear()
    assert await service.check_outcome(caller, unknown.operation_id) == found
    assert fake.calls == []
    assert (await newest(service, caller)).operation_id == found.check_id
    [change] = await service.log.changes(caller, unknown.operation_id)
    assert change.after is not None
    assert change.after.text == note.content
    assert (await service.undo(caller)).undoes == unknown.operation_id
    with pytest.raises(NotFound):
        await service.get(caller, change.after.handle, note.scope)
    assert await service.runtime.ask(appending.open_intents, caller.company_id) == []


async def test_an_interrupted_forget_counts_what_it_forgot(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope, fake, monkeypatch
) -> None:
    handles = [(await service.write(caller, note)).handles[0] for _ in range(3)]

    async def half(self: FakeAdapter, request: ForgetRequest) -> ForgetReply:
        del self.held[request.handles[0].provider_record_id]
        raise Unavailable("The line broke.", sent=True)

    monkeypatch.setattr(FakeAdapter, "forget", half)
    with pytest.raises(Unavailable):
        await service.forget(caller, ForgetRequest(scope=scope, handles=tuple(handles)))
    forgotten = await newest(service, caller)
    await service.check_outcome(caller, forgotten.operation_id)
    assert len(forgotten.handles) == 3
    assert (await service.refuse_undo(caller, [forgotten.operation_id])).records == 1
    [last] = await service.undoable(caller, 1)
    assert (last.records, last.together) == (1, None)
    back = await service.undo(caller)
    assert back.handles == (handles[0],)
    assert (await service.undo_candidate(caller, back.operation_id)).records == 1


async def _broken_off(
    service: MemoryService, caller: Caller, request: ForgetRequest, monkeypatch, *, did: bool
) -> Operation:
    """Return a forget that nobody saw the end of, which did forget or not."""

    async def forget(self: FakeAdapter, request: ForgetRequest) -> ForgetReply:
        for handle in request.handles if did else ():
            del self.held[handle.provider_record_id]
        raise Unavailable("The line broke.", sent=True)

    with monkeypatch.context() as broken:
        broken.setattr(FakeAdapter, "forget", forget)
        with pytest.raises(Unavailable):
            await service.forget(caller, request)
    operation: Operation = await newest(service, caller)
    return operation


@ON_BOTH
@pytest.mark.parametrize("checked", [False, True])
async def test_what_did_not_happen_is_not_told_by_what_was_done_later(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope, fake, monkeypatch,
    *, checked: bool,
) -> None:  # fmt: skip
    handles = tuple([(await service.write(caller, note)).handles[0] for _ in range(3)])
    request = ForgetRequest(scope=scope, handles=handles)
    broken = await _broken_off(service, caller, request, monkeypatch, did=False)
    first = await service.check_outcome(caller, broken.operation_id) if checked else None
    done = await service.forget(caller, request)
    found = await service.check_outcome(caller, broken.operation_id)
    if first is None:
        told = "It did not happen: 3 records were as before the forget when changed next."
        assert (found.happened, found.sentence) == (False, told)
    else:
        told = "It did not happen: 3 records are as before the forget."
        assert (found, found.sentence) == (first, told)
    with pytest.raises(Invalid, match="changed nothing"):
        await service.undo(caller, broken.operation_id)
    assert (await service.undo(caller)).undoes == done.operation_id
    assert len(fake.records["acme/default"]) == 3


async def test_what_happened_is_told_by_what_was_found_later(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope, monkeypatch
) -> None:
    kept = note.model_copy(update={"record_id": "kept"})
    handle = (await service.write(caller, kept)).handles[0]
    request = ForgetRequest(scope=scope, handles=(handle,))
    broken = await _broken_off(service, caller, request, monkeypatch, did=True)
    await service.write(caller, kept)
    found = await service.check_outcome(caller, broken.operation_id)
    told = "It happened: 1 record was no longer as before the forget when changed next."
    assert (found.happened, found.sentence) == (True, told)
    with pytest.raises(Conflict, match="changed"):
        await service.undo(caller, broken.operation_id)


async def test_nobody_can_tell_what_happened_to_a_record_that_was_changed_meanwhile(
    paths: Paths, service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope, fake,
    monkeypatch,
) -> None:  # fmt: skip
    """Its next change began while nobody knew yet how the first one had ended."""
    handle = (await service.write(caller, note)).handles[0]
    request = ForgetRequest(scope=scope, handles=(handle,))

    async def both(self: FakeAdapter, _: ForgetRequest) -> ForgetReply:
        with monkeypatch.context() as plain:
            plain.setattr(FakeAdapter, "forget", forget)
            await service.forget(caller, request)
        raise Unavailable("The line broke.", sent=True)

    forget = FakeAdapter.forget
    monkeypatch.setattr(FakeAdapter, "forget", both)
    with pytest.raises(Unavailable):
        await service.forget(caller, request)
    broken = await newest(service, caller)
    said = await service.check_outcome(caller, broken.operation_id)
    assert said.happened is None
    assert said.sentence.endswith("changed since, so nobody can tell whether it happened.")


async def test_a_text_that_a_record_held_until_it_was_forgotten_may_have_been_written(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope, fake
) -> None:
    fake.fault_after = Unavailable("The line broke.", sent=True)
    with pytest.raises(Unavailable):
        await service.write(caller, note)
    fake.fault_after = None
    lost = await newest(service, caller)
    [record] = fake.records["acme/default"].values()
    await service.forget(caller, ForgetRequest(scope=scope, handles=(record.handle,)))
    said = await service.check_outcome(caller, lost.operation_id)
    assert said.happened is None
    assert (
        said.sentence
        == "A record with that text was changed since, so nobody can tell who wrote it."
    )


async def test_a_slow_mutation_ends_as_unknown_and_says_so(
    paths: Paths, settings: Settings, caller: Caller, note: WriteRequest, fake
) -> None:
    hasty = settings.model_copy(update={"provider_timeout_ms": 50})
    service = await start(paths, hasty, caller)
    fake.delay = 600
    with pytest.raises(Unavailable, match="did not answer within"):
        await service.write(caller, note)
    assert (await newest(service, caller)).status == OperationStatus.UNKNOWN
    await service.close()


async def test_a_write_whose_beginning_cannot_be_noted_did_not_happen(
    service: MemoryService, caller: Caller, note: WriteRequest, paths: Paths, fake, monkeypatch
) -> None:
    folder = paths.data / "sessions"
    folder.write_text("in its place")
    with pytest.raises(Unavailable, match=f"Cannot use {folder}: File exists.$"):
        await service.write(caller, note)
    assert (await newest(service, caller)).status == OperationStatus.ERROR
    folder.unlink()

    def broken(*_: object, **__: object) -> None:
        raise ValueError("oops")

    monkeypatch.setattr(appending, "begin", broken)
    with pytest.raises(ValueError, match="oops"):
        await service.write(caller, note)
    assert (await newest(service, caller)).status == OperationStatus.ERROR
    assert fake.calls == []
    assert await service.undoable(caller) == []


async def test_a_bug_in_a_provider_degrades_it_alone(
    service: MemoryService, caller: Caller, note: WriteRequest, fake
) -> None:
    fake.fault = KeyError("oops")
    with pytest.raises(Unavailable, match="failed unexpectedly"):
        await service.write(caller, note)
    assert (await service.bindings.health(caller, "default")).health.status == "ok"


@pytest.mark.parametrize("content", [" ", "\n\t"])
async def test_an_empty_memory_is_refused(
    service: MemoryService, caller: Caller, note: WriteRequest, content: str
) -> None:
    with pytest.raises(Invalid):
        await service.write(caller, note.model_copy(update={"content": content}))
    assert (await newest(service, caller)).operation_type == OperationType.WRITE


async def test_a_forget_whose_read_back_fails_is_unknown_and_keeps_what_was_there(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope, fake, monkeypatch
) -> None:
    record = (await service.write(caller, note)).records[0]
    plain = FakeAdapter.snapshot

    async def snapshot(self, handles, scope):
        if not self.held:
            raise down()
        return await plain(self, handles, scope)

    monkeypatch.setattr(FakeAdapter, "snapshot", snapshot)
    with pytest.raises(Unavailable):
        await service.forget(caller, ForgetRequest(scope=scope, handles=(record.handle,)))
    operation = await newest(service, caller)
    assert (operation.operation_type, operation.status) == ("forget", "unknown")
    [change] = await service.log.changes(caller, operation.operation_id)
    assert (change.before, change.after) == (record, None)


async def test_a_write_whose_read_back_fails_is_unknown_and_names_its_record(
    service: MemoryService, caller: Caller, note: WriteRequest, fake, monkeypatch
) -> None:
    async def snapshot(self, handles, scope):
        raise down()

    monkeypatch.setattr(FakeAdapter, "snapshot", snapshot)
    with pytest.raises(Unavailable):
        await service.write(caller, note)
    operation = await newest(service, caller)
    assert (operation.status, len(operation.handles)) == ("unknown", 1)


@ON_BOTH
@pytest.mark.parametrize("kind", ["forget", "correct"])
async def test_a_mutation_that_breaks_off_keeps_what_was_there(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope, monkeypatch, kind: str
) -> None:
    record = (await service.write(caller, note)).records[0]

    async def broken_off(self, request):
        raise Unavailable("The line broke.", sent=True)

    monkeypatch.setattr(FakeAdapter, kind, broken_off)
    mutation = {
        "forget": lambda: service.forget(
            caller, ForgetRequest(scope=scope, handles=(record.handle,))
        ),
        "correct": lambda: service.correct(
            caller, CorrectRequest(scope=scope, handle=record.handle, text="x")
        ),
    }
    with pytest.raises(Unavailable):
        await mutation[kind]()
    operation = await newest(service, caller)
    assert operation.status == OperationStatus.UNKNOWN
    [change] = await service.log.changes(caller, operation.operation_id)
    assert change.before == record
    said = await service.check_outcome(caller, operation.operation_id)
    assert said.sentence == f"It did not happen: 1 record is as before the {kind}."
    [step] = await service.log.changes(caller, operation.operation_id)
    assert step.before == record
    assert operation.operation_id not in {
        one.operation.operation_id for one in await service.undoable(caller)
    }


async def test_a_mutation_that_was_refused_leaves_no_step(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope, fake
) -> None:
    record = (await service.write(caller, note)).records[0]
    with pytest.raises(Conflict):
        await service.correct(
            caller, CorrectRequest(scope=scope, handle=record.handle, text="x", revision="0")
        )
    operation = await newest(service, caller)
    assert await service.log.changes(caller, operation.operation_id) == ()
    assert [c.operation.operation_type for c in await service.undoable(caller)] == ["write"]


@ON_BOTH
async def test_an_undo_that_stops_halfway_is_unknown_and_keeps_its_links(
    paths: Paths, settings: Settings, caller: Caller, note: WriteRequest, scope: Scope, fake,
    monkeypatch,
) -> None:  # fmt: skip
    service = await start(paths, settings, caller, restore=False, keeps_ids=False)
    try:
        handles = [(await service.write(caller, note)).handles[0] for _ in range(3)]
        await service.forget(caller, ForgetRequest(scope=scope, handles=tuple(handles)))
        plain = FakeAdapter.write
        written: list[RecordHandle] = []

        async def write(self, request):
            if written:
                raise down()
            reply = await plain(self, request)
            written.extend(reply.records)
            return reply

        with monkeypatch.context() as patch:
            patch.setattr(FakeAdapter, "write", write)
            with pytest.raises(Unavailable):
                await service.undo(caller)
        operation = await newest(service, caller)
        assert (operation.operation_type, operation.status) == ("undo", "unknown")
        found = await service.get(caller, handles[0], scope)
        assert found.record.handle == written[0]
    finally:
        await service.close()


async def test_a_provider_that_leaves_a_record_out_is_stopped_before_anything_is_lost(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope, fake, monkeypatch
) -> None:
    handles = [(await service.write(caller, note)).handles[0] for _ in range(2)]
    plain = FakeAdapter.snapshot

    async def snapshot(self, handles, scope):
        return (await plain(self, handles, scope))[:1]

    monkeypatch.setattr(FakeAdapter, "snapshot", snapshot)
    with pytest.raises(Unavailable, match="other records than those that were requested"):
        await service.forget(caller, ForgetRequest(scope=scope, handles=tuple(handles)))
    assert "forget" not in fake.calls
    assert (await newest(service, caller)).status == OperationStatus.ERROR


async def test_a_record_named_twice_is_forgotten_once(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope
) -> None:
    handle = (await service.write(caller, note)).handles[0]
    gone = RecordHandle(provider_key="fake", provider_record_id="gone")
    answer = await service.forget(
        caller, ForgetRequest(scope=scope, handles=(handle, gone, handle, gone))
    )
    assert (answer.handles, answer.missing) == ((handle,), (gone,))
    assert len(await service.log.changes(caller, answer.operation_id)) == 1
    assert len((await service.undo(caller)).records) == 1


@pytest.mark.parametrize("verb", ["write", "correct", "forget", "undo"])
async def test_a_mutation_runs_to_its_end_even_where_its_caller_has_left(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope, monkeypatch, verb: str
) -> None:
    handle = (await service.write(caller, note)).handles[0]
    inside, release = asyncio.Event(), asyncio.Event()
    called = "restore" if verb == "undo" else verb
    plain = getattr(FakeAdapter, called)

    async def held(self, *arguments):
        inside.set()
        await release.wait()
        return await plain(self, *arguments)

    monkeypatch.setattr(FakeAdapter, called, held)
    change = {
        "write": lambda: service.write(caller, note),
        "correct": lambda: service.correct(
            caller, CorrectRequest(scope=scope, handle=handle, text="newer")
        ),
        "forget": lambda: service.forget(caller, ForgetRequest(scope=scope, handles=(handle,))),
        "undo": lambda: service.undo(caller),
    }
    task = asyncio.ensure_future(change[verb]())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    while running := service._runtime._changes:
        await asyncio.wait(running)
    done = await newest(service, caller)
    assert (done.operation_type, done.status) == (verb, OperationStatus.OK)
    assert len(await service.undoable(caller)) == (0 if verb == "undo" else 2)


@ON_BOTH
async def test_a_replaced_record_comes_back(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope
) -> None:
    first = note.model_copy(update={"record_id": "kept"})
    await service.write(caller, first)
    await service.write(caller, first.model_copy(update={"content": "newer"}))
    await service.undo(caller)
    assert (await service.get(caller, "kept", scope)).record.text == note.content


async def test_the_log_of_a_change_holds_no_secret_of_its_source(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope, source: SourceRef
) -> None:
    handle = (await service.write(caller, note)).handles[0]
    leaky = source.model_copy(update={"external_ref": "https://ana:opensesame@host/x"})
    await service.correct(
        caller, CorrectRequest(scope=scope, handle=handle, text="x", source=leaky)
    )
    await service.forget(caller, ForgetRequest(scope=scope, handles=(handle,), source=leaky))
    for operation in (await service.log.page(caller, limit=2)).operations:
        assert operation.source is not None
        assert operation.source.external_ref == "[REDACTED:URL_PASSWORD]"


async def test_an_outcome_that_is_known_or_cannot_be_seen_is_said(
    service: MemoryService, caller: Caller, note: WriteRequest, fake
) -> None:
    written = await service.write(caller, note)
    with pytest.raises(Invalid, match="is known: ok"):
        await service.check_outcome(caller, written.operation_id)
    fake.fault = Unavailable("The line broke.", sent=True)
    with pytest.raises(Unavailable):
        await service.write(caller, note)
    fake.fault = None
    lost = await newest(service, caller)
    said = await service.check_outcome(caller, lost.operation_id)
    assert said.sentence == "It did not happen: no record holds the text."


@ON_BOTH
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_one_record_that_changed_since_refuses_the_undo_of_all(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope, place: int
) -> None:
    handles = [(await service.write(caller, note)).handles[0] for _ in range(3)]
    held = FakeAdapter.records["acme/default"]
    changed = held[handles[place].provider_record_id]
    await service.forget(caller, ForgetRequest(scope=scope, handles=tuple(handles)))
    held[handles[place].provider_record_id] = changed.model_copy(update={"text": "by hand"})
    with pytest.raises(Conflict, match="changed since"):
        await service.undo(caller)
    assert [one.text for one in held.values()] == ["by hand"]


WHOLE = {
    "title": "A title", "summary": "A summary", "topic": "deploys", "tags": ("a", "b"),
    "pinned": True, "expires_at": datetime(2030, 1, 1, tzinfo=UTC), "created_by": "user:bob",
    "created_at": datetime(2026, 1, 1, tzinfo=UTC), "metadata": {"turns": [1]},
}  # fmt: skip
CHANGES = {
    "text": "newer", "summary": "other", "topic": "other", "tags": ("c",), "pinned": False,
    "expires_at": datetime(2031, 1, 1, tzinfo=UTC),
}  # fmt: skip


@pytest.mark.slow
@ON_BOTH
@pytest.mark.parametrize("restore", [True, False])
@pytest.mark.parametrize("field", [*CHANGES, "never_expires", "forget"])
async def test_every_field_comes_back(
    paths: Paths, settings: Settings, caller: Caller, note: WriteRequest, scope: Scope, fake,
    *, restore: bool, field: str,
) -> None:  # fmt: skip
    service = await start(paths, settings, caller, restore=restore)
    [handle] = (await service.write(caller, note.model_copy(update=WHOLE))).handles
    before = (await service.get(caller, handle, scope)).record
    assert {name: getattr(before, name) for name in WHOLE} == WHOLE
    if field == "forget":
        await service.forget(caller, ForgetRequest(scope=scope, handles=(handle,)))
    else:
        change: dict[str, Any] = {field: CHANGES.get(field, True)}
        await service.correct(caller, CorrectRequest(scope=scope, handle=handle, **change))
        assert (await service.get(caller, handle, scope)).record != before
    await service.undo(caller)
    after = (await service.get(caller, handle, scope)).record
    assert after.model_copy(update={"revision": before.revision}) == before
    await service.close()


SECRET = "AKIAIOSFODNN7EXAMPLE"
NAMES = {
    "scope", "binding_key", "handle", "handles", "record_id", "mode", "revision", "revisions",
    "created_by", "owners", "intent", "sort", "cursor", "namespace",
}  # fmt: skip
"""What names something and is checked elsewhere; all else that holds words may hold a secret."""


def leaky(kind: type[Any], **given: Any) -> list[Any]:
    """Return a request with a secret in it, one for each field that can hold one."""
    found: list[Any] = []
    source = {"kind": "external_document", "company_id": "acme", "external_ref": f"x {SECRET}"}
    for field in sorted(set(kind.model_fields) - NAMES):
        for value in (SECRET, [f"a {SECRET}"], {"a": [SECRET]}, {SECRET: 1}, source):
            try:
                request = kind.model_validate(given | {field: value})
            except ValueError:
                continue
            if SECRET in request.model_dump_json():
                found.append(pytest.param(request, id=f"{kind.__name__}-{field}-{len(found)}"))
    assert found
    return found


ACME = Scope(company_id="acme", project_id="p")
MANUAL = SourceRef(kind="manual_note", company_id="acme")
HELD = RecordHandle(provider_key="fake", provider_record_id="r")


@pytest.mark.parametrize(
    "request_",
    [
        *leaky(WriteRequest, scope=ACME, source=MANUAL, content="x"),
        *leaky(CorrectRequest, scope=ACME, handle=HELD),
        *leaky(ForgetRequest, scope=ACME, handles=(HELD,)),
        *leaky(QueryRequest, scope=ACME, query="x"),
        *leaky(ContextRequest, scope=ACME, prompt="x", delivered=True),
        *(
            pytest.param(kind(scope=ACME, filter=Filter(**words), **given), id=f"{kind}-{words}")
            for kind, given in ((BrowseRequest, {}), (QueryRequest, {"query": "x"}))
            for words in (
                {"text": SECRET},
                {"fuzzy": ("x", SECRET)},
                {"topic": SECRET},
                {"tag": SECRET},
                {"kind": SECRET},
            )
        ),
    ],
)
async def test_no_field_lets_a_secret_through(
    service: MemoryService, caller: Caller, note: WriteRequest, fake, request_: Any
) -> None:
    await service.write(caller, note.model_copy(update={"record_id": "r"}))
    calls: dict[Any, Any] = {
        WriteRequest: service.write, CorrectRequest: service.correct, QueryRequest: service.query,
        ForgetRequest: service.forget, BrowseRequest: service.browse,
        ContextRequest: service.context,
    }  # fmt: skip
    fake.received.clear()
    await calls[type(request_)](caller, request_)
    assert {type(one) for one in fake.received} == {
        ContextRequest: {BrowseRequest, QueryRequest}
    }.get(type(request_), {type(request_)})
    assert not any(SECRET in one.model_dump_json() for one in fake.received)
    assert SECRET not in (await newest(service, caller)).model_dump_json()


@pytest.mark.parametrize("keeps_ids", [True, False])
async def test_what_nobody_knows_of_a_record_stays_unknown_when_it_is_written_again(
    service: MemoryService, caller: Caller, scope: Scope, *, keeps_ids: bool
) -> None:
    config = {"restore": False, "keeps_ids": keeps_ids}
    await service.bindings.update(caller, "default", config=config)
    handle = RecordHandle(provider_key="fake", provider_record_id="theirs")
    theirs = Record(handle=handle, text="Deploy from main", scope=scope, tags=("ci",))
    FakeAdapter.records["acme/default"] = {"theirs": theirs}
    await service.forget(caller, ForgetRequest(scope=scope, handles=(handle,)))
    [back] = (await service.undo(caller)).records
    assert (back.handle == handle) is keeps_ids
    known = {"text": back.text, "tags": back.tags}
    unknown = (back.source, back.created_by, back.created_at, back.title)
    assert (known, unknown) == ({"text": theirs.text, "tags": theirs.tags}, (None,) * 4)
    [now] = (await service.browse(caller, BrowseRequest(scope=scope))).records
    assert (now.source, now.created_by) == (None, None)
