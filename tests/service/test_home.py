"""A home whose database is damaged or gone: nothing is written before that is said."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from memtui.config import Paths, Settings, load_settings
from memtui.contract import Unavailable
from memtui.service import MemoryService, caller_of, open_service
from memtui.service.home.bindings import Bindings
from memtui.service.home.files import find_remains
from memtui.store.database import Database
from tests.processes import prepared_processes
from tests.service.conftest import Lived

Harm = Callable[[Path], object]


def _cut(size: int) -> Harm:
    def cut(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:size])

    return cut


def _empty_schema(path: Path) -> None:
    path.unlink()
    Database.open(path).close()


def _zero_page(number: int) -> Harm:
    def zero(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[number * 4096 : (number + 1) * 4096] = bytes(4096)
        path.write_bytes(content)

    return zero


HARMS: dict[str, tuple[Harm, str]] = {
    "gone": (Path.unlink, "gone or empty"),
    "empty": (_cut(0), "gone or empty"),
    "empty tables": (_empty_schema, "gone or empty"),
    "one byte": (_cut(1), "damaged"),
    "half a header": (_cut(50), "damaged"),
    "one page": (_cut(4096), "damaged"),
    "five pages": (_cut(5 * 4096), "damaged"),
    "text": (lambda path: path.write_text("shopping notes " * 999), "damaged"),
    "a zeroed schema": (_zero_page(0), "damaged"),
}


def _tree(home: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }


@pytest.mark.parametrize("harm", HARMS)
async def test_a_harmed_database_is_told_of_and_nothing_is_written(lived: Lived, harm: str) -> None:
    damage, words = HARMS[harm]
    damage(lived.paths.database)
    before = _tree(lived.paths.data)
    for _ in range(2):
        with pytest.raises(Unavailable, match=words) as caught:
            await open_service(lived.paths, lived.settings)
        assert "`memtui doctor`" in str(caught.value)
        assert "docs/recovery.md" in str(caught.value)
    assert _tree(lived.paths.data) == before


async def test_damage_that_a_read_meets_is_told_of(lived: Lived) -> None:
    content = bytearray(lived.paths.database.read_bytes())
    for page in range(1, len(content) // 4096):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    lived.paths.database.write_bytes(content)
    with pytest.raises(Unavailable, match="is damaged"):
        await open_service(lived.paths, lived.settings)


@pytest.mark.parametrize("left", ["archive", "bindings"])
async def test_each_thing_left_is_enough(lived: Lived, left: str) -> None:
    lived.paths.database.unlink()
    for other in {"archive", "bindings"} - {left}:
        shutil.rmtree(lived.paths.data / other)
    with pytest.raises(Unavailable, match=left.removesuffix("s") if left == "bindings" else "log"):
        await open_service(lived.paths, lived.settings)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("session.json", '{"company": "acme", "companies": {"acme": {}}}'),
        ("memtui.db-wal", "changes"),
    ],
)
async def test_a_session_or_unmerged_changes_are_enough(
    new_paths: Paths, settings: Settings, name: str, content: str
) -> None:
    new_paths.database.unlink()
    (new_paths.data / name).write_text(content)
    with pytest.raises(Unavailable, match="gone or empty"):
        await open_service(new_paths, settings)
    assert (new_paths.data / name).read_text() == content


async def test_a_home_with_nothing_of_worth_begins_anew(new_paths: Paths) -> None:
    new_paths.create()
    (new_paths.data / "session.json").write_text("{")
    (new_paths.data / "memtui.log").write_text("x")
    (new_paths.archive / "empty").mkdir(parents=True)
    service = await open_service(new_paths, load_settings(new_paths, principal="user:ana"))
    assert [one.company_id for one in await service.companies.all()] == ["local"]
    await service.close()


async def test_an_empty_postgres_beside_segments_is_told_of_and_stays_empty(
    lived: Lived, postgres_url: str
) -> None:
    lived.paths.database.unlink()
    settings = lived.settings.model_copy(update={"database_url": postgres_url})
    with pytest.raises(Unavailable, match="at database_url is gone or empty"):
        await open_service(lived.paths, settings)
    lived.paths.archive.rename(lived.paths.data.with_name("elsewhere"))
    shutil.rmtree(lived.paths.data / "bindings")
    service = await open_service(lived.paths, settings)
    await service.close()


async def test_a_postgres_that_cannot_be_reached_is_told_of(lived: Lived) -> None:
    url = "postgresql://nobody@127.0.0.1:1/none?connect_timeout=1"
    settings = lived.settings.model_copy(update={"database_url": url})
    before = _tree(lived.paths.data)
    with pytest.raises(Unavailable, match="Nothing was written; `memtui doctor`"):
        await open_service(lived.paths, settings)
    assert _tree(lived.paths.data) == before


def test_what_is_left_is_counted(lived: Lived) -> None:
    remains = find_remains(lived.paths)
    [log], [binding] = remains.sealed, remains.bindings
    assert log.manifest is not None
    assert (log.manifest.company_id, log.manifest.sealed_through) == ("local", 5)
    assert (binding.company_id, binding.key) == ("local", "default")
    assert binding.path == lived.paths.binding_dir("local/default")
    log.folder.joinpath("manifest.json").write_text("[]")
    assert find_remains(lived.paths).sealed[0].manifest is None


async def _is_set_up(service: MemoryService, settings: Settings) -> bool:
    caller = caller_of(settings, "local", "test")
    companies = [one.company_id for one in await service.companies.all()]
    served = [(one.key, len(one.targets)) for one in await service.bindings.all(caller)]
    return companies == ["local"] and served == [("default", 1)]


def _open_together(home: Paths, together: Barrier) -> None:
    async def opened() -> None:
        settings = load_settings(home, principal="user:ana")
        service = await open_service(home, settings)
        assert await _is_set_up(service, settings)
        await service.close()

    together.wait()
    asyncio.run(opened())


@pytest.mark.slow
def test_processes_that_start_together_find_one_whole_home(tmp_path: Path) -> None:
    given = Paths(tmp_path / "home", tmp_path / "home"), prepared_processes().Barrier(6)
    workers = [prepared_processes().Process(target=_open_together, args=given) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 6
    assert not (tmp_path / "home" / "making.lock").exists()


@pytest.mark.parametrize("step", ["add", "set_target"])
async def test_a_home_whose_making_was_interrupted_is_finished(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended(BaseException):
        pass

    async def end(*_: object) -> None:
        raise Ended

    paths = Paths(tmp_path / "home", tmp_path / "home")
    settings = load_settings(paths, principal="user:ana")
    with monkeypatch.context() as patched:
        patched.setattr(Bindings, step, end)
        with pytest.raises(Ended):
            await open_service(paths, settings)
    for _ in range(2):
        service = await open_service(paths, settings)
        assert await _is_set_up(service, settings)
        await service.close()


async def test_tables_that_hold_nothing_yet_are_no_loss(new_paths: Paths) -> None:
    made = Database.open(new_paths.database)
    held_open = Database.open(new_paths.database)  # so that the write-ahead log stays
    made.close()
    settings = load_settings(new_paths, principal="user:ana")
    service = await open_service(new_paths, settings)
    assert await _is_set_up(service, settings)
    await service.close()
    held_open.close()


async def test_a_binding_that_a_person_took_away_is_not_made_again(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "home", tmp_path / "home")
    settings = load_settings(paths, principal="user:ana")
    service = await open_service(paths, settings)
    await service.bindings.remove(caller_of(settings, "local", "cli"), "default")
    await service.close()
    (paths.data / "making.lock").touch()
    service = await open_service(paths, settings)
    assert not await _is_set_up(service, settings)
    await service.close()
