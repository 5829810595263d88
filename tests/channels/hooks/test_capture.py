"""What a provider gets that condenses what it is given, and what one that cannot change it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from memtui.channels.agent import Agent
from memtui.channels.hooks.calls import HookCall, Moment
from memtui.channels.hooks.capture import CaptureOutcome, IssueText, capture_run, capture_text
from memtui.config import Paths, load_settings
from memtui.contract import (
    BrowseRequest,
    Capabilities,
    Filter,
    OperationStatus,
    Scope,
    Unavailable,
    WriteMode,
)
from memtui.service import (
    Caller,
    Capture,
    MemoryService,
    ReviewRule,
    RuleAction,
    RuleTest,
    open_service,
)
from memtui.service.visibility import Membership, Role
from tests.channels.hooks.test_transcript import LONG
from tests.service.fake import FakeAdapter
from tests.service.later import LaterAdapter


class Condensing(FakeAdapter):
    """Makes its own records of what is written."""

    key = "fake"

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        able = self.capabilities.model_dump() | {"provider_managed_extraction": True}
        self.capabilities = Capabilities.model_validate(able)


@pytest.fixture
async def service(paths: Paths, caller: Caller) -> AsyncIterator[MemoryService]:
    FakeAdapter.reset()
    settings = load_settings(paths)
    opened = await open_service(paths, settings, providers={"fake": Condensing})
    await opened.bindings.add(caller, "fake", "fake", {})
    yield opened
    await opened.close()
    FakeAdapter.reset()


def turn(moment: Moment, answer: str) -> HookCall:
    is_turn = moment is Moment.TURN
    return HookCall(
        event="x", moment=moment, prompt="Where from?", reply=answer, ends_later=is_turn
    )


async def test_what_is_captured_waits_for_review(service: MemoryService, caller: Caller) -> None:
    await service.bindings.update(caller, "fake", capture={Capture.POST_RUN: True})
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.DOOR, value="hook")
    await service.review.add_rule(caller, "fake", rule)
    agents = caller.model_copy(
        update={
            "principal": "agent:x",
            "acts_for": caller.principal,
            "run_id": "s",
            "channel": "hook",
        }
    )
    agent = Agent(service, agents, Scope(company_id=caller.company_id, project_id="p"), "fake")
    captured = await capture_run(agent, turn(Moment.END, LONG))
    assert captured.outcome is CaptureOutcome.PENDING
    assert all(isinstance(one, BrowseRequest) for one in FakeAdapter.received), "it is only read"
    [held] = await service.review.waiting(caller)
    assert held.run_id == "s"


async def test_a_provider_that_condenses_gets_a_run_once_at_its_end(
    service: MemoryService, caller: Caller
) -> None:
    await service.bindings.update(caller, "fake", capture={Capture.POST_RUN: True})
    agents = caller.model_copy(
        update={
            "principal": "agent:x",
            "acts_for": caller.principal,
            "run_id": "s",
            "channel": "hook",
        }
    )
    agent = Agent(service, agents, Scope(company_id=caller.company_id, project_id="p"), "fake")
    outcomes = [
        (await capture_run(agent, turn(moment, answer))).outcome
        for moment, answer in (
            (Moment.TURN, LONG),
            (Moment.END, LONG),
            (Moment.END, f"{LONG} And more."),
        )
    ]
    assert outcomes == [CaptureOutcome.LATER, CaptureOutcome.STORED, CaptureOutcome.KEPT]
    [request] = FakeAdapter.received
    assert request.mode is WriteMode.SUMMARIZE
    assert request.source.run_id == "s"


async def test_a_member_who_may_only_add_leaves_one_note_at_the_end(
    service: MemoryService, caller: Caller
) -> None:
    await service.bindings.update(caller, "default", capture={Capture.POST_RUN: True})
    await service.members.set(caller, Membership(principal=caller.principal, role=Role.OWNER))
    bob = Membership(principal="user:bob", project_id="p", role=Role.MEMBER)
    await service.members.set(caller, bob)
    agents = caller.model_copy(
        update={"principal": "agent:x", "acts_for": "user:bob", "run_id": "s", "channel": "hook"}
    )
    scope = Scope(company_id=caller.company_id, project_id="p", subject_id="bob")
    agent = Agent(service, agents, scope, "default")
    outcomes = [
        (await capture_run(agent, turn(moment, f"{LONG}{moment}"))).outcome
        for moment in (Moment.TURN, Moment.TURN, Moment.END, Moment.TURN)
    ]
    assert outcomes == [
        CaptureOutcome.LATER,
        CaptureOutcome.LATER,
        CaptureOutcome.STORED,
        CaptureOutcome.LATER,
    ]
    denied = await service.log.page(caller, Filter(status=OperationStatus.DENIED))
    assert not denied.operations


@pytest.mark.parametrize("did", [True, False])
@pytest.mark.parametrize("changes", [False, True])
async def test_an_interrupted_capture_leaves_one_note(
    paths: Paths, caller: Caller, monkeypatch: pytest.MonkeyPatch, *, did: bool, changes: bool
) -> None:
    comment = IssueText(issue_id="T-1", comment_id="c1", text="The branch is main")
    service = await open_service(paths, load_settings(paths), providers={"fake": FakeAdapter})
    try:
        await service.bindings.add(caller, "fake", "fake", {})
        await service.bindings.update(caller, "fake", capture={Capture.COMMENTS: True})
        scope = Scope(company_id=caller.company_id, project_id="p")
        agent = Agent(service, caller, scope, "fake")
        if changes:
            await capture_text(agent, comment)
            comment = comment.model_copy(update={"text": "The branch is release"})
        name = "correct" if changes else "write"
        real = getattr(FakeAdapter, name)

        async def interrupted(self: FakeAdapter, request: Any) -> Any:
            if did:
                await real(self, request)
            raise RuntimeError("interrupted")

        with monkeypatch.context() as patched:
            patched.setattr(FakeAdapter, name, interrupted)
            with pytest.raises(Unavailable, match="Outcome unknown"):
                await capture_text(agent, comment)
        again = await capture_text(agent, comment)
        stored = CaptureOutcome.UPDATED if changes else CaptureOutcome.STORED
        assert again.outcome is (CaptureOutcome.UNCHANGED if did else stored)
        page = await service.browse(caller, BrowseRequest(scope=scope, binding_key="fake"))
        assert [one.text for one in page.records] == [comment.text]
        later = await capture_text(agent, comment.model_copy(update={"text": "Neither"}))
        assert later.outcome is CaptureOutcome.UPDATED
        assert later.record_ids == again.record_ids
    finally:
        await service.close()
        FakeAdapter.reset()


async def test_each_comment_and_document_of_each_issue_is_a_memory(
    service: MemoryService, caller: Caller
) -> None:
    switches = {Capture.COMMENTS: True, Capture.DOCUMENTS: True}
    await service.bindings.update(caller, "default", capture=switches)
    own = caller.model_copy(update={"channel": "hook"})
    agent = Agent(service, own, Scope(company_id=caller.company_id, project_id="p"), "default")
    places = [
        {"comment_id": "1"}, {"comment_id": "2"}, {"document_key": "spec"},
        {"document_key": "plan"},
    ]  # fmt: skip
    given = [
        IssueText(issue_id=issue, text=f"Said in {issue} {place}", **place)
        for issue in ("I-1", "I-2")
        for place in places
    ]
    stored = [await capture_text(agent, one) for one in given]
    assert {one.outcome for one in stored} == {CaptureOutcome.STORED}
    assert len({one.record_ids for one in stored}) == len(given)
    for one, known in zip(given, stored, strict=True):
        again = await capture_text(agent, one)
        assert (again.outcome, again.record_ids) == (CaptureOutcome.UNCHANGED, known.record_ids)
    changed = given[3].model_copy(update={"text": "Said anew"})
    answer = await capture_text(agent, changed)
    assert (answer.outcome, answer.record_ids) == (CaptureOutcome.UPDATED, stored[3].record_ids)


async def test_a_comment_is_a_memory_of_each_binding(
    service: MemoryService, caller: Caller
) -> None:
    own = caller.model_copy(update={"channel": "hook"})
    scope = Scope(company_id=caller.company_id, project_id="p")
    agents = [Agent(service, own, scope, key) for key in ("default", "fake")]
    for key in ("default", "fake"):
        await service.bindings.update(caller, key, capture={Capture.COMMENTS: True})
    comment = IssueText(issue_id="I-1", comment_id="1", text="From main")
    first, second = [await capture_text(agent, comment) for agent in agents]
    assert (first.outcome, second.outcome) == (CaptureOutcome.STORED, CaptureOutcome.STORED)
    changed = comment.model_copy(update={"text": "From release"})
    answers = [await capture_text(agent, changed) for agent in agents]
    # A provider that condenses what it gets has no record of the comment itself.
    assert [one.outcome for one in answers] == [CaptureOutcome.UPDATED, CaptureOutcome.KEPT]
    assert [one.record_ids for one in answers] == [first.record_ids, second.record_ids]


async def test_what_is_stored_later_is_captured_once(paths: Paths, caller: Caller) -> None:
    LaterAdapter.reset()
    service = await open_service(paths, load_settings(paths), providers={"later": LaterAdapter})
    await service.bindings.add(caller, "later", "later", {})
    await service.bindings.update(caller, "later", capture={Capture.COMMENTS: True})
    agents = caller.model_copy(update={"principal": "agent:x", "channel": "hook"})
    agent = Agent(service, agents, Scope(company_id="local", project_id="web"), "later")
    comment = IssueText(issue_id="I-1", comment_id="c-1", text="Deploys come from release.")
    assert (await capture_text(agent, comment)).outcome is CaptureOutcome.STORED
    assert (await capture_text(agent, comment)).outcome is CaptureOutcome.UNCHANGED
    assert list(LaterAdapter.said) == ["event-1"]
    ids = LaterAdapter.store("event-1")
    again = await capture_text(agent, comment)
    assert (again.outcome, again.record_ids) == (CaptureOutcome.UNCHANGED, tuple(ids))
    await service.close()
    LaterAdapter.reset()
