"""The conformance report of a memory plugin: each rule of the contract, tried."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from textual.binding import BindingType
from textual.content import Content

from memtui.contract import MemtuiError
from memtui.json_text import json_text
from memtui.screens.base import conversation
from memtui.screens.dialogs import Confirm
from memtui.screens.exports import export, write_file
from memtui.screens.modal import ModalListScreen
from memtui.widgets import format as fmt
from memtui.widgets.background import Stoppable
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import Line, heading, joined, labelled
from memtui.widgets.display import BAD, DIM, OK, STRONG, WARN, display, line, lines
from memtui.widgets.keys import bindings_for
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import VirtualList

if TYPE_CHECKING:
    from memtui.conformance import CheckResult, Outcome, Report
    from memtui.screens.state import AppState
    from memtui.service.answers import BindingView

State = Literal["", "running", "stopping", "stopped", "done", "failed"]
"""How far the run is; nothing before the first."""

WARNING = (
    "It writes into namespaces of its own, named custom:memtui-conformance-…, and removes them. "
    "Some checks load the server or send it malformed requests."
)
_BODY_CELLS = 4_000
_LEFTOVERS = 1
_MARKS: dict[Outcome, tuple[Literal["✓", "✗", "–"], Literal["success", "error", "muted"], str]] = {
    "pass": ("✓", "success", "passed"),
    "fail": ("✗", "error", "failed"),
    "not_applicable": ("–", "muted", "not applicable"),
}
_STYLES = {"success": OK, "error": BAD, "muted": DIM}
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

    @conversation
    async def action_run(self) -> None:
        """Run every check, after a yes."""
        question = Confirm(
            f"Check {self._binding.key} at {self._place}?",
            verb="run",
            detail=WARNING,
            otherwise="leave it",
        )
        if await self.ask(question) and not self._run.busy:
            self._begin()

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

    @conversation
    async def action_export(self) -> None:
        """Ask for a file and write the report."""
        report, name = self._report, f"conformance-{self._binding.key}.json"
        if report is None:
            return

        async def write(path: Path, *, overwrite: bool) -> str:
            text = json_text(report.model_dump(mode="json"), indent=1) + "\n"
            put = partial(Path.write_text, data=text, encoding="utf-8")
            await asyncio.to_thread(write_file, path, put, overwrite=overwrite)
            return f"Wrote {fmt.counted(len(report.checks), 'check')} to {path}."

        await export(self, "Write the report to which file?", name, ("json",), write)

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


# How checks read.


def columns() -> list[Column[CheckResult]]:
    """Return the columns of the report."""
    return [
        Column("mark", "", _mark, 2, keep=100),
        Column("name", "check", lambda one: Cell(one.name), 24, flexible=True, keep=99, share=0.3),
        Column("rule", "rule", _rule, 24, flexible=True, keep=80, share=0.5),
        Column("ms", "ms", lambda one: Cell(f"{one.duration_ms:,.0f}", "muted"), 6, "right",
               keep=10),
    ]  # fmt: skip


def _mark(one: CheckResult) -> Cell:
    mark, tone, _ = _MARKS[one.outcome]
    return Cell(mark, tone)


def _rule(one: CheckResult) -> Cell:
    return Cell(one.rule, "muted" if one.outcome == "not_applicable" else "")


def head_content(
    place: str, results: Iterable[CheckResult], total: int, state: State, took_ms: float | None
) -> Content:
    """Return what is checked and the counts."""
    title = line("conformance of", display(place, limit=200, style=STRONG))
    counts = Counter(one.outcome for one in results)
    found = [
        display(f"{mark} {counts[outcome]} {word}", style=_STYLES[tone])
        for outcome, (mark, tone, word) in _MARKS.items()
        if counts[outcome]
    ]
    summary = line(*found, _state_words(state, sum(counts.values()), total, took_ms), gap="   ")
    return lines([title, summary])


def _state_words(state: State, done: int, total: int, took_ms: float | None) -> Content:
    if state == "running":
        return display(f"… {done} of {total}", style=WARN)
    if state == "stopping":
        return display("… stopping, and removing what it made", style=WARN)
    if state == "stopped":
        return display(f"stopped after {done} of {total}", style=WARN)
    if state == "failed":
        return display("not finished", style=BAD)
    if state == "done":
        return display(f"in {fmt.duration(took_ms)}" if took_ms is not None else "", style=DIM)
    return display(f"{fmt.counted(total, 'check')}; r runs them", style=DIM)


def leftovers_content(names: Sequence[str]) -> Content:
    """Return what a run made and could not remove; the written report names all of it."""
    words = f"▲ {fmt.count(len(names))} left on the server: "
    return display(words + ", ".join(names[:_LEFTOVERS]), limit=300, style=WARN) + (
        display(" …", style=WARN) if len(names) > _LEFTOVERS else Content("")
    )


def row_content(one: CheckResult | None, width: int) -> Content:
    """Return a check with the request and the reply that show a failure."""
    if one is None:
        return Content("")
    mark, tone, word = _MARKS[one.outcome]
    head = line(
        display(one.name, limit=120, style=STRONG),
        display(f"{mark} {word}", style=_STYLES[tone]),
        gap="  ",
    )
    about: list[Line] = [labelled("rule", one.rule)]
    if one.detail:
        style = BAD if one.outcome == "fail" else ""
        about.append(labelled("found", display(one.detail, limit=2_000, style=style)))
    blocks: list[Sequence[Line]] = [[head], about]
    if one.request is not None:
        sent = f"{one.request.method} {one.request.path}"
        blocks.append([heading("Request"), display(sent, limit=1_000), *_body(one.request.body)])
    if one.reply is not None:
        seen = f"{one.reply.status} {one.reply.content_type or ''}"
        blocks.append([heading("Reply"), display(seen, limit=300), *_body(one.reply.body)])
    elif one.request is not None:
        blocks.append([heading("Reply", "none came")])
    took = labelled("took", fmt.duration(one.duration_ms))
    blocks.append([labelled("stands in", one.source), took])
    return joined(blocks, width)


def _body(body: str | None) -> list[Line]:
    return [display(body, limit=_BODY_CELLS, keep_newlines=True)] if body else []


def as_text(one: CheckResult) -> str:
    """Return a check as text to copy."""
    parts = [f"{_MARKS[one.outcome][0]} {one.name}: {one.rule} ({one.source})", one.detail]
    if one.request is not None:
        parts.append(f"→ {one.request.method} {one.request.path} {one.request.body or ''}".rstrip())
    if one.reply is not None:
        parts.append(f"← {one.reply.status} {one.reply.body}".rstrip())
    return "\n".join(part for part in parts if part)
