"""The checks that every adapter must pass, including third-party ones."""

# ruff: noqa: S101  # an assertion is what a check is made of

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
import pytest_asyncio

from memtui.contract import (
    Adapter,
    BindingContext,
    BrowseRequest,
    Capabilities,
    Conflict,
    CorrectRequest,
    Explanation,
    Filter,
    ForgetRequest,
    Invalid,
    Matching,
    MemtuiError,
    Namespace,
    NotFound,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    SourceKind,
    SourceRef,
    Term,
    Unsupported,
    WriteMode,
    WriteReply,
    WriteRequest,
    holds_at,
)

COMPANY = "conformance"
HOSTILE = {
    "ansi": "\x1b[31mred\x1b[0m \x1b]52;c;aGk=\x07 \x9b1m",
    "bidi": "ab\u202edc\u2066x\u2069",
    "markup": "[/tmp/x] [$error]bold[/a] <script>&amp;",
    "lines": "one\r\ntwo\n\n---\nkey: value\n---\n",
    "blank edges": "\n  text \n\n",
    "nul": "before\0after",
    "astral": "\U0001f600 e\u0301 \u4e2d\u6587 \ufeff end",
    "long line": "x" * 300_000,
}
ODD_IDS = ("../../etc/passwd", "/etc/passwd", "a\0b", "x" * 10_000, "💥", " ", "#", "a#b")
ODD_QUERIES = (
    '"', "*", "NEAR", "AND OR NOT", "the", "a", "%_", "(", "日本語", "\0", "x" * 100_000, " ",
)  # fmt: skip
_SORTS = [
    f"{sign}{name}" for name in ("created_at", "updated_at", "title", "size") for sign in ("", "-")
]
_SAME = ("handle", "text", "source", "title", "summary", "kind", "topic", "tags", "created_at",
         "created_by", "expires_at", "pinned", "metadata", "scope")  # fmt: skip


Check = TypeVar("Check", bound=Callable[..., Awaitable[None]])

_NEEDED: set[str] = set()


def needs(*abilities: str) -> Callable[[Check], Check]:
    """Skip a check if the adapter under test lacks one of these abilities.

    They are names of capabilities, `exact` (the written text is stored, immediately), `read_only`,
    and `durable`, `revisions`, `doubles`, `each_text_once`, `owners` and `events`, which a subclass
    of `Kit` declares for its provider.
    """
    _NEEDED.update(abilities)

    def named(check: Check) -> Check:
        vars(check)["needs"] = abilities
        return check

    return named


class Kit(ABC):
    """Base of the checks; a subclass opens the adapter under test and declares its abilities."""

    capabilities: ClassVar[Capabilities] = Capabilities()
    """The opened adapter's capabilities; checks of other capabilities are not collected."""
    is_durable = True
    """Whether a record must outlive `close` and a second `open_adapter` on the same folder."""
    has_revisions = True
    """Whether a record has a revision, so that a change based on an old one is a conflict."""
    has_each_text_once = False
    """Whether a text that an owner's record has already is refused as a conflict."""
    has_one_owner = False
    """Whether all records are of the binding's owner, and a write of another is refused."""
    finds_neighbours = False
    """Whether a query always returns the nearest records, however far they are."""
    has_events = False
    """Whether a write that is stored later returns an event id for `ingested`."""

    def __init_subclass__(cls) -> None:
        """Replace each check that does not apply by its reason: pytest does not collect a string.

        A class without `open_adapter` keeps every check, for its subclasses.
        """
        super().__init_subclass__()
        if cls.open_adapter is Kit.open_adapter:
            return
        for name in [name for name in dir(cls) if name.startswith("test_")]:
            check = next(
                there
                for base in cls.__mro__
                if not isinstance(there := vars(base).get(name, ""), str)
            )
            needed = getattr(check, "needs", ())
            lacking = [one for one in needed if not cls.offers(cls.capabilities, one)]
            chosen = f"it lacks {', '.join(lacking)}" if lacking else check
            if chosen is not getattr(cls, name):
                setattr(cls, name, chosen)

    @classmethod
    def offers(cls, can: Capabilities, ability: str) -> bool:
        """Return whether an adapter with these capabilities has an ability."""
        others = {
            "exact": can.writable and not can.provider_managed_extraction,
            "read_only": not can.writable,
            "durable": cls.is_durable,
            "revisions": cls.has_revisions,
            "doubles": not cls.has_each_text_once,
            "each_text_once": cls.has_each_text_once,
            "owners": not cls.has_one_owner,
            "events": cls.has_events,
        }
        return others[ability] if ability in others else bool(getattr(can, ability))

    async def test_capabilities(self, adapter: Adapter) -> None:
        """The class declares the adapter's capabilities; `pytest -rP` lists the skipped checks."""
        for name in dir(self):
            if name.startswith("test_") and isinstance(reason := getattr(self, name), str):
                print(f"{name} does not apply: {reason}")  # noqa: T201  # pytest shows it
        differing = [
            ability
            for ability in sorted(_NEEDED)
            if self.offers(self.capabilities, ability) != self.offers(adapter.capabilities, ability)
        ]
        assert not differing, (
            f"the class's `capabilities` and the adapter's differ in {', '.join(differing)}; "
            "set those that the adapter has, so that the checks that apply are run"
        )

    @abstractmethod
    async def open_adapter(self, tmp_path: Path) -> Adapter:
        """Open the adapter under test with `self.context`; `tmp_path` is empty at first."""

    async def settle(self, adapter: Adapter) -> None:  # noqa: B027  # nothing is the usual answer
        """Wait until earlier writes are searchable; only `async_ingestion` needs an override."""

    @pytest_asyncio.fixture
    async def adapter(self, tmp_path: Path) -> AsyncIterator[Adapter]:
        """An open adapter, closed after the check."""
        adapter = await self.open_adapter(tmp_path)
        yield adapter
        await adapter.close()

    def context(self, tmp_path: Path, **config: Any) -> BindingContext:
        """Return the context to open an adapter with."""
        return BindingContext(
            company_id=COMPANY, binding_key="under-test", config=config, data_dir=tmp_path / "data"
        )

    def scope(self, **ids: str) -> Scope:
        """Return a scope of the checks' company, by default in the project `apollo`."""
        return Scope(company_id=COMPANY, **({"project_id": "apollo"} | ids))

    def source(self, kind: SourceKind = SourceKind.ISSUE_COMMENT, **ids: str) -> SourceRef:
        """Return a source reference."""
        known = {"issue_id": "ISS-7", "comment_id": "c-3"} | ids
        return SourceRef(kind=kind, company_id=COMPANY, **known)

    async def write(self, adapter: Adapter, content: str, **fields: Any) -> RecordHandle:
        """Write one record and return its handle."""
        request = WriteRequest(
            **({"scope": self.scope(), "source": self.source(), "content": content} | fields)
        )
        reply = await adapter.write(request)
        await self.settle(adapter)
        if reply.event is not None:
            reply = await self.ended(adapter, reply.event)
        assert reply.records, "write returned no handle; only async ingestion may leave it out"
        handle = reply.records[0]
        assert handle.provider_key == adapter.key, (
            f"the handle's provider_key is {handle.provider_key!r}, not the key {adapter.key!r}"
        )
        return handle

    async def ended(self, adapter: Adapter, event: str) -> WriteReply:
        """Return what came of a write that is stored later, which `settle` has waited for."""
        reply = await adapter.ingested(event, self.scope())
        assert reply is not None, "after `settle` the event has not ended"
        return reply

    async def found(self, adapter: Adapter, query: str, **fields: Any) -> list[str]:
        """Return the ids that a query finds, best first."""
        request = QueryRequest(**({"scope": self.scope(), "query": query} | fields))
        bundle = await adapter.query(request)
        return [snippet.handle.provider_record_id for snippet in bundle.snippets]

    async def listed(self, adapter: Adapter, **fields: Any) -> list[str]:
        """Return the ids of a first page, filtered by `fields`."""
        wanted = Filter(**fields)
        request = BrowseRequest(scope=self.scope(), filter=wanted, limit=1000)
        page = await adapter.browse(request)
        return [record.handle.provider_record_id for record in page.records]

    async def forget(
        self, adapter: Adapter, *handles: RecordHandle, **revisions: str
    ) -> tuple[RecordHandle, ...]:
        """Forget records and return the missing handles."""
        request = ForgetRequest(scope=self.scope(), handles=handles, revisions=revisions)
        reply = await adapter.forget(request)
        await self.settle(adapter)
        return reply.missing

    async def correct(self, adapter: Adapter, handle: RecordHandle, **changes: Any) -> Record:
        """Correct a record and return it as it is afterwards."""
        request = CorrectRequest(scope=self.scope(), handle=handle, **changes)
        reply = await adapter.correct(request)
        await self.settle(adapter)
        return await self.read(adapter, reply.handle)

    async def read(self, adapter: Adapter, handle: RecordHandle) -> Record:
        """Return a record that must exist."""
        record = await adapter.get(handle, self.scope())
        assert record is not None, f"get does not find the record {handle.provider_record_id!r}"
        return record

    def unknown(self, adapter: Adapter, record_id: str = "no-such-record") -> RecordHandle:
        """Return a handle without a record."""
        return RecordHandle(provider_key=adapter.key, provider_record_id=record_id)


def day(number: int) -> datetime:
    """Return midnight UTC, `number` days after 1 January 2025."""
    return datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days=number)


class WriteChecks(Kit):
    """Checks of `write`."""

    async def test_key_and_config_model(self, adapter: Adapter) -> None:
        """The adapter names itself and validates its config."""
        assert adapter.key, "key is empty"
        schema = adapter.config_model.model_json_schema()
        assert schema["type"] == "object", "config_model must describe an object"

    @needs("exact")
    async def test_write_then_get(self, adapter: Adapter) -> None:
        """A record comes back with its text, source and metadata."""
        metadata = {"ticket": "A-1", "weight": 2, "nested": {"flags": [True, None, "yes"]}}
        handle = await self.write(adapter, "Deploys happen from main.", metadata=metadata)
        record = await self.read(adapter, handle)
        assert record.text == "Deploys happen from main.", "the text is not what was written"
        assert record.handle == handle, "the record bears another handle than write returned"
        if "source" not in adapter.lacks:
            assert record.source == self.source(), "the source reference was lost or changed"
        assert record.scope.project_id == "apollo", "the record lost its project"
        if "metadata" not in adapter.lacks:
            kept = {key: record.metadata.get(key) for key in metadata}
            assert kept == metadata, "the metadata was lost or changed"

    @needs("events")
    async def test_a_write_that_is_stored_later_ends_once(self, adapter: Adapter) -> None:
        """An event ends with the records of its write, and with the same ones ever after."""
        assert adapter.capabilities.async_ingestion, "it names events and stores at once"
        request = WriteRequest(
            scope=self.scope(), source=self.source(), content="Deploys happen from main."
        )
        reply = await adapter.write(request)
        assert reply.event, "a write that is stored later names no event"
        assert not reply.records, "a write names an event and the records that come of it"
        await self.settle(adapter)
        ended = await self.ended(adapter, reply.event)
        assert ended.event is None, "what came of an event is another event"
        records = [await self.read(adapter, handle) for handle in ended.records]
        assert {one.scope.project_id for one in records} <= {"apollo"}, "a record lost its owner"
        again = await self.ended(adapter, reply.event)
        assert again.records == ended.records, "asked again, an event ends with other records"
        assert again.before == ended.before, "asked again, an event has changed other records"

    @needs("events")
    async def test_what_came_of_an_event_does_not_come_back(self, adapter: Adapter) -> None:
        """Asking of an event is a read: what was forgotten stays away."""
        handle = await self.write(adapter, "Deploys happen from main.")
        reply = await adapter.write(
            WriteRequest(scope=self.scope(), source=self.source(), content="Never on Fridays.")
        )
        assert reply.event, "a write that is stored later names no event"
        await self.settle(adapter)
        ended = await self.ended(adapter, reply.event)
        assert handle not in ended.records, "an event ends with the records of another"
        await self.forget(adapter, *ended.records)
        await self.ended(adapter, reply.event)
        for one in ended.records:
            assert await adapter.get(one, self.scope()) is None, "what was forgotten came back"
        await self.read(adapter, handle)

    @needs("events")
    async def test_an_unknown_event_is_not_found(self, adapter: Adapter) -> None:
        """An event that the provider does not know is `NotFound`, not an event that goes on."""
        for name in ("no-such-event", "../../etc/passwd", "a b", "💥"):
            with pytest.raises(NotFound):
                await adapter.ingested(name, self.scope())

    @needs("exact")
    async def test_hostile_text_is_kept_exactly_or_refused(self, adapter: Adapter) -> None:
        """No text is changed silently."""
        for name, text in HOSTILE.items():
            try:
                handle = await self.write(adapter, text)
            except Invalid:
                continue
            record = await self.read(adapter, handle)
            assert record.text == text, f"the text ({name}) came back changed"

    @needs("exact", "doubles")
    async def test_two_writes_are_two_records(self, adapter: Adapter) -> None:
        """The same text twice is two records unless it is an upsert."""
        first = await self.write(adapter, "The same sentence.")
        second = await self.write(adapter, "The same sentence.")
        assert first != second, "a second write took the place of the first"

    @needs("exact", "each_text_once")
    async def test_a_second_write_of_a_text_is_a_conflict(self, adapter: Adapter) -> None:
        """A text that is there is refused with its record, which stays as it is."""
        handle = await self.write(adapter, "The same sentence.")
        before = await self.read(adapter, handle)
        with pytest.raises(Conflict) as refused:
            await self.write(adapter, "The same sentence.")
        assert refused.value.current == before, "the refusal does not name the record"
        assert await self.read(adapter, handle) == before, "a refused write changed the record"

    @needs("exact", "each_text_once", "correction")
    async def test_a_correction_to_a_stored_text_is_a_conflict(self, adapter: Adapter) -> None:
        """Correcting a record to the text of another is refused, and both stay."""
        handles = [await self.write(adapter, f"Sentence {number}.") for number in range(2)]
        with pytest.raises(Conflict):
            await self.correct(adapter, handles[0], text="Sentence 1.")
        texts = [(await self.read(adapter, handle)).text for handle in handles]
        assert texts == ["Sentence 0.", "Sentence 1."], "a refused correction changed a record"

    @needs("exact")
    async def test_parallel_writes_are_all_kept(self, adapter: Adapter) -> None:
        """Twenty writes at once lose nothing."""
        texts = [f"parallel note number {number}" for number in range(20)]
        handles = await asyncio.gather(*(self.write(adapter, text) for text in texts))
        ids = {handle.provider_record_id for handle in handles}
        assert len(ids) == len(texts), "parallel writes share an id"
        records = await asyncio.gather(*(self.read(adapter, handle) for handle in handles))
        assert [r.text for r in records] == texts, "a parallel write was lost or mixed up"

    @needs("exact", "durable")
    async def test_record_outlives_the_adapter(self, adapter: Adapter, tmp_path: Path) -> None:
        """A write is durable once it returned."""
        handle = await self.write(adapter, "Durable once acknowledged.")
        await adapter.close()
        again = await self.open_adapter(tmp_path)
        try:
            record = await again.get(handle, self.scope())
        finally:
            await again.close()
        assert record is not None, "the record did not outlive the adapter"
        assert record.text == "Durable once acknowledged.", "the record changed over a reopening"

    @needs("writable", "keeps_ids")
    async def test_given_id_is_kept(self, adapter: Adapter) -> None:
        """`keeps_ids`: the record is stored under the given id, and an upsert replaces it."""
        given = "6f1c7e9e-3a51-4a53-9b5e-0a8f3a0c1d11"
        handle = await self.write(adapter, "First text.", record_id=given)
        assert handle.provider_record_id == given, "the record got another id than was given"
        again = await self.write(adapter, "Second text.", record_id=given, mode=WriteMode.UPSERT)
        assert again == handle, "an upsert on an id made another record"
        assert (await self.read(adapter, handle)).text == "Second text.", "upsert kept the old text"

    @needs("exact")
    async def test_creation_time_is_kept(self, adapter: Adapter) -> None:
        """A given creation time is kept, if the provider returns creation times."""
        handle = await self.write(adapter, "From the past.", created_at=day(3))
        record = await self.read(adapter, handle)
        if record.created_at is not None:
            assert record.created_at == day(3), "created_at is not the time that was given"

    @needs("writable", "expiry")
    async def test_expired_is_not_returned(self, adapter: Adapter) -> None:
        """`expiry`: an expired record is not returned by any call."""
        late = await self.write(adapter, "Stale zebra token.", expires_at=day(1))
        future = day(36_500)
        fresh = await self.write(adapter, "Fresh zebra token.", expires_at=future)
        assert await adapter.get(late, self.scope()) is None, "get returns an expired record"
        ids = await self.found(adapter, "zebra token")
        assert late.provider_record_id not in ids, "query returns an expired record"
        assert fresh.provider_record_id in ids, "query hides a record that has not expired"
        assert (await self.read(adapter, fresh)).expires_at == future, "expires_at was lost"
        if adapter.capabilities.browse:
            ids = await self.listed(adapter)
            assert late.provider_record_id not in ids, "browse returns an expired record"

    @needs("writable", "pin")
    async def test_pin_is_kept(self, adapter: Adapter) -> None:
        """`pin`: a pinned record is marked as pinned."""
        handle = await self.write(adapter, "Always remember this.", pinned=True)
        assert (await self.read(adapter, handle)).pinned, "the pin was lost"
        other = await self.write(adapter, "Remember this perhaps.")
        assert not (await self.read(adapter, other)).pinned, "a record is pinned unasked"

    @needs("exact")
    async def test_what_is_not_kept_is_refused(self, adapter: Adapter) -> None:
        """A pin or an expiry that the provider does not keep is refused, never dropped."""
        asked: dict[str, dict[str, Any]] = {
            "pin": {"pinned": True},
            "expiry": {"expires_at": day(36_500)},
        }
        for ability, fields in asked.items():
            if not getattr(adapter.capabilities, ability):
                with pytest.raises((Unsupported, Invalid)):
                    await self.write(adapter, "Kept with what it cannot have.", **fields)

    @needs("read_only")
    async def test_read_only_refuses(self, adapter: Adapter) -> None:
        """Without `writable`, nothing can be changed."""
        request = WriteRequest(scope=self.scope(), source=self.source(), content="No.")
        with pytest.raises(Unsupported):
            await adapter.write(request)
        with pytest.raises(Unsupported):
            await self.forget(adapter, self.unknown(adapter))

    async def test_malformed_handles(self, adapter: Adapter) -> None:
        """A malformed handle names no record; only errors of the contract are raised."""
        for record_id in ODD_IDS:
            await self._names_nothing(adapter, record_id)

    async def _names_nothing(self, adapter: Adapter, record_id: str) -> None:
        handle = RecordHandle(provider_key=adapter.key, provider_record_id=record_id)
        try:
            record = await adapter.get(handle, self.scope())
        except MemtuiError:
            record = None
        assert record is None, f"get answered a record for the id {record_id[:40]!r}"
        if adapter.capabilities.writable:
            try:
                missing = await self.forget(adapter, handle)
            except MemtuiError:
                return
            assert missing == (handle,), "forgetting nothing must report it as missing"


class ReadChecks(Kit):
    """Checks of `get`, `query`, `forget` and of what an adapter reports about itself."""

    async def test_get_of_nothing(self, adapter: Adapter) -> None:
        """An unknown handle is None, not an error."""
        record = await adapter.get(self.unknown(adapter), self.scope())
        assert record is None, "get of an unknown handle must return None"

    async def test_query_of_nothing(self, adapter: Adapter) -> None:
        """Nothing found is an empty bundle."""
        assert await self.found(adapter, "qxzvkj") == [], "query found what nobody wrote"

    @needs("writable")
    async def test_query_right_after_write(self, adapter: Adapter) -> None:
        """A write can be found at once."""
        handle = await self.write(adapter, "The staging cluster runs on marmoset hardware.")
        ids = await self.found(adapter, "marmoset hardware")
        assert handle.provider_record_id in ids, "query does not find what was just written"

    @needs("exact")
    async def test_snippet_is_the_record(self, adapter: Adapter) -> None:
        """A snippet carries the record's text, source and handle."""
        handle = await self.write(adapter, "Invoices are archived by the pelican job.")
        request = QueryRequest(scope=self.scope(), query="pelican invoices")
        snippet = (await adapter.query(request)).snippets[0]
        record = await self.read(adapter, handle)
        assert snippet.handle == handle, "the best snippet is not the record"
        assert snippet.text == record.text, "the snippet's text is not the record's"
        assert snippet.source == record.source, "the snippet's source is not the record's"

    @needs("exact")
    async def test_top_k(self, adapter: Adapter) -> None:
        """No more than top_k, best first, and `capped` where more would match."""
        for number in range(6):
            await self.write(adapter, f"Walrus observation number {number}.")
        bundle = await adapter.query(
            QueryRequest(scope=self.scope(), query="walrus observation", top_k=4)
        )
        assert len(bundle.snippets) == 4, "query returned another number than top_k"
        scores = [snippet.score for snippet in bundle.snippets if snippet.score is not None]
        assert scores == sorted(scores, reverse=True), "snippets are not best first"
        ids = [snippet.handle.provider_record_id for snippet in bundle.snippets]
        assert len(set(ids)) == len(ids), "query returned a record twice"

    @needs("writable")
    async def test_odd_queries(self, adapter: Adapter) -> None:
        """Any text is accepted as a query."""
        await self.write(adapter, "An ordinary record.")
        for query in ODD_QUERIES:
            bundle = await adapter.query(QueryRequest(scope=self.scope(), query=query))
            assert len(bundle.snippets) <= 1, f"{query[:9]!r} returned more records than there are"

    @needs("exact")
    async def test_metadata_filter(self, adapter: Adapter) -> None:
        """A metadata filter excludes records that do not match it."""
        await self.write(adapter, "Otter note one.", metadata={"stage": "draft"})
        kept = await self.write(adapter, "Otter note two.", metadata={"stage": "final"})
        ids = await self.found(adapter, "otter note", metadata_filter={"stage": "final"})
        due = [] if "metadata" in adapter.lacks else [kept.provider_record_id]
        assert ids == due, "the metadata filter is not applied"

    @needs("exact", "agents_search")
    async def test_agents_search(self, adapter: Adapter) -> None:
        """`agents_search`: the agents' search finds a record by its words, and not by others."""
        handle = await self.write(adapter, "quokka")
        as_agents: dict[str, Any] = {"matching": Matching.AGENTS}
        ids = await self.found(adapter, "quokka", **as_agents)
        assert handle.provider_record_id in ids, "its agents do not find what was just written"
        found = await self.found(adapter, "qxzvkj", **as_agents)
        assert self.finds_neighbours or not found, "they find anything"

    @needs("exact", "owners")
    async def test_projects_are_apart(self, adapter: Adapter) -> None:
        """A project's records are not seen from another project."""
        other = self.scope(project_id="gemini")
        handle = await self.write(adapter, "Gemini keeps a secret heron.", scope=other)
        assert await self.found(adapter, "secret heron") == [], "query crossed projects"
        assert await adapter.get(handle, self.scope()) is None, "get crossed projects"
        ids = await self.found(adapter, "secret heron", scope=other)
        assert ids == [handle.provider_record_id], "query misses its own project"

    @needs("exact")
    async def test_forget(self, adapter: Adapter) -> None:
        """A forgotten record is not returned by any call; unknown handles are reported."""
        handle = await self.write(adapter, "Obsolete badger procedure.")
        kept = await self.write(adapter, "Current badger procedure.")
        unknown = self.unknown(adapter)
        missing = await self.forget(adapter, handle, unknown)
        assert missing == (unknown,), "missing must name exactly the unknown handle"
        assert await adapter.get(handle, self.scope()) is None, "get finds a forgotten record"
        ids = await self.found(adapter, "badger procedure")
        assert ids == [kept.provider_record_id], "query finds a forgotten record, or lost another"
        again = await self.forget(adapter, handle)
        assert again == (handle,), "a second forget must report the handle as missing"

    @needs("exact", "browse")
    async def test_forgotten_is_not_listed(self, adapter: Adapter) -> None:
        """Browse does not list forgotten records."""
        handle = await self.write(adapter, "Soon forgotten.")
        await self.forget(adapter, handle)
        assert await self.listed(adapter) == [], "browse lists a forgotten record"

    @needs("exact", "without")
    async def test_without_is_as_after_a_forget(self, adapter: Adapter) -> None:
        """`without` returns the same results as forgetting the records would."""
        texts = ("badger sett", "badger badger", "badger sett of the hill", "quiet heron", "badger")
        handles = [await self.write(adapter, f"The {text}.") for text in texts]
        gone = [handles[0], handles[1]]
        queries = ("badger sett", "the badger of the hill", "heron")

        async def read(by: Adapter) -> list[object]:
            answers = [
                await by.query(QueryRequest(scope=self.scope(), query=query)) for query in queries
            ]
            ranks = [
                [(snippet.handle, snippet.text, snippet.score) for snippet in answer.snippets]
                for answer in answers
            ]
            if not by.capabilities.browse:
                return [ranks]
            page = await by.browse(BrowseRequest(scope=self.scope(), sort="title"))
            return [ranks, [record.handle for record in page.records], page.total]

        before = await read(adapter)
        whole = await adapter.without(())
        less = await whole.without([handle.provider_record_id for handle in gone])
        direct = await adapter.without([handle.provider_record_id for handle in gone])
        assert await read(whole) == before, "without nothing left out must be as it is"
        assert await read(adapter) == before, "reading without a record must change nothing"
        await self.write(adapter, "The badger of tomorrow.")
        expected = await read(less)
        assert await read(direct) == expected, "a copy's copy must be as the adapter's own"
        assert await read(whole) == before, "a copy must not follow what is written later"
        for copy in (whole, less, direct):
            await copy.close()
            await copy.close()
        for handle in await self._of_tomorrow(adapter):
            await self.forget(adapter, handle)
        await self.forget(adapter, *gone)
        assert await read(adapter) == expected, "without a record must be as after its forget"

    async def _of_tomorrow(self, adapter: Adapter) -> list[RecordHandle]:
        found = await adapter.query(QueryRequest(scope=self.scope(), query="tomorrow"))
        return [one.handle for one in found.snippets if "tomorrow" in one.text]

    async def test_abilities_that_are_not_there(self, adapter: Adapter) -> None:
        """A method whose capability is unset raises `Unsupported`."""
        can, scope, handle = adapter.capabilities, self.scope(), self.unknown(adapter)
        query = QueryRequest(scope=scope, query="x")
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "browse": lambda: adapter.browse(BrowseRequest(scope=scope)),
            "correction": lambda: adapter.correct(
                CorrectRequest(scope=scope, handle=handle, text="x")
            ),
            "profile": lambda: adapter.profile(scope),
            "sync": adapter.sync,
            "explain": lambda: adapter.explain(query),
            "history": lambda: adapter.history(handle, scope),
            "links": lambda: adapter.links([handle], scope),
            "tags": lambda: adapter.tags(scope),
            "without": lambda: adapter.without(()),
            "namespaces": adapter.namespaces,
            "restore": lambda: adapter.restore((), scope),
        }
        for ability, call in calls.items():
            if not getattr(can, ability):
                try:
                    await call()
                except Unsupported:
                    continue
                pytest.fail(f"{ability} is not offered, and its method answers all the same")
        if not can.watch:
            with pytest.raises(Unsupported):
                adapter.watch()

    @needs("explain")
    async def test_explain(self, adapter: Adapter) -> None:
        """`explain` names at least one stage."""
        explained = await adapter.explain(QueryRequest(scope=self.scope(), query="anything"))
        assert isinstance(explained, Explanation), "explain must return an Explanation"
        assert explained.stages, "explain names no stage"

    @needs("namespaces")
    async def test_namespaces(self, adapter: Adapter) -> None:
        """`namespaces` lists each namespace once."""
        if adapter.capabilities.writable:
            await self.write(adapter, "Something in a namespace.")
        names = await adapter.namespaces()
        assert all(isinstance(name, Namespace) for name in names), "not a Namespace"
        keys = [name.name for name in names]
        assert len(set(keys)) == len(keys), "a namespace is listed twice"

    @needs("exact", "sync")
    async def test_sync_changes_nothing_that_is_in_step(self, adapter: Adapter) -> None:
        """`sync` after a write sees the record and keeps it."""
        handle = await self.write(adapter, "Kept over a sync, says the ibex.")
        reply = await adapter.sync()
        assert reply.seen >= 1, "sync did not see the record"
        assert reply.removed == 0, "sync removed something that is there"
        ids = await self.found(adapter, "ibex")
        assert ids == [handle.provider_record_id], "the record is not found after a sync"

    async def test_health(self, adapter: Adapter) -> None:
        """Health answers and never raises."""
        health = await adapter.health()
        assert health.status in {"ok", "degraded", "down"}, "health has an unknown status"

    async def test_close_twice(self, adapter: Adapter) -> None:
        """Closing again is harmless."""
        await adapter.close()
        await adapter.close()


class ListChecks(Kit):
    """Checks of `browse`."""

    async def _fill(self, adapter: Adapter, number: int) -> list[str]:
        handles = [
            await self.write(
                adapter,
                f"Record {index}{' long' * (index % 3)}",
                title=f"Title {index % 4}",
                created_at=day(index % 5),
            )
            for index in range(number)
        ]
        return [handle.provider_record_id for handle in handles]

    async def _pages(self, adapter: Adapter, sort: str, limit: int) -> list[list[str]]:
        pages: list[list[str]] = []
        cursor: str | None = None
        while True:
            request = BrowseRequest(scope=self.scope(), sort=sort, cursor=cursor, limit=limit)
            page = await adapter.browse(request)
            assert len(page.records) <= limit, "a page is longer than its limit"
            pages.append([record.handle.provider_record_id for record in page.records])
            cursor = page.next_cursor
            if cursor is None:
                return pages
            assert len(pages) < 1000, "the cursor never ends"

    @needs("exact", "browse")
    async def test_pages_cover_everything_once(self, adapter: Adapter) -> None:
        """Small pages contain each record exactly once, in the order of one large page."""
        ids = await self._fill(adapter, 11)
        for sort in _SORTS:
            shown = [one for page in await self._pages(adapter, sort, 3) for one in page]
            assert sorted(shown) == sorted(ids), f"pages by {sort} miss or repeat records"
            whole = [one for page in await self._pages(adapter, sort, 1000) for one in page]
            assert shown == whole, f"small pages by {sort} are in another order than a large one"

    @needs("exact", "browse")
    async def test_order(self, adapter: Adapter) -> None:
        """Records come in the requested order."""
        await self._fill(adapter, 7)
        orders: dict[str, Callable[[Record], Any]] = {
            "created_at": lambda record: record.created_at,
            "title": lambda record: record.title,
            "size": lambda record: len(record.text),
        }
        for name, of in orders.items():
            for sort in (name, f"-{name}"):
                page = await adapter.browse(BrowseRequest(scope=self.scope(), sort=sort))
                values = [of(record) for record in page.records]
                if None not in values:
                    due = sorted(values, reverse=sort != name)
                    assert values == due, f"records are not in the order of {sort}"

    @needs("exact", "browse")
    async def test_total(self, adapter: Adapter) -> None:
        """A total counts the records of all pages, not of one."""
        await self._fill(adapter, 5)
        page = await adapter.browse(BrowseRequest(scope=self.scope(), limit=2))
        assert page.next_cursor is not None, "more follows, and there is no cursor"
        if page.total is not None and not page.at_least:
            assert page.total == 5, "the total is not the number of records"

    @needs("exact", "browse")
    async def test_cursor_survives_an_insert(self, adapter: Adapter) -> None:
        """A record written between two pages makes no other record appear twice or vanish."""
        ids = await self._fill(adapter, 6)
        request = BrowseRequest(scope=self.scope(), sort="-created_at", limit=3)
        first = await adapter.browse(request)
        await self.write(adapter, "Newest of all.", created_at=day(1000))
        rest = await adapter.browse(request.model_copy(update={"cursor": first.next_cursor}))
        shown = [r.handle.provider_record_id for r in (*first.records, *rest.records)]
        assert sorted(shown) == sorted(ids), "an insert shifted the pages"

    @needs("browse")
    async def test_foreign_cursor(self, adapter: Adapter) -> None:
        """A malformed cursor raises an error of the contract."""
        with pytest.raises(MemtuiError):
            await adapter.browse(BrowseRequest(scope=self.scope(), cursor="?? not a cursor ??"))

    @needs("exact", "browse")
    async def test_filters(self, adapter: Adapter) -> None:
        """Each filter returns exactly the matching records, for every field that is stored."""
        handle = await self.write(
            adapter,
            "The Wanted Record speaks of Lynxes.",
            scope=self.scope(agent_id="coder", issue_id="I-1", run_id="r-1", subject_id="ana"),
            source=self.source(SourceKind.RUN, run_id="r-1"),
            topic="cats",
            tags=("Élan/Wild", "rare"),
            kind="guidance",
            created_at=day(100),
        )
        await self.write(adapter, "Another record of the sea.", created_at=day(50))
        record = await self.read(adapter, handle)
        kept = {
            "agent_id": record.scope.agent_id,
            "issue_id": record.scope.issue_id,
            "run_id": record.scope.run_id,
            "subject_id": record.scope.subject_id,
            "source_kind": record.source.kind if record.source else None,
            "topic": record.topic,
            "kind": record.kind if record.kind == "guidance" else None,
            "tag": record.tags[0].upper() if record.tags else None,
            "text": "lynxes WANTED",
            "fuzzy": ("lnx", "SPEKAS"),
            "since": day(99) if record.created_at == day(100) else None,
        }
        for name, value in kept.items():
            if value is not None:
                ids = await self.listed(adapter, **{name: value})
                assert ids == [handle.provider_record_id], f"the filter by {name} is not applied"
        at = self.source(SourceKind.ISSUE_COMMENT, issue_id="I-2", comment_id="c-7")
        said = await self.write(adapter, "Said in a comment.", source=at)
        if (known := (await self.read(adapter, said)).source) is not None and known.comment_id:
            ids = await self.listed(adapter, comment_id="c-7")
            assert ids == [said.provider_record_id], "the filter by comment_id is not applied"
            assert not await self.listed(adapter, comment_id="c-8"), (
                "another comment is let through"
            )
        await self.forget(adapter, said)
        one_each: dict[str, Any] = {**kept, "text": "lynxes", "fuzzy": "lnx", "since": None}
        for name, value in one_each.items():
            if value is None:
                continue
            without = Term.model_validate({"field": name, "values": (value,), "excluded": True})
            ids = await self.listed(adapter, terms=(without,))
            assert len(ids) == 1, f"excluding a {name} hides what has none, or nothing"
            assert ids != [handle.provider_record_id], f"an excluded {name} is let through"
            if name not in {"text", "fuzzy", "source_kind"}:
                either = Term.model_validate({"field": name, "values": ("zebra", value)})
                ids = await self.listed(adapter, terms=(either,))
                assert ids == [handle.provider_record_id], f"one of several of {name} is not found"
        if kept["since"] is not None:
            ids = await self.listed(adapter, until=day(100))
            assert handle.provider_record_id not in ids, "until must be exclusive"
            assert len(ids) == 1, "until hides an older record"
            ids = await self.listed(adapter, since=day(100))
            assert ids == [handle.provider_record_id], "since must be inclusive"

    @needs("exact", "browse", "owners")
    async def test_filter_by_project(self, adapter: Adapter) -> None:
        """Browsing one project shows no other."""
        handle = await self.write(adapter, "In apollo.")
        await self.write(adapter, "In gemini.", scope=self.scope(project_id="gemini"))
        ids = await self.listed(adapter)
        assert ids == [handle.provider_record_id], "browse of a project shows another's records"
        everything = BrowseRequest(
            scope=self.scope().model_copy(update={"project_id": None}),
            filter=Filter(project_id="apollo"),
        )
        page = await adapter.browse(everything)
        assert [r.handle for r in page.records] == [handle], "the filter by project is not applied"

    @needs("exact", "browse")
    async def test_what_a_scope_sees(self, adapter: Adapter) -> None:
        """`lists` and `sees` foretell what `browse`, `query` and `get` find in a scope."""
        ana, coder = {"subject_id": "ana"}, {"agent_id": "coder"}
        apollo, gemini = {"project_id": "apollo"}, {"project_id": "gemini"}
        named = [{}, ana, coder, apollo, gemini, apollo | ana, apollo | coder, gemini | ana]
        scopes = [Scope(company_id=COMPANY, **ids) for ids in named]
        records: list[Record] = []
        for number, scope in enumerate(scopes):
            try:
                handle = await self.write(adapter, f"Heron {number}.", scope=scope)
            except (Invalid, Unsupported):
                continue
            record = await adapter.get(handle, scope)
            assert record is not None, f"{scope} does not see what was written in it"
            records.append(record)
        for scope in scopes:
            page = await adapter.browse(BrowseRequest(scope=scope, limit=1000))
            listed = {one.handle for one in page.records}
            wanted = {one.handle for one in records if adapter.lists(scope, one.scope)}
            assert listed == wanted, f"`lists` does not agree with the list of {scope}"
            found = set(await self.found(adapter, "heron", scope=scope, top_k=100))
            for one in records:
                got = await adapter.get(one.handle, scope) is not None
                is_seen = adapter.sees(scope, one)
                assert got == is_seen, f"`sees` does not agree with `get` in {scope}"
                is_found = one.handle.provider_record_id in found
                assert is_found == is_seen, f"`sees` does not agree with a query of {scope}"


def _essence(record: Record) -> dict[str, object]:
    return {name: getattr(record, name) for name in _SAME}


class ChangeChecks(Kit):
    """Checks of `correct`, `snapshot`, `restore` and `history`."""

    @needs("exact", "correction")
    async def test_correct(self, adapter: Adapter) -> None:
        """A correction changes the text and the revision, and nothing else."""
        handle = await self.write(adapter, "Old heron wording.", metadata={"keep": "me"})
        before = await self.read(adapter, handle)
        after = await self.correct(
            adapter, handle, text="New falcon wording.", revision=before.revision
        )
        assert after.text == "New falcon wording.", "the text was not corrected"
        assert after.revision != before.revision, "the revision did not change with the record"
        assert after.source == before.source, "a correction lost the source"
        keep = before.metadata.get("keep")  # other fields may follow the text
        assert after.metadata.get("keep") == keep, "a correction lost the metadata"
        assert after.created_at == before.created_at, "a correction changed the creation time"
        ids = await self.found(adapter, "falcon")
        assert ids == [after.handle.provider_record_id], "query misses the corrected text"
        request = QueryRequest(scope=self.scope(), query="heron")
        found = [snippet.text for snippet in (await adapter.query(request)).snippets]
        assert "Old heron wording." not in found, "query still finds the old text"
        assert self.finds_neighbours or not found, "query still finds the record by its old text"

    @needs("exact", "correction", "pin")
    async def test_correct_the_rest(self, adapter: Adapter) -> None:
        """Topic, tags and pin can be corrected while the text stays."""
        handle = await self.write(adapter, "Unchanged text.", topic="old", tags=("one",))
        after = await self.correct(adapter, handle, topic="new", tags=("two", "three"), pinned=True)
        assert after.text == "Unchanged text.", "the text changed unasked"
        assert after.topic == "new", "the topic was not corrected"
        assert after.tags == ("two", "three"), "the tags were not corrected"
        assert after.pinned, "the pin was not set"
        after = await self.correct(adapter, handle, pinned=False)
        assert not after.pinned, "the pin was not taken away"
        assert after.topic == "new", "a field that was not given changed"

    @needs("exact", "correction", "expiry")
    async def test_expiry_is_set_and_taken_away(self, adapter: Adapter) -> None:
        """`expiry`: a correction can set it, keep it and remove it."""
        handle = await self.write(adapter, "Kept for a while.", expires_at=day(36_500))
        longer = await self.correct(adapter, handle, expires_at=day(40_000))
        assert longer.expires_at == day(40_000), "the expiry was not corrected"
        other = await self.correct(adapter, longer.handle, text="Kept for long.")
        assert other.expires_at == day(40_000), "a correction of the text changed the expiry"
        last = await self.correct(adapter, other.handle, never_expires=True)
        assert last.expires_at is None, "the expiry was not taken away"
        assert last.text == "Kept for long.", "the text changed unasked"

    @needs("exact", "correction", "revisions")
    async def test_stale_correction(self, adapter: Adapter) -> None:
        """A correction based on an old revision is a conflict, and changes nothing."""
        handle = await self.write(adapter, "Version one.")
        stale = (await self.read(adapter, handle)).revision
        assert stale is not None, "there is no revision; set `has_revisions` to False if so meant"
        handle = (await self.correct(adapter, handle, text="Version two.")).handle
        with pytest.raises(Conflict) as caught:
            await self.correct(adapter, handle, text="Version three.", revision=stale)
        assert caught.value.proposed == "Version three.", "the conflict lacks the proposed text"
        current = caught.value.current
        assert current is not None, "the conflict lacks the current record"
        assert current.text == "Version two.", "the conflict's record is not the current one"
        assert (await self.read(adapter, handle)).text == "Version two.", "a conflict changed text"

    @needs("writable", "correction")
    async def test_correct_nothing(self, adapter: Adapter) -> None:
        """Correcting a record that does not exist is `NotFound`."""
        with pytest.raises(NotFound):
            await self.correct(adapter, self.unknown(adapter), text="x")

    @needs("exact", "revisions")
    async def test_stale_forget(self, adapter: Adapter) -> None:
        """One stale revision among several: a conflict, and none is removed."""
        handles = [await self.write(adapter, f"Bulk {number}.") for number in range(3)]
        records = [await self.read(adapter, handle) for handle in handles]
        assert records[0].revision, "there is no revision; set `has_revisions` to False if so meant"
        revisions = {r.handle.provider_record_id: r.revision or "" for r in records}
        revisions[handles[2].provider_record_id] = "stale"
        with pytest.raises(Conflict):
            await self.forget(adapter, *handles, **revisions)
        for handle in handles:
            assert await adapter.get(handle, self.scope()), "a refused forget removed a record"

    @needs("exact", "restore")
    async def test_restore_after_forget(self, adapter: Adapter) -> None:
        """`restore`: a forgotten record comes back whole, under its own id."""
        handles = [
            await self.write(adapter, f"Restorable {n}.", tags=("t",), metadata={"n": n})
            for n in range(3)
        ]
        before = [await self.read(adapter, handle) for handle in handles]
        taken = await adapter.snapshot(handles, self.scope())
        assert [s.handle for s in taken] == handles, "snapshots are not in the order asked for"
        assert [s.record for s in taken] == before, "a snapshot's record is not the record"
        await self.forget(adapter, *handles)
        reply = await adapter.restore(list(reversed(taken)), self.scope())
        await self.settle(adapter)
        assert set(reply.records) == set(handles), "restore returned other handles"
        after = [await self.read(adapter, handle) for handle in handles]
        assert [_essence(r) for r in after] == [_essence(r) for r in before], "not as it was"
        ids = await self.found(adapter, "restorable")
        assert set(ids) == {h.provider_record_id for h in handles}, "query misses restored records"

    @needs("exact", "restore", "correction")
    async def test_restore_after_correct(self, adapter: Adapter) -> None:
        """`restore`: a corrected record gets its old text back."""
        handle = await self.write(adapter, "Before the correction.")
        taken = await adapter.snapshot([handle], self.scope())
        await self.correct(adapter, handle, text="After.")
        await adapter.restore(taken, self.scope())
        record = await self.read(adapter, handle)
        assert record.text == "Before the correction.", "the old text did not come back"

    @needs("exact", "restore")
    async def test_restore_of_nothing_removes(self, adapter: Adapter) -> None:
        """`restore`: a snapshot without a record removes the record."""
        handle = await self.write(adapter, "Written by mistake.")
        await adapter.restore([Snapshot(handle=handle, record=None)], self.scope())
        assert await adapter.get(handle, self.scope()) is None, "the record is still there"
        unknown = (await adapter.snapshot([self.unknown(adapter)], self.scope()))[0]
        assert unknown.record is None, "a snapshot of nothing has a record"

    @needs("restore")
    async def test_snapshots_of_malformed_handles(self, adapter: Adapter) -> None:
        """A snapshot of a malformed handle raises only errors of the contract."""
        for record_id in ("../../x", "a\0b", "💥", "facts.md#", "x" * 5000):
            handle = self.unknown(adapter, record_id)
            try:
                taken = await adapter.snapshot([handle], self.scope())
            except MemtuiError:
                continue
            assert taken[0].record is None, f"a snapshot of {record_id[:20]!r} has a record"

    @needs("exact", "history")
    async def test_history(self, adapter: Adapter) -> None:
        """`history`: newest first, and the newest is the present record."""
        handle = await self.write(adapter, "First wording.")
        if adapter.capabilities.correction:
            handle = (await self.correct(adapter, handle, text="Second wording.")).handle
        record = await self.read(adapter, handle)
        versions = await adapter.history(handle, self.scope())
        assert versions, "a record that is there has no history"
        assert versions[0].text == record.text, "the newest version is not what holds"
        starts = [version.valid_from for version in versions if version.valid_from is not None]
        assert starts == sorted(starts, reverse=True), "history is not newest first"
        nothing = await adapter.history(self.unknown(adapter), self.scope())
        assert list(nothing) == [], "an unknown record has a history"

    @needs("exact", "summaries")
    async def test_summaries(self, adapter: Adapter) -> None:
        """`summaries`: a summary is stored with the text, and corrected and removed separately."""
        text = "The migration ran on Tuesday and the numbers were right."
        handle = await self.write(adapter, text, summary="Billing moved to wombat storage.")
        record = await self.read(adapter, handle)
        assert (record.text, record.summary) == (text, "Billing moved to wombat storage.")
        if not adapter.capabilities.correction:
            return
        for summary in ("Billing moved to numbat storage.", ""):
            change = CorrectRequest(scope=self.scope(), handle=handle, summary=summary)
            handle = (await adapter.correct(change)).handle
            record = await self.read(adapter, handle)
            assert (record.text, record.summary or "") == (text, summary), "the summary is wrong"

    @needs("exact", "validity", "history")
    async def test_validity(self, adapter: Adapter) -> None:
        """`validity`: replacing a key's value ends its window and starts the next."""
        fields: dict[str, Any] = {"kind": "fact", "mode": WriteMode.UPSERT}
        await self.write(adapter, "deploy_branch: main", valid_from=day(10), **fields)
        handle = await self.write(adapter, "deploy_branch: release", valid_from=day(20), **fields)
        assert (await self.read(adapter, handle)).text == "deploy_branch: release", "old value"
        versions = await adapter.history(handle, self.scope())
        texts = [version.text for version in versions]
        assert texts == ["deploy_branch: release", "deploy_branch: main"], "history is wrong"
        asked: dict[str, Any] = {"scope": self.scope(), "query": "deploy branch"}
        windows = [(version.valid_from, version.valid_to) for version in versions]
        assert windows == [(day(20), None), (day(10), day(20))], "the windows do not meet"
        past = await adapter.query(QueryRequest(**asked, as_of=day(15)))
        assert [s.text for s in past.snippets] == ["deploy_branch: main"], "as_of is not honoured"
        now = await adapter.query(QueryRequest(**asked))
        assert [s.text for s in now.snippets] == ["deploy_branch: release"], "the past is returned"

    @needs("exact", "validity", "browse")
    async def test_a_window_with_an_end(self, adapter: Adapter) -> None:
        """`validity`: a fact with an end is valid only in its window, or is refused."""
        window: dict[str, Any] = {"valid_from": day(10), "valid_to": day(20)}
        try:
            await self.write(adapter, "freeze: on", kind="fact", **window)
        except (Unsupported, Invalid):
            return
        assert await self.listed(adapter) == [], "what ended is listed"
        for number, wanted in {9: [], 10: ["freeze: on"], 19: ["freeze: on"], 20: []}.items():
            page = await adapter.browse(BrowseRequest(scope=self.scope(), as_of=day(number)))
            assert [one.text for one in page.records] == wanted, "the window is not kept to"

    @needs("exact", "validity", "browse")
    async def test_versions(self, adapter: Adapter) -> None:
        """`validity`: every version is returned with its window, even of a forgotten record."""
        fields: dict[str, Any] = {"kind": "fact", "mode": WriteMode.UPSERT}
        await self.write(adapter, "region: eu", valid_from=day(10), **fields)
        await self.write(adapter, "region: us", valid_from=day(20), **fields)
        gone = await self.write(adapter, "owner: ana", valid_from=day(15), **fields)
        await self.forget(adapter, gone)
        other = self.scope(project_id="gemini")
        await self.write(adapter, "region: asia", scope=other, valid_from=day(10), **fields)
        versions = await adapter.versions(self.scope())
        windows = sorted((one.text, one.valid_from, one.valid_to is None) for one in versions)
        assert windows == [
            ("owner: ana", day(15), False), ("region: eu", day(10), False),
            ("region: us", day(20), True),
        ], "these are not the versions and windows of the scope"  # fmt: skip
        for number, wanted in {5: [], 12: ["region: eu"], 17: ["owner: ana", "region: eu"],
                               25: ["owner: ana", "region: us"]}.items():  # fmt: skip
            request = BrowseRequest(scope=self.scope(), sort="title", as_of=day(number))
            page = await adapter.browse(request)
            assert [one.text for one in page.records] == wanted, "browse does not keep to as_of"
            assert page.total in {None, len(wanted)}, "the total is not that of the moment"
            pending = sorted(one.text for one in versions if holds_at(one, day(number)))
            assert pending == wanted, "the versions tell otherwise than the list"


@pytest.mark.asyncio
class AdapterContract(WriteChecks, ReadChecks, ListChecks, ChangeChecks):
    """Subclass it as `TestSomething`, override `open_adapter`, and run pytest.

    Each check opens the adapter over a new empty folder. Checks that `capabilities` rules out are
    not collected. Example:

        class TestMine(AdapterContract):
            capabilities = MyAdapter.capabilities

            async def open_adapter(self, tmp_path: Path) -> Adapter:
                return await MyAdapter.open(self.context(tmp_path, url="http://127.0.0.1:9000"))
    """
