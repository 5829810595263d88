"""The service over the whole demo, and a short story for tests that only need some demo."""

from collections.abc import AsyncIterator

import pytest

from memtui.config import Paths, Settings
from memtui.demo import making
from memtui.demo.timeline import timeline
from memtui.service import Caller, MemoryService, open_service
from tests.demos import END, Built

CALLER = Caller(company_id="acme", principal="user:test", channel="test")


@pytest.fixture
async def service(built: Built) -> AsyncIterator[MemoryService]:
    """The service over the whole demo, at the moment of its end."""
    opened = await open_service(built.paths, Settings(), clock=lambda: END)
    yield opened
    await opened.close()


@pytest.fixture
def paths(new_paths: Paths) -> Paths:
    """A home that is not there yet: a demo wants one."""
    return new_paths


@pytest.fixture
def short_story(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo of its first days only, for tests of where and when a demo is made."""
    beginning = timeline()[:60]
    monkeypatch.setattr(making, "timeline", lambda: beginning)
