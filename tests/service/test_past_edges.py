"""The past at its edges: the moment of a change, each field, page and owner, days of a zone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from memtui.config import Paths, load_settings
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    ForgetRequest,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    SourceRef,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, open_service
from memtui.service.history import as_of
from memtui.service.history.past import ChangeKind
from memtui.store.journal import Journal
from tests.homes import furnish
from tests.service.fake import FakeAdapter

CALLER = Caller(company_id="local", principal="user:ana", channel="test")
COMPANY = Scope(company_id="local")
WEB, APP = (Scope(company_id="local", project_id=one) for one in ("web", "app"))
SOURCE = SourceRef(kind="manual_note", company_id="local")
BERLIN = ZoneInfo("Europe/Berlin")
INSTANT = timedelta(microseconds=1)
BINDINGS = ("default", "table")


class Clock:
    """Stands until it is moved."""

    now = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def service(paths: Paths, begun: Path, clock: Clock) -> AsyncIterator[MemoryService]:
    settings = load_settings(paths, principal="user:ana")
    furnish(paths, settings, begun)
    opened = await open_service(paths, settings, clock=clock)
    await opened.bindings.add(CALLER, "table", "facts", {})
    yield opened
    await opened.close()


async def write(
    service: MemoryService, text: str, scope: Scope = WEB, key: str = "table", **fields: Any
) -> RecordHandle:
    given = {"scope": scope, "source": SOURCE, "content": text, "kind": "fact", "binding_key": key}
    return (await service.write(CALLER, WriteRequest.model_validate(given | fields))).handles[0]


async def correct(
    service: MemoryService, it: RecordHandle, scope: Scope = WEB, key: str = "table", **fields: Any
) -> RecordHandle:
    asked = {"scope": scope, "handle": it, "binding_key": key}
    answer = await service.correct(CALLER, CorrectRequest.model_validate(asked | fields))
    return answer.handles[0]


async def listed(
    service: MemoryService, caller: Caller, key: str, scope: Scope = WEB, **asked: Any
) -> list[Record]:
    request = BrowseRequest(scope=scope, binding_key=key, **{"limit": 2, **asked})
    found: list[Record] = []
    for _ in range(40):
        page = await service.browse(caller, request)
        found += page.records
        if page.next_cursor is None:
            assert page.total == len(found)
            return found
        request = request.model_copy(update={"cursor": page.next_cursor})
    raise AssertionError("the pages do not end")


@pytest.mark.parametrize("key", BINDINGS)
async def test_a_change_belongs_to_its_very_moment(
    service: MemoryService, clock: Clock, key: str
) -> None:
    start = clock.now
    it = await write(service, "branch: main", key=key)
    for text in ("branch: release", "branch: trunk"):
        clock.now += timedelta(hours=1)
        it = await correct(service, it, key=key, text=text)
    clock.now += timedelta(hours=1)
    await service.forget(CALLER, ForgetRequest(scope=WEB, handles=(it,), binding_key=key))
    clock.now += timedelta(hours=1)
    said = ["", "main", "release", "trunk", ""]
    for number, before in enumerate(said[:-1]):
        moment = start + timedelta(hours=number)
        for at, value in ((moment - INSTANT, before), (moment, said[number + 1])):
            told = [one.text for one in await listed(service, CALLER.at(at), key)]
            assert told == [f"branch: {value}"] * bool(value), at
    past = service.past
    everything = await past.moments(CALLER, WEB, binding_key=key)
    assert everything.moments == tuple(start + timedelta(hours=n) for n in range(4))
    for n, moment in enumerate(everything.moments):
        for since, until, count in (
            (moment, None, 4 - n), (moment + INSTANT, None, 3 - n),
            (None, moment, n), (None, moment + INSTANT, n + 1),
            (moment, moment, 0), (moment, moment + INSTANT, 1),
        ):  # fmt: skip
            found = await past.moments(CALLER, WEB, since=since, until=until, binding_key=key)
            assert len(found.moments) == count
        then = CALLER.at(moment)
        assert len((await past.moments(then, WEB, binding_key=key)).moments) == n + 1
        if n:
            until_then = await past.compare(CALLER, WEB, moment - INSTANT, moment, binding_key=key)
            [one] = until_then.differences
            assert len(one.operations) == 1
            after = await past.compare(CALLER, WEB, moment, moment + INSTANT, binding_key=key)
            assert not after.differences


async def test_days_are_those_of_the_zone_over_a_change_of_clocks(
    service: MemoryService, clock: Clock
) -> None:
    """Berlin went from 02:00 to 03:00 on 29 March 2026, and from 03:00 to 02:00 on 25 October."""
    local = ("2026-03-28T23:59", "2026-03-29T00:00", "2026-03-29T23:59", "2026-03-30T00:00",
             "2026-10-25T00:01", "2026-10-25T23:59", "2026-10-26T00:00")  # fmt: skip
    for number, one in enumerate(local):
        clock.now = datetime.fromisoformat(one).replace(tzinfo=BERLIN).astimezone(UTC)
        await write(service, f"key{number}: 1")
    found = await service.past.moments(CALLER, WEB, zone=BERLIN, binding_key="table")
    assert {one.day: one.added for one in found.days} == {
        date(2026, 3, 28): 1, date(2026, 3, 29): 2, date(2026, 3, 30): 1,
        date(2026, 10, 25): 2, date(2026, 10, 26): 1,
    }  # fmt: skip


@pytest.mark.parametrize("few", [0, 300])
async def test_an_end_that_came_later_is_not_shown_of_the_past(
    service: MemoryService, clock: Clock, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(as_of, "_FEW", few)
    ends = clock.now + timedelta(days=9)
    window: dict[str, Any] = {"valid_from": clock.now, "valid_to": ends}
    by_hand = await write(service, "hand: kept", key="default")
    gone = [await write(service, "branch: main", key="default"),
            await write(service, "freeze: on", key="default", **window)]  # fmt: skip
    corrected = await write(service, "color: blue", key="default")
    await write(service, "sale: on", key="default", **window)
    planned = {"freeze: on": ends, "sale: on": ends}
    wanted = {
        text: planned.get(text)
        for text in ("hand: kept", "branch: main", "color: blue", "freeze: on", "sale: on")
    }
    then = CALLER.at(clock.now)

    async def check(caller: Caller) -> None:
        records = await listed(service, caller, "default")
        assert {one.text: one.valid_to for one in records} == wanted
        for one in records:
            got = await service.get(caller, one.handle, WEB)
            assert got.record.valid_to == wanted[one.text]
        asked = QueryRequest(scope=WEB, query="hand branch color freeze sale")
        found = await service.query(caller, asked)
        assert {one.text: one.valid_to for one in found.snippets} == wanted

    await check(CALLER)
    clock.now += timedelta(hours=1)
    await service.forget(CALLER, ForgetRequest(scope=WEB, handles=tuple(gone)))
    await correct(service, corrected, key="default", text="color: red")
    location = (await service.get(CALLER, by_hand, WEB)).record.location
    assert location is not None
    path = Path(location.path)
    path.write_text("".join(one for one in path.read_text().splitlines(True) if "hand" not in one))
    await service.sync(CALLER, "default")
    clock.now += timedelta(hours=1)
    assert len(await listed(service, CALLER, "default")) == 2
    await check(then)


FIELDS: list[dict[str, Any]] = [
    {"text": "branch: release"}, {"topic": "git"}, {"tags": ("a", "b")}, {"tags": ()},
    {"pinned": True}, {"expires_at": datetime(2040, 1, 1, tzinfo=UTC)}, {"never_expires": True},
]  # fmt: skip


@pytest.mark.parametrize("key", BINDINGS)
async def test_a_change_of_any_field_is_a_difference(
    service: MemoryService, clock: Clock, key: str
) -> None:
    ends = datetime(2030, 1, 1, tzinfo=UTC)
    for number, changed in enumerate(FIELDS):
        if key == "default" and "topic" in changed:
            continue  # of a vault's fact it is the heading above it
        scope = Scope(company_id="local", project_id=f"p{number}")
        it = await write(service, "branch: main", scope, key, tags=("a",), expires_at=ends)
        other = await write(service, "color: blue", scope, key)
        before = clock.now
        clock.now += timedelta(hours=1)
        await correct(service, it, scope, key, **changed)
        found = await service.past.compare(CALLER, scope, before, binding_key=key)
        [one] = found.differences
        assert (one.kind, found.same) == (ChangeKind.CHANGED, 1), changed
        assert one.before is not None
        assert one.before.handle != other
        assert (one.before.text, one.before.tags, one.before.expires_at, one.before.pinned) == (
            "branch: main", ("a",), ends, False,
        )  # fmt: skip
        [then] = [one for one in await listed(service, CALLER.at(before), key, scope)
                  if one.text.startswith("branch")]  # fmt: skip
        assert (then.topic, then.tags, then.expires_at, then.pinned) == (None, ("a",), ends, False)


@pytest.mark.parametrize("few", [0, 300])
@pytest.mark.parametrize("key", BINDINGS)
async def test_pages_of_the_past_are_those_of_then(
    service: MemoryService, clock: Clock, monkeypatch: pytest.MonkeyPatch, key: str, few: int
) -> None:
    monkeypatch.setattr(as_of, "_FEW", few)
    monkeypatch.setattr(as_of, "_PAGE", 2)
    handles = {}
    for number in range(7):
        clock.now += timedelta(minutes=1)
        kind = "note" if key == "default" and number % 3 else "fact"
        handles[number] = await write(service, f"key{number}: {'x' * number}", key=key, kind=kind)
    kept = {sort: [one.text for one in await listed(service, CALLER, key, sort=sort, limit=20)]
            for sort in ("created_at", "-size", "-updated_at")}  # fmt: skip
    then = CALLER.at(clock.now)
    clock.now += timedelta(hours=1)
    for number in (0, 1, 5):
        await correct(service, handles[number], key=key, text=f"key{number}: {'y' * (20 - number)}")
    gone = ForgetRequest(scope=WEB, handles=(handles[3], handles[6]), binding_key=key)
    await service.forget(CALLER, gone)
    await write(service, "new: one", key=key)
    for sort, texts in kept.items():
        assert [one.text for one in await listed(service, then, key, sort=sort)] == texts, sort


@pytest.mark.parametrize("key", BINDINGS)
async def test_the_past_of_some_owners_is_theirs_alone(
    service: MemoryService, clock: Clock, key: str
) -> None:
    of = {scope: await write(service, f"branch: {scope.project_id}", scope, key)
          for scope in (WEB, APP)}  # fmt: skip
    then = CALLER.at(clock.now)
    clock.now += timedelta(hours=1)
    for scope, it in of.items():
        await correct(service, it, scope, key, text="branch: nothing")
    for owners in ((WEB,), (APP,), (WEB, APP), ()):
        wanted = sorted(f"branch: {one.project_id}" for one in owners or (WEB, APP))
        asked = {"scope": COMPANY, "owners": owners, "binding_key": key}
        found = await service.query(then, QueryRequest(query="branch", **asked))
        assert sorted(one.text for one in found.snippets) == wanted
        page = await service.browse(then, BrowseRequest(**asked))
        assert sorted(one.text for one in page.records) == wanted


async def test_an_undo_counts_from_its_very_moment(service: MemoryService, clock: Clock) -> None:
    asked = WriteRequest(scope=WEB, source=SOURCE, content="branch: main", kind="fact")
    written = (await service.write(CALLER, asked)).operation_id
    clock.now += timedelta(hours=1)
    undo = (await service.undo(CALLER, written)).operation_id
    for moment, by in ((clock.now - INSTANT, None), (clock.now, undo), (clock.now + INSTANT, undo)):
        found = (await service.log.undone(CALLER.at(moment), [written])).get(written)
        assert (found and found.operation.operation_id) == by


async def test_only_another_text_ends_a_facts_window(service: MemoryService, clock: Clock) -> None:
    start, it = clock.now, await write(service, "branch: main")
    ends = datetime(2040, 1, 1, tzinfo=UTC)
    for changed in (
        {"pinned": True}, {"tags": ("a",)}, {"expires_at": ends}, {"topic": "git"},
        {"text": "branch: trunk"}, {"pinned": False}, {"text": "branch: main"},
    ):  # fmt: skip
        clock.now += timedelta(hours=1)
        it = await correct(service, it, **changed)
    hours = [start + timedelta(hours=n) for n in (0, 5, 7)]
    windows = [("branch: main", *hours[:2]), ("branch: trunk", *hours[1:])]
    for until, count in ((None, 2), (hours[2], 2), (hours[2] - INSTANT, 1), (hours[1], 1),
                         (hours[1] - INSTANT, 0)):  # fmt: skip
        found = await service.runtime.ask_journal("local", Journal.earlier_facts, "table", until)
        told = [(one.text, one.valid_from, one.valid_to) for one in found]
        assert told == windows[:count]


async def test_a_timeline_has_every_text_what_made_it_and_what_ended_it(
    paths: Paths, begun: Path, clock: Clock, fake: type[FakeAdapter]
) -> None:
    settings = load_settings(paths, principal="user:ana")
    furnish(paths, settings, begun)
    service = await open_service(paths, settings, clock=clock, providers={"fake": FakeAdapter})
    await service.bindings.add(CALLER, "fake", "fake", {})
    hours = [clock.now + timedelta(hours=n) for n in range(9)]

    def held(**fields: Any) -> None:
        records = fake.records["local/fake"]
        records[it.provider_record_id] = records[it.provider_record_id].model_copy(update=fields)

    try:
        it = await write(service, "a", key="fake", created_by="user:eve")
        held(created_at=hours[0])
        for number, text in ((1, "b"), (3, None), (4, "d")):
            if number == 3:
                held(text="c", updated_at=hours[2])  # by other hands
            clock.now = hours[number]
            given = {"tags": ("x",)} if text is None else {"text": text}
            await correct(service, it, key="fake", **given)
        clock.now = hours[5]
        gone = ForgetRequest(scope=WEB, handles=(it,), binding_key="fake")
        forgot = await service.forget(CALLER, gone)
        clock.now = hours[6]
        await service.undo(CALLER, forgot.operation_id)
        clock.now = hours[7]
        found = await service.past.timeline(CALLER, it, WEB, binding_key="fake")
        told = [
            (one.text, one.valid_from, one.valid_to, one.made_by and one.made_by.operation_type,
             one.ended_by and one.ended_by.operation_type)
            for one in found.timeline
        ]  # fmt: skip
        assert told == [
            ("d", hours[6], None, "undo", None), ("d", hours[4], hours[5], "correct", "forget"),
            ("c", hours[2], hours[4], None, "correct"), ("b", hours[1], hours[2], "correct", None),
            ("a", hours[0], hours[1], "write", "correct"),
        ]  # fmt: skip
        assert [one.created_by for one in found.timeline] == [
            "user:ana", "user:ana", None, "user:ana", "user:ana",
        ]  # fmt: skip
        for number, texts in ((4, "dcba"), (3, "cba"), (1, "ba"), (0, "a")):
            then = CALLER.at(hours[number] + INSTANT)
            found = await service.past.timeline(then, it, WEB, binding_key="fake")
            assert "".join(one.text for one in found.timeline) == texts
    finally:
        await service.close()
