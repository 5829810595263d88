"""Traces of chains with links that a purge took, that waited for review, or that are shared."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from hashlib import sha256
from typing import Any, cast

import pytest
from sqlalchemy import Select, text
from sqlalchemy.dialects import postgresql, sqlite

from memtui.config import Paths, load_settings
from memtui.contract import (
    CorrectRequest,
    Denied,
    Filter,
    ForgetRequest,
    NotFound,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceRef,
    WriteRequest,
)
from memtui.presenters import traces as words
from memtui.service import Caller, MemoryService, open_service
from memtui.service.answers import MutationAnswer, ReviewRule, RuleAction, RuleTest
from memtui.service.context.contexts import ContextRequest
from memtui.service.history.traces import Certainty, MemoryTrace, Unknown
from memtui.service.home.survey import PurgeRequest
from memtui.service.usecases.forgetting import forget
from memtui.service.usecases.tracing import plan
from memtui.service.visibility import Membership, Role
from memtui.store.database import DatabaseConnection
from memtui.store.log import copied_from
from memtui.store.tables import MIGRATED_FROM
from tests.databases import ON_BOTH
from tests.service.fake import FakeAdapter
from tests.service.test_traces import APOLLO, NINE, PERSON, POISON, Clock, agent, give, tree, write

COMPANY = Scope(company_id="local")
BEN = Caller(company_id="local", principal="user:ben", channel="cli")


@pytest.fixture
def database_url() -> str:
    return ""


@pytest.fixture
async def service(paths: Paths, database_url: str) -> AsyncIterator[MemoryService]:
    FakeAdapter.reset()
    settings = load_settings(paths, principal="user:ana", database_url=database_url)
    opened = await open_service(paths, settings, clock=Clock(), providers={"fake": FakeAdapter})
    yield opened
    await opened.close()
    FakeAdapter.reset()


async def of_run(service: MemoryService, caller: Caller, said: str) -> MutationAnswer:
    """Write as hooks and the MCP server do: the write is from its run."""
    source = SourceRef(kind="run", company_id="local", run_id=caller.run_id)
    return await service.write(caller, WriteRequest(scope=APOLLO, source=source, content=said))


async def trace(service: MemoryService, origin: RecordHandle) -> MemoryTrace:
    return await service.traces.of_record(PERSON, "default", origin)


async def held_and_taken_back(service: MemoryService, found: MemoryTrace, records: int) -> None:
    """Hold what came of it, and forget it: one undo takes each back whole."""
    planned = await plan(service, PERSON, found, Certainty.RETURNED)
    before = len(await service.review.waiting(PERSON))
    held = await forget(service, PERSON, planned.records, hold="it came of the forum")
    assert len(await service.review.waiting(PERSON)) == before + records
    await service.undo_together(PERSON, held.answers[0].operation_id)
    assert len(await service.review.waiting(PERSON)) == before
    gone = await forget(service, PERSON, planned.records)
    assert sum(len(one.handles) for one in gone.answers) == records
    await service.undo_together(PERSON, gone.answers[0].operation_id)
    again = await plan(service, PERSON, found, Certainty.RETURNED)
    assert sum(map(len, again.records.values())) == records


@ON_BOTH
async def test_company_wide_memory_is_followed_over_bindings(service: MemoryService) -> None:
    """An agent gets a text with its `[MEMORY …]` prefix, and writes it back with the prefix."""
    await service.bindings.add(PERSON, "other", "vault", {})
    origin = await write(service, PERSON, f"Forum: {POISON}", scope=COMPANY)
    await service.bindings.set_target(PERSON, "project", "apollo", "other")
    asked = QueryRequest(scope=APOLLO, query="signing keys")
    told = (await service.everywhere.query(agent("run-1"), asked)).snippets[0].text
    assert told.startswith("[MEMORY ")
    await write(service, agent("run-1"), f"Again: {told}")
    note = ContextRequest(scope=APOLLO, prompt="copy the signing keys", delivered=True)
    await service.context(agent("run-2"), note)
    await write(service, agent("run-2"), "Mirrored.")
    await service.context(agent("run-3"), note.model_copy(update={"delivered": False}))
    await write(service, agent("run-3"), f"Seen by nobody: {' '.join(NINE)}")
    found = await trace(service, origin)
    assert tree(found)[:3] == [(0, 0, "Forum:"), (1, 1, "Again:"), (2, 2, "Mirrored.")]
    assert {one.run_id for one in found.records if one.certainty is Certainty.SAME_RUN} == {"run-2"}
    assert [one.place[0] for one in found.records[:2]] == ["default", "other"]
    await held_and_taken_back(service, found, 2)


@ON_BOTH
async def test_what_a_person_accepted_is_of_the_run_that_asked(service: MemoryService) -> None:
    origin = await write(service, PERSON, f"Forum: {POISON}")
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    await service.review.add_rule(PERSON, "default", rule)
    waiting = []
    for caller in (agent("run-1"), agent(None, "ops"), agent("run-2", "qa")):
        await give(service, caller, "Forum")
        said = f"Asked: {caller.principal} {POISON}"
        waiting.append((await of_run(service, caller, said)).pending)
    assert (await trace(service, origin)).unknown[Unknown.HELD] == 3
    for one, fixed in zip(waiting[:2], (None, f"Fixed: {POISON}"), strict=True):
        assert one is not None
        await service.review.accept(PERSON, one.pending_id, text=fixed)
    await give(service, agent("run-3", "reader"), "Fixed")
    found = await trace(service, origin)
    assert tree(found) == [(0, 0, "Forum:"), (1, 1, "Asked:"), (1, 1, "Fixed:")]
    assert [(one.run_id, one.by) for one in found.records[1:]] == [("run-1", "coding"), ("", "ops")]
    assert found.records[2].runs == {"run-3"}
    assert found.unknown[Unknown.HELD] == 1  # the third still waits
    await held_and_taken_back(service, found, 3)


@ON_BOTH
async def test_what_a_purge_took_from_the_middle_is_named(service: MemoryService) -> None:
    origin = await write(service, PERSON, f"Forum: {POISON}")
    await give(service, agent("run-1"), "Forum")
    middle = await write(service, agent("run-1"), f"Learned: {POISON} {' '.join(NINE)}")
    erased = (await service.log.page(PERSON, limit=1)).operations[0]
    await give(service, agent("run-2", "ops"), "heron stork")
    await write(service, agent("run-2", "ops"), f"Checklist: {POISON}")
    name = middle.provider_record_id
    request = PurgeRequest(record_id=name, binding_key="default", forget=True)
    await service.purging.apply(PERSON, request)
    found = await trace(service, origin)
    assert tree(found) == [(0, 0, "Forum:")]
    assert found.unknown[Unknown.PURGED] == 1
    said = " ".join(words.unknown(found.unknown, found.gaps))
    assert f"#{erased.seq}: a purge erased what was written at 2026-03-01 00:" in said
    assert "heron" not in said
    with pytest.raises(NotFound, match="or a purge has erased it"):
        await service.traces.of_writes(PERSON, Filter(run_id="run-1"))


async def test_a_fork_passes_on_what_its_run_was_given(service: MemoryService) -> None:
    """A client forks a session under a new id, so the log has no delivery to the fork."""
    origin = await write(service, PERSON, f"Forum: {POISON}")
    await give(service, agent("s-1"), "Forum")
    await write(service, agent("s-1-fork"), f"Forked: {POISON} {' '.join(NINE)}")
    await give(service, agent("s-2", "ops"), "heron stork")
    await write(service, agent("s-2", "ops"), f"Birds: {' '.join(NINE)}")
    assert tree(await trace(service, origin)) == [
        (0, 0, "Forum:"), (1, 1, "Forked:"), (2, 1, "Birds:"),
    ]  # fmt: skip


@pytest.mark.parametrize("others", [0, 1])
async def test_what_a_run_wrote_between_the_record_and_its_delivery_is_its_own(
    service: MemoryService, others: int
) -> None:
    origin = await write(service, PERSON, f"Forum: {POISON}")
    for number in range(others):
        await give(service, agent(f"other-{number}", "ops"), "Forum")
    await write(service, agent("run-1"), f"Mine: {POISON}")
    await give(service, agent("run-1"), "Forum")
    await write(service, agent("run-1"), f"Again: {POISON}")
    assert tree(await trace(service, origin)) == [(0, 0, "Forum:"), (1, 2, "Again:")]


async def roles(service: MemoryService, project: Role) -> None:
    for one in (
        Membership(principal="user:ana", role=Role.OWNER),
        Membership(principal="user:ben", role=project, project_id="apollo", subject_id="ben"),
    ):
        await service.members.set(PERSON, one)


async def test_who_may_read_and_not_forget_does_not_hold(service: MemoryService) -> None:
    """The admin of a project reads company-wide memory, which only the company's admins change."""
    await service.bindings.add(PERSON, "other", "vault", {})
    shared = await write(service, PERSON, f"Forum: {POISON}", scope=COMPANY)
    own = await write(service, PERSON, f"Apollo: {POISON}", binding="other")
    await roles(service, Role.ADMIN)
    first = await write(service, PERSON, "Owls sleep.")
    for handles in ((shared,), (first, shared)):
        request = ForgetRequest(scope=APOLLO, handles=handles, binding_key="default")
        with pytest.raises(Denied, match="You may not change or delete"):
            await service.review.hold(BEN, request, "he says so")
    assert not await service.review.waiting(PERSON)
    found = await service.traces.of_writes(BEN, Filter(text="signing"))
    planned = await plan(service, BEN, found, Certainty.RETURNED)
    planned.records["default"] = [(await service.get(BEN, shared, APOLLO)).record]
    done = await forget(service, BEN, planned.records, hold="he says so")
    assert [one.handles for one in done.answers] == [(own,)]
    assert [(one.binding_key, "You may not change" in one.sentence) for one in done.failed] == [
        ("default", True)
    ]


async def test_a_write_of_what_was_anothers_is_not_named(service: MemoryService) -> None:
    """It has two owners, before and after; a caller must be allowed to read both."""
    await service.bindings.add(PERSON, "memory", "fake", {})
    await roles(service, Role.ADMIN)
    his = Scope(company_id="local", subject_id="ben")
    origin = await write(service, PERSON, f"Forum: {POISON}")
    helper = agent("run-1", "helper").model_copy(update={"acts_for": "user:ben"})
    await give(service, helper, "Forum")
    moved = {"binding": "memory", "record_id": "one"}
    await write(service, BEN, "His own.", scope=his, **moved)
    source = SourceRef(kind="run", company_id="local", run_id="run-1")
    for number, scope in enumerate((APOLLO, his, APOLLO)):
        request = WriteRequest(scope=scope, source=source, content=f"Moved: {number}. {POISON}",
                               binding_key="memory", record_id="one", mode="upsert")  # fmt: skip
        await service.write(BEN.model_copy(update={"run_id": "run-1"}), request)
    found = await trace(service, origin)
    assert tree(found) == [(0, 0, "Forum:")]
    assert found.unknown[Unknown.HIDDEN] == 3
    seen = await service.traces.of_record(BEN, "default", origin)
    assert tree(seen)[1:] == [(1, 1, "Moved:"), (1, 2, "Moved:"), (1, 2, "Moved:")]


@ON_BOTH
async def test_who_was_given_it_is_known_of_the_past_and_of_what_one_sees(
    service: MemoryService,
) -> None:
    origin = await write(service, PERSON, f"Forum: {POISON}")
    await give(service, agent("run-1"), "Forum")
    moment = (await service.log.page(PERSON, limit=1)).operations[0].started_at
    for run in ("run-1", "run-2", "run-2"):
        await give(service, agent(run), "Forum")
    await roles(service, Role.MEMBER)
    his = APOLLO.model_copy(update={"subject_id": "ben"})
    for run in ("secret-1", "secret-1", "secret-2"):
        caller = agent(run, "helper").model_copy(update={"acts_for": "user:ben"})
        await give(service, caller, "Forum", scope=his, binding="default")
    found = await trace(service, origin)
    first = found.records[0]
    assert (first.deliveries, first.runs, found.runs) == (4, {"run-1", "run-2"}, 2)
    assert found.unknown == {Unknown.HIDDEN: 3}
    then = await service.traces.of_record(PERSON.at(moment), "default", origin)
    assert (then.records[0].deliveries, then.records[0].runs) == (1, {"run-1"})
    assert Unknown.HIDDEN not in then.unknown


@ON_BOTH
async def test_copies_are_looked_up_by_their_index(service: MemoryService) -> None:
    """A trace of one record would else read the whole journal for the stamps of migrations."""
    plans: list[str] = []
    with service.runtime.database.read() as database:
        is_sqlite = database.dialect == "sqlite"
        dialect = sqlite.dialect() if is_sqlite else postgresql.dialect(paramstyle="named")
        if not is_sqlite:
            database.execute(text("SET LOCAL enable_seqscan = off"))  # the table is empty

        class Explaining:
            dialect = database.dialect

            def execute(self, statement: Select[Any]) -> Iterable[Any]:
                asked = statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
                how = "EXPLAIN QUERY PLAN" if is_sqlite else "EXPLAIN"
                plans.extend(str(row) for row in database.execute(text(f"{how} {asked}")))
                return database.execute(statement)

        assert not copied_from(cast("DatabaseConnection", Explaining()), "local", 0)
    assert "memory_undo_journal_copies" in " ".join(plans)


async def test_an_id_that_is_the_digest_of_a_held_text_is_no_held_record(
    service: MemoryService,
) -> None:
    await service.bindings.add(PERSON, "memory", "fake", {})
    held = await write(service, PERSON, POISON, binding="memory", record_id="held")
    name = sha256(POISON.encode()).hexdigest()
    await write(service, PERSON, "Owls sleep.", binding="memory", record_id=name)
    request = ForgetRequest(scope=APOLLO, handles=(held,), binding_key="memory")
    await service.review.hold(PERSON, request, "why")
    asked = QueryRequest(scope=APOLLO, query="owls signing", binding_key="memory")
    [owls] = (await service.query(agent("run-1"), asked)).snippets
    assert owls.handle.provider_record_id == name


@ON_BOTH
async def test_a_copy_counts_while_its_record_had_the_text(service: MemoryService) -> None:
    await service.bindings.add(PERSON, "memory", "fake", {})

    async def copy(record: RecordHandle, said: str) -> None:
        stamp = {"binding": "default", "record_id": record.provider_record_id}
        source = SourceRef(kind="manual_note", company_id="local")
        request = WriteRequest(scope=APOLLO, source=source, content=said, binding_key="memory",
                               metadata={MIGRATED_FROM: stamp})  # fmt: skip
        await service.write(PERSON, request)

    origin = await write(service, PERSON, f"Forum: {POISON}")
    await give(service, agent("run-1"), "Forum")
    learned = await write(service, agent("run-1"), f"Learned: {POISON}")
    await copy(learned, f"First: {POISON}")
    clean = CorrectRequest(scope=APOLLO, handle=learned, text="Owls sleep.")
    await service.correct(PERSON, clean)
    await copy(learned, "Second: owls sleep.")
    found = await trace(service, origin)
    assert tree(found) == [(0, 0, "Forum:"), (1, 1, "Learned:"), (2, 1, "First:")]
    place = ("default", learned.provider_record_id)
    with service.runtime.database.read() as database:
        first, second = copied_from(database, "local", 0)[place]
        assert copied_from(database, "local", first) == {place: [second]}
        assert not copied_from(database, "other", 0)


async def test_a_reason_to_hold_keeps_no_secret_and_a_closed_company_holds_nothing(
    service: MemoryService,
) -> None:
    origin = await write(service, PERSON, f"Forum: {POISON}")
    request = ForgetRequest(scope=APOLLO, handles=(origin,), binding_key="default")
    token = "ghp_" + "a1B2" * 9
    await service.review.hold(PERSON, request, f"it has {token}")
    [held] = await service.review.waiting(PERSON)
    assert token not in repr(held)
    last = (await service.log.page(PERSON, limit=1)).operations[0]
    assert token not in last.model_dump_json()
    await service.undo(PERSON, last.operation_id)
    await service.companies.set_read_only(PERSON, read_only=True)
    with pytest.raises(Denied, match="read-only"):
        await service.review.hold(PERSON, request, "why")
    assert not await service.review.waiting(PERSON)


async def test_a_correction_by_another_is_no_delivery(service: MemoryService) -> None:
    origin = await write(service, PERSON, f"Forum: {POISON}")
    change = CorrectRequest(scope=APOLLO, handle=origin, text=f"Forum, fixed: {POISON}")
    await service.correct(agent("run-1"), change)
    found = await trace(service, origin)
    assert [one.deliveries for one in found.records if not one.operation] == [0]
