"""The past in the app: the switch on one key, its calendar, and what says that it is not now."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Input, Static

from memtui.actions import SCREENS
from memtui.app import MemtuiApp
from memtui.config import Paths, Settings
from memtui.contract import CorrectRequest, Scope, SourceKind, SourceRef, WriteMode, WriteRequest
from memtui.presenters import format as fmt
from memtui.screens import past
from memtui.screens.changes import ChangesScreen
from memtui.screens.dialogs import Prompt, Waiting
from memtui.screens.past import ChooseMoment
from memtui.screens.state import GoTo
from memtui.screens.timeline import TimelineScreen
from memtui.service import Caller, MemoryService
from memtui.widgets.calendar import Calendar
from memtui.widgets.virtual_list import VirtualList
from tests.screens.held import Gate
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
        await pilot.press("4", "a")
        await until(pilot, lambda: toasts(app))
        assert toasts(app)[-1] == "The past cannot be changed; @ goes back to now."
        await pilot.press("2", "F")
        await until(pilot, lambda: len(toasts(app)) == 2)
        assert toasts(app)[-1] == "This works only in the present; go back to now first."
        await pilot.press("at")
        await until(pilot, lambda: app.state.as_of is None)
        await until(pilot, lambda: "THE PAST" not in screen_text(app))
        await pilot.press("4", "a")
        await until(pilot, lambda: "New record" in screen_text(app))


async def test_the_calendar_opens_on_the_last_day_on_which_something_changed(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    await write_notes(service, caller, NOTES)
    later = datetime.now(UTC) + timedelta(days=400)
    async with running(paths, settings, "records", clock=lambda: later) as (app, pilot):
        asked = await choosing(app, pilot)
        shown = asked.query_one(Calendar)
        await until(pilot, lambda: shown.day in shown.counts)
        assert str(shown.day.year) in screen_text(app)


async def test_a_moment_is_chosen_in_the_calendar_or_written(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    await write_notes(service, caller, ["Deploy from main"])
    day = (datetime.now(UTC) - timedelta(weeks=3)).date()

    def is_the_past() -> bool:
        return app.state.as_of is not None and app.state.as_of.date() == day

    async with running(paths, settings, "records", (80, 24)) as (app, pilot):
        shown = (await choosing(app, pilot)).query_one(Calendar)
        today = shown.day
        await pilot.press("right", "down", "pagedown")
        assert shown.day == today, "it goes no further than today"
        shown.counts = {today: 3, today - timedelta(days=40): 1}
        await pilot.press("left_square_bracket")
        assert shown.day == today - timedelta(days=40)
        await until(pilot, lambda: "0 changes" in screen_text(app))
        await pilot.press("left_square_bracket", "end")
        assert shown.day == today
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.frame)
        assert app.state.as_of is None

        asked = await choosing(app, pilot)
        said = asked.query_one(".dialog-error", Static)
        for text, why in (("soon", "'soon' is not a time"), ("2999-01-01", "still to come")):
            await pilot.press(*text)
            assert asked.query_one(Input).value == text
            await pilot.press("enter")
            assert why in str(said.content)
            await pilot.press("escape")
        await pilot.press(*"3 weeks ago")
        assert asked.query_one(Calendar).day == day
        await pilot.press("enter")
        await until(pilot, is_the_past)
        assert "◷ THE PAST, as of" in screen_text(app)

        await pilot.press("at")
        await until(pilot, lambda: app.state.as_of is None)
        await choosing(app, pilot)
        for letter in "3 weeks ago":  # all at once
            app.post_message(Key("space" if letter == " " else letter, letter))
        app.post_message(Key("enter", None))
        await until(pilot, is_the_past)


async def test_each_change_of_a_long_day_says_who_made_it(
    service: MemoryService,
    caller: Caller,
    paths: Paths,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(past, "PAGE_ROWS", 3)
    await write_notes(service, caller, [f"note {number}" for number in range(20)])
    with service.runtime.database.write() as connection:
        connection.exec_driver_sql("DROP TRIGGER memory_operations_append_only")
        connection.exec_driver_sql(
            "UPDATE memory_operations SET request = '[' WHERE seq = "
            "(SELECT max(seq) FROM memory_operations WHERE operation_type = 'write')"
        )
        connection.exec_driver_sql(
            "UPDATE memory_operations SET latency_ms = 'long' WHERE seq = "
            "(SELECT min(seq) FROM memory_operations WHERE operation_type = 'write')"
        )
    async with running(paths, settings, "records", (100, 24)) as (app, pilot):
        listing = (await choosing(app, pilot)).query_one(VirtualList)
        await pilot.press("enter", "G")
        seen: list[str] = []
        for line in range(listing.rows.count):
            listing.go_to(line)
            await until(pilot, lambda: listing.current)
            seen += [f"{one.who} {one.what[:12]}" for one in listing.chosen]
        health = app.controller.state.health
        assert health is not None
        assert health.latencies_ms
    of_damaged = " changed; the"
    assert seen == [of_damaged, *["ana write: note "] * 18, of_damaged, " start of the"]


async def test_what_is_taken_is_of_the_day_that_was_chosen_however_fast(
    service: MemoryService,
    caller: Caller,
    paths: Paths,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, as_shown = Gate(), past._as_shown

    async def later(*asked: Any) -> Any:
        await gate.through()
        return await as_shown(*asked)

    monkeypatch.setattr(past, "_as_shown", later)
    await write_notes(service, caller, ["Deploy from main"])
    async with running(paths, settings, "records", (80, 24)) as (app, pilot):
        calendar = (await choosing(app, pilot)).query_one(Calendar)
        day = calendar.day - timedelta(days=1)
        calendar.counts = {day: 1, calendar.day: 1}
        gate.close()
        for key in ("left", "enter", "j", "enter"):
            app.post_message(Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: calendar.day == day and isinstance(app.screen, Waiting))
        gate.open()
        await until(pilot, lambda: app.state.as_of is not None)
        assert app.state.as_of == datetime(day.year, day.month, day.day, tzinfo=UTC)


async def fact(service: MemoryService, caller: Caller, text: str) -> datetime:
    """Write a fact in the place of what its key has; return a moment at which it holds."""
    answer = await service.write(
        caller,
        WriteRequest(
            scope=Scope(company_id="local", project_id="mech", run_id="run-7"),
            source=SourceRef(kind=SourceKind.ISSUE, company_id="local", issue_id="ISS-31"),
            content=text,
            kind="fact",
            mode=WriteMode.UPSERT,
        ),
    )
    [record] = answer.records
    assert record.valid_from is not None
    return record.valid_from


def listed(app: MemtuiApp) -> list[Any]:
    return [row for _, row in app.screen.query_one(VirtualList).rows.held()]


def records(app: MemtuiApp) -> list[str]:
    return [row.text for row in listed(app)]


async def test_the_timeline_of_a_fact_leads_to_each_of_its_versions(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    moments = [await fact(service, caller, f"branch: {one}") for one in ("main", "release")]
    async with running(paths, settings, "records", (200, 60)) as (app, pilot):
        await until(pilot, lambda: records(app) == ["branch: release"])
        await pilot.press("h")
        await until(pilot, lambda: isinstance(app.screen, TimelineScreen) and len(listed(app)) == 2)
        assert [one.entry.valid_from for one in listed(app)] == moments[::-1]
        shown = screen_text(app)
        assert "still holds" in shown
        assert "by ana, run 7" in shown
        assert "ISS-31" in shown
        assert "- branch: main" in shown
        assert "+ branch: release" in shown
        await pilot.press("G", "at")
        await until(pilot, lambda: app.state.as_of == moments[0])
        await until(pilot, lambda: records(app) == ["branch: main"])
        await pilot.press("h")
        await until(pilot, lambda: isinstance(app.screen, TimelineScreen) and len(listed(app)) == 1)
        assert "THE PAST" in screen_text(app)
        await pilot.press("O")
        await until(pilot, lambda: app.frame and app.frame.MODE == "operations")
        await until(pilot, lambda: "“branch: main”" in screen_text(app))


@pytest.mark.parametrize("kind", ["fact", "note"])
async def test_the_timeline_has_what_was_changed_beside_the_text(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings, kind: str
) -> None:
    scope = Scope(company_id="local", project_id="mech")
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
    old, new = "branch: main", "branch: dev"
    write = WriteRequest(scope=scope, source=source, content=old, kind=kind)
    [handle] = (await service.write(caller, write)).handles
    changes: list[dict[str, Any]] = [
        {"pinned": True}, {"text": new, "tags": ("ci",)}, {"tags": ("ci", "release")}
    ]  # fmt: skip
    for change in changes:
        await service.correct(caller, CorrectRequest(scope=scope, handle=handle, **change))
    async with running(paths, settings, "records", (200, 60)) as (app, pilot):
        await until(pilot, lambda: records(app) == [new])
        await pilot.press("h")
        await until(pilot, lambda: isinstance(app.screen, TimelineScreen) and len(listed(app)) == 4)
        assert "2 versions · 2 other changes" in screen_text(app)
        tagged, version, pinned, first = listed(app)
        assert (version.text, first.text) == (new, old)
        assert (tagged.text, pinned.text) == ("tags: ci → ci, release", "pinned: no → yes")
        assert version.fields == (("tags", "none → ci"),)
        assert "by ana" in screen_text(app)
        await pilot.press("j")
        await until(pilot, lambda: f"+ {new}" in screen_text(app))
        assert "none → ci" in screen_text(app)
        await pilot.press("j")
        await until(pilot, lambda: "see everything as it was then" in screen_text(app))
        await pilot.press("at")
        await until(pilot, lambda: app.state.as_of == pinned.began)


async def test_what_changed_between_two_moments_is_a_difference_that_is_kept(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings, tmp_path: Path
) -> None:
    began = await fact(service, caller, "branch: main")
    await fact(service, caller, "editor: vim")
    await fact(service, caller, "branch: release")
    await write_notes(service, caller, [HOSTILE[0]])
    async with running(paths, settings, "bindings") as (app, pilot):
        await pilot.press("W")
        await until(pilot, lambda: isinstance(app.screen, ChangesScreen) and len(listed(app)) == 3)
        assert "+ 3 added" in screen_text(app)
        assert [one.kind for one in listed(app)] == ["added"] * 3
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: isinstance(app.screen, ChooseMoment))
        app.screen.query_one(Input).focus().value = began.isoformat()
        await pilot.press("enter")
        await until(
            pilot,
            lambda: isinstance(app.screen, ChangesScreen) and "~ 1 changed" in screen_text(app),
        )
        assert "+ 2 added" in screen_text(app)
        assert_harmless(screen_text(app))
        changed = next(place for place, one in enumerate(listed(app)) if one.before)
        app.screen.query_one(VirtualList).go_to(changed)
        await until(pilot, lambda: "- branch: main" in screen_text(app))
        await pilot.press("y")
        assert app.clipboard == "- branch: main\n+ branch: release"
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, Prompt))
        app.screen.query_one(Input).value = str(tmp_path / "changes.csv")
        await pilot.press("enter")
        await until(pilot, (tmp_path / "changes.csv").exists)
        await pilot.press("slash")
        await until(pilot, lambda: isinstance(app.screen, Prompt))
        app.screen.query_one(Input).value = "vim"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ChangesScreen) and len(listed(app)) == 1)
        assert "only: vim" in screen_text(app)
    with (tmp_path / "changes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["change"], row["before"], row["after"]) for row in rows if row["before"]] == [
        ("changed", "branch: main", "branch: release")
    ]
    assert len(rows) == 3


async def test_a_question_is_asked_again_at_the_moment_that_is_looked_at(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings
) -> None:
    then, _ = [await fact(service, caller, f"branch: {one}") for one in ("main", "release")]

    async with running(paths, settings, "query") as (app, pilot):
        assert app.frame is not None
        await pilot.press(*"branch", "enter")
        await until(pilot, lambda: "branch: release" in screen_text(app))
        app.frame.post_message(GoTo(as_of=then))
        await until(pilot, lambda: "branch: main" in screen_text(app))
        assert "branch: release" not in screen_text(app)
        await pilot.press("escape", "at")
        await until(pilot, lambda: "branch: release" in screen_text(app))
        assert "branch: main" not in screen_text(app)


@pytest.mark.parametrize("key", ["2", "3", "4", "5", "6"])
async def test_a_screen_that_was_left_for_the_past_shows_now_again(
    service: MemoryService, caller: Caller, paths: Paths, settings: Settings, key: str
) -> None:
    then, _ = [await fact(service, caller, f"branch: {one}") for one in ("main", "release")]

    async with running(paths, settings, "query") as (app, pilot):
        await pilot.press(*"branch", "enter")
        await until(pilot, lambda: "1 result for" in screen_text(app))

        async def shown() -> str:
            """Return what the screen shows below the scope bar, once it has read."""
            await pilot.press(key)
            await until(pilot, lambda: app.frame and app.frame.is_current and not app.frame.reading)
            return screen_text(app).partition("\n")[2]

        before = await shown()
        await pilot.press("1")
        app.screen.post_message(GoTo(as_of=then))
        await until(pilot, lambda: app.state.as_of is not None)
        await pilot.press("at")
        await until(pilot, lambda: app.state.as_of is None)
        assert "Asking" not in (after := await shown())
        assert len(after.split()) > 0.9 * len(before.split())
