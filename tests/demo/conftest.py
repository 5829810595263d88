"""One whole demo for all tests, and a short story for those that only need some demo."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memtui.config import Paths, Settings, find_paths
from memtui.demo import DemoSummary, build_demo, making
from memtui.demo.timeline import timeline
from memtui.service import Caller, MemoryService, open_service

END = datetime(2026, 3, 18, 16, tzinfo=UTC)
CALLER = Caller(company_id="acme", principal="user:test", door="test")


@dataclass(frozen=True)
class Built:
    """A demo that was made."""

    paths: Paths
    summary: DemoSummary


def build_in(home: Path) -> Built:
    """Make the whole demo, ending at a fixed moment."""
    paths = find_paths(home)
    return Built(paths, asyncio.run(build_demo(paths, Settings(), now=END)))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The whole demo; tests only read it."""
    return build_in(tmp_path_factory.mktemp("demo") / "home")


@pytest.fixture
async def service(built: Built) -> AsyncIterator[MemoryService]:
    """The service over the whole demo, at the moment of its end."""
    opened = await open_service(built.paths, Settings(), clock=lambda: END)
    yield opened
    await opened.close()


@pytest.fixture
def short_story(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo of its first days only, for tests of where and when a demo is made."""
    beginning = timeline()[:60]
    monkeypatch.setattr(making, "timeline", lambda: beginning)
