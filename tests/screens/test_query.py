"""The questions on screen, over a real service and vault."""

from __future__ import annotations

from memtui.config import Paths, Settings
from memtui.service import Caller, MemoryService
from memtui.widgets.frame import KeyFooter
from tests.screens.hostile import screen_text
from tests.screens.piloting import running, until, write_notes


async def test_keys_lead_from_earlier_questions_back_to_the_results(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["deploys by hand", "deploys on Mondays"])
    async with running(paths, settings, "query") as (app, pilot):
        await pilot.press(*"deploys", "enter")
        await until(pilot, lambda: "2 results for" in screen_text(app))
        await pilot.press("down")
        asked = (await service.log.page(caller)).operations[0]
        footer = app.screen.query_one("#key-footer", KeyFooter)

        for key in ("h", "escape"):
            await pilot.press("h")
            await until(pilot, lambda: "Asked before" in screen_text(app))
            assert not any(one.reason for one in footer.entries)
            offered = [(one.key, one.label) for one in footer.entries]
            assert offered[:2] == [("enter", "ask again"), ("h", "results")]
            await pilot.press(key)
            await until(pilot, lambda: "2 results for" in screen_text(app))
            assert "e edit" in screen_text(app)
            await pilot.press("R")
            await until(pilot, lambda: app.state.session and app.frame.MODE == "records")  # type: ignore[union-attr]
            await until(pilot, lambda: "rank 2" in screen_text(app))  # the cursor came back too
            await pilot.press("3")
        newest = (await service.log.page(caller)).operations
        assert [one.operation_id for one in newest if one.request.get("query")] == [
            asked.operation_id
        ], "nothing is asked anew"
