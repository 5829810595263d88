"""The operation log on screen, part of it sealed: filter, order, time, follow, views."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from textual.strip import Strip

from memtui.analytics.reading import LogView
from memtui.app import MemtuiApp
from memtui.config import Paths, Settings
from memtui.presenters import format as fmt
from memtui.screens.operations.log import LogFeed
from memtui.screens.palette import commands
from memtui.screens.state import GoTo
from memtui.service import Caller, MemoryService
from memtui.store.database import Database
from memtui.store.operation import Operation
from memtui.widgets.virtual_list import SortAsked, VirtualList
from tests.analytics.logs import NOW, append, draft, hot
from tests.screens.hostile import screen_text
from tests.screens.piloting import running, toasts, until, write_notes
from tests.screens.test_operations import current, listed, loaded

COUNT = 600
SEALED = 350


@pytest.fixture
async def log(paths: Paths, service: MemoryService, caller: Caller) -> tuple[Operation, ...]:
    """A log of which the older part is sealed; newest first."""
    database = Database.open(paths.database)
    begin = hot(database, "local")[-1].seq if hot(database, "local") else 0
    for first, last in ((begin + 1, SEALED), (SEALED + 1, COUNT)):
        append(database, [draft(number, "local") for number in range(first, last + 1)])
        if last == SEALED:
            written = hot(database, "local")
            await service.analysis.seal(caller, everything=True)
    written += hot(database, "local")
    database.close()
    return written[::-1]


def shown(app: MemtuiApp, count: int) -> list[int]:
    rows = listed(app).rows
    return [row.seq for index in range(count) if (row := rows.row(index)) is not None]


async def test_an_old_operation_is_gone_to_among_those_that_a_filter_lets_through(
    paths: Paths, settings: Settings, log: tuple[Operation, ...]
) -> None:
    old = next(one for one in log[-100:] if one.operation_type == "query")
    async with running(paths, settings, "operations") as (app, pilot):
        await loaded(app, pilot)
        go = GoTo("operations", filter_line="type:query", select=old.operation_id)
        app.screen.post_message(go)
        await until(pilot, lambda: listed(app).current == old)
        assert listed(app).rows.count < len(log)


async def press(pilot: Any, text: str) -> None:
    names = {" ": "space", ":": "colon", ">": "greater_than_sign", ".": "full_stop", "-": "minus"}
    await pilot.press(*(names.get(letter, letter) for letter in text))


async def test_an_old_operation_is_gone_to_and_stays_under_the_cursor(
    paths: Paths,
    settings: Settings,
    service: MemoryService,
    caller: Caller,
    log: tuple[Operation, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LogFeed, "poll", lambda feed: None)
    old = log[-100]
    async with running(paths, settings, "query") as (app, pilot):
        app.screen.post_message(GoTo("operations", select=old.operation_id))
        await until(pilot, lambda: app.screen.query(VirtualList) and listed(app).current)
        assert current(app) == old
        await write_notes(service, caller, ["one", "two"])
        await pilot.press("r")
        await until(pilot, lambda: listed(app).rows.count > len(log) and listed(app).current)
        assert current(app) == old


@pytest.mark.slow
async def test_filter_order_time_follow_and_a_saved_view(
    paths: Paths,
    settings: Settings,
    service: MemoryService,
    caller: Caller,
    log: tuple[Operation, ...],
) -> None:
    async with running(paths, settings, "operations") as (app, pilot):
        await loaded(app, pilot)
        whole = listed(app).rows.count
        assert f"{whole:,}  ● live" in screen_text(app)

        # A filter holds while it is typed; enter keeps it.
        dear = [one for one in log if (one.cost_usd or 0) > Decimal("0.5")]
        await pilot.press("slash")
        await press(pilot, "cost>0.5")
        await until(pilot, lambda: f"{len(dear):,} of {whole:,}" in screen_text(app))
        assert shown(app, 20) == [one.seq for one in dear[:20]]
        assert not app.state.filter_line
        await pilot.press("enter")
        await until(pilot, lambda: app.state.filter_line == "cost>0.5")

        # What is marked says what it cost.
        await pilot.press("space")
        cost = fmt.short_money(dear[0].cost_usd, unpriced=dear[0].unpriced)
        await until(pilot, lambda: f"1 marked {cost}" in screen_text(app))
        await pilot.press("escape")

        # Any column orders all of it.
        listed(app).post_message(SortAsked(listed(app), "cost"))
        by_cost = sorted(dear, key=lambda one: (one.cost_usd, one.seq), reverse=True)
        await until(pilot, lambda: shown(app, 5) == [one.seq for one in by_cost[:5]])
        assert "↓$" in screen_text(app)
        await pilot.press("G")
        await until(pilot, lambda: listed(app).current is not None)
        assert current(app).seq == by_cost[-1].seq
        await pilot.press("I")
        await until(pilot, lambda: shown(app, 1) == [by_cost[-1].seq])
        assert "↑$" in screen_text(app)

        # What is shown gets a name.
        listed(app).hidden = listed(app).hidden ^ {"source"}
        await pilot.press("V")
        await press(pilot, "dear")
        await pilot.press("enter")
        await until(pilot, lambda: [view.name for view in app.state.views] == ["dear"])
        assert toasts(app)[-1] == "Kept the view dear."

        # To a time, in the order of time, sealed or not.
        await pilot.press("ctrl+l")
        await until(pilot, lambda: f"{whole:,}" in screen_text(app).split("of")[0])
        for number in (100, 450):
            await pilot.press("J")
            await press(pilot, (NOW + timedelta(seconds=61 * number)).isoformat().split("+")[0])
            await pilot.press("enter")
            await until(pilot, partial(_at, app, number))
        assert 5 < listed(app).cursor - listed(app).scroll_offset.y < 35

        # What comes meanwhile is counted and moves nothing.
        await write_notes(service, caller, ["brand new"])
        await until(pilot, lambda: "+1 new" in screen_text(app))
        assert _at(app, 450)
        await pilot.press("home")
        await until(pilot, lambda: current(app).request.get("content") == "brand new")

    async with running(paths, settings, "records") as (app, pilot):
        assert app.frame is not None
        [view] = [one for one in commands(app.frame) if one.label == "View: dear"]
        view.value()
        await until(pilot, lambda: app.frame is not None and app.frame.MODE == "operations")
        await until(pilot, lambda: shown(app, 1) == [by_cost[-1].seq])
        assert app.state.filter_line == "cost>0.5"
        assert "source" in listed(app).hidden


def _at(app: MemtuiApp, number: int) -> bool:
    row = listed(app).current
    return row is not None and row.started_at == NOW + timedelta(seconds=61 * number)


@pytest.mark.slow
async def test_drawing_does_no_io_and_holds_a_bounded_number_of_rows(
    paths: Paths,
    settings: Settings,
    log: tuple[Operation, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawing: list[int] = []
    touched: list[str] = []
    draw = VirtualList.render_line
    to_thread = asyncio.to_thread

    def drawn(self: VirtualList[Any], y: int) -> Strip:
        drawing.append(threading.get_ident())
        try:
            return draw(self, y)
        finally:
            drawing.pop()

    def heard(event: str, _: object) -> None:
        if drawing and drawing[-1] == threading.get_ident() and _is_io(event):
            touched.append(event)

    def started(work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if drawing:
            touched.append(repr(work))
        return to_thread(work, *arguments, **named)

    monkeypatch.setattr(VirtualList, "render_line", drawn)
    monkeypatch.setattr(asyncio, "to_thread", started)
    sys.addaudithook(heard)
    async with running(paths, settings, "operations") as (app, pilot):
        await loaded(app, pilot)
        for key in ("G", "pageup", "g", "pagedown", "G", "ctrl+u"):
            await pilot.press(key)
            screen_text(app)
        await until(pilot, lambda: listed(app).current is not None)
        held = len(listed(app).rows.held())
        assert held <= 24 * 256
    assert touched == []
    drawing.append(threading.get_ident())
    with paths.database.open("rb"):
        drawing.pop()
    assert touched == ["open"]


def _is_io(event: str) -> bool:
    return event == "open" or event.startswith(("sqlite3", "socket", "subprocess"))


async def test_marks_a_typed_filter_and_a_time_that_is_none(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["one", "two", "three"])
    async with running(paths, settings, "operations") as (app, pilot):
        await loaded(app, pilot)
        await pilot.press("space", "space")
        await until(pilot, lambda: "2 marked" in screen_text(app))
        await pilot.press("y")
        await until(pilot, lambda: "Copy of 2 operations" in screen_text(app))
        await press(pilot, "ids")
        await pilot.press("enter")
        await until(pilot, lambda: "2 operations" in " ".join(toasts(app)))
        await pilot.press("escape")
        await until(pilot, lambda: "marked" not in screen_text(app))

        await pilot.press("slash")
        await press(pilot, "type:forget")
        await until(pilot, lambda: "No operation matches." in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: app.state.filter_line == "type:forget")
        await pilot.press("slash", "ctrl+u")
        await press(pilot, "type:write")
        await until(pilot, lambda: listed(app).rows.count == 3)
        listed(app).focus()
        await until(pilot, lambda: app.state.filter_line == "type:write")

        # A line that does not parse is not applied, nor is what it began with.
        await pilot.press("slash", "ctrl+u")
        await press(pilot, "type:forget")
        await until(pilot, lambda: listed(app).rows.count == 0)
        await press(pilot, " since:so")
        listed(app).focus()
        await until(pilot, lambda: listed(app).rows.count == 3)
        assert app.state.filter_line == "type:write"

        await pilot.press("J")
        await press(pilot, "soon")
        await pilot.press("enter")
        await until(pilot, lambda: "'soon' is not a time" in screen_text(app))


async def test_views_are_renamed_replaced_and_deleted(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["one"])

    def views() -> list[tuple[str, str]]:
        return [(view.name, view.filter_line) for view in app.state.views]

    async with running(paths, settings, "operations") as (app, pilot):
        await loaded(app, pilot)
        await pilot.press("V", "a", "enter")
        await until(pilot, lambda: views() == [("a", "")])
        app.controller.choose(filter_line="type:write")
        await until(pilot, lambda: app.state.filter_line)
        await pilot.press("V", "a", "up", "enter")
        await until(pilot, lambda: "Replace the view a?" in screen_text(app))
        await pilot.press("y")
        await until(pilot, lambda: views() == [("a", "type:write")])
        await pilot.press("V", "down", "enter")
        await until(pilot, lambda: "Another name for the view a" in screen_text(app))
        await pilot.press("b", "enter")
        await until(pilot, lambda: views() == [("b", "type:write")])
        await pilot.press("V", "down", "down", "enter")
        await until(pilot, lambda: "Delete the view b?" in screen_text(app))
        await pilot.press("y")
        await until(pilot, lambda: not views())


async def test_a_search_is_stopped_and_goes_on(
    paths: Paths,
    settings: Settings,
    service: MemoryService,
    caller: Caller,
    log: tuple[Operation, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_go_on = threading.Event()
    show = LogView._show

    def show_and_wait(view: LogView, searched_from: int) -> None:
        show(view, searched_from)
        if view._early is not None:
            may_go_on.wait()

    dear = [one.seq for one in log if (one.cost_usd or 0) > Decimal("0.5")]
    newest = [seq for seq in dear if seq > SEALED]
    async with running(paths, settings, "operations") as (app, pilot):
        await loaded(app, pilot)
        monkeypatch.setattr(LogView, "_show", show_and_wait)
        try:
            await pilot.press("slash")
            await press(pilot, "cost>0.5")
            await pilot.press("enter")
            words = f"{len(newest):,} so far  {1 - SEALED / log[0].seq:.0%} searched  "
            await until(pilot, lambda: f"{words}ctrl+c stops" in screen_text(app))
            assert shown(app, 20) == newest[:20]
            await pilot.press("ctrl+c")
        finally:
            may_go_on.set()
        await until(pilot, lambda: f"{words}r searches on" in screen_text(app))
        assert shown(app, 20) == newest[:20]
        assert listed(app).rows.count == len(newest)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: toasts(app)[-1] == "Nothing is being searched.")

        await write_notes(service, caller, ["one"])
        await pilot.press("r")
        await until(pilot, lambda: f"{len(dear):,} of" in screen_text(app))
        assert shown(app, 20) == dear[:20]
        await pilot.press("G")
        await until(pilot, lambda: listed(app).current is not None)
        assert current(app).seq == dear[-1]
