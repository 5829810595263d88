"""The conformance report over the Bindings screen."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.content import Content

from memtui.contract import Conflict, MemtuiError
from memtui.json_text import json_text
from memtui.screens.analytics.files import write_text
from memtui.screens.conformance.contents import (
    WARNING,
    State,
    as_text,
    columns,
    head_content,
    leftovers_content,
    row_content,
)
from memtui.screens.dialogs import Confirm, Prompt
from memtui.screens.exports import path_of
from memtui.screens.modal import ModalListScreen
from memtui.widgets import format as fmt
from memtui.widgets.background import Background, Stoppable
from memtui.widgets.display import lines
from memtui.widgets.keys import bindings_for
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import VirtualList

if TYPE_CHECKING:
    from memtui.conformance import CheckResult, Report
    from memtui.screens.state import AppState
    from memtui.service.answers import BindingView

_OVER_A_SOCKET = "http://plugin"
_TIMEOUT_S = 5.0


class Conformance(ModalListScreen):
    """Check a memory plugin rule by rule; nothing is sent without a yes."""

    ACTION_GROUP = "conformance"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("conformance")

    def __init__(self, state: AppState, binding: BindingView) -> None:
        from memtui.conformance import CHECKS

        super().__init__(state)
        self._binding = binding
        self._order = {check.name: number for number, check in enumerate(CHECKS)}
        self._results: list[CheckResult] = []
        self._rows: AppendedRows[CheckResult] = AppendedRows(lambda one: one.name)
        self._state: State = ""
        self._report: Report | None = None
        self._leftovers: tuple[str, ...] = ()
        self._failed_only = False
        self._leaving = False
        self._run: Stoppable[Report] = Stoppable(self, "conformance")
        self._writing = Background(self, "report")

    def make_list(self) -> VirtualList[CheckResult]:
        """Return the list."""
        return VirtualList(columns(), self._rows, name="check-list")

    @property
    def _list(self) -> VirtualList[CheckResult]:
        found: VirtualList[CheckResult] = self.query_one("#check-list", VirtualList)
        return found

    @property
    def _place(self) -> str:
        config = self._binding.config
        return str(config.get("url") or config.get("uds") or "")

    def draw_head(self, width: int) -> Content:
        """Return what is checked and the counts."""
        del width
        took = self._report.duration_ms if self._report else None
        place = f"{self._binding.key} at {self._place}"
        head = head_content(place, self._results, len(self._order), self._state, took)
        return lines([head, leftovers_content(self._leftovers)]) if self._leftovers else head

    def draw_row(self, width: int) -> Content:
        """Return the check under the cursor."""
        return row_content(self._list.current, width)

    def labels(self) -> dict[str, str]:
        """Return footer words for the moment."""
        return {
            "conformance.run": "run again" if self._results else "run",
            "conformance.failures": "all" if self._failed_only else "failed only",
        }

    def refusal(self, verb: str) -> str:
        """Return why an action cannot run now."""
        if verb == "run" and self._binding.read_only:
            return f"The binding {self._binding.key} is read-only, and a run writes."
        if verb == "run" and self._run.busy:
            return "It is running; x stops it."
        if verb == "stop" and self._state != "running":
            return "Nothing is running."
        if verb == "export" and self._report is None:
            return "There is no finished run to write."
        if verb == "copy" and self._list.current is None:
            return "No check is selected."
        return ""

    def on_mount(self) -> None:
        """Say what a run does."""
        super().on_mount()
        self._list.notice = (
            "Nothing was checked yet.",
            WARNING,
            self.why_disabled("conformance.run") or "r runs.",
        )
        self.draw()

    def action_run(self) -> None:
        """Run every check, after a yes."""

        def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            if yes and not self._run.busy:
                self._begin()

        question = Confirm(
            f"Check {self._binding.key} at {self._place}?",
            verb="run",
            detail=WARNING,
            otherwise="leave it",
        )
        self.app.push_screen(question, answered)

    def _begin(self) -> None:
        from memtui.conformance import run_conformance

        config = self._binding.config
        url, uds = config.get("url"), config.get("uds")
        self._state, self._report, self._results = "running", None, []
        self._leftovers = ()
        self._list.notice = ("Greeting the server …",)
        self._show()
        self._run.start(
            lambda: run_conformance(
                str(url) if url else _OVER_A_SOCKET,
                uds=Path(str(uds)) if uds else None,
                on_result=self._arrived,
                on_leftovers=self._left_over,
                timeout_s=float(config.get("timeout_seconds", _TIMEOUT_S)),
            ),
            done=self._finished,
            stopped=self._was_stopped,
            failed=self._broke,
        )

    def _arrived(self, result: CheckResult) -> None:
        self._results.append(result)
        self._show()

    def _left_over(self, names: tuple[str, ...]) -> None:
        self._leftovers = names
        self.draw()

    def _show(self) -> None:
        if not self.is_attached:
            return
        shown = [one for one in self._results if not self._failed_only or one.outcome == "fail"]
        self._rows.replace(shown)
        self._list.rows_changed()
        self.draw()

    def _finished(self, report: Report) -> None:
        self._state, self._report = "done", report
        self._results = sorted(report.checks, key=lambda one: self._order[one.name])
        self._list.notice = ("Nothing failed.", "f shows all checks.")
        self._ended()

    def _was_stopped(self) -> None:
        self._state = "stopped"
        self._list.notice = ("Stopped before the first result.", "r runs again.")
        self._ended()

    def _broke(self, error: MemtuiError) -> None:
        self._state = "failed"
        self._list.notice = (f"✗ {error}", "r runs again, esc goes back.")
        if self._results:
            self.fail(error)
        self._ended()

    def _ended(self) -> None:
        self._show()
        if self._leaving:
            self.dismiss(None)

    def action_stop(self) -> None:
        """Stop the run and clean up."""
        self._state = "stopping"
        self._run.stop()
        self.draw()

    def action_failures(self) -> None:
        """Show what failed alone, or all."""
        self._failed_only = not self._failed_only
        self._show()

    def action_export(self) -> None:
        """Ask for a file and write the report."""

        def named(text: str | None) -> None:
            if text is not None:
                self._write(path_of(text, ("json",)), overwrite=False)

        prompt = Prompt(
            "Write the report to which file?",
            value=f"conformance-{self._binding.key}.json",
            check=lambda text: path_of(text, ("json",)),
        )
        self.app.push_screen(prompt, named)

    def _write(self, path: Path, *, overwrite: bool) -> None:
        report = self._report
        if report is None:
            return
        text = json_text(report.model_dump(mode="json"), indent=1) + "\n"

        def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            if yes:
                self._write(path, overwrite=True)

        def failed(error: MemtuiError) -> None:
            if isinstance(error, Conflict):
                self.app.push_screen(Confirm(f"Overwrite {path}?", verb="overwrite"), answered)
            else:
                self.fail(error)

        number = fmt.counted(len(report.checks), "check")
        self._writing.every(
            lambda: asyncio.to_thread(write_text, path, text, overwrite=overwrite),
            lambda _: self.toast(f"Wrote {number} to {path}."),
            failed,
        )

    def action_copy(self) -> None:
        """Copy the check with its request and reply."""
        if (one := self._list.current) is not None:
            self.copy(as_text(one), "Copied the check.")

    async def on_unmount(self) -> None:
        """Bring what runs to its end where the whole app is left."""
        await self._run.end()

    def may_leave(self) -> bool:
        """Stop a run first, and leave once it has cleaned up."""
        if not self._run.busy:
            return True
        self._leaving = True
        if self._state == "running":
            self.action_stop()
        return False
