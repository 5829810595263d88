"""A caller in the past reads what was there, whatever the provider keeps of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from memtui.analytics.figures import Bucket
from memtui.config import Paths, Settings
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Denied,
    Filter,
    ForgetRequest,
    NotFound,
    OperationType,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceRef,
    WriteMode,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, open_service
from memtui.service.context.contexts import ContextRequest
from memtui.service.history.past import Difference

CALLER = Caller(company_id="local", principal="user:ana", channel="test")
SCOPE = Scope(company_id="local", project_id="web")
SOURCE = SourceRef(kind="manual_note", company_id="local")
ACTIONS = ("fact", "fact", "note", "correct", "forget", "undo", "undo")
NOTES_TOO = {"default": True, "table": False}
"""Whether a binding keeps notes."""

SORTS = ("-updated_at", "title", "created_at", "-size", "updated_at")

State = dict[str, str]


@pytest.fixture
async def service(paths: Paths, settings: Settings):
    opened = await open_service(paths, settings)
    await opened.bindings.add(CALLER, "table", "facts", {})
    yield opened
    await opened.close()


async def listed(service: MemoryService, key: str, caller: Caller = CALLER, **asked) -> State:
    found: State = {}
    request = BrowseRequest(scope=SCOPE, binding_key=key, limit=3, **asked)
    while True:
        page = await service.browse(caller, request)
        assert found.keys().isdisjoint(one.handle.provider_record_id for one in page.records)
        found |= {record.handle.provider_record_id: record.text for record in page.records}
        if page.next_cursor is None:
            assert page.total == len(found)
            return found
        request = request.model_copy(update={"cursor": page.next_cursor})


async def _live(
    service: MemoryService, key: str, random: Random, turns: int
) -> list[tuple[datetime, State]]:
    """Change a binding, and say what it held after each change."""
    account = [(datetime.now(UTC), await listed(service, key))]
    done = 0
    for turn in range(turns):
        action, there = random.choice(ACTIONS), account[-1][1]
        if action in {"correct", "forget"} and there:
            name = random.choice(sorted(there))
            provider = "vault" if key == "default" else "facts"
            it = RecordHandle(provider_key=provider, provider_record_id=name)
            asked = {"scope": SCOPE, "binding_key": key}
            if action == "forget":
                await service.forget(CALLER, ForgetRequest(handles=(it,), **asked))
            else:
                await service.correct(
                    CALLER, CorrectRequest(handle=it, text=f"corrected-{turn}: word{turn}", **asked)
                )
        elif action == "undo" and done:
            await service.undo(CALLER)
            done -= 2
        else:
            is_note = action == "note" and NOTES_TOO[key]
            text = f"word{turn} of a note" if is_note else f"key{random.randrange(4)}: word{turn}"
            await service.write(
                CALLER,
                WriteRequest(
                    scope=SCOPE,
                    source=SOURCE,
                    content=text,
                    binding_key=key,
                    kind="note" if is_note else "fact",
                    mode=WriteMode.APPEND if is_note or key == "table" else WriteMode.UPSERT,
                ),
            )
        done += 1
        account.append((datetime.now(UTC), await listed(service, key)))
    return account


@pytest.mark.parametrize("key", ["default", "table"])
async def test_any_moment_is_what_was_seen_then(service: MemoryService, key: str) -> None:
    account = await _live(service, key, Random(4), 20)
    states = [state for _, state in account]
    assert len({tuple(sorted(state.items())) for state in states}) > 12
    names = sorted({name for state in states for name in state})
    for moment, state in account:
        then = CALLER.at(moment)
        sort = SORTS[len(state) % len(SORTS)]
        assert await listed(service, key, then, sort=sort) == state
        words = {text.partition("word")[2].split()[0]: text for text in state.values()}
        for number in range(30):
            request = QueryRequest(
                scope=SCOPE, query=f"word{number}", binding_key=key, as_of=moment, top_k=3
            )
            if number % 10 == 0:
                answer = await service.query(CALLER, request)
                assert answer.as_of == moment
                found = [one.text for one in answer.snippets]
                assert found == ([words[str(number)]] if str(number) in words else [])
        for name in names[::3]:
            try:
                got = await service.get(then, name, SCOPE, binding_key=key)
            except NotFound:
                assert name not in state
            else:
                assert got.record.text == state[name]


def applied(state: State, differences: Sequence[Difference]) -> State:
    """Return a state after what a comparison says became of it."""
    state = dict(state)
    for one in differences:
        if one.before is not None:
            assert state.pop(one.before.handle.provider_record_id) == one.before.text
        if one.after is not None:
            state[one.after.handle.provider_record_id] = one.after.text
    return state


@pytest.mark.parametrize("key", ["default", "table"])
async def test_moments_and_their_differences_tell_all_that_changed(
    service: MemoryService, key: str
) -> None:
    account, past = await _live(service, key, Random(7), 25), service.past
    moments = (await past.moments(CALLER, SCOPE, binding_key=key)).moments
    made_by = await past.made_by(CALLER, moments, key)
    known = await service.log.by_ids(CALLER, [one for one in made_by if one is not None])
    made = {one.operation_id: one for one in known}
    assert all(made[one or ""].started_at <= at for at, one in zip(moments, made_by, strict=True))
    for (earlier, old), (later, new) in pairwise(account):
        assert (old != new) <= any(earlier < one <= later for one in moments)
    for number, (earlier, old) in enumerate(account[::4]):
        for later, new in account[4 * number + 3 :: 7]:
            found = await past.compare(CALLER, SCOPE, earlier, later, binding_key=key)
            assert applied(old, found.differences) == new
            assert found.same == len(old.items() & new.items())
            for one in found.differences:
                assert one.operations
                assert all(earlier < done.started_at <= later for done in one.operations)


async def test_a_timeline_says_who_and_why(service: MemoryService) -> None:
    source = SourceRef(kind="run", company_id="local", run_id="r-1")
    fact = WriteRequest(scope=SCOPE, source=source, content="region: eu", kind="fact")
    agent = CALLER.model_copy(update={"principal": "agent:ops"})
    [it] = (await service.write(agent, fact)).handles
    change = CorrectRequest(scope=SCOPE, handle=it, text="region: us")
    corrected = await service.correct(CALLER, change)
    forgot = await service.forget(CALLER, ForgetRequest(scope=SCOPE, handles=(it,)))
    found = await service.past.timeline(CALLER, it, SCOPE)
    newest, oldest = found.timeline
    assert (newest.text, oldest.text) == ("region: us", "region: eu")
    assert oldest.created_by == "agent:ops"
    assert oldest.made_by is not None
    assert oldest.made_by.source == source
    assert oldest.ended_by is not None
    assert newest.made_by is not None
    assert oldest.ended_by.operation_id == newest.made_by.operation_id == corrected.operation_id
    assert newest.ended_by is not None
    assert newest.ended_by.operation_id == forgot.operation_id
    note = WriteRequest(scope=SCOPE, source=SOURCE, content="First.")
    [it] = (await service.write(agent, note)).handles
    [only] = (await service.past.timeline(CALLER, it, SCOPE)).timeline
    assert only.made_by is not None
    await service.correct(CALLER, CorrectRequest(scope=SCOPE, handle=it, text="Second."))
    entries = (await service.past.timeline(CALLER, it, SCOPE)).timeline
    assert [(one.text, one.made_by and one.made_by.principal) for one in entries] == [
        ("Second.", "user:ana"), ("First.", "agent:ops"),
    ]  # fmt: skip
    assert entries[0].valid_from == entries[1].valid_to


async def test_nothing_is_changed_in_the_past(service: MemoryService) -> None:
    fact = WriteRequest(scope=SCOPE, source=SOURCE, content="region: eu", kind="fact")
    [it] = (await service.write(CALLER, fact)).handles
    then = CALLER.at(datetime.now(UTC))
    for change in (
        service.write(then, fact),
        service.forget(then, ForgetRequest(scope=SCOPE, handles=(it,))),
        service.undo(then),
        service.analysis.seal(then, everything=True),
        service.bindings.set_target(then, "project", "web", "table"),
    ):
        with pytest.raises(Denied, match="go back to now"):
            await change
    assert not any(one.mutates for one in await service.allowed(then, SCOPE))
    assert await listed(service, "default") == {it.provider_record_id: "region: eu"}


async def test_log_context_and_history_end_at_the_moment(service: MemoryService) -> None:
    def fact(text: str) -> WriteRequest:
        return WriteRequest(
            scope=SCOPE.model_copy(update={"run_id": text}),
            source=SOURCE,
            content=f"region: {text}",
            kind="fact",
            mode=WriteMode.UPSERT,
        )

    [it] = (await service.write(CALLER, fact("eu"))).handles
    then = CALLER.at(datetime.now(UTC))
    later = await service.write(CALLER, fact("us"))
    await service.forget(CALLER, ForgetRequest(scope=SCOPE, handles=(it,)))
    told = await service.context(then, ContextRequest(scope=SCOPE))
    assert "region: eu" in told.text
    assert told.as_of == then.as_of
    history = await service.history(then, it, SCOPE)
    assert [one.after and one.after.text for one in history.changes] == ["region: eu"]
    assert [(one.text, one.valid_to) for one in history.versions] == [("region: eu", None)]
    page = await service.log.page(then, Filter(project_id="web"))
    assert [one.operation_type for one in page.operations] == ["write"]
    with pytest.raises(NotFound):
        await service.log.get(then, later.operation_id)
    assert [run.run_id for run in (await service.runs.page(then)).runs] == ["eu"]
    assert {run.run_id for run in (await service.runs.page(CALLER)).runs} == {"eu", "us"}


async def test_what_is_undone_is_that_of_the_moment(service: MemoryService) -> None:
    fact = WriteRequest(scope=SCOPE, source=SOURCE, content="region: eu", kind="fact")
    written = undo_id = (await service.write(CALLER, fact)).operation_id
    undone_by: list[tuple[datetime, str | None]] = [(datetime.now(UTC), None)]
    for is_undone in (True, False, True):
        undo_id = (await service.undo(CALLER, undo_id)).operation_id
        # Undoing a redo leaves the first undo in force.
        first = undo_id if len(undone_by) == 1 else undone_by[1][1]
        undone_by.append((datetime.now(UTC), first if is_undone else None))
        for moment, expected in undone_by:
            found = (await service.log.undone(CALLER.at(moment), [written])).get(written)
            assert (found and found.operation.operation_id) == expected


async def test_a_pin_is_that_of_the_moment(service: MemoryService) -> None:
    fact = WriteRequest(scope=SCOPE, source=SOURCE, content="region: eu", kind="fact", tags=("a",))
    [it] = (await service.write(CALLER, fact)).handles
    note = WriteRequest(scope=SCOPE, source=SOURCE, content="Written after it.")
    [later] = (await service.write(CALLER, note)).handles
    then = CALLER.at(datetime.now(UTC))
    change = CorrectRequest(scope=SCOPE, handle=it, pinned=True, tags=("b",))
    await service.correct(CALLER, change)
    record = (await service.get(then, it, SCOPE)).record
    newest = BrowseRequest(scope=SCOPE, sort="-updated_at")
    first, second = (await service.browse(then, newest)).records
    assert (first.handle, second) == (later, record)
    assert (record.pinned, record.tags) == (False, ("a",))


async def test_what_others_changed_since_is_said(service: MemoryService) -> None:
    note = WriteRequest(scope=SCOPE, source=SOURCE, content="As memtui wrote it.")
    [it] = (await service.write(CALLER, note)).handles
    moment = datetime.now(UTC)
    record = (await service.get(CALLER, it, SCOPE)).record
    assert record.location is not None
    path, later = Path(record.location.path), moment.timestamp() + 1
    path.write_text(path.read_text().replace("wrote it.", "wrote it. And by hand."))
    os.utime(path, (later, later))
    answer = await service.get(CALLER.at(moment), it, SCOPE)
    assert answer.record.text == "As memtui wrote it."
    assert "changes made outside memtui" in answer.problems[0].message
    early = CALLER.at(moment - timedelta(days=1))
    assert await listed(service, "default", early) == {}
    table = await service.browse(early, BrowseRequest(scope=SCOPE, binding_key="table"))
    assert "keeps no history" in table.problems[0].message


async def test_figures_are_of_what_had_begun_by_the_moment(service: MemoryService) -> None:
    for text in ("One", "Two"):
        await service.write(CALLER, WriteRequest(scope=SCOPE, source=SOURCE, content=text))
    first, _ = (
        await service.log.page(CALLER, Filter(operation_type=OperationType.WRITE), limit=2)
    ).operations[::-1]
    then = CALLER.at(first.started_at)
    exact = await service.analysis.stats(then)
    assert exact.operation_count == (await service.log.page(then, limit=1)).total
    later = first.started_at.date() + timedelta(days=2)
    for until in (None, later):
        painted = (await service.analysis.dashboard(then, Bucket.DAY, until=until)).stats
        assert painted.operation_count == exact.operation_count


COLOURS = ("amber", "azure", "beige", "coral", "cyan")


async def _asked(service: MemoryService, key: str, moment: datetime | None = None) -> list[object]:
    """What queries answer, best first, with everything that a record says and when it did."""
    told: list[object] = []
    for query in ("heron", "amber", "nest", "coral tagged-b"):
        request = QueryRequest(scope=SCOPE, query=query, binding_key=key, top_k=20, as_of=moment)
        answer = await service.query(CALLER, request)
        told += [
            one.model_dump(exclude={"score", "revision", "location", "handle", "metadata"})
            for one in answer.snippets
        ]
    return told


@pytest.mark.parametrize("key", ["default", "table"])
async def test_a_query_of_a_moment_is_answered_as_it_was_then(
    service: MemoryService, key: str
) -> None:
    is_note = NOTES_TOO[key]
    asked = {"scope": SCOPE, "binding_key": key}
    handles: list[RecordHandle] = []
    for number, colour in enumerate(COLOURS):
        content = f"{colour}: heron at the nest" + " by the lake" * number
        write = WriteRequest(
            content=content, source=SOURCE, kind="note" if is_note else "fact", **asked
        )
        handles += (await service.write(CALLER, write)).handles
    later = datetime.now(UTC) + timedelta(days=1)
    changes: list[dict[str, Any]] = [
        {"pinned": True}, {"tags": ("tagged-b",)}, {"expires_at": later}, {"topic": "birds"},
        {"text": "beige: coral reef"}, {"pinned": False}, {"never_expires": True},
    ] if is_note else [{"text": "beige: coral reef"}, {"text": "beige: heron again"}]  # fmt: skip
    account = []
    for number, change in enumerate(changes):
        account.append((datetime.now(UTC), await _asked(service, key)))
        it = handles[{"pinned": 4, "text": 2}.get(next(iter(change)), number % 5)]
        await service.correct(CALLER, CorrectRequest(handle=it, **change, **asked))
    account.append((datetime.now(UTC), await _asked(service, key)))
    await service.forget(CALLER, ForgetRequest(handles=tuple(handles[1:3]), **asked))
    for moment, expected in account:
        assert await _asked(service, key, moment) == expected


async def test_a_query_of_a_moment_keeps_to_the_owners_that_it_names(
    service: MemoryService,
) -> None:
    api = SCOPE.model_copy(update={"project_id": "api"})
    handles: list[RecordHandle] = []
    for scope in (SCOPE, api):
        note = WriteRequest(scope=scope, source=SOURCE, content=f"A heron of {scope.project_id}")
        handles += (await service.write(CALLER, note)).handles
    moment = datetime.now(UTC)
    for scope, it in zip((SCOPE, api), handles, strict=True):
        await service.forget(CALLER, ForgetRequest(scope=scope, handles=(it,)))
    company = Scope(company_id="local")
    request = QueryRequest(scope=company, query="heron", owners=(api,), as_of=moment)
    answer = await service.query(CALLER, request)
    assert [one.text for one in answer.snippets] == ["A heron of api"]


async def test_what_explains_a_query_of_a_moment_is_of_the_moment(service: MemoryService) -> None:
    handles: list[RecordHandle] = []
    for text in ("A heron here", "A heron there"):
        note = WriteRequest(scope=SCOPE, source=SOURCE, content=text)
        handles += (await service.write(CALLER, note)).handles
    first, second = (one.provider_record_id for one in handles)
    moment = datetime.now(UTC)
    await service.correct(CALLER, CorrectRequest(scope=SCOPE, handle=handles[0], pinned=True))
    request = QueryRequest(scope=SCOPE, query="heron")
    now = (await service.explain(CALLER, request)).explanation
    assert [one.scores for one in now.stages if one.name == "pins"] == [{first: 1.1}]
    then = (await service.explain(CALLER.at(moment), request)).explanation
    assert all(first not in one.scores for one in then.stages[:-1])
    assert then.stages[-1].scores == {first: 1.0, second: 1.0}


@pytest.mark.parametrize("few", [0, 300], ids=["put together here", "put into the provider's"])
async def test_pages_of_a_moment_go_on_where_they_ended(
    service: MemoryService, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr("memtui.service.history.as_of._FEW", few)
    monkeypatch.setattr("memtui.service.history.as_of._PAGE", 2)
    handles: list[RecordHandle] = []
    for number in range(9):
        note = WriteRequest(scope=SCOPE, source=SOURCE, content=f"Note {number}")
        handles += (await service.write(CALLER, note)).handles
    state = await listed(service, "default")
    moment = datetime.now(UTC)
    for it in handles[::2]:
        await service.forget(CALLER, ForgetRequest(scope=SCOPE, handles=(it,)))
    for sort in SORTS:
        assert await listed(service, "default", CALLER.at(moment), sort=sort) == state


async def test_moments_end_before_until_and_days_are_of_the_persons_zone(
    service: MemoryService,
) -> None:
    note = WriteRequest(scope=SCOPE, source=SOURCE, content="A note")
    [it] = (await service.write(CALLER, note)).handles
    await service.correct(CALLER, CorrectRequest(scope=SCOPE, handle=it, text="Another"))
    made, changed = (await service.past.moments(CALLER, SCOPE)).moments
    told = await service.past.moments(CALLER, SCOPE, since=made, until=changed)
    assert told.moments == (made,)
    for hours in (-12, 14):
        zone = timezone(timedelta(hours=hours))
        days = (await service.past.moments(CALLER, SCOPE, zone=zone)).days
        assert {one.day for one in days} == {
            made.astimezone(zone).date(),
            changed.astimezone(zone).date(),
        }


@pytest.mark.parametrize(
    "change",
    [
        {"text": "Other"}, {"pinned": True}, {"tags": ("a",)}, {"topic": "t"}, {"summary": "s"},
        {"expires_at": datetime(2999, 1, 1, tzinfo=UTC)},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
async def test_each_field_that_changes_is_a_difference(
    service: MemoryService, change: dict[str, object]
) -> None:
    note = WriteRequest(scope=SCOPE, source=SOURCE, content="A note")
    [it] = (await service.write(CALLER, note)).handles
    before = datetime.now(UTC)
    await service.correct(CALLER, CorrectRequest(scope=SCOPE, handle=it, **change))
    [one] = (await service.past.compare(CALLER, SCOPE, before)).differences
    assert one.kind == "changed"
