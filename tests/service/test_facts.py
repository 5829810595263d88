"""Facts by their key, over scopes and bindings of real providers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from memtui.config import Paths, load_settings
from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Denied,
    Filter,
    Invalid,
    NotFound,
    OperationType,
    QueryRequest,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.fact_values import fact_text
from memtui.service import (
    Caller,
    Membership,
    MemoryService,
    ReviewRule,
    Role,
    RuleAction,
    RuleTest,
    open_service,
)
from memtui.service.context.pruning import PruneRequest
from memtui.service.history.patterns import PatternRequest
from memtui.service.operations.facts import FactRequest
from memtui.service.usecases.merging import merge
from tests.loopback import Embeddings

COMPANY = Scope(company_id="local")
CODING = Scope(company_id="local", agent_id="coding")
APOLLO = Scope(company_id="local", project_id="apollo")
WORK = Scope(company_id="local", project_id="apollo", agent_id="coding")
SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
ANA = Caller(company_id="local", principal="user:ana", channel="test")


@pytest.fixture
async def service(paths: Paths) -> AsyncIterator[MemoryService]:
    """The first company with its vault, and a table of facts that serves a project."""
    opened = await open_service(paths, load_settings(paths, principal="user:ana"))
    await opened.bindings.add(ANA, "table", "facts", {})
    await opened.bindings.set_target(ANA, "project", "apollo", "table")
    yield opened
    await opened.close()


async def put(service: MemoryService, scope: Scope, text: str, **more: Any) -> None:
    await service.write(
        ANA, WriteRequest(scope=scope, source=SOURCE, content=text, kind="fact", **more)
    )


async def set_key(service: MemoryService, key: str, value: str, request: FactRequest) -> None:
    more = {"topic": request.namespace, "mode": "upsert"}
    await put(service, request.scope, fact_text(key, value), **more)


async def test_the_nearest_scope_has_the_first_word(service: MemoryService) -> None:
    orchestrator = Scope(company_id="local", agent_id="orchestrator")
    await put(service, COMPANY, "stack: [Python 3.12, Pygame]", topic="Project")
    await put(service, orchestrator, "stack: go", topic="project")
    await put(service, CODING, "stack: 3.10", topic="Project")
    await put(service, APOLLO, "stack: 47", topic="Project")
    await put(service, APOLLO, "other: x", topic="Project")
    await put(service, Scope(company_id="local", project_id="zeus"), "stack: not ours")

    found = await service.facts.get(ANA, "Stack", FactRequest(scope=WORK))
    assert (found.key, found.namespace, found.value) == ("stack", "Project", 47)
    assert (found.belongs_to, found.binding_key) == ("project apollo", "table")
    assert [(one.value, one.belongs_to, one.binding_key) for one in found.hidden] == [
        ("3.10", "agent coding", "default"),
        ("go", "agent orchestrator", "default"),
        (["Python 3.12", "Pygame"], "company local", "default"),
    ]
    assert found.why == (
        "Project apollo comes before agent coding and agent orchestrator and company local; table "
        "holds it (for the project apollo)."
    )
    page = await service.log.page(ANA, Filter(operation_type=OperationType.GET))
    told = {one.operation_id: one for one in page.operations}
    assert set(found.operation_ids) == told.keys()
    assert {one.binding_key for one in told.values()} == {"table", "default"}
    assert sum(one.result_count or 0 for one in told.values()) == 4

    agents = Caller(company_id="local", principal="agent:coding", channel="test")
    whole = await service.facts.get(agents, "stack", FactRequest(scope=COMPANY))
    assert whole.value == ["Python 3.12", "Pygame"]
    assert whole.record.text.startswith("[MEMORY id=")
    assert whole.written == "[Python 3.12, Pygame]"
    assert not whole.hidden

    keys = await service.facts.keys(ANA, FactRequest(scope=WORK, namespace="PROJECT"))
    assert [(one.key, one.value, len(one.hidden)) for one in keys.facts] == [
        ("other", "x", 0),
        ("stack", 47, 3),
    ]


async def test_a_key_in_several_namespaces(service: MemoryService) -> None:
    await put(service, CODING, "branch: main", topic="Deploy")
    await put(service, CODING, "branch: dev", topic="Work")
    await put(service, COMPANY, "branch: trunk")
    with pytest.raises(Invalid, match="Deploy, Work"):
        await service.facts.get(ANA, "branch", FactRequest(scope=CODING))
    found = await service.facts.get(ANA, "branch", FactRequest(scope=CODING, namespace="work"))
    assert (found.value, found.hidden, found.other_namespaces) == ("dev", (), ())
    with pytest.raises(NotFound, match="No fact has the key nothing"):
        await service.facts.get(ANA, "nothing", FactRequest(scope=CODING))


async def test_a_binding_that_does_not_answer_is_named(service: MemoryService) -> None:
    await put(service, COMPANY, "stack: wide")
    await put(service, WORK, "stack: near")
    await put(service, APOLLO, "stack: stray", binding_key="default")
    everywhere = FactRequest(scope=WORK, all_bindings=True)
    found = await service.facts.get(ANA, "stack", everywhere)
    assert [found.value, *(one.value for one in found.hidden)] == ["near", "stray", "wide"]
    assert [one.value for one in (await service.facts.keys(ANA, everywhere)).facts] == ["near"]
    await service.bindings.update(ANA, "table", enabled=False)
    found = await service.facts.get(ANA, "stack", FactRequest(scope=WORK))
    assert found.value == "wide"
    assert "The binding table is disabled" in found.problems[0].message


async def test_a_key_is_given_another_value(service: MemoryService) -> None:
    for scope in (CODING, APOLLO):  # one keeps the past, the other does not
        request = FactRequest(scope=scope, namespace="Project")
        await set_key(service, "branch", "main", request)
        between = datetime.now(UTC)
        other_case = FactRequest(scope=scope, namespace="project")
        await set_key(service, "branch", "dev", other_case)
        await set_key(service, "branch", "release", FactRequest(scope=scope))
        page = await service.browse(ANA, BrowseRequest(scope=scope))
        assert [one.text for one in page.records] == ["branch: release"]
        found = await service.facts.get(ANA, "branch", request)
        assert found.value == "release"
        history = await service.history(ANA, found.record.handle, scope)
        assert len(history.changes) == 3
        then = await service.facts.get(ANA.at(between), "branch", request)
        assert (then.value, then.as_of) == ("main", between)
    with pytest.raises(Invalid, match="A key has letters"):
        await set_key(service, "two words", "x", request)


async def test_patterns_come_from_windows_and_from_what_memtui_changed(
    service: MemoryService,
) -> None:
    await put(service, COMPANY, "stack: go", topic="Project")
    for scope in (CODING, APOLLO):  # one keeps windows, the other does not
        request = FactRequest(scope=scope, namespace="Project")
        for value in ("a", "b", "c", "d"):
            await set_key(service, "branch", value, request)
    await set_key(service, "stack", "c", FactRequest(scope=APOLLO, namespace="Project"))
    found = await service.patterns.find(ANA, PatternRequest(scope=COMPANY))
    assert [(one.kind, one.key) for one in found.patterns] == [
        ("disagrees", "stack"), ("changes_often", "branch"), ("changes_often", "branch"),
    ]  # fmt: skip
    assert "project apollo in table says “c”" in found.patterns[0].sentence.lower()
    assert {one.versions[0].binding_key for one in found.patterns[1:]} == {"default", "table"}
    for often in found.patterns[1:]:
        assert [one.record.text[-1] for one in often.versions] == ["a", "b", "c", "d"]
    plan = (await service.pruning.plan(ANA, PruneRequest(scope=APOLLO))).plan
    reasons = {one.record.text: one for one in plan.candidates if one.reason == "changes_often"}
    assert reasons["branch: d"].sentence.startswith("It changed 3 times in 90 days: “a”")
    assert not reasons["branch: d"].suggested
    await service.bindings.update(ANA, "table", enabled=False)
    less = await service.patterns.find(ANA, PatternRequest(scope=COMPANY))
    assert [one.key for one in less.patterns] == ["branch"]
    assert len(less.operation_ids) == 1


PLACES = [pytest.param(CODING, id="vault"), pytest.param(APOLLO, id="table")]
"""One keeps the past by itself, the other does not."""


async def texts(service: MemoryService, scope: Scope) -> list[str]:
    page = await service.browse(ANA, BrowseRequest(scope=scope, filter=Filter(kind="fact")))
    return sorted(one.text for one in page.records)


@pytest.mark.parametrize("scope", PLACES)
@pytest.mark.parametrize(
    "text", ["deploy_branch: x", "Deploy_Branch: x", "  deploy_branch:  x", "deploy_branch:x"]
)
async def test_a_write_of_a_key_that_stands_is_a_change_of_it(
    service: MemoryService, scope: Scope, text: str
) -> None:
    request = FactRequest(scope=scope, namespace="Project")
    await set_key(service, "deploy_branch", "main", request)
    first = (await service.facts.get(ANA, "deploy_branch", request)).record
    await service.correct(
        ANA, CorrectRequest(scope=scope, handle=first.handle, pinned=True, tags=("ops",))
    )
    between = datetime.now(UTC)
    write = WriteRequest(scope=scope, source=SOURCE, content=text, kind="fact", tags=("live",))
    answer = await service.write(ANA, write)
    if text == "deploy_branch:x":  # without a space it is no key
        assert answer.was is None
        assert await texts(service, scope) == ["deploy_branch: main", "deploy_branch:x"]
        return
    assert answer.was == "deploy_branch: main"
    found = (await service.facts.get(ANA, "deploy_branch", request)).record
    assert (found.handle, found.text) == (first.handle, "deploy_branch: x")
    assert (found.pinned, found.tags, found.topic) == (True, ("ops", "live"), "Project")
    assert await texts(service, scope) == ["deploy_branch: x"]
    then = await service.facts.get(ANA.at(between), "deploy_branch", request)
    assert then.value == "main"
    await service.undo(ANA, answer.operation_id)
    again = (await service.facts.get(ANA, "deploy_branch", request)).record
    assert (again.text, again.tags, again.pinned) == ("deploy_branch: main", ("ops",), True)


@pytest.mark.parametrize("scope", PLACES)
async def test_a_key_that_stands_several_times_is_not_written(
    service: MemoryService, scope: Scope
) -> None:
    for topic in ("Deploy", "Work"):
        await put(service, scope, "branch: main", topic=topic)
    for write in (
        put(service, scope, "branch: x"),
        set_key(service, "branch", "x", FactRequest(scope=scope)),
    ):
        with pytest.raises(Conflict, match=r"has branch already 2 times, as .+ and .+"):
            await write
    assert await texts(service, scope) == ["branch: main"] * 2
    await put(service, scope, "branch: x", topic="work")  # its heading says which one
    await put(service, scope, "branch: y", topic="")  # under no heading there is none
    assert await texts(service, scope) == ["branch: main", "branch: x", "branch: y"]


async def test_a_window_of_a_key_is_one_of_the_fact_that_has_it(service: MemoryService) -> None:
    past, until = (datetime(2026, month, 1, tzinfo=UTC) for month in (1, 3))
    await put(service, CODING, "branch: main", topic="Project", pinned=True)
    await put(service, CODING, "branch: old", valid_from=past, valid_to=until)
    assert await texts(service, CODING) == ["branch: main"]
    then = await service.facts.get(
        ANA.at(until.replace(day=1, month=2)), "branch", FactRequest(scope=CODING)
    )
    assert then.value == "old"
    now = (await service.facts.get(ANA, "branch", FactRequest(scope=CODING))).record
    assert (now.text, now.pinned) == ("branch: main", True)


@pytest.mark.parametrize("scope", PLACES)
async def test_an_agents_change_of_a_key_meets_review_as_a_change(
    service: MemoryService, scope: Scope
) -> None:
    key = "table" if scope is APOLLO else "default"
    await put(service, scope, "branch: main", topic="Project")
    await service.review.add_rule(
        ANA, key, ReviewRule(action=RuleAction.HOLD, test=RuleTest.CONTRADICTION)
    )
    bot = Caller(company_id="local", principal="agent:bot", channel="mcp")
    write = WriteRequest(scope=scope, source=SOURCE, content="branch: x", kind="fact")
    held = (await service.write(bot, write)).pending
    assert held is not None
    assert await texts(service, scope) == ["branch: main"]
    shown = await service.review.show(ANA, held.pending_id)
    assert [one.text for one in shown.changes] == ["branch: main"]
    [difference] = shown.differences
    assert difference.before
    assert difference.after
    assert (difference.before.text, difference.after.text) == ("branch: main", "branch: x")
    await service.review.accept(ANA, held.pending_id)
    assert await texts(service, scope) == ["branch: x"]


async def test_changing_a_key_needs_the_right_to_change(service: MemoryService) -> None:
    await put(service, APOLLO, "branch: main")
    for principal, role in (("user:ana", Role.OWNER), ("user:ben", Role.MEMBER)):
        await service.members.set(ANA, Membership(principal=principal, role=role))
    agent = Caller(company_id="local", principal="agent:coding", acts_for="user:ben", channel="mcp")
    new = WriteRequest(scope=APOLLO, source=SOURCE, content="tests: pytest", kind="fact")
    await service.write(agent, new)
    with pytest.raises(Denied):
        await service.write(agent, new.model_copy(update={"content": "branch: x"}))
    assert await texts(service, APOLLO) == ["branch: main", "tests: pytest"]


@pytest.mark.parametrize("provider", ["vault", "facts", "milvus"])
async def test_merging_loses_nothing_and_is_undone_at_once(
    service: MemoryService, provider: str
) -> None:
    await service.bindings.add(ANA, "merged", provider, {})
    ana = Scope(company_id="local", subject_id="ana")
    ends = datetime(2030, 1, 1, tzinfo=UTC)
    await put(service, ana, "branch: main", binding_key="merged", expires_at=ends, tags=("a",))
    await put(service, ana, "deploy: main", binding_key="merged", pinned=True, tags=("b",))
    browse = BrowseRequest(scope=ana, binding_key="merged", sort="created_at")

    async def kept() -> list[tuple[object, ...]]:
        records = (await service.browse(ANA, browse)).records
        return [(one.text, one.pinned, one.tags, one.expires_at) for one in records]

    before = await kept()
    survivor, other = (await service.browse(ANA, browse)).records
    refused = partial(merge, service, ANA, survivor, [other], binding_key="merged")
    with pytest.raises(Invalid, match="one line"):
        await refused(text="two\nlines")
    assert await kept() == before
    survivor, other = (await service.browse(ANA, browse)).records
    await merge(service, ANA, survivor, [other], binding_key="merged", text="deploy: release")
    assert await kept() == [("deploy: release", True, ("a", "b"), None)]
    await service.undo_together(ANA)
    assert sorted(await kept(), key=str) == sorted(before, key=str)


async def test_a_fact_lacks_nothing_because_of_old_vectors(service: MemoryService) -> None:
    await service.bindings.add(ANA, "vectors", "milvus", {})
    await put(service, APOLLO, "branch: main", binding_key="vectors")
    running = Embeddings()
    try:
        await service.bindings.update(ANA, "vectors", config={"embedding": running.embedding})
        request = FactRequest(scope=APOLLO, binding_key="vectors")
        assert (await service.facts.get(ANA, "branch", request)).problems == ()
        query = QueryRequest(scope=APOLLO, query="branch", binding_key="vectors")
        assert "needs a re-index" in (await service.query(ANA, query)).problems[0].message
    finally:
        running.stop()
