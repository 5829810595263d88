"""LangGraph's own store writes and reads beside memtui, in SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest

from memtui.backends.langgraph_store import LanggraphAdapter
from memtui.config import Paths, Settings
from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Denied,
    Filter,
    ForgetRequest,
    Invalid,
    Json,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteRequest,
)
from memtui.provider_kit.rows import Row
from memtui.service import Caller, open_service
from tests.backends.tables.kit import COMPANY, NAMESPACES, Stored, context, langgraph, stored

MEMORIES = 1_000


def settings_of(where: str) -> dict[str, Any]:
    return {("url" if "://" in where else "path"): where, "namespaces": NAMESPACES}


async def opened(folder: Path, where: str, **fields: Any) -> LanggraphAdapter:
    return await LanggraphAdapter.open(context(folder, **settings_of(where), **fields))


def handle(record_id: str) -> RecordHandle:
    return RecordHandle(provider_key="langgraph", provider_record_id=record_id)


async def listed(adapter: LanggraphAdapter, **asked: Any) -> dict[str, Record]:
    """Return every record by id, page by page."""
    request = BrowseRequest(scope=COMPANY, limit=300, **asked)
    found: dict[str, Record] = {}
    while True:
        page = await adapter.browse(request)
        found |= {one.handle.provider_record_id: one for one in page.records}
        if page.next_cursor is None:
            assert page.total == len(found)
            return found
        request = request.model_copy(update={"cursor": page.next_cursor})


def both(where: str) -> tuple[Stored, list[Any]]:
    """Return the rows of the store and, where there are any, those of its vectors."""
    try:
        return stored(where, "store"), stored(where, "store_vectors")
    except (psycopg.errors.UndefinedTable, sqlite3.OperationalError):
        return stored(where, "store"), []


def nested(text: str, **more: Any) -> dict[str, Any]:
    return {"kind": "Memory", "content": {"content": text, **more}}


def put_memories(store: Any) -> None:
    for number in range(MEMORIES):
        value: dict[str, Any] = {"text": f"Memory {number}", "n": number, "tags": ["x"]}
        if number % 3 == 0:
            value = nested(f"Memory {number}", importance=1.50)
        store.put(("memories", f"user{number % 10}"), f"k/{number}", value)


async def test_edit_forget_undo_and_redo(
    paths: Paths, settings: Settings, caller: Caller, where: str
) -> None:
    with langgraph(where) as store:
        put_memories(store)
        before = both(where)
        service = await open_service(paths, settings, providers={"langgraph": LanggraphAdapter})
        await service.bindings.add(caller, "graph", "langgraph", settings_of(where))
        company = Scope(company_id="local")

        async def browse(**asked: Any) -> Any:
            request = BrowseRequest(scope=company, binding_key="graph", limit=400, **asked)
            return await service.browse(caller, request)

        page = await browse()
        assert (page.total, len(page.records)) == (MEMORIES, 400)
        mine = Scope(company_id="local", subject_id="user3")
        query = QueryRequest(scope=mine, query="Memory 333", binding_key="graph")
        found = (await service.query(caller, query)).snippets[0]
        assert (found.text, found.scope.subject_id) == ("Memory 333", "user3")
        wrote = await service.write(caller, WriteRequest(
            scope=mine, source=SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local"),
            content="Written by memtui", binding_key="graph",
        ))  # fmt: skip
        items = store.search(("memories", "user3"), limit=MEMORIES)
        assert "Written by memtui" in [one.value.get("content") for one in items]
        await service.correct(caller, CorrectRequest(
            scope=mine, handle=found.handle, text="Corrected “ü”", revision=found.revision,
            binding_key="graph",
        ))  # fmt: skip
        item = store.get(("memories", "user3"), "k/333")
        assert item.value == nested("Corrected “ü”", importance=1.50)
        gone = tuple(one.handle for one in (await browse(filter=Filter(text="Memory 12"))).records)
        assert len(gone) == 20
        await service.forget(
            caller, ForgetRequest(scope=company, handles=gone, binding_key="graph")
        )
        assert store.get(("memories", "user2"), "k/12") is None
        changed = both(where)
        undone = [await service.undo(caller) for _ in range(3)]
        assert both(where) == before
        old = store.get(("memories", "user3"), "k/333")
        assert old.value == nested("Memory 333", importance=1.50)
        redone = [await service.undo(caller, one.operation_id) for one in reversed(undone)]
        assert both(where) == changed
        assert store.get(("memories", "user3"), "k/333").value == item.value
        assert wrote.records[0].handle in [one.handle for one in (await browse()).records]
        store.put(("memories", "user3"), "k/333", {"content": "the program's own"})
        with pytest.raises(Conflict, match="changed"):
            await service.undo(caller, redone[1].operation_id)
        found_now = store.get(("memories", "user3"), "k/333")
        assert found_now.value == {"content": "the program's own"}
        await service.close()


async def test_an_edit_keeps_all_else_of_the_value(tmp_path: Path, where: str) -> None:
    with langgraph(where) as store:
        store.put(
            ("memories", "ana"), "plain", {"n": 1.10, "content": "old", "z": {"a": [1, None]}}
        )
        store.put(("notes",), "none", {"rule": {"if": "rain", "then": "umbrella"}})
    odd = '{ "z":1e2,"content" : "old" ,  "big": 12345678901234567890.50, "content":"last\\u00fc"}'
    _execute(where, "UPDATE store SET value = {} WHERE key = 'plain'", odd)
    adapter = await opened(tmp_path, where)
    there = await listed(adapter)
    plain, none = there["memories.ana/plain"], there["notes/none"]
    assert (plain.text, plain.scope.subject_id, none.scope) == ("lastü", "ana", COMPANY)
    assert json.loads(none.text) == {"rule": {"if": "rain", "then": "umbrella"}}
    taken = await adapter.snapshot([plain.handle, none.handle], COMPANY)
    before = both(where)
    await adapter.correct(CorrectRequest(scope=COMPANY, handle=plain.handle, text='a "new" one'))
    [value] = _execute(where, "SELECT value FROM store WHERE key = 'plain' AND '' = {}", "")
    if "://" in where:
        assert value == '{"z": 100, "big": 12345678901234567890.50, "content": "a \\"new\\" one"}'
    else:
        assert value == odd.replace('"last\\u00fc"', '"a \\"new\\" one"').encode()
    for bad in ("no JSON", "[1]", '"a"'):
        with pytest.raises(Invalid, match="keep it a JSON object"):
            await adapter.correct(CorrectRequest(scope=COMPANY, handle=none.handle, text=bad))
    await adapter.correct(CorrectRequest(scope=COMPANY, handle=none.handle, tags=("weather",)))
    await adapter.correct(CorrectRequest(scope=COMPANY, handle=none.handle, text='{"rule": 2}'))
    record = await adapter.get(none.handle, COMPANY)
    assert record is not None
    assert (json.loads(record.text), record.tags) == ({"rule": 2}, ("weather",))
    with langgraph(where) as store:
        assert store.get(("notes",), "none").value["rule"] == 2
    await adapter.restore(taken, COMPANY)
    assert both(where) == before
    await adapter.close()


def _execute(where: str, statement: str, value: str) -> list[Any]:
    """Run a statement with one value, and return the first column of what it finds."""
    if "://" in where:
        with psycopg.connect(where) as connection:
            cast = "%s::jsonb" if statement.startswith("UPDATE") else "%s"
            statement = statement.replace("SELECT value", "SELECT value::text").format(cast)
            found = connection.execute(statement.encode(), (value,))
            return [one for (one, *_) in found] if found.description else []
    with closing(sqlite3.connect(where)) as lite, lite:
        given = value.encode() if statement.startswith("UPDATE") else value
        return [one for (one, *_) in lite.execute(statement.format("?"), (given,))]


async def test_storage_types_and_unknown_columns_come_back(tmp_path: Path, where: str) -> None:
    with langgraph(where) as store:
        store.put(
            ("memories", "ana"), "a", {"content": "first"}, ttl=90.5 if _is_file(where) else 90
        )
        store.put(("memories", "ana"), "b", {"content": "second"}, ttl=None)
    if _is_file(where):
        with closing(sqlite3.connect(where)) as lite, lite:
            lite.execute("ALTER TABLE store ADD COLUMN extra")
            lite.execute("ALTER TABLE store ADD COLUMN twice AS (key || key)")
            lite.execute("UPDATE store SET extra = x'00ff', created_at = 7 WHERE key = 'a'")
            text = "CAST(value AS TEXT)"
            lite.execute(f"UPDATE store SET value = {text}, extra = 1e300 WHERE key = 'b'")
    else:
        with psycopg.connect(where) as connection:
            connection.execute(
                "ALTER TABLE store ADD COLUMN extra bytea, ADD COLUMN real float8, "
                "ADD COLUMN list text[], ADD COLUMN twice text GENERATED ALWAYS AS (key || key) "
                "STORED, ADD COLUMN again int GENERATED ALWAYS AS IDENTITY"
            )
            connection.execute(
                "UPDATE store SET extra = '\\x00ff', real = 0.1::float8 + 0.2, "
                "list = ARRAY['a,\"', NULL], updated_at = now() - interval '1 microsecond'"
            )
    before = both(where)
    adapter = await opened(tmp_path, where)
    handles = [handle("memories.ana/a"), handle("memories.ana/b")]
    taken = await adapter.snapshot(handles, COMPANY)
    for one in handles:
        change = CorrectRequest(scope=COMPANY, handle=one, text="new", never_expires=True)
        await adapter.correct(change)
    changed = both(where)
    await adapter.restore(taken, COMPANY)
    assert both(where) == before != changed
    assert await adapter.forget(ForgetRequest(scope=COMPANY, handles=tuple(handles)))
    assert both(where) == ([], [])
    await adapter.restore(taken, COMPANY)
    assert both(where) == before
    await adapter.close()


def _is_file(where: str) -> bool:
    return "://" not in where


def embedded(texts: list[str]) -> list[list[float]]:
    return [[float(len(one)), 1.0, 0.5] for one in texts]


async def test_vectors_of_an_edited_text_go_and_come_back(tmp_path: Path, where: str) -> None:
    index = {"dims": 3, "embed": embedded, "fields": ["content"]}
    # This Python loads no extension of SQLite, so the store's own statement makes the table.
    with langgraph(where, **({} if _is_file(where) else {"index": index})) as store:
        for name in ("one", "other"):
            store.put(("memories", "ana"), name, {"content": f"The {name}"})
        if _is_file(where):
            store.conn.executescript(store.VECTOR_MIGRATIONS[0])
            store.conn.execute(
                "INSERT INTO store_vectors (prefix, key, field_name, embedding) "
                "SELECT prefix, key, 'content', x'0000803f0000803f' FROM store"
            )
        before = both(where)
        assert len(before[1]) == 2
        adapter = await opened(tmp_path, where)
        one = handle("memories.ana/one")
        taken = await adapter.snapshot([one], COMPANY)
        await adapter.correct(CorrectRequest(scope=COMPANY, handle=one, tags=("x",)))
        assert both(where)[1] == before[1], "the text is the same, and so is its vector"
        assert (await adapter.health()).message == ""
        reply = await adapter.correct(CorrectRequest(scope=COMPANY, handle=one, text="Another"))
        assert reply.usage[0].details == {"removed": {"store_vectors": 1}}
        assert len(both(where)[1]) == 1
        assert (await adapter.health()).message.startswith("Records without a vector: 1.")
        await adapter.restore(taken, COMPANY)
        assert both(where) == before
        await adapter.forget(ForgetRequest(scope=COMPANY, handles=(one,)))
        assert len(both(where)[1]) == 1
        await adapter.restore(taken, COMPANY)
        assert both(where) == before
        hits = store.search(("memories",), query=None if _is_file(where) else "any")
        assert {found.key for found in hits} == {"one", "other"}
        await adapter.close()


async def test_a_program_that_writes_at_the_same_time_loses_nothing(
    tmp_path: Path, where: str
) -> None:
    with langgraph(where) as store:
        for number in range(40):
            store.put(("memories", "ana"), f"k{number}", {"content": f"old {number}"})
    adapter = await opened(tmp_path, where)

    def program() -> None:
        with langgraph(where) as store:
            for number in range(100):
                store.put(("memories", "bo"), f"new{number}", {"content": f"theirs {number}"})

    thread = Thread(target=program)
    thread.start()
    for number in range(40):
        one = handle(f"memories.ana/k{number}")
        await adapter.correct(CorrectRequest(scope=COMPANY, handle=one, text=f"ours {number}"))
    await asyncio.to_thread(thread.join)
    there = await listed(adapter)
    texts = {record.text for record in there.values()}
    assert texts == {f"theirs {n}" for n in range(100)} | {f"ours {n}" for n in range(40)}
    k7 = there["memories.ana/k7"]
    with langgraph(where) as store:
        store.put(("memories", "ana"), "k7", {"content": "theirs"})
        change = CorrectRequest(scope=COMPANY, handle=k7.handle, text="x", revision=k7.revision)
        with pytest.raises(Conflict) as caught:
            await adapter.correct(change)
        assert caught.value.current is not None
        assert caught.value.current.text == "theirs"
        names = {"memories.ana/k7": k7.revision or ""}
        with pytest.raises(Conflict):
            await adapter.forget(
                ForgetRequest(scope=COMPANY, handles=(k7.handle,), revisions=names)
            )
        assert store.get(("memories", "ana"), "k7").value == {"content": "theirs"}
    assert (await listed(adapter))["memories.ana/k7"].text == "theirs"
    await adapter.close()


async def test_no_program_waits_while_records_are_made(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with langgraph(str(path)) as store:
        for number in range(3):
            store.put(("memories", "ana"), f"k{number}", {"content": "text"})
        store.conn.execute("PRAGMA busy_timeout = 0")
        waited: list[int] = []

        class Slow(LanggraphAdapter):
            def record_of(self, row: Row) -> Json:
                store.put(("memories", "bo"), f"k{len(waited)}", {"content": "at the same time"})
                waited.append(1)
                return super().record_of(row)

        adapter = await Slow.open(context(tmp_path, **settings_of(str(path))))
        assert (await adapter.browse(BrowseRequest(scope=COMPANY))).total == 3
        assert len(store.search(("memories", "bo"))) == len(waited) == 3
        await adapter.close()


async def test_ttl_is_the_expiry(tmp_path: Path, where: str) -> None:
    with langgraph(where) as store:
        store.put(("memories", "ana"), "soon", {"content": "soon gone"}, ttl=5)
        store.put(("memories", "ana"), "ever", {"content": "stays"}, ttl=None)
        adapter = await opened(tmp_path, where)
        soon = (await listed(adapter))["memories.ana/soon"]
        assert soon.expires_at is not None
        assert soon.created_at is not None
        assert (
            timedelta(0)
            <= soon.expires_at - soon.created_at - timedelta(minutes=5)
            < (timedelta(seconds=2))
        )
        later = await opened(tmp_path, where, now=lambda: soon.expires_at)
        assert list(await listed(later)) == ["memories.ana/ever"]
        assert await later.get(soon.handle, COMPANY) is None
        assert len(await listed(later, expired=True)) == 2
        change = CorrectRequest(scope=COMPANY, handle=soon.handle, never_expires=True)
        await adapter.correct(change)
        assert len(await listed(later)) == 2
        assert store.sweep_ttl() == 0
        await later.close()
        await adapter.close()


async def test_what_a_value_claims_gives_it_no_other_owner(tmp_path: Path, where: str) -> None:
    claim = {"ids": {"project_id": "web", "subject_id": "bo"}}
    with langgraph(where) as store:
        store.put(("memories", "ana"), "a", {"content": "claims", "memtui": claim})
        store.put(("memories", "ana"), "b", {"content": "broken", "memtui": [1]})
        store.put(("elsewhere",), "c", {"content": "claims", "memtui": claim})
    adapter = await opened(tmp_path, where)
    there = await listed(adapter)
    scopes = {name: one.scope for name, one in there.items()}
    ana = Scope(company_id="acme", subject_id="ana")
    assert scopes == {"memories.ana/a": ana, "memories.ana/b": ana, "elsewhere/c": COMPANY}
    broken = there["memories.ana/b"]
    assert broken.problem == "The row cannot be read: it is not as its program writes it."
    await adapter.close()


async def test_a_namespace_for_each_owner(tmp_path: Path, where: str) -> None:
    with langgraph(where) as store:
        adapter = await opened(tmp_path, where)
        for ids in ({"project_id": "web"}, {"subject_id": "ana"}, {"agent_id": "coder"}, {}):
            scope = Scope(company_id="acme", **ids)
            await adapter.write(WriteRequest(scope=scope, source=None, content="Here"))
        assert sorted(store.list_namespaces()) == [
            ("agents", "coder"), ("memories", "ana"), ("shared",), ("web", "notes"),
        ]  # fmt: skip
        named = {one.name: (one.kind, one.records) for one in await adapter.namespaces()}
        assert named["web.notes"] == ("project", 1)
        dotted = WriteRequest(
            scope=Scope(company_id="acme", project_id="a.b"), source=None, content="x"
        )
        with pytest.raises(Invalid, match="no dot"):
            await adapter.write(dotted)
        await adapter.close()


async def test_what_cannot_be_opened_is_one_sentence(tmp_path: Path, where: str) -> None:
    config = settings_of(where)
    if _is_file(where):
        with pytest.raises(Unavailable, match=r"There is no file .*program\.db"):
            await opened(tmp_path, where)
        assert not Path(where).exists()
        Path(where).write_text("no database, but a text that is longer than a header of one" * 9)
        with pytest.raises(Unavailable, match="not a SQLite database"):
            await opened(tmp_path, where)
        Path(where).write_bytes(b"")
    else:
        with pytest.raises(Invalid, match="contains a password"):
            await opened(tmp_path, "postgresql://me:secret@localhost/x")
        with pytest.raises(Invalid, match="url_secret"):
            await LanggraphAdapter.open(context(tmp_path, **config, url_secret="URL"))
        secret = {"URL": where}.get
        with pytest.raises(Invalid, match="no table store"):
            await LanggraphAdapter.open(context(tmp_path, url_secret="URL", secret=secret))
    with pytest.raises(Invalid, match="has no table store"):
        await opened(tmp_path, where)
    with pytest.raises(Invalid, match="either path"):
        await LanggraphAdapter.open(context(tmp_path))
    _make(where, "CREATE TABLE store (prefix text, key text, value text)")
    with pytest.raises(Invalid, match="no column created_at"):
        await opened(tmp_path, where)


def _make(where: str, statement: str) -> None:
    if "://" in where:
        with psycopg.connect(where) as connection:
            connection.execute(statement.encode())
    else:
        with closing(sqlite3.connect(where)) as lite, lite:
            lite.execute(statement)


@pytest.mark.parametrize("mode", ["wal", "delete"])
async def test_the_file_stays_the_programs(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "store.db"
    with langgraph(str(path)) as store:
        store.conn.execute(f"PRAGMA journal_mode = {mode}")
        store.put(("memories", "ana"), "a", {"content": "first"})
    schema = _schema(path)
    for read_only in (True, False):
        adapter = await opened(tmp_path, str(path), read_only=read_only)
        assert len(await listed(adapter)) == 1
        if not read_only:
            await adapter.forget(ForgetRequest(scope=COMPANY, handles=(handle("memories.ana/a"),)))
        await adapter.close()
        assert [one.name for one in tmp_path.iterdir() if one.is_file()] == ["store.db"]
        assert _schema(path) == (schema if read_only else [mode, *schema[1:]])


def _schema(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as lite:
        [(mode,)] = lite.execute("PRAGMA journal_mode")
        return [mode, *lite.execute("SELECT sql FROM sqlite_master ORDER BY name")]


async def test_a_protected_file_and_one_that_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with langgraph(str(path)) as store:
        store.put(("memories", "ana"), "a", {"content": "first"})
    adapter = await opened(tmp_path, str(path))
    path.chmod(0o444)
    before = path.read_bytes()
    assert [one.text for one in (await listed(adapter)).values()] == ["first"]
    with pytest.raises(Denied, match="write-protected"):
        await adapter.forget(ForgetRequest(scope=COMPANY, handles=(handle("memories.ana/a"),)))
    assert path.read_bytes() == before
    with langgraph(str(tmp_path / "backup.db")) as store:
        store.put(("memories", "ana"), "b", {"content": "restored"})
    (tmp_path / "backup.db").replace(path)
    assert [one.text for one in (await listed(adapter)).values()] == ["restored"]
    await adapter.forget(ForgetRequest(scope=COMPANY, handles=(handle("memories.ana/b"),)))
    with langgraph(str(path)) as store:
        assert store.get(("memories", "ana"), "b") is None
    path.unlink()
    with pytest.raises(Unavailable):
        await listed(adapter)
    assert not path.exists()
    assert (await adapter.health()).status == "down"
    await adapter.close()


async def test_a_row_that_cannot_be_read_is_shown_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with langgraph(str(path)) as store:
        for name in ("json", "utf8", "list", "fine"):
            store.put(("memories", "ana"), name, {"content": "text"})
        store.conn.execute("UPDATE store SET value = '{' WHERE key = 'json'")
        store.conn.execute("UPDATE store SET value = '[1]' WHERE key = 'list'")
        store.conn.execute("UPDATE store SET value = CAST(x'7bff7d' AS TEXT) WHERE key = 'utf8'")
    adapter = await opened(tmp_path, str(path))
    there = await listed(adapter)
    assert {name for name, one in there.items() if one.problem} == {
        f"memories.ana/{name}" for name in ("json", "utf8", "list")
    }
    assert {one.scope.subject_id for one in there.values()} == {"ana"}
    before = both(str(path))
    for name, one in there.items():
        if one.problem:
            with pytest.raises(Invalid, match="Correct it in the program"):
                await adapter.correct(CorrectRequest(scope=COMPANY, handle=one.handle, text="x"))
            taken = await adapter.snapshot([one.handle], COMPANY)
            await adapter.forget(ForgetRequest(scope=COMPANY, handles=(one.handle,)))
            assert name not in await listed(adapter)
            await adapter.restore(taken, COMPANY)
    assert both(str(path)) == before
    await adapter.close()


async def test_a_long_read_may_take_longer_than_the_limit_while_it_goes_on(
    paths: Paths, settings: Settings, caller: Caller, where: str
) -> None:
    """The limit is one of silence, for the call that reads and for one that waits for it."""
    many = 100_000
    with langgraph(where):
        pass
    rows = (("memories.ana", f"k{n}", f'{{"content": "Memory {n} of many."}}') for n in range(many))
    if _is_file(where):
        with closing(sqlite3.connect(where)) as lite, lite:
            lite.executemany("INSERT INTO store (prefix, key, value) VALUES (?, ?, ?)", rows)
    else:
        copy = "COPY store (prefix, key, value) FROM STDIN"
        with psycopg.connect(where) as server, server.cursor().copy(copy) as copied:
            for row in rows:
                copied.write_row(row)
    settings = settings.model_copy(update={"provider_timeout_ms": 3_000})
    service = await open_service(paths, settings, providers={"langgraph": LanggraphAdapter})
    await service.bindings.add(caller, "graph", "langgraph", settings_of(where))
    company = Scope(company_id="local")
    page, found = await asyncio.gather(
        service.browse(caller, BrowseRequest(scope=company, binding_key="graph", limit=10)),
        service.query(caller, QueryRequest(scope=company, query="Memory 77", binding_key="graph")),
    )
    assert (page.total, len(page.records)) == (many, 10)
    assert found.snippets[0].text == "Memory 77 of many."
    await service.close()
