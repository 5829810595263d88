"""A home of a test's own, settings, and the real service over it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from memtui.config import Paths, Settings, find_paths, load_settings
from memtui.service import Caller, MemoryService, open_service


@pytest.fixture
def new_paths(tmp_path: Path) -> Paths:
    """A home that is not there yet."""
    return find_paths(tmp_path / "home")


@pytest.fixture
def paths(new_paths: Paths, empty_database: Path) -> Paths:
    """A home whose database is made already: most tests are about what comes after."""
    new_paths.create()
    shutil.copy(empty_database, new_paths.database)
    return new_paths


Start = Callable[[Paths], Awaitable[MemoryService]]


def make_home(folder: Path, empty_database: Path, start: Start) -> Path:
    """Make a home to be copied: with what a service did that `start` opens in one without any."""
    paths = find_paths(folder)
    paths.create()
    shutil.copy(empty_database, paths.database)

    async def make() -> None:
        service = await start(paths)
        await service.close()

    asyncio.run(make())
    return paths.data


@pytest.fixture(scope="session")
def begun(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with its first company, to be copied: making that takes longer than most tests."""

    async def start(paths: Paths) -> MemoryService:
        return await open_service(paths, load_settings(paths, principal="user:ana"))

    return make_home(tmp_path_factory.mktemp("begun") / "home", empty_database, start)


def furnish(paths: Paths, settings: Settings, template: Path) -> None:
    """Make a copy of a home out of one with an empty database, unless that is in PostgreSQL."""
    if not settings.database_url:
        shutil.copytree(template, paths.data, dirs_exist_ok=True)


@pytest.fixture
def settings(paths: Paths) -> Settings:
    return load_settings(paths, principal="user:ana")


@pytest.fixture
def caller() -> Caller:
    return Caller(company_id="local", principal="user:ana", channel="test")


@pytest.fixture
async def service(paths: Paths, settings: Settings, begun: Path) -> AsyncIterator[MemoryService]:
    furnish(paths, settings, begun)
    opened = await open_service(paths, settings)
    yield opened
    await opened.close()
