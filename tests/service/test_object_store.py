"""What is sealed is copied to an object store, and another machine brings it from there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from memtui.config import find_paths, load_settings
from memtui.contract import Conflict, Invalid, Unavailable
from memtui.service import Caller, MemoryService, open_service
from tests.service.scenario import ANA, play, told

Machine = Callable[..., Awaitable[MemoryService]]


@pytest_asyncio.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    """Open the one control plane from the home of a machine."""
    async with AsyncExitStack() as stack:

        async def opened(name: str, url: str) -> MemoryService:
            paths = find_paths(tmp_path / name)
            database = f"sqlite:///{tmp_path / 'control-plane.db'}"
            settings = load_settings(paths, database_url=database, archive_url=url)
            service = await open_service(paths, settings)
            stack.push_async_callback(service.close)
            return service

        yield opened


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/store"
    return f"memory://{tmp_path.name}/store"


async def test_another_machine_answers_the_same_once_it_has_fetched(
    machine: Machine, url: str
) -> None:
    here, there = await machine("here", url), await machine("there", url)
    await play(here)
    await here.analysis.seal(ANA, everything=True)
    with pytest.raises(Unavailable, match="memtui archive fetch"):
        await there.operations(ANA)
    fetched = await there.analysis.fetch(ANA)
    assert sum(one.count for one in fetched) > 10
    assert await told(there, []) == await told(here, [])
    assert (await there.analysis.verify_archive(ANA)).problems == ()
    assert (await there.analysis.verify_chain(ANA)).broken_seq is None
    assert await there.analysis.fetch(ANA) == ()


async def test_the_machines_seal_in_turn(machine: Machine, url: str) -> None:
    here, there = await machine("here", url), await machine("there", url)
    await play(here)
    await here.analysis.seal(ANA, everything=True)
    await there.analysis.fetch(ANA)
    await there.analysis.seal(ANA, everything=True)
    await here.analysis.fetch(ANA)
    assert await here.analysis.segments(ANA) == await there.analysis.segments(ANA)


async def test_a_damaged_copy_is_not_used(machine: Machine, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    here, there = await machine("here", url), await machine("there", url)
    await play(here)
    await here.analysis.seal(ANA, everything=True)
    [victim] = (tmp_path / "store").rglob("usage.parquet")
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    with pytest.raises(Unavailable, match="was changed"):
        await there.analysis.fetch(ANA)
    assert (await there.analysis.segments(ANA)).segments == ()


async def test_a_store_that_fails_loses_nothing_and_gets_it_later(
    machine: Machine, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.write_text("a file in the place of the folder")
    here = await machine("here", f"file://{store}")
    await play(here)
    with pytest.raises(Unavailable, match="try again"):
        await here.analysis.seal(ANA, everything=True)
    assert (await here.analysis.verify_chain(ANA)).broken_seq is None
    store.unlink()
    await here.analysis.seal(ANA, everything=True)
    there = await machine("there", f"file://{store}")
    await there.analysis.fetch(ANA)
    assert await there.analysis.segments(ANA) == await here.analysis.segments(ANA)


async def test_another_log_is_not_mixed_in(machine: Machine, tmp_path: Path, url: str) -> None:
    here = await machine("here", url)
    await play(here)
    await here.analysis.seal(ANA, everything=True)
    (tmp_path / "control-plane.db").rename(tmp_path / "other.db")
    for rest in tmp_path.glob("control-plane.db-*"):
        rest.rename(tmp_path / rest.name.replace("control-plane", "other"))
    other = await machine("other", url)
    await play(other)
    with pytest.raises(Conflict, match="differs"):
        await other.analysis.seal(ANA, everything=True)


@pytest.mark.parametrize("unfit", ["", "nonsense://x", "s3://"])
async def test_a_url_that_cannot_be_used_is_one_sentence(machine: Machine, unfit: str) -> None:
    here = await machine("here", unfit)
    caller = Caller(company_id="local", principal="user:ana", door="test")
    with pytest.raises((Invalid, Unavailable)) as caught:
        await here.analysis.fetch(caller)
    assert "\n" not in str(caught.value)
