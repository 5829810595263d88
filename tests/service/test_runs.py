"""A run replayed: what it was given, got and wrote, what became of that, and who else was told."""

from __future__ import annotations

from collections.abc import AsyncIterator

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
    RecordHandle,
    Scope,
    SourceRef,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, RunStep, open_service

PROJECT = Scope(company_id="local", project_id="apollo", agent_id="coding")
AGENT = Caller(company_id="local", principal="agent:coding", door="mcp", run_id="run-7")
PERSON = Caller(company_id="local", principal="user:ana", door="tui")


@pytest.fixture
async def service(paths: Paths, settings: Settings) -> AsyncIterator[MemoryService]:
    """The company `local` over a vault."""
    opened = await open_service(paths, settings)
    yield opened
    await opened.close()


async def write(service: MemoryService, caller: Caller, text: str) -> RecordHandle:
    source = SourceRef(kind="manual_note", company_id="local")
    request = WriteRequest(scope=PROJECT, source=source, content=text)
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
    assert (run.run_id, run.agents, run.projects, run.doors) == (
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
    assert not (await service.log.page(PERSON, Filter(operation_type="get"))).operations[0].handles


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
    told = await service.runs.page(PERSON, told=("default", one.provider_record_id))
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
