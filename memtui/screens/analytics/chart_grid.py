"""The charts of the dashboard, with a chosen chart and a selected bucket."""

from collections.abc import Sequence

from textual.content import Content
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.widgets import Static

from memtui.widgets.charts import Chart, Drawn, draw
from memtui.widgets.display import DIM, STRONG, display, lines
from memtui.widgets.panes import ListMoves

_LINES = 8
"""Least lines of a chart, if there are several."""
_CELLS = 66
"""Least cells of a chart, if several are beside each other."""
_GAP = 2


class ChartGrid(ListMoves, Static, can_focus=True):
    """Shows as many charts as fit, always with the chosen one.

    `j` and `k` choose a chart, `move_bucket` selects a bucket in all of them.
    """

    class Moved(Message):
        """Another chart or bucket was selected, or the size changed."""

    class Opened(Message):
        """The chosen chart or the selected bucket was opened."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self.charts: tuple[Chart, ...] = ()
        self.chosen = 0
        self.bucket: int | None = None
        self.large = False
        self._cells: list[tuple[int, int, int, Drawn]] = []
        """Left cell, top line, number and drawing of each shown chart."""
        self._said = "", ""
        self._drawn_for = Size(0, 0)
        """The size at the last drawing."""

    @property
    def page_lines(self) -> int:
        """Number of shown charts."""
        return max(1, len(self._cells))

    def show(self, charts: Sequence[Chart], title: str = "", hint: str = "") -> None:
        """Draw new charts; the chosen number and the selected bucket stay if they still exist.

        If there are no charts, `title` and `hint` are shown instead.
        """
        self.charts = tuple(charts)
        self._said = title, hint
        self.chosen = min(self.chosen, max(0, len(self.charts) - 1))
        if self.bucket is not None and (not charts or self.bucket >= len(self.charts[0].labels)):
            self.bucket = None
        self._draw()

    def move(self, lines: int) -> None:
        """Choose the chart `lines` places on."""
        self.choose(self.chosen + lines)

    def choose(self, number: int) -> None:
        """Choose a chart by its number."""
        self.chosen = max(0, min(number, len(self.charts) - 1))
        self._moved()

    def move_bucket(self, by: int) -> None:
        """Select the bucket `by` places on; if none is selected, start at the first or last one."""
        count = len(self.charts[0].labels) if self.charts else 0
        if count:
            begin = count if by < 0 else -1
            start = self.bucket if self.bucket is not None else begin
            self.bucket = max(0, min(start + by, count - 1))
            self._moved()

    def back(self) -> bool:
        """Clear the selected bucket, else show all charts again; False: there was neither."""
        if self.bucket is not None:
            self.bucket = None
        elif self.large:
            self.large = False
        else:
            return False
        self._moved()
        return True

    def turn_large(self) -> None:
        """Show the chosen chart alone, or all again."""
        self.large = not self.large
        self._moved()

    def action_top(self) -> None:
        """Choose the first chart."""
        self.choose(0)

    def action_bottom(self) -> None:
        """Choose the last chart."""
        self.choose(len(self.charts) - 1)

    def action_open(self) -> None:
        """Open the chosen chart, or the selected bucket."""
        self.post_message(self.Opened())

    def on_click(self, event: Click) -> None:
        """Choose the clicked chart and bucket; a second click opens the bucket."""
        place = event.get_content_offset(self)
        for left, top, number, drawn in reversed(self._cells if place else []):
            if place and place.x >= left and place.y >= top:
                bucket = drawn.place.at(place.x - left)
                again = event.chain > 1 and bucket is not None and bucket == self.bucket
                self.chosen, self.bucket = number, bucket
                self._moved()
                if again:
                    self.action_open()
                return

    def watch_has_focus(self, _has_focus: bool) -> None:  # noqa: FBT001 - Textual's own signature
        """Mark the chosen chart only while this widget has the focus."""
        super().watch_has_focus(_has_focus)
        self._draw()

    def on_resize(self) -> None:
        """Draw for the new size."""
        if self.content_size != self._drawn_for:
            self._moved()

    def _moved(self) -> None:
        self._draw()
        self.post_message(self.Moved())

    def _draw(self) -> None:
        width, height = self.content_size.width, self.content_size.height
        self._cells, self._drawn_for = [], self.content_size
        if not self.charts or not width or not height:
            self.update(self._words(width, height), layout=False)
            return
        columns = 1 if self.large else max(1, min(2, (width + _GAP) // (_CELLS + _GAP)))
        rows = 1 if self.large else max(1, min(height // _LINES, -(-len(self.charts) // columns)))
        each = (width - _GAP * (columns - 1)) // columns
        first = min(self.chosen // columns * columns, max(0, self._last_first(columns, rows)))
        drawn_rows: list[Content] = []
        for row in range(rows):
            numbers = range(first + row * columns, first + (row + 1) * columns)
            tall = height // rows + (1 if row < height % rows else 0)
            drawn = [
                self._one(number, each, tall) for number in numbers if number < len(self.charts)
            ]
            for column, one in enumerate(drawn):
                left = column * (each + _GAP)
                self._cells.append((left, len(drawn_rows), numbers[column], one))
            joined = zip(*(one.lines for one in drawn), strict=True)
            drawn_rows.extend(Content(" " * _GAP).join(parts) for parts in joined)
        self.update(lines(drawn_rows), layout=False)

    def _words(self, width: int, height: int) -> Content:
        """Return title and hint, in the upper third."""
        title, hint = self._said
        said = [display(title, style=STRONG), Content(""), display(hint, style=DIM)]
        above = [Content("")] * (max(0, height - len(said)) // 3)
        placed = (one.pad_left(max(0, width - one.cell_length) // 2) for one in said)
        return lines([*above, *placed])

    def _last_first(self, columns: int, rows: int) -> int:
        all_rows = -(-len(self.charts) // columns)
        return (all_rows - rows) * columns

    def _one(self, number: int, width: int, height: int) -> Drawn:
        chosen = number == self.chosen and self.has_focus
        lead = "▸ " if chosen else "  "
        return draw(self.charts[number], width, height, selected=self.bucket, lead=lead)
