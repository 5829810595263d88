"""What tells that the end of a log was cut off: a note of it beside the database."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

import psycopg
import pytest

from memtui.config import Paths, Settings, load_settings
from memtui.contract import Scope, SourceRef, WriteRequest
from memtui.service import Caller, MemoryService, open_service
from memtui.store import appending, digest
from memtui.store.database import Database
from memtui.store.digest import HeadNotes
from tests.databases import ON_BOTH
from tests.processes import heard_to_its_end, speaking
from tests.store.test_log import append, draft

CALLER = Caller(company_id="local", principal="user:ana", channel="test")
SOURCE = SourceRef(kind="manual_note", company_id="local")
TABLES = ("memory_usage", "memory_operation_handles", "memory_operations")


@pytest.fixture
async def service(paths: Paths, settings: Settings) -> AsyncIterator[MemoryService]:
    opened = await open_service(paths, settings)
    yield opened
    await opened.close()


async def note(service: MemoryService, text: str) -> None:
    scope = Scope(company_id="local")
    await service.write(CALLER, WriteRequest(scope=scope, source=SOURCE, content=text))


async def read(service: MemoryService) -> None:
    """Append an operation that only reads, which no power cut has to spare."""
    await service.history(CALLER, "none", Scope(company_id="local"))


def last_seq(paths: Paths) -> int:
    with closing(sqlite3.connect(paths.database)) as database:
        [(seq,)] = database.execute("SELECT seq FROM memory_log_heads")
    return int(seq)


def cut(paths: Paths, operations: int) -> None:
    """Take operations off the end of the log, and set its head back, as a forger would."""
    with closing(sqlite3.connect(paths.database)) as database, database:
        [(last,)] = database.execute("SELECT seq FROM memory_log_heads")
        for table in TABLES:
            database.execute(f"DELETE FROM {table} WHERE seq > ?", (last - operations,))
        database.execute(
            "UPDATE memory_log_heads SET seq = ?, digest = "
            "(SELECT digest FROM memory_operations WHERE seq = ?)",
            (last - operations, last - operations),
        )


def the_note(paths: Paths) -> Path:
    [path] = paths.heads.iterdir()
    return path


@pytest.mark.parametrize("more", [0, 2])
async def test_a_cut_at_the_end_is_found_whatever_is_appended_then(
    service: MemoryService, paths: Paths, more: int
) -> None:
    for text in ("One", "Two", "Three"):
        await note(service, text)
    seen = last_seq(paths)
    found = await service.analysis.verify_chain(CALLER)
    assert (found.problem, found.seen_seq) == (None, seen)
    cut(paths, 1)
    for number in range(more):
        await note(service, f"Later {number}")
    found = await service.analysis.verify_chain(CALLER)
    assert found.problem is not None
    assert found.problem.startswith(f"This machine has seen operation {seen}, ")
    assert found.broken_seq == seen


@pytest.mark.parametrize("damage", ["gone", "cut short", "altered"])
async def test_without_a_note_nothing_is_said_of_the_end(
    service: MemoryService, paths: Paths, damage: str
) -> None:
    await note(service, "One")
    path = the_note(paths)
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[:40] if damage == "cut short" else content.replace(b"1", b"2"))
    found = await service.analysis.verify_chain(CALLER)
    assert (found.problem, found.seen_seq) == (None, None)
    await note(service, "Two")
    assert (await service.analysis.verify_chain(CALLER)).seen_seq == last_seq(paths)


async def test_a_note_that_lags_goes_on(service: MemoryService, paths: Paths) -> None:
    await note(service, "One")
    older = the_note(paths).read_bytes()
    await note(service, "Two")
    the_note(paths).write_bytes(older)
    assert (await service.analysis.verify_chain(CALLER)).problem is None
    await note(service, "Three")
    assert (await service.analysis.verify_chain(CALLER)).seen_seq == last_seq(paths)


async def test_what_looks_at_the_end_to_append_notes_it(
    service: MemoryService, paths: Paths
) -> None:
    """An import that was killed before its note, say, and finds nothing left to add."""
    await note(service, "One")
    kept = the_note(paths).read_bytes()
    the_note(paths).unlink()
    with service.runtime.database.write() as database:
        appending.hold(database, "local")
    assert the_note(paths).read_bytes() == kept


async def test_after_a_power_cut_only_what_the_disk_had_counts(
    service: MemoryService, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    await note(service, "One")
    durable = last_seq(paths)
    await read_in_vain(service)
    assert last_seq(paths) > durable
    cut(paths, last_seq(paths) - durable)
    assert (await service.analysis.verify_chain(CALLER)).problem is not None
    monkeypatch.setattr(digest, "_boot", lambda: "another")
    found = await service.analysis.verify_chain(CALLER)
    assert (found.problem, found.seen_seq) == (None, durable)


async def read_in_vain(service: MemoryService) -> None:
    with pytest.raises(Exception, match="no record"):
        await read(service)


def run_of(folder: Path, notes: HeadNotes | None, number: int, told: Connection) -> None:
    """Append a few operations to a log that others append to, in a process of its own."""
    database = Database.open(folder / "memtui.db")
    database.notes = notes
    append(database, *(draft(100 * number + one) for one in range(20)))
    database.close()
    told.close()


def test_what_several_processes_append_is_noted_to_its_end(
    tmp_path: Path, empty_database: Path
) -> None:
    shutil.copy(empty_database, tmp_path / "memtui.db")
    notes = HeadNotes(tmp_path / "heads", "here")
    started = [speaking(run_of, tmp_path, notes, number) for number in range(4)]
    for process, said in started:
        list(heard_to_its_end(said))
        process.join()
        assert process.exitcode == 0
    with closing(sqlite3.connect(tmp_path / "memtui.db")) as database:
        [row] = database.execute("SELECT seq, digest FROM memory_log_heads")
    assert row[0] == 80
    assert notes.read("acme") == row


@ON_BOTH
def test_a_note_is_of_one_company_of_one_database(database: Database, tmp_path: Path) -> None:
    notes = database.notes = HeadNotes(tmp_path / "heads", "here")
    append(database, draft(1), draft(2), draft(1, "other"))
    seen = {company: notes.read(company) for company in ("acme", "other", "none")}
    with database.read() as connection:
        digests = [connection.digest_at("acme", seq) for seq in (1, 2)]
        other = connection.digest_at("other", 1)
    assert seen == {"acme": (2, digests[1]), "other": (1, other), "none": None}
    assert HeadNotes(tmp_path / "heads", "elsewhere").read("acme") is None


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_cut_of_a_log_on_a_server_is_found(paths: Paths, database_url: str) -> None:
    service = await open_service(paths, load_settings(paths, database_url=database_url))
    for text in ("One", "Two"):
        await note(service, text)
    seen = (await service.analysis.verify_chain(CALLER)).seen_seq
    assert seen
    with psycopg.connect(database_url) as database:
        for table in ("memory_undo_journal", *TABLES):
            database.execute(f"DELETE FROM {table} WHERE seq = {seen}")
        database.execute(
            "UPDATE memory_log_heads SET seq = o.seq, digest = o.digest "
            "FROM memory_operations o WHERE o.seq = %s AND o.company_id = 'local'", (seen - 1,)
        )  # fmt: skip
    found = await service.analysis.verify_chain(CALLER)
    assert found.problem is not None
    assert found.problem.startswith(f"This machine has seen operation {seen}, ")
    await service.close()


async def test_a_note_that_cannot_be_written_fails_no_operation(
    service: MemoryService, paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    path = the_note(paths) if paths.heads.is_dir() else None
    if path:
        path.unlink()
        paths.heads.rmdir()
    paths.heads.write_text("in the way")
    await note(service, "One")
    assert "could not be noted" in caplog.text
    assert (await service.analysis.verify_chain(CALLER)).problem is None
