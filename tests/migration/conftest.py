"""The company `local` with the vault `default`, a second vault and a provider in memory."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memtui.config import Paths, Settings, load_settings
from memtui.contract import (
    BrowseRequest,
    OperationType,
    Record,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.migration.endpoints import Endpoints, ScopePart, open_endpoints
from memtui.migration.envelope import as_json, unpack
from memtui.service import Caller, MemoryService, open_service
from memtui.testing import InMemoryAdapter
from tests.homes import furnish, make_home

from .providers import BareAdapter, LossyAdapter

COMPANY = Scope(company_id="local")
PROVIDERS = {"memory": InMemoryAdapter, "lossy": LossyAdapter, "bare": BareAdapter}
_WORDS = (
    "deploy",
    "branch",
    "release",
    "kettle",
    "müsli",
    "東京",
    "“quoted”",
    "[tag]",
    "- *",
    "# 7",
)


@pytest.fixture
def settings(paths: Paths) -> Settings:
    return load_settings(paths, principal="user:ana", fact_max_count=0)


@pytest.fixture(scope="session")
def bound(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the bindings, to be copied."""
    caller = Caller(company_id="local", principal="user:ana", channel="test")

    async def start(paths: Paths) -> MemoryService:
        settings = load_settings(paths, principal="user:ana")
        opened = await open_service(paths, settings, providers=PROVIDERS)
        await opened.bindings.add(caller, "second", "vault", {})
        await opened.bindings.add(caller, "memory", "memory", {})
        await opened.bindings.add(caller, "lossy", "lossy", {})
        await opened.bindings.add(caller, "bare", "bare", {})
        return opened

    return make_home(tmp_path_factory.mktemp("bound") / "home", empty_database, start)


@pytest.fixture
async def service(paths: Paths, settings: Settings, bound: Path) -> AsyncIterator[MemoryService]:
    furnish(paths, settings, bound)
    opened = await open_service(paths, settings, providers=PROVIDERS)
    yield opened
    await opened.close()


def requests(number: int, seed: int = 7) -> list[WriteRequest]:
    """Return records of every sort, the same for the same seed."""
    chance = random.Random(seed)
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    return [_request(chance, start + timedelta(seconds=place), place) for place in range(number)]


def _request(chance: random.Random, made: datetime, place: int) -> WriteRequest:
    words = " ".join(chance.choices(_WORDS, k=chance.randint(1, 12)))
    is_fact = place % 7 == 3
    scopes: tuple[dict[str, str], ...] = (
        {"project_id": f"p{place % 5}", "agent_id": "coding"},
        {"subject_id": f"Ana {place % 3}", "run_id": "r-1"},
        {"agent_id": "orchestrator"},
        {},
    )
    return WriteRequest(
        scope=Scope(company_id="local", **scopes[0 if is_fact else place % 4]),
        source=SourceRef(kind=SourceKind.ISSUE_COMMENT, company_id="local", issue_id=f"I-{place}"),
        content=f"{words} {place}" if is_fact else f"{words}\n\n{place} {words}",
        kind="fact" if is_fact else chance.choice(["note", "guidance", "summary"]),
        title=None if is_fact else chance.choice([None, f"Title {place}"]),
        topic=chance.choice([None, "deploys"]),
        tags=tuple(chance.sample(["a", "b", "2026-01-01", "true"], k=chance.randint(0, 3))),
        pinned=chance.random() < 0.2,
        created_at=made,
        created_by=chance.choice(["agent:coding", "user:bob"]),
        expires_at=made + timedelta(days=40_000) if chance.random() < 0.2 else None,
        metadata=chance.choice([{}, {"turns": ["D1:3"], "n": 1.5, "day": "2026-01-01"}]),
    )


async def fill(service: MemoryService, caller: Caller, key: str, number: int) -> None:
    for request in requests(number):
        await service.write(caller, request.model_copy(update={"binding_key": key}))


async def held(service: MemoryService, caller: Caller, key: str) -> list[Record]:
    """Return everything that a binding holds."""
    records: list[Record] = []
    request = BrowseRequest(scope=COMPANY, binding_key=key, sort="created_at", limit=1000)
    while True:
        page = await service.browse(caller, request)
        records += page.records
        if page.next_cursor is None:
            return records
        request = request.model_copy(update={"cursor": page.next_cursor})


async def states(service: MemoryService, caller: Caller, key: str) -> list[str]:
    """Return what a binding holds as comparable values, the migration_records opened."""
    records = await held(service, caller, key)
    return sorted(str(as_json(unpack(record).record)) for record in records)


async def ends_of(
    service: MemoryService, caller: Caller, source: str, destination: str, **part: str
) -> Endpoints:
    return await open_endpoints(service, caller, source, destination, ScopePart(**part))


async def mutations(service: MemoryService, caller: Caller) -> int:
    """Return how many operations of the log change something."""
    page = await service.log.page(caller, limit=100_000)
    return sum(OperationType(one.operation_type).mutates for one in page.operations)
