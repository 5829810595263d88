"""Merging facts leaves the same memory and log from wherever it is asked for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memtui.config import Paths, Settings
from memtui.contract import BrowseRequest
from memtui.screens.dialogs import Choose
from memtui.service import MemoryService
from memtui.service.usecases.merging import merge
from tests.screens.piloting import until
from tests.screens.test_budget import budget, texts
from tests.service.usecases.ways import (
    ANA,
    PERSON,
    WAYS,
    Command,
    Way,
    kept,
    last,
    logged,
    remember,
)

_WORDS = "deploy: release"


@pytest.mark.parametrize("way", WAYS)
async def test_facts_are_merged(
    way: Way, service: MemoryService, command: Command, paths: Paths, settings: Settings
) -> None:
    ends = datetime(2090, 1, 1, tzinfo=UTC)
    [other] = await remember(service, "branch: main", tags=("a",))
    [stays] = await remember(service, "deploy: main", pinned=True, tags=("b",), expires_at=ends)
    begun = await last(service)
    if way == "service":
        await merge(service, PERSON, stays, [stays, other], binding_key="default", text=_WORDS)
    elif way == "command":
        names = [one.handle.provider_record_id for one in (stays, other)]
        told = await command("facts", "merge", *names, "--subject", "ana", "--text", _WORDS)
        assert "Made one of 2 facts" in told.err
    else:
        async with budget(paths, settings, ANA, 2) as (app, pilot):
            await pilot.press("A", "M")
            await until(pilot, lambda: isinstance(app.screen, Choose))
            await pilot.press(*_WORDS, "enter")
            await until(pilot, lambda: texts(app) == [_WORDS])
    found = await service.browse(PERSON, BrowseRequest(scope=ANA))
    assert kept(found.records) == [(_WORDS, True, ("b", "a"), None)]
    shared = {"status": "ok", "of": {"subject_id": "ana"}, "binding": "default", "by": "user:ana"}
    asked = {"tags": ["b", "a"], "never_expires": True, "content": _WORDS, "revision": True}
    assert await logged(service, begun) == [
        shared | {"type": "forget", "group": 1, "asked": {"records": 1}},
        shared | {"type": "correct", "group": 1, "asked": asked},
    ]
