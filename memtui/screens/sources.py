"""The sources of recent writes, a modal screen: runs, issues, comments, documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from memtui.contract import Filter, OperationType, SourceKind
from memtui.filters import format_filter
from memtui.presenters import format as fmt
from memtui.screens.following import News
from memtui.screens.modal import ModalListScreen
from memtui.screens.open_source import open_source
from memtui.screens.state import AppState, GoTo
from memtui.widgets.columns import Column, by_cell
from memtui.widgets.detail_lines import joined, labelled, moment
from memtui.widgets.display import DIM, STRONG, display, line, lines

if TYPE_CHECKING:
    from memtui.service.answers import WriteSource

_MOST = 500
_HINT = "agent:coding since:7d channel:hook; empty: all   enter filter   esc go back"


class Sources(ModalListScreen["WriteSource"]):
    """Lists the sources of writes, the latest first; `enter` shows a source's records."""

    ACTION_GROUP = "sources"
    NOUN = "source"
    READING = "Reading the sources …"
    FILTERS = ("List the sources of matching writes", _HINT)

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self.chosen = state.log_filter

    def columns(self) -> list[Column[WriteSource]]:
        """Return the columns of the list."""
        clock = self.state.clock
        return [
            Column("when", "when", lambda one: fmt.ago(one.last_at, clock()), 6, "right", keep=95,
                   tone="muted"),
            Column("source", "source", lambda one: fmt.write_source(one.source, one.run_id), 16,
                   flexible=True, keep=100),
            Column("records", "records", lambda one: fmt.count(one.records), 7, "right", keep=90),
            Column("agent", "agent", lambda one: one.agent_id, 9, flexible=True, keep=82),
            Column("by", "by", lambda one: by_cell(one.principal, one.agent_id), 10, flexible=True,
                   keep=80),
            Column("channel", "through", lambda one: one.channel, 7, keep=60),
            Column("binding", "binding", lambda one: one.binding_key, 9, keep=40),
        ]  # fmt: skip

    def key(self, row: WriteSource) -> str:
        """Return the id of its last write."""
        return row.operation_id

    def draw_head(self) -> Content:
        """Return the title, the number of sources, and the filter."""
        count = self.rows.loaded
        number = f"{fmt.count(count)}+ sources" if count == _MOST else fmt.counted(count, "source")
        shown = display(number, style=STRONG) if count else None
        return lines([line("sources of writes", shown, gap="   "), *self.narrowed()])

    def detail(self, row: WriteSource, width: int) -> Content:
        """Return the details of a source."""
        now, zone = self.state.clock(), self.state.zone
        named = row.source.model_dump(exclude_none=True, exclude={"company_id"})
        return joined(
            [
                [display(fmt.write_source(row.source, row.run_id), limit=300, style=STRONG)],
                [labelled(name.removesuffix("_id").replace("_", " "), str(value))
                 for name, value in named.items()],
                [
                    labelled("wrote", f"{fmt.counted(row.records, 'record')} in "
                                      f"{fmt.counted(row.writes, 'write')}"),
                    labelled("from", moment(row.first_at, now, zone)),
                    labelled("to", moment(row.last_at, now, zone)),
                ],
                [
                    display("the last write", style=DIM),
                    labelled("by", fmt.done_by(row.principal, row.channel)),
                    labelled("agent", row.agent_id),
                    labelled("run", row.run_id),
                    labelled("binding", row.binding_key),
                ],
            ],
            width,
        )  # fmt: skip

    def happened(self, news: News) -> None:
        """Read the list again after a write."""
        if news.is_part or any(o.operation_type is OperationType.WRITE for o in news.operations):
            self.load()

    async def read(self) -> tuple[WriteSource, ...]:
        """Read the list."""
        return await self.service.log.sources(self.caller, self.chosen, limit=_MOST)

    def nothing(self) -> tuple[str, str]:
        """Return the notice if there are no writes."""
        if self.chosen == Filter():
            return "Nothing was written yet.", "esc goes back."
        return "No write passes the filter.", "/ changes it, esc goes back."

    def open_row(self) -> None:
        """Show the records from the source."""
        self.action_records()

    def action_records(self) -> None:
        """Show the records from the source."""
        one = self.row
        self.post_message(GoTo("records", filter_line=_of(one), binding_key=one.binding_key))

    def action_operations(self) -> None:
        """Show its writes in Operations."""
        self.post_message(GoTo("operations", filter_line=f"{_of(self.row)} type:write"))

    async def action_trace(self) -> None:
        """Show the trace of all records that were written from the source."""
        from memtui.screens.traces import TraceScreen

        source = self.row.source
        of = _chosen(self.row), source.external_ref or ""
        what = fmt.write_source(source, self.row.run_id)
        await self.visit(TraceScreen(self.state, of, what))

    def action_open(self) -> None:
        """Open the source."""
        open_source(self, self.row.source)

    def action_copy(self) -> None:
        """Copy the source."""
        self.copy(fmt.write_source(self.row.source, self.row.run_id), "Copied the source.")


def _of(one: WriteSource) -> str:
    """Return the narrowest filter line for a source."""
    return format_filter(_chosen(one))


def _chosen(one: WriteSource) -> Filter:
    source = one.source
    ids = {name: getattr(source, name) for name in ("issue_id", "comment_id", "run_id")}
    chosen = Filter(source_kind=source.kind, **ids)
    if source.kind is SourceKind.RUN:
        chosen = Filter(run_id=source.run_id)
    elif source.kind is SourceKind.MANUAL_NOTE:
        chosen = Filter(source_kind=source.kind, run_id=one.run_id)
    return chosen
