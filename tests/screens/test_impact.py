"""What breaks, on screen: from the question whether to forget, to the answers that would change."""

from __future__ import annotations

from typing import Any

from textual.pilot import Pilot
from textual.widgets import Input

from memtui.app import MemtuiApp
from memtui.config import Paths, Settings
from memtui.contract import QueryRequest, Scope
from memtui.screens.checks import Checks
from memtui.screens.dialogs import Confirm, Prompt
from memtui.screens.impact import ImpactScreen
from memtui.screens.operations.screen import OperationsScreen
from memtui.screens.prune import PruneReview
from memtui.screens.records.screen import RecordsScreen
from memtui.service import Caller, MemoryService
from memtui.widgets.virtual_list import VirtualList
from tests.screens.hostile import HOSTILE, assert_harmless, screen_text
from tests.screens.piloting import running, toasts, until, write_notes

SCOPE = Scope(company_id="local", project_id="mech", agent_id="coding")


def listed(app: MemtuiApp) -> VirtualList[Any]:
    return app.screen.query_one(VirtualList)


def current(app: MemtuiApp) -> Any:
    return listed(app).current


async def tried(app: MemtuiApp, pilot: Pilot[Any]) -> None:
    """Wait until the questions were tried."""
    await until(
        pilot, lambda: isinstance(app.screen, ImpactScreen) and " could " in screen_text(app)
    )


async def test_what_breaks_is_looked_at_before_the_yes(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    notes = await write_notes(service, caller, [*HOSTILE[:4], "Deploy from main"])
    for run in ("run-8", "run-9"):
        agent = Caller(company_id="local", principal="agent:coding", channel="mcp", run_id=run)
        await service.query(agent, QueryRequest(scope=SCOPE, query=f"{HOSTILE[0]} deploy main"))
    async with running(paths, settings, "records") as (app, pilot):
        await until(
            pilot, lambda: isinstance(app.screen, RecordsScreen) and listed(app).rows.count == 5
        )
        await pilot.press("g")
        assert current(app).text == "Deploy from main"
        await pilot.press("d", "c")
        await tried(app, pilot)
        text = screen_text(app)
        assert "could use this record: 2 would change" in text
        assert "Deploy from main" in text
        assert "coding" in text
        assert_harmless(text)
        assert listed(app).rows.count == 1
        assert current(app).times == 2

        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.screen, Prompt))
        app.screen.query_one(Input).value = "0"
        await pilot.press("enter")
        await until(pilot, lambda: "'0' is not a number from 1" in screen_text(app))
        app.screen.query_one(Input).value = "1"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ImpactScreen))
        await until(pilot, lambda: ": 1 would change" in screen_text(app))
        await pilot.press("slash")
        await until(pilot, lambda: isinstance(app.screen, Prompt))
        app.screen.query_one(Input).value = "agent:nobody"
        await pilot.press("enter")
        await until(pilot, lambda: "No query and no delivered context" in screen_text(app))
        await pilot.press("O")
        assert toasts(app)[-1] == "No answer is selected."

        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert "2 queries have returned it, the last" in screen_text(app)
        assert "would change" not in screen_text(app)  # what was tried last was not all of it
        await pilot.press("c")
        await tried(app, pilot)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert "could use this record: 2 would change" in screen_text(app)
        await pilot.press("c")
        await tried(app, pilot)
        await pilot.press("O")
        await until(pilot, lambda: isinstance(app.screen, OperationsScreen))
        await until(pilot, lambda: listed(app).current)
        assert len(app.screen_stack) == 1
    kept = await service.get(caller, notes[-1].handle, SCOPE)
    assert kept.record.text == "Deploy from main"


async def test_the_checks_that_would_no_longer_pass_are_shown_before_the_yes(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    await write_notes(service, caller, ["Deploy from main", "deploy from main.", HOSTILE[0]])
    async with running(paths, settings, "records") as (app, pilot):
        await until(
            pilot, lambda: isinstance(app.screen, RecordsScreen) and listed(app).rows.count == 3
        )
        await pilot.press("P")
        await until(pilot, lambda: " 1 marked" in screen_text(app))
        review: Any = app.screen
        [marked] = review._review.marked
        name = marked.handle.provider_record_id
        ask = "[[check]]\nproject = 'mech'\nask = 'deploy'\n"
        paths.checks_file.write_text(
            f"{ask}holds = 'zeppelin'\n{ask}records = '{name}'\n{ask}holds = 'from'\n"
        )
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, ImpactScreen))
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, Checks) and " passed" in screen_text(app))
        text = screen_text(app)
        assert "1 passed, 2 failed without the records. 1 check would no longer pass." in text
        over: Any = app.screen
        tones = [over.rows_list.columns[0].of(one).tone for one in over.report.checks]
        assert tones == ["muted", "error", "success"]  # the first fails with the records too
        await pilot.press("escape", "escape")
        await until(pilot, lambda: isinstance(app.screen, PruneReview))
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert "1 check would no longer pass." in screen_text(app)
