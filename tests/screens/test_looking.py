"""A person who looks at a record in the app is no reader of it."""

from __future__ import annotations

from memtui.config import Paths, Settings
from memtui.contract import OperationType, QueryRequest, Scope
from memtui.screens.timeline import TimelineScreen
from memtui.service import Caller, MemoryService
from memtui.widgets.panes import OptionRows
from tests.reads import reads_of
from tests.screens.hostile import screen_text
from tests.screens.piloting import act, running, until, write_notes


async def test_looking_at_a_record_is_no_read_of_it(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    [note] = await write_notes(service, caller, ["We drink tea"])
    async with running(paths, settings, "records") as (app, pilot):
        await until(pilot, lambda: "never returned by a query" in screen_text(app))
        await pilot.press("enter", "escape", "h")
        await until(pilot, lambda: isinstance(app.screen, TimelineScreen))
        await until(pilot, lambda: "We drink tea" in screen_text(app))
        await pilot.press("escape", "r")
        await act(pilot, "app.everywhere")
        await until(pilot, lambda: app.state.everywhere)
        await until(pilot, lambda: "We drink tea" in screen_text(app))

        # The details of its write read its text.
        await pilot.press("2")
        await until(pilot, lambda: "+ We drink tea" in screen_text(app))
        await pilot.press("down", "end", "up")
        app.controller.choose(filter_line="type:write")
        await until(pilot, lambda: app.state.filter_line == "type:write")
        await until(pilot, lambda: "+ We drink tea" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.focused, OptionRows))
        await pilot.press("enter")
        await until(pilot, lambda: app.current_mode == "records")
        await until(pilot, lambda: "never returned by a query" in screen_text(app))

        # Nor is the context on screen 5, which no model gets.
        await pilot.press("5")
        await until(pilot, lambda: app.current_mode == "budget" and not app.frame.reading)  # type: ignore[union-attr]
        done = (await service.log.page(caller)).operations
        kinds = {one.operation_type for one in done}
    assert kinds >= {OperationType.BROWSE, OperationType.HISTORY}
    assert await reads_of(service, caller, note) == 0

    asked = QueryRequest(scope=Scope(company_id="local", project_id="mech"), query="tea")
    await service.query(caller, asked)
    assert await reads_of(service, caller, note) == 1, "a question counts"
