"""The runs of the demo, replayed: what they were told, and what it is once a fact has changed."""

from __future__ import annotations

import shutil
from pathlib import Path

from memtui.config import Settings, find_paths
from memtui.contract import CorrectRequest, OperationType, Scope
from memtui.service import Caller, open_service
from memtui.service.context.contexts import ContextRequest
from tests.demos import Built

PERSON = Caller(company_id="acme", principal="user:ana", channel="tui")
AGENT = Caller(company_id="acme", principal="agent:coding", channel="hook", run_id="run-5000")
SCOPE = Scope(company_id="acme", agent_id="coding", project_id="mech-fighters", subject_id="ana")


async def test_a_run_of_the_demo_is_replayed_to_the_byte(built: Built, tmp_path: Path) -> None:
    shutil.copytree(built.paths.data, tmp_path / "demo")
    service = await open_service(find_paths(tmp_path / "demo"), Settings())
    try:
        page = await service.runs.page(PERSON, limit=20)
        assert page.total == built.summary.runs
        told = next(one for one in page.runs if one.contexts)
        first = (await service.runs.replay(PERSON, told.run_id)).steps[0]
        assert first.operation.operation_type is OperationType.CONTEXT
        assert first.context is not None
        assert (first.context.text or "").startswith("## About This User\n\n- ")
        assert sum(one.tokens or 0 for one in first.records) <= told.tokens_given
        assert all(one.tokens and one.cost_usd for one in first.records)
        assert any(one.queries for one in page.runs)

        request = ContextRequest(scope=SCOPE, prompt="deploy branch", delivered=True)
        delivered = await service.context(AGENT, request)
        [step] = (await service.runs.replay(PERSON, "run-5000")).steps
        assert step.context is not None
        assert (step.context.text or "").encode() == delivered.text.encode()
        asked = step.operation.operation_id
        assert (await service.runs.assembled_now(PERSON, asked)).difference == []

        branch = next(one for one in step.records if one.text == "deploy_branch: release")
        change = CorrectRequest(scope=SCOPE, handle=branch.handle, text="deploy_branch: main")
        await service.correct(PERSON, change)
        now = await service.runs.assembled_now(PERSON, asked)
        changed = [line for line in now.difference[2:] if line[0] in "-+"]
        assert changed == ["-- deploy_branch: release", "+- deploy_branch: main"]
        [step] = (await service.runs.replay(PERSON, "run-5000")).steps
        states = {one.text: (one.state, one.now) for one in step.records}
        assert states["deploy_branch: release"] == ("changed", "deploy_branch: main")
        assert {state for text, (state, _) in states.items() if text != branch.text} == {
            "unchanged"
        }
    finally:
        await service.close()
