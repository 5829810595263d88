"""The checks of a memory: a list of questions, red where an answer does not hold what it must."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.content import Content

from memtui.presenters.format import CHECK_MARKS, counted
from memtui.screens.modal import ModalListScreen
from memtui.screens.state import AppState, GoTo
from memtui.widgets.columns import Cell, Column, Tone
from memtui.widgets.detail_lines import joined, key_hint, labelled
from memtui.widgets.display import BAD, DIM, OK, STRONG, display, line
from memtui.widgets.panes import Fitted

if TYPE_CHECKING:
    from memtui.contract import RecordHandle
    from memtui.screens.base import MemtuiScreen
    from memtui.service.usecases.checking import CheckedMemory, CheckReport

_TONES: dict[str, Tone] = {"pass": "success", "fail": "error", "error": "warning"}


class Checks(ModalListScreen["CheckedMemory"]):
    """Asks the checks of the file, and lists them; `enter` asks one in Query."""

    ACTION_GROUP = "checks"
    NOUN = "check"
    READING = "Asking the checks …"
    AGAIN = "N on a result of Query records a check; r asks again, esc goes back."
    report: CheckReport | None = None
    _so_far = ""

    def __init__(
        self, state: AppState, without: Mapping[str, Sequence[RecordHandle]] | None = None
    ) -> None:
        """`without`: also ask as if these records, by binding, were forgotten."""
        super().__init__(state)
        self._without = without or {}
        self._now: CheckReport | None = None
        """The checks with these records; None: it was not asked without."""

    def columns(self) -> list[Column[CheckedMemory]]:
        """Return the columns of the list."""
        return [
            Column("outcome", "", lambda one: self._cell(one, CHECK_MARKS[one.outcome]), 2,
                   keep=100),
            Column("title", "check", lambda one: self._cell(one, one.title), 24, flexible=True,
                   keep=99, share=0.4),
            Column("why", "why", lambda one: self._cell(one, one.why), 24, flexible=True, keep=80),
        ]  # fmt: skip

    def _cell(self, one: CheckedMemory, text: str) -> Cell:
        """Return a cell of a check, muted if it does not pass with the records either."""
        is_lost = self._now is None or one.outcome != "fail" or one in self.lost
        return Cell(text, _TONES[one.outcome] if is_lost else "muted")

    @property
    def lost(self) -> Sequence[CheckedMemory]:
        """The checks that pass now, and would not without the records."""
        from memtui.service.usecases.checking import lost_checks

        both = lost_checks(self._now, self.report) if self._now and self.report else ()
        return [one for one in both if one.outcome == "fail"]

    @property
    def outcome(self) -> str:
        """What the records' loss does to the checks, in a sentence; empty: unknown, or nothing."""
        return f"{counted(len(self.lost), 'check')} would no longer pass." if self.lost else ""

    def key(self, row: CheckedMemory) -> str:
        """Return the number of a check."""
        return str(row.number)

    async def read(self) -> Sequence[CheckedMemory]:
        """Ask the checks of the file."""
        from memtui.service.usecases.checking import check_memory

        ask = partial(check_memory, self.service, self.caller, so_far=self._tell)
        self.report = self._now = None
        self._now = await ask() if self._without else None
        self.report = await ask(without=self._without)
        return self.report.checks

    def _tell(self, so_far: str) -> None:
        self._so_far = so_far
        if self.is_attached:
            self.query_one("#modal-head", Fitted).fit(self.draw_head())

    def draw_head(self) -> Content:
        """Return the file and the counts, red if a check did not pass."""
        title, report = display("checks", style=STRONG), self.report
        if report is None:
            return line(title, display(self._so_far, style=DIM), gap="  ")
        is_red = bool(self.lost) if self._now else report.exit_code
        without = ". ".join(filter(None, (f"{report.words} without the records", self.outcome)))
        words = without if self._now else report.words
        counts = display(words, style=BAD if is_red else OK)
        return line(title, counts, display(report.file, style=DIM), gap="  ")

    def detail(self, row: CheckedMemory, width: int) -> Content:
        """Return a check as the file has it, and why it did not pass."""
        written = display(row.check.written, keep_newlines=True)
        why = labelled("why", display(row.why, style=BAD))
        return joined([[why], [written], [key_hint("enter", "ask it in Query")]], width)

    def open_row(self) -> None:
        """Ask the question in Query."""
        check = self.row.check
        scope = check.scope(self.caller.company_id)
        self.post_message(
            GoTo("query", "", check.binding, select=check.question, scope=scope, everywhere=False)
        )


async def record(screen: MemtuiScreen, operation_id: str, **about: Any) -> None:
    """Record a check from an operation of the log, and say so; `about`: as in `record_check`."""
    from memtui.service.usecases.checking import record_check

    work = partial(record_check, screen.service, screen.caller, operation_id, **about)
    screen.toast(await screen.change(work))
