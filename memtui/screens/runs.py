"""The runs of agents over a numbered screen: all of them, or those that were told a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import BindingType
from textual.content import Content

from memtui.contract import Filter, MemtuiError, NotFound, RecordHandle
from memtui.filters import format_filter
from memtui.screens.base import conversation
from memtui.screens.modal import ModalListScreen, show_over
from memtui.screens.replay import ReplayScreen
from memtui.screens.state import GoTo
from memtui.widgets import format as fmt
from memtui.widgets import runs as words
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import Line, joined, labelled, moment
from memtui.widgets.display import DIM, STRONG, WARN, display, line, lines
from memtui.widgets.keys import bindings_for
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import Opened, PagesWanted, VirtualList

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, tzinfo

    from memtui.screens.following import News
    from memtui.screens.state import AppState
    from memtui.service.runs import Run, RunPage

RecordAt = tuple[str, RecordHandle, str]
"""The key of a binding, a record there, and its text."""

_PAGE = 100
_HINT = "agent:coding since:7d type:write; empty: all   enter filter   esc go back"


class RunsScreen(ModalListScreen["Run"]):
    """List runs, the last to do something first; `enter` replays one."""

    ACTION_GROUP = "runs"
    NOUN = "run"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("runs")

    def __init__(self, state: AppState, told: RecordAt | None = None) -> None:
        """Set it up; `told` is a record: only runs that were told it or got it."""
        super().__init__(state)
        self._told = told
        self._filter = Filter() if told else state.log_filter
        self._total: int | None = None
        self._before: int | None = None
        self._rows: AppendedRows[Run] = AppendedRows(lambda one: one.run_id)

    def make_list(self) -> VirtualList[Run]:
        """Return the list."""
        return VirtualList(columns(self.state.clock), self._rows, name="run-list")

    @property
    def _run(self) -> Run:
        """The run under the cursor; raises `NotFound` where there is none."""
        if (run := self.rows_list.current) is None:
            raise NotFound(self.none_selected)
        return run

    def draw_head(self, width: int) -> Content:
        """Return which runs these are, and how many."""
        del width
        number = "" if self._total is None else fmt.counted(self._total, "run")
        what = line("runs of agents", display(number, style=STRONG), gap="   ")
        if self._told is not None:
            text = display(" ".join(self._told[2].split()), limit=200, style=STRONG)
            what = line("runs that were told", text, display(number, style=DIM), gap="   ")
        narrowed = self.line_of(self._filter)
        only = display(f"only: {narrowed}", limit=300, style=WARN) if narrowed else None
        return lines([what, only] if only else [what])

    def draw_row(self, width: int) -> Content:
        """Return the run under the cursor."""
        return run_content(self.rows_list.current, self.state.clock(), self.state.zone, width)

    def refusal(self, verb: str) -> str:
        """Return why an action cannot run now."""
        needs_run = verb in {"replay", "operations", "copy"}
        return self.none_selected if needs_run and self.rows_list.current is None else ""

    def on_mount(self) -> None:
        """Read the first page."""
        self.action_read()

    def action_read(self) -> None:
        """Read the runs again."""
        self.rows_list.notice = ("Reading the runs …",)
        self._read(None, self._show)

    def happened(self, news: News) -> None:
        """Read the runs again where one of them went on, unless a person looks further down."""
        went_on = news.is_part or any(one.scope.run_id for one in news.operations)
        if went_on and self._rows.loaded <= _PAGE:
            self._read(None, self._show)

    def _read(self, before: int | None, show: Callable[[RunPage], None]) -> None:
        session = self.session
        told = (self._told[0], self._told[1].provider_record_id) if self._told else None
        chosen = self._filter
        self.reads.latest(
            lambda: session.service.runs.page(
                session.caller, chosen, told=told, limit=_PAGE, before=before
            ),
            show,
            self._not_read,
        )

    def _show(self, page: RunPage) -> None:
        self._total, self._before = page.total, page.next_before
        self._rows.replace(page.runs, more=page.next_before is not None)
        self.rows_list.notice = self._why_none()
        self.rows_list.rows_changed()
        self.draw()

    def _why_none(self) -> tuple[str, str]:
        if self._told is not None:
            return "No run was told this record, or got it.", "esc goes back."
        if self._filter != Filter():
            return "No run passes the filter.", "/ changes it; the rest of the runs is not gone."
        return (
            "No run is in the log yet.",
            "`memtui hook install CLIENT` and `memtui mcp install CLIENT` let agents have runs.",
        )

    def _add(self, page: RunPage) -> None:
        self._total, self._before = page.total, page.next_before
        self._rows.append(page.runs, more=page.next_before is not None)
        self.rows_list.rows_changed()
        self.draw()

    def _not_read(self, error: MemtuiError) -> None:
        self.rows_list.notice = (f"✗ {error}", "r reads again, esc goes back.")
        self._total = None
        self._rows.replace([])
        self.rows_list.show(self._rows)
        self.draw()

    @on(PagesWanted)
    def _read_on(self) -> None:
        if not self.reads.busy and self._before is not None:
            self._read(self._before, self._add)

    @on(Opened)
    def _replay_opened(self, event: Opened) -> None:
        event.prevent_default()  # the details say no more than the replay does
        self.action_replay()

    @conversation
    async def action_replay(self) -> None:
        """Replay the run under the cursor."""
        await show_over(self, ReplayScreen(self.state, self._run.run_id))

    def action_operations(self) -> None:
        """Show all operations of the run."""
        only = format_filter(Filter(run_id=self._run.run_id))
        self.post_message(GoTo("operations", filter_line=only))

    @conversation
    async def action_filter(self) -> None:
        """Ask which runs to list."""
        title = "List runs with an operation that passes"
        chosen = await self.ask_filter(title, _HINT, self._filter)
        if chosen is not None:
            self._filter = chosen
            self.action_read()

    def action_copy(self) -> None:
        """Copy the id of the run."""
        self.copy(self._run.run_id, "Copied the id.")


# How runs read.


def columns(clock: Callable[[], datetime]) -> list[Column[Run]]:
    """Return the columns of the list."""
    return [
        Column("run", "run", lambda one: one.run_id, 10, flexible=True, keep=100),
        Column("when", "when", lambda one: fmt.ago(one.last_at, clock()), 6, "right", keep=95,
               tone="muted"),
        Column("agent", "agent", lambda one: ", ".join(one.agents) or None, 10, flexible=True,
               keep=94),
        Column("project", "project", lambda one: ", ".join(one.projects) or None, 13, keep=93),
        Column("told", "told", lambda one: _number(one.tokens_given), 6, "right", keep=90),
        Column("asked", "asked", lambda one: _number(one.queries), 5, "right", keep=86),
        Column("wrote", "wrote", lambda one: _number(one.writes), 5, "right", keep=87),
        Column("fixed", "fixed", lambda one: _number(one.corrections), 5, "right", keep=60),
        Column("forgot", "forgot", lambda one: _number(one.forgets), 6, "right", keep=60),
        Column("failed", "failed", _failed, 6, "right", keep=70),
        Column("cost", "$", words.short_cost, 8, "right", keep=92, tone="muted"),
    ]  # fmt: skip


def _number(count: int) -> Cell:
    return Cell(fmt.count(count), "" if count else "muted")


def _failed(run: Run) -> Cell:
    return Cell(fmt.count(run.failures), "error" if run.failures else "muted")


def run_content(run: Run | None, now: datetime, zone: tzinfo | None, width: int) -> Content:
    """Return a run whole, but for what its steps were."""
    if run is None:
        return Content("")
    whose: list[Line] = [
        labelled("agent", ", ".join(run.agents)),
        labelled("project", ", ".join(run.projects)),
        labelled("user", ", ".join(run.subjects)),
        labelled("issue", ", ".join(run.issues)),
        labelled("by", ", ".join(run.principals)),
        labelled("through", ", ".join(run.channels)),
    ]
    did: list[Line] = [
        labelled("given", words.given(run)),
        labelled("did", words.did(run)),
        labelled("failed", display(words.failed(run), style=WARN)),
        labelled("cost", words.cost(run)),
    ]
    when: list[Line] = [
        labelled("from", moment(run.started_at, now, zone)),
        labelled("to", moment(run.last_at, now, zone)),
    ]
    return joined([[display(run.run_id, limit=200, style=STRONG)], whose, when, did], width)
