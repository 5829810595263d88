from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from memtui.config import Paths, Settings
from memtui.contract import (
    BrowseRequest,
    Capabilities,
    ContextBundle,
    CorrectRequest,
    ExplainStage,
    Explanation,
    Filter,
    ForgetRequest,
    Invalid,
    MemtuiError,
    Namespace,
    NotFound,
    OperationStatus,
    OperationType,
    Profile,
    QueryIntent,
    QueryRequest,
    RecordHandle,
    RecordVersion,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    Unsupported,
    Usage,
    WriteMode,
    WriteRequest,
)
from memtui.service import Caller, CompanyView, MemoryService, Operation, open_service
from memtui.store.digest import is_intact
from tests.service.conftest import start
from tests.service.fake import FakeAdapter, down

SPENT = (Usage(provider="fake", model="m", input_tokens=7, cost_usd="0.001"),)


class RichAdapter(FakeAdapter):
    """The provider in memory, with every optional read."""

    key: ClassVar[str] = "rich"

    def __init__(self, context) -> None:
        super().__init__(context)
        self.capabilities = Capabilities(
            browse=True,
            explain=True,
            history=True,
            namespaces=True,
            correction=True,
            restore=True,
            profile=True,
        )

    async def explain(self, request: QueryRequest) -> Explanation:
        await self._called("explain")
        return Explanation(stages=(ExplainStage(name="words", detail="2 match"),), usage=SPENT)

    async def query(self, request: QueryRequest) -> ContextBundle:
        bundle = await super().query(request)
        scores = dict.fromkeys(self.held, 2.0)
        stages = (ExplainStage(name="words", detail="all", scores=scores),)
        return bundle.model_copy(update={"stages": stages})

    async def history(self, handle: RecordHandle, scope: Scope) -> Sequence[RecordVersion]:
        await self._called("history")
        return [RecordVersion(text="older", source=None)]

    async def profile(self, scope: Scope) -> Profile:
        await self._called("profile")
        return Profile(summary=f"{scope.project_id} likes tea", usage=SPENT)

    async def namespaces(self) -> Sequence[Namespace]:
        await self._called("namespaces")
        return [Namespace(name="project:p", kind="project", records=1)]


@pytest.fixture
async def rich(
    paths: Paths, settings: Settings, caller: Caller, fake
) -> AsyncIterator[MemoryService]:
    opened = await open_service(
        paths,
        settings,
        providers={"rich": RichAdapter},
        first_company=False,
    )
    await opened.companies.add(caller, "Acme")
    await opened.bindings.add(caller, "default", "rich", {})
    await opened.bindings.set_target(caller, "company", "acme", "default")
    yield opened
    await opened.close()


async def newest(service: MemoryService, caller: Caller) -> Operation:
    return (await service.log.page(caller, limit=1)).operations[0]


async def test_a_query_is_recorded_with_all_of_it(
    service: MemoryService, caller: Caller, scope: Scope, note: WriteRequest, fake
) -> None:
    handle = (await service.write(caller, note)).handles[0]
    fake.usage = SPENT
    answer = await service.query(
        caller,
        QueryRequest(scope=scope, query="deploy", top_k=3, topic="ci", metadata_filter={"a": 1}),
    )
    operation = await newest(service, caller)
    assert operation.operation_id == answer.operation_id
    assert (operation.operation_type, operation.status) == ("query", "ok")
    assert operation.request == {
        "query": "deploy",
        "intent": "answer",
        "top_k": 3,
        "topic": "ci",
        "metadata_filter": {"a": 1},
        "all_topics": True,
    }
    assert [(h.rank, h.provider_record_id, h.score) for h in operation.handles] == [
        (1, handle.provider_record_id, 1.0)
    ]
    assert (operation.usage, operation.result_count) == (SPENT * 2, 1)  # one has too little of it
    assert (operation.binding_key, operation.binding_reason) == ("default", "company default")
    assert (operation.principal, operation.channel) == ("user:ana", "test")
    assert operation.latency_ms == answer.latency_ms
    assert is_intact(operation)


async def test_a_filter_holds_for_queries_of_a_provider_that_does_not_narrow(
    service: MemoryService, caller: Caller, scope: Scope, note: WriteRequest, fake
) -> None:
    for number in range(60):
        tags = ("ci",) if number >= 57 else ()
        await service.write(caller, note.model_copy(update={"tags": tags}))
    fake.usage = SPENT
    chosen = Filter(tag="ci", source_kind="manual_note", since=datetime(2000, 1, 1, tzinfo=UTC))
    undated = QueryRequest(scope=scope, query="deploy", top_k=2, filter=chosen)
    assert (await service.query(caller, undated)).snippets == ()

    asked = undated.model_copy(update={"filter": Filter(tag="ci", fuzzy=("dply",))})
    answer = await service.query(caller, asked)
    assert [one.tags for one in answer.snippets] == [("ci",)] * 2
    assert answer.capped
    assert [one.top_k for one in fake.received[-3:]] == [2, 50, 200]
    assert answer.usage == SPENT * 3
    operation = await newest(service, caller)
    assert (operation.result_count, operation.request["filter"]) == (
        2,
        {"tag": "ci", "fuzzy": ["dply"]},
    )
    assert is_intact(operation)


async def test_a_query_leaves_without_its_secrets(
    service: MemoryService, caller: Caller, scope: Scope, fake
) -> None:
    secret = "ghp_" + "a1B2" * 9
    request = QueryRequest(
        scope=scope, query=f"who uses {secret}", topic=secret, metadata_filter={"password": "x y z"}
    )
    await service.query(caller, request)
    await service.browse(caller, BrowseRequest(scope=scope, filter=Filter(text=secret)))
    assert all(secret not in one.model_dump_json() for one in fake.received)
    assert fake.received[0].metadata_filter == {"password": "[REDACTED:PASSWORD]"}
    for operation in (await service.log.page(caller, limit=2)).operations:
        assert secret not in operation.model_dump_json()


async def test_a_score_that_no_database_holds_leaves_the_chain_intact(
    service: MemoryService, caller: Caller, scope: Scope, note: WriteRequest, monkeypatch
) -> None:
    await service.write(caller, note)
    asked = FakeAdapter.query

    async def query(self, request):
        bundle = await asked(self, request)
        scored = tuple(s.model_copy(update={"score": math.nan}) for s in bundle.snippets)
        return ContextBundle(snippets=scored, capped=True)

    monkeypatch.setattr(FakeAdapter, "query", query)
    await service.query(caller, QueryRequest(scope=scope, query="deploy"))
    operation = await newest(service, caller)
    assert (operation.handles[0].score, operation.capped) == (None, True)
    assert is_intact(operation)


async def test_the_stages_of_an_answer_are_logged_by_rank(
    rich: MemoryService, caller: Caller, scope: Scope, note: WriteRequest
) -> None:
    for content in ("we deploy on Monday", "we deploy on Friday"):
        await rich.write(caller, note.model_copy(update={"content": content}))
    answer = await rich.query(caller, QueryRequest(scope=scope, query="deploy", top_k=1))
    [found] = answer.snippets
    name = found.handle.provider_record_id
    assert [stage.scores for stage in answer.stages] == [{name: 2.0}], "of what is found alone"
    logged = await rich.log.get(caller, answer.operation_id)
    assert logged.request["stages"] == [{"name": "words", "detail": "all", "scores": [2.0]}]
    assert logged.stages == answer.stages
    odd = logged.model_copy(update={"request": {"stages": [{"name": 1}, "x"]}})
    assert odd.stages == ()


async def test_get_browse_history_explain_and_namespaces_are_recorded(
    rich: MemoryService, caller: Caller, scope: Scope, note: WriteRequest
) -> None:
    handle = (await rich.write(caller, note)).handles[0]
    assert (await rich.get(caller, handle.provider_record_id, scope)).record.text == note.content
    page = await rich.browse(caller, BrowseRequest(scope=scope, filter=Filter(text="deploy")))
    assert (len(page.records), page.total) == (1, 1)
    history = await rich.history(caller, handle, scope)
    assert [change.operation.operation_type for change in history.changes] == ["write"]
    assert [version.text for version in history.versions] == ["older"]
    explained = await rich.explain(caller, QueryRequest(scope=scope, query="deploy"))
    assert explained.explanation.stages[0].name == "words"
    assert [space.name for space in await rich.namespaces.all(caller)] == ["project:p"]
    operations = (await rich.log.page(caller, limit=5)).operations
    assert [(o.operation_type, o.status, o.result_count) for o in operations] == [
        ("namespaces", "ok", 1),
        ("explain", "ok", 0),
        ("history", "ok", 2),
        ("browse", "ok", 1),
        ("get", "ok", 1),
    ]
    assert operations[1].usage == SPENT
    assert operations[3].request == {
        "filter": {"text": "deploy"},
        "sort": "-updated_at",
        "limit": 100,
        "cursor": None,
    }
    assert operations[4].request == {"record_id": handle.provider_record_id}
    assert operations[4].source == note.source


@pytest.mark.parametrize(
    ("kind", "error"),
    [("explain", Unsupported), ("namespaces", Unsupported), ("get", NotFound), ("query", NotFound),
     ("history", NotFound), ("empty id", Invalid), ("down", Unavailable)],
)  # fmt: skip
async def test_a_read_that_fails_is_recorded_too(
    service: MemoryService, caller: Caller, scope: Scope, fake, kind: str, error: type[MemtuiError]
) -> None:
    request = QueryRequest(scope=scope, query="x")
    if kind == "down":
        fake.fault = down()
    calls = {
        "explain": lambda: service.explain(caller, request),
        "namespaces": lambda: service.namespaces.all(caller),
        "get": lambda: service.get(caller, "nope", scope),
        "empty id": lambda: service.get(caller, "", scope),
        "history": lambda: service.history(caller, "nope", scope),
        "query": lambda: service.query(caller, request.model_copy(update={"binding_key": "none"})),
        "down": lambda: service.query(caller, request),
    }
    before = (await service.log.page(caller)).total
    with pytest.raises(error) as caught:
        await calls[kind]()
    operation = await newest(service, caller)
    assert (await service.log.page(caller)).total == before + 1
    assert operation.status == OperationStatus.ERROR
    assert operation.error_kind == error.__name__.lower()
    assert operation.error_message == str(caught.value)


async def test_a_query_that_is_cancelled_is_recorded_as_such(
    service: MemoryService, caller: Caller, scope: Scope, fake, monkeypatch
) -> None:
    asked = asyncio.Event()

    async def query(self, request):
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(FakeAdapter, "query", query)
    task = asyncio.ensure_future(service.query(caller, QueryRequest(scope=scope, query="x")))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    operation = await newest(service, caller)
    assert (operation.status, operation.error_kind) == ("cancelled", "cancelled")


async def test_a_query_given_up_while_it_is_logged_is_logged_before_the_service_closes(
    paths: Paths, settings: Settings, caller: Caller, scope: Scope, fake, monkeypatch
) -> None:
    service = await start(paths, settings, caller)
    recorder = service._runtime.recorder
    appended = recorder._append
    loop, appending = asyncio.get_running_loop(), asyncio.Event()

    def append(entry):
        loop.call_soon_threadsafe(appending.set)
        appended(entry)

    monkeypatch.setattr(recorder, "_append", append)
    task = asyncio.ensure_future(service.query(caller, QueryRequest(scope=scope, query="last")))
    await appending.wait()
    task.cancel()
    await asyncio.wait([task])
    await service.close()
    again = await start(paths, settings, caller)
    try:
        assert (await newest(again, caller)).request["query"] == "last"
    finally:
        await again.close()


async def test_an_error_message_is_recorded_without_secrets(
    service: MemoryService, caller: Caller, scope: Scope, fake
) -> None:
    fake.fault = Unavailable("postgresql://app:hunter2@db/x refused.", sent=True)
    with pytest.raises(Unavailable):
        await service.query(caller, QueryRequest(scope=scope, query="x"))
    assert (await newest(service, caller)).error_message == "[REDACTED:DATABASE_URL] refused."


async def test_a_source_of_another_company_is_denied_and_not_named(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    assert note.source is not None
    foreign = note.source.model_copy(update={"company_id": "other"})
    with pytest.raises(MemtuiError, match="another company than yours"):
        await service.write(caller, note.model_copy(update={"source": foreign}))
    operation = await newest(service, caller)
    assert operation.status == OperationStatus.DENIED
    assert operation.source is not None
    assert operation.source.company_id == "acme"
    assert is_intact(operation)


async def test_a_record_is_found_under_the_id_it_came_back_under(
    paths: Paths, settings: Settings, caller: Caller, note: WriteRequest, scope: Scope, fake
) -> None:
    service = await start(paths, settings, caller, restore=False, keeps_ids=False)
    try:
        first = (await service.write(caller, note)).handles[0]
        moved = first
        for _ in range(3):
            await service.forget(caller, ForgetRequest(scope=scope, handles=(moved,)))
            moved = (await service.undo(caller)).handles[0]
        assert moved != first
        assert (await service.get(caller, first.provider_record_id, scope)).record.handle == moved
    finally:
        await service.close()


async def test_the_history_of_a_record_goes_through_all_its_ids(
    paths: Paths, settings: Settings, caller: Caller, note: WriteRequest, scope: Scope, fake
) -> None:
    service = await start(paths, settings, caller, restore=False, keeps_ids=False)
    try:
        ids = [(await service.write(caller, note)).handles[0]]
        for _ in range(2):
            await service.forget(caller, ForgetRequest(scope=scope, handles=(ids[-1],)))
            ids.append((await service.undo(caller)).handles[0])
        for asked in ids:
            answer = await service.history(caller, asked.provider_record_id, scope)
            assert answer.handle == ids[-1]
            assert [
                (change.operation.operation_type, change.before is None, change.after is None)
                for change in answer.changes
            ] == [
                ("undo", True, False),
                ("forget", False, True),
                ("undo", True, False),
                ("forget", False, True),
                ("write", True, False),
            ]
    finally:
        await service.close()


async def test_provenance_says_who_wrote_and_who_read(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope
) -> None:
    answer = await service.write(caller, note)
    [handle] = answer.handles
    other = (
        await service.write(caller, note.model_copy(update={"content": "Deploys take hours"}))
    ).handles[0]
    reader = caller.model_copy(update={"principal": "agent:coding"})
    for query in ("deploy", "hours deploy", "release"):
        await service.query(reader, QueryRequest(scope=scope, query=query))
    await service.get(caller, handle, scope)

    found = await service.log.provenance(caller, "default", handle)
    assert found.written is not None
    assert found.written.operation_id == answer.operation_id
    assert [o.operation_type for o in found.mutations] == ["write"]
    assert found.retrieval_count == 3
    assert [(r.query, r.rank, r.principal) for r in found.retrievals] == [
        ("release", 1, "agent:coding"),
        ("hours deploy", 1, "agent:coding"),
        ("deploy", 1, "agent:coding"),
    ]
    stats = await service.log.retrieval_stats(
        caller, "default", [handle.provider_record_id, other.provider_record_id, "never"]
    )
    assert {key: (s.count, s.last_rank) for key, s in stats.items()} == {
        handle.provider_record_id: (3, 1),
        other.provider_record_id: (2, 2),
    }
    assert stats[handle.provider_record_id].last_at == found.retrievals[0].at
    assert await service.log.retrieval_stats(caller, "default", []) == {}
    assert await service.log.retrieval_stats(caller, "other", [handle.provider_record_id]) == {}
    many = [f"none{number}" for number in range(2000)]
    assert len(await service.log.retrieval_stats(caller, "default", [*many, *stats])) == 2

    await service.forget(caller, ForgetRequest(handles=(other, handle), scope=scope))
    gone = (await service.log.provenance(caller, "default", handle)).mutations[0]
    assert [one.provider_record_id for one in gone.handles] == [handle.provider_record_id]


async def test_provenance_of_what_came_from_outside_names_no_write(
    service: MemoryService, caller: Caller
) -> None:
    handle = RecordHandle(provider_key="fake", provider_record_id="elsewhere")
    found = await service.log.provenance(caller, "default", handle)
    assert (found.written, found.mutations, found.retrieval_count) == (None, (), 0)


async def test_an_operation_is_named_by_id_beginning_or_number(
    paths: Paths, settings: Settings, caller: Caller, scope: Scope, fake
) -> None:
    ids = iter(["setup1", "setup2", "setup3", "b7aa01", "b7aa02", "77ff", "7", "100%x"])
    service = await open_service(
        paths,
        settings,
        providers={"fake": FakeAdapter},
        first_company=False,
        new_id=lambda: next(ids),
    )
    try:
        await service.companies.add(caller, "Acme")
        await service.bindings.add(caller, "default", "fake", {})
        await service.bindings.set_target(caller, "company", "acme", "default")
        for _ in range(5):
            await service.query(caller, QueryRequest(scope=scope, query="x"))
        for asked, expected in {
            "b7aa01": "b7aa01",
            "b7aa02": "b7aa02",
            "setup1": "setup1",
            "4": "b7aa01",
            "7": "7",
            "77": "77ff",
            "100%": "100%x",
        }.items():
            assert (await service.log.get(caller, asked)).operation_id == expected
        with pytest.raises(Invalid, match="operation ids begin with"):
            await service.log.get(caller, "b7aa")
        for asked in ("", "zz", "99", "9" * 30, "%", "_7aa01", "B7AA01"):
            with pytest.raises(NotFound):
                await service.log.get(caller, asked)
    finally:
        await service.close()


def company(**templates: str) -> CompanyView:
    return CompanyView(company_id="acme", name="Acme", link_templates=templates)


@pytest.mark.parametrize(
    ("source", "templates", "url"),
    [
        ({"kind": "issue", "issue_id": "A-1"}, {"issue": "https://t/{issue_id}"}, "https://t/A-1"),
        (
            {"kind": "issue_comment", "issue_id": "a/b?c", "comment_id": "é #"},
            {"issue_comment": "https://t/{issue_id}#{comment_id}"},
            "https://t/a%2Fb%3Fc#%C3%A9%20%23",
        ),
        ({"kind": "issue", "issue_id": "A-1"}, {"run": "https://t/{run_id}"}, None),
        ({"kind": "issue"}, {"issue": "https://t/{issue_id}"}, None),
        ({"kind": "issue", "external_ref": "x.md:3"}, {"issue": "https://t/{issue_id}"}, "x.md:3"),
        ({"kind": "issue", "issue_id": "A-1"}, {"issue": "https://t/{nothing}"}, None),
        ({"kind": "external_document", "external_ref": "notes.md:7"}, {}, "notes.md:7"),
        ({"kind": "external_document", "external_ref": "https://w/a b"},
         {"external_document": "{external_ref}"}, "https://w/a b"),
        ({"kind": "run", "run_id": "{issue_id}", "issue_id": "A"}, {"run": "r/{run_id}"},
         "r/%7Bissue_id%7D"),
        ({"kind": "run", "run_id": "\ud800"}, {"run": "r/{run_id}"}, "r/%3F"),
    ],
)  # fmt: skip
async def test_links(
    service: MemoryService, source: dict[str, str], templates: dict[str, str], url: str | None
) -> None:
    ref = SourceRef.model_validate({"company_id": "acme", **source})
    assert company(**templates).link(ref) == url


async def test_the_log_is_filtered_and_followed(
    service: MemoryService, caller: Caller, scope: Scope, note: WriteRequest
) -> None:
    await service.write(caller, note)
    for number in range(3):
        await service.query(caller, QueryRequest(scope=scope, query=f"q{number}"))
    page = await service.log.page(caller, Filter(operation_type=OperationType.QUERY), limit=2)
    assert ([o.request["query"] for o in page.operations], page.total) == (["q2", "q1"], 3)
    followed = await service.log.page(caller, after=page.operations[1].seq)
    assert [o.request["query"] for o in followed.operations] == ["q2"]
    by_issue = await service.log.page(caller, Filter(issue_id="ISS-1"))
    assert [o.operation_type for o in by_issue.operations] == ["write"]
    by_source = await service.log.page(caller, Filter(source_kind=SourceKind.ISSUE_COMMENT))
    assert by_source.operations == by_issue.operations
    none = await service.log.page(caller, Filter(run_id="none"))
    assert (none.operations, none.total) == ((), 0)


async def test_a_history_has_nothing_of_another_bindings_record_of_the_same_id(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope
) -> None:
    await service.bindings.add(caller, "second", "fake", {})
    for key in ("default", "second"):
        mine = note.model_copy(update={"record_id": "same", "content": key, "binding_key": key})
        await service.write(caller, mine)
    for key in ("default", "second"):
        found = await service.history(caller, "same", scope, binding_key=key)
        assert [one.after.text for one in found.changes if one.after] == [key]


async def test_a_profile_is_told_and_logged_with_what_it_cost(
    rich: MemoryService, caller: Caller, scope: Scope
) -> None:
    answer = await rich.profile(caller, scope)
    assert answer.profile.summary == "p likes tea"
    [logged] = (await rich.log.page(caller, limit=1)).operations
    assert (logged.operation_type, logged.usage) == (OperationType.PROFILE, SPENT)


async def test_a_preamble_has_the_profile_and_an_answer_does_not(
    rich: MemoryService, caller: Caller, scope: Scope
) -> None:
    preamble = QueryRequest(scope=scope, query="tea", intent=QueryIntent.AGENT_PREAMBLE)
    found = await rich.query(caller, preamble)
    assert (found.profile_summary, SPENT[0] in found.usage) == ("p likes tea", True)
    answer = await rich.query(caller, QueryRequest(scope=scope, query="tea"))
    assert answer.profile_summary is None


@pytest.mark.parametrize("provider", ["vault", "facts", "milvus"])
async def test_what_a_provider_does_not_do_is_refused_in_a_sentence(
    service: MemoryService, caller: Caller, scope: Scope, note: WriteRequest, provider: str
) -> None:
    await service.bindings.add(caller, "real", provider, {})
    update = {"binding_key": "real", "mode": WriteMode.SUMMARIZE, "record_id": None}
    with pytest.raises(Unsupported, match="cannot summarise"):
        await service.write(caller, note.model_copy(update=update))
    assert not (await service.browse(caller, BrowseRequest(scope=scope, binding_key="real"))).total
    if provider != "facts":
        source = SourceRef(kind=SourceKind.ISSUE, company_id=caller.company_id, issue_id="I-1")
        with pytest.raises(Unsupported, match="always reads everything again"):
            await service.sync(caller, "real", source)
        await service.sync(caller, "real")


async def test_who_makes_no_profiles_says_so(
    service: MemoryService, caller: Caller, scope: Scope
) -> None:
    with pytest.raises(Unsupported):
        await service.profile(caller, scope)


async def test_what_is_allowed_follows_ability_and_what_is_read_only(
    rich: MemoryService, caller: Caller, scope: Scope
) -> None:
    changes = {OperationType.WRITE, OperationType.CORRECT, OperationType.FORGET}
    allowed = await rich.allowed(caller, scope)
    assert allowed >= {OperationType.QUERY, OperationType.PROFILE, *changes}
    await rich.companies.set_read_only(caller, read_only=True)
    assert await rich.allowed(caller, scope) == allowed - changes


async def test_an_operation_belongs_to_the_run_that_its_caller_calls_from(
    rich: MemoryService, caller: Caller, scope: Scope
) -> None:
    calling = caller.model_copy(update={"run_id": "r-1"})
    await rich.query(calling, QueryRequest(scope=scope, query="x"))
    named = scope.model_copy(update={"run_id": "r-2"})
    await rich.query(calling, QueryRequest(scope=named, query="x"))
    page = await rich.log.page(caller, limit=2)
    assert [one.scope.run_id for one in page.operations] == ["r-2", "r-1"]


async def test_saving_tells_of_what_is_as_good_as_there(paths: Paths, settings: Settings) -> None:
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    scope = Scope(company_id="local", project_id="p")
    manual = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
    service = await open_service(paths, settings)

    async def saved(content: str, project: str = "p") -> list[tuple[str, bool]]:
        own = scope.model_copy(update={"project_id": project})
        request = WriteRequest(scope=own, source=manual, content=content)
        answer = await service.write(caller, request, tell_similar=True)
        return [(one.record.text, one.is_same) for one in answer.similar]

    first = "The deployment runs every Monday at nine from the release branch."
    assert await saved(first) == []
    second = first.replace("Monday", "Friday")
    assert await saved(second) == [(first, False)], "another day is another fact"
    assert (await saved(first.upper()))[0] == (first, True)
    assert await saved("Cats sleep at noon.") == []
    assert await saved(first, "elsewhere") == [], "another owner's"
    request = WriteRequest(scope=scope, source=manual, content=first)
    assert (await service.write(caller, request)).similar == ()
    await service.close()


async def test_a_summary_is_refused_where_none_is_kept(
    service: MemoryService, caller: Caller, note: WriteRequest, scope: Scope, fake
) -> None:
    fact = note.model_copy(update={"kind": "fact"})
    kept, own = [(await service.write(caller, one)).handles[0] for one in (note, fact)]
    short = note.model_copy(update={"summary": "Short"})
    assert (await service.write(caller, short)).records[0].summary == "Short"

    async def refused(error: type[MemtuiError], *asked: WriteRequest | CorrectRequest) -> None:
        before = dict(fake.records["acme/default"])
        for one in asked:
            change: Any = service.write if isinstance(one, WriteRequest) else service.correct
            with pytest.raises(error):
                await change(caller, one)
            assert fake.records["acme/default"] == before

    def of(handle: RecordHandle, summary: str) -> CorrectRequest:
        return CorrectRequest(scope=scope, handle=handle, summary=summary, pinned=True)

    await refused(Invalid, of(own, "Short"), fact.model_copy(update={"summary": "Short"}))
    for handle, summary in ((kept, "Short"), (kept, ""), (own, "")):
        await service.correct(caller, of(handle, summary))
    routed = await service.runtime.resolve(caller, scope, None)
    connection = await service.runtime.open(routed.binding, company_read_only=False)
    plain = connection.adapter.capabilities.model_copy(update={"summaries": False})
    getattr(connection.adapter, "unfilled", connection.adapter).capabilities = plain
    await refused(Unsupported, short, of(kept, "Other"))
    await service.correct(caller, of(kept, ""))
