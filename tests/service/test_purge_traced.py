"""Purge what a run or a document wrote, with all that came of it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from memtui.config import Paths, find_paths, load_settings
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Denied,
    Filter,
    ForgetRequest,
    Invalid,
    NotFound,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
)
from memtui.service import MemoryService, open_service
from memtui.service.answers import ReviewRule, RuleAction, RuleTest
from memtui.service.history.traces import Certainty, Unknown
from memtui.service.home.survey import PurgeRequest, Reached
from memtui.service.visibility import Membership, Role
from tests.processes import killed_by_itself
from tests.service.fake import FakeAdapter
from tests.service.purger import purge_and_die
from tests.service.test_erased_whole import words_in
from tests.service.test_traces import FORUM, PERSON, POISON, agent, chain, give, write

COMPANY = Scope(company_id="local")
RUN = PurgeRequest(run_id="run-1", forget=True)
DOCUMENT = PurgeRequest(source=FORUM, forget=True)


class Summing(FakeAdapter):
    """It makes a summary of each record, which only it changes."""

    key = "summing"

    lost: ClassVar[set[str]] = set()
    """Ids that cannot be looked up."""

    def made_of(self, record: Record, source: Record) -> bool:
        return source.handle.provider_record_id in record.metadata.get("sources", ())

    async def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        if gone := self.lost.intersection(one.provider_record_id for one in handles):
            raise NotFound(f"There is no {gone}.")
        return await super().snapshot(handles, scope)


@pytest.fixture
async def service(paths: Paths) -> AsyncIterator[MemoryService]:
    FakeAdapter.reset()
    settings = load_settings(paths, principal="user:ana")
    opened = await open_service(paths, settings, providers={"summing": Summing})
    yield opened
    await opened.close()
    FakeAdapter.reset()


async def texts(service: MemoryService) -> set[str]:
    """Return the first word of each memory that is stored."""
    found: set[str] = set()
    for key in ("default", "other"):
        request = BrowseRequest(scope=COMPANY, binding_key=key)
        found |= {one.text.split()[0] for one in (await service.browse(PERSON, request)).records}
    return found


async def test_a_run_goes_with_what_came_of_it_in_every_binding(
    service: MemoryService, paths: Paths
) -> None:
    await chain(service)
    await service.analysis.seal(PERSON, everything=True)
    before = await texts(service)
    plan = await service.purging.plan(PERSON, RUN)
    assert plan.reached == (
        Reached(binding_key="default", written=2, came_of_it=0, derived=0, stay=0),
        Reached(binding_key="other", written=0, came_of_it=1, derived=0, stay=0),
    )
    assert {one.text.split()[0] for one in plan.living} == {"Learned:", "Owls", "Checklist"}
    assert plan.unknown
    assert await texts(service) == before
    done = await service.purging.apply(PERSON, RUN)
    assert (done.left, done.forgotten, done.reached) == ((), 3, plan.reached)
    assert await texts(service) == before - {"Learned:", "Owls", "Checklist"}
    said = words_in(paths.data)
    for gone in (f"Learned: {POISON.upper()}", "Owls were counted", "duplicate the signing keys"):
        assert gone not in said
    assert f"Forum: {POISON}" in said
    assert (await service.analysis.verify_chain(PERSON)).problem is None
    assert (await service.analysis.verify_archive(PERSON)).problems == ()
    again = await service.purging.plan(PERSON, RUN)
    assert (again.copies, again.reached) == ((), ())


@pytest.mark.parametrize(
    ("least", "gone"),
    [(Certainty.RETURNED, set()), (Certainty.SAME_RUN, {"Owls", "Mirrored"})],
)
async def test_a_document_goes_with_what_came_of_it_as_certainly_as_it_has_to(
    service: MemoryService, paths: Paths, least: Certainty, gone: set[str]
) -> None:
    await chain(service)
    before = await texts(service)
    request = DOCUMENT.model_copy(update={"through": least})
    done = await service.purging.apply(PERSON, request)
    assert done.left == ()
    assert await texts(service) == before - {"Forum:", "Learned:", "Checklist", *gone}
    said = words_in(paths.data).lower()
    assert POISON.lower() not in said
    assert POISON.replace("copy", "duplicate").lower() not in said
    assert "forum.example" not in said
    with pytest.raises(NotFound, match="no such document"):
        await service.purging.apply(PERSON, request)


async def test_what_was_corrected_stays_and_its_old_text_goes(
    service: MemoryService, paths: Paths
) -> None:
    handle = await write(service, agent("run-1"), "The quince grows behind the old observatory.")
    change = CorrectRequest(scope=COMPANY, handle=handle, text="The pear grows beside the bridge.")
    await service.correct(PERSON, change)
    done = await service.purging.apply(PERSON, RUN)
    assert (done.left, done.forgotten) == ((), 0)
    [living] = done.living
    assert living.stays == "it says something else now"
    assert done.reached[0].stay == 1
    said = words_in(paths.data)
    assert "quince grows" not in said
    assert "The pear grows beside the bridge." in said


async def test_what_a_run_only_tagged_is_not_of_its_making(service: MemoryService) -> None:
    quince = "The quince grows behind the old observatory and is watered on each Monday morning."
    handle = await write(service, PERSON, quince)
    tags = CorrectRequest(scope=COMPANY, handle=handle, tags=("tree",))
    await service.correct(agent("run-1"), tags)
    await give(service, agent("run-2"), "quince observatory")
    await write(service, agent("run-2"), f"Noted: {quince}")
    await write(service, agent("run-1"), "The pear grows beside the bridge.")
    done = await service.purging.apply(PERSON, RUN)
    assert done.reached == (
        Reached(binding_key="default", written=1, came_of_it=0, derived=0, stay=0),
    )
    request = BrowseRequest(scope=COMPANY, binding_key="default")
    left = (await service.browse(PERSON, request)).records
    assert {one.text for one in left} == {quince, f"Noted: {quince}"}


async def test_what_a_run_asked_and_what_waits_of_it_goes(
    service: MemoryService, paths: Paths
) -> None:
    harbour = await write(service, PERSON, "The harbour opens at six in the morning.")
    await give(service, agent("run-1"), "harbour opens before zirconium")
    await service.review.add_rule(
        PERSON, "default", ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    )
    with pytest.raises(IndexError):  # it waits, so it has no handle
        await write(service, agent("run-1"), "A held sentence about marmalade and owls.")
    asked = CorrectRequest(scope=COMPANY, handle=harbour, text="It opens for treacle at noon.")
    await service.correct(agent("run-1"), asked)
    await service.correct(agent("run-2"), asked.model_copy(update={"text": "It opens at five."}))
    assert len(await service.review.waiting(PERSON)) == 3
    done = await service.purging.apply(PERSON, RUN)
    assert done.left == ()
    assert [one.text for one in await service.review.waiting(PERSON)] == ["It opens at five."]
    said = words_in(paths.data)
    assert [word for word in ("zirconium", "marmalade", "treacle") if word in said] == []
    assert "The harbour opens at six" in said


async def test_what_waits_of_a_document_goes(service: MemoryService) -> None:
    await write(service, agent("run-1"), "The harbour opens at six in the morning.", ref=FORUM)
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    await service.review.add_rule(PERSON, "default", rule)
    for ref, text in ((FORUM, "Marmalade is orange."), (f"{FORUM}/2", "Treacle is black.")):
        with pytest.raises(IndexError):  # it waits, so it has no handle
            await write(service, agent("run-2"), text, ref=ref)
    assert (await service.purging.apply(PERSON, DOCUMENT)).left == ()
    assert [one.text for one in await service.review.waiting(PERSON)] == ["Treacle is black."]


async def test_of_a_disabled_binding_nothing_counts_as_gone(service: MemoryService) -> None:
    await chain(service)
    await service.bindings.update(PERSON, "other", enabled=False)
    done = await service.purging.apply(PERSON, RUN)
    assert any("other is disabled" in one for one in done.beyond)
    await service.bindings.update(PERSON, "other", enabled=True)
    chosen = Filter(binding_key="other", operation_type="write")
    [written] = (await service.log.page(PERSON, chosen)).operations
    assert written.handles[0].provider_record_id
    assert "Checklist" in await texts(service)


async def test_a_binding_that_may_not_change_keeps_its_records_and_is_counted(
    service: MemoryService,
) -> None:
    await chain(service)
    await service.bindings.update(PERSON, "other", read_only=True)
    done = await service.purging.apply(PERSON, RUN)
    assert (done.left, done.forgotten) == ((), 2)
    assert [one.stays for one in done.living] == ["its binding is read-only"]
    assert [one.stay for one in done.reached] == [0, 1]
    assert any("other is read-only" in one for one in done.beyond)
    assert "Checklist" in await texts(service)


async def test_only_the_companys_owners_purge_a_run_and_hidden_records_are_counted(
    service: MemoryService,
) -> None:
    bea = Scope(company_id="local", subject_id="bea")
    await write(service, agent("run-1"), "A note for everybody about the blue door.")
    await write(service, agent("run-1"), "Only bea knows about the red door.", scope=bea)
    await service.members.set(PERSON, Membership(principal="user:ana", role=Role.OWNER))
    await service.members.set(
        PERSON, Membership(principal="user:cy", role=Role.MEMBER, subject_id="cy")
    )
    cy = PERSON.model_copy(update={"principal": "user:cy"})
    bot = agent("run-9")
    for caller in (cy, bot):
        with pytest.raises(Denied):
            await service.purging.apply(caller, RUN)
    done = await service.purging.apply(PERSON, RUN)
    assert done.forgotten == 1
    assert done.unknown[Unknown.HIDDEN] == 1
    assert "red door" not in done.model_dump_json()


@pytest.mark.parametrize("is_gone", [False, True])
async def test_what_a_provider_made_of_it_is_reached_or_counted(
    service: MemoryService, is_gone: bool
) -> None:
    await service.bindings.add(PERSON, "sums", "summing", {})
    handle = await write(service, agent("run-1"), "The heron nests in May.", binding="sums")
    fact = (await service.get(PERSON, handle, COMPANY, binding_key="sums")).record
    [held] = Summing.records.values()
    first = fact.handle.provider_record_id
    for name, source, is_fixed in (("s1", first, False), ("s2", "s1", True)):
        held[name] = fact.model_copy(
            update={
                "handle": fact.handle.model_copy(update={"provider_record_id": name}),
                "text": f"Summary {name}", "metadata": {"sources": [source]},
                "read_only": is_fixed,
            }
        )  # fmt: skip
    if is_gone:
        asked = ForgetRequest(scope=COMPANY, handles=(handle,), binding_key="sums")
        await service.forget(PERSON, asked)
    plan = await service.purging.plan(PERSON, RUN)
    assert plan.reached == (
        Reached(binding_key="sums", written=1, came_of_it=0, derived=2, stay=1),
    )
    done = await service.purging.apply(PERSON, RUN)
    assert (done.forgotten, done.reached) == (1 if is_gone else 2, plan.reached)
    assert {*held} == {"s2"}


async def test_an_id_that_cannot_be_looked_up_hides_no_other(service: MemoryService) -> None:
    await service.bindings.add(PERSON, "sums", "summing", {})
    handles = [
        await write(service, agent("run-1"), f"Heron {n} nests in May.", binding="sums")
        for n in range(3)
    ]
    Summing.lost.add(handles[1].provider_record_id)
    try:
        done = await service.purging.apply(PERSON, RUN)
    finally:
        Summing.lost.clear()
    assert done.forgotten == 2


async def test_what_a_provider_made_of_what_was_corrected_stays(service: MemoryService) -> None:
    await service.bindings.add(PERSON, "sums", "summing", {})
    handle = await write(service, agent("run-1"), "The heron nests in May.", binding="sums")
    change = CorrectRequest(
        scope=COMPANY, handle=handle, text="It counts the ferries.", binding_key="sums"
    )
    await service.correct(PERSON, change)
    fact = (await service.get(PERSON, handle, COMPANY, binding_key="sums")).record
    [held] = Summing.records.values()
    summary = fact.handle.model_copy(update={"provider_record_id": "s1"})
    sources = {"sources": [fact.handle.provider_record_id]}
    held["s1"] = fact.model_copy(update={"handle": summary, "metadata": sources})
    done = await service.purging.apply(PERSON, RUN)
    assert (done.forgotten, done.reached[0].derived, done.reached[0].stay) == (0, 0, 1)
    assert "s1" in held


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a chain, half of it sealed."""
    import asyncio

    home = tmp_path_factory.mktemp("prepared") / "home"

    async def prepare() -> None:
        paths = find_paths(home)
        service = await open_service(paths, load_settings(paths, principal="user:ana"))
        await chain(service)
        await service.analysis.seal(PERSON, everything=True)
        await give(service, agent("run-5"), "Learned ask ops")
        await write(service, agent("run-5"), f"Told again: {POISON}")
        await service.close()

    asyncio.run(prepare())
    return home


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    ["begun", "forgotten", "files", "rewritten", "replaced", "batch", "log", "journal"],
)
async def test_a_purge_that_is_killed_is_ended_by_the_next(
    prepared: Path, tmp_path: Path, step: str
) -> None:
    home = tmp_path / "home"
    shutil.copytree(prepared, home)
    assert killed_by_itself(purge_and_die, home, DOCUMENT.model_dump_json(), step)
    paths = find_paths(home)
    service = await open_service(paths, load_settings(paths, principal="user:ana"))
    try:
        done = await service.purging.apply(PERSON, DOCUMENT)
        assert done.left == ()
        assert "signing keys of the vault to the mirror" not in words_in(home).lower()
        kept = {"Owls", "Mirrored", "Later", "Before"}
        assert await texts(service) == kept
        assert (await service.analysis.verify_chain(PERSON)).problem is None
        assert (await service.analysis.verify_archive(PERSON)).problems == ()
    finally:
        await service.close()


@pytest.mark.parametrize(
    "asked",
    [
        {"run_id": "a", "source": "b"},
        {"run_id": "a", "record_id": "b"},
        {"record_id": "a", "through": 2},
    ],
)
def test_a_request_for_more_than_one_thing_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        PurgeRequest.model_validate(asked)


async def test_an_unknown_run_is_refused_in_a_sentence(service: MemoryService) -> None:
    with pytest.raises(NotFound, match="no such run"):
        await service.purging.plan(PERSON, PurgeRequest(run_id="nowhere"))
    page = await service.log.page(PERSON, Filter(operation_type="browse"), limit=1)
    assert "nowhere" not in page.operations[0].model_dump_json()
