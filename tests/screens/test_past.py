"""The past in the app: the switch on one key, its calendar, and what says that it is not now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Input, Static

from memtui.actions import SCREENS
from memtui.app import MemtuiApp
from memtui.config import Paths, Settings
from memtui.screens.past import ChooseMoment
from memtui.service import Caller, MemoryService
from memtui.widgets import format as fmt
from memtui.widgets.calendar import Calendar
from memtui.widgets.virtual_list import VirtualList
from tests.screens.hostile import HOSTILE, assert_harmless, screen_text
from tests.screens.piloting import running, toasts, until, write_notes

NOTES = ["Deploy from main", *HOSTILE[:6]]


async def choosing(app: MemtuiApp, pilot: Pilot[Any]) -> ChooseMoment:
    """Open the dialog and wait for its calendar and the changes of today."""
    await pilot.press("at")
    await until(pilot, lambda: isinstance(app.screen, ChooseMoment))
    asked = app.screen
    assert isinstance(asked, ChooseMoment)
    await until(pilot, lambda: asked.query_one(Calendar).counts)
    await until(pilot, lambda: asked.query_one(VirtualList).rows.count)
    return asked


async def test_every_screen_says_that_it_is_the_past_until_the_key_leads_back(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    await write_notes(service, caller, NOTES)
    async with running(paths, settings, "records") as (app, pilot):
        asked = await choosing(app, pilot)
        today = asked.query_one(Calendar).day
        assert asked.query_one(Calendar).counts[today] == len(NOTES)
        assert_harmless(screen_text(app))
        await pilot.press("enter", "j", "enter")
        await until(pilot, lambda: app.state.as_of is not None)
        seen = app.state.as_of
        assert seen is not None
        for tab in SCREENS:
            await pilot.press("escape", str(tab.number))
            await until(pilot, lambda: app.frame and app.frame.is_current and app.frame.focused)
            assert app.frame is not None
            assert tab.mode == app.frame.MODE
            await until(pilot, lambda: f"THE PAST, as of {fmt.exact(seen)}" in screen_text(app))
            assert f"{tab.number}◷{tab.title}" in screen_text(app)
            assert app.state.as_of == seen
        await pilot.press("4", "n")
        await until(pilot, lambda: toasts(app))
        assert "where nothing can be changed; @ goes back to now." in toasts(app)[-1]
        await pilot.press("2", "F")
        await until(pilot, lambda: len(toasts(app)) == 2)
        assert toasts(app)[-1] == "The past stands still; nothing comes to follow."
        await pilot.press("at")
        await until(pilot, lambda: app.state.as_of is None)
        await until(pilot, lambda: "THE PAST" not in screen_text(app))
        await pilot.press("4", "n")
        await until(pilot, lambda: "New record" in screen_text(app))


async def test_a_moment_is_written_and_what_is_none_is_said_below_the_line(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    await write_notes(service, caller, ["Deploy from main"])
    async with running(paths, settings, "records", (80, 24)) as (app, pilot):
        asked = await choosing(app, pilot)
        said = asked.query_one(".dialog-error", Static)
        for text, why in (("soon", "'soon' is no time"), ("2999-01-01", "still to come")):
            await pilot.press(*text)
            assert asked.query_one(Input).value == text
            await pilot.press("enter")
            assert why in str(said.content)
            await pilot.press("escape")
        await pilot.press(*"3 weeks ago")
        day = (datetime.now(UTC) - timedelta(weeks=3)).date()
        assert asked.query_one(Calendar).day == day
        await pilot.press("enter")
        await until(pilot, lambda: app.state.as_of is not None)
        assert app.state.as_of is not None
        assert app.state.as_of.date() == day
        assert "◷ THE PAST, as of" in screen_text(app)


async def test_the_calendar_moves_between_days_and_goes_no_further_than_today(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    await write_notes(service, caller, ["Deploy from main"])
    async with running(paths, settings, "records") as (app, pilot):
        asked = await choosing(app, pilot)
        shown = asked.query_one(Calendar)
        today = shown.day
        await pilot.press("right", "down", "pagedown")
        assert shown.day == today
        shown.counts = {today: 3, today - timedelta(days=40): 1}
        await pilot.press("left_square_bracket")
        assert shown.day == today - timedelta(days=40)
        await until(pilot, lambda: "0 changes" in screen_text(app))
        await pilot.press("left_square_bracket", "end")
        assert shown.day == today
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.frame)
        assert app.state.as_of is None
