"""What came of a memory, over a numbered screen; from there it is forgotten or held for review."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.content import Content

from memtui.contract import Filter, RecordHandle
from memtui.presenters import format as fmt
from memtui.presenters import traces as words
from memtui.screens.dialogs import Choice, Choose, Confirm
from memtui.screens.modal import ModalListScreen
from memtui.screens.state import GoTo
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import Line, joined, labelled
from memtui.widgets.display import DIM, STRONG, WARN, display, line, lines

if TYPE_CHECKING:
    from memtui.screens.state import AppState
    from memtui.service.history.traces import MemoryTrace, TracedRecord
    from memtui.service.usecases.tracing import TracePlan

_TEXT_CHARS = 400


class TraceScreen(ModalListScreen["TracedRecord"]):
    """Lists what came of a record, or of some writes, each below what it came of."""

    ACTION_GROUP = "trace"
    NOUN = "write"
    READING = "Following the log …"

    def __init__(
        self, state: AppState, of: tuple[str, RecordHandle] | tuple[Filter, str], what: str
    ) -> None:
        """Prepare the list.

        Args:
            state: The state of the app.
            of: A binding and a record, or writes and the document that they are from.
            what: Describes them.
        """
        super().__init__(state)
        self._of = of
        self._what = what
        self._trace: MemoryTrace | None = None

    def columns(self) -> list[Column[TracedRecord]]:
        """Return the columns of the list."""
        return [
            Column("sure", "sure", lambda one: str(int(one.certainty or 0) or "·"), 4, keep=98),
            Column("what", "what", _what, 20, flexible=True, keep=100),
            Column("when", "when", self._when, 6, "right", keep=90, tone="muted"),
            Column("run", "run", lambda one: one.run_id, 10, keep=80),
            Column("by", "by", lambda one: one.by, 10, keep=70),
            Column("given", "given", words.spread, 16, keep=60, tone="muted"),
        ]  # fmt: skip

    def key(self, row: TracedRecord) -> str:
        """Return write and record."""
        return "\x1f".join([str(row.seq), *row.place])

    def _when(self, one: TracedRecord) -> str:
        return fmt.ago(one.operation.started_at, self.state.clock()) if one.operation else ""

    def draw_head(self) -> Content:
        """Return what is traced, how much came of it, and what the log cannot know."""
        what = display(" ".join(self._what.split()), limit=60, style=STRONG)
        title = line("what came of", what)
        if self._trace is None:
            return title
        # The details of the first row have all of it.
        unknown = "  ".join(words.unknown(self._trace.unknown, self._trace.gaps))
        summary = display(words.summary(self._trace), style=DIM)
        return lines([title, summary, display(unknown, limit=76, style=WARN)])

    def detail(self, row: TracedRecord, width: int) -> Content:
        """Return a write whole, and what came back in it."""
        made = row.operation
        about: list[Line] = [
            display(words.certainty(row), style=STRONG),
            labelled("given by", f"#{row.given.seq}" if row.given else ""),
            labelled("came back", display(row.passage, limit=2_000)),
            labelled("delivered", words.spread(row)),
            labelled("today", words.state(row)),
            labelled("record", display(" ".join(row.place), limit=300)),
            labelled("written", fmt.minute(made.started_at, self.state.zone) if made else ""),
            labelled("cost", fmt.operation_cost(made) if made else ""),
        ]
        text = display(row.text or "The text is not stored.", limit=4_000, keep_newlines=True)
        trace = self._trace if not row.depth else None
        unknown = words.unknown(trace.unknown, trace.gaps) if trace else ()
        return joined([about, [display(one, style=WARN) for one in unknown], [text]], width)

    async def read(self) -> list[TracedRecord]:
        """Follow the log."""
        (first, second), traces = self._of, self.service.traces
        if isinstance(first, Filter):
            self._trace = await traces.of_writes(self.caller, first, str(second))
        elif isinstance(second, RecordHandle):
            self._trace = await traces.of_record(self.caller, first, second)
        return self._trace.records if self._trace else []

    async def action_impact(self) -> None:
        """Show which answers would differ without what came of it."""
        from memtui.screens.impact import ImpactScreen

        if (plan := await self._planned()) is not None:
            handles = {key: [one.handle for one in own] for key, own in plan.records.items()}
            await self.visit(ImpactScreen(self.state, handles, next(words.planned(plan))))

    async def action_forget(self) -> None:
        """Forget what came of it, after a yes."""
        await self._change("forget", "")

    async def action_hold(self) -> None:
        """Let a person decide on each record in the queue, after a yes."""
        await self._change("hold", f"it came of {self._what[:_TEXT_CHARS]}")

    async def action_review(self) -> None:
        """Show the review queue."""
        from memtui.screens.review import ReviewScreen

        await self.visit(ReviewScreen(self.state))

    async def _change(self, verb: str, hold: str) -> None:
        from memtui.service.usecases.forgetting import forget

        if (plan := await self._planned()) is None:
            return
        what, *left = words.planned(plan)
        waits = ["Agents get none of it from now on, until a person decides (Q)."] if hold else []
        detail = "\n".join([*left, *waits, "u takes all of it back."])
        if await self.ask(Confirm(f"{verb.capitalize()} {what}?", verb=verb, detail=detail)):
            work = partial(forget, self.service, self.caller, plan.records, hold=hold)
            done = await self.change(work)
            failed = (one.sentence for one in done.failed)
            also = "Q decides on it, " if hold else ""
            self.toast(" ".join([f"{verb}: {what}; {also}u takes it back.", *failed]))
            self.load()

    async def _planned(self) -> TracePlan | None:
        """Ask how certain it has to be, and read the records; None: the person went back."""
        from memtui.service.usecases.tracing import plan

        if (trace := self._trace) is None:
            return None
        offered = [
            Choice(one, f"{int(one)} {said}", fmt.counted(len(trace.through(one)), "write"))
            for one, said in words.CERTAIN.items()
        ]
        least = await self.ask(Choose("Everything at least as certain as", offered))
        if least is None:
            return None
        work = partial(plan, self.service, self.caller, trace, least)
        return await self.wait("reading the records", work)

    def action_operation(self) -> None:
        """Show the write in Operations."""
        if (operation := self.row.operation) is not None:
            self.post_message(GoTo("operations", select=operation.operation_id))

    def action_record(self) -> None:
        """Show the record in Records."""
        key, name = self.row.place
        self.post_message(GoTo("records", binding_key=key, select=name))


def _what(one: TracedRecord) -> Cell:
    text = " ".join((one.text or "(no text)")[:_TEXT_CHARS].split())
    return Cell("  " * one.depth + text, "" if one.is_there else "muted")
