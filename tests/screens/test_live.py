"""What others do is in an open app at once, and nothing that a person holds is lost by it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import memtui.service
from memtui.app import MemtuiApp
from memtui.config import Paths, Settings
from memtui.contract import (
    CorrectRequest,
    ForgetRequest,
    QueryRequest,
    Record,
    Scope,
    Unavailable,
)
from memtui.screens.dialogs import EditText, WriteRecord
from memtui.screens.state import GoTo
from memtui.service import Caller, MemoryService, open_service
from memtui.widgets.virtual_list import VirtualList
from tests.screens.held import Gate, Held
from tests.screens.hostile import assert_harmless, screen_text
from tests.screens.piloting import running, toasts, until, write_notes

AGENT = Caller(
    company_id="local", principal="agent:[b]x[/b]", acts_for="user:ana", channel="mcp", run_id="r"
)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memtui.screens.following.LOOK_SECONDS", 0.05)


def listed(app: MemtuiApp) -> VirtualList[Record]:
    assert app.frame is not None
    found: VirtualList[Record] = app.frame.query_one(VirtualList)
    return found


def current_text(app: MemtuiApp) -> str:
    current = listed(app).current
    return "" if current is None or not isinstance(current, Record) else current.text


def texts(app: MemtuiApp) -> list[str]:
    return [row.text for _, row in listed(app).rows.held()]


def saved(app: MemtuiApp) -> list[str]:
    return [said for said in toasts(app) if said.startswith("Remembered: ")]


async def test_records_come_and_go_and_cursor_and_marks_stay(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["one", "two", "three"])
    async with running(paths, settings, "records") as (app, pilot):
        await until(pilot, lambda: len(texts(app)) == 3)
        await pilot.press("down", "space")
        current = listed(app).current
        assert current is not None
        marks = set(listed(app).selection.marks)
        [new] = await write_notes(service, AGENT, ["by [red]an agent\x1b[31m"])
        await until(pilot, lambda: len(texts(app)) == 4)
        assert listed(app).current == current
        assert set(listed(app).selection.marks) == marks
        assert saved(app) == ["Remembered: by [red]an agent␛[31m"]
        assert_harmless(screen_text(app))

        await service.forget(AGENT, ForgetRequest(scope=new.scope, handles=(new.handle,)))
        await until(pilot, lambda: len(texts(app)) == 3)
        assert listed(app).current == current

        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, WriteRecord))
        await pilot.press(*"mine", "ctrl+s")
        await until(pilot, lambda: "mine" in texts(app))
        await write_notes(service, AGENT, ["while another screen is shown"])
        await pilot.press("2")
        await until(pilot, lambda: "while another screen" in screen_text(app))
        await pilot.press("4")
        await until(pilot, lambda: "while another screen is shown" in texts(app))
        assert not any("mine" in said for said in saved(app))


async def test_an_answer_says_that_its_results_are_not_as_they_were(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    other = "deploys by hand, never at night, whoever asks for it and whatever the reason may be"
    [record, _] = await write_notes(service, caller, ["deploys on Mondays", other])
    async with running(paths, settings, "query") as (app, pilot):
        await pilot.press(*"deploys", "enter")
        await until(pilot, lambda: "2 results for" in screen_text(app))
        change = CorrectRequest(
            scope=record.scope,
            handle=record.handle,
            revision=record.revision,
            text="deploys on Fridays",
        )
        await service.correct(AGENT, change)
        await until(pilot, lambda: "1 changed; r asks again" in screen_text(app))
        await until(pilot, lambda: "≠ changed" in screen_text(app))
        await pilot.press("r")
        await until(pilot, lambda: "deploys on Fridays" in screen_text(app))
        assert not any(words in screen_text(app) for words in ("changed;", "≠ changed"))
        await service.query(AGENT, QueryRequest(scope=record.scope, query="Fridays"))
        await pilot.press("R")
        await until(pilot, lambda: "edited" in screen_text(app))
        await until(pilot, lambda: "rank 1   [b]x[/b]  “Fri" in screen_text(app))
        await pilot.press("3")
        await until(pilot, lambda: "2 results for" in screen_text(app))
        assert "because you chose it" not in screen_text(app)

        await pilot.press("4")
        await until(pilot, lambda: "deploys on Fridays" in str(listed(app).current))
        await pilot.press("down" if listed(app).cursor == 0 else "up")
        await until(pilot, lambda: "deploys by hand" in str(listed(app).current))
        await pilot.press("3")
        await until(pilot, lambda: "2 results for" in screen_text(app))
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, EditText))
        assert "Edit deploys on Fridays" in screen_text(app)


async def test_the_cursor_of_who_went_to_a_record_is_theirs_once_it_is_there(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["deploys by hand", "deploys on Mondays"])
    async with running(paths, settings, "query") as (app, pilot):
        await pilot.press(*"mondays", "enter")
        await until(pilot, lambda: "1 result for" in screen_text(app))
        await pilot.press("R")
        await until(pilot, lambda: current_text(app) == "deploys on Mondays")
        await pilot.press("down")
        assert current_text(app) == "deploys by hand"
        await pilot.pause()
        assert current_text(app) == "deploys by hand"


async def test_a_record_that_is_gone_to_in_another_scope_is_the_one_that_keys_work_on(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["deploys by ship"], project="harbour")
    [asked_for, other] = await write_notes(service, caller, ["deploys by hand", "on Mondays"])
    async with running(paths, settings, "records") as (app, pilot):
        await until(pilot, lambda: len(texts(app)) == 3)
        listed(app).go_to_key(other.handle.provider_record_id)
        app.screen.post_message(GoTo("query", scope=other.scope, select="hand"))
        await until(pilot, lambda: "1 result for" in screen_text(app))
        await pilot.press("R")
        await until(pilot, lambda: len(texts(app)) == 2)
        assert current_text(app) == "deploys by hand"

        whole = Scope(company_id="local")
        app.screen.post_message(GoTo("records", scope=whole))
        await until(pilot, lambda: len(texts(app)) == 3)
        listed(app).go_to_key(other.handle.provider_record_id)
        app.screen.post_message(GoTo("query", scope=other.scope))
        await until(pilot, lambda: app.state.scope == other.scope)
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, EditText))
        assert "Edit deploys by hand" in screen_text(app)
        await pilot.press("escape")

        app.screen.post_message(GoTo("records", scope=whole))
        await until(pilot, lambda: len(texts(app)) == 3)
        listed(app).go_to_key(other.handle.provider_record_id)
        app.screen.post_message(GoTo("query", scope=other.scope))
        await until(pilot, lambda: app.state.scope == other.scope)
        where = {"scope": other.scope, "handles": (asked_for.handle,)}
        await service.forget(caller, ForgetRequest(**where))
        await pilot.press("e")
        await until(pilot, lambda: any("There is no record" in one for one in toasts(app)))
        assert texts(app) == ["on Mondays"]
        await pilot.press("down")
        await pilot.pause()
        assert not isinstance(app.screen, EditText)


async def test_nobody_is_led_back_to_a_record_that_was_written_and_forgotten(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["deploys by hand"])
    async with running(paths, settings, "records") as (app, pilot):
        await until(pilot, lambda: len(texts(app)) == 1)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, WriteRecord))
        await pilot.press(*"mine", "ctrl+s")
        await until(pilot, lambda: current_text(app) == "mine")
        await until(pilot, lambda: not app.frame.reading)  # type: ignore[union-attr]
        await pilot.press("d", "y")
        await until(pilot, lambda: texts(app) == ["deploys by hand"])
        await pilot.press("r")
        await until(pilot, lambda: not app.frame.reading)  # type: ignore[union-attr]
        await pilot.pause()
        assert not any("There is no record" in one for one in toasts(app))


async def test_keys_find_no_row_of_the_scope_before_while_a_record_is_gone_to(
    paths: Paths,
    settings: Settings,
    service: MemoryService,
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await write_notes(service, caller, ["deploys by ship"], project="harbour")
    [first, second] = await write_notes(service, caller, ["deploys by hand", "on Mondays"])
    gate = Gate()

    async def open_held(*arguments: Any, **named: Any) -> Any:
        return Held(await open_service(*arguments, **named), gate)

    monkeypatch.setattr(memtui.service, "open_service", open_held)
    async with running(paths, settings, "records") as (app, pilot):
        await until(pilot, lambda: len(texts(app)) == 3)
        await pilot.press("3")
        app.screen.post_message(GoTo(scope=first.scope))
        await until(pilot, lambda: app.state.scope == first.scope)
        gate.close()
        app.screen.post_message(GoTo("records", select=first.handle.provider_record_id))
        await until(pilot, lambda: app.frame.MODE == "records")  # type: ignore[union-attr]
        await until(pilot, lambda: listed(app).current is None)
        await pilot.press("d")
        assert "This is still being read" in toasts(app)[-1]
        gate.open()
        await until(pilot, lambda: current_text(app) == "deploys by hand")

        # One that is listed already is gone to at once, and a key leads away from it.
        gate.close()
        app.screen.post_message(GoTo("records", select=second.handle.provider_record_id))
        await until(pilot, lambda: current_text(app) == "on Mondays")
        await pilot.press("down" if listed(app).cursor == 0 else "up")
        gate.open()
        await until(pilot, lambda: not app.frame.reading)  # type: ignore[union-attr]
        assert current_text(app) == "deploys by hand"


async def test_what_was_saved_long_ago_and_is_logged_now_is_no_notice(
    paths: Paths, settings: Settings, service: MemoryService
) -> None:
    long_ago = datetime(2026, 1, 1, tzinfo=UTC)
    importing = await open_service(paths, settings, clock=lambda: long_ago)
    async with running(paths, settings, "records") as (app, pilot):
        await write_notes(importing, AGENT, ["of another log"])
        await until(pilot, lambda: texts(app) == ["of another log"])
        await write_notes(service, AGENT, ["just now"])
        await until(pilot, lambda: saved(app) == ["Remembered: just now"])
    await importing.close()


async def test_the_notice_can_be_turned_off(
    paths: Paths, settings: Settings, service: MemoryService
) -> None:
    quiet = settings.model_copy(update={"notify_saves": False})
    async with running(paths, quiet, "records") as (app, pilot):
        await write_notes(service, AGENT, ["by an agent"])
        await until(pilot, lambda: texts(app) == ["by an agent"])
        assert saved(app) == []


async def test_a_log_that_cannot_be_followed_is_said_until_it_can(
    paths: Paths, settings: Settings, service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()

    async def open_held(*arguments: Any, **named: Any) -> Any:
        return Held(await open_service(*arguments, **named), gate)

    monkeypatch.setattr(memtui.service, "open_service", open_held)
    async with running(paths, settings, "records") as (app, pilot):
        gate.error = Unavailable("The database is locked.")
        await until(pilot, lambda: "not live" in screen_text(app))
        assert "Changes of others are not shown now: The database is locked." in toasts(app)
        gate.error = None
        await write_notes(service, AGENT, ["meanwhile"])
        await until(pilot, lambda: texts(app) == ["meanwhile"])
        assert "not live" not in screen_text(app)
