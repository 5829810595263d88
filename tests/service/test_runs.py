"""A run replayed: what it was given, got and wrote, what became of that, and who else was told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from memtui.config import Paths, Settings
from memtui.contract import (
    CorrectRequest,
    Filter,
    ForgetRequest,
    Invalid,
    MemtuiError,
    NotFound,
    OperationType,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    SourceRef,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, open_service
from memtui.service.context.contexts import ContextRequest
from memtui.service.history.runs import RunStep
from memtui.service.home.survey import PurgeRequest
from tests.service.conftest import start
from tests.service.fake import FakeAdapter

PROJECT = Scope(company_id="local", project_id="apollo", agent_id="coding")
AGENT = Caller(company_id="local", principal="agent:coding", channel="mcp", run_id="run-7")
PERSON = Caller(company_id="local", principal="user:ana", channel="tui")


@pytest.fixture
async def service(paths: Paths, settings: Settings) -> AsyncIterator[MemoryService]:
    """The company `local` over a vault."""
    opened = await open_service(paths, settings)
    yield opened
    await opened.close()


async def write(
    service: MemoryService, caller: Caller, text: str, kind: str = "note"
) -> RecordHandle:
    source = SourceRef(kind="manual_note", company_id="local")
    request = WriteRequest(scope=PROJECT, source=source, content=text, kind=kind)
    return (await service.write(caller, request)).handles[0]


async def correct(service: MemoryService, caller: Caller, one: RecordHandle, text: str) -> None:
    await service.correct(caller, CorrectRequest(scope=PROJECT, handle=one, text=text))


async def forget(service: MemoryService, caller: Caller, one: RecordHandle) -> None:
    await service.forget(caller, ForgetRequest(scope=PROJECT, handles=(one,)))


def states(step: RunStep) -> dict[str, str]:
    return {one.text or "": one.state for one in step.records}


async def test_what_a_run_got_and_what_is_there_of_it_today(service: MemoryService) -> None:
    stays = await write(service, PERSON, "The goose stays.")
    changes = await write(service, PERSON, "The goose is grey.")
    goes = await write(service, PERSON, "The goose is loud.")
    await service.query(AGENT, QueryRequest(scope=PROJECT, query="goose"))
    own = await write(service, AGENT, "The moth is small.")
    await correct(service, AGENT, own, "The moth is tiny.")
    with pytest.raises(MemtuiError):
        await forget(service, AGENT, stays.model_copy(update={"provider_record_id": "no"}))
    await correct(service, PERSON, changes, "The goose is green.")
    await correct(service, PERSON, stays, "The goose leaves.")
    await correct(service, PERSON, stays, "The goose stays.")
    await forget(service, PERSON, goes)
    in_its_scope = PROJECT.model_copy(update={"run_id": "run-7"})
    await service.query(PERSON, QueryRequest(scope=in_its_scope, query="goose"))

    replay = await service.runs.replay(PERSON, "run-")
    run = replay.run
    assert (run.run_id, run.agents, run.projects, run.channels) == (
        "run-7", ("coding",), ("apollo",), ("mcp",),
    )  # fmt: skip
    assert (run.queries, run.answered_queries, run.writes) == (1, 1, 1)
    assert (run.corrections, run.forgets, run.failures, run.operations) == (1, 1, 1, 4)
    got, wrote, corrected, refused = replay.steps
    assert states(got) == {
        "The goose stays.": "unchanged",
        "The goose is grey.": "changed",
        "The goose is loud.": "gone",
    }
    assert [one.rank for one in got.records] == [1, 2, 3]
    assert next(one.now for one in got.records if one.state == "changed") == "The goose is green."
    assert states(wrote) == {"The moth is small.": "changed"}
    assert states(corrected) == {"The moth is tiny.": "unchanged"}
    assert (refused.operation.status, refused.records) == ("error", ())
    # Reading what is there is no part of the run, and no opening of a record either.
    assert (await service.runs.replay(PERSON, "run-7")).steps[0] == got
    asked = Filter(operation_type="get", channel="tui")
    assert not (await service.log.page(PERSON, asked)).operations[0].handles


async def test_pages_of_runs_and_of_steps(service: MemoryService) -> None:
    for number, bird in enumerate(("auk", "owl", "crane", "kite", "stork")):
        agent = AGENT.model_copy(update={"run_id": f"run-{number}"})
        one = await write(service, agent, f"Note of the {bird}.")
    await service.query(AGENT, QueryRequest(scope=PROJECT, query="Note"))
    first = await service.runs.page(PERSON, limit=2)
    assert ([one.run_id for one in first.runs], first.total) == (["run-7", "run-4"], 6)
    rest = await service.runs.page(PERSON, limit=9, before=first.next_before)
    assert [one.run_id for one in rest.runs] == ["run-3", "run-2", "run-1", "run-0"]
    assert rest.next_before is None
    written = Filter(operation_type=OperationType.WRITE, text="note crane")
    assert [one.run_id for one in (await service.runs.page(PERSON, written)).runs] == ["run-2"]
    told = await service.runs.page(PERSON, delivered=("default", one.provider_record_id))
    assert [one.run_id for one in told.runs] == ["run-7"]
    for _ in range(3):
        await service.query(AGENT, QueryRequest(scope=PROJECT, query="Note"))
    begun = await service.runs.replay(PERSON, "run-7", limit=3)
    ended = await service.runs.replay(PERSON, "run-7", limit=3, after=begun.next_after or 0)
    assert (len(begun.steps), len(ended.steps), ended.next_after) == (3, 1, None)
    with pytest.raises(Invalid, match="several"):
        await service.runs.replay(PERSON, "run-")
    with pytest.raises(NotFound, match="no run nix"):
        await service.runs.replay(PERSON, "nix")


async def test_a_context_is_replayed_to_the_byte_and_asked_for_again(
    service: MemoryService,
) -> None:
    branch = await write(service, PERSON, "deploy_branch: release", kind="fact")
    await write(service, PERSON, "Tests run with uv.", kind="fact")
    asked = ContextRequest(scope=PROJECT, budget=300, delivered=True, skip_given=True)
    told = await service.context(AGENT, asked)
    with_prompt = {"prompt": "the moth", "max_tokens": 200}
    await write(service, PERSON, "The moth is small,\nand grey.")
    later = await service.context(AGENT, asked.model_copy(update=with_prompt))
    assert later.text
    assert "deploy_branch" not in later.text

    first, second = (await service.runs.replay(PERSON, "run-7")).steps
    assert first.context is not None
    assert second.context is not None
    assert (first.context.text, second.context.text) == (told.text, later.text)
    assert first.context.price.input_tokens == told.tokens
    assert first.context.price.cost_usd == told.price.cost_usd
    facts = [fact.tokens for section in told.sections for fact in section.facts]
    assert [one.tokens for one in first.records] == facts
    assert all(one.cost_usd for one in first.records)
    [moth] = second.records
    assert moth.text == "The moth is small,\nand grey."
    assert moth.tokens == later.sections[0].facts[0].tokens

    for step in (first, second):
        same = await service.runs.assembled_now(PERSON, step.operation.operation_id)
        assert (same.now.text, same.difference) == (same.delivered, [])
    await correct(service, PERSON, branch, "deploy_branch: main")
    again = await service.runs.assembled_now(PERSON, first.operation.operation_id)
    assert [line for line in again.difference if line.startswith(("-", "+"))][2:] == [
        "-- deploy_branch: release", "+- deploy_branch: main",
    ]  # fmt: skip
    # The corrected fact is news to the later prompt too; nothing else of the first is.
    again = await service.runs.assembled_now(PERSON, second.operation.operation_id)
    assert [line for line in again.difference if line.startswith(("-", "+"))][2:] == [
        "+## About This Workspace", "+", "+- deploy_branch: main", "+",
    ]  # fmt: skip
    changed, stays = (await service.runs.replay(PERSON, "run-7")).steps[0].records
    assert (changed.state, changed.now) == ("changed", "deploy_branch: main")
    assert (stays.state, stays.now) == ("unchanged", None)
    assert (await service.runs.page(PERSON)).runs[0].contexts == 2
    with pytest.raises(Invalid, match="delivered no context"):
        await service.runs.assembled_now(PERSON, again.now.operation_id)


async def test_an_erased_text_is_gone_and_what_lives_is_still_found(
    service: MemoryService,
) -> None:
    ana = Scope(company_id="local", project_id="apollo", subject_id="ana")
    source = SourceRef(kind="manual_note", company_id="local")
    own = ana.model_copy(update={"project_id": None})
    fact = WriteRequest(scope=own, source=source, content="Ana likes geese.", kind="fact")
    await service.write(PERSON, fact)
    await service.context(AGENT, ContextRequest(scope=ana, delivered=True))
    await service.purging.apply(PERSON, PurgeRequest(subject_id="ana"))
    [step] = (await service.runs.replay(PERSON, "run-7")).steps
    assert step.context is not None
    assert step.context.text is None
    assert [(one.state, one.now) for one in step.records] == [("unchanged", None)]
    with pytest.raises(Invalid, match="no longer stored"):
        await service.runs.assembled_now(PERSON, step.operation.operation_id)


async def test_of_records_of_other_hands_their_own_dates_tell_what_became_of_them(
    paths: Paths, settings: Settings, fake: type[FakeAdapter]
) -> None:
    acme = Scope(company_id="acme", project_id="apollo")
    caller = PERSON.model_copy(update={"company_id": "acme"})
    agent = AGENT.model_copy(update={"company_id": "acme"})
    service = await start(paths, settings, caller)
    try:
        held = fake.records["acme/default"]
        names = ("before", "then", "after", "undated", "gone", "new")
        for name in names:
            handle = RecordHandle(provider_key="fake", provider_record_id=name)
            held[name] = Record(handle=handle, text=f"goose {name}", scope=acme)
        await service.query(agent, QueryRequest(scope=acme, query="goose"))
        begun = (await service.log.page(caller, limit=1)).operations[0].started_at
        for name, seconds in (("before", -1), ("then", 0), ("after", 1)):
            at = begun + timedelta(seconds=seconds)
            held[name] = held[name].model_copy(update={"updated_at": at})
        del held["gone"]
        new = CorrectRequest(scope=acme, handle=held["new"].handle, text="goose newer")
        await service.correct(caller, new)
        told = {
            "before": ("unchanged", "goose before", None),
            "then": ("unchanged", "goose then", None),
            "after": ("changed", None, "goose after"), "undated": ("there", None, "goose undated"),
            "gone": ("gone", None, None), "new": ("changed", "goose new", "goose newer"),
        }  # fmt: skip
        [step] = (await service.runs.replay(caller, "run-7")).steps
        found = {one.handle.provider_record_id: one for one in step.records}
        assert {name: (one.state, one.text, one.now) for name, one in found.items()} == told
        await service.bindings.update(caller, "default", enabled=False)
        [step] = (await service.runs.replay(caller, "run-7")).steps
        assert {(one.state, bool(one.why)) for one in step.records} == {("unread", True)}
    finally:
        await service.close()
