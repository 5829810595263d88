"""A company that an import made goes as a whole, and nothing else of the log can be removed."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy import text

from memtui.config import Paths, Settings, load_settings
from memtui.contract import Conflict, Denied, Invalid, NotFound, Unavailable
from memtui.importing.importer import Import
from memtui.service import Caller, MemoryService, open_service
from tests.importing.conftest import json_lines, log_of, row

THEIRS = Caller(company_id="theirs", principal="user:ana", channel="test")
ROWS = [
    row(operation_id=n, started_at=f"2026-03-0{n}T10:00:00Z", input_tokens=5) for n in range(1, 7)
]


@pytest_asyncio.fixture
async def kept(paths: Paths, tmp_path: Path) -> AsyncIterator[MemoryService]:
    """The service of a home whose sealed log is copied, with an imported company half sealed."""
    settings = load_settings(paths, archive_url=f"file://{tmp_path}/store")
    service = await open_service(paths, settings)
    await load(service, tmp_path)
    await service.analysis.seal(THEIRS, everything=True)
    await load(service, tmp_path, more=2)
    yield service
    await service.close()


async def load(service: MemoryService, folder: Path, *, more: int = 0) -> int:
    rows = [*ROWS, *(row(operation_id=f"more {n}") for n in range(more))]
    work = Import([json_lines(folder / "a.jsonl", rows)], "theirs", {})
    own = THEIRS.model_copy(update={"company_id": "local"})
    return (await work.run(service, own)).added


async def test_all_of_it_goes_and_it_can_be_imported_again(
    kept: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    before = await log_of(kept, "local")
    content = await kept.companies.content(THEIRS)
    # Asking for the seal and the seal are operations of theirs too.
    assert (content.operations, content.sealed) == (10, 6)
    assert await kept.companies.remove(caller, "theirs") == content
    assert [one.company_id for one in await kept.companies.all()] == ["local"]
    assert list(kept.analysis.archive_folder.iterdir()) == []
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []
    with kept.analysis.database.read() as database:
        tables = database.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'"))
        for table in [name for (name,) in tables if name.startswith("memory_")]:
            columns = database.execute(text(f"SELECT * FROM {table} LIMIT 0")).keys()
            if "company_id" in columns:
                found = database.execute(text(f"SELECT DISTINCT company_id FROM {table}"))
                assert set(found.scalars()) <= {"local"}
    *rest, done = await log_of(kept, "local")
    assert tuple(rest) == before
    assert (done.operation_type, done.status, done.result_count) == ("configure", "ok", 10)
    assert done.request == {
        "remove_company": "theirs", "operations": 10, "name": "Imported from a.jsonl",
    }  # fmt: skip
    assert await load(kept, tmp_path) == 6
    assert (await kept.analysis.verify_chain(THEIRS)).problem is None


async def test_only_what_an_import_made(kept: MemoryService, caller: Caller) -> None:
    with pytest.raises(Invalid, match="say --company with another one"):
        await kept.companies.remove(THEIRS, "theirs")
    with pytest.raises(NotFound):
        await kept.companies.remove(caller, "nobody")
    third = caller.model_copy(update={"company_id": "third"})
    await kept.companies.add(third, "Third")
    with pytest.raises(Conflict, match="only one that an import made can be removed"):
        await kept.companies.remove(third, "local")
    refused = (await log_of(kept, "local"))[-1]
    assert (refused.status, refused.request) == ("error", {"remove_company": "nobody"})
    assert (await kept.companies.content(THEIRS)).operations > 8


async def test_read_only_removes_nothing(kept: MemoryService, paths: Paths, caller: Caller) -> None:
    service = await open_service(paths, load_settings(paths, read_only=True))
    with pytest.raises(Denied, match="read-only"):
        await service.companies.remove(caller, "theirs")
    await service.close()
    assert (await kept.companies.content(THEIRS)).operations == 10


async def test_a_removal_that_is_killed_before_the_files_went(
    kept: MemoryService, caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = shutil.rmtree

    def die(path: Path | str) -> None:
        if Path(path).parent == kept.analysis.archive_folder:
            raise OSError(5, "Input/output error")
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", die)
    with pytest.raises(Unavailable, match=r"\(Input/output error\); make that possible and ask"):
        await kept.companies.remove(caller, "theirs")
    monkeypatch.undo()
    assert [one.company_id for one in await kept.companies.all()] == ["local"]
    with pytest.raises(Conflict, match="memtui companies remove theirs"):
        await load(kept, tmp_path)
    assert (await kept.companies.remove(caller, "theirs")).operations == 6
    assert await load(kept, tmp_path) == 6


async def test_a_store_that_is_down_keeps_all_of_it(
    paths: Paths, settings: Settings, caller: Caller, tmp_path: Path
) -> None:
    (tmp_path / "store").write_text("a file in the place of the folder")
    settings = settings.model_copy(update={"archive_url": f"file://{tmp_path}/store/log"})
    service = await open_service(paths, settings)
    await load(service, tmp_path)
    with pytest.raises(Unavailable, match="nothing was removed here"):
        await service.companies.remove(caller, "theirs")
    assert (await service.companies.content(THEIRS)).operations == 6
    await service.close()
