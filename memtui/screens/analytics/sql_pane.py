"""The SQL pane of the Analytics screen: statement, status and rows."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from memtui.contract import Invalid, MemtuiError, NotFound
from memtui.json_text import plain, plain_text
from memtui.presenters import format as fmt
from memtui.screens.analytics.chart_grid import ChartGrid
from memtui.screens.analytics.files import Table
from memtui.screens.analytics.plots import short_count
from memtui.screens.analytics.sql_editor import Completions, SqlEditor
from memtui.screens.base import frame_of
from memtui.screens.dialogs import Sheet
from memtui.screens.session import ServiceSession
from memtui.visible import visible
from memtui.widgets.background import Background
from memtui.widgets.charts import Chart, Series
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import SEPARATOR
from memtui.widgets.display import BAD, DIM, WARN, display, hanging, line, lines
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import Opened, SortAsked, VirtualList

if TYPE_CHECKING:
    from memtui.analytics.sql import SqlAnswer

_LINE = re.compile(r"^LINE (\d+): (.*)\n( *)\^", re.MULTILINE)
_NEAR = re.compile(r'(?:at or near|at) "(.+)"')
_TICK_SECONDS = 0.25
_MEASURED = 200
"""Rows, spread over the result, that are measured for a column's width."""
_WIDEST = 40
_LONGEST = 2_000
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT",
            "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL",
            "INTERVAL")  # fmt: skip
_LONGEST_LABEL = 20
"""Most characters of a text below a bar."""
_MIDNIGHT = " 00:00"
_MINUTE = len("2026-11-03 00:00")
_LONGEST_NOTE = 300
_ORDERED = (*_NUMBERS, "DATE", "TIME")
"""Types of a first column whose charts go from the least to the largest value."""
_BAR = "█"


def place_of(statement: str, written: str, error: MemtuiError) -> tuple[int, int] | None:
    """Return line and column of an error in the text `written`, both from 0.

    None: they are unknown, or the text was changed meanwhile.
    """
    start = written.find(statement)
    if start < 0 or not statement:
        return None
    found = _LINE.search(str(error.__cause__ or ""))
    if found is not None and not found[2].startswith("..."):
        row = int(found[1]) - 1
        column = len(found[3]) - len(f"LINE {found[1]}: ")
    else:
        near = _NEAR.search(str(error))
        if near is None or statement.count(near[1]) != 1:
            return None
        before = statement[: statement.index(near[1])]
        row, column = before.count("\n"), len(before.rpartition("\n")[2])
    if row < 0 or column < 0:
        return None
    lead = written[:start]
    return row + lead.count("\n"), column + (len(lead.rpartition("\n")[2]) if row == 0 else 0)


class SqlPane(Container):
    """Runs a person's statements, one at a time."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        completions = Completions(id="sql-completions")
        completions.display = False
        self.editor = SqlEditor(completions, id="sql-editor")
        self.result: SqlAnswer | None = None
        self.charts = ChartGrid(id="sql-charts")
        self.charts.display = False
        self._drawn: list[ResultRow] = []
        """The row of each bar."""
        self._completions = completions
        self._rows: AppendedRows[ResultRow] = AppendedRows(lambda row: str(row.place))
        self._list: VirtualList[ResultRow] = VirtualList((), self._rows, name="sql-rows")
        self._list.notice = (
            "ctrl+r runs the statement.",
            "ctrl+o opens a saved one, f2 shows the views, esc leaves it.",
        )
        self._took_ms = 0.0
        self._first = 0
        """Number of columns scrolled out of view at the left."""
        self._session: ServiceSession | None = None
        """The session of the last statement."""
        self._began: float | None = None
        self._stopping = False
        self._asking = Background(self, "sql")

    def compose(self) -> ComposeResult:
        """Lay out statement, status and rows."""
        yield self.editor
        yield Static(id="sql-status")
        yield self._list
        yield self.charts
        yield self._completions

    def on_mount(self) -> None:
        """Set up the timer of a running statement."""
        self._ticking = self.set_interval(_TICK_SECONDS, self._tick, pause=True)

    def on_unmount(self) -> None:
        """Stop a running statement, so that the app can end."""
        self._stop()

    @property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(frame_of(self).state.zone_name)

    # Running.

    @property
    def running(self) -> bool:
        """Whether a statement runs."""
        return self._began is not None

    @on(SqlEditor.Run)
    def run_statement(self) -> None:
        """Run the statement."""
        frame = frame_of(self)
        if self.running:
            frame.toast("A statement is running; esc stops it.", severity="warning")
            return
        session, zone, statement = frame.session, frame.state.zone_name, self.editor.take()

        async def run() -> tuple[SqlAnswer, float]:
            began = time.perf_counter()
            found = await session.service.analysis.sql(session.caller, statement, zone=zone)
            return found, (time.perf_counter() - began) * 1_000

        self._session, self._began, self._stopping = session, time.monotonic(), False
        self._ticking.resume()
        self._tick()
        self._asking.latest(run, self._show, lambda error: self._failed(statement, error))

    def back(self) -> bool:
        """Stop a running statement, else show the rows instead of charts; return whether it did.

        It never leads into the editor: keys like 1-6 would be written into the statement.
        """
        if self._cancel():
            return True
        if self.charts.display:
            self._show_charts(shown=False)
            return True
        return False

    @on(SqlEditor.Left)
    def _leave(self) -> None:
        if not self._cancel():
            (self.charts if self.charts.display else self._list).focus()

    def _cancel(self) -> bool:
        if self.running:
            self._stopping = True
            self._tick()
        return self.running

    def _stop(self) -> None:
        """Stop the running statement without waiting for its end."""
        if self.running and self._session is not None:
            self._session.service.analysis.cancel_sql(self._session.caller)

    def _tick(self) -> None:
        if self._began is None:
            self._ticking.pause()
            return
        if self._stopping:
            # A statement cannot be stopped before it has begun, so try again at each tick.
            self._stop()
        seconds = int(time.monotonic() - self._began)
        words = f"… running {seconds} s" if not self._stopping else "… stopping"
        self._say(line(display(words), display("esc stops it", style=DIM), gap="   "))

    def forget(self) -> None:
        """Clear the result, which belongs to another company, and stop a running statement."""
        self._stop()
        self._asking.forget()
        self._began = self.result = None
        self._rows.replace(())
        self._hide_charts()
        self._list.columns = ()
        self._list.rows_changed()
        self._say(Content(""))

    def _show(self, answered: tuple[SqlAnswer, float]) -> None:
        result, self._took_ms = answered
        self._began, self.result, self._first = None, result, 0
        rows = [ResultRow(place, values) for place, values in enumerate(result.rows)]
        self._rows.replace(rows)
        listed = self._list
        listed.columns = result_columns(result, rows, self._zone)
        listed.hidden, listed.wider, listed.sort = frozenset(), {}, None
        listed.notice = ("No row.", "The statement is right; nothing fits it.")
        listed.rows_changed()
        listed.go_to(0)
        self._hide_charts()
        self._draw_status(result)

    def _failed(self, statement: str, error: MemtuiError) -> None:
        self._began = None
        place = place_of(statement, self.editor.text, error)
        sentence = str(error)
        if place is not None:
            where = f"line {place[0] + 1}, column {place[1] + 1}"
            sentence = f"{sentence.rstrip('.!')}, at {where}."
            self.editor.move_cursor(place)
        self._say(display(f"✗ {sentence}", limit=600, style=BAD))

    def _draw_status(self, result: SqlAnswer) -> None:
        counts = [
            fmt.counted(len(result.rows), "row"),
            fmt.counted(len(result.columns), "column"),
            fmt.duration(self._took_ms),
        ]
        cut = "▲ there are more rows; narrow it down" if result.truncated else ""
        behind = f"columns from {self._first + 1} on" if self._first else ""
        if self.charts.display and (row := self._list.current) is not None:
            texts = (cell_text(value, self._zone) for value in row.values)
            named = zip(result.columns, texts, strict=True)
            behind = SEPARATOR.join(f"{name} {text}" for name, text in named)
        self._say(
            line(
                display(f"✓ {SEPARATOR.join(counts)}"),
                display(cut, style=WARN),
                display(behind, limit=_LONGEST_NOTE, style=DIM),
                gap="   ",
            )
        )

    def _say(self, content: Content) -> None:
        self.query_one("#sql-status", Static).update(content)

    # The charts.

    def turn_charts(self) -> None:
        """Draw the result, or show its rows again; raises an error if it cannot be drawn."""
        if self.charts.display:
            self._show_charts(shown=False)
            return
        if self.result is None:
            raise NotFound("There is no result to draw; ctrl+r runs the statement.")
        self._drawn = [row for _, row in self._rows.held()]
        if self.result.types[0].startswith(_ORDERED):
            self._drawn = sorted_rows(self._drawn, 0, descending=False)
        charts, row = result_charts(self.result, self._drawn, self._zone), self._list.current
        self.charts.bucket = None if row is None else self._drawn.index(row)
        self.charts.show(charts)
        self._show_charts(shown=True)

    def _hide_charts(self) -> None:
        """Show the rows; the focus stays in the editor if it is there."""
        if self.charts.display:
            self._show_charts(shown=False, focus=self.charts.has_focus)

    def _show_charts(self, *, shown: bool, focus: bool = True) -> None:
        self.charts.display, self._list.display = shown, not shown
        self.set_class(shown, "-charted")
        if focus:
            (self.charts if shown else self._list).focus()
        if self.result is not None:
            self._draw_status(self.result)

    @on(ChartGrid.Moved)
    def _moved(self, event: ChartGrid.Moved) -> None:
        """Put the cursor on the row of the selected bar."""
        event.stop()
        if self.charts.display and self.result is not None and self.charts.bucket is not None:
            self._list.go_to_key(str(self._drawn[self.charts.bucket].place))
            self._draw_status(self.result)

    # The rows.

    def shift_columns(self, by: int) -> None:
        """Scroll by `by` columns, or select the bar `by` places on."""
        if self.charts.display:
            self.charts.move_bucket(by)
        elif self.result is not None and self.result.columns:
            self._first = max(0, min(self._first + by, len(self.result.columns) - 1))
            self._list.hidden = frozenset(map(str, range(self._first)))
            self._list.refresh()
            self._draw_status(self.result)

    @on(SortAsked)
    def _sort(self, event: SortAsked) -> None:
        column, descending = self._list.sort or ("", True)
        descending = not descending if column == event.column else False
        self._list.sort, place = (event.column, descending), int(event.column)
        rows = [row for _, row in self._rows.held()]
        self._rows.replace(sorted_rows(rows, place, descending=descending))
        self._list.rows_changed()

    @on(ChartGrid.Opened)
    @on(Opened)
    def _open_row(self, event: ChartGrid.Opened | Opened) -> None:
        event.stop()
        row, result, zone = self._list.current, self.result, self._zone
        if row is not None and result is not None:
            self.app.push_screen(
                Sheet(
                    f"Row {fmt.count(row.place + 1)}",
                    lambda width: row_content(result.columns, row, zone, width),
                )
            )

    def row_text(self) -> str:
        """Return the row under the cursor as JSON; raises `NotFound` if there is none."""
        row, result = self._list.current, self.result
        if row is None or result is None:
            raise NotFound("There is no row to copy.")
        named = dict(zip(result.columns, map(plain, row.values), strict=True))
        return json.dumps(named, indent=1, ensure_ascii=False)


class ResultRow(NamedTuple):
    """A row and its index in the result."""

    place: int
    values: tuple[Any, ...]


def cell_text(value: Any, zone: tzinfo) -> str:
    """Return a value as text; a moment in the time zone `zone`."""
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, datetime):
        local = value.astimezone(zone) if value.tzinfo else value
        return local.isoformat(sep=" ", timespec="milliseconds" if value.microsecond else "seconds")
    if isinstance(value, float):
        return f"{value:.6g}" if value % 1 else f"{value:.0f}" if abs(value) < 1e15 else str(value)
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    return plain_text(value)


def result_columns(
    result: Table | SqlAnswer, rows: Sequence[ResultRow], zone: tzinfo
) -> tuple[Column[ResultRow], ...]:
    """Return the columns of a result, each as wide as its content; a number is never cut."""

    def column(place: int, title: str, kind: str) -> Column[ResultRow]:
        number = is_number(kind)
        values = [row.values[place] for row in rows[:: len(rows) // _MEASURED + 1]]
        if number and (
            known := [value for row in rows if (value := row.values[place]) is not None]
        ):
            values += [min(known), max(known)]
        texts = [title, *(cell_text(value, zone) for value in values)]
        wide = max(cell_len(visible(text, limit=_WIDEST + 1)) for text in texts)

        def cell(row: ResultRow) -> Cell:
            value = row.values[place]
            return Cell(cell_text(value, zone), "muted" if value is None else "")

        return Column(
            str(place),
            title,
            cell,
            max(2, min(_WIDEST, wide)),
            "right" if number else "left",
            keep=len(result.columns) - place,
        )

    titles = zip(result.columns, result.types, strict=True)
    return tuple(column(place, *title) for place, title in enumerate(titles))


def is_number(kind: str) -> bool:
    """Return whether the values of a type of DuckDB are numbers or durations."""
    return kind.startswith(_NUMBERS) and not kind.endswith("]")


def result_charts(result: SqlAnswer, rows: Sequence[ResultRow], zone: tzinfo) -> tuple[Chart, ...]:
    """Return a chart of each number column after the first, with a bar for each row.

    Raises `Invalid` if there is no such column, or fewer than two rows.
    """
    places = [place for place, kind in enumerate(result.types) if place and is_number(kind)]
    if not places:
        raise Invalid(
            "There is no number to draw: the first column names the bars, and each column of "
            "numbers after it becomes a chart."
        )
    if len(rows) < 2:
        raise Invalid(f"A chart needs two rows at least; this is {fmt.counted(len(rows), 'row')}.")
    labels = _bar_labels([row.values[0] for row in rows], zone)

    def chart(place: int) -> Chart:
        name, values = result.columns[place], tuple(_height(row.values[place]) for row in rows)
        return Chart(
            f"{name} by {result.columns[0]}",
            labels,
            (Series(name, values, "primary", _BAR),),
            _mark_of_duration if result.types[place] == "INTERVAL" else _mark,
            legend=False,
            nothing="Every value is zero or missing.",
        )

    return tuple(map(chart, places))


def _bar_labels(values: Sequence[Any], zone: tzinfo) -> tuple[str, ...]:
    """Return a short text for each value; a time to the minute, or the day if all are midnights."""
    texts = [
        cell_text(value, zone)[: _MINUTE if isinstance(value, datetime) else None]
        for value in values
    ]
    if all(text.endswith(_MIDNIGHT) for text in texts):
        texts = [text.removesuffix(_MIDNIGHT) for text in texts]
    return tuple(visible(text, limit=_LONGEST_LABEL) for text in texts)


def _height(value: Any) -> float | None:
    """Return a value as a bar's height, a duration in seconds; None: it has none."""
    if value is None:
        return None
    height = value.total_seconds() if isinstance(value, timedelta) else float(value)
    return height if math.isfinite(height) else None


def _mark(value: float) -> str:
    is_short = value == round(value) and abs(value) < 1e12
    return short_count(value) if is_short else f"{value:.3g}"


def _mark_of_duration(value: float) -> str:
    return fmt.duration(value * 1_000)


def sorted_rows(rows: Sequence[ResultRow], place: int, *, descending: bool) -> list[ResultRow]:
    """Return rows sorted by a column, those without a value last."""
    known = [row for row in rows if row.values[place] is not None]
    known.sort(key=sort_key(place), reverse=descending)
    return [*known, *(row for row in rows if row.values[place] is None)]


def sort_key(place: int) -> Callable[[ResultRow], Any]:
    """Return the sort key of a column; rows without a value are not for it."""

    def key(row: ResultRow) -> Any:
        value = row.values[place]
        if isinstance(value, bool | int | float | Decimal):
            return (0, value, "")
        if isinstance(value, datetime) and value.tzinfo:
            return (1, value.timestamp(), "")
        return (2, 0, cell_text(value, UTC))

    return key


def row_content(columns: Sequence[str], row: ResultRow, zone: tzinfo, width: int) -> Content:
    """Return every value of a row after its column's name."""
    named = [
        (visible(name, limit=_WIDEST), value)
        for name, value in zip(columns, row.values, strict=True)
    ]
    wide = max((cell_len(name) for name, _ in named), default=0)
    return lines(
        hanging(
            display(f"{name}{' ' * (wide - cell_len(name))}  ", style=DIM),
            display(cell_text(value, zone), limit=_LONGEST, style=DIM if value is None else ""),
            width,
        )
        for name, value in named
    )
