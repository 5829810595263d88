"""memtui's own log, exported and imported: the same figures, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memtui.analytics.figures import Bucket
from memtui.config import Paths, Settings, load_settings
from memtui.service import Caller, MemoryService, Operation, open_service
from tests.analytics.logs import draft
from tests.databases import ON_BOTH
from tests.importing.conftest import Log, json_lines, log_of

pytestmark = ON_BOTH

LOST = {"operation_id", "seq", "digest", "previous_digest", "request"}
"""What belongs to the place in a log, and where the origin is written."""


@pytest.fixture
def settings(paths: Paths, database_url: str) -> Settings:
    return load_settings(paths, principal="user:ana", database_url=database_url)


@pytest.fixture
async def service(paths: Paths, settings: Settings) -> AsyncIterator[MemoryService]:
    opened = await open_service(paths, settings)
    yield opened
    await opened.close()


def _told(operation: Operation) -> dict[str, Any]:
    """Return an operation without what is lost, its company and its own names for bindings."""
    told = operation.model_dump(exclude=LOST)
    told["scope"].pop("company_id")
    if told["source"]:
        told["source"].pop("company_id")
    return told


async def test_our_own_log_there_and_back(
    service: MemoryService, load: Log, tmp_path: Path
) -> None:
    drafts = [
        draft(n, scope={"company_id": "acme", "agent_id": f"a{n % 3}", "project_id": "p"})
        for n in range(60)
    ]
    # They are logged as they end, which is not the order that they began in.
    drafts[10], drafts[11] = drafts[11], drafts[10]
    owner = Caller(company_id="acme", principal="user:ana", channel="test")
    await service.companies.add(owner, "Acme")
    from memtui.store import appending

    def append() -> None:
        with service._runtime.database.write() as connection:
            appending.append_all(connection, drafts)

    await asyncio.to_thread(append)
    ours = await log_of(service, "acme")
    assert [one.seq for one in ours] == list(range(1, 62))
    path = json_lines(tmp_path / "export.jsonl", [one.model_dump(mode="json") for one in ours])
    report = await load(path, company="back")
    assert (report.added, report.bad_count, report.priced_here_count) == (61, 0, 0)
    back = await log_of(service, "back")
    assert [one.started_at for one in back] == sorted(one.started_at for one in ours)
    by_moment = sorted(ours, key=lambda one: (one.started_at, one.seq))
    assert [_told(one) for one in back] == [_told(one) for one in by_moment]
    for one, origin in zip(back, by_moment, strict=True):
        kept: dict[str, Any] = {**one.request}
        imported = kept.pop("imported")
        assert kept == origin.request
        assert imported["id"] == origin.operation_id
        assert imported["columns"] == {"seq": origin.seq, "digest": origin.digest}
    figures = [
        (await service.analysis.stats(
            Caller(company_id=company, principal="user:ana", channel="test"),
            by=("agent", "model"),
            bucket=Bucket.DAY,
        )).model_dump(mode="json")
        for company in ("acme", "back")
    ]  # fmt: skip
    assert figures[0] == figures[1]
    assert figures[0]["unpriced_count"] > 0
    assert (await load(path, company="back")).added == 0
