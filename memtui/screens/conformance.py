"""The conformance report of a memory plugin: a check for each rule of the contract."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from textual.content import Content

from memtui.contract import MemtuiError
from memtui.json_text import json_text
from memtui.presenters import format as fmt
from memtui.screens.dialogs import Confirm
from memtui.screens.exports import export, write_file
from memtui.screens.modal import Reasons, RunScreen
from memtui.screens.state import AppState
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import Line, heading, joined, labelled
from memtui.widgets.display import BAD, DIM, STRONG, TONES, WARN, display, line, lines
from memtui.widgets.virtual_list import VirtualList

if TYPE_CHECKING:
    from memtui.conformance import CheckResult, ConformanceReport, Outcome
    from memtui.service.answers import BindingView

State = Literal["", "running", "stopped", "done", "failed"]
"""State of the run; empty: none was started."""

WARNING = (
    "It writes into its own namespaces, named custom:memtui-conformance-…, and removes them. "
    "Some checks load the server or send it malformed requests."
)
_BODY_CELLS = 4_000
_MARKS: dict[Outcome, tuple[Literal["✓", "✗", "–"], Literal["success", "error", "muted"], str]] = {
    "pass": ("✓", "success", "passed"),
    "fail": ("✗", "error", "failed"),
    "not_applicable": ("–", "muted", "not applicable"),
}
_TIMEOUT_S = 5.0


class Conformance(RunScreen["CheckResult"]):
    """Checks a memory plugin rule by rule, after a yes."""

    ACTION_GROUP = "conformance"
    NOUN = "check"

    def __init__(self, state: AppState, binding: BindingView) -> None:
        from memtui.conformance import CHECKS

        super().__init__(state)
        self._binding = binding
        self._order = {check.name: number for number, check in enumerate(CHECKS)}
        self._results: list[CheckResult] = []
        self._state: State = ""
        self._report: ConformanceReport | None = None
        self._leftovers: tuple[str, ...] = ()
        self._failed_only = False

    def columns(self) -> list[Column[CheckResult]]:
        """Return the columns of the report."""
        return columns()

    def key(self, row: CheckResult) -> str:
        """Return the name of a check."""
        return row.name

    @property
    def _place(self) -> str:
        config = self._binding.config
        return str(config.get("url") or config.get("uds") or "")

    def draw_head(self) -> Content:
        """Return the plugin, the counts and the state of the run."""
        done, total = len(self._results), len(self._order)
        words, style = {
            "": (f"{fmt.counted(total, 'check')}; c runs them", DIM),
            "running": (f"… {done} of {total}", WARN),
            "stopped": (f"stopped after {done} of {total}", WARN),
            "failed": ("not finished", BAD),
            "done": (f"in {fmt.duration(self._report.duration_ms)}" if self._report else "", DIM),
        }[self._state]
        if self.run.stopping:
            words, style = "… stopping, and removing its namespaces", WARN
        title = display(f"{self._binding.key} at {self._place}", limit=200, style=STRONG)
        head = [
            line("conformance of", title),
            line(*_counts(self._results), display(words, style=style), gap="   "),
        ]
        return lines([*head, leftovers_content(self._leftovers)] if self._leftovers else head)

    def detail(self, row: CheckResult, width: int) -> Content:
        """Return the details of a check."""
        return row_content(row, width)

    def labels(self) -> dict[str, str]:
        """Return the current footer labels."""
        return {
            "conformance.run": "run again" if self._results else "run",
            "conformance.failures": "all" if self._failed_only else "failed only",
        }

    def reasons(self) -> Reasons:
        """Return why actions cannot run now."""
        locked = f"The binding {self._binding.key} is read-only, and a run writes."
        return (
            ("run", self._binding.read_only, locked),
            ("run", self.run.busy, "It is running; ctrl+c stops it."),
            ("export", self._report is None, "There is no finished run to write."),
        )

    def begin(self) -> None:
        """Explain what a run does, and run nothing yet."""
        self.rows_list.notice = (
            "Nothing was checked yet.",
            WARNING,
            self.why_disabled("conformance.run") or "c runs.",
        )

    async def action_run(self) -> None:
        """Run every check, after a yes."""
        question = Confirm(
            f"Check {self._binding.key} at {self._place}?",
            verb="run",
            detail=WARNING,
            otherwise="leave it",
            final=True,
        )
        if await self.ask(question) and not self.run.busy:
            self._run_all()

    def _run_all(self) -> None:
        from memtui.conformance import run_conformance

        config = self._binding.config
        url, uds = config.get("url"), config.get("uds")

        def ended(state: State, *notice: str) -> None:
            self._state = state
            self._list_results()
            self.ended(*notice)

        def done(report: ConformanceReport) -> None:
            self._report = report
            self._results = sorted(report.checks, key=lambda one: self._order[one.name])
            ended("done", "Nothing failed.", "t shows all checks.")

        def failed(error: MemtuiError) -> None:
            if self._results:
                self.fail(error)
            ended("failed", f"✗ {error}", "c runs again, esc goes back.")

        self._state, self._report, self._results, self._leftovers = "running", None, [], ()
        self.rows_list.notice = ("Greeting the server …",)
        self._list_results()
        self.run.start(
            lambda: run_conformance(
                str(url) if url else None,
                uds=Path(str(uds)) if uds else None,
                on_result=self._arrived,
                on_leftovers=self._left_over,
                timeout_s=float(config.get("timeout_seconds", _TIMEOUT_S)),
            ),
            done=done,
            stopped=lambda: ended("stopped", "Stopped before the first result.", "c runs again."),
            failed=failed,
        )

    def _arrived(self, result: CheckResult) -> None:
        self._results.append(result)
        self._list_results()

    def _left_over(self, names: tuple[str, ...]) -> None:
        self._leftovers = names
        self.draw()

    def _list_results(self) -> None:
        if not self.query(VirtualList):  # an app that ends takes the widgets away first
            return
        shown = [one for one in self._results if not self._failed_only or one.outcome == "fail"]
        self.rows.replace(shown)
        self.rows_list.rows_changed()
        self.draw()

    def action_failures(self) -> None:
        """Show only failed checks, or all."""
        self._failed_only = not self._failed_only
        self._list_results()

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
        self.copy(as_text(self.row), "Copied the check.")


# Checks in words.


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


def _counts(results: Iterable[CheckResult]) -> Iterator[Content]:
    counts = Counter(one.outcome for one in results)
    for outcome, (mark, tone, word) in _MARKS.items():
        if counts[outcome]:
            yield display(f"{mark} {counts[outcome]} {word}", style=TONES[tone])


def leftovers_content(names: Sequence[str]) -> Content:
    """Return a warning about namespaces left on the server; the exported report names all."""
    such = ": " if len(names) == 1 else ", such as "
    words = f"▲ {fmt.count(len(names))} left on the server{such}{names[0]}"
    return display(words, limit=300, style=WARN)


def row_content(one: CheckResult, width: int) -> Content:
    """Return a check with the request and the reply that show a failure."""
    mark, tone, word = _MARKS[one.outcome]
    head = line(
        display(one.name, limit=120, style=STRONG),
        display(f"{mark} {word}", style=TONES[tone]),
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
    blocks.append([labelled("source", one.source), took])
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
