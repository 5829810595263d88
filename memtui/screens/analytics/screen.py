"""The Analytics screen: charts or SQL, and what both have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from memtui.actions import ACTIONS, Need, footer_actions
from memtui.contract import MemtuiError
from memtui.filters import Taker
from memtui.screens.analytics.charts_half import ChartsHalf, StatementGiven, StatusChanged
from memtui.screens.analytics.sql_half import SqlHalf
from memtui.screens.base import MemtuiScreen
from memtui.screens.exports import export
from memtui.screens.state import AppState
from memtui.widgets.display import DIM, STRONG
from memtui.widgets.frame import FooterEntry, KeyFooter
from memtui.widgets.keys import bindings_for
from memtui.widgets.panes import Fitted

_FRESH = timedelta(seconds=30)
"""How long figures are shown again without a look at the log."""
_FOOTER_KEYS = 5
"""Keys of the footer before that of the help."""
_TABLES = ("csv", "json", "parquet")


class HalfTab(Static):
    """The name of a half, which a click shows."""

    @dataclass
    class Pressed(Message):
        """The name was clicked."""

        half: str

    def __init__(self, half: str, title: str) -> None:
        super().__init__(id=f"half-{half}")
        self._half = half
        self._title = title

    def show(self, *, active: bool) -> None:
        """Draw the name; brackets tell the one that is shown where there is no colour."""
        words = f"[{self._title}]" if active else f" {self._title} "
        self.update(Content.styled(words, STRONG if active else DIM))
        self.set_class(active, "-active")

    def on_click(self) -> None:
        """Ask for this half."""
        self.post_message(self.Pressed(self._half))


class AnalyticsScreen(MemtuiScreen):
    """What the whole log adds up to."""

    MODE = "analytics"
    NARROWS = Taker.OPERATIONS
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("analytics")

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self._company = ""
        self._sql_shown = False

    def compose_body(self) -> ComposeResult:
        """Lay out the names of the halves, and the halves."""
        with Horizontal(id="analytics-halves"):
            yield HalfTab("charts", "Charts")
            yield HalfTab("sql", "SQL")
            yield Fitted(id="analytics-how")
        yield ChartsHalf(id="charts-half")
        yield SqlHalf(id="sql-half")

    def on_mount(self) -> None:
        """Show the charts first."""
        super().on_mount()
        self._show_half()

    @property
    def _charts(self) -> ChartsHalf:
        return self.query_one(ChartsHalf)

    @property
    def _sql(self) -> SqlHalf:
        return self.query_one(SqlHalf)

    def load(self) -> None:
        """Add up again; a statement runs only when it is asked for."""
        company = self.session.company.company_id
        if company != self._company:
            self._company = company
            self._charts.forget()
            self._sql.forget()
        self._charts.load()

    def on_screen_resume(self) -> None:
        """Add up again what is no longer fresh."""
        board = self._charts.board
        if board is not None and self.state.clock() - board.question.now > _FRESH:
            self._stale = True  # the frame's own handler comes after this one and loads

    def focus_body(self) -> None:
        """Put the focus on the charts, or into the statement."""
        if self._sql_shown:
            self._sql.enter()
        else:
            super().focus_body()

    def _show_half(self) -> None:
        self._charts.display = not self._sql_shown
        self._sql.display = self._sql_shown
        self.query_one("#half-charts", HalfTab).show(active=not self._sql_shown)
        self.query_one("#half-sql", HalfTab).show(active=self._sql_shown)
        self.missing = {Need.CHARTS: ""} if self._sql_shown else {Need.SQL: ""}
        self.labels = {"analytics.half": "charts" if self._sql_shown else "SQL"}
        self._draw_status_line()

    @on(StatusChanged)
    def _draw_status_line(self) -> None:
        self.show_count("SQL reads the whole log" if self._sql_shown else self._charts.count)
        how = self._sql.how if self._sql_shown else self._charts.how
        self.query_one("#analytics-how", Fitted).fit(how)

    def _draw_footer(self) -> None:
        """Leave out what is the other half's."""
        if not self.is_mounted or self.group != self.MODE:
            super()._draw_footer()
            return
        keymap, labels = self.state.keymap, self.labels
        there = [
            action
            for action in footer_actions(self.MODE, count=len(ACTIONS))
            if not self.missing.keys() & {Need.CHARTS, Need.SQL} & set(action.needs)
        ]
        self.query_one(KeyFooter).entries = tuple(
            FooterEntry(
                action.id,
                keymap.label(action.id),
                labels.get(action.id, action.label),
                action.description,
                self.why_disabled(action.id),
            )
            for action in [*there[:_FOOTER_KEYS], there[-1]]
        )

    def _turn(self, *, sql: bool) -> None:
        self._sql_shown = sql
        self._show_half()
        self.set_focus(None)
        self.focus_body()

    @on(HalfTab.Pressed)
    def _pressed(self, event: HalfTab.Pressed) -> None:
        self._turn(sql=event.half == "sql")

    @on(StatementGiven)
    def _take_statement(self, event: StatementGiven) -> None:
        self._sql.give(event.statement)
        self._turn(sql=True)
        self._sql.run_statement()

    def action_half(self) -> None:
        """Go to SQL, or back to the charts."""
        self._turn(sql=not self._sql_shown)

    def action_period(self) -> None:
        """Look at a longer stretch of time."""
        self._charts.turn_period(1)

    def action_shorter(self) -> None:
        """Look at a shorter stretch of time."""
        self._charts.turn_period(-1)

    def action_bucket(self) -> None:
        """Cut time otherwise."""
        self._charts.turn_bucket()

    def action_dimension(self) -> None:
        """Choose what the table groups by."""
        self._charts.choose_dimension()

    def action_hits(self) -> None:
        """Count hits by the other sign."""
        self._charts.turn_sign()

    def action_large(self) -> None:
        """Show one chart large, or all again."""
        self._charts.turn_large()

    def action_earlier(self) -> None:
        """Select the bar before, or show the columns further left."""
        (self._sql if self._sql_shown else self._charts).move(-1)

    def action_later(self) -> None:
        """Select the bar after, or show the columns further right."""
        (self._sql if self._sql_shown else self._charts).move(1)

    def action_back(self) -> None:
        """Stop a statement, take the selection away, or show all charts again."""
        (self._sql if self._sql_shown else self._charts).back()

    def action_run(self) -> None:
        """Run the statement, or add up again."""
        if self._sql_shown:
            self._sql.run_statement()
        else:
            self.load()

    def action_input(self) -> None:
        """Go to the statement."""
        self._sql.enter()

    def action_saved(self) -> None:
        """Open a saved or earlier statement."""
        self._sql.show_saved()

    def action_views(self) -> None:
        """Show the views and their columns."""
        self._sql.show_views()

    def action_copy(self) -> None:
        """Copy the selected figures, or the row."""
        self._try((self._sql if self._sql_shown else self._charts).copy)

    def action_export(self) -> None:
        """Ask for a file and write what is shown into it."""
        half = self._sql if self._sql_shown else self._charts
        kinds = _TABLES if self._sql_shown else (*_TABLES, "svg")
        self._try(
            lambda: self.talk(export(self, half.export_words, "memtui.csv", kinds, half.writer))
        )

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except MemtuiError as error:
            self.fail(error)
