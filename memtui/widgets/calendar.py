"""A calendar of months that marks each day by how much happened on it."""

from __future__ import annotations

import calendar
from collections.abc import Mapping
from datetime import date, timedelta
from functools import lru_cache
from math import sqrt
from typing import NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from textual.events import Click
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget

from memtui.presenters import format as fmt
from memtui.widgets.display import ACCENT, DIM, STRONG

MARKS = " ▁▃▅▇"
"""The marks of a day, from nothing to about as much as on the busiest day."""
_DAY_CELLS = 4
_MONTH_CELLS = 7 * _DAY_CELLS
_GAP_CELLS = 3
_WEEKS = 6
_MONTH_LINES = _WEEKS + 2
"""Title, names of the weekdays, and the weeks; a blank line separates rows of months."""


class Month(NamedTuple):
    """A month of a year."""

    year: int
    month: int

    def back(self, months: int) -> Month:
        """Return the month `months` earlier."""
        year, month = divmod(self.year * 12 + self.month - 1 - months, 12)
        return Month(year, month + 1)

    def since(self, earlier: Month) -> int:
        """Return how many months this one is after `earlier`."""
        return (self.year - earlier.year) * 12 + self.month - earlier.month

    @lru_cache(24)  # noqa: B019 - of a value, and few are kept
    def weeks(self) -> list[list[date | None]]:
        """Return six weeks from Monday on; None: the day belongs to another month."""
        found = calendar.Calendar().monthdayscalendar(*self)
        found += [[0] * 7] * (_WEEKS - len(found))
        return [[date(*self, day) if day else None for day in week] for week in found]


def month_of(day: date) -> Month:
    """Return the month of a day."""
    return Month(day.year, day.month)


def mark(count: int, most: int) -> str:
    """Return the mark for a day's count; `most` is the count of the busiest day."""
    return MARKS[1 + min(3, int(4 * sqrt(count / (most + 1))))] if count > 0 else MARKS[0]


_KEYS = {
    "left": "move(-1)",
    "right": "move(1)",
    "up": "move(-7)",
    "down": "move(7)",
    "pageup": "move_months(1)",
    "pagedown": "move_months(-1)",
    "left_square_bracket": "marked(-1)",
    "right_square_bracket": "marked(1)",
    "home": "first",
    "end": "last",
    "enter": "choose",
}


_Piece = tuple[str, str]
"""A text and its style."""


class Calendar(Widget):
    """Shows as many months as fit, as grids, the latest last.

    It never has the focus: its owner passes keys to `take_key`.
    """

    has_cursor: reactive[bool] = reactive(default=True)
    """Whether keys move the cursor now."""
    day: reactive[date] = reactive(date.today)
    """The day under the cursor."""
    counts: reactive[Mapping[date, int]] = reactive(dict)
    """How much happened on each day; a missing day has nothing."""

    class Moved(Message):
        """The cursor moved to another day."""

    class Chosen(Message):
        """The day under the cursor was chosen."""

    def __init__(self, day: date, today: date) -> None:
        """Put the cursor on `day`; days after `today` cannot be reached."""
        super().__init__()
        self._today = today
        self.set_reactive(Calendar.day, min(day, today))

    async def take_key(self, key: str) -> bool:
        """Run the action of a key; return whether the key has one."""
        return key in _KEYS and await self.app.run_action(_KEYS[key], self)

    def watch_day(self) -> None:
        """Post `Moved`."""
        self.post_message(self.Moved())

    def _go(self, day: date) -> None:
        first = min((*self.counts, self.day, self._today)).replace(day=1)
        self.day = max(first, min(day, self._today))

    def action_move(self, days: int) -> None:
        """Move by `days`, no further than the first marked day's month, or today."""
        self._go(self.day + timedelta(days=days))

    def action_move_months(self, back: int) -> None:
        """Move to the same day of another month, or to its last day if it is shorter."""
        month = month_of(self.day).back(back)
        length = calendar.monthrange(*month)[1]
        self._go(date(*month, min(self.day.day, length)))

    def action_marked(self, step: int) -> None:
        """Move to the nearest marked day, before this one if `step` is negative, else after."""
        earlier = [one for one in self.counts if one < self.day]
        later = [one for one in self.counts if one > self.day]
        self._go(max(earlier, default=self.day) if step < 0 else min(later, default=self.day))

    def action_first(self) -> None:
        """Move to the first marked day."""
        self._go(min(self.counts, default=self.day))

    def action_last(self) -> None:
        """Move to today."""
        self._go(self._today)

    def action_choose(self) -> None:
        """Choose the day under the cursor."""
        self.post_message(self.Chosen())

    def on_click(self, event: Click) -> None:
        """Put the cursor on the day that was clicked; a second click chooses it."""
        place = event.get_content_offset(self)
        day = self._day_at(*place) if place is not None else None
        if day is not None and day <= self._today:
            self._go(day)
            if event.chain > 1:
                self.action_choose()

    def _months(self) -> list[list[Month]]:
        """Return the months to show, row by row: the page of months that contains the day.

        Months before the first marked one are not shown.
        """
        size = self.content_size
        across = max(1, (size.width + _GAP_CELLS) // (_MONTH_CELLS + _GAP_CELLS))
        fit = across * max(1, (size.height + 1) // (_MONTH_LINES + 1))
        last = month_of(self._today)
        shown = min(fit, last.since(month_of(min(self.day, *self.counts, self._today))) + 1)
        newest = last.back(last.since(month_of(self.day)) // shown * shown)
        months = [newest.back(one) for one in reversed(range(shown))]
        return [months[one : one + across] for one in range(0, shown, across)]

    @property
    def _weeks_above(self) -> int:
        """How many weeks of each month are scrolled out of view, so that the day's week shows."""
        room = self.content_size.height - (_MONTH_LINES - _WEEKS)
        weeks = month_of(self.day).weeks()
        place = next(number for number, week in enumerate(weeks) if self.day in week)
        return max(0, place + 1 - room) if 0 < room < _WEEKS else 0

    def _day_at(self, x: int, y: int) -> date | None:
        column, cell = divmod(x, _MONTH_CELLS + _GAP_CELLS)
        row, in_month = divmod(y, _MONTH_LINES + 1)
        months, week = self._months(), in_month - 2 + self._weeks_above
        if row >= len(months) or column >= len(months[row]) or cell >= _MONTH_CELLS:
            return None
        return months[row][column].weeks()[week][cell // _DAY_CELLS] if 0 <= week < _WEEKS else None

    def render_line(self, y: int) -> Strip:
        """Draw one line across the months of a row."""
        row, line = divmod(y, _MONTH_LINES + 1)
        months = self._months()
        shown = months[row] if row < len(months) and line < _MONTH_LINES else []
        pieces: list[_Piece] = []
        for month in shown:
            pieces += [(" " * _GAP_CELLS, ""), *self._month(month, line)]
        base = self.visual_style
        tones = {style: (base + Style.parse(style)).rich_style for _, style in pieces}
        segments = [Segment(text, tones[style]) for text, style in pieces[1:]]
        return Strip(segments).adjust_cell_length(self.content_size.width, base.rich_style)

    def _month(self, month: Month, line: int) -> list[_Piece]:
        """Return a line of a month: its name, the weekdays' names, or a week."""
        if line == 0:
            number = sum(n for day, n in self.counts.items() if month_of(day) == month)
            title, changes = f"{calendar.month_name[month.month]} {month.year}", fmt.count(number)
            room = _MONTH_CELLS - 2 - cell_len(title)
            return [(title, STRONG), (f"{changes if number else '':>{room}}", DIM), ("  ", "")]
        if line == 1:
            return [("".join(f"{name[:2]:<{_DAY_CELLS}}" for name in calendar.day_abbr), DIM)]
        weeks = month.weeks()[self._weeks_above :]
        days = weeks[line - 2] if line - 2 < len(weeks) else [None] * 7
        most = max(self.counts.values(), default=0)
        return [piece for day in days for piece in self._cell(day, most)]

    def _cell(self, day: date | None, most: int) -> list[_Piece]:
        if day is None:
            return [(" " * _DAY_CELLS, "")]
        count = self.counts.get(day, 0)
        style = DIM if day > self._today or not count else ""
        if day == self._today:
            style = f"{style} underline"
        if day == self.day:
            style = "bold reverse" if self.has_cursor else "bold underline"
        return [(f"{day.day:>2}", style), (mark(count, most), ACCENT), (" ", "")]
