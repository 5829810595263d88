"""Plans over real providers: what the log knows counts, and undo leaves nothing changed."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from memtui.config import Paths, Settings, load_settings
from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Filter,
    ForgetRequest,
    OperationType,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceRef,
    WriteRequest,
)
from memtui.filters import parse_filter
from memtui.pruning.candidates import PruneRules, Reason
from memtui.service import BrowseAnswer, Caller, MemoryService, MutationAnswer, open_service
from memtui.service.context.contexts import ContextRequest
from memtui.service.context.pruning import PruneAnswer, PruneRequest
from memtui.service.operations import uses

CALLER = Caller(company_id="local", principal="user:ana", channel="test")
AGENT = Caller(company_id="local", principal="agent:coding", channel="test")
SOURCE = SourceRef(kind="manual_note", company_id="local")
ANA = Scope(company_id="local", subject_id="ana")
APOLLO = Scope(company_id="local", project_id="apollo")
START = datetime(2026, 5, 1, 12, tzinfo=UTC)
LOGGED = {
    "memory_operations", "memory_usage", "memory_operation_handles", "memory_undo_journal",
    "memory_log_heads", "memory_handle_links",
}  # fmt: skip


class Clock:
    """A second later at every look."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def settings(paths: Paths, database_url: str) -> Settings:
    return load_settings(paths, database_url=database_url)


@pytest.fixture
async def service(paths: Paths, settings: Settings, clock: Clock) -> AsyncIterator[MemoryService]:
    opened = await open_service(paths, settings, clock=clock)
    yield opened
    await opened.close()


async def write(
    service: MemoryService, text: str, scope: Scope = ANA, **fields: Any
) -> RecordHandle:
    given = {"scope": scope, "source": SOURCE, "content": text, "kind": "fact"}
    return (await service.write(CALLER, WriteRequest.model_validate(given | fields))).handles[0]


async def plan(service: MemoryService, scope: Scope = ANA, **fields: Any) -> PruneAnswer:
    return await service.pruning.plan(
        CALLER, PruneRequest.model_validate({"scope": scope, **fields})
    )


async def apply(service: MemoryService, answer: PruneAnswer, scope: Scope = ANA) -> MutationAnswer:
    marked = answer.plan.marked
    request = ForgetRequest(
        scope=scope,
        handles=tuple(record.handle for record in marked),
        revisions={r.handle.provider_record_id: r.revision for r in marked if r.revision},
        binding_key=answer.binding_key,
    )
    return await service.forget(CALLER, request)


def reasons(answer: PruneAnswer) -> set[tuple[str, str]]:
    return {(one.record.text, one.reason.value) for one in answer.plan.candidates}


async def test_what_was_there_before_its_binding_is_unread_after_a_week(
    service: MemoryService, clock: Clock, tmp_path: Path
) -> None:
    folder = tmp_path / "vault"
    folder.mkdir()
    (folder / "old.md").write_text("---\ncreated: 2020-01-01\n---\nUse tabs.\n", encoding="utf-8")
    await service.bindings.add(CALLER, "notes", "vault", {"path": str(folder)})
    asked: dict[str, Any] = {
        "scope": Scope(company_id="local"),
        "binding_key": "notes",
        "kind": None,
    }
    assert reasons(await plan(service, **asked)) == set()
    everything = PruneRequest(scope=asked["scope"], kind=None)
    assert (await service.pruning.everything(CALLER, everything)).insights == ()
    clock.now += timedelta(days=7)
    assert reasons(await plan(service, **asked)) == {("Use tabs.", "never_read")}


async def texts(service: MemoryService, scope: Scope = ANA) -> set[str]:
    page = await service.browse(CALLER, BrowseRequest(scope=scope, filter=Filter(kind="fact")))
    return {record.text for record in page.records}


async def used(service: MemoryService, line: str, now: datetime, limit: int = 100) -> list[str]:
    chosen = parse_filter(line, now=now)
    request = BrowseRequest(scope=ANA, filter=chosen, limit=limit, sort="created_at")
    found: list[str] = []
    while True:
        page = await service.browse(CALLER, request)
        found += [record.text for record in page.records]
        assert len(page.records) <= limit
        assert page.total in {None, len(found)}
        if page.next_cursor is None:
            return found
        request = request.model_copy(update={"cursor": page.next_cursor})


async def test_a_list_by_use_has_what_the_plan_and_the_columns_show(
    service: MemoryService, clock: Clock
) -> None:
    editor, tea, again = "Edits with vim", "Likes green tea very much", "likes green tea very much."
    essay = " ".join(f"essay{number}" for number in range(20))
    for text in (editor, tea, again, essay):
        await write(service, text)
    await service.query(CALLER, QueryRequest(scope=ANA, query="vim", top_k=1))
    clock.now += timedelta(days=40)
    await service.query(CALLER, QueryRequest(scope=ANA, query="essay7", top_k=1))
    [repeat] = {text for text, reason in reasons(await plan(service)) if "duplicate" in reason}
    [kept] = {tea, again} - {repeat}
    for line, expected in {
        "read:never": {tea, again},
        "-read:never": {editor, essay},
        "read:<30d": {essay},
        "stale:>30d": {editor},
        "-read:<30d": {editor, tea, again},
        "cost:>30": {essay},
        "-cost:>30 vim": {editor},
        "dup:yes": {repeat},
        "dup:no read:never": {kept},
    }.items():
        found = await used(service, line, clock.now)
        assert (set(found), len(found)) == (expected, len(expected)), line
        assert await used(service, line, clock.now, limit=1) == found
        narrowed = await plan(service, filter=parse_filter(line, now=clock.now))
        assert {text for text, _ in reasons(narrowed)} <= expected, line
    await write(service, "Older than the log", created_at=START - timedelta(days=9))
    unread = BrowseRequest(scope=ANA, filter=parse_filter("read:never", now=clock.now))
    assert (await service.browse(CALLER, unread)).unread == (
        "The log begins on 2026-05-01, so what read 1 older record before that is not known.",
    )


async def test_all_pages_of_repeats_are_read_together(
    service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uses, "_AT_ONCE", 2)
    for mark in ".!?,;":
        await write(service, f"Likes green tea very much{mark}")
    chosen = parse_filter("dup:yes", now=START)
    told: list[tuple[int, int | None]] = []

    async def page(cursor: str | None = None) -> BrowseAnswer:
        told.clear()
        request = BrowseRequest(scope=ANA, filter=chosen, limit=2, cursor=cursor)
        return await service.browse(CALLER, request, report=lambda *far: told.append(far))

    first = await page()
    assert (len(first.records), first.total, told) == (2, 4, [(2, 5), (4, 5), (5, 5)])
    second = await page(first.next_cursor)
    assert (len(second.records), second.next_cursor, told) == (2, None, [])
    assert not {one.handle for one in first.records} & {one.handle for one in second.records}
    other = await service.browse(
        CALLER.model_copy(update={"as_of": START - timedelta(days=1)}),
        BrowseRequest(scope=ANA, filter=chosen, limit=2, cursor=first.next_cursor),
    )
    assert other.records == ()
    await write(service, "Likes green tea very much")
    second = await page(first.next_cursor)
    assert (second.total, told) == (5, [(2, 6), (4, 6), (6, 6)])


def files_of(paths: Paths) -> dict[str, bytes]:
    vault = paths.data / "bindings" / "local" / "default" / "vault"
    return {
        path.relative_to(vault).as_posix(): path.read_bytes()
        for path in vault.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def tables_of(paths: Paths, url: str) -> dict[str, list[str]]:
    """Every row of the control plane's tables but the log's, as text."""
    if url:
        with psycopg.connect(url) as database:
            names = database.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            ).fetchall()
            return {
                name: sorted(repr(row) for row in database.execute(f'SELECT * FROM "{name}"'))
                for (name,) in names
                if name not in LOGGED
            }
    return sqlite_tables(paths.database)


def sqlite_tables(path: Path) -> dict[str, list[str]]:
    database = sqlite3.connect(path)
    try:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: sorted(repr(row) for row in database.execute(f'SELECT * FROM "{name}"'))
            for (name,) in names
            if name not in LOGGED
        }
    finally:
        database.close()


async def some_facts(service: MemoryService, scope: Scope = ANA, **fields: Any) -> None:
    for text in ("Likes green tea", "likes green tea.", "Uses SQLite", "Green tea likes"):
        await write(service, text, scope, **fields)
    await write(service, "LIKES GREEN TEA", scope, pinned=True, **fields)


@pytest.mark.parametrize("provider", ["vault", "facts"])
async def test_plan_apply_undo_leaves_no_byte_changed(
    service: MemoryService, paths: Paths, settings: Settings, provider: str
) -> None:
    if provider == "facts":
        await service.bindings.add(CALLER, "tables", "facts", {})
        await service.bindings.set_target(CALLER, "company", "local", "tables")
    await some_facts(service, topic="Taste")
    await write(service, "Uses SQLite", APOLLO)
    tables_file = paths.data / "bindings" / "local" / "tables" / "facts.sqlite3"

    def state() -> tuple[Any, ...]:
        held = sqlite_tables(tables_file) if provider == "facts" else {}
        return files_of(paths), tables_of(paths, settings.database_url), held

    before = state()
    answer = await plan(service)
    assert state() == before
    applied = await apply(service, answer)
    assert state() != before
    assert await texts(service) == {"LIKES GREEN TEA", "Uses SQLite"}
    assert len(applied.handles) == 3
    undone = await service.undo(CALLER, applied.operation_id)
    assert state() == before
    await service.undo(CALLER, undone.operation_id)
    assert await texts(service) == {"LIKES GREEN TEA", "Uses SQLite"}
    await service.undo(CALLER)
    assert state() == before


async def test_applying_is_one_operation_that_carries_revisions(service: MemoryService) -> None:
    await some_facts(service)
    answer = await plan(service)
    victim = answer.plan.marked[0]
    await service.correct(
        CALLER, CorrectRequest(scope=ANA, handle=victim.handle, text="Likes coffee now")
    )
    with pytest.raises(Conflict):
        await apply(service, answer)
    assert len(await texts(service)) == 5
    applied = await apply(service, await plan(service))
    log = await service.log.page(CALLER, Filter(operation_type=OperationType.FORGET))
    assert [operation.status for operation in log.operations] == ["ok", "conflict"]
    assert log.operations[0].operation_id == applied.operation_id


async def test_a_plan_is_an_operation_and_reads_nothing(service: MemoryService) -> None:
    handle = await write(service, "Uses SQLite")
    answer = await plan(service)
    operation = await service.log.get(CALLER, answer.operation_id)
    assert (operation.operation_type, operation.request["purpose"]) == (
        OperationType.BROWSE,
        "prune",
    )
    stats = await service.log.retrieval_stats(CALLER, "default", [handle.provider_record_id])
    assert stats == {}


async def test_what_survived_is_not_taken_for_what_was_deleted(service: MemoryService) -> None:
    await some_facts(service)
    await apply(service, await plan(service))
    again = await plan(service)
    assert again.plan.marked == ()
    assert Reason.FORGOTTEN_BEFORE.value not in {reason for _, reason in reasons(again)}


async def test_what_an_undo_brought_back_was_not_deleted(service: MemoryService) -> None:
    handles = tuple([await write(service, text) for text in ("Likes tea", "Uses SQLite")])
    await service.forget(CALLER, ForgetRequest(scope=ANA, handles=handles))
    await service.undo(CALLER)
    assert (await plan(service)).plan.marked == ()


async def test_what_an_agent_says_again_after_a_person_deleted_it(service: MemoryService) -> None:
    handle = await write(service, "Likes tea")
    await service.forget(CALLER, ForgetRequest(scope=ANA, handles=(handle,)))
    await write(service, "likes TEA")
    assert ("likes TEA", "forgotten_before") in reasons(await plan(service))
    handle = await write(service, "Uses SQLite", APOLLO)
    await service.forget(AGENT, ForgetRequest(scope=APOLLO, handles=(handle,)))
    await write(service, "Uses SQLite", APOLLO)
    assert reasons(await plan(service, APOLLO)) == set()


async def test_only_delivered_contexts_make_a_fact_read(
    service: MemoryService, clock: Clock
) -> None:
    await write(service, "Uses SQLite")
    await service.context(CALLER, ContextRequest(scope=ANA))
    clock.now += timedelta(days=8)
    assert reasons(await plan(service)) == {("Uses SQLite", "never_read")}
    await service.context(CALLER, ContextRequest(scope=ANA, delivered=True))
    assert reasons(await plan(service)) == set()
    clock.now += timedelta(days=31)
    assert reasons(await plan(service)) == {("Uses SQLite", "stale")}
    assert reasons(await plan(service, rules=PruneRules(stale_days=40))) == set()


async def test_a_newer_value_contradicts_and_pins_are_kept(service: MemoryService) -> None:
    await write(service, "deploy: main", APOLLO)
    twin = WriteRequest(scope=APOLLO, source=SOURCE, content="deploy: release", kind="fact")
    await service.write(CALLER, twin, copied=True)  # as another program would
    answer = await plan(service, APOLLO)
    assert ("deploy: main", "contradicted") in reasons(answer)
    assert [record.text for record in answer.plan.marked] == ["deploy: main"]
    for record in answer.plan.marked:
        await service.correct(
            CALLER, CorrectRequest(scope=APOLLO, handle=record.handle, pinned=True)
        )
    assert (await plan(service, APOLLO)).plan.marked == ()


async def test_only_the_scopes_own_records_are_looked_through(service: MemoryService) -> None:
    both = Scope(company_id="local", subject_id="ana", project_id="apollo")
    await write(service, "Ana reviews", both)
    await write(service, "ana reviews.", both)
    await write(service, "Ana reviews", Scope(company_id="local"))
    assert reasons(await plan(service, ANA)) == set()
    drive = await plan(service, APOLLO)
    assert {item.record.scope.project_id for item in drive.plan.items} == {"apollo"}
    assert len(drive.plan.marked) == 1
    everything = await plan(service, Scope(company_id="local"))
    assert len(everything.plan.items) == 3
    companys = await plan(service, Scope(company_id="local"), only_company=True)
    assert [item.record.text for item in companys.plan.items] == ["Ana reviews"]


async def test_other_kinds_are_looked_through_where_asked(service: MemoryService) -> None:
    for title in ("One", "Two"):
        await write(service, "The same note", APOLLO, kind="note", title=title)
    assert (await plan(service, APOLLO)).plan.items == ()
    answer = await plan(service, APOLLO, kind=None)
    assert len(answer.plan.marked) == 1


@pytest.mark.slow
async def test_hundreds_of_facts_are_pruned_and_brought_back(
    paths: Paths, settings: Settings
) -> None:
    await (await open_service(paths, settings)).close()
    file = paths.data / "bindings" / "local" / "default" / "vault" / "users/ana/facts.md"
    file.parent.mkdir(parents=True)
    lines = [f"- Uses server {number // 2} for {number // 2}{'.' * (number % 2)}\n"
             for number in range(200)]  # fmt: skip
    file.write_text("# Facts\n\n" + "".join(lines))
    service = await open_service(paths, settings)
    try:
        answer = await plan(service)
        assert len(answer.plan.marked) == 100
        before = files_of(paths)
        applied = await apply(service, answer)
        assert file.read_text().count("\n- ") == 100
        await service.undo(CALLER, applied.operation_id)
        assert files_of(paths) == before
    finally:
        await service.close()
