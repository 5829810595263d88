"""One question, and one list, over a vault, a fact table, a Milvus file and a plugin that hangs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memtui.config import Paths, load_settings
from memtui.contract import (
    BrowsePage,
    BrowseRequest,
    Denied,
    Filter,
    Invalid,
    OperationStatus,
    OperationType,
    QueryRequest,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    Use,
    UseTest,
    WriteRequest,
)
from memtui.service import Caller, Membership, MemoryService, Role, open_service
from memtui.service.answers import BrowseAnswer, QueryAnswer
from memtui.service.operations.everywhere import RANK_CONSTANT, WEIGHTS
from memtui.service.operations.uses import UsedRecords
from tests.backends.plugin_v1.servers.loopback import Request, serve, talk
from tests.backends.plugin_v1.servers.reference import Reference

pytestmark = pytest.mark.slow

ANA = Caller(company_id="local", principal="user:ana", channel="test")
BEN = Caller(company_id="local", principal="user:ben", channel="test")
COMPANY = Scope(company_id="local")
WEB = Scope(company_id="local", project_id="web")
CODING = WEB.model_copy(update={"agent_id": "coding"})
DAY = timedelta(days=1)
LIMIT = 1_500
"""Milliseconds that a binding gets where one hangs."""


class Plugin(Reference):
    """A plugin that answers until it hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = False

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> bool:  # type: ignore[override]
        if self.hangs and request.path == "/v1/search":
            await asyncio.Event().wait()
        return await talk(super().__call__)(request, writer)


@pytest.fixture
async def plugin() -> AsyncIterator[tuple[Plugin, str]]:
    server = Plugin()
    async with serve(server) as url:
        yield server, url


@pytest.fixture
async def service(paths: Paths, plugin: tuple[Plugin, str]) -> AsyncIterator[MemoryService]:
    settings = load_settings(paths, principal="user:ana", scope_weights={"agent": 0.6})
    opened = await open_service(paths, settings)
    await opened.bindings.add(ANA, "table", "facts", {})
    await opened.bindings.add(ANA, "plugin", "plugin-v1", {"url": plugin[1]})
    yield opened
    await opened.close()


async def write(
    service: MemoryService, text: str, binding: str, scope: Scope = WEB, **fields: object
) -> str:
    source = SourceRef(kind=SourceKind.ISSUE, company_id="local", issue_id=f"in-{binding}")
    values = {"scope": scope, "source": source, "content": text, "binding_key": binding}
    answer = await service.write(ANA, WriteRequest.model_validate(values | fields))
    return answer.handles[0].provider_record_id


async def query(service: MemoryService, text: str, **fields: object) -> Any:
    request = QueryRequest.model_validate({"scope": WEB, "query": text, **fields})
    return await service.everywhere.query(ANA, request, within_ms=10_000)


async def test_what_hangs_is_named_and_the_other_answers_stand(
    service: MemoryService, plugin: tuple[Plugin, str], tmp_path: Path
) -> None:
    await service.bindings.add(ANA, "file", "milvus", {"path": str(tmp_path / "milvus.db")})
    await write(service, "release_manager: Bo", "file", kind="fact")
    await write(service, "The release train leaves on Thursdays", "default")
    await write(service, "release_day: Thursday", "table", kind="fact")
    await write(service, "A release needs two reviews", "plugin")
    request = QueryRequest(scope=WEB, query="when is the release")
    assert len((await service.everywhere.query(ANA, request)).snippets) == 4

    plugin[0].hangs = True
    told: list[QueryAnswer] = []
    answer = await service.everywhere.query(ANA, request, within_ms=LIMIT, so_far=told.append)
    assert set(map(answer.binding_of, answer.snippets)) == {"default", "table", "file"}
    [failed] = answer.failed
    assert (failed.binding_key, failed.error_kind) == ("plugin", "unavailable")
    assert failed.reason.startswith("plugin did not answer within 1.5 s; ")
    assert [len(one.snippets) for one in told] == [1, 2, 3, 3]  # as they came
    assert [len(one.failed) for one in told] == [0, 0, 0, 1]

    page = await service.log.page(ANA, Filter(operation_type=OperationType.QUERY))
    mine = [one for one in page.operations if one.request.get("together") == answer.together]
    assert {one.binding_key: str(one.status) for one in mine} == {
        "default": "ok", "table": "ok", "file": "ok", "plugin": "error",
    }  # fmt: skip
    first, *others = mine[::-1]  # in the order of the log
    assert [one.part_of for one in mine[::-1]] == [None, *[first.operation_id] * 3]
    queries = Filter(operation_type=OperationType.QUERY)
    folded = await service.log.page(ANA, queries, folded=True)
    assert folded.operations[0] == first
    assert (folded.total, page.total) == (2, 8)
    failures = await service.log.page(ANA, Filter(status=OperationStatus.ERROR), folded=True)
    assert (failures.folded, failures.operations) == (False, (others[-1],))
    parts = (await service.log.parts(ANA, folded.operations))[first.operation_id]
    assert parts.operations == (first, *others)
    assert (parts.bindings, parts.failed, parts.lead.status) == (4, 1, OperationStatus.OK)
    assert parts.result_count == sum(one.result_count for one in mine)
    assert parts.latency_ms == max(one.latency_ms or 0 for one in mine) >= LIMIT

    for _ in range(2):  # at the third time its breaker opens, and nobody waits for it
        with suppress(Unavailable):
            await service.everywhere.query(ANA, request, within_ms=200)
    last = (await service.everywhere.query(ANA, request)).bindings
    assert "failed 3 times in a row" in {one.binding_key: one.reason for one in last}["plugin"]


async def test_who_sees_only_some_operations_of_a_question_has_these_and_no_count_of_others(
    service: MemoryService,
) -> None:
    cara = Caller(company_id="local", principal="user:cara", channel="test")
    for one in (ANA, cara):
        await service.members.set(ANA, Membership(principal=one.principal, role=Role.OWNER))
    private = Scope(company_id="local", subject_id="cara")
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
    tea = WriteRequest(scope=private, source=source, content="Cara likes tea", binding_key="table")
    await service.write(cara, tea.model_copy(update={"kind": "fact"}))
    await service.everywhere.query(cara, QueryRequest(scope=COMPANY, query="tea"))
    queries = Filter(operation_type=OperationType.QUERY)
    flat = (await service.log.page(cara, queries)).operations
    assert {one.binding_key for one in flat if one.scope.subject_id} == {"table"}
    seen = tuple(one for one in flat if not one.scope.subject_id)
    assert (len(flat), (await service.log.page(ANA, queries)).operations) == (3, seen)

    own = await service.log.page(cara, queries, folded=True)
    parts = await service.log.parts(cara, own.operations)
    assert (own.total, parts[flat[-1].operation_id].bindings) == (1, 3)
    others = await service.log.page(ANA, queries, folded=True)
    parts = await service.log.parts(ANA, others.operations)
    if flat[-1] in seen:
        assert others.operations == (flat[-1],)
        assert parts[flat[-1].operation_id].operations == seen[::-1]
    else:
        assert (others.operations, parts) == (seen, {})


async def test_ranks_are_joined_by_scope_and_each_score_is_kept(service: MemoryService) -> None:
    await write(service, "Deploy from the release branch", "default")
    await write(service, "deploy   from the RELEASE branch", "plugin")
    await write(
        service, "Deploy after lunch", "plugin", Scope(company_id="local", agent_id="coding")
    )
    await write(service, "Deploy on weekdays", "plugin", COMPANY)
    answer = await query(service, "deploy", scope=CODING)
    first, *others = answer.snippets
    assert [one.binding_key for one in first.places] == ["default", "plugin"]
    assert [one.source.issue_id for one in first.places if one.source] == [
        "in-default",
        "in-plugin",
    ]
    assert first.score == pytest.approx(sum(1 / (2 + one.rank) for one in first.places))
    weights = {one.text: one.places[0].weight for one in others}
    assert weights == {"Deploy after lunch": 0.6, "Deploy on weekdays": 0.4}
    assert first.places[0].score == 1.0  # the vault's own
    stages = {one.name: one.scores for one in answer.stages if ": " not in one.name}
    assert list(stages) == ["bindings", "own ranks", "scope", "rank fusion", "same text"]
    assert stages["rank fusion"][f"default {first.handle.provider_record_id}"] == first.score


async def test_of_facts_with_one_key_the_nearest_scope_s_is_shown(service: MemoryService) -> None:
    await write(service, "deploy_branch: main", "default", COMPANY, kind="fact")
    near = await write(service, "deploy_branch: release", "table", kind="fact")
    await write(service, "Branches are cut by hand", "default")
    answer = await query(service, "deploy branch")
    assert answer.snippets[0].handle.provider_record_id == near
    assert "deploy_branch: main" not in {one.text for one in answer.snippets}
    [hidden] = answer.hidden
    assert (hidden.text, hidden.key) == ("deploy_branch: main", "deploy_branch")
    assert (hidden.hidden_by.provider_record_id, hidden.hidden_by_binding) == (near, "table")
    whole = await query(service, "deploy branch", scope=COMPANY)
    assert not whole.hidden  # for everybody, no scope is nearer


async def test_the_page_tells_of_every_stage_and_weight(service: MemoryService) -> None:
    page = Path("docs/all-bindings.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([a-z ]+)` \| (.*) \|$", page, re.MULTILINE))
    weights = {name: f"{weight:.1f}" for name, weight in WEIGHTS.items()}
    assert weights == {name: told for name, told in rows.items() if name in WEIGHTS}
    await write(service, "deploy_branch: main", "default", COMPANY, kind="fact", topic="ci")
    for binding in ("table", "plugin"):
        await write(service, "deploy_branch: release", binding, kind="fact", topic="ci")
    stages = (await query(service, "deploy branch", topic="art")).stages
    joining = [one.name for one in stages if ": " not in one.name]
    assert joining == [name for name in rows if name not in WEIGHTS]
    assert {one.name.partition(": ")[0] for one in stages if ": " in one.name} >= {"default"}
    assert f"/ ({RANK_CONSTANT} + rank)" in rows["rank fusion"]


async def test_a_topic_comes_first_and_all_topics_where_it_has_too_little(
    service: MemoryService,
) -> None:
    await write(service, "The cache is cleared nightly", "default", topic="ops")
    await write(service, "The cache is warmed", "plugin", topic="ops")
    await write(service, "The cache holds sprites", "default", topic="art")
    few = await query(service, "cache", topic="ops")
    assert (len(few.snippets), few.all_topics) == (3, True)
    assert few.stages[-1].detail.startswith("Fewer than 3 of the topic ops")
    await write(service, "The cache lies in memory", "plugin", topic="ops")
    enough = await query(service, "cache", topic="ops")
    assert ({one.topic for one in enough.snippets}, enough.all_topics) == ({"ops"}, False)


async def test_one_list_over_all_in_one_order_and_each_record_in_its_own_binding(
    service: MemoryService, plugin: tuple[Plugin, str]
) -> None:
    day = datetime(2026, 1, 1, tzinfo=UTC)
    written = [
        (
            binding,
            await write(service, f"{binding} {n}", binding, created_at=day + DAY * n),
        )
        for n in range(6)
        for binding in ("default", "table")
    ]
    written += [("plugin", await write(service, f"Note {number}", "plugin")) for number in range(3)]

    async def listed(limit: int) -> list[tuple[str, str]]:
        request = BrowseRequest(scope=COMPANY, sort="created_at", limit=limit)
        found: list[tuple[str, str]] = []
        moments: list[datetime] = []
        while True:
            page = await service.everywhere.browse(ANA, request)
            assert len(page.records) <= limit
            found += [(page.binding_of(one), one.handle.provider_record_id) for one in page.records]
            moments += [one.created_at for one in page.records if one.created_at]
            if page.next_cursor is None:
                assert moments == sorted(moments)
                return found
            if len(found) == limit == 4:  # what comes between two pages hides and repeats nothing
                await write(service, "Early", "default", created_at=day)
                await write(service, "Early too", "table", created_at=day - DAY)
            request = request.model_copy(update={"cursor": page.next_cursor})

    assert sorted(await listed(100)) == sorted(written)
    assert sorted(await listed(4)) == sorted(written)

    plugin[0].hangs = True
    request = BrowseRequest(scope=COMPANY, limit=7)
    told: list[BrowseAnswer] = []
    page = await service.everywhere.browse(ANA, request, within_ms=LIMIT, so_far=told.append)
    assert [len(one.records) for one in told][1:] == [7, 7]
    assert told[-1].records == page.records
    assert (page.at_least, [one.binding_key for one in page.failed]) == (True, ["plugin"])
    assert set(map(page.binding_of, page.records)) == {"default", "table"}
    with pytest.raises(Invalid, match="Cannot sort by nonsense"):
        await service.everywhere.browse(ANA, BrowseRequest(scope=COMPANY, sort="nonsense"))
    with pytest.raises(Invalid, match="start from the first page"):
        await service.everywhere.browse(ANA, request.model_copy(update={"cursor": "x"}))


async def test_what_repeats_is_told_of_the_records_that_could_be_read_in_time(
    service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("Deploys are on Mondays", "deploys are on mondays", "Ana likes tea"):
        await write(service, text, "table", kind="fact")
    read = UsedRecords._read

    async def stalls(used: UsedRecords, chosen: Filter, cursor: str | None) -> BrowsePage:
        if cursor is not None:
            await asyncio.Event().wait()
        return await read(used, chosen, cursor)

    monkeypatch.setattr(UsedRecords, "_read", stalls)
    monkeypatch.setattr("memtui.service.operations.uses._AT_ONCE", 2)
    chosen = Filter(uses=(UseTest(use=Use.DUP),), binding_key="table")
    request = BrowseRequest(scope=WEB, filter=chosen, sort="created_at")
    told: list[tuple[int, int | None]] = []
    page = await service.everywhere.browse(
        ANA, request, within_ms=1_500, report=lambda *one: told.append(one)
    )
    [one] = page.records
    assert one.text.casefold() == "deploys are on mondays"
    [outcome] = page.bindings
    assert outcome.status == "ok"
    assert outcome.unread[0].startswith("table: 2 of 3 records were read in time and compared")
    assert page.at_least
    assert told == [(2, 3), (2, 2)]

    stalled = 0

    async def stalls_once(used: UsedRecords, chosen: Filter, cursor: str | None) -> BrowsePage:
        nonlocal stalled
        stalled += cursor is not None
        if stalled == 1:
            await asyncio.Event().wait()
        return await read(used, chosen, cursor)

    monkeypatch.setattr(UsedRecords, "_read", stalls_once)
    chosen = Filter(uses=(UseTest(use=Use.READ),), binding_key="table")
    request = BrowseRequest(scope=WEB, filter=chosen, sort="created_at")
    page = await service.everywhere.browse(ANA, request, within_ms=1_500)
    assert len(page.records) == 3, "what was not read in time was asked for again"


async def test_tags_are_counted_and_found_over_all_scopes_and_bindings(
    service: MemoryService, plugin: tuple[Plugin, str]
) -> None:
    await write(service, "Ship it #ops/cron", "default", tags=("Ops",))
    await write(service, "All of it ships", "default", COMPANY, tags=("ops", "OPS"))
    await write(service, "ships: yes", "table", kind="fact", tags=("ops",))
    moon = Scope(company_id="local", project_id="moon")
    await write(service, "moon: full", "table", moon, kind="fact", tags=("sky",))
    everything = BrowseRequest(scope=COMPANY, sort="created_at", limit=2)

    async def counted(caller: Caller, scope: Scope = COMPANY) -> dict[str, dict[str, int]]:
        answer = await service.tags.counts(caller, scope)
        assert all(sum(one.by_binding.values()) == one.records for one in answer.tags)
        return {one.tag: one.by_binding for one in answer.tags}

    async def having(caller: Caller, tag: str) -> list[str]:
        texts, cursor = [], None
        while True:
            request = everything.model_copy(update={"cursor": cursor, "filter": Filter(tag=tag)})
            page = await service.everywhere.browse(caller, request, seen_only=True)
            texts += [one.text for one in page.records]
            if (cursor := page.next_cursor) is None:
                return texts

    assert list((await counted(ANA)).items()) == [
        ("Ops", {"default": 2, "table": 1}),
        ("ops/cron", {"default": 1}),
        ("sky", {"table": 1}),
    ]
    assert await counted(ANA, moon) == {"sky": {"table": 1}}
    assert await having(ANA, "ops") == ["Ship it #ops/cron", "All of it ships", "ships: yes"]
    assert await having(ANA, "ops/cron") == ["Ship it #ops/cron"]

    await service.members.set(ANA, Membership(principal="user:ana", role=Role.OWNER))
    of_web = Membership(principal="user:ben", role=Role.MEMBER, project_id="web")
    await service.members.set(ANA, of_web)
    assert await counted(BEN) == {
        "Ops": {"default": 2, "table": 1}, "ops/cron": {"default": 1},
    }  # fmt: skip
    assert await having(BEN, "sky") == []
    with pytest.raises(Denied, match="You are not a member of moon"):
        await service.tags.counts(BEN, moon)

    plugin[0].hangs = True
    answer = await service.tags.counts(ANA, COMPANY, within_ms=LIMIT)
    assert [one.binding_key for one in answer.failed] == ["plugin"]
    assert (answer.at_least, len(answer.tags)) == (True, 3)
    page = await service.log.page(ANA, Filter(operation_type=OperationType.BROWSE))
    mine = [one for one in page.operations if one.request.get("together") == answer.together]
    assert sorted(str(one.binding_key) for one in mine) == ["default", "plugin", "table"]


async def test_each_is_asked_by_the_rights_of_who_asks(
    service: MemoryService, plugin: tuple[Plugin, str]
) -> None:
    request = QueryRequest(scope=WEB, query="release")
    named = request.model_copy(update={"binding_key": "table"})
    with pytest.raises(Invalid, match="leave out its name"):
        await service.everywhere.query(ANA, named)
    await write(service, "The release of the web", "default")
    await service.bindings.set_target(ANA, "project", "moon", "table")
    await service.members.set(ANA, Membership(principal="user:ana", role=Role.OWNER))
    of_web = Membership(principal="user:ben", role=Role.MEMBER, project_id="web")
    await service.members.set(ANA, of_web)
    assert [one.binding_key for one in (await query(service, "release")).bindings] == [
        "default", "table", "plugin",
    ]  # fmt: skip
    answer = await service.everywhere.query(BEN, request)
    assert [one.binding_key for one in answer.bindings] == ["default", "plugin"]
    assert [one.text for one in answer.snippets] == ["The release of the web"]
    moon = QueryRequest(scope=WEB.model_copy(update={"project_id": "moon"}), query="release")
    with pytest.raises(Denied, match="You are not a member of moon"):
        await service.everywhere.query(BEN, moon)
    stranger = BEN.model_copy(update={"principal": "user:eve"})
    with pytest.raises(Denied, match="not a member here"):
        await service.everywhere.query(stranger, request)

    for key in ("default", "table"):
        await service.bindings.update(ANA, key, enabled=False)
    plugin[0].hangs = True
    with pytest.raises(Unavailable, match=r"No binding answered\. plugin did not answer"):
        await service.everywhere.query(ANA, request, within_ms=100)
