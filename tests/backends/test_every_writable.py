"""What each provider that can be written to owes to the second record, to every field, to the
moment at which something ends, and to each of several owners."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memtui.backends.agno_memory import AgnoAdapter
from memtui.backends.basic_memory import BasicMemoryAdapter
from memtui.backends.claude_memory import ClaudeMemoryAdapter
from memtui.backends.codex_memory import CodexMemoryAdapter
from memtui.backends.facts import FactsAdapter
from memtui.backends.gemini import GeminiAdapter
from memtui.backends.hermes import HermesAdapter
from memtui.backends.hermes_facts import HermesFactsAdapter
from memtui.backends.hindsight import HindsightAdapter
from memtui.backends.instructions import InstructionsAdapter
from memtui.backends.langgraph_store import LanggraphAdapter
from memtui.backends.letta import LettaAdapter
from memtui.backends.mcp import McpAdapter
from memtui.backends.mcp_memory import McpMemoryAdapter
from memtui.backends.mcp_memory_service import McpMemoryServiceAdapter
from memtui.backends.mem0 import Mem0Adapter
from memtui.backends.memsearch import MemsearchAdapter
from memtui.backends.milvus import MilvusAdapter
from memtui.backends.openclaw import OpenclawAdapter
from memtui.backends.plugin_v1 import PluginAdapter
from memtui.backends.vault import VaultAdapter
from memtui.contract import (
    Adapter,
    BindingContext,
    BrowseRequest,
    CorrectRequest,
    Filter,
    ForgetRequest,
    Json,
    NotFound,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    SourceKind,
    SourceRef,
    Term,
    WriteRequest,
    owner_of,
)
from memtui.provider_kit.matching import matcher
from tests.backends.hermes import hermes_facts
from tests.backends.hindsight.server import StandIn as Hindsight
from tests.backends.mcp.conftest import MAPPING
from tests.backends.mcp.loopback import Notes
from tests.backends.mcp_memory_service.server import StandIn
from tests.backends.mem0.servers import Platform
from tests.backends.plugin_v1.servers.loopback import serve, talk
from tests.backends.plugin_v1.servers.reference import Reference
from tests.backends.tables.kit import NAMESPACES, agno, langgraph

NOW = datetime(2126, 3, 28, 23, 30, tzinfo=UTC)
"""Later than any server thinks that it is, so that the adapter's own clock decides."""
HOUR, MOMENT = timedelta(hours=1), timedelta(microseconds=1)
COMPANY = Scope(company_id="acme")
OWNERS: dict[str, dict[str, str]] = {
    "web": {"project_id": "web"}, "api": {"project_id": "api"}, "ana": {"subject_id": "ana"},
    "bo": {"subject_id": "bo"}, "coding": {"agent_id": "coding"}, "scout": {"agent_id": "scout"},
    "company": {},
}  # fmt: skip
SOURCE = SourceRef(
    kind=SourceKind.ISSUE_COMMENT, company_id="acme", issue_id="I-1", comment_id="c-2"
)


@dataclass
class Place:
    """An open provider, and the time that it is told."""

    adapter: Adapter
    kind: str
    owners: tuple[str, ...]
    now: datetime = NOW
    written: int = 0
    known: dict[str, Any] = field(default_factory=dict)

    async def write(self, text: str, owner: str = "web", **fields: Any) -> RecordHandle:
        scope = COMPANY.model_copy(update=OWNERS[owner])
        self.written += 1
        self.now += MOMENT
        reply = await self.adapter.write(WriteRequest.model_validate(
            {"scope": scope, "source": SOURCE, "content": text, "kind": self.kind, **fields}
        ))  # fmt: skip
        return reply.records[0]

    async def correct(self, handle: RecordHandle, **changes: Any) -> RecordHandle:
        self.now += MOMENT
        request = CorrectRequest(scope=COMPANY, handle=handle, **changes)
        return (await self.adapter.correct(request)).handle

    async def forget(self, *handles: RecordHandle) -> tuple[RecordHandle, ...]:
        self.now += MOMENT
        return (await self.adapter.forget(ForgetRequest(scope=COMPANY, handles=handles))).missing

    async def get(self, handle: RecordHandle, scope: Scope = COMPANY) -> Record | None:
        try:
            return await self.adapter.get(handle, scope)
        except NotFound:  # of a plugin nobody can say more
            return None

    async def listed(self, *, limit: int = 1000, **asked: Any) -> list[Record]:
        """Return what is listed, page by page."""
        request = BrowseRequest(**{"scope": COMPANY, "sort": "created_at", "limit": limit} | asked)
        found: list[Record] = []
        while True:
            page = await self.adapter.browse(request)
            found += page.records
            if page.next_cursor is None:
                return found
            request = request.model_copy(update={"cursor": page.next_cursor})

    async def texts(self, **asked: Any) -> list[str]:
        return sorted(record.text for record in await self.listed(**asked))

    async def shown(self, query: str, scope: Scope) -> list[Record]:
        """Return all that a scope is shown, of the past as well, where that is known.

        It must be what `get` shows, too.
        """
        asked = QueryRequest(scope=scope, query=query, top_k=100)
        found = list[Record]((await self.adapter.query(asked)).snippets)
        if self.adapter.capabilities.validity:
            found += await self.adapter.versions(scope)
        for one in found:
            assert await self.get(one.handle, scope) is not None, f"{one.text} is not in {scope}"
        return found

    async def found(self, query: str, scope: Scope = COMPANY) -> list[str]:
        bundle = await self.adapter.query(QueryRequest(scope=scope, query=query))
        return sorted(snippet.text for snippet in bundle.snippets)


Opened = Callable[[str], Awaitable[Place]]
PROGRAMS: dict[type[Adapter], tuple[Any, Json]] = {
    LanggraphAdapter: (langgraph, {"namespaces": NAMESPACES}),
    AgnoAdapter: (agno, {}),
    HermesFactsAdapter: (hermes_facts, {"project_id": "web"}),
}
"""The programs that make the tables of providers, and the settings with which these open them."""
_ALL = tuple(OWNERS)
PROVIDERS: dict[str, tuple[type[Adapter], str, tuple[str, ...]]] = {
    "vault": (VaultAdapter, "note", _ALL),
    "vault's facts": (VaultAdapter, "fact", _ALL),
    "facts": (FactsAdapter, "fact", ("web", "api", "ana", "bo")),
    "claude-memory": (ClaudeMemoryAdapter, "note", _ALL),
    "mcp-memory": (McpMemoryAdapter, "note", _ALL),
    "hermes": (HermesAdapter, "note", _ALL),
    "gemini": (GeminiAdapter, "note", _ALL),
    "openclaw": (OpenclawAdapter, "note", _ALL),
    "basic-memory": (BasicMemoryAdapter, "observation", _ALL),
    "letta": (LettaAdapter, "note", _ALL),
    "memsearch": (MemsearchAdapter, "turn", _ALL),
    "codex-memory": (CodexMemoryAdapter, "note", _ALL),
    "instructions": (InstructionsAdapter, "instruction", _ALL),
    "hindsight": (HindsightAdapter, "note", _ALL),
    "mcp-memory-service": (McpMemoryServiceAdapter, "note", _ALL),
    "mcp": (McpAdapter, "note", _ALL),
    "plugin-v1": (PluginAdapter, "note", _ALL),
    "mem0": (Mem0Adapter, "note", _ALL),
    "langgraph": (LanggraphAdapter, "note", _ALL),
    "agno": (AgnoAdapter, "memory", _ALL),
    "hermes-facts": (HermesFactsAdapter, "fact", ("web",)),
    "milvus": (MilvusAdapter, "note", _ALL),
    "milvus' facts": (MilvusAdapter, "fact", _ALL),
}  # fmt: skip


FOLDERS: dict[type[Adapter], Json] = {
    ClaudeMemoryAdapter: {}, GeminiAdapter: {}, LettaAdapter: {},
    HermesAdapter: {"memory_chars": 100_000},
    OpenclawAdapter: {"settle_ms": 0},
    MemsearchAdapter: {}, CodexMemoryAdapter: {}, InstructionsAdapter: {},
    BasicMemoryAdapter: {},
}  # fmt: skip
"""The providers of other programs' folders, with their settings."""


SMALL = {
    "facts.rows._CHUNK": 2, "milvus.store._BATCH": 1, "milvus.store._IDS_A_CALL": 1,
    "mem0.stores._PAGE": 3, "mcp_memory_service._PAGE": 3,
    "hindsight._PAGE": 3,
    "vault.index._BATCH": 2, "vault.index._CHARS_AT_ONCE": 10,
}  # fmt: skip
"""What is done so many at a time, and here so few, so that there is a second time."""


SERVERS: dict[type[Adapter], tuple[Callable[[], Any], Json]] = {
    HindsightAdapter: (lambda: Hindsight(None, "b1"), {"bank": "b1", "extracts": False}),
    McpAdapter: (Notes, {"mapping": MAPPING}),
    Mem0Adapter: (Platform, {"api": "platform", "api_key_secret": "K"}),
    McpMemoryServiceAdapter: (
        lambda: StandIn("k3y"), {"token_secret": "K", "near_duplicates": True},
    ),
}  # fmt: skip
"""Servers of the tests, by the provider that opens one, and how it is set."""


@pytest.fixture
async def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    """Open the provider that a test is given the name of."""
    adapter_type, kind, owners = PROVIDERS[request.param]
    for name, few in SMALL.items():
        monkeypatch.setattr(f"memtui.backends.{name}", few)
    monkeypatch.setattr("memtui.provider_kit.server_provider._LEAST_HITS", 1)
    for one in (GeminiAdapter, MemsearchAdapter):
        monkeypatch.setattr(one, "settle_seconds", 0.0)  # no other program writes there
    async with AsyncExitStack() as stack:
        config: Json = {}
        if adapter_type is VaultAdapter:
            config = {"path": str(tmp_path / "vault"), "refresh_seconds": 0}
        elif adapter_type in FOLDERS:
            (tmp_path / "memory").mkdir()
            config = {"path": str(tmp_path / "memory"), **FOLDERS[adapter_type]}
        elif adapter_type is McpMemoryAdapter:
            (tmp_path / "memory.jsonl").touch()
            config = {"path": str(tmp_path / "memory.jsonl"), "settle_ms": 0}
        elif adapter_type in PROGRAMS:
            program, settings = PROGRAMS[adapter_type]
            config = {"path": str(tmp_path / "program.db"), **settings}
            stack.enter_context(program(config["path"]))
        elif adapter_type is MilvusAdapter:
            config = {"path": str(tmp_path / "milvus.db")}
        elif adapter_type is PluginAdapter:
            url = await stack.enter_async_context(serve(talk(Reference())))
            names = [f"workspace:{one}" for one in ("web", "api")]
            config = {"url": url, "namespaces": names[:0]}
        elif adapter_type in SERVERS:
            server, settings = SERVERS[adapter_type]
            running = server()
            stack.callback(running.stop)
            config = {"url": running.url, **settings}
        made: list[Place] = []
        context = BindingContext(
            company_id="acme", binding_key="main", config=config, data_dir=tmp_path / "data",
            now=lambda: made[0].now if made else NOW, secret={"K": "k3y"}.get,
        )  # fmt: skip
        adapter = await adapter_type.open(context)
        stack.push_async_callback(adapter.close)
        made.append(Place(adapter, kind, owners))
        yield made[0]


def over(*without: str) -> pytest.MarkDecorator:
    """Run a test over every provider but some."""
    names = [name for name in PROVIDERS if name not in without]
    return pytest.mark.parametrize("place", names, indirect=True)


VALUES: dict[str, tuple[Any, Any]] = {
    "text": ("port: 5432", "port: 6000"),
    "title": ("Ports", None),
    "summary": ("In short", "Shorter still"),
    "topic": ("ops", "network"),
    "tags": (("a", "b/c"), ("b/c", "d")),
    "pinned": (True, False),
    "expires_at": (NOW + 40 * HOUR, NOW + 90 * HOUR),
}
"""What a record is written with, and what each field is corrected to; `title` never is."""
_FIXED = {"scope", "handle", "binding_key", "revision", "source", "created_by", "never_expires"}
"""What of a correction is no field of the record."""
ASKED = {*CorrectRequest.model_fields} - _FIXED
KEPT: dict[str, set[str]] = {
    "vault": ASKED, "plugin-v1": ASKED, "mem0": ASKED, "milvus": ASKED,
    "langgraph": ASKED, "agno": {"text", "tags"},
    "vault's facts": ASKED - {"summary", "topic"}, "facts": ASKED - {"summary"},
    "claude-memory": {"text", "topic", "tags"}, "mcp-memory": {"text", "topic", "tags"},
    "hermes": {"text", "topic", "tags"}, "gemini": {"text", "topic", "tags"},
    "hermes-facts": {"text", "topic", "tags"},
    "openclaw": {"text", "topic", "tags"}, "memsearch": {"text", "topic", "tags"},
    "codex-memory": {"text", "topic", "tags"}, "instructions": {"text", "topic", "tags"},
    "letta": {"text", "topic", "tags"}, "basic-memory": {"text", "topic", "tags"},
    "mcp-memory-service": {"text", "topic", "tags"}, "mcp": {"text", "topic", "tags"},
    "hindsight": {"text", "topic"},
    "milvus' facts": ASKED - {"summary"},
}  # fmt: skip
"""The fields that can be corrected by themselves: a new one of the contract is in `ASKED`."""
_ANOTHER = ("revision", "updated_at", "handle", "location")
"""What a correction may change besides."""


def told(record: Record | None, *, but: tuple[str, ...] = ()) -> dict[str, Any]:
    assert record is not None
    of_tags = {"tags": sorted(record.tags)}
    said = dict(record) | of_tags
    return {name: one for name, one in said.items() if name not in (*_ANOTHER, *but)}


@over()
async def test_each_field_is_corrected_alone(place: Place, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["place"]
    fields = {one for one in VALUES if one in KEPT[name] or (one == "title" and name == "vault")}
    given = {one: VALUES[one][0] for one in fields - {"text"}}
    assert set(VALUES) - {"title"} == ASKED, "give the new field a value"
    if name == "vault's facts":
        given["topic"] = "ops"
    metadata = {"ticket": "A-1"}
    beside = await place.write("Nobody touches this", **given, metadata=metadata)
    it = await place.write(VALUES["text"][0], **given, metadata=metadata)
    if name == "claude-memory":  # name and description repeat its first line
        given |= {"title": VALUES["text"][0]}
    before = await place.get(beside)
    now = await place.get(it)
    assert now is not None
    for one, value in given.items():
        if name != "mcp-memory" or one != "title":
            assert getattr(now, one) == value, f"{one} is not as it was written"
    # A text that another line repeats goes with it, and a fact's key and value with its text.
    also = {"text": ("title", "summary", "metadata", "valid_from", "created_by", "source"),
            "topic": ("valid_from",)}  # fmt: skip
    for one in sorted(KEPT[name], key=lambda one: (one == "text", one)):
        was = await place.get(it)
        it = await place.correct(it, **{one: VALUES[one][1]})
        now = await place.get(it)
        assert now is not None
        wanted = VALUES[one][1]
        found = getattr(now, one)
        assert set(found) == set(wanted) if one == "tags" else found == wanted, f"{one} stays"
        beside_it = (one, *also.get(one, ()))
        assert told(now, but=beside_it) == told(was, but=beside_it), f"{one} changed another field"
        assert told(await place.get(beside)) == told(before), f"{one} changed another record"
        shown = next(r for r in await place.listed() if r.handle == it)
        assert told(shown) == told(now), f"the list does not follow {one}"
    cleared = {"summary": "", "tags": (), "never_expires": True}
    for one, empty in cleared.items():
        what = one.replace("never_expires", "expires_at")
        if what in KEPT[name]:
            it = await place.correct(it, **{one: empty})
            now = await place.get(it)
            assert now is not None
            assert not getattr(now, what), f"{what} is not taken away"
            assert now.text == VALUES["text"][1]
    assert told(await place.get(beside)) == told(before)
    if place.adapter.capabilities.restore:
        [taken] = await place.adapter.snapshot([beside], COMPANY)
        await place.correct(
            beside, **({"tags": ("z",)} if "tags" in KEPT[name] else {"topic": "z"})
        )
        await place.forget(beside)
        await place.adapter.restore([taken], COMPANY)
        assert told(await place.get(beside)) == told(before), "it is not put back as it was"


@over("hermes-facts")  # all its facts are of one owner
async def test_each_of_several_owners_has_its_own(place: Place) -> None:
    handles = {
        (owner, nth): await place.write(f"{owner} says {nth} of badgers", owner)
        for owner in place.owners
        for nth in (1, 2)
    }
    for owner in place.owners:
        scope = COMPANY.model_copy(update=OWNERS[owner])
        record = await place.get(handles[owner, 2], scope)
        assert record is not None
        assert owner_of(record.scope) == owner_of(scope), f"of {owner} it became another's"
        shown = await place.shown("badgers", scope)
        assert {handles[owner, 1], handles[owner, 2]} <= {one.handle for one in shown}
        filtered = Filter.model_validate(OWNERS[owner])
        if OWNERS[owner]:
            mine = await place.texts(filter=filtered, limit=1)
            assert mine == [f"{owner} says {nth} of badgers" for nth in (1, 2)]
    everything = await place.texts(limit=3)
    assert len(everything) == len(handles)
    if place.adapter.capabilities.chosen_owners:
        for pair in (place.owners[:2], place.owners[1:3], place.owners[2:4], place.owners[-1:]):
            scopes = tuple(COMPANY.model_copy(update=OWNERS[owner]) for owner in pair)
            wanted = sorted(f"{owner} says {n} of badgers" for owner in pair for n in (1, 2))
            assert await place.texts(owners=scopes, limit=1) == wanted
            bundle = await place.adapter.query(
                QueryRequest(scope=COMPANY, query="badgers", owners=scopes, top_k=100)
            )
            assert sorted(one.text for one in bundle.snippets) == wanted
    firsts = [handles[owner, 1] for owner in place.owners]
    taken: list[Snapshot] = []
    if place.adapter.capabilities.restore:
        taken = list(await place.adapter.snapshot(firsts, COMPANY))
        assert all(one.record for one in taken)
    before = {one.text: told(one) for one in await place.listed()}
    assert await place.forget(*firsts) == ()
    left = sorted(f"{owner} says 2 of badgers" for owner in place.owners)
    assert await place.texts() == left, "the others' are to stay, and only they"
    for top_k, is_capped in ((len(left), False), (len(left) - 1, True)):
        asked = QueryRequest(scope=COMPANY, query="badgers", top_k=top_k)
        bundle = await place.adapter.query(asked)
        assert (len(bundle.snippets), bundle.capped) == (top_k, is_capped)
        assert {one.text for one in bundle.snippets} <= set(left)
    assert all([await place.get(one) is None for one in firsts])
    assert set(await place.forget(*firsts)) == set(firsts)
    if taken:
        await place.adapter.restore(taken, COMPANY)
        after = {one.text: told(one) for one in await place.listed()}
        assert after.keys() == before.keys()
        for text, one in before.items():
            assert after[text] == one, f"{text} is not put back as it was"
    left_over = [one.handle for one in await place.listed()]
    assert await place.forget(*left_over) == ()
    assert await place.texts() == []


FILTERS: list[dict[str, Any]] = [
    {"since": NOW + HOUR}, {"since": NOW + HOUR + MOMENT}, {"until": NOW + HOUR},
    {"until": NOW + HOUR + MOMENT}, {"since": NOW + HOUR, "until": NOW + 2 * HOUR},
    {"tag": "a"}, {"tag": "A"}, {"tag": "b"}, {"tag": "b/c"}, {"tag": "b/"}, {"topic": "ops"},
    {"topic": "Ops"}, {"project_id": "web"}, {"subject_id": "ana"}, {"issue_id": "I-2"},
    {"comment_id": "c-2"}, {"source_kind": "run"}, {"run_id": "r-1"}, {"text": "port 543"},
    {"text": "PORT 5432"}, {"fuzzy": ("prot",)}, {"tag": "a", "topic": "ops"},
    *({"terms": (term,)} for term in (
        Term(field="tag", values=("a", "d")), Term(field="tag", values=("a", "b"), excluded=True),
        Term(field="topic", values=("ops", "net")),
        Term(field="topic", values=("ops",), excluded=True),
        Term(field="issue_id", values=("I-1", "I-2")),
        Term(field="issue_id", values=("I-1",), excluded=True),
        Term(field="project_id", values=("web", "api")),
        Term(field="project_id", values=("web", "api"), excluded=True),
        Term(field="source_kind", values=("run",), excluded=True),
        Term(field="text", values=("5432", "6000"), excluded=True),
        Term(field="fuzzy", values=("teh",), excluded=True),
    )),
    {"alternatives": ({"topic": "net"}, {"tag": "a", "text": "6000"}, {"terms": (
        Term(field="text", values=("port", "the"), excluded=True),
    )})},
    {"text": "port", "alternatives": ({"topic": "ops"}, {"tag": "b", "topic": "net"})},
]  # fmt: skip


@over("agno", "hermes-facts")  # their times are whole seconds
async def test_a_filter_lets_through_what_it_says(place: Place) -> None:
    given: list[tuple[str, dict[str, Any]]] = [
        ("web", {"tags": ("a",), "topic": "ops", "created_at": NOW}),
        ("web", {"tags": ("b/c", "A"), "topic": "Ops", "created_at": NOW + HOUR}),
        ("api", {"tags": ("b",), "topic": "net", "created_at": NOW + HOUR + MOMENT}),
        ("ana", {"tags": ("bc", "d"), "created_at": NOW + 2 * HOUR}),
        ("web", {"source": SOURCE.model_copy(update={"issue_id": "I-2", "comment_id": "c-3"})}),
        ("ana", {"source": SourceRef(kind=SourceKind.RUN, company_id="acme", run_id="r-1")}),
    ]
    texts = ("port: 5432", "port: 6000", "PORT: 543", "the: first", "the: second", "other: 1")
    for text, (owner, fields) in zip(texts, given, strict=True):
        await place.write(text, owner, **fields)
    everything = await place.listed()
    assert len(everything) == len(given)
    for wanted in FILTERS:
        chosen = Filter.model_validate(wanted)
        passes = matcher(chosen)
        found = sorted(one.text for one in everything if passes(one))
        assert await place.texts(filter=chosen) == found, wanted
        request = BrowseRequest(scope=COMPANY, filter=chosen, limit=2)
        page = await place.adapter.browse(request)
        if not page.at_least and page.total is not None:
            assert page.total == len(found), wanted
    assert await place.texts(filter=Filter(since=NOW, until=NOW + MOMENT)) == ["port: 5432"]
    assert await place.texts(filter=Filter(since=NOW + HOUR, until=NOW + 2 * HOUR)) == [
        "PORT: 543", "port: 6000"
    ]  # fmt: skip


@over(
    "claude-memory", "mcp", "mcp-memory", "mcp-memory-service", "hindsight", "hermes",
    "hermes-facts", "gemini", "openclaw", "memsearch", "codex-memory", "instructions", "agno",
    "letta", "basic-memory",
)  # fmt: skip
async def test_what_ends_at_a_moment_is_not_there_at_it(place: Place) -> None:
    ends = NOW + 24 * HOUR
    it = await place.write("ends: soon", expires_at=ends)
    other = await place.write("ends: later", expires_at=ends + 24 * HOUR)
    whole = await place.get(it)
    place.now = ends - MOMENT
    assert await place.get(it) is not None
    assert await place.texts() == ["ends: later", "ends: soon"]
    place.now = ends
    assert await place.get(it) is None
    assert await place.texts() == ["ends: later"]
    assert await place.found("ends") == ["ends: later"]
    if place.adapter.capabilities.namespaces and not isinstance(
        place.adapter, MilvusAdapter | PluginAdapter | Mem0Adapter
    ):
        assert [one.records for one in await place.adapter.namespaces()] == [1]
    if place.adapter.capabilities.restore and not isinstance(place.adapter, PluginAdapter):
        [taken] = await place.adapter.snapshot([it], COMPANY)
        assert told(taken.record) == told(whole), "what has expired is not seen to go"
        assert await place.texts(expired=True) == ["ends: later", "ends: soon"]
        assert await place.forget(it) == (), "what has expired cannot be forgotten"
        assert await place.texts(expired=True) == ["ends: later"]
        await place.adapter.restore([taken], COMPANY)
        place.now = ends - MOMENT
        assert told(await place.get(it)) == told(whole)
    assert await place.get(other) is not None


@over()
async def test_no_list_that_is_kept_outlives_a_change(place: Place) -> None:
    handles = [await place.write(f"walrus {number}") for number in range(4)]

    async def seen() -> list[str]:
        # The first page of a list makes it anew, and the second must be of that one.
        request = BrowseRequest(scope=COMPANY, sort="title", limit=2)
        first = await place.adapter.browse(request)
        rest = await place.adapter.browse(request.model_copy(update={"cursor": first.next_cursor}))
        return sorted(one.text for one in (*first.records, *rest.records))

    assert await seen() == [f"walrus {number}" for number in range(4)]
    await place.forget(handles[0])
    assert await seen() == [f"walrus {number}" for number in (1, 2, 3)]
    request = BrowseRequest(scope=COMPANY, limit=2, sort="created_at")
    page = await place.adapter.browse(request)
    handles[3] = await place.correct(handles[3], text="walrus 9")
    later = await place.adapter.browse(request.model_copy(update={"cursor": page.next_cursor}))
    assert [one.text for one in later.records] == ["walrus 9"], "a kept list is shown"
    page = await place.adapter.browse(request)
    await place.forget(handles[3])
    if page.next_cursor is not None:
        rest = await place.adapter.browse(request.model_copy(update={"cursor": page.next_cursor}))
        assert rest.records == (), "a kept list is shown"
