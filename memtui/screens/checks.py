"""The checks of a memory: a list of questions, red where an answer does not hold what it must."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.content import Content

from memtui.presenters.format import CHECK_MARKS
from memtui.screens.modal import ModalListScreen
from memtui.screens.state import GoTo
from memtui.widgets.columns import Cell, Column, Tone
from memtui.widgets.detail_lines import joined, key_hint, labelled
from memtui.widgets.display import BAD, DIM, OK, STRONG, display, line

if TYPE_CHECKING:
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

    def columns(self) -> list[Column[CheckedMemory]]:
        """Return the columns of the list."""
        return [
            Column("outcome", "", lambda one: _cell(one, CHECK_MARKS[one.outcome]), 2, keep=100),
            Column("title", "check", lambda one: _cell(one, one.title), 24, flexible=True, keep=99,
                   share=0.4),
            Column("why", "why", lambda one: _cell(one, one.why), 24, flexible=True, keep=80),
        ]  # fmt: skip

    def key(self, row: CheckedMemory) -> str:
        """Return the number of a check."""
        return str(row.number)

    async def read(self) -> Sequence[CheckedMemory]:
        """Ask the checks of the file."""
        from memtui.service.usecases.checking import check_memory

        self.report = None
        self.report = await check_memory(self.service, self.caller)
        return self.report.checks

    def draw_head(self) -> Content:
        """Return the file and the counts, red if a check did not pass."""
        title, report = display("checks", style=STRONG), self.report
        if report is None:
            return title
        counts = display(report.words, style=BAD if report.exit_code else OK)
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


def _cell(one: CheckedMemory, text: str) -> Cell:
    return Cell(text, _TONES[one.outcome])


async def record(screen: MemtuiScreen, operation_id: str, **about: Any) -> None:
    """Record a check from an operation of the log, and say so; `about`: as in `record_check`."""
    from memtui.service.usecases.checking import record_check

    work = partial(record_check, screen.service, screen.caller, operation_id, **about)
    screen.toast(await screen.change(work))
