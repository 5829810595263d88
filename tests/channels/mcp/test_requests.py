"""Every argument of a tool reaches the service, and every field of a record the agent."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from memtui.channels.agent import Agent
from memtui.channels.mcp import tools
from memtui.channels.mcp.tools import (
    BrowseInput,
    CorrectInput,
    FeedbackInput,
    ForgetInput,
    GetInput,
    Memory,
    MemoryDetail,
    NoteInput,
    RemoveInput,
    SearchInput,
    memory_of,
)
from memtui.contract import NotFound, RecordHandle, Scope, Snippet, SourceRef
from memtui.service import Caller

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SCOPE = Scope(company_id="acme", agent_id="coding", project_id="web", subject_id="ana")
CALLER = Caller(company_id="acme", principal="agent:coding", channel="mcp", run_id="run-7")
SOURCE = SourceRef(kind="run", company_id="acme", run_id="run-7")


class _Asked(Exception):
    """What the service was asked; nobody answers."""

    def __init__(self, request: Any, named: dict[str, Any]) -> None:
        super().__init__()
        self.request, self.named = request, named


class _Service:
    """Raises whatever it is asked."""

    settings = SimpleNamespace(mcp_answer_characters=None)

    def __init__(self) -> None:
        self.facts = self.feedback = self.everywhere = self
        self.record: Any = None

    def __getattr__(self, name: str) -> Any:
        async def ask(_: Caller, *asked: Any, **named: Any) -> Any:
            if name == "get" and self.record is not None:
                return SimpleNamespace(record=self.record)
            raise _Asked(asked if len(asked) > 1 else asked[0], named)

        return ask

    async def resolve(self, *_: Any) -> Any:
        return SimpleNamespace(provider_key="vault", binding_key="default")


def agent(**fields: Any) -> Agent:
    service: Any = _Service()
    return Agent(service, CALLER, SCOPE, **fields)


async def asked(run: Any, given: Any, **fields: Any) -> _Asked:
    with pytest.raises(_Asked) as caught:
        await run(agent(**fields), given)
    return caught.value


NOTE: dict[str, Any] = {
    "title": "T", "summary": "S", "topic": "t", "tags": ("a", "b"), "pinned": True,
    "expires_at": NOW,
}  # fmt: skip


@pytest.mark.parametrize("name", [None, *NOTE])
async def test_every_argument_of_a_note_is_written(name: str | None) -> None:
    assert NoteInput.model_fields.keys() == NOTE.keys() | {"text", "namespace", "propagation"}
    given = {} if name is None else {name: NOTE[name]}
    request = (await asked(tools.note, NoteInput(text="It says so", **given))).request
    assert request.model_dump(include={*NOTE}, exclude_defaults=True) == given
    assert (request.scope, request.source, request.kind) == (SCOPE, SOURCE, "note")
    more = NoteInput(text="branch: main", namespace="git", propagation={"to": "all"})
    request = (await asked(tools.note, more, binding_key="own")).request
    assert (request.kind, request.topic, request.binding_key) == ("fact", "git", "own")
    assert request.metadata == {"propagation": {"to": "all"}}


async def test_every_argument_of_a_search_is_asked() -> None:
    known = {"query", "limit", "topic", "tag", "source_kind", "metadata", "as_of", "all_bindings"}
    assert SearchInput.model_fields.keys() == known
    given = SearchInput(
        query="q", limit=7, topic="t", tag="ops", source_kind="run", metadata={"a": 1}, as_of=NOW
    )
    request = (await asked(tools.search, given)).request
    assert (request.query, request.top_k, request.topic, request.as_of) == ("q", 7, "t", NOW)
    assert (request.filter.tag, request.filter.source_kind) == ("ops", "run")
    assert (request.metadata_filter, request.scope) == ({"a": 1}, SCOPE)
    plain = (await asked(tools.search, SearchInput(query="q"), binding_key="own")).request
    assert (plain.top_k, plain.metadata_filter, plain.binding_key) == (10, {}, "own")


@pytest.mark.parametrize(
    ("given", "scope"),
    [({}, {"project_id": "web"}), ({"scope": "user"}, {"subject_id": "ana"}),
     ({"scope": "agent"}, {"agent_id": "coding"}), ({"scope": "drive"}, {"project_id": "web"}),
     ({"all_scopes": True}, SCOPE.model_dump(exclude={"company_id"}))],
)  # fmt: skip
async def test_every_argument_of_a_list_is_asked(
    given: dict[str, Any], scope: dict[str, Any]
) -> None:
    narrowing = {"text": "w", "kind": "fact", "topic": "t", "tag": "ops"}
    others = {"scope", "limit", "cursor", "all_scopes", "all_bindings"}
    assert BrowseInput.model_fields.keys() == narrowing.keys() | others
    request = (await asked(tools.browse, BrowseInput(limit=3, cursor="c", **given))).request
    assert request.scope == Scope(company_id="acme", **scope)
    assert (request.limit, request.cursor) == (3, "c")
    request = (await asked(tools.browse, BrowseInput(**narrowing))).request
    assert request.filter.model_dump(exclude_defaults=True) == narrowing
    many = (await asked(tools.browse, BrowseInput(limit=100))).request
    assert many.limit == 20  # of 8,000 characters
    many = (await asked(tools.browse, BrowseInput(limit=100), answer_characters=40_000)).request
    assert many.limit == 100


async def test_a_change_names_its_record_revision_and_run() -> None:
    given = CorrectInput(id="r1", text="b", revision="7")
    request = (await asked(tools.correct, given)).request
    handle = RecordHandle(provider_key="vault", provider_record_id="r1")
    assert (request.handle, request.text, request.revision) == (handle, "b", "7")
    assert (request.scope, request.source) == (SCOPE, SOURCE)
    request = (await asked(tools.forget, ForgetInput(ids=("r1", "r2", "r1")))).request
    assert [one.provider_record_id for one in request.handles] == ["r1", "r2"]
    assert (request.scope, request.source, request.revisions) == (SCOPE, SOURCE, {})
    said = await asked(tools.feedback, FeedbackInput(id="r1", helped=False, operation_id="o"))
    assert said.request == ("r1", "not_helped")
    assert said.named["operation_id"] == "o"


async def test_a_fact_is_removed_as_it_was_read_and_from_its_own_scope() -> None:
    handle = RecordHandle(provider_key="vault", provider_record_id="r1")
    fact = Snippet(handle=handle, text="a: b", kind="fact", revision="7",
                   scope=Scope(company_id="acme", subject_id="ana"))  # fmt: skip
    own = agent()
    service: Any = own.service
    for record, removes in (
        (fact, True), (fact.model_copy(update={"kind": "note"}), False),
        (fact.model_copy(update={"scope": Scope(company_id="acme", project_id="web")}), False),
    ):  # fmt: skip
        service.record = record
        error: Any = _Asked if removes else NotFound
        with pytest.raises(error) as caught:
            await tools.remove(own, RemoveInput(scope="user", factId="r1"))
        if removes:
            request = caught.value.request
            assert (request.scope, request.revisions) == (fact.scope, {"r1": "7"})


async def test_a_key_is_asked_for_with_its_namespace() -> None:
    named = (await asked(tools.get, GetInput(key="branch", namespace="git"))).request
    assert (named[0], named[1].namespace, named[1].scope) == ("branch", "git", SCOPE)


def test_every_field_of_a_record_reaches_the_agent() -> None:
    handle = RecordHandle(provider_key="vault", provider_record_id="r1")
    one = Snippet(
        handle=handle, text="The whole", scope=SCOPE, source=SOURCE, title="T", summary="In short",
        kind="note", topic="t", tags=("a",), created_at=NOW, created_by="user:ana", revision="7",
        score=0.5,
    )  # fmt: skip
    told = memory_of(one, 2)
    assert told.model_dump() == {
        "id": "r1", "text": "In short", "is_summary": True, "is_passage": False, "kind": "note",
        "title": "T", "topic": "t", "tags": ("a",), "rank": 2, "score": 0.5,
        "belongs_to": "project web", "written_by": "user:ana", "written_at": NOW,
        "source": "run run-7", "revision": "7", "binding": None,
    }  # fmt: skip
    whole = memory_of(one, whole=True)
    assert (whole.text, whole.is_summary, whole.rank) == ("The whole", False, None)
    plain = memory_of(one.model_copy(update={"summary": None}))
    assert (plain.text, plain.is_summary) == ("The whole", False)


@pytest.mark.parametrize("length", [1, 119, 120, 121, 2_000])
def test_the_parts_of_a_text_are_the_whole_of_it(length: int) -> None:
    text = "".join(chr(ord("a") + number % 26) for number in range(length))
    memory = Memory(id="r1", text=text, kind="note", belongs_to="company acme")
    found = MemoryDetail(operation_id="o", binding="default", memory=memory)
    whole, at, parts = "", 0, 0
    while True:
        part = tools._part(found, at, 1_200)
        assert part.memory.text or not text
        whole, parts = whole + part.memory.text, parts + 1
        if part.next_offset is None:
            break
        assert part.next_offset == len(whole) < len(text)
        at = part.next_offset
    assert whole == text
    exact = tools._part(found, 0, tools._size(found))
    assert (exact.memory.text, exact.next_offset) == (text, None)
