"""Agno's own database writes and reads beside memtui, in SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest

from memtui.backends.agno_memory import AgnoAdapter
from memtui.config import Paths, Settings
from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    EraseRequest,
    Filter,
    ForgetRequest,
    Invalid,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    Unsupported,
    WriteMode,
    WriteRequest,
)
from memtui.service import Caller, open_service
from tests.backends.tables.kit import COMPANY, agno, context, stored

MEMORIES = 1_000


def is_file(where: str) -> bool:
    return "://" not in where


def table_of(where: str) -> str:
    return "agno_memories" if is_file(where) else "ai.agno_memories"


def settings_of(where: str) -> dict[str, Any]:
    return {"path": where} if is_file(where) else {"url": where}


async def opened(folder: Path, where: str, **fields: Any) -> AgnoAdapter:
    return await AgnoAdapter.open(context(folder, **settings_of(where), **fields))


def handle(record_id: str) -> RecordHandle:
    return RecordHandle(provider_key="agno", provider_record_id=record_id)


def put(database: Any, record_id: str, text: str, **fields: Any) -> None:
    from agno.db.schemas.memory import UserMemory

    database.upsert_user_memory(UserMemory(memory=text, memory_id=record_id, **fields))


async def test_edit_forget_undo_and_redo(
    paths: Paths, settings: Settings, caller: Caller, where: str
) -> None:
    with agno(where) as database:
        for number in range(MEMORIES):
            topics = ["food", "Zürich"] if number % 2 else None
            put(
                database, f"m{number}", f"Memory {number}", user_id=f"user{number % 10}",
                topics=topics, input="said", created_at=1_700_000_000 + number,
            )  # fmt: skip
        before = stored(where, table_of(where))
        service = await open_service(paths, settings, providers={"agno": AgnoAdapter})
        await service.bindings.add(caller, "agents", "agno", settings_of(where))
        company = Scope(company_id="local")

        async def browse(**asked: Any) -> Any:
            request = BrowseRequest(scope=company, binding_key="agents", limit=400, **asked)
            return await service.browse(caller, request)

        page = await browse()
        assert (page.total, len(page.records)) == (MEMORIES, 400)
        assert (await browse(filter=Filter(tag="food"))).total == MEMORIES / 2
        mine = Scope(company_id="local", subject_id="user3")
        query = QueryRequest(scope=mine, query="Memory 333", binding_key="agents")
        found = (await service.query(caller, query)).snippets[0]
        assert (found.text, found.scope.subject_id, found.tags) == (
            "Memory 333", "user3", ("food", "Zürich"),
        )  # fmt: skip
        await service.write(caller, WriteRequest(
            scope=mine, source=SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local"),
            content="Written by memtui", tags=("new",), binding_key="agents",
        ))  # fmt: skip
        [new] = database.get_user_memories(user_id="user3", topics=["new"])
        assert (new.memory, new.topics, new.agent_id) == ("Written by memtui", ["new"], None)
        await service.correct(caller, CorrectRequest(
            scope=mine, handle=found.handle, text="Corrected “ü”", revision=found.revision,
            binding_key="agents",
        ))  # fmt: skip
        memory = database.get_user_memory("m333")
        assert (memory.memory, memory.topics, memory.input, memory.created_at) == (
            "Corrected “ü”", ["food", "Zürich"], "said", 1_700_000_333,
        )  # fmt: skip
        gone = tuple(one.handle for one in (await browse(filter=Filter(text="Memory 12"))).records)
        assert len(gone) == 20
        forgetting = ForgetRequest(scope=company, handles=gone, binding_key="agents")
        await service.forget(caller, forgetting)
        assert database.get_user_memory("m12") is None
        changed = stored(where, table_of(where))
        undone = [await service.undo(caller) for _ in range(3)]
        assert stored(where, table_of(where)) == before
        assert database.get_user_memory("m12").memory == "Memory 12"
        for one in reversed(undone):
            await service.undo(caller, one.operation_id)
        assert stored(where, table_of(where)) == changed
        await service.close()


async def test_what_agno_has_no_column_for_is_told_and_refused(tmp_path: Path, where: str) -> None:
    with agno(where) as database:
        adapter = await opened(tmp_path, where)
        scope = Scope(company_id="acme", subject_id="ana", agent_id="coder", project_id="team")
        reply = await adapter.write(
            WriteRequest(scope=scope, source=None, content="Here", record_id="given")
        )
        memory = database.get_user_memory("given")
        assert (memory.user_id, memory.agent_id, memory.team_id) == ("ana", "coder", "team")
        record = await adapter.get(reply.records[0], scope)
        assert record is not None
        assert record.scope == scope
        again = WriteRequest(scope=scope, source=None, content="There", record_id="given")
        with pytest.raises(Conflict, match="exists already"):
            await adapter.write(again)
        elsewhere = {"scope": Scope(company_id="acme", subject_id="bo"), "mode": WriteMode.UPSERT}
        with pytest.raises(Conflict, match="exists already"):
            await adapter.write(again.model_copy(update=elsewhere))
        put(database, "given", "Here", user_id="ana", feedback="good", agent_id="coder")
        await adapter.write(again.model_copy(update={"mode": WriteMode.UPSERT}))
        memory = database.get_user_memory("given")
        assert (memory.memory, memory.feedback) == ("There", "good")
        for asked in ({"topic": "x"}, {"summary": "x"}, {"pinned": True}):
            with pytest.raises(Unsupported):
                await adapter.correct(
                    CorrectRequest(scope=COMPANY, handle=handle("given"), **asked)
                )
        assert {"source", "kind", "metadata"} <= adapter.lacks
        await adapter.close()


async def test_rows_as_older_versions_left_them(tmp_path: Path, where: str) -> None:
    with agno(where) as database:
        put(database, "object", "x", user_id="ana")
        put(database, "odd", "y", user_id="ana")
    document = json.dumps({"memory": "nested", "score": 1.50})
    changes = [
        ("memory", document, "object"), ("topics", '[1, null, "a"]', "object"),
        ("topics", '{"a": 1}', "odd"),
    ]  # fmt: skip
    for column, value, record_id in changes:
        _set(where, column, value, record_id)
    before = stored(where, table_of(where))
    adapter = await opened(tmp_path, where)
    page = await adapter.browse(BrowseRequest(scope=COMPANY))
    there = {one.handle.provider_record_id: one for one in page.records}
    assert json.loads(there["object"].text) == json.loads(document)
    assert there["object"].tags == ("1", "a")
    assert there["odd"].problem is not None or there["odd"].tags == ("a",)
    with pytest.raises(Invalid, match="not a text"):
        await adapter.correct(CorrectRequest(scope=COMPANY, handle=handle("object"), text="z"))
    taken = await adapter.snapshot([handle("object"), handle("odd")], COMPANY)
    await adapter.correct(CorrectRequest(scope=COMPANY, handle=handle("object"), tags=("b",)))
    await adapter.restore(taken, COMPANY)
    assert stored(where, table_of(where)) == before
    await adapter.close()


def _set(where: str, column: str, value: str, record_id: str) -> None:
    statement = f"UPDATE {table_of(where)} SET {column} = %s WHERE memory_id = %s"
    if is_file(where):
        with closing(sqlite3.connect(where)) as lite, lite:
            lite.execute(statement.replace("%s", "?"), (value, record_id))
    else:
        with psycopg.connect(where) as connection:
            connection.execute(statement.encode(), (value, record_id))


async def test_a_program_that_writes_at_the_same_time_loses_nothing(
    tmp_path: Path, where: str
) -> None:
    with agno(where) as database:
        for number in range(40):
            put(database, f"k{number}", f"old {number}", user_id="ana")
        adapter = await opened(tmp_path, where)

        def program() -> None:
            for number in range(100):
                put(database, f"new{number}", f"theirs {number}", user_id="bo")

        thread = Thread(target=program)
        thread.start()
        for number in range(40):
            change = CorrectRequest(
                scope=COMPANY, handle=handle(f"k{number}"), text=f"ours {number}"
            )
            await adapter.correct(change)
        await asyncio.to_thread(thread.join)
        texts = {one.memory for one in database.get_user_memories()}
        assert texts == {f"theirs {n}" for n in range(100)} | {f"ours {n}" for n in range(40)}
        record = await adapter.get(handle("k7"), COMPANY)
        assert record is not None
        put(database, "k7", "theirs", user_id="ana")
        with pytest.raises(Conflict):
            await adapter.correct(
                CorrectRequest(
                    scope=COMPANY, handle=record.handle, text="x", revision=record.revision
                )
            )
        assert database.get_user_memory("k7").memory == "theirs"
        await adapter.close()


async def test_a_table_of_another_name_or_none(tmp_path: Path, where: str) -> None:
    with agno(where):
        pass
    with pytest.raises(Invalid, match="no table notes"):
        await AgnoAdapter.open(context(tmp_path, **settings_of(where), table="notes"))
    adapter = await AgnoAdapter.open(context(tmp_path, **settings_of(where), table=table_of(where)))
    reply = await adapter.erase(EraseRequest(scope=COMPANY))
    assert len(reply.beyond) == 1
    await adapter.close()


async def test_a_row_of_other_types_is_shown_with_its_problem(tmp_path: Path) -> None:
    path = str(tmp_path / "agno.db")
    with agno(path) as database:
        put(database, "fine", "fine", user_id="ana")
        put(database, "number", "x", user_id="ana")
    _set(path, "memory", "123", "number")
    before = stored(path, "agno_memories")
    adapter = await opened(tmp_path, path)
    page = await adapter.browse(BrowseRequest(scope=COMPANY))
    assert [(one.text, one.problem is None) for one in page.records if one.text == "fine"]
    [other] = [one for one in page.records if one.text != "fine"]
    assert other.problem is not None
    assert other.scope.subject_id == "ana"
    taken = await adapter.snapshot([other.handle], COMPANY)
    await adapter.forget(ForgetRequest(scope=COMPANY, handles=(other.handle,)))
    await adapter.restore(taken, COMPANY)
    assert stored(path, "agno_memories") == before
    await adapter.close()
