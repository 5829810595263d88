"""Screens of steps between two bindings: each runs until done or stopped, and lists its results."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from textual.content import Content

from memtui.contract import MemtuiError
from memtui.presenters import format as fmt
from memtui.screens.modal import RunScreen
from memtui.screens.state import AppState
from memtui.widgets.columns import Cell, Column, Tone
from memtui.widgets.detail_lines import joined
from memtui.widgets.display import ACCENT, BAD, DIM, TONES, WARN, display, line

if TYPE_CHECKING:
    from memtui.migration.moving import MigrationProgress

T = TypeVar("T")

_BAR_CELLS = 20


@dataclass(frozen=True, slots=True)
class StepRow:
    """One result of a step."""

    what: str
    records: int | None = None
    where: str = ""
    """Its target, why it has none, or the difference."""
    tone: Tone = ""
    number: int = 0
    """Its index in the list, which is its key."""


class StepScreen(RunScreen[StepRow]):
    """Lists the results of the last step, and shows the progress of a running one."""

    NOUN = "row"

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self.status = Content("")
        """The progress of the running step, or the outcome of the last."""

    def columns(self) -> list[Column[StepRow]]:
        """Return the columns of the list."""
        return columns()

    def key(self, row: StepRow) -> str:
        """Return a row's number."""
        return str(row.number)

    def detail(self, row: StepRow, width: int) -> Content:
        """Return the details of a row."""
        return row_content(row, width)

    def take(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        done: Callable[[T], None],
        waiting: Content,
        stopped: str,
    ) -> None:
        """Run a step; `waiting` is shown meanwhile, and `stopped` if the person stops it."""

        def failed(error: MemtuiError) -> None:
            words = display(f"✗ {error}", limit=600, style=BAD)
            self.broken(words, f"✗ {error}", "r tries again, esc goes back.")

        def show(found: T) -> None:
            done(found)
            self.ended()

        def broken_off() -> None:
            self.broken(display(stopped, style=WARN), stopped)

        self.status = waiting
        self.run.start(work, done=show, stopped=broken_off, failed=failed)
        self.draw()

    def broken(self, status: Content, *notice: str) -> None:
        """Show why a step ended without results."""
        self.status = status
        self.ended(*notice)

    def tell(self, status: Content) -> None:
        """Show the progress of the running step."""
        if self.is_attached and self.stoppable:
            self.status = status
            self.draw()

    def list_found(self, rows: Iterable[StepRow], status: Content) -> None:
        """List the results of a step, with the cursor on the first."""
        self.rows.replace([replace(row, number=number) for number, row in enumerate(rows)])
        self.rows_list.rows_changed()
        self.rows_list.go_to(0)
        self.status = status

    def action_stop(self) -> None:
        """Stop the running step; records that it has written stay."""
        self.status = display("… stopping", style=WARN)
        super().action_stop()

    def action_copy(self) -> None:
        """Copy the row."""
        row = self.row
        records = "" if row.records is None else fmt.count(row.records)
        self.copy("  ".join(filter(None, [row.what, records, row.where])), "Copied the row.")


# The results in words.


def columns() -> list[Column[StepRow]]:
    """Return the columns of the list."""
    return [
        Column("what", "what", lambda one: Cell(one.what, one.tone), 24, flexible=True,
               keep=100, share=0.4),
        Column("records", "records", _records, 9, "right", keep=90),
        Column("where", "where, or why", lambda one: Cell(one.where, "muted"), 20,
               flexible=True, keep=80),
    ]  # fmt: skip


def _records(one: StepRow) -> Cell:
    return Cell("" if one.records is None else fmt.count(one.records), one.tone)


def progress_content(doing: str, progress: MigrationProgress) -> Content:
    """Return the progress of a step: how much is done, its rate, the time left, failures."""
    done = fmt.of_total(progress.done, progress.total)
    if progress.found:
        done = f"{fmt.counted(progress.found, 'record')} found so far"
    left = progress.seconds_left
    return line(
        display(f"… {doing}", style=WARN),
        _bar(progress.done, progress.total),
        display(done),
        display(f"{progress.rate:,.0f}/s", style=DIM) if progress.rate else None,
        display(f"{fmt.duration(left * 1_000)} left", style=DIM) if left is not None else None,
        display(f"{fmt.count(progress.failed)} failed", style=BAD) if progress.failed else None,
        gap="  ",
    )


def _bar(done: int, total: int | None) -> Content | None:
    if not total:
        return None
    filled = min(_BAR_CELLS, done * _BAR_CELLS // total)
    empty = Content.styled("░" * (_BAR_CELLS - filled), DIM)
    return Content.styled("█" * filled, ACCENT) + empty


def row_content(row: StepRow, width: int) -> Content:
    """Return the details of a row."""
    head = display(row.what, limit=2_000, style=f"bold {TONES[row.tone]}".rstrip())
    number = "" if row.records is None else fmt.counted(row.records, "record")
    words = [display(number), display(row.where, limit=2_000)]
    return joined([[head], [one for one in words if one.plain]], width)
