"""The calendar: which months it shows, how days are marked, and where a click and the keys lead."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta

import pytest
from textual.app import App, ComposeResult
from textual.events import Key

from memtui.widgets.calendar import Calendar
from tests.screens.hostile import screen_text

TODAY = date(2026, 3, 9)
COUNTS = {date(2026, 1, 31): 1, date(2026, 2, 2): 4, date(2026, 2, 28): 90, date(2026, 3, 9): 30}
SHOWN = """\
January 2026             1     February 2026           94
Mo  Tu  We  Th  Fr  Sa  Su     Mo  Tu  We  Th  Fr  Sa  Su
             1   2   3   4                              1
 5   6   7   8   9  10  11      2▁  3   4   5   6   7   8
12  13  14  15  16  17  18      9  10  11  12  13  14  15
19  20  21  22  23  24  25     16  17  18  19  20  21  22
26  27  28  29  30  31▁        23  24  25  26  27  28▇

March 2026              30
Mo  Tu  We  Th  Fr  Sa  Su
                         1
 2   3   4   5   6   7   8
 9▅ 10  11  12  13  14  15
16  17  18  19  20  21  22
23  24  25  26  27  28  29
30  31"""


class _Host(App[None]):
    def __init__(self, counts: Mapping[date, int]) -> None:
        super().__init__()
        self.shown = Calendar(TODAY, TODAY)
        self.shown.counts = counts
        self.chosen: list[date] = []

    def compose(self) -> ComposeResult:
        yield self.shown

    async def on_key(self, event: Key) -> None:
        await self.shown.take_key(event.key)

    def on_calendar_chosen(self) -> None:
        self.chosen.append(self.shown.day)


async def test_months_stand_beside_and_below_each_other_with_their_marks() -> None:
    app = _Host(COUNTS)
    async with app.run_test(size=(60, 26)) as pilot:
        await pilot.pause()
        lines = [line.rstrip() for line in screen_text(app).splitlines()]
        blank = SHOWN.split("\n\n")
        assert "\n".join(lines).strip() == f"{blank[0]}\n\n\n{blank[1]}"


@pytest.mark.parametrize(
    ("keys", "day"),
    [
        ("left", TODAY - timedelta(days=1)),
        ("right", TODAY),
        ("up", TODAY - timedelta(weeks=1)),
        ("left_square_bracket", date(2026, 2, 28)),
        ("left_square_bracket left_square_bracket right_square_bracket", date(2026, 2, 28)),
        ("pageup", date(2026, 2, 9)),
        ("home", date(2026, 1, 31)),
        ("home pagedown", date(2026, 2, 28)),
        ("home up up up up up up", date(2026, 1, 1)),
        ("home end", TODAY),
    ],
)
async def test_the_cursor_stays_between_the_first_month_and_today(keys: str, day: date) -> None:
    app = _Host(COUNTS)
    async with app.run_test(size=(60, 26)) as pilot:
        await pilot.press(*keys.split(), "enter")
        assert app.chosen == [day]


async def test_a_click_goes_to_the_day_under_it_and_a_second_one_chooses_it() -> None:
    app = _Host(COUNTS)
    async with app.run_test(size=(60, 26)) as pilot:
        await pilot.click(offset=(31 + 1, 3), times=2)
        assert app.chosen == [date(2026, 2, 2)]
        for beyond in ((29, 3), (1, 1), (31, 12), (5, 13), (0, 25)):
            await pilot.click(offset=beyond)
            assert app.shown.day == date(2026, 2, 2)


async def test_where_lines_are_few_the_week_of_the_cursor_is_in_view_and_clicks_fit_it() -> None:
    app = _Host({**COUNTS, date(2026, 1, 1): 1})
    async with app.run_test(size=(30, 4)) as pilot:
        await pilot.press("pageup", *["down"] * 2)
        await pilot.pause()
        shown = [line.rstrip() for line in screen_text(app).splitlines()]
        assert shown[2:] == ["16  17  18  19  20  21  22", "23  24  25  26  27  28▇"]
        await pilot.click(offset=(5, 2))
        await pilot.press("enter")
        assert app.chosen == [date(2026, 2, 17)]
