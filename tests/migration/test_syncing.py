"""Two bindings are kept in sync, both ways, and nothing of either is lost."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from memtui.backends.vault import VaultAdapter
from memtui.config import Paths, find_paths, load_settings
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Denied,
    ForgetRequest,
    Invalid,
    NotFound,
    Problem,
    Record,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteRequest,
)
from memtui.migration.endpoints import Endpoints, open_endpoints
from memtui.migration.syncing import Synced, resolve, sync
from memtui.service import Caller, Membership, MemoryService, Role, open_service
from memtui.service.home.survey import PurgeRequest

COMPANY = Scope(company_id="local")
WEB = Scope(company_id="local", project_id="web")
CALLER = Caller(company_id="local", principal="user:ana", channel="test")
NUMBER = 12
SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")


class Pair:
    """A vault and another binding, and what a person does in them."""

    def __init__(
        self, service: MemoryService, caller: Caller, paths: Paths, ends: Endpoints
    ) -> None:
        self.service, self.caller, self.data, self.ends = service, caller, paths.data, ends
        self.keys = (ends.source.key, ends.destination.key)

    async def sync(self, **how: object) -> Synced:
        return await sync(self.ends, self.data, **how)  # type: ignore[arg-type]

    async def write(
        self, side: int, text: str, *, fact: bool = False, scope: Scope = WEB
    ) -> Record:
        answer = await self.service.write(
            self.caller,
            WriteRequest(
                scope=scope, source=SOURCE, content=text, binding_key=self.keys[side],
                kind="fact" if fact else "note",
            ),
        )  # fmt: skip
        return answer.records[0]

    async def edit(self, side: int, record: Record, text: str) -> None:
        request = CorrectRequest(
            scope=record.scope, handle=record.handle, text=text, binding_key=self.keys[side]
        )
        await self.service.correct(self.caller, request)

    async def forget(self, side: int, *records: Record) -> None:
        handles = tuple(one.handle for one in records)
        request = ForgetRequest(scope=COMPANY, handles=handles, binding_key=self.keys[side])
        await self.service.forget(self.caller, request)

    async def records(self, side: int) -> list[Record]:
        asked = BrowseRequest(scope=COMPANY, binding_key=self.keys[side], sort="created_at")
        return [
            one async for page in self.service.pages(self.caller, asked) for one in page.records
        ]

    async def texts(self, side: int) -> Counter[tuple[str | None, str, str]]:
        records = await self.records(side)
        return Counter((one.scope.project_id, one.kind, one.text) for one in records)

    async def one(self, side: int, text: str) -> Record:
        [found] = [one for one in await self.records(side) if one.text == text]
        return found

    async def is_even(self) -> bool:
        return await self.texts(0) == await self.texts(1)


@asynccontextmanager
async def opened(paths: Paths) -> AsyncIterator[Pair]:
    service = await open_service(paths, load_settings(paths, principal=CALLER.principal))
    try:
        if "other" not in {one.key for one in await service.bindings.all(CALLER)}:
            await service.bindings.add(CALLER, "other", "milvus", {})
        yield Pair(
            service, CALLER, paths, await open_endpoints(service, CALLER, "default", "other")
        )
    finally:
        await service.close()


@pytest.fixture(scope="module")
def in_sync(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    """A home, to be copied, whose two bindings hold the same facts and notes."""
    paths = find_paths(tmp_path_factory.mktemp("in_sync"))
    paths.create()
    shutil.copy(empty_database, paths.database)

    async def fill() -> None:
        async with opened(paths) as pair:
            for place in range(NUMBER):
                await pair.write(place % 2, f"The note {place} tells of something.")
                await pair.write(place % 2, f"key_{place}: value {place}", fact=True)
            assert (await pair.sync()).is_whole

    asyncio.run(fill())
    return paths.data


@pytest.fixture
async def pair(in_sync: Path, new_paths: Paths) -> AsyncIterator[Pair]:
    shutil.copytree(in_sync, new_paths.data)
    async with opened(new_paths) as pair:
        yield pair


async def test_what_changed_on_one_side_goes_to_the_other(pair: Pair):
    assert await pair.is_even()
    assert sum((await pair.texts(0)).values()) == 2 * NUMBER
    await pair.edit(0, await pair.one(0, "key_3: value 3"), "key_3: by the vault")
    await pair.edit(1, await pair.one(1, "key_4: value 4"), "key_4: by the other")
    await pair.edit(1, await pair.one(1, "The note 5 tells of something."), "Note 5, edited.")
    await pair.forget(1, await pair.one(1, "The note 6 tells of something."))
    await pair.forget(0, await pair.one(0, "key_7: value 7"))
    await pair.write(0, "new: in the vault", fact=True)
    done = await pair.sync()
    assert done.is_whole
    assert done.changed == {"default": 2, "other": 1}
    assert done.deleted == {"default": 1, "other": 1}
    assert await pair.is_even()
    said = await pair.texts(0)
    assert ("web", "fact", "key_4: by the other") in said
    assert ("web", "fact", "key_7: value 7") not in said
    again = await pair.sync()
    assert (again.in_sync, again.written, again.changed) == (2 * NUMBER - 1, {}, {})


async def test_what_changed_on_both_sides_is_told_and_kept(pair: Pair):
    await pair.edit(0, await pair.one(0, "key_3: value 3"), "key_3: mine")
    await pair.edit(1, await pair.one(1, "key_3: value 3"), "key_3: yours")
    await pair.forget(0, await pair.one(0, "key_4: value 4"))
    await pair.edit(1, await pair.one(1, "key_4: value 4"), "key_4: still needed")
    done = await pair.sync()
    assert sorted(one.what for one in done.conflicts) == [
        "changed on both sides", "removed on the left, changed on the right",
    ]  # fmt: skip
    assert ("web", "fact", "key_3: mine") in await pair.texts(0)
    assert ("web", "fact", "key_3: yours") in await pair.texts(1)
    mine = await pair.one(0, "key_3: mine")
    await resolve(pair.ends, pair.data, mine.handle.provider_record_id, "other")
    kept = await pair.one(1, "key_4: still needed")
    await resolve(pair.ends, pair.data, kept.handle.provider_record_id, "other")
    assert await pair.is_even()
    assert ("web", "fact", "key_3: yours") in await pair.texts(0)
    assert (await pair.sync()).is_whole

    both = [await pair.one(side, "The note 5 tells of something.") for side in (0, 1)]
    facts = [await pair.one(side, "key_6: value 6") for side in (0, 1)]
    for side, said in enumerate(("mine", "yours")):
        await pair.edit(side, both[side], f"Note 5, {said}.")
        await pair.edit(side, facts[side], f"key_6: {said}")
    gone = await pair.one(1, "key_7: value 7")
    await pair.forget(1, gone)
    await pair.edit(0, await pair.one(0, "key_7: value 7"), "key_7: still needed")
    assert len((await pair.sync()).conflicts) == 3
    await resolve(pair.ends, pair.data, both[0].handle.provider_record_id, "both")
    for side in (0, 1):
        there = await pair.texts(side)
        assert ("web", "note", "Note 5, mine.") in there
        assert ("web", "note", "Note 5, yours.") in there
    for one, why in ((facts[0], "one value"), (gone, "no longer has the record")):
        with pytest.raises(Invalid, match=why):
            await resolve(pair.ends, pair.data, one.handle.provider_record_id, "both")
        await resolve(pair.ends, pair.data, one.handle.provider_record_id, "default")
    name = gone.handle.provider_record_id
    versions = (await pair.service.pairs.versions(pair.caller, "other"))[name]
    assert [one.text for one in versions] == ["key_7: value 7", "key_7: still needed"]
    assert (await pair.sync()).is_whole
    with pytest.raises(NotFound, match="no conflict"):
        await resolve(pair.ends, pair.data, "nothing", "other")


async def test_a_twentieth_may_be_deleted_without_a_yes(pair: Pair):
    notes = [one for one in await pair.records(1) if one.kind == "note"]
    for side in (0, 1):
        texts = {one.text for one in notes[:4]}
        await pair.forget(side, *[one for one in await pair.records(side) if one.text in texts])
    assert (await pair.sync()).is_whole
    await pair.forget(1, await pair.one(1, notes[4].text))
    assert (await pair.sync()).deleted == {"default": 1}, "one of twenty is not more than 5%"
    await pair.forget(1, await pair.one(1, notes[5].text))
    [held] = (await pair.sync()).held_back
    assert "1 of 19 records are gone" in held.reason


async def test_records_that_differ_in_one_field_alone_are_two(pair: Pair):
    fields: dict[str, tuple[object, object]] = {
        "title": ("One", "Two"), "topic": ("one", "two"), "tags": (("one",), ("one", "two")),
        "kind": ("note", "guidance"), "scope": (WEB, COMPANY),
    }  # fmt: skip
    for name, values in fields.items():
        for side, value in enumerate(values):
            given = {"scope": WEB, "source": SOURCE, "content": f"The same but for {name}.",
                     "binding_key": pair.keys[side], name: value}  # fmt: skip
            await pair.service.write(pair.caller, WriteRequest.model_validate(given))
    done = await pair.sync()
    assert done.written == dict.fromkeys(pair.keys, len(fields))
    for side in (0, 1):
        for name, values in fields.items():
            found = [getattr(one, name) for one in await pair.records(side)
                     if one.text == f"The same but for {name}."]  # fmt: skip
            assert sorted(map(str, found)) == sorted(map(str, values))
    assert (await pair.sync()).in_sync == 2 * NUMBER + 2 * len(fields)


async def test_many_deletions_wait_for_a_yes(pair: Pair):
    doomed = [one for one in await pair.records(1) if one.kind == "note"][:10]
    await pair.forget(1, *doomed)
    done = await pair.sync()
    [held] = done.held_back
    assert (held.key, len(held.record_ids)) == ("default", 10)
    assert "more than 5%" in held.reason
    assert len(await pair.records(0)) == 2 * NUMBER
    with pytest.raises(Invalid, match="held back is 10, not 9"):
        await pair.sync(delete=9)
    assert (await pair.sync(delete=10)).deleted == {"default": 10}
    assert await pair.is_even()


async def test_of_an_empty_side_nothing_is_deleted(pair: Pair):
    await pair.forget(1, *await pair.records(1))
    [held] = (await pair.sync()).held_back
    assert "has no records of web any more" in held.reason
    assert len(await pair.records(0)) == 2 * NUMBER
    done = await pair.sync(rebuild=True)
    assert (done.written, done.deleted) == ({"other": 2 * NUMBER}, {})
    assert await pair.is_even()


async def test_a_rebuild_deletes_nothing(pair: Pair):
    await pair.forget(0, await pair.one(0, "The note 6 tells of something."))
    [held] = (await pair.sync(rebuild=True)).held_back
    assert (held.key, held.reason) == ("other", "A rebuild deletes nothing.")
    assert len(await pair.records(1)) == 2 * NUMBER


UNREADABLE = "---\nsubject_id: [half, written\n---\n\nCut of"
"""It may be somebody's own, so it is no record."""


@pytest.mark.parametrize("others", [0, 25])
async def test_what_cannot_be_read_is_not_deleted(pair: Pair, others: int):
    note = await pair.one(0, "The note 6 tells of something.")
    assert note.location is not None
    file = Path(note.location.path)
    for number in range(others):
        file.with_name(f"0-broken-{number}.md").write_text(UNREADABLE)
    file.write_text(UNREADABLE)
    await pair.service.sync(pair.caller, pair.keys[0])
    assert len(await pair.records(0)) == 2 * NUMBER - 1
    [held] = (await pair.sync()).held_back
    assert "may still exist, but cannot be read" in held.reason
    assert len(await pair.records(1)) == 2 * NUMBER


@pytest.mark.parametrize("content", ["---\ntags: [half, written\n", "---\na: [b\n---\n\nCut of"])
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_what_cannot_be_read_whole_changes_nothing(
    pair: Pair, content: str, *, elsewhere: bool
):
    note = await pair.one(0, "The note 6 tells of something.")
    assert note.location is not None
    Path(note.location.path).write_text(content)
    if elsewhere:
        other = await pair.one(1, note.text)
        await pair.edit(1, other, "The note 6 tells of something else.")
    await pair.service.sync(pair.caller, pair.keys[0])
    before = await pair.texts(1)
    for dry_run in (True, False):
        done = await pair.sync(dry_run=dry_run)
        assert not done.is_whole
        assert (done.changed, done.written, done.deleted) == ({}, {}, {})
        assert bool(done.conflicts) is elsewhere
        assert [one.record_id for one in done.failures] == (
            [] if elsewhere else [note.handle.provider_record_id]
        )
    assert await pair.texts(1) == before
    assert Path(note.location.path).read_text() == content


async def test_nothing_is_deleted_where_it_is_not_known_what_cannot_be_read(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    async def unknown(self: VaultAdapter, scope: Scope) -> Sequence[Problem]:
        raise Unavailable("The folder is gone.")

    await pair.forget(0, await pair.one(0, "The note 6 tells of something."))
    monkeypatch.setattr(VaultAdapter, "problems", unknown)
    with pytest.raises(Unavailable, match="The folder is gone"):
        await pair.sync()
    assert len(await pair.records(1)) == 2 * NUMBER


async def test_bytes_that_are_not_utf8_are_named_and_not_carried_over(pair: Pair):
    record = await pair.write(0, "Caf\N{REPLACEMENT CHARACTER} opens at nine.")
    assert record.location is not None
    file = Path(record.location.path)
    file.write_bytes(file.read_bytes().replace("\N{REPLACEMENT CHARACTER}".encode(), b"\xe9"))
    await pair.service.sync(pair.caller, pair.keys[0])
    for dry_run in (True, False):
        done = await pair.sync(dry_run=dry_run)
        assert (done.is_whole, done.written) == (False, {})
        [failure] = done.failures
        assert failure.record_id == record.handle.provider_record_id
        assert "not UTF-8" in failure.reason
    assert len(await pair.records(1)) == 2 * NUMBER


async def test_files_that_were_renamed_are_the_same_records(pair: Pair):
    notes = [one for one in await pair.records(0) if one.kind == "note"]
    for one in notes:
        assert one.location is not None
        file = Path(one.location.path)
        file.rename(file.with_name(f"other-{file.name}"))
    moved = {one.handle.provider_record_id for one in notes}
    while moved & {one.handle.provider_record_id for one in await pair.records(0)}:
        await asyncio.sleep(0.05)
    done = await pair.sync()
    assert (done.is_whole, done.written, done.deleted) == (True, {}, {})
    assert await pair.is_even()
    assert len(await pair.records(1)) == 2 * NUMBER
    assert (await pair.sync()).in_sync == 2 * NUMBER


async def test_other_fields_changed_on_both_sides_are_told(pair: Pair):
    text = "The note 1 tells of something."
    for side, change in ((0, {"pinned": True}), (1, {"summary": "of something"})):
        one = await pair.one(side, text)
        request = CorrectRequest.model_validate(
            {"scope": WEB, "handle": one.handle, "binding_key": pair.keys[side], **change}
        )
        await pair.service.correct(pair.caller, request)
    assert [one.what for one in (await pair.sync()).conflicts] == ["changed on both sides"]


@pytest.mark.parametrize(
    "change",
    [
        {"expires_at": datetime(2031, 1, 2, tzinfo=UTC)},
        {"pinned": True},
        {"tags": ("heron",)},
        {"topic": "heron"},
        {"summary": "of something"},
    ],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.parametrize("side", [0, 1])
async def test_each_field_that_changed_alone_goes_to_the_other(
    pair: Pair, side: int, change: dict[str, object]
):
    text = "The note 1 tells of something."
    one = await pair.one(side, text)
    request = CorrectRequest.model_validate(
        {"scope": WEB, "handle": one.handle, "binding_key": pair.keys[side], **change}
    )
    await pair.service.correct(pair.caller, request)
    assert (await pair.sync()).is_whole
    [name] = change
    assert getattr(await pair.one(1 - side, text), name) == change[name]
    cleared: dict[str, dict[str, object]] = {
        "expires_at": {"never_expires": True}, "pinned": {"pinned": False}, "tags": {"tags": ()},
        "summary": {"summary": ""}, "topic": {"topic": "zoo"},
    }  # fmt: skip
    one = await pair.one(side, text)
    request = CorrectRequest.model_validate(
        {"scope": WEB, "handle": one.handle, "binding_key": pair.keys[side], **cleared[name]}
    )
    await pair.service.correct(pair.caller, request)
    done = await pair.sync()
    assert (done.is_whole, done.changed) == (True, {pair.keys[1 - side]: 1})
    assert getattr(await pair.one(1 - side, text), name) in (None, (), False, "zoo")
    assert (await pair.sync()).in_sync == 2 * NUMBER


async def test_who_does_not_see_a_record_leaves_its_pair_alone(pair: Pair):
    own = Scope(company_id="local", subject_id="ana")
    await pair.write(0, "Hers alone.", scope=own)
    await pair.sync()
    for name in ("ana", "bob"):
        member = Membership(principal=f"user:{name}", subject_id=name, role=Role.OWNER)
        await pair.service.members.set(pair.caller, member)
    bob = pair.caller.model_copy(update={"principal": "user:bob"})
    ends = await open_endpoints(pair.service, bob, "default", "other")
    assert (await sync(ends, pair.data)).records == (2 * NUMBER, 2 * NUMBER)
    await pair.edit(0, await pair.one(0, "Hers alone."), "Hers alone, edited.")
    assert (await pair.sync()).changed == {"other": 1}
    assert await pair.one(1, "Hers alone, edited.")


async def test_a_dry_run_and_the_past_change_nothing(pair: Pair):
    then = pair.caller.at(datetime.now(UTC))
    await pair.write(0, "more: to come", fact=True)
    before = [await pair.texts(0), await pair.texts(1)]
    done = await pair.sync(dry_run=True)
    assert done.written == {"other": 1}
    ends = await open_endpoints(pair.service, then, "default", "other")
    with pytest.raises(Denied, match="go back to now"):
        await sync(ends, pair.data)
    assert [await pair.texts(0), await pair.texts(1)] == before


async def test_random_edits_on_both_sides_end_in_step(pair: Pair):
    chance = random.Random(5)
    for turn in range(2):
        touched: set[str] = set()
        for number in range(12):
            side = chance.randrange(2)
            records = [one for one in await pair.records(side) if one.text not in touched]
            what = chance.choice(["write", "edit", "edit", "forget"])
            if what == "write":
                await pair.write(side, f"turn_{turn}_{number}: {side}", fact=chance.random() < 0.5)
                continue
            one = chance.choice(records)
            touched.add(one.text)
            if what == "edit":
                text = f"{one.text.partition(':')[0]}: {turn} {number}"
                touched.add(text)
                await pair.edit(side, one, text)
            else:
                await pair.forget(side, one)
        done = await pair.sync()
        if done.held_back:
            done = await pair.sync(delete=sum(len(one.record_ids) for one in done.held_back))
        assert not done.conflicts
        assert not done.failures
        assert await pair.is_even()


async def test_an_older_version_is_kept_where_a_person_says_so(pair: Pair):
    await pair.edit(0, await pair.one(0, "key_0: value 0"), "key_0: older")
    await pair.edit(1, await pair.one(1, "key_0: value 0"), "key_0: younger")
    kept = await pair.one(0, "key_0: older")
    done = await resolve(pair.ends, pair.data, kept.handle.provider_record_id, "default")
    assert not done.failures
    assert await pair.is_even()
    assert ("web", "fact", "key_0: older") in await pair.texts(1)
    assert (await pair.sync()).is_whole


async def test_each_value_between_two_syncs_is_followed(pair: Pair):
    for older, newer in pairwise(("value 1", "release", "trunk")):
        await pair.edit(0, await pair.one(0, f"key_1: {older}"), f"key_1: {newer}")
    done = await pair.sync()
    assert (done.changed, done.failures) == ({"other": 1}, ())
    versions = await pair.service.pairs.versions(pair.caller, "other")
    [found] = [own for own in versions.values() if own[0].text == "key_1: value 1"]
    assert [one.text for one in found] == ["key_1: value 1", "key_1: release", "key_1: trunk"]
    windows = [(one.valid_from, one.valid_to) for one in found]
    assert all(until == begin for (_, until), (begin, _) in pairwise(windows))


async def test_what_is_purged_on_one_side_does_not_come_back(pair: Pair) -> None:
    gone = await pair.one(1, "The note 5 tells of something.")
    await pair.forget(1, gone)
    request = PurgeRequest(record_id=gone.handle.provider_record_id, binding_key="other")
    await pair.service.purging.apply(pair.caller, request)
    done = await pair.sync()
    assert (done.deleted, done.written, done.held_back) == ({"default": 1}, {}, ())
    assert await pair.is_even()


async def test_deciding_a_conflict_lets_no_deletion_pass(pair: Pair) -> None:
    """What holds deletions back after one conflict was decided is what held them before."""
    await pair.edit(0, await pair.one(0, "key_3: value 3"), "key_3: mine")
    await pair.edit(1, await pair.one(1, "key_3: value 3"), "key_3: yours")
    state, pairs = await pair.service.pairs.of(pair.caller, *pair.keys)
    other = dict.fromkeys(state.made, "another collection")
    await pair.service.pairs.note(pair.caller, state.model_copy(update={"made": other}))
    mine = (await pair.one(0, "key_3: mine")).handle.provider_record_id
    await resolve(pair.ends, pair.data, mine, "default")
    assert (await pair.service.pairs.of(pair.caller, *pair.keys))[0].made == other
    await pair.forget(1, await pair.one(1, "key_4: value 4"))
    [held] = (await pair.sync()).held_back
    assert "recreated" in held.reason
    calm = next(one for one in pairs if one.ids[0] != mine)
    with pytest.raises(NotFound, match="no conflict"):
        await resolve(pair.ends, pair.data, calm.ids[0], "other")


async def test_equal_facts_are_one_whatever_the_tags_of_their_file(pair: Pair) -> None:
    file = pair.data / "bindings/local/default/vault/projects/api/facts.md"
    file.parent.mkdir(parents=True)
    file.write_text(
        "---\ntags: [facts, auto-updated]\n---\n# Project Facts\n\n## Project\n\n"
        "- tech_stack: [Python 3.12, Pygame]\n- deploy_branch: main\n- Never on Fridays\n"
    )
    api = Scope(company_id="local", project_id="api")
    for text in ('tech_stack: ["Python 3.12", "Pygame"]', "deploy_branch: x", "Never on Fridays"):
        request = WriteRequest(
            scope=api, source=SOURCE, content=text, binding_key="other", kind="fact",
            topic="project", tags=("theirs",) if text.startswith("tech") else (),
        )  # fmt: skip
        await pair.service.write(pair.caller, request)
    done = await pair.sync()
    [conflict] = done.conflicts
    assert conflict.what == "the same key with another value"
    assert [one.text for one in conflict.records if one] == [
        "deploy_branch: main", "deploy_branch: x",
    ]  # fmt: skip
    for side, records in enumerate([await pair.records(0), await pair.records(1)]):
        tags = {one.text: set(one.tags) for one in records if one.scope.project_id == "api"}
        [stack] = [found for text, found in tags.items() if text.startswith("tech_stack")]
        assert stack == {"facts", "auto-updated", "theirs"}, side
        assert tags["Never on Fridays"] == {"facts", "auto-updated"}
        assert len(tags) == 3
    again = await pair.sync()
    assert (again.written, again.changed, len(again.conflicts)) == ({}, {}, 1)
