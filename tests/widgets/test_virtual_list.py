"""The list draws what it holds, asks for the rest, and keeps cursor and marks on their rows."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult

from memtui.widgets.columns import Cell, Column
from memtui.widgets.rows import AppendedRows, WindowRows
from memtui.widgets.virtual_list import (
    MARK,
    MarkAsked,
    Opened,
    PagesWanted,
    SortAsked,
    VirtualList,
)
from tests.screens.hostile import HOSTILE, assert_harmless

COLUMNS: list[Column[int]] = [
    Column("n", "n", lambda row: Cell(f"{row:,}"), 9, "right", keep=2),
    Column("text", "text", lambda row: Cell(f"row {row}", "muted"), 20, flexible=True, keep=3),
]


class Log(App[None]):
    """A list over numbers that fetches at once and counts what it fetched."""

    CSS = "VirtualList > .virtual-list--cursor { background: $primary; }"

    def __init__(self, count: int) -> None:
        super().__init__()
        self.rows: WindowRows[int] = WindowRows(str, newest_first=True)
        self.rows.reset(count)
        self.fetched = 0
        self.heard: list[object] = []

    def compose(self) -> ComposeResult:
        yield VirtualList(COLUMNS, self.rows, name="log")

    @property
    def log_list(self) -> VirtualList[int]:
        return self.query_one(VirtualList)

    def on_pages_wanted(self, event: PagesWanted) -> None:
        for page in event.pages:
            first, end = self.rows.page_bounds(page)
            self.fetched += end - first
            self.rows.put(page, list(range(first, end)))
        self.log_list.rows_changed()

    def on_sort_asked(self, event: SortAsked) -> None:
        self.heard.append(event.column)

    def on_mark_asked(self, event: MarkAsked) -> None:
        self.heard.append(f"mark {event.rows_list.current}")

    def on_opened(self, event: Opened) -> None:
        self.heard.append(event.rows_list.current)

    def text(self) -> list[str]:
        log = self.log_list
        return [log.render_line(y).text for y in range(log.size.height)]


async def test_a_million_rows_open_by_fetching_what_is_seen() -> None:
    app = Log(1_000_000)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app.log_list.focus()
        assert "row 999999" in app.text()[1]
        assert app.fetched <= 512
        await pilot.press("G")
        await pilot.pause()
        assert app.log_list.current == 0
        assert app.fetched <= 1024
        await pilot.press("pageup", "ctrl+u", "k", "g")
        await pilot.pause()
        assert app.log_list.current == 999_999


async def test_drawing_fetches_nothing_and_shows_a_placeholder() -> None:
    app = Log(1_000)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app.rows.reset(1_000)
        before = app.fetched
        assert "1 …" in app.text()[1]
        assert app.fetched == before


@pytest.mark.parametrize("width", [20, 80, 120, 200])
async def test_every_line_is_as_wide_as_the_list_and_painted_to_its_end(width: int) -> None:
    app = Log(5)
    async with app.run_test(size=(width, 10)) as pilot:
        await pilot.pause()
        for y in range(10):
            strip = app.log_list.render_line(y)
            assert strip.cell_length == app.log_list.scrollable_content_region.width
            assert all(segment.style and segment.style.bgcolor for segment in strip)


async def test_hostile_rows_stay_in_their_columns_and_are_never_raw() -> None:
    rows: AppendedRows[str] = AppendedRows(str)
    rows.replace(HOSTILE)
    columns: list[Column[str]] = [
        Column("a", "a", Cell, 12),
        Column("b", "b", lambda _: Cell("|"), 1),
        Column("c", "c", Cell, 12, flexible=True),
    ]

    class Shown(App[None]):
        def compose(self) -> ComposeResult:
            yield VirtualList(columns, rows, name="log")

    app = Shown()
    async with app.run_test(size=(60, 24)) as pilot:
        await pilot.pause()
        shown = app.query_one(VirtualList)
        bar = shown.render_line(0).text.index("b")
        for y in range(1, len(HOSTILE) + 1):
            strip = shown.render_line(y)
            assert_harmless(strip.text)
            assert strip.cell_length == 60
            assert strip.crop(bar, bar + 1).text == "|"


async def test_new_rows_follow_at_the_top_and_move_nothing_elsewhere() -> None:
    app = Log(500)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        log = app.log_list
        log.focus()
        app.rows.extend([500, 501], 502)
        log.rows_changed(added_above=2, follow=True)
        assert log.current == 501
        await pilot.press(*"jjjj")
        before = app.text()[1:]
        assert log.current == 497
        app.rows.extend([502], 503)
        log.rows_changed(added_above=1, follow=True)
        assert log.current == 497
        assert app.text()[1:] == before
        await pilot.press("home")
        assert log.current == 502


async def test_a_cursor_that_nobody_moved_stays_on_the_first_row() -> None:
    rows: AppendedRows[int] = AppendedRows(str)
    rows.replace([3, 2, 1])

    class Shown(App[None]):
        def compose(self) -> ComposeResult:
            yield VirtualList(COLUMNS, rows, name="log")

    app = Shown()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        shown = app.query_one(VirtualList)
        rows.replace([5, 4, 3, 2, 1])
        shown.rows_changed()
        assert (shown.current, shown.gone_to) == (5, None)
        shown.move(1)
        rows.replace([6, 5, 4, 3])
        shown.rows_changed()
        assert (shown.current, shown.gone_to) == (4, "4")
        shown.begin_anew()
        rows.replace([9, 4])
        shown.rows_changed()
        assert (shown.current, shown.gone_to) == (9, None)


async def test_marks_are_always_seen_and_other_rows_need_other_widths() -> None:
    columns: list[Column[str]] = [
        Column(MARK, "", lambda _: "[ ]", 3, keep=1),
        Column("size", "size", lambda row: str(10 ** len(row)), 7, keep=5),
        Column("text", "text", str, 20, keep=9),
    ]
    rows: AppendedRows[str] = AppendedRows(str)
    few = list(map(str, range(10, 50)))
    rows.replace(few)

    class Shown(App[None]):
        def compose(self) -> ComposeResult:
            yield VirtualList(columns, rows, name="log")

    app = Shown()
    async with app.run_test(size=(22, 10)) as pilot:
        await pilot.pause()
        shown = app.query_one(VirtualList)
        assert shown.shown_columns == [MARK, "size", "text"]
        rows.replace(["bcdefg", *few])
        shown.rows_changed()
        assert shown.shown_columns == [MARK, "text"], "the size is too wide by now"
        shown.go_to(11)
        assert shown.shown_columns == [MARK, "text"], "rows that were seen are still in view"
        shown.action_bottom()
        assert shown.shown_columns == [MARK, "size", "text"]
        shown.action_top()
        assert shown.shown_columns == [MARK, "text"]
        shown.begin_anew()
        rows.replace(few)
        shown.rows_changed()
        assert shown.shown_columns == [MARK, "size", "text"]


async def test_marks_ranges_and_choice() -> None:
    app = Log(50)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        log = app.log_list
        assert log.chosen == [49]
        log.action_mark()
        log.action_range()
        log.action_down()
        assert log.chosen == [49, 48, 47]
        assert "●" in app.text()[1]
        assert "○" in app.text()[3]
        app.rows.extend([50], 51)
        log.rows_changed(added_above=1)
        assert log.chosen == [49, 48, 47]
        log.action_unmark()
        assert log.chosen == [49]
        log.action_unmark()
        assert log.chosen == [47]
        log.action_mark_all()
        assert len(log.chosen) == 51


async def test_the_mouse_sorts_selects_and_opens() -> None:
    app = Log(50)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        await pilot.click("#log", offset=(20, 0))
        await pilot.click("#log", offset=(10, 3))
        assert app.log_list.current == 47
        await pilot.click("#log", offset=(10, 3), times=2)
        await pilot.pause()
        assert app.heard == ["text", 47]
        await pilot.click("#log", offset=(1, 4))
        await pilot.click("#log", offset=(1, 4))
        await pilot.pause()
        assert app.heard == ["text", 47, "mark 46", "mark 46"]


async def test_an_empty_list_says_what_to_do_next() -> None:
    app = Log(0)
    async with app.run_test(size=(60, 12)) as pilot:
        app.log_list.notice = ("Nothing here \x1b[2J.", "Press n.")
        await pilot.pause()
        shown = "\n".join(app.text())
        assert "Nothing here ␛[2J." in shown
        assert "Press n." in shown
        await pilot.press("j", "enter", "G")


async def test_columns_are_as_wide_as_what_comes_into_view_and_the_order_keeps_its_row() -> None:
    words = ["a"] * 50 + ["long enough"]
    rows: AppendedRows[int] = AppendedRows(str)
    rows.replace(list(range(51)))
    columns: list[Column[int]] = [
        Column("number", "n", str, 9, "right", keep=2, order=int),
        Column("word", "word", lambda row: words[row], 16, keep=1),
        Column("end", "end", lambda _: Cell("|"), 30, flexible=True, keep=3),
    ]

    class Shown(App[None]):
        def compose(self) -> ComposeResult:
            yield VirtualList(columns, rows, name="log")

    app = Shown()
    async with app.run_test(size=(60, 10)) as pilot:
        await pilot.pause()
        shown = app.query_one(VirtualList)
        bar = shown.render_line(1).text.index("|")
        shown.focus()
        await pilot.press("G")
        await pilot.pause()
        assert shown.render_line(1).text.index("|") == bar + len("long enough") - len("word ")
        words[50] += " by now"
        shown.redraw()
        assert "long enough by now" in shown.render_line(shown.size.height - 1).text
        shown.hidden = frozenset({"word"})
        await pilot.pause()
        assert shown.shown_columns == ["number", "end"]
        shown.sort = ("number", True)
        rows.replace(shown.ordered(range(51)))
        shown.rows_changed()
        await pilot.pause()
        assert shown.current == 50
        assert shown.scroll_offset.y == 0


async def test_columns_are_the_same_whatever_rows_are_in_view_but_for_what_is_fixed() -> None:
    app = Log(1)
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.pause()
        shown = app.log_list
        text: Column[int] = Column("text", "text", lambda _: "long " * 20, 20, keep=10, share=0.6)
        place: Column[int] = Column("place", "place", str, 9, keep=20)
        shown.columns = (place, text)
        for rows in ([1], [1, 1], [1, 2, 3]):
            numbers: AppendedRows[int] = AppendedRows(str)
            numbers.append(rows, more=False)
            shown.show(numbers)
            assert shown.shown_columns == ["place", "text"]
        shown.fixed = frozenset({"place"})
        assert shown.shown_columns == ["text"]
        shown.wanted = frozenset({"place"})
        assert shown.shown_columns == ["place", "text"]


async def test_decimal_points_stand_below_each_other() -> None:
    app = Log(1)
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.pause()
        shown = app.log_list
        costs = ["$0.00", "$12.5", "–", "$0.0031+", "unpriced"]
        shown.columns = (Column("cost", "$", lambda row: costs[row], 12, "point"),)
        numbers: AppendedRows[int] = AppendedRows(str)
        numbers.append(range(5), more=False)
        shown.show(numbers)
        drawn = [shown.render_line(y).text for y in range(1, 6)]
        assert len({text.index(".") for text in drawn if "." in text}) == 1
        assert "unpriced" in drawn[-1]
