"""Where a demo is made, and what is left alone."""

import asyncio
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from memtui.config import Paths, Settings, find_paths
from memtui.contract import (
    Conflict,
    Denied,
    Invalid,
    NotFound,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteRequest,
)
from memtui.demo import making
from memtui.demo.making import DemoSummary, build_demo, can_open, demo_paths, is_begun
from memtui.demo.plan import PlannedStep
from memtui.demo.player import Player
from memtui.demo.timeline import timeline
from memtui.service import Caller, open_service
from memtui.service.home.files import find_remains
from memtui.store.database import Driver
from tests.demo.conftest import CALLER
from tests.demos import END

pytestmark = pytest.mark.usefixtures("short_story")


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


async def _build(paths: Paths, settings: Settings, **options: Any) -> DemoSummary:
    return await asyncio.to_thread(build_demo, paths, settings, **options)


async def _write_something(paths: Paths, caller: Caller) -> None:
    service = await open_service(paths, Settings())
    request = WriteRequest(
        scope=Scope(company_id=caller.company_id),
        source=SourceRef(kind=SourceKind.MANUAL_NOTE, company_id=caller.company_id),
        content="Mine.",
    )
    await service.write(caller, request)
    await service.close()


def test_the_home_is_memtui_home_or_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = tmp_path / "chosen"
    assert demo_paths({"MEMTUI_HOME": str(chosen)}) == Paths(data=chosen, config=chosen)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    own = demo_paths({})
    assert own.data.name == "demo"
    assert own.config == own.data
    assert own.data.parent == find_paths().data


async def test_a_demo_is_made_once_and_described_where_it_is(paths: Paths) -> None:
    assert not can_open(paths, Settings())
    told: list[tuple[int, int]] = []
    seen: list[tuple[int, bool, bool]] = []

    def tell(_: str, done: int, total: int) -> None:
        told.append((done, total))
        if done in (0, 40, 60):
            seen.append((done, is_begun(paths), can_open(paths, Settings())))

    made = await _build(paths, Settings(), now=END, progress=tell)
    assert (told[0], told[-1]) == ((0, 60), (60, 60))
    assert told == sorted(told)
    assert seen == [(0, False, False), (40, True, True), (60, True, True)]
    assert can_open(paths, Settings())
    for path in (paths.data, paths.data / "demo.json", paths.data / "demo.lock"):
        assert path.stat().st_mode & 0o077 == 0, f"{path} is not private"

    before = _files(paths.data)
    assert await _build(paths, Settings()) == made
    assert await _build(paths, Settings(read_only=True)) == made
    assert _files(paths.data) == before, "what is there is left alone"

    moved = find_paths(paths.data.with_name("moved to"))
    paths.data.rename(moved.data)
    described = await _build(moved, Settings())
    assert described.home == str(moved.data)
    assert all(f"MEMTUI_HOME='{moved.data}' memtui" in line for line in described.commands)
    assert described.operations == made.operations


async def test_memories_of_a_person_are_refused(paths: Paths, caller: Caller) -> None:
    await _write_something(paths, caller)
    before = _files(paths.data)
    for reset in (False, True):
        with pytest.raises(Invalid, match="empty folder"):
            await _build(paths, Settings(), reset=reset, now=END)
    assert _files(paths.data) == before


async def test_files_that_are_not_memtuis_stay_where_they_are(paths: Paths) -> None:
    paths.create()
    note = paths.data / "shopping.txt"
    note.write_text("eggs")
    await _build(paths, Settings(), now=END)
    await _build(paths, Settings(), now=END, reset=True)
    assert note.read_text() == "eggs"


async def test_a_marker_that_cannot_be_read_is_refused(paths: Paths) -> None:
    paths.create()
    (paths.data / "demo.json").write_text("{")
    with pytest.raises(Invalid, match="cannot be read"):
        await _build(paths, Settings(), reset=True, now=END)
    assert sorted(path.name for path in paths.data.iterdir()) == ["demo.json"]


async def test_reset_makes_it_anew(paths: Paths) -> None:
    first = await _build(paths, Settings(), now=END)
    await _write_something(paths, CALLER)
    again = await _build(paths, Settings(), now=END, reset=True)
    assert again == first
    service = await open_service(paths, Settings())
    assert (await service.log.page(CALLER, limit=1)).total == first.operations
    await service.close()


async def test_reset_refuses_what_a_person_added_to_the_demo(paths: Paths, caller: Caller) -> None:
    await _build(paths, Settings(), now=END)
    service = await open_service(paths, Settings())
    await service.bindings.add(CALLER, "mine", "vault", {})
    await service.close()
    before = _files(paths.data / "bindings")
    with pytest.raises(Invalid, match="mine"):
        await _build(paths, Settings(), now=END, reset=True)

    service = await open_service(paths, Settings())
    await service.bindings.remove(CALLER, "mine")
    await service.companies.add(caller, "My own")
    await service.close()
    with pytest.raises(Invalid, match="My own"):
        await _build(paths, Settings(), now=END, reset=True)
    assert _files(paths.data / "bindings") == before


async def test_reset_takes_away_what_using_the_demo_left(paths: Paths) -> None:
    first = await _build(paths, Settings(), now=END)
    service = await open_service(paths, Settings())
    await service.analysis.seal(CALLER, before=END)
    await service.close()
    paths.session_file.write_text('{"companies": {"acme": {}}}')
    paths.views_file.write_text("[]")
    (paths.data / "migrations" / "acme").mkdir(parents=True)
    assert find_remains(paths).sealed
    assert await _build(paths, Settings(), now=END, reset=True) == first
    remains = find_remains(paths)
    assert (remains.sealed, remains.companies) == ((), ())
    assert not (paths.data / "migrations").exists()
    assert paths.views_file.exists(), "a person gave the views their names"


async def test_reset_removes_nothing_while_the_demo_is_open(paths: Paths) -> None:
    await _build(paths, Settings(), now=END)
    service = await open_service(paths, Settings())
    await service.log.page(CALLER, limit=1)
    before = _files(paths.data / "bindings"), paths.demo_file.read_bytes()
    with pytest.raises(Conflict, match="is open in another memtui") as refused:
        await _build(paths, Settings(), now=END, reset=True)
    assert str(refused.value).endswith("Nothing was removed.")
    assert (_files(paths.data / "bindings"), paths.demo_file.read_bytes()) == before
    assert (await service.log.page(CALLER, limit=1)).total > 50
    await service.close()
    await _build(paths, Settings(), now=END, reset=True)


async def test_reset_says_why_where_the_database_cannot_be_written(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await _build(paths, Settings(), now=END)
    refused = sqlite3.OperationalError("disk I/O error")
    refused.sqlite_errorcode = sqlite3.SQLITE_IOERR
    execute = Driver.execute

    def fail(driver: Driver, statement: str, *given: Any) -> Any:
        if statement.startswith("BEGIN EXCLUSIVE"):
            raise refused
        return execute(driver, statement, *given)

    monkeypatch.setattr(Driver, "execute", fail)
    with pytest.raises(Unavailable, match="disk I/O error"):
        await _build(paths, Settings(), now=END, reset=True)
    monkeypatch.undo()
    assert await _build(paths, Settings(), now=END) == first


@pytest.mark.parametrize("reset", [False, True])
async def test_an_interrupted_reset_can_be_begun_again(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, *, reset: bool
) -> None:
    first = await _build(paths, Settings(), now=END)
    paths.session_file.write_text('{"companies": {"acme": {}}}')

    remove = shutil.rmtree

    def refuse(folder: Path, **options: Any) -> None:
        if not options:
            raise OSError(39, "Directory not empty", str(folder))
        remove(folder, **options)  # of a file that is replaced

    with monkeypatch.context() as failing:
        failing.setattr(shutil, "rmtree", refuse)
        with pytest.raises(Invalid, match="Only a part of the demo"):
            await _build(paths, Settings(), now=END, reset=True)
    assert not can_open(paths, Settings())
    assert await _build(paths, Settings(), now=END, reset=reset) == first


async def test_reset_refuses_the_folder_of_a_binding_that_a_person_removed(paths: Paths) -> None:
    await _build(paths, Settings(), now=END)
    service = await open_service(paths, Settings())
    await service.bindings.add(CALLER, "mine", "vault", {})
    await service.bindings.remove(CALLER, "mine")
    await service.close()
    folder = paths.binding_dir("acme/mine")
    assert folder.is_dir()
    with pytest.raises(Invalid, match=r"also holds .*bindings/acme/mine, which"):
        await _build(paths, Settings(), now=END, reset=True)
    folder.rename(paths.data.parent / "mine")
    await _build(paths, Settings(), now=END, reset=True)


async def test_an_interrupted_demo_is_made_anew(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Player.play
    count = 0

    async def play_some(self: Player, step: PlannedStep) -> None:
        nonlocal count
        count += 1
        if count > 30:
            raise asyncio.CancelledError
        await play(self, step)

    monkeypatch.setattr(Player, "play", play_some)
    with pytest.raises(asyncio.CancelledError):
        await _build(paths, Settings(), now=END)
    assert json.loads((paths.data / "demo.json").read_text())["summary"] is None
    monkeypatch.setattr(Player, "play", play)
    summary = await _build(paths, Settings(), now=END)
    assert summary.operations > 60
    elsewhere = find_paths(paths.data.parent / "elsewhere")
    other = await _build(elsewhere, Settings(), now=END)
    assert other.operations == summary.operations
    service = await open_service(paths, Settings())
    companies = await service.companies.all()
    await service.close()
    assert [view.company_id for view in companies] == ["acme"]


async def test_an_error_that_is_not_part_of_the_story_ends_the_build(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_default = timeline()[1:60]
    monkeypatch.setattr(making, "timeline", lambda: without_default)
    with pytest.raises(NotFound, match="No binding serves acme"):
        await _build(paths, Settings(), now=END)


def test_what_is_left_of_an_interrupted_demo_is_not_opened(paths: Paths) -> None:
    def give_up(_: str, done: int, __: int) -> None:
        if done == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_demo(paths, Settings(), now=END, progress=give_up)
    assert is_begun(paths)
    assert not can_open(paths, Settings())
    assert not is_begun(paths)
    with pytest.raises(Denied, match="--read-only"):
        can_open(paths, Settings(read_only=True))


async def test_two_builds_do_not_meet(paths: Paths) -> None:
    paths.create()
    with (
        FileLock(paths.data / "demo.lock"),
        pytest.raises(Unavailable, match="Another memtui"),
    ):
        await _build(paths, Settings(), now=END)


async def test_a_shared_database_and_a_read_only_start_are_refused(paths: Paths) -> None:
    with pytest.raises(Invalid, match="MEMTUI_DATABASE_URL"):
        await asyncio.to_thread(
            build_demo, paths, Settings(database_url="postgresql://db/acme"), now=END
        )
    with pytest.raises(Denied, match="read-only"):
        await _build(paths, Settings(read_only=True), now=END)
    assert not paths.data.exists()
