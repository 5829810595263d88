"""Counts, limits and lists of a migration to the last record, the second of each thing too."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memtui.config import Paths, Settings
from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    ForgetRequest,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteMode,
    WriteRequest,
)  # fmt: skip
from memtui.migration import moving, planning, verifying
from memtui.migration.cutover import switch
from memtui.migration.endpoints import ProgressFile
from memtui.migration.envelope import Loss
from memtui.migration.moving import MigrationProgress, Pace, apply
from memtui.migration.planning import MigrationPlan, plan
from memtui.migration.verifying import Verified, verdict, verify
from memtui.service import Caller, MemoryService
from memtui.testing import InMemoryAdapter
from tests.migration.conftest import ends_of, held
from tests.migration.providers import BareAdapter

SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
FAR = datetime(2190, 1, 1, tzinfo=UTC)


def note(content: str, binding: str = "memory", **fields: Any) -> WriteRequest:
    owner = {name: fields.pop(name) for name in ("project_id", "subject_id", "agent_id")
             if name in fields}  # fmt: skip
    return WriteRequest.model_validate(
        {"scope": {"company_id": "local", **owner}, "source": SOURCE, "content": content,
         "binding_key": binding, **fields}
    )  # fmt: skip


async def write(service: MemoryService, caller: Caller, *requests: WriteRequest) -> None:
    for request in requests:
        await service.write(caller, request)


def lost(losses: Iterable[Loss]) -> dict[str, tuple[int, str]]:
    return {one.what: (one.records, one.fate) for one in losses}


async def test_a_plan_counts_each_owner_kind_and_loss(
    service: MemoryService, caller: Caller
) -> None:
    await write(
        service, caller,
        note("one", project_id="p", tags=["a"], topic="t", title="T", pinned=True),
        note("two", project_id="p", expires_at=FAR, summary="S", pinned=True),
        note("three", project_id="p", kind="summary"), note("four", subject_id="u"),
        note("five", agent_id="coding"), note("six"), note("seven", "second"),
    )  # fmt: skip
    told: list[int] = []
    found = await plan(await ends_of(service, caller, "memory", "second"), Settings(), told.append)
    assert [(one.scope, one.kind, one.records, one.place) for one in found.scopes] == [
        ("agent coding", "note", 1, "agent-types/coding"), ("company", "note", 1, "system"),
        ("project p", "note", 2, "projects/p"), ("project p", "summary", 1, "projects/p"),
        ("user u", "note", 1, "users/u"),
    ]  # fmt: skip
    assert (found.source, found.destination, found.records) == ("memory", "second", 6)
    assert (found.destination_records, found.destination_at_least) == (1, False)
    assert (found.refused, found.redacted, found.staying, found.complete) == (0, 0, 0, True)
    assert told == [6]
    carried = "carried in the metadata"
    always = {
        "id": (6, carried), "time of the last change": (6, "lost"), "history": (6, "lost"),
    }  # fmt: skip
    assert lost(found.losses) == always
    to_lossy = await plan(await ends_of(service, caller, "memory", "lossy"), Settings())
    assert lost(to_lossy.losses) == always | {
        "pin": (2, carried), "expiry": (1, carried), "summary": (1, carried),
    }  # fmt: skip


async def test_a_part_of_a_plan_and_of_a_run(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await write(
        service, caller, note("one", project_id="p"), note("two", project_id="q"),
        note("three", subject_id="u"), note("four", agent_id="x"), note("there", "second"),
        note("there too", "second", agent_id="x"),
    )  # fmt: skip
    for part, text in (
        ({"project_id": "p"}, "one"), ({"subject_id": "u"}, "three"), ({"agent_id": "x"}, "four"),
    ):  # fmt: skip
        ends = await ends_of(service, caller, "memory", "second", **part)
        found = await plan(ends, Settings())
        assert (found.records, found.destination_records) == (1, 1 if "agent_id" in part else 0)
        assert (await apply(ends, paths.data)).written == 1
        assert text in [one.text for one in await held(service, caller, "second")]
        assert (await verify(ends, paths.data)).matched == 1
    assert len(await held(service, caller, "second")) == 5


async def test_how_many_facts_an_owner_may_hold(
    service: MemoryService, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_LISTED", 3)
    await write(
        service, caller,
        *(note(f"a{n}: x", kind="fact", project_id="p", record_id=f"p{n}") for n in range(4)),
        *(note(f"b{n}: x", kind="fact", subject_id="u", record_id=f"u{n}") for n in range(3)),
        *(note(f"n{n}", project_id="p") for n in range(3)),
        note("long: " + "x" * 94, kind="fact", project_id="q", record_id="fits"),
        note("more: " + "x" * 95, kind="fact", project_id="q", record_id="long"),
    )  # fmt: skip
    ends = await ends_of(service, caller, "memory", "second")
    found = await plan(ends, Settings(fact_max_count=2, fact_max_chars=100))
    assert (found.records, found.refused) == (12, 4)
    assert [one.record_id for one in found.refusals] == ["p2", "p3", "u2"]
    assert [one.reason.split(" may hold 2 facts")[0] for one in found.refusals] == [
        "The project p", "The project p", "The user u",
    ]  # fmt: skip
    unlimited = await plan(ends, Settings(fact_max_count=0, fact_max_chars=100))
    assert [one.record_id for one in unlimited.refusals] == ["long"]
    assert "100" in unlimited.refusals[0].reason


async def test_what_the_destination_has_no_place_for_is_refused(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await service.bindings.add(caller, "facts", "facts", {})
    await write(
        service, caller, note("one", agent_id="x", record_id="1"),
        note("two", project_id="p", record_id="2"),
    )  # fmt: skip
    ends = await ends_of(service, caller, "memory", "facts")
    found = await plan(ends, Settings())
    assert [one.record_id for one in found.refusals] == ["1"]
    assert [one.place is None for one in found.scopes] == [True, False]
    done = await apply(ends, paths.data)
    assert [one.record_id for one in done.failures] == ["1"]


async def test_what_a_run_counts(service: MemoryService, caller: Caller, paths: Paths) -> None:
    key = "sk-abcdefghijklmnop12345678"
    await write(
        service, caller, note("one", record_id="1", tags=["a"], pinned=True),
        note("two", record_id="2", summary="S"), note("three", record_id="3"),
    )  # fmt: skip
    ends = await ends_of(service, caller, "memory", "lossy")
    told: list[MigrationProgress] = []
    done = await apply(ends, paths.data, told.append)
    assert (done.seen, done.written, done.replaced, done.unchanged, done.failed) == (3, 3, 0, 0, 0)
    assert (done.redacted, done.complete, done.problems) == (0, True, ())
    assert (told[-1].done, told[-1].total, told[-1].failed) == (3, 3, 0)
    found = lost(done.losses)
    assert (found["pin"], found["tags"], found["summary"], found["id"]) == (
        (1, "carried in the metadata"), (1, "carried in the metadata"),
        (1, "carried in the metadata"), (3, "carried in the metadata"),
    )  # fmt: skip
    change = CorrectRequest.model_validate(
        {"scope": {"company_id": "local"}, "binding_key": "memory", "pinned": True,
         "handle": {"provider_key": "memory", "provider_record_id": "2"}}
    )  # fmt: skip
    await service.correct(caller, change)
    adapter_note = note("four", record_id="4", metadata={"k": 1})
    await service.write(caller, adapter_note)
    again = await apply(ends, paths.data)
    assert (again.seen, again.written, again.replaced, again.unchanged) == (4, 1, 1, 2)
    assert lost(again.losses)["pin"][0] == 1
    assert lost(again.losses)["id"][0] == 2
    assert key not in str(again)


async def test_failures_are_counted_and_the_first_are_named(
    service: MemoryService, caller: Caller, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "_LISTED_FAILURES", 2)
    await write(service, caller, *(note(f"n{n}", agent_id="x") for n in range(4)))
    await service.bindings.add(caller, "facts", "facts", {})
    done = await apply(await ends_of(service, caller, "memory", "facts"), paths.data)
    assert (done.failed, len(done.failures), done.seen) == (4, 2, 4)


@pytest.mark.parametrize(("down", "stops"), [(9, False), (10, True)])
async def test_a_provider_may_fail_nine_times_in_a_row(
    service: MemoryService, caller: Caller, paths: Paths, monkeypatch: pytest.MonkeyPatch,
    down: int, stops: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(moving, "_AT_ONCE", 1)
    await write(service, caller, *(note(f"n{n:02}", record_id=f"{n}") for n in range(22)))
    calls, put = 0, BareAdapter.write

    async def failing(adapter: BareAdapter, request: WriteRequest) -> object:
        nonlocal calls
        calls += 1
        if calls % 11 and calls % 11 <= down:
            raise Unavailable("down")
        return await put(adapter, request)

    monkeypatch.setattr(BareAdapter, "write", failing)
    ends = await ends_of(service, caller, "memory", "bare")
    if stops:
        with pytest.raises(Unavailable, match="down"):
            await apply(ends, paths.data)
        assert calls == 10
        return
    done = await apply(ends, paths.data)
    assert (done.failed, done.written, calls) == (18, 4, 22)


@pytest.mark.parametrize(
    ("field", "edited", "conflict"),
    [("text", "Mine", True), ("metadata", None, False)],
)
async def test_what_a_destination_cannot_keep_is_no_edit_there(
    service: MemoryService, caller: Caller, paths: Paths, field: str, edited: str | None,
    conflict: bool,
) -> None:  # fmt: skip
    """`lossy` keeps neither pin nor tags: that they differ there is nobody's change."""
    fields: dict[str, Any] = {"pinned": True, "expires_at": FAR, "tags": ["a"], "topic": "t"}
    await write(service, caller, note("one", record_id="1", **fields))
    ends = await ends_of(service, caller, "memory", "lossy")
    await apply(ends, paths.data)
    [there] = await held(service, caller, "lossy")
    if edited:
        change = {"scope": there.scope, "handle": there.handle, "binding_key": "lossy"}
        await service.correct(caller, CorrectRequest.model_validate({**change, field: edited}))
    await service.write(
        caller, note("one", record_id="1", mode=WriteMode.UPSERT, **{**fields, "topic": "other"})
    )
    done = await apply(ends, paths.data)
    assert (done.failed, done.replaced) == ((1, 0) if conflict else (0, 1))
    if conflict:
        assert done.failures[0].reason.startswith("Its text ")
        assert [one.text for one in await held(service, caller, "lossy")] == ["Mine"]
    else:
        assert (await verify(ends, paths.data)).passed


async def test_a_record_that_moved_to_another_owner_moves_there_too(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await write(service, caller, note("one", record_id="1", project_id="p"), note("two"))
    ends = await ends_of(service, caller, "memory", "second")
    await apply(ends, paths.data)
    await service.write(
        caller, note("one", record_id="1", project_id="q", mode=WriteMode.UPSERT)
    )  # fmt: skip
    done = await apply(ends, paths.data)
    assert (done.replaced, done.unchanged, done.failed) == (1, 1, 0)
    there = await held(service, caller, "second")
    assert sorted((one.text, one.scope.project_id or "") for one in there) == [
        ("one", "q"), ("two", ""),
    ]  # fmt: skip
    assert (await verify(ends, paths.data)).passed


# Proof


async def test_a_proof_lists_so_many_of_each(
    service: MemoryService, caller: Caller, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(service, caller, *(note(f"n{n}", record_id=f"r{n}") for n in range(7)))
    await write(service, caller, note("own", "second"))
    ends = await ends_of(service, caller, "memory", "second")
    await apply(ends, paths.data)
    there = {one.text: one for one in await held(service, caller, "second")}
    for text in ("n0", "n1"):
        one = there[text]
        await service.forget(
            caller, ForgetRequest(scope=one.scope, handles=(one.handle,), binding_key="second")
        )
    for text in ("n2", "n3"):
        one = there[text]
        change = CorrectRequest(
            scope=one.scope, handle=one.handle, text=f"{text}!", tags=("x",), binding_key="second"
        )
        await service.correct(caller, change)
    for one in (await held(service, caller, "memory"))[4:6]:
        await service.forget(
            caller, ForgetRequest(scope=one.scope, handles=(one.handle,), binding_key="memory")
        )
    told: list[int] = []
    found = await verify(ends, paths.data, report=told.append)
    assert (found.source_records, found.checked, found.matched) == (5, 5, 1)
    assert (found.missing, found.different, found.extra, found.others) == (2, 2, 2, 1)
    assert [(one.what, one.source_id, one.fields) for one in found.mismatches] == [
        ("missing", "r0", ()), ("missing", "r1", ()),
        ("different", "r2", ("text", "tags")), ("different", "r3", ("text", "tags")),
        ("extra", None, ()), ("extra", None, ()),
    ]  # fmt: skip
    extra = [there[text].handle.provider_record_id for text in ("n4", "n5")]
    assert sorted(str(one.destination_id) for one in found.mismatches[4:]) == sorted(extra)
    assert found.mismatches[2].destination_id == there["n2"].handle.provider_record_id
    assert told == [5, 11]
    monkeypatch.setattr(verifying, "_LISTED", 1)
    few = await verify(ends, paths.data)
    assert ([one.source_id for one in few.mismatches], few.missing) == (["r0"], 2)
    sampled = await verify(ends, paths.data, sample=5, seed=0)
    assert (sampled.checked, sampled.seed, sampled.extra, sampled.others) == (5, 0, 0, 3)


SAME = Verified(source_records=3, checked=3, matched=3, missing=0, different=0, extra=0, others=9)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "✓ the same on both sides: 3"),
        ({"destination_at_least": True}, "✓ all 3 of a are the same in b"),
        ({"source_records": 4}, "✓ 3 of 3 {}; the others were not compared"),
        ({"source_at_least": True},
         "✗ 3 of 3 {}, but a cannot be listed completely and may have more"),
        ({"problems": ("x",), "source_at_least": True},
         "✗ 3 of 3 {}, but not all of a can be read"),
        ({"matched": 1, "missing": 1, "different": 1, "extra": 2},
         "✗ 4 not the same on both sides; 1 of 3 {}"),
        ({"extra": 1}, "✗ 1 not the same on both sides; 3 of 3 {}"),
        ({"matched": 2, "different": 1}, "✗ 1 not the same on both sides; 2 of 3 {}"),
    ],
)  # fmt: skip
def test_a_verdict_claims_no_more_than_was_seen(changes: dict[str, object], line: str) -> None:
    found = SAME.model_copy(update=changes)
    assert verdict(found, "a", "b") == line.format("compared records are the same")
    assert found.passed is line.startswith("✓")


def test_a_plan_is_complete_if_all_was_read() -> None:
    whole = MigrationPlan(source="a", destination="b", records=1)
    assert whole.complete
    for changes in ({"source_at_least": True}, {"problems": ("x",)}):
        assert not whole.model_copy(update=changes).complete


@pytest.mark.parametrize(("wait", "told"), [(0.0999, [1]), (0.125, [1, 2])])
def test_a_report_comes_ten_times_a_second(wait: float, told: list[int]) -> None:
    seen: list[MigrationProgress] = []
    now = 100.0
    pace = Pace(seen.append, lambda: now)
    pace.total = 1
    pace.add()
    now += wait
    pace.add()
    assert [one.done for one in seen] == told
    assert seen[-1].seconds_left in {None, 0}
    pace.search(5)
    assert (seen[-1].found, seen[-1].total, seen[-1].done) == (5, None, 0)


# The switch


async def test_a_switch_names_what_it_takes_gives_and_leaves(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    for place in ("p1", "p2", "p3"):
        await service.bindings.set_target(caller, "project", place, "default")
    await service.bindings.set_target(caller, "project", "own", "memory")
    ends = await ends_of(service, caller, "default", "memory")
    done = await switch(ends, paths.data, force=True)
    assert (done.served_by, done.closed, done.opened, done.left) == ("memory", True, False, ())
    assert [one.target_id for one in done.targets] == ["local", "p1", "p2", "p3"]
    ends = await ends_of(service, caller, "default", "memory")
    kept = ProgressFile(paths.data, ends).read()
    assert (kept.switched, kept.closed) == (done.targets, True)
    await service.bindings.set_target(caller, "project", "p2", "second")
    await service.bindings.set_target(caller, "project", "p3", "lossy")
    await service.bindings.set_target(caller, "project", "p1", "default")
    ends = await ends_of(service, caller, "default", "memory")
    back = await switch(ends, paths.data, back=True)
    assert (back.served_by, back.closed, back.opened) == ("default", False, True)
    assert [one.target_id for one in back.targets] == ["local"]
    assert [one.target_id for one in back.left] == ["p2", "p3"]
    kept = ProgressFile(paths.data, ends).read()
    assert (kept.switched, kept.closed) == ((), False)
    views = {one.key: one for one in await service.bindings.all(caller)}
    assert [one.target_id for one in views["memory"].targets] == ["own"]
    assert {one.target_id for one in views["default"].targets} == {"local", "p1"}
    with pytest.raises(Conflict, match="from default to memory"):
        await switch(ends, paths.data, back=True)


async def test_each_pair_of_bindings_and_each_company_has_its_own_state(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    one = await ends_of(service, caller, "default", "memory")
    assert (await verify(one, paths.data)).passed
    for source, destination in (("default", "second"), ("second", "memory"), ("memory", "default")):
        other = await ends_of(service, caller, source, destination)
        assert ProgressFile(paths.data, other).read().verified_at is None
    state = ProgressFile(paths.data, one).read()
    assert (state.verified_whole, state.begun_at, state.applied_at) == (True, None, None)
    with ProgressFile(paths.data, one).alone():
        with ProgressFile(paths.data, await ends_of(service, caller, "memory", "second")).alone():
            pass
        into = await ends_of(service, caller, "second", "memory")
        with pytest.raises(Conflict, match="into memory is running"), \
                ProgressFile(paths.data, into).alone():  # fmt: skip
            pass


async def test_what_should_have_expired_is_not_moved_back(
    service: MemoryService, caller: Caller, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A destination without expiry carries it, and whoever reads it minds it."""
    soon = datetime.now(UTC) + timedelta(days=1)
    await write(
        service, caller, note("short", record_id="1", expires_at=soon),
        note("long", record_id="2", expires_at=FAR), note("ever", record_id="3"),
    )  # fmt: skip
    await apply(await ends_of(service, caller, "memory", "lossy"), paths.data)
    monkeypatch.setattr("memtui.migration.envelope.datetime", Later)
    ends = await ends_of(service, caller, "lossy", "second")
    found = await plan(ends, Settings())
    done = await apply(ends, paths.data)
    assert (found.records, done.written, done.seen) == (2, 2, 3)
    texts = {one.text: one.expires_at for one in await held(service, caller, "second")}
    assert texts == {"long": FAR, "ever": None}
    assert (await verify(ends, paths.data)).source_records == 2


class Later(datetime):
    """Two days on."""

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]  # UTC alone is asked
        return datetime.now(UTC) + timedelta(days=2)


async def test_the_oldest_is_moved_first(
    service: MemoryService, caller: Caller, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtui.migration.endpoints._PAGE", 2)
    monkeypatch.setattr(moving, "_AT_ONCE", 1)
    days = (5, 1, 4, 2, 3)
    await write(
        service, caller,
        *(note(f"day {day}", created_at=datetime(2026, 1, day, tzinfo=UTC)) for day in days),
    )  # fmt: skip
    written: list[str] = []
    put = InMemoryAdapter.write

    async def noting(adapter: InMemoryAdapter, request: WriteRequest) -> object:
        written.append(request.content)
        return await put(adapter, request)

    await service.bindings.add(caller, "other", "memory", {})
    monkeypatch.setattr(InMemoryAdapter, "write", noting)
    await apply(await ends_of(service, caller, "memory", "other"), paths.data)
    assert written == [f"day {day}" for day in range(1, 6)]
    page = await service.browse(
        caller, BrowseRequest(scope=Scope(company_id="local"), binding_key="other", limit=9)
    )
    assert page.total == 5
