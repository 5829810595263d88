"""The charts of the Analytics screen: what a person can do to them."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC
from pathlib import Path

from textual import on

from memtui.analytics.figures import Bucket, Group, HitSign
from memtui.contract import Filter, NotFound
from memtui.filters import format_filter
from memtui.screens.analytics import files
from memtui.screens.analytics.board import DIMENSIONS, Board
from memtui.screens.analytics.chart_grid import ChartGrid
from memtui.screens.analytics.charts_body import ChartsBody
from memtui.screens.analytics.drill import (
    filter_of_bucket,
    filter_of_group,
    statement_of,
    statement_of_group,
)
from memtui.screens.analytics.messages import StatementGiven, Told
from memtui.screens.base import frame_of
from memtui.screens.dialogs import Choice, Choose
from memtui.screens.exports import Writer
from memtui.screens.state import GoTo
from memtui.visible import visible
from memtui.widgets import format as fmt
from memtui.widgets.virtual_list import Opened


class ChartsHalf(ChartsBody):
    """The figures of the log, to be cut, grouped, opened and written to files."""

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
            self.post_message(Told())
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
