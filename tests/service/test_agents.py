"""Who is connected, over the processes of a home, and who is told of it."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from memtui.config import Paths, Settings, find_paths, load_settings
from memtui.contract import QueryRequest, Scope, WriteRequest
from memtui.service import Caller, MemoryService, open_service
from memtui.service.visibility import Membership, Role
from tests.service.conftest import start
from tests.service.fake import FakeAdapter

AGENT = Caller(
    company_id="acme", principal="agent:coding", acts_for="user:ana", channel="mcp", run_id="run-1"
)
APOLLO = Scope(company_id="acme", project_id="apollo")


async def names(service: MemoryService, caller: Caller) -> list[tuple[str, bool]]:
    return [(one.principal, one.is_open) for one in await service.agents.connected(caller)]


async def test_a_session_is_told_until_it_ends_and_what_it_was_told_last(
    paths: Paths, settings: Settings, caller: Caller, note: WriteRequest, fake: type[FakeAdapter]
) -> None:
    here = await start(paths, settings, caller)
    there = await start(paths, settings, caller)
    try:
        await there.agents.seen(AGENT, APOLLO, "claude-code 2.1", may_vanish=False)
        other = AGENT.model_copy(update={"principal": "agent:reviewer"})
        await there.agents.seen(other, APOLLO, may_vanish=False)
        [one, _] = sorted(await here.agents.connected(caller), key=lambda one: one.principal)
        assert (one.client, one.project_id, one.run_id, one.last_answer) == (
            "claude-code 2.1",
            "apollo",
            "run-1",
            None,
        )
        await there.write(AGENT, note)
        await there.query(AGENT, QueryRequest(scope=APOLLO, query="Releases"))
        await there.agents.left(other)
        [announced] = (paths.data / "sessions").glob("*.json")
        for damaged in ("{", "{}"):
            announced.with_name(f"{announced.name.partition('.')[0]}.x.json").write_text(damaged)
            [one] = await here.agents.connected(caller, timedelta(0))
        assert one.last_answer is not None
        assert (one.last_answer.asked, one.is_open) == ("Releases", True)
        await there.close()
        [one] = await here.agents.connected(caller)
        assert (one.is_open, one.last_answer and one.last_answer.asked) == (False, "Releases")
        assert await here.agents.connected(caller, timedelta(0)) == []
    finally:
        await here.close()


async def test_who_went_without_a_word_leaves_no_file(service: MemoryService, paths: Paths) -> None:
    for number in range(3):
        own = AGENT.model_copy(update={"run_id": f"run-{number}"})
        await service.agents.seen(own, APOLLO, may_vanish=True)
        [announced] = (paths.data / "sessions").glob("*.json")
        os.utime(announced, (0, 0))


async def test_members_are_told_of_sessions_of_their_own_and_of_their_projects(
    service: MemoryService, caller: Caller
) -> None:
    for principal, project_id, role in (
        ("user:ana", None, Role.OWNER),
        ("user:bob", "apollo", Role.MEMBER),
        ("user:eve", "gemini", Role.OWNER),
    ):
        member = Membership(principal=principal, project_id=project_id, role=role)
        await service.members.set(caller, member)
    await service.agents.seen(AGENT, APOLLO, may_vanish=False)
    of_eve = AGENT.model_copy(update={"acts_for": "user:eve", "principal": "agent:eves"})
    await service.agents.seen(of_eve, Scope(company_id="acme"), may_vanish=False)
    elsewhere = AGENT.model_copy(update={"company_id": "other", "principal": "agent:other"})
    await service.agents.seen(elsewhere, APOLLO, may_vanish=False)
    last_answer = {
        name: {
            one for one, _ in await names(service, caller.model_copy(update={"principal": name}))
        }
        for name in ("user:ana", "user:bob", "user:eve")
    }
    assert last_answer == {
        "user:ana": {"agent:coding", "agent:eves"},
        "user:bob": {"agent:coding"},
        "user:eve": {"agent:eves"},
    }


def stay_connected(home: Path, is_there: Event) -> None:
    async def stay() -> None:
        paths = find_paths(home)
        service = await open_service(paths, load_settings(paths))
        agent = AGENT.model_copy(update={"company_id": "local"})
        await service.agents.seen(agent, Scope(company_id="local"), may_vanish=False)
        is_there.set()
        await asyncio.sleep(600)

    asyncio.run(stay())


@pytest.mark.slow
async def test_a_process_that_is_killed_is_connected_no_more(paths: Paths) -> None:
    service = await open_service(paths, load_settings(paths))
    person = Caller(company_id="local", principal="user:ana", channel="test")
    context = get_context("spawn")
    is_there = context.Event()
    agent = context.Process(target=stay_connected, args=(paths.data, is_there))
    agent.start()
    try:
        assert await asyncio.to_thread(is_there.wait, 60)
        assert await names(service, person) == [("agent:coding", True)]
        assert agent.pid is not None
        os.kill(agent.pid, signal.SIGKILL)
        await asyncio.to_thread(agent.join)
        assert await names(service, person) == []
        assert list((paths.data / "sessions").glob("*.json")) == []
    finally:
        agent.kill()
        await service.close()
