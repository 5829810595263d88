"""The charts of the Analytics screen: figures, table, and what a person can do to them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.content import Content
from textual.events import DescendantFocus
from textual.message import Message
from textual.widget import Widget

from memtui.analytics.figures import Bucket, Group, HitSign
from memtui.contract import Filter, MemtuiError, NotFound
from memtui.filters import format_filter
from memtui.screens.analytics import files
from memtui.screens.analytics.board import (
    DIMENSIONS,
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
    GroupRows,
    filter_of_bucket,
    filter_of_group,
    group_columns,
    name_of,
    sort_key,
    statement_of,
    statement_of_group,
)
from memtui.screens.analytics.plots import Plot, Selected, figures_content, plots_of
from memtui.screens.base import frame_of
from memtui.screens.dialogs import Choice, Choose
from memtui.screens.exports import Writer
from memtui.screens.list_screen import choose_columns
from memtui.screens.state import GoTo
from memtui.visible import visible
from memtui.widgets import format as fmt
from memtui.widgets.background import Background
from memtui.widgets.detail_lines import key_hint
from memtui.widgets.display import DIM, STRONG, display, line
from memtui.widgets.panes import DetailPane, Fitted, Notice, State
from memtui.widgets.virtual_list import ColumnsAsked, Highlighted, Opened, SortAsked, VirtualList


@dataclass
class StatementGiven(Message):
    """A statement for the editor, which a person may run."""

    statement: str


class StatusChanged(Message):
    """What a half says of itself in the screen's own lines changed."""


_LONGEST_NAME = 200


class ChartsHalf(Container):
    """Reads the figures of what filter and scope let through, and shows them."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self.period = Period.MONTH
        self.bucket = Period.MONTH.bucket
        self.dimension = "binding"
        self.hit_sign: HitSign | None = None
        self.board: Board | None = None
        self.plots: tuple[Plot, ...] = ()
        self.groups: tuple[Group, ...] = ()
        self.count = ""
        self._rows = GroupRows()
        self._of_group = False
        self._left: Widget | None = None
        """What had the focus before it was hidden."""
        self._reading = Background(self, "analytics-board")
        self._grouping = Background(self, "analytics-groups")

    def compose(self) -> ComposeResult:
        """Lay out charts, table and figures."""
        yield Notice(id="analytics-notice")
        with Container(id="analytics-split"):
            yield ChartGrid(id="chart-grid")
            with Vertical(id="analytics-side"):
                table: VirtualList[Group] = VirtualList(
                    group_columns(self._rows), self._rows, name="group-list"
                )
                table.sort = ("operations", True)
                yield table
                with DetailPane(id="figures-pane"):
                    yield Fitted(id="figures")

    @property
    def _grid(self) -> ChartGrid:
        return self.query_one(ChartGrid)

    @property
    def _table(self) -> VirtualList[Group]:
        found: VirtualList[Group] = self.query_one("#group-list", VirtualList)
        return found

    # Reading.

    def forget(self) -> None:
        """Let go of the figures, which are another company's."""
        self.board, self.groups = None, ()
        self._rows.fill((), self.dimension)
        self._table.show(self._rows)
        self._grid.show(())

    def on_resize(self) -> None:
        """Say the figures in more lines, or in fewer."""
        self._draw_figures()
        self.post_message(StatusChanged())

    def load(self) -> None:
        """Read the figures; charts of another question go at once."""
        question, session = self._question(), frame_of(self).session
        if self.board is None or self.board.question.filter != question.filter:
            self._hide("loading", "Adding up", "The first look at a long log takes longest.")
        self._grouping.forget()
        self._reading.latest(lambda: read_board(session, question), self._show, self._broken)
        self.post_message(StatusChanged())

    def _question(self) -> Question:
        state = frame_of(self).state
        zone, now = state.zone_name, state.clock()
        chosen = state.log_filter
        span = span_of(self.period, chosen, now, zone)
        bare = chosen.model_copy(
            update={"since": None, "until": None, "topic": None, "tag": None, "kind": None}
        )
        return Question(bare, span, self.bucket, self.dimension, self.hit_sign, zone, now)

    def _show(self, board: Board) -> None:
        self.board = board
        found = board.stats.operation_count
        self.count = fmt.counted(found, "operation")
        self.plots = plots_of(board) if found else ()
        self._grid.show([plot.chart for plot in self.plots])
        self.post_message(StatusChanged())
        if not found:
            self._hide("empty", *self._nothing(board.question))
            return
        self.query_one(Notice).hide()
        self.query_one("#analytics-split").display = True
        self._draw_figures()
        self._read_groups(board)
        if frame_of(self).focused is None and self.display:
            frame_of(self).set_focus(self._left or self._grid)

    def _nothing(self, question: Question) -> tuple[str, str]:
        if question.chosen == Filter() and not question.span.filtered:
            if self.period is Period.ALL:
                return (
                    "No operations yet.",
                    "What reads or changes a memory is counted here; press 3 and ask something.",
                )
            return f"Nothing happened in the last {self.period.words}.", "p looks further back."
        return (
            "No operation matches.",
            "/ changes the filter, ctrl+l takes it away, s widens the scope, p looks further back.",
        )

    def _broken(self, error: MemtuiError) -> None:
        self.board = None
        self.count = ""
        self.post_message(StatusChanged())
        self._hide("error", str(error), "r adds up again, 2 shows the operations one by one.")

    def _hide(self, state: State, title: str, hint: str) -> None:
        focused = frame_of(self).focused
        if focused in (self._grid, self._table):
            self._left = focused
            frame_of(self).set_focus(None)
        self.query_one("#analytics-split").display = False
        self.query_one(Notice).show(state, title, hint)

    def _read_groups(self, board: Board) -> None:
        question = replace(board.question, dimension=self.dimension, hit_sign=board.stats.hit_sign)
        session = frame_of(self).session
        self._grouping.latest(
            lambda: read_groups(session, question),
            lambda groups: self._show_groups(groups, question.dimension),
            self._no_groups,
        )

    def _show_groups(self, groups: tuple[Group, ...], dimension: str) -> None:
        self.groups = groups
        self._rows.fill(groups, dimension)
        table = self._table
        table.columns = tuple(group_columns(self._rows))
        self._order()
        table.notice = ("Nothing to group.",)
        table.show(self._rows)
        self._draw_figures()

    def _no_groups(self, error: MemtuiError) -> None:
        self.groups = ()
        self._rows.fill((), self.dimension)
        self._table.notice = (f"✗ {error}", "r adds up again.")
        self._table.show(self._rows)

    # Drawing.

    def how(self, width: int) -> Content:
        """Return how the figures are cut, in `width` cells; the keys that use them if they fit."""
        question, keys = self._question(), frame_of(self).state.keymap

        def part(words: str, action: str) -> Content:
            return line(display(words, style=STRONG), display(keys.label(action), style=DIM))

        span = question.span
        if span.filtered:
            time = display("the time of the filter", style=STRONG)
        elif self.period is Period.ALL:
            time = part("all time", "analytics.period")
        else:
            time = part(f"last {self.period.words}", "analytics.period")
        chart = ""
        if self._grid.page_lines < len(self.plots):
            chart = f"chart {self._grid.chosen + 1} of {len(self.plots)}"
        cut = line(
            time,
            part(f"by {self.bucket}", "analytics.bucket"),
            part(f"by {self.dimension.replace('_', ' ')}", "analytics.dimension"),
            key_hint(keys.label("list.down") + keys.label("list.up"), chart) if chart else None,
            display(question.zone, style=DIM),
            gap="  ",
        )
        bars = keys.label("analytics.earlier") + keys.label("analytics.later")
        hints = line(
            cut,
            key_hint(bars, "bar"),
            key_hint(keys.label("analytics.large"), "large"),
            key_hint(keys.label("list.open"), "operations"),
            gap="  ",
        )
        return hints if hints.cell_length <= width else cut

    def _draw_figures(self) -> None:
        board = self.board
        if board is None:
            return
        selected, sign = self._selected(board), board.stats.hit_sign
        short = frame_of(self).has_class("-short")
        self.query_one("#figures", Fitted).fit(
            lambda width: figures_content(selected, sign, width, short=short)
        )

    def _selected(self, board: Board) -> Selected:
        hint = "operations"
        if self._of_group and self._group is not None:
            name = name_of(self._group, self._rows.dimension)[:_LONGEST_NAME]
            note = self._rows.dimension.replace("_", " ")
            return Selected(name, self._group, note, hint)
        bucket = self._bucket
        if bucket is not None and bucket.begins is not None:
            return Selected(bucket_words(board.question.bucket, bucket.begins), bucket, hint=hint)
        whole = "All time" if self.period is Period.ALL else f"The last {self.period.words}"
        if board.question.span.filtered:
            whole = "The time of the filter"
        wanted = hint if self._grid.large else "large"
        return Selected(whole, board.stats, "together", wanted)

    @property
    def _bucket(self) -> Group | None:
        place, board = self._grid.bucket, self.board
        return board.buckets[place] if board and place is not None else None

    @property
    def _group(self) -> Group | None:
        return self._table.current

    @on(ChartGrid.Moved)
    def _moved(self) -> None:
        self._of_group = False
        self._draw_figures()
        self.post_message(StatusChanged())

    @on(Highlighted)
    def _highlighted(self) -> None:
        if self._table.has_focus:
            self._of_group = True
            self._draw_figures()

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Show the figures of what has the focus."""
        if event.widget in (self._grid, self._table):
            self._of_group = event.widget is self._table
            self._draw_figures()

    @on(SortAsked)
    def _sort(self, event: SortAsked) -> None:
        shown = self._table.sort
        same = shown is not None and shown[0] == event.column
        descending = not shown[1] if same and shown else event.column != "name"
        self._table.sort = (event.column, descending)
        self._order()
        self._table.rows_changed()

    def _order(self) -> None:
        column, descending = self._table.sort or ("operations", True)
        self._rows.order(sort_key(column, self._rows.dimension), descending=descending)

    @on(ColumnsAsked)
    def _choose_columns(self) -> None:
        choose_columns(frame_of(self), self._table)

    # What a person does.

    def turn_period(self, by: int) -> None:
        """Look at a longer or shorter stretch of time."""
        chosen = frame_of(self).state.log_filter
        if chosen.since or chosen.until:
            frame_of(self).toast(
                "The filter says since when or until when; ctrl+l takes it away.",
                severity="warning",
            )
            return
        self.period = self.period.step(by)
        self.bucket = self.period.bucket
        self._again()

    def turn_bucket(self) -> None:
        """Cut time into longer pieces; after the longest come the shortest."""
        filtered = self._question().span.filtered
        buckets = tuple(Bucket) if filtered else self.period.buckets
        place = buckets.index(self.bucket) if self.bucket in buckets else -1
        self.bucket = buckets[(place + 1) % len(buckets)]
        self._again()

    def _again(self) -> None:
        self._grid.bucket = None
        self.load()

    def turn_sign(self) -> None:
        """Count hits by the next sign."""
        shown = self.board.stats.hit_sign if self.board else self.hit_sign
        self.hit_sign = HitSign.SCORE if shown is HitSign.USED else HitSign.USED
        self.load()

    def choose_dimension(self) -> None:
        """Choose what the table groups by."""
        choices = [
            Choice(name, name.replace("_", " "), "now" if name == self.dimension else "")
            for name in DIMENSIONS
        ]
        self.app.push_screen(Choose("Group by", choices), self._use_dimension)

    def _use_dimension(self, name: str | None) -> None:
        if name is not None:
            self.dimension = name
            self.post_message(StatusChanged())
            if self.board is not None:
                self._read_groups(self.board)

    def turn_large(self) -> None:
        """Show the chosen chart alone, or all again."""
        self._grid.turn_large()

    def move(self, by: int) -> None:
        """Select a later bucket, or an earlier one."""
        self._grid.focus()
        self._grid.move_bucket(by)

    def back(self) -> None:
        """Take the selection away, or show all charts again."""
        if not self._grid.has_focus:
            self._grid.focus()
        else:
            self._grid.back()

    @on(ChartGrid.Opened)
    def _open_chart(self) -> None:
        board, bucket = self.board, self._bucket
        if board is None:
            return
        if bucket is None and not self._grid.large:
            self._grid.turn_large()
            return
        plot, bucket = self.plots[self._grid.chosen], bucket or Group()
        if plot.where:
            narrowed = filter_of_bucket(board.question.filter, bucket, plot.about)
            self._ask_in_sql(statement_of(plot.where, narrowed))
        else:
            self._go_to(filter_of_bucket(self._chosen(board), bucket, plot.about))

    @on(Opened)
    def _open_group(self) -> None:
        board, group = self.board, self._group
        if board is None or group is None:
            return
        dimension = self._rows.dimension
        narrowed = filter_of_group(self._chosen(board), group, dimension)
        if narrowed is None:
            self._ask_in_sql(statement_of_group(group, dimension, board.question.filter))
        else:
            self._go_to(narrowed)

    def _ask_in_sql(self, statement: str) -> None:
        frame_of(self).toast("The filter line has no word for that, so here it is in SQL.")
        self.post_message(StatementGiven(statement))

    def _chosen(self, board: Board) -> Filter:
        """Return the filter line's own filter in the stretch of time; the scope stays as it is."""
        span = {"since": board.question.span.since, "until": board.question.span.until}
        return frame_of(self).state.filter.model_copy(update=span)

    def _go_to(self, chosen: Filter) -> None:
        zone = frame_of(self).state.zone or UTC
        frame_of(self).post_message(GoTo("operations", filter_line=format_filter(chosen, zone)))

    # Files.

    def copy(self) -> None:
        """Copy the selected figures as JSON."""
        if self.board is None:
            raise NotFound("There are no figures to copy yet.")
        selected = self._selected(self.board)
        figures = selected.figures.model_dump(mode="json", exclude={"bindings", "groups"})
        frame_of(self).copy(
            json.dumps(figures, indent=1),
            f"Copied the figures of {selected.title}.",
        )

    @property
    def export_words(self) -> str:
        """What an export would hold."""
        if self.board is None:
            raise NotFound("There are no figures to export yet.")
        if self._of_group:
            return f"Export the figures by {self._rows.dimension.replace('_', ' ')} to"
        return f"Export the figures by {self.bucket} to"

    def writer(self, path: Path) -> Writer:
        """Return what writes the figures that are shown, or the charts for an SVG."""
        if path.suffix.lower() == ".svg":
            grid = self._grid
            strips = [grid.render_line(y) for y in range(grid.size.height)]
            title = visible(f"memtui: {frame_of(self).session.company.name}", limit=80)

            async def picture(*, overwrite: bool) -> str:
                text = await asyncio.to_thread(files.svg_of, strips, title)
                await asyncio.to_thread(files.write_text, path, text, overwrite=overwrite)
                return f"Wrote the charts to {path}."

            return picture
        if self.board is None:
            raise NotFound("There are no figures to export yet.")
        table = files.figures_table(self.groups if self._of_group else self.board.buckets)

        async def figures(*, overwrite: bool) -> str:
            rows = await asyncio.to_thread(files.write_table, path, table, overwrite=overwrite)
            return f"Wrote {fmt.counted(rows, 'row')} to {path}."

        return figures
