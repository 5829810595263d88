"""The impact of forgetting some records: which of the log's last answers would differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Literal

from textual.content import Content

from memtui.contract import Filter, MemtuiError, RecordHandle
from memtui.presenters import format as fmt
from memtui.screens.modal import Reasons, RunScreen
from memtui.screens.operations.view import request_words
from memtui.screens.state import AppState, GoTo
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import (
    Line,
    diff_lines,
    heading,
    joined,
    key_hint,
    labelled,
    moment,
)
from memtui.widgets.display import BAD, DIM, OK, STRONG, WARN, display, line, lines
from memtui.widgets.panes import Fitted

if TYPE_CHECKING:
    from memtui.service.context.impact import AnsweredRecord, Effect, Impact, ReplayProgress

State = Literal["running", "stopped", "failed", "done"]
_MOST = 10_000
_TEXT_CHARS = 400
_PROGRESS_SECONDS = 0.2
"""Least time between two drawings of the progress."""
_HINT = "agent:coding since:7d   empty: all   enter filter   esc go back"


class ImpactScreen(RunScreen["Effect"]):
    """Replays the log's last questions without some records, and lists the answers that differ."""

    ACTION_GROUP = "impact"
    NOUN = "answer"
    FILTERS = ("Try only operations that pass", _HINT)

    def __init__(
        self, state: AppState, records: Mapping[str, Sequence[RecordHandle]], what: str
    ) -> None:
        """Set up for `records` by binding key; `what` describes them."""
        super().__init__(state)
        self._records = records
        self._what = what
        self._last = 500
        self._state: State = "running"
        self._progress: ReplayProgress | None = None
        self._reported_at = 0.0
        self._impact: Impact | None = None
        self._checked = ""

    def columns(self) -> list[Column[Effect]]:
        """Return the columns of the list."""
        clock = self.state.clock
        return [
            Column("question", "question", _question, 20, flexible=True, keep=100, share=0.3),
            Column("how", "how it differs", _how, 30, keep=99),
            Column("tokens", "tokens", _tokens, 6, "right", keep=55),
            Column("limit", "limit", _limit, 6, "right", keep=85, tone="muted"),
            Column("times", "times", lambda one: fmt.count(one.times), 5, "right", keep=80),
            Column("by", "by", lambda one: ", ".join((*one.agents, *one.principals)), 10, keep=70),
            Column("user", "user", lambda one: ", ".join(one.subjects) or None, 8, keep=40),
            Column("project", "project", lambda one: ", ".join(one.projects) or None, 11, keep=50),
            Column("when", "last", lambda one: fmt.ago(one.operation.started_at, clock()), 6,
                   "right", keep=60, tone="muted"),
        ]  # fmt: skip

    def key(self, row: Effect) -> str:
        """Return the id of the newest operation with the question."""
        return row.operation_ids[0]

    @property
    def outcome(self) -> str:
        """How many answers and checks would differ; empty: unknown, or only a part was tried."""
        is_known = self._impact is not None and self.chosen == Filter()
        words = next(fmt.impact_words(self._impact), "") if self._impact and is_known else ""
        return f"{words} {self._checked}".strip()

    def draw_head(self) -> Content:
        """Return the omitted records, and the effect or the progress."""
        title = line("without", display(self._what, limit=200, style=STRONG))
        if self._state == "running":
            so_far = self._progress
            words = f"… {fmt.trial_words(so_far)}" if so_far else "… reading the log"
            words = "… stopping" if self.run.stopping else words
            head = [line(title, display(words, style=WARN), gap="   ")]
        else:
            head = [title, *(summary(self._impact) if self._impact else ())]
        return lines([*head, *self.narrowed()])

    def detail(self, row: Effect, width: int) -> Content:
        """Return an answer with and without the records."""
        now, zone = self.state.clock(), self.state.zone
        operation = row.operation
        kind = display(operation.operation_type.value, style=STRONG)
        head: list[Line] = [
            line(kind, display(f"#{fmt.count(operation.seq)}", style=DIM), gap="  "),
            display(moment(operation.started_at, now, zone), style=DIM),
            display(row.question, limit=2_000, keep_newlines=True),
        ]
        about: list[Line] = [
            labelled("differs", fmt.effect_words(row)),
            labelled("asked", fmt.counted(row.times, "time")),
            labelled("with", display(request_words(operation), limit=300)),
            labelled("by", display(", ".join((*row.agents, *row.principals)), limit=300)),
            labelled("users", display(", ".join(row.subjects), limit=300)),
            labelled("projects", display(", ".join(row.projects), limit=300)),
            labelled("runs", display(", ".join(row.runs), limit=300)),
            key_hint("O", "the operation"),
        ]
        still = dict.fromkeys(row.still_said, "still said")
        blocks: list[Sequence[Line]] = [head, about]
        if row.gone:
            gone = (_line(each, "-", BAD, still.get(each.place, "")) for each in row.gone)
            blocks.append([heading("falls out"), *gone])
        if row.come:
            blocks.append([heading("comes in"), *(_line(each, "+", OK) for each in row.come)])
        if row.before.text is not None:
            before, after = (side.tokens or 0 for side in (row.before, row.after))
            shorter = heading("the text", f"{fmt.count(before)} → {fmt.counted(after, 'token')}")
            blocks.append([shorter, *diff_lines(row.before.text, row.after.text)])
        else:
            there = [_line(each, " ", "") for each in row.after.records]
            nothing = [display("nothing", style=BAD)]
            blocks.append([heading("then finds"), *(there or nothing)])
        return joined(blocks, width)

    def reasons(self) -> Reasons:
        """Return why actions cannot run now."""
        return [("read last filter", self.run.busy, "It is being tried; ctrl+c stops it.")]

    def action_read(self) -> None:
        """Replay the last questions."""
        from memtui.service.context.impact import ImpactRequest

        request = ImpactRequest.model_validate(
            {"records": self._records, "last": self._last, "filter": self.chosen}
        )

        def ended(state: State, *notice: str) -> None:
            self._state = state
            effects = self._impact.effects if self._impact else ()
            self.fill(effects, *notice, "esc goes back.")
            self.ended()

        def done(found: Impact) -> None:
            self._impact = found
            ended("done", "No answer would differ." if found.tried else "No answer was tried.")

        def failed(error: MemtuiError) -> None:
            ended("failed", f"✗ {error}")

        self._state, self._impact, self._progress = "running", None, None
        self.fill((), "Asking again what was asked …", "ctrl+c stops it.")
        self.run.start(
            partial(self.service.impact.of, self.caller, request, progress=self._tell),
            done=done,
            stopped=lambda: ended("stopped", "Stopped.", "r tries again."),
            failed=failed,
        )

    def _tell(self, so_far: ReplayProgress) -> None:
        self._progress = so_far
        if self.is_attached and monotonic() - self._reported_at > _PROGRESS_SECONDS:
            self._reported_at = monotonic()
            self.query_one("#modal-head", Fitted).fit(self.draw_head())

    async def action_checks(self) -> None:
        """Show which checks would no longer pass."""
        from memtui.screens.checks import Checks

        checks = Checks(self.state, self._records)
        await self.visit(checks)
        self._checked = checks.outcome

    async def action_last(self) -> None:
        """Ask how many of the newest questions to replay."""
        title = "Try how many of the newest queries and contexts?"
        last = await self.ask_number(title, self._last, most=_MOST, go="try")
        if last is not None:
            self._last = last
            self.action_read()

    def action_operation(self) -> None:
        """Show the newest operation with the question in Operations."""
        self.post_message(GoTo("operations", select=self.row.operation.operation_id))

    def action_copy(self) -> None:
        """Copy the question."""
        self.copy(self.row.question, "Copied the question.")


def summary(found: Impact) -> Iterator[Content]:
    """Yield the lines about the impact; the first is coloured by its severity."""
    style = BAD if found.would_lose else WARN if found.differ or found.with_a_record else OK
    for words in fmt.impact_words(found):
        yield display(words, limit=400, style=style)
        style = DIM


def _how(one: Effect) -> Cell:
    return Cell(fmt.effect_words(one, tokens=False), "muted" if one.loses_nothing else "error")


def _tokens(one: Effect) -> str | None:
    return f"{-one.tokens_saved:+,}" if one.tokens_saved else None


def _limit(one: Effect) -> str | None:
    most = one.operation.request.get("top_k")
    return f"top {most}" if most is not None else None


def _question(one: Effect) -> Cell:
    words = " ".join(one.question[:_TEXT_CHARS].split())
    return Cell(words, "") if words else Cell("a context without a prompt", "muted")


def _line(record: AnsweredRecord, sign: str, style: str, note: str = "") -> Content:
    words = " ".join(record.text[:_TEXT_CHARS].split())
    return line(
        display(f"{sign}{record.rank:>3}", style=style or DIM),
        display(words, limit=_TEXT_CHARS, style=style),
        display(note, style=DIM) if note else None,
        gap="  ",
    )
