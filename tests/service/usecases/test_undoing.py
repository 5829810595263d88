"""Undoing what was changed together leaves the same from wherever it is asked for."""

from __future__ import annotations

import pytest

from memtui.config import Paths, Settings
from memtui.contract import BrowseRequest, Conflict, CorrectRequest, NotFound, Scope
from memtui.service import MemoryService
from memtui.service.usecases.changing import change
from memtui.service.usecases.undoing import last_change, undo
from tests.screens.piloting import toasts, until
from tests.screens.test_budget import budget
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


@pytest.mark.parametrize("way", WAYS)
async def test_of_what_was_changed_together_what_changed_since_stays(
    way: Way, service: MemoryService, command: Command, paths: Paths, settings: Settings
) -> None:
    records = await remember(service, "Likes tea", "Writes Lua")
    await change(service, PERSON, {"default": records}, pinned=True)
    pinned = (await last_change(service, PERSON, ANA)).operation.operation_id
    newer = CorrectRequest(scope=ANA, handle=records[1].handle, text="Writes Go")
    await service.correct(PERSON, newer)
    begun = await last(service)
    if way == "service":
        undone = await undo(service, PERSON, [pinned])
        assert (len(undone.answers), type(undone.failed)) == (1, Conflict)
    elif way == "command":
        typed = await command("undo", pinned, "--json")
        assert (typed.code, typed.document["error"]["kind"]) == (5, "conflict")
    else:
        async with budget(paths, settings, ANA, 2) as (app, pilot):
            assert app.frame is not None
            app.frame.talk(app.frame.undo([pinned]))
            await until(pilot, lambda: any("Undone before that: “" in one for one in toasts(app)))
    page = await service.browse(PERSON, BrowseRequest(scope=ANA))
    assert kept(page.records) == [("Likes tea", False, (), None), ("Writes Go", True, (), None)]
    changes = [(one["type"], one["status"]) for one in await logged(service, begun)]
    assert changes == [("undo", "conflict"), ("undo", "ok")]
    with pytest.raises(NotFound):
        await last_change(service, PERSON, Scope(company_id="local", subject_id="nobody"))
