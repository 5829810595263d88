"""What forgetting would change is what it changes: the log's questions, tried before and after."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from memtui.config import Paths, Settings, load_settings
from memtui.contract import (
    Filter,
    ForgetRequest,
    Invalid,
    NotFound,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceRef,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, open_service
from memtui.service.context.contexts import ContextRequest
from memtui.service.context.impact import Impact, ImpactRequest, ReplayProgress, Side, WhyNot
from tests.service.fake import FakeAdapter

PERSON = Caller(company_id="local", principal="user:ana", channel="cli")
SOURCE = SourceRef(kind="manual_note", company_id="local")
APOLLO = Scope(company_id="local", project_id="apollo")
ZEUS = Scope(company_id="local", project_id="zeus")
ANA = Scope(company_id="local", subject_id="ana")
BOTH = Scope(company_id="local", subject_id="ana", project_id="apollo", agent_id="coding")


def agent(run: str) -> Caller:
    return Caller(company_id="local", principal="agent:coding", channel="mcp", run_id=run)


@pytest.fixture
def settings(paths: Paths) -> Settings:
    return load_settings(paths, principal="user:ana")


@pytest.fixture
async def service(
    paths: Paths, settings: Settings, fake: type[FakeAdapter]
) -> AsyncIterator[MemoryService]:
    """The company `local` over a vault, with fact tables and an outside provider beside it."""
    opened = await open_service(paths, settings, providers={"fake": fake})
    await opened.bindings.add(PERSON, "facts", "facts", {})
    await opened.bindings.add(PERSON, "outside", "fake", {})
    yield opened
    await opened.close()


async def write(service: MemoryService, text: str, scope: Scope, **fields: Any) -> RecordHandle:
    given = {"scope": scope, "source": SOURCE, "content": text, **fields}
    return (await service.write(PERSON, WriteRequest.model_validate(given))).handles[0]


async def ask(service: MemoryService, run: str, query: str, scope: Scope, **fields: Any) -> Side:
    request = QueryRequest.model_validate({"scope": scope, "query": query, **fields})
    answer = await service.query(agent(run), request)
    return Side.model_validate({
        "records": [
            {"rank": rank, "handle": one.handle, "binding_key": answer.binding_key,
             "text": one.text}
            for rank, one in enumerate(answer.snippets, start=1)
        ]
    })  # fmt: skip


async def impact(
    service: MemoryService, *handles: RecordHandle, key: str = "default", **fields: Any
) -> Impact:
    request = ImpactRequest.model_validate({"records": {key: handles}, **fields})
    return await service.impact.of(PERSON, request)


async def forget(
    service: MemoryService, *handles: RecordHandle, scope: Scope, key: str = "default"
) -> None:
    request = ForgetRequest(scope=scope, handles=handles, binding_key=key)
    await service.forget(PERSON, request)


def texts(side: Side) -> list[str]:
    return [one.text for one in side.records]


WORDS = ("deploy from the release branch", "the release branch is frozen on friday",
         "branch names begin with the issue", "deploy needs two reviews",
         "the deploy token lives in the vault", "reviews take a day",
         "friday is for tests")  # fmt: skip
ASKED = ("release branch", "who may deploy", "friday", "issue names", "reviews of a deploy",
         "the vault token")  # fmt: skip


async def test_what_is_told_of_queries_is_what_comes_true(service: MemoryService) -> None:
    notes = [await write(service, text, APOLLO) for text in WORDS]
    await write(service, "zeus deploys by hand from the release branch", ZEUS)
    for number, text in enumerate(ASKED):
        await ask(service, f"run-{number}", text, BOTH, top_k=3)
        await ask(service, "run-zeus", text, ZEUS, top_k=3)
    found = await impact(service, notes[0], notes[3])
    assert (found.asked, found.tried, found.untried, found.is_all) == (6, 6, (), True)
    assert 0 < found.differ < 6
    assert {run for one in found.effects for run in one.runs} <= {f"run-{n}" for n in range(6)}

    await forget(service, notes[0], notes[3], scope=APOLLO)
    told = {one.operation.request["query"]: one.after for one in found.effects}
    for number, text in enumerate(ASKED):
        now = await ask(service, "later", text, BOTH, top_k=3)
        before = await service.log.page(PERSON, Filter(run_id=f"run-{number}"))
        [then] = before.operations
        if text in told:
            assert texts(told[text]) == texts(now)
        else:
            assert [one.handle for one in then.handles] == [one.handle for one in now.records]


async def test_who_asked_what_and_how_the_answer_differs(service: MemoryService) -> None:
    goes = await write(service, "The heron is grey and loud.", APOLLO)
    stays = await write(service, "The heron is grey.", APOLLO)
    twin = await write(service, "The heron is grey, and loud!", APOLLO)
    alone = await write(service, "Marmots whistle.", APOLLO)
    for run in ("run-1", "run-2"):
        await ask(service, run, "grey heron", BOTH, top_k=3)
    await ask(service, "run-3", "marmots", APOLLO)
    found = await impact(service, goes, alone)
    emptied, replaced = found.effects
    assert (emptied.emptied, emptied.times, emptied.runs) == (True, 1, ("run-3",))
    assert not emptied.loses_nothing
    assert (replaced.times, replaced.runs, replaced.agents) == (2, ("run-1", "run-2"), ("coding",))
    assert (replaced.projects, replaced.subjects) == (("apollo",), ("ana",))
    [gone] = replaced.gone
    assert (gone.handle, gone.marked) == (goes, True)
    assert {one.handle for one in replaced.after.records} == {stays, twin}
    assert replaced.loses_nothing
    assert (found.tried, found.questions, found.differ, found.would_lose) == (3, 2, 3, 1)
    nothing = await impact(service, goes, filter=Filter(run_id="run-3"))
    assert (nothing.asked, nothing.differ) == (1, 0)


async def test_contexts_are_assembled_again_from_every_binding(service: MemoryService) -> None:
    await service.bindings.set_target(PERSON, "project", "apollo", "facts")
    fact = {"kind": "fact"}
    goes = await write(service, "Deploys go out on friday.", APOLLO, binding_key="facts", **fact)
    await write(service, "Two people review.", APOLLO, binding_key="facts", **fact)
    await write(service, "Ana prefers tea.", ANA, **fact)
    request = ContextRequest(scope=BOTH, delivered=True, budget=200)
    first = await service.context(agent("run-1"), request)
    looked_at = request.model_copy(update={"delivered": False})
    await service.context(agent("run-2"), looked_at)
    later = request.model_copy(update={"skip_given": True})
    await service.context(agent("run-1"), later)

    found = await impact(service, goes, key="facts")
    assert (found.asked, found.tried, found.untried) == (2, 2, ())
    [effect] = found.effects
    assert effect.before.text == first.text
    assert [one.handle for one in effect.gone] == [goes]
    assert "-- Deploys go out on friday." in effect.difference
    await forget(service, goes, scope=APOLLO, key="facts")
    now = await service.context(agent("run-9"), request)
    assert (effect.after.text, effect.after.tokens) == (now.text, now.tokens)
    assert found.tokens_saved == first.tokens - now.tokens > 0


async def test_facts_are_ranked_without_those_that_go(service: MemoryService) -> None:
    own = {"binding_key": "facts", "kind": "fact"}
    handles = [await write(service, f"{text}.", ANA, **own) for text in WORDS]
    for text in ASKED:
        await ask(service, "run-1", text, ANA, binding_key="facts")
    found = await impact(service, handles[1], handles[4], key="facts")
    assert found.tried == len(ASKED)
    await forget(service, handles[1], handles[4], scope=ANA, key="facts")
    for one in found.effects:
        now = await ask(service, "later", one.operation.request["query"], ANA, binding_key="facts")
        assert texts(one.after) == texts(now)


async def test_records_of_several_bindings_go_at_once(service: MemoryService) -> None:
    await service.bindings.set_target(PERSON, "project", "apollo", "facts")
    note = await write(service, "The heron is grey.", ANA)
    fact = await write(service, "Herons nest in may.", APOLLO, binding_key="facts", kind="fact")
    outside = await write(service, "The heron is loud.", ANA, binding_key="outside")
    gone = RecordHandle(provider_key="vault", provider_record_id="users/ana/memory/no.md")
    for key in ("default", "facts", "outside"):
        await ask(service, key, "heron herons", BOTH, binding_key=key)
    records = {"default": (note, gone), "facts": (fact,), "outside": (outside,)}
    found = await service.impact.of(PERSON, ImpactRequest(records=records))
    assert (len(found.records), found.missing, found.unread) == (2, (gone,), (outside,))
    assert {run for one in found.effects for run in one.runs} == {"default", "facts"}
    assert (found.asked, found.tried, found.with_a_record) == (3, 2, 1)


async def test_a_trial_that_is_stopped_leaves_nothing_behind(service: MemoryService) -> None:
    note = await write(service, "The heron is grey.", APOLLO)
    for number in range(12):
        await ask(service, "run-1", f"heron {number}", APOLLO)
    trial: asyncio.Task[Impact]

    def stop(so_far: ReplayProgress) -> None:
        if so_far.done:
            assert (so_far.differ, so_far.total) == (so_far.done, 12)
            trial.cancel()

    request = ImpactRequest(records={"default": (note,)})
    trial = asyncio.ensure_future(service.impact.of(PERSON, request, progress=stop))
    with pytest.raises(asyncio.CancelledError):
        await trial
    assert (await impact(service, note)).differ == 12


async def test_nothing_is_changed_and_nothing_counts_as_a_use(service: MemoryService) -> None:
    note = await write(service, "The heron is grey.", APOLLO)
    await ask(service, "run-1", "heron", APOLLO)
    by_hand = PERSON.model_copy(update={"channel": "tui"})
    await service.query(by_hand, QueryRequest(scope=APOLLO, query="heron"))
    before = await service.log.page(PERSON)
    uses = await service.log.retrieval_stats(PERSON, "default", [note.provider_record_id])
    found = await impact(service, note)
    [effect] = found.effects
    assert (effect.times, effect.agents, effect.principals) == (2, ("coding",), ("user:ana",))
    after = await service.log.page(PERSON)
    [row] = after.operations[: after.total - before.total]
    assert (row.operation_type, row.request["purpose"], row.handles) == ("get", "impact", ())
    assert uses == await service.log.retrieval_stats(PERSON, "default", [note.provider_record_id])
    assert (await impact(service, note, filter=Filter(channel="tui"))).asked == 1


async def test_what_cannot_be_tried_is_named(
    service: MemoryService, fake: type[FakeAdapter]
) -> None:
    note = await write(service, "The heron is grey.", APOLLO)
    await ask(service, "run-1", "heron " * 700, APOLLO)
    then = QueryRequest(scope=APOLLO, query="heron", as_of=datetime(2026, 1, 1, tzinfo=UTC))
    await service.query(agent("run-2"), then)
    await ask(service, "run-3", "heron", ZEUS)
    outside = await write(service, "The heron is loud.", APOLLO, binding_key="outside")
    await ask(service, "run-4", "heron", APOLLO, binding_key="outside")
    await ask(service, "run-5", "marmot", APOLLO, binding_key="outside")
    found = await impact(service, note)
    assert {one.why for one in found.untried} == {WhyNot.CUT, WhyNot.PAST}
    assert (found.asked, found.tried) == (2, 0)

    fake.calls.clear()
    found = await impact(service, outside, key="outside")
    assert fake.calls == []
    [left] = found.untried
    assert (left.why, len(left.operation_ids), len(left.with_a_record)) == (WhyNot.PROVIDER, 2, 1)
    assert "The provider fake of outside cannot answer" in left.sentence
    assert (found.unread, found.records, found.with_a_record) == ((outside,), (), 1)

    await forget(service, note, scope=APOLLO)
    with pytest.raises(NotFound, match="There is no record"):
        await impact(service, note)
    with pytest.raises(Invalid, match="Name at least one record"):
        await impact(service)
    with pytest.raises(Invalid, match="go back to now first"):
        await service.impact.of(
            PERSON.at(datetime(2026, 1, 1, tzinfo=UTC)), ImpactRequest(records={"default": (note,)})
        )


@pytest.mark.parametrize(("owners", "is_whole"), [(99, True), (100, False), (101, False)])
async def test_a_list_of_owners_that_may_be_cut_is_not_tried(
    service: MemoryService, owners: int, is_whole: bool
) -> None:
    note = await write(service, "The heron is grey.", APOLLO)
    others = [Scope(company_id="local", project_id=f"p{number}") for number in range(1, owners)]
    await ask(service, "run-1", "heron", APOLLO, owners=(APOLLO, *others))
    found = await impact(service, note)
    assert [one.why for one in found.untried] == ([] if is_whole else [WhyNot.CUT])


async def test_a_context_is_reached_by_records_of_any_binding(service: MemoryService) -> None:
    await service.bindings.set_target(PERSON, "project", "apollo", "facts")
    tea = await write(service, "Ana prefers tea.", ANA, kind="fact")
    await service.context(agent("run-1"), ContextRequest(scope=APOLLO, delivered=True))
    await service.context(agent("run-2"), ContextRequest(scope=BOTH, delivered=True))
    await ask(service, "run-3", "tea", BOTH, binding_key="facts")
    found = await impact(service, tea)
    assert [one.runs for one in found.effects] == [("run-2",)]
    later = await write(service, "Ana prefers coffee.", ANA, kind="fact")
    found = await impact(service, later)  # which the log's contexts did not have
    assert [one.runs for one in found.effects] == [("run-2",)]
    other = await write(service, "Everybody drinks water.", Scope(company_id="local"), kind="fact")
    found = await impact(service, other)
    assert {run for one in found.effects for run in one.runs} == {"run-1", "run-2"}
