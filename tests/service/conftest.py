"""The real service over the provider in memory, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from memtui.config import Paths, Settings, find_paths, load_settings
from memtui.contract import QueryRequest, Scope, SourceKind, SourceRef, WriteRequest
from memtui.service import Caller, MemoryService, open_service
from memtui.service.runtime import SETUP_CHANNEL
from tests.homes import furnish, make_home
from tests.service.fake import FakeAdapter


@pytest.fixture
def fake() -> Iterator[type[FakeAdapter]]:
    FakeAdapter.reset()
    yield FakeAdapter
    FakeAdapter.reset()


@pytest.fixture
def settings(paths: Paths, database_url: str) -> Settings:
    return load_settings(paths, principal="user:ana", database_url=database_url)


@pytest.fixture
def caller() -> Caller:
    return Caller(company_id="acme", principal="user:ana", channel="test")


async def start(
    paths: Paths, settings: Settings, caller: Caller, **config: object
) -> MemoryService:
    """Open the service with the company `acme` and the fake provider as its default."""
    opened = await open_service(
        paths, settings, providers={"fake": FakeAdapter}, first_company=False
    )
    if not await opened.companies.all():
        setup = caller.model_copy(update={"channel": SETUP_CHANNEL})
        await opened.companies.add(setup, "Acme")
        await opened.bindings.add(setup, "default", "fake", dict(config))
        await opened.bindings.set_target(setup, "company", "acme", "default")
    return opened


@pytest.fixture(scope="session")
def acme(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that was started like that, to be copied."""
    caller = Caller(company_id="acme", principal="user:ana", channel="test")

    async def begin(paths: Paths) -> MemoryService:
        return await start(paths, load_settings(paths, principal="user:ana"), caller)

    return make_home(tmp_path_factory.mktemp("acme") / "home", empty_database, begin)


@pytest.fixture
async def service(
    paths: Paths, settings: Settings, caller: Caller, acme: Path, fake: type[FakeAdapter]
) -> AsyncIterator[MemoryService]:
    furnish(paths, settings, acme)
    opened = await start(paths, settings, caller)
    yield opened
    await opened.close()


@pytest.fixture
def scope() -> Scope:
    return Scope(company_id="acme", project_id="p")


@pytest.fixture
def source() -> SourceRef:
    return SourceRef(
        kind=SourceKind.ISSUE_COMMENT, company_id="acme", issue_id="ISS-1", comment_id="2"
    )


@pytest.fixture
def note(scope: Scope, source: SourceRef) -> WriteRequest:
    return WriteRequest(scope=scope, source=source, content="We deploy from release")


@dataclass(frozen=True)
class Lived:
    """A home with a note, whose log is sealed."""

    paths: Paths
    settings: Settings


@pytest.fixture(scope="session")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("lived") / "home"
    asyncio.run(_live(find_paths(home)))
    return home


async def _live(paths: Paths) -> None:
    service = await open_service(paths, load_settings(paths, principal="user:ana"))
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    scope = Scope(company_id="local")
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
    await service.write(caller, WriteRequest(scope=scope, source=source, content="We deploy"))
    of_ana = scope.model_copy(update={"subject_id": "ana"})
    await service.query(caller, QueryRequest(scope=of_ana, query="ship"))
    await service.analysis.seal(caller, everything=True)
    await service.close()


@pytest.fixture
def lived(lived_in: Path, tmp_path: Path) -> Lived:
    shutil.copytree(lived_in, tmp_path / "home")
    paths = find_paths(tmp_path / "home")
    return Lived(paths, load_settings(paths, principal="user:ana"))
