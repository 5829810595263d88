"""A home of a test's own, settings, and the real service over it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
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


@pytest.fixture
def settings(paths: Paths) -> Settings:
    return load_settings(paths, principal="user:ana")


@pytest.fixture
def caller() -> Caller:
    return Caller(company_id="local", principal="user:ana", door="test")


@pytest.fixture
async def service(paths: Paths, settings: Settings) -> AsyncIterator[MemoryService]:
    opened = await open_service(paths, settings)
    yield opened
    await opened.close()
