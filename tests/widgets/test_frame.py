from __future__ import annotations

from datetime import UTC, datetime

import pytest
from textual.app import App, ComposeResult
from textual.events import AppBlur
from textual.widgets import Input

from memtui.app import WholeCells
from memtui.contract import Filter
from memtui.filters import parse_filter
from memtui.widgets.charts import sparkline
from memtui.widgets.filter_line import PAUSE_SECONDS, FilterLine
from memtui.widgets.frame import (
    FooterEntry,
    KeyFooter,
    Pressed,
    ScopeBar,
    ScopeView,
    ScreenTabs,
    entry_content,
    fitting,
)


@pytest.mark.parametrize("position", range(24))
def test_a_scrollbar_is_drawn_in_whole_cells(position: int) -> None:
    bar = WholeCells.render_bar(size=10, virtual_size=33, window_size=10, position=position)
    thumb = [segment.style is not None and bool(segment.style.reverse) for segment in bar.segments]
    assert len(thumb) == 10
    assert sum(thumb) in {3, 4}
    assert {segment.text for segment in bar.segments} == {" "}


class OneLine(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.applied: list[str] = []
        self.typed: list[str] = []
        self.left = 0

    def compose(self) -> ComposeResult:
        yield FilterLine()
        yield Input(id="other")

    def on_filter_line_applied(self, message: FilterLine.Applied) -> None:
        self.applied.append(message.line)

    def on_filter_line_typed(self, message: FilterLine.Typed) -> None:
        self.typed.append(message.line)

    def on_filter_line_left(self) -> None:
        self.left += 1
        self.query_one("#other").focus()


async def test_a_filter_is_applied_or_its_error_shown() -> None:
    app = OneLine()
    async with app.run_test() as pilot:
        line = app.query_one(FilterLine)
        line.enter()
        await pilot.pause()
        await pilot.press(*"agnt:x", "enter")
        assert app.applied == []
        assert line.error == "There is no filter field agnt; did you mean agent:?"
        assert "did you mean" in str(line.render())
        await pilot.press(*(["backspace"] * 6), *"agent:x", "enter")
        assert app.applied == ["agent:x"]
        assert line.error == ""


@pytest.mark.parametrize(
    ("typed", "applied", "shown"),
    [
        (" type:write", ["agent:x type:write"], "agent:x type:write"),
        ("", [], "agent:x"),
        (" agnt:x", [], "agent:x"),
    ],
)
async def test_escape_applies_what_parses_and_leaves(
    typed: str, applied: list[str], shown: str
) -> None:
    app = OneLine()
    async with app.run_test() as pilot:
        line = app.query_one(FilterLine)
        line.show_line("agent:x", Filter(agent_id="x"))
        line.enter()
        await pilot.pause()
        await pilot.press("end", *(key.replace(" ", "space") for key in typed), "escape")
        assert (app.applied, app.left) == (applied, 1)
        assert app.query_one("#filter-input", Input).value == shown


@pytest.mark.parametrize("left", ["click", "terminal"])
async def test_a_click_elsewhere_applies_the_line_and_another_window_does_not(left: str) -> None:
    app = OneLine()
    async with app.run_test() as pilot:
        app.query_one(FilterLine).enter()
        await pilot.pause()
        await pilot.press(*"agent:x")
        if left == "click":
            await pilot.click("#other")
        else:
            app.post_message(AppBlur())
        await pilot.pause()
        assert app.applied == (["agent:x"] if left == "click" else [])


@pytest.mark.parametrize("ending", ["clear", "delete"])
async def test_a_tried_filter_ends_though_the_frame_was_drawn_again_meanwhile(ending: str) -> None:
    app = OneLine()
    async with app.run_test() as pilot:
        line = app.query_one(FilterLine)
        line.enter()
        await pilot.pause()
        await pilot.press(*"agent:x")
        while not app.typed:
            await pilot.pause(PAUSE_SECONDS)
        line.show_line("", Filter())
        if ending == "clear":
            line.clear()
        else:
            await pilot.press(*(["backspace"] * 7), "escape")
        await pilot.pause()
        assert app.applied[-1:] == [""]


async def test_clearing_is_told_though_the_filter_is_not_in_force_yet() -> None:
    app = OneLine()
    async with app.run_test() as pilot:
        line = app.query_one(FilterLine)
        line.enter()
        await pilot.pause()
        await pilot.press(*"agent:x", "enter")
        line.show_line("", Filter())  # the owner has not taken it yet
        line.clear()
        await pilot.pause()
        assert app.applied == ["agent:x", ""]


async def test_history_goes_back_and_returns_to_what_was_being_written() -> None:
    app = OneLine()
    async with app.run_test() as pilot:
        line = app.query_one(FilterLine)
        line.history = ("run:1", "run:2")
        line.enter()
        await pilot.pause()
        await pilot.press(*"dra")
        field = app.query_one("#filter-input", Input)
        seen = []
        for key in ("up", "up", "up", "down", "down", "down"):
            await pilot.press(key)
            seen.append(field.value)
        assert seen == ["run:2", "run:1", "run:1", "run:2", "dra", "dra"]


async def test_tab_completes_the_term_and_what_fits_nothing_is_said_at_once() -> None:
    app = OneLine()
    async with app.run_test() as pilot:
        line = app.query_one(FilterLine)
        field = app.query_one("#filter-input", Input)
        line.enter()
        await pilot.pause()
        line.known = {"agent": ("coding", "ops")}
        await pilot.press(*"ag")
        assert str(line.words) == "tab agent:"
        await pilot.press("tab")
        assert str(line.words) == "tab agent:coding  ops"
        await pilot.press("o", "tab", *"type:x")
        assert field.value == "agent:ops type:x"
        while not line.error:
            await pilot.pause(PAUSE_SECONDS)
        assert line.error.startswith("The filter value 'x' for type does not fit")
        assert str(line.render()).splitlines()[1].startswith("  ✗ The filter value")
        await pilot.press("backspace", "w", "tab", "tab", "shift+tab", *"q")
        assert field.value == "agent:ops type:write q"
        assert (app.left, field.has_focus) == (0, True)


async def test_the_line_below_says_what_is_understood_while_it_is_written_and_after() -> None:
    app = OneLine()
    async with app.run_test() as pilot:
        line = app.query_one(FilterLine)
        line.enter()
        await pilot.pause()
        await pilot.press(*"-type:query")
        assert str(line.words).startswith("type is not query")
        await pilot.press("space", *"agent:a,b")
        assert str(line.words) == "agent is a or b, type is not query"
        await pilot.press("space", *"-draft")
        await pilot.press("enter")
        app.set_focus(app.query_one("#other"))
        chosen = parse_filter(app.applied[-1], now=datetime.now(UTC))
        line.show_line(app.applied[-1], chosen)
        await pilot.pause()
        assert str(line.words).startswith("agent is a or b, type is not query, without draft")


async def test_a_line_being_written_is_not_overwritten() -> None:
    app = OneLine()
    async with app.run_test() as pilot:
        line = app.query_one(FilterLine)
        line.enter()
        await pilot.pause()
        await pilot.press(*"ab")
        line.show_line("agent:x", Filter(agent_id="x"))
        assert app.query_one("#filter-input", Input).value == "ab"


def entry(name: str, reason: str = "") -> FooterEntry:
    return FooterEntry(f"x.{name}", name[0], name, f"{name}.", reason)


def test_the_last_key_stays_where_columns_are_few() -> None:
    entries = tuple(entry(name) for name in ("edit", "mark", "forget", "help"))
    assert fitting(entries, 80) == entries
    assert [one.label for one in fitting(entries, 18)] == ["edit", "help"]
    assert [one.label for one in fitting(entries, 3)] == ["help"]
    assert fitting((), 80) == ()


def test_a_disabled_key_is_told_by_more_than_its_colour() -> None:
    assert any("strike" in str(span.style) for span in entry_content(entry("edit", "No.")).spans)
    assert not any("strike" in str(span.style) for span in entry_content(entry("edit")).spans)


def test_an_action_without_a_key_has_no_gap_before_its_label() -> None:
    for reason in ("", "No."):
        assert entry_content(FooterEntry("x.sync", "", "sync", "", reason)).plain == "sync"


def test_a_sparkline_goes_from_zero_to_the_largest() -> None:
    assert sparkline([0, 4, 8], 10) == "▁▅█"
    assert sparkline([1, 2, 3, 4], 2) == "▆█"
    assert sparkline([0, 0], 5) == "▁▁"
    assert sparkline([], 5) == ""


class Frame(App[None]):
    CSS = "ScopeBar, KeyFooter { height: 1; }"

    def __init__(self) -> None:
        super().__init__()
        self.pressed: list[str] = []

    def compose(self) -> ComposeResult:
        yield ScopeBar()
        yield KeyFooter()

    def on_pressed(self, message: Pressed) -> None:
        self.pressed.append(message.action_id)


async def test_parts_of_a_line_are_clicked_and_say_what_they_do() -> None:
    app = Frame()
    async with app.run_test(size=(40, 4), tooltips=True) as pilot:
        bar, footer = app.query_one(ScopeBar), app.query_one(KeyFooter)
        bar.view = ScopeView(("acme", "[red]p"), "vault·default", "ok", "ok", waiting=3)
        footer.entries = (
            FooterEntry("records.edit", "e", "edit", "Change the text"),
            FooterEntry("records.forget", "d", "forget", "Forget", reason="This is [read-only]."),
        )
        await pilot.pause()
        assert bar.draw(40).plain == "acme › […  ◔ 3 held  vault·default  ● ok"
        for offset in ((1, 0), (9, 0), (12, 0), (38, 0)):
            await pilot.click(ScopeBar, offset=offset)
        assert app.pressed == ["app.scope", "app.scope", "app.review", "app.binding"]
        for place, tip in ((1, "Change the text"), (9, "This is [read-only]."), (30, "None")):
            await pilot.hover(KeyFooter, offset=(place, 0))
            assert str(footer.tooltip) == tip
            lit = [one.style.underline for one in footer.render_line(0) if one.style]
            assert any(lit) == (tip != "None")
        await pilot.click(KeyFooter, offset=(9, 0))
        await pilot.click(KeyFooter, offset=(30, 0))
        assert app.pressed[4:] == ["records.forget"]


async def test_no_tab_is_cut_however_few_columns_there_are() -> None:
    class Tabs(App[None]):
        def compose(self) -> ComposeResult:
            yield ScreenTabs("analytics")

    app = Tabs()
    async with app.run_test():
        tabs = app.query_one(ScreenTabs)
        drawn = {width: tabs.draw(width).rstrip().plain for width in range(28, 120)}
    assert all(len(row) <= width for width, row in drawn.items())
    assert "1 Bindings    2 Operations" in drawn[80]
    assert drawn[60].endswith("5 Budget  6 Stats")
    assert drawn[30].split() == ["1", "2", "3", "4", "5", "6", "Stats"]
