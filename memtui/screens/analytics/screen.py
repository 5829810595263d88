"""The Analytics screen: charts and a table of the log's figures, or SQL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import UTC
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Horizontal, Vertical
from textual.content import Content
from textual.events import DescendantFocus
from textual.widget import Widget
from textual.widgets import Static

from memtui.actions import ACTIONS, Action, Need, footer_actions
from memtui.analytics.figures import Bucket, FigureGroup, HitSign
from memtui.contract import Filter, Invalid, MemtuiError, NotFound
from memtui.filters import format_filter
from memtui.presenters import format as fmt
from memtui.presenters.risks import totals
from memtui.screens.analytics import files
from memtui.screens.analytics.board import (
    Board,
    Period,
    Question,
    bucket_words,
    read_board,
    read_groups,
    span_of,
)
from memtui.screens.analytics.chart_grid import ChartGrid
from memtui.screens.analytics.groups import (
    DIMENSIONS,
    dimension_of,
    filter_of_bucket,
    filter_of_group,
    group_columns,
    name_of,
    statement_of,
    statement_of_group,
    words_of,
)
from memtui.screens.analytics.plots import Plot, Selected, figures_content, plots_of
from memtui.screens.analytics.sql_pane import SqlPane
from memtui.screens.base import MemtuiScreen
from memtui.screens.dialogs import Choice, Choose
from memtui.screens.exports import export
from memtui.screens.following import News
from memtui.screens.state import AppState, GoTo
from memtui.store.operation import Operation
from memtui.visible import visible
from memtui.widgets.background import Background
from memtui.widgets.detail_lines import key_hint
from memtui.widgets.display import DIM, STRONG, display, line
from memtui.widgets.frame import Pressed
from memtui.widgets.panes import DetailPane, Fitted, Notice, Split, State
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import Highlighted, Opened, SortAsked, VirtualList

if TYPE_CHECKING:
    from memtui.analytics.sql import SqlAnswer

_REST_SECONDS = 1.0
_REST = 4
"""New operations are counted after a pause of this many times the last reading time, and at
least `_REST_SECONDS`."""
_FOOTER_KEYS = 7
"""Most keys of the footer before the help key."""
_SOON_SECONDS = 0.3
"""A read within this time shows no message that it is under way."""
_TABLES = ("csv", "json", "parquet")
_LONGEST_NAME = 200
_SHORT = 40_000
"""Most operations of a log that is read before the screen is shown."""


class HalfTab(Static):
    """The tab of the charts or of SQL; a click switches to it."""

    def __init__(self, half: str, title: str) -> None:
        super().__init__(id=f"half-{half}")
        self._title = title

    def show(self, *, active: bool) -> None:
        """Draw the tab; brackets mark the active one without colour."""
        words = f"[{self._title}]" if active else f" {self._title} "
        self.update(Content.styled(words, STRONG if active else DIM))
        self.set_class(active, "-active")

    def on_click(self) -> None:
        """Switch to this half."""
        if not self.has_class("-active"):
            self.post_message(Pressed("analytics.half"))


class AnalyticsScreen(MemtuiScreen):
    """Figures of the log as charts and a table, and SQL over the log."""

    MODE = "analytics"
    READS_WITH = ("memtui.analytics.stats", "duckdb", "plotext")

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self.period = Period.MONTH
        self.bucket = Period.MONTH.bucket
        self.dimension = "binding"
        self.hit_sign: HitSign | None = None
        self.board: Board | None = None
        self.plots: tuple[Plot, ...] = ()
        self._groups: AppendedRows[FigureGroup] = AppendedRows(lambda one: repr(one.keys))
        self._company = ""
        self._resting = False
        """Whether the pause after the last read still lasts."""
        self._came: Sequence[Operation] = ()
        """Operations logged while figures were being read."""
        self._of_group = False
        """Whether the table was focused last, not the charts."""
        self._left: Widget | None = None
        """The widget that had the focus before it was hidden."""
        self._grouping = Background(self, "analytics-groups")
        self._drawn: tuple[Selected, HitSign, bool] | None = None
        """The drawn selection, hit sign, and whether it is short."""

    def compose_body(self) -> ComposeResult:
        """Lay out charts, table and figures, and SQL."""
        with Horizontal(id="analytics-halves"):
            yield HalfTab("charts", "Charts")
            yield HalfTab("sql", "SQL")
            yield Fitted(id="analytics-how")
        with Container(id="charts-half"):
            yield Notice(id="analytics-notice")
            with Split(self.MODE, self.state.shares, id="analytics-split", classes=None):
                yield ChartGrid(id="chart-grid")
                with Vertical(id="analytics-side"):
                    table: VirtualList[FigureGroup] = VirtualList(
                        (), self._groups, name="group-list"
                    )
                    table.sort = ("operations", True)
                    yield table
                    yield DetailPane(Fitted(id="figures"), id="figures-pane")
        yield SqlPane(id="sql-half")

    def on_mount(self) -> None:
        """Show the charts first."""
        self.query_one("#analytics-notice", Notice).hide()
        self._show_half(sql=False)

    def on_resize(self) -> None:
        """Update the status line for the new width, once the screen is styled for it."""
        self.call_later(self._draw_status_line)

    @property
    def _grid(self) -> ChartGrid:
        return self.query_one("#chart-grid", ChartGrid)

    @property
    def _table(self) -> VirtualList[FigureGroup]:
        found: VirtualList[FigureGroup] = self.query_one("#group-list", VirtualList)
        return found

    @property
    def _sql(self) -> SqlPane:
        return self.query_one(SqlPane)

    # The charts or SQL.

    def _show_half(self, *, sql: bool) -> None:
        self._sql.display = sql
        self.query_one("#charts-half").display = not sql
        self.query_one("#half-charts", HalfTab).show(active=not sql)
        self.query_one("#half-sql", HalfTab).show(active=sql)
        self.missing = {Need.CHARTS: ""} if sql else {Need.SQL: ""}
        self.labels = {"analytics.half": "charts", "analytics.large": "chart"} if sql else {}
        self._draw_status_line()

    def focus_body(self) -> None:
        """Focus the charts, or the SQL editor."""
        if self._sql.display:
            self.set_focus(self._sql.editor)
        else:
            super().focus_body()

    def _draw_status_line(self) -> None:
        how = self.query_one("#analytics-how", Fitted)
        if self._sql.display:
            self.show_count("SQL reads the whole log")
            how.fit(display(f"times in {self.state.zone_name}", style=DIM))
        else:
            counted = []
            if self.board is not None:
                stats = self.board.stats
                counted.append(fmt.counted(stats.operation_count, "operation"))
                if stats.left_out_count:
                    counted.append(
                        fmt.left_out(stats.left_out_count, brief=not self.has_class("-wide"))
                    )
            self.show_count("  ".join(counted))
            how.fit(self._how)

    def footer(self) -> list[Action]:
        """Return the actions of the footer, without those of the other half."""
        if self.group != self.MODE:
            return super().footer()
        other = self.missing.keys() & {Need.CHARTS, Need.SQL}
        actions = footer_actions(self.MODE, count=len(ACTIONS))
        there = [action for action in actions if not other & set(action.needs)]
        return [*there[:-1][:_FOOTER_KEYS], there[-1]]

    # Reading.

    def load(self) -> None:
        """Read the figures; no SQL statement is run."""
        session, question = self.session, self._question()
        if session.company.company_id != self._company:
            self._company = session.company.company_id
            self.forget()
            self._sql.forget()
        if self._is_of_another(question):
            self.set_timer(_SOON_SECONDS, self._tell_loading)
        self._grouping.forget()
        self._came = ()
        begun = monotonic()

        def show(board: Board) -> None:
            self._show(board)
            self._rest(monotonic() - begun)
            if self._came:
                self._take(self._came)

        self.reads.latest(lambda: read_board(session, question), show, self._broken)
        self._draw_status_line()

    async def prepare(self) -> None:
        """Read the figures before the first showing, unless the log is long; this is not logged."""
        is_short = await self.service.log.newest(self.caller) <= _SHORT
        if is_short and self._stale:
            self._stale = False
            self.load()

    def on_screen_resume(self) -> None:
        """Mark the figures stale if another day or hour has begun."""
        if self.board is not None and self.board.question.is_over(self.state.clock()):
            self._stale = True

    def _is_of_another(self, question: Question) -> bool:
        """Whether no figures are shown, or those of another filter."""
        return self.board is None or self.board.question.filter != question.filter

    def _tell_loading(self) -> None:
        """Clear figures of another filter, and say that new ones are being read."""
        if self.reads.busy and self._is_of_another(self._question()):
            self.forget()
            self._grid.show((), "Adding up", "The first look at a long log takes longest.")
            self._unhide()
            self._draw_status_line()

    def forget(self) -> None:
        """Clear the figures."""
        self.board, self.plots = None, ()
        self._show_groups(())
        self._table.notice = ()
        self._grid.show(())

    def happened(self, news: News) -> None:
        """Count new operations, now or later; reads take at most a fifth of the time."""
        if self.reads.busy and not news.is_part:
            self._came = *self._came, *news.operations  # the running read may include them
        else:
            self._take(() if news.is_part else news.operations)

    def _take(self, came: Sequence[Operation]) -> None:
        """Count new operations in the figures, or read these again; empty: they are unknown."""
        board = self.board.with_internal(came) if self.board and came else None
        if board is not None:
            self.board = board
            self._draw_status_line()
            return
        self._stale = True
        self._catch_up()

    def _catch_up(self) -> None:
        if not self.is_mounted or self._sql.display or self._resting or self.reads.busy:
            return
        if self._stale:
            self.reload()

    def _rest(self, seconds: float) -> None:
        def rested() -> None:
            self._resting = False
            self._catch_up()

        self._resting = True
        self.set_timer(max(_REST_SECONDS, _REST * seconds), rested)

    def _question(self) -> Question:
        chosen, zone, now = self.state.log_filter, self.state.zone_name, self.state.clock()
        span = span_of(self.period, chosen, now, zone)
        bare = chosen.model_copy(
            update={"since": None, "until": None, "topic": None, "tag": None, "kind": None}
        )
        return Question(bare, span, self.bucket, self.hit_sign, zone, now)

    def _show(self, board: Board) -> None:
        self.board = board
        self.plots = plots_of(board) if board.stats.operation_count else ()
        self._grid.show([plot.chart for plot in self.plots])
        self._draw_status_line()
        if not self.plots:
            self._hide("empty", *self._nothing(board.question))
            return
        self._unhide()
        self._draw_figures()
        self._read_groups(board)
        if self.focused is None and not self._sql.display:
            self.set_focus(self._left or self._grid)

    def _nothing(self, question: Question) -> tuple[str, str]:
        if question.chosen == Filter() and not question.span.filtered:
            if self.period is Period.ALL:
                return (
                    "No operations yet.",
                    "Reads and changes of records are counted here; press 3 and ask something.",
                )
            return f"Nothing happened in the last {self.period.words}.", "[ looks further back."
        return (
            "No operation matches.",
            "/ changes the filter, ctrl+l clears it, s widens the scope, [ looks further back.",
        )

    def _broken(self, error: MemtuiError) -> None:
        self.board = None
        self._stale = not self.is_current
        self._draw_status_line()
        self._hide("error", str(error), "r adds up again, 2 shows the operations one by one.")

    def _hide(self, state: State, title: str, hint: str) -> None:
        if self.focused in (self._grid, self._table):
            self._left = self.focused
            self.set_focus(None)
        self.query_one("#analytics-split").display = False
        self.query_one("#analytics-notice", Notice).show(state, title, hint)

    def _unhide(self) -> None:
        self.query_one("#analytics-notice", Notice).hide()
        self.query_one("#analytics-split").display = True

    def _read_groups(self, board: Board) -> None:
        session, dimension = self.session, self.dimension
        if dimension == "binding":
            self._grouping.forget()
            self._show_groups(board.stats.bindings)
            return
        self._grouping.latest(
            lambda: read_groups(session, board, dimension), self._show_groups, self._no_groups
        )

    def _show_groups(self, found: tuple[FigureGroup, ...]) -> None:
        groups = sorted(found, key=lambda one: -one.operation_count)
        self._groups.replace(groups)
        self._table.columns = tuple(group_columns(groups, self.dimension))
        self._table.notice = ("Nothing to group.",)
        self._order()
        self._draw_figures()

    def _no_groups(self, error: MemtuiError) -> None:
        self._groups.replace(())
        self._table.notice = (f"✗ {error}", "r adds up again.")
        self._table.rows_changed()

    # Drawing.

    def watch_state(self, before: AppState, now: AppState) -> None:
        """Show how many memories are risky, once they were looked through."""
        super().watch_state(before, now)
        if before.risks != now.risks and self.is_mounted:
            self._draw_figures()

    def _how(self, width: int) -> Content:
        """Return period, bucket and dimension with their keys; further keys if they fit `width`."""
        question, keys = self._question(), self.state.keymap

        def part(words: str, action: str) -> Content:
            return line(display(words, style=STRONG), display(keys.label(action), style=DIM))

        if question.span.filtered:
            time = display("the filtered period", style=STRONG)
        else:
            words = "all time" if self.period is Period.ALL else f"last {self.period.words}"
            time = part(words, "analytics.period")
        chart = None
        if self._grid.page_lines < len(self.plots):
            place = f"chart {self._grid.chosen + 1} of {len(self.plots)}"
            chart = key_hint(keys.label("list.down") + keys.label("list.up"), place)
        cut = line(
            time,
            part(f"by {self.bucket}", "analytics.bucket"),
            part(f"by {words_of(self.dimension)}", "analytics.dimension"),
            chart,
            display(question.zone, style=DIM),
            gap="  ",
        )
        hints = line(
            cut,
            key_hint(keys.label("analytics.earlier") + keys.label("analytics.later"), "bar"),
            key_hint(keys.label("analytics.large"), "large"),
            key_hint(keys.label("list.open"), "operations"),
            gap="  ",
        )
        return hints if hints.cell_length <= width else cut

    def _draw_figures(self) -> None:
        figures = self.query_one("#figures", Fitted)
        if self.board is None:
            self._drawn = None
            figures.fit(Content(""))
            return
        selected, sign = self._selected(self.board), self.board.stats.hit_sign
        short = self.has_class("-short")
        drawn = (selected, sign, short)
        if drawn != self._drawn:
            self._drawn = drawn
            figures.fit(lambda width: figures_content(selected, sign, width, short=short))

    def _selected(self, board: Board) -> Selected:
        group, bucket = self._table.current, self._bucket
        if self._of_group and group is not None:
            name, note = name_of(group)[:_LONGEST_NAME], words_of(dimension_of(group))
            return Selected(name, group, note, "operations")
        if bucket is not None and bucket.begins is not None:
            name = bucket_words(board.question.bucket, bucket.begins)
            return Selected(name, bucket, hint="operations")
        whole = f"Totals for the last {self.period.words}, {board.question.span.words}"
        if self.period is Period.ALL:
            whole = "Totals for all time"
        if board.question.span.filtered:
            whole = "Totals for the filtered period"
        hint = "operations" if self._grid.large else "large"
        known = self.state.risks if board.question.chosen == Filter() else None
        risks = totals(known[1]) if known and known[1].records else ""
        return Selected(whole, board.stats, hint=hint, risks=risks)

    @property
    def _bucket(self) -> FigureGroup | None:
        place, board = self._grid.bucket, self.board
        return board.buckets[place] if board and place is not None else None

    @on(ChartGrid.Moved)
    def _moved(self) -> None:
        self.set_class(self._grid.large, "-large")
        self._draw_figures()
        self._draw_status_line()

    @on(Highlighted, "#group-list")
    def _highlighted(self) -> None:
        self._draw_figures()

    @on(DescendantFocus, "#chart-grid, #group-list")
    def _focused(self, event: DescendantFocus) -> None:
        self._of_group = event.widget is self._table
        self._draw_figures()

    @on(SortAsked, "#group-list")
    def _sort(self, event: SortAsked) -> None:
        column, descending = self._table.sort or ("", False)
        turned = event.column == column
        self._table.sort = (event.column, not descending if turned else event.column != "name")
        self._order()

    def _order(self) -> None:
        column, descending = self._table.sort or ("operations", True)
        self._groups.order(self._table.column(column).rank, descending=descending)
        self._table.rows_changed()

    # From figures to operations.

    @on(ChartGrid.Opened)
    def _open_chart(self) -> None:
        board, bucket = self.board, self._bucket
        if board is None:
            return
        if bucket is None and not self._grid.large:
            self._grid.turn_large()
            return
        plot, bucket = self.plots[self._grid.chosen], bucket or FigureGroup()
        if plot.where:
            narrowed = filter_of_bucket(board.question.filter, bucket, plot.about)
            self._ask_in_sql(partial(statement_of, plot.where, narrowed))
        else:
            self._go_to(filter_of_bucket(self._chosen(board), bucket, plot.about))

    @on(Opened, "#group-list")
    def _open_group(self) -> None:
        board, group = self.board, self._table.current
        if board is None or group is None:
            return
        narrowed = filter_of_group(self._chosen(board), group)
        if narrowed is None:
            self._ask_in_sql(partial(statement_of_group, group, board.question.filter))
        else:
            self._go_to(narrowed)

    def _ask_in_sql(self, statement: Callable[[], str]) -> None:
        try:
            self._sql.editor.put(statement())
        except Invalid as error:  # SQL has no risks of records
            self.toast(str(error), severity="warning")
            return
        self.toast("The filter line has no word for that, so here it is in SQL.")
        self._turn(sql=True)
        self._sql.run_statement()

    def _chosen(self, board: Board) -> Filter:
        """Return the filter of the filter line with the board's time range; without the scope."""
        span = {"since": board.question.span.since, "until": board.question.span.until}
        return self.state.filter.model_copy(update=span)

    def _go_to(self, chosen: Filter) -> None:
        line = format_filter(chosen, self.state.zone or UTC)
        self.post_message(GoTo("operations", filter_line=line))

    # Keys of the charts.

    def action_period(self, by: int = 1) -> None:
        """Show a longer period."""
        chosen = self.state.log_filter
        if chosen.since or chosen.until:
            said = "The filter says since when or until when; ctrl+l clears it."
            self.toast(said, severity="warning")
            return
        self.period = self.period.step(by)
        self._cut(self.period.bucket)

    def action_shorter(self) -> None:
        """Show a shorter period."""
        self.action_period(-1)

    def action_insights(self) -> None:
        """Show the insights into memories."""
        from memtui.screens.insights import Insights

        self.talk(self.visit(Insights(self.state)))

    def action_bucket(self) -> None:
        """Use a longer bucket; after the longest comes the shortest."""
        filtered = self._question().span.filtered
        buckets = tuple(Bucket) if filtered else self.period.buckets
        place = buckets.index(self.bucket) if self.bucket in buckets else -1
        self._cut(buckets[(place + 1) % len(buckets)])

    def _cut(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self._grid.bucket = None
        self.load()

    async def action_dimension(self) -> None:
        """Choose the dimension of the table."""
        choices = [
            Choice(name, words_of(name), "now" if name == self.dimension else "")
            for name in DIMENSIONS
        ]
        name = await self.ask(Choose("Group by", choices, now=self.dimension))
        if name is not None:
            self.dimension = name
            self._draw_status_line()
            if self.board is not None:
                self._read_groups(self.board)

    def action_hits(self) -> None:
        """Switch the sign that counts as a hit."""
        shown = self.board.stats.hit_sign if self.board else self.hit_sign
        self.hit_sign = HitSign.SCORE if shown is HitSign.USED else HitSign.USED
        self.load()

    def action_large(self) -> None:
        """Show the chosen chart alone, or all again; in SQL, draw the result or list its rows."""
        if self._sql.display:
            self._sql.turn_charts()
            return
        self.set_focus(self._grid)
        self._grid.turn_large()

    # Keys of SQL.

    def action_input(self) -> None:
        """Focus the SQL editor."""
        self.set_focus(self._sql.editor)

    def action_saved(self) -> None:
        """Open a saved or earlier statement."""
        self._sql.editor.action_saved()

    def action_views(self) -> None:
        """Show the views and their columns."""
        self._sql.editor.action_views()

    # Keys of both.

    def action_half(self) -> None:
        """Switch between charts and SQL."""
        self._turn(sql=not self._sql.display)

    def _turn(self, *, sql: bool) -> None:
        self._show_half(sql=sql)
        self._catch_up()
        self.set_focus(None)
        self.focus_body()

    def action_earlier(self) -> None:
        """Select the previous bar, or scroll the columns to the left."""
        self._move(-1)

    def action_later(self) -> None:
        """Select the next bar, or scroll the columns to the right."""
        self._move(1)

    def _move(self, by: int) -> None:
        if self._sql.display:
            self._sql.shift_columns(by)
        else:
            self._grid.focus()
            self._grid.move_bucket(by)

    def action_back(self) -> None:
        """Stop a statement, clear the selected bar, show all charts again, or clear the filter."""
        if self._sql.display:
            if not self._sql.back():
                self.drop_filter()
        elif self.focused not in {None, self._grid}:  # nothing has the focus without figures
            self._grid.focus()
        elif not self._grid.back():
            self.drop_filter()

    def action_run(self) -> None:
        """Run the statement, or read the figures again."""
        if self._sql.display:
            self._sql.run_statement()
        else:
            self.load()

    def action_copy(self) -> None:
        """Copy the selected figures, or the row of the result, as JSON."""
        if self._sql.display:
            self.copy(self._sql.row_text(), "Copied the row.")
        elif self.board is None:
            raise NotFound("There are no figures to copy yet.")
        else:
            selected = self._selected(self.board)
            figures = selected.figures.model_dump(mode="json", exclude={"bindings", "groups"})
            self.copy(json.dumps(figures, indent=1), f"Copied the figures of {selected.title}.")

    async def action_export(self) -> None:
        """Ask for a file, and export the shown figures or result to it."""
        title, table = self._exported()
        strips = [self._grid.render_line(y) for y in range(self._grid.size.height)]
        company = visible(f"memtui: {self.session.company.name}", limit=80)

        async def write(path: Path, *, overwrite: bool) -> str:
            if path.suffix.lower() == ".svg":
                await asyncio.to_thread(files.write_svg, path, strips, company, overwrite=overwrite)
                return f"Wrote the charts to {path}."
            await asyncio.to_thread(files.write_table, path, table, overwrite=overwrite)
            return f"Wrote {fmt.counted(len(table.rows), 'row')} to {path}."

        kinds = _TABLES if self._sql.display else (*_TABLES, "svg")
        await export(self, title, "memtui.csv", kinds, write)

    def _exported(self) -> tuple[str, files.Table | SqlAnswer]:
        """Return the question and the table of an export."""
        if self._sql.display:
            if self._sql.result is None:
                raise NotFound("There is no result to export; ctrl+r runs the statement.")
            count = fmt.counted(len(self._sql.result.rows), "row")
            return f"Export {count} to", self._sql.result
        if self.board is None:
            raise NotFound("There are no figures to export yet.")
        if self._of_group:
            groups = [one for _, one in self._groups.held()]
            by = words_of(self.dimension)
            return f"Export the figures by {by} to", files.figures_table(groups)
        return f"Export the figures by {self.bucket} to", files.figures_table(self.board.buckets)
