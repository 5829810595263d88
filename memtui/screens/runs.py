"""The runs of agents over a numbered screen, and the replay of one, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual.content import Content

from memtui.contract import Filter, MemtuiError, NotFound, RecordHandle
from memtui.filters import format_filter
from memtui.presenters import format as fmt
from memtui.presenters import runs as words
from memtui.screens.dialogs import Choice, Choose, Sheet
from memtui.screens.following import News
from memtui.screens.modal import ModalListScreen, Reasons
from memtui.screens.state import AppState, GoTo
from memtui.store.operation import DELIVERIES
from memtui.widgets.columns import Cell, Column, Tone
from memtui.widgets.detail_lines import (
    Line,
    diff_lines,
    ending_lines,
    heading,
    joined,
    key_hint,
    labelled,
    moment,
    outcome_words,
    risk_lines,
    usage_lines,
)
from memtui.widgets.display import BAD, DIM, OK, STRONG, WARN, display, line, lines
from memtui.widgets.record_names import RecordName, risky_cell

if TYPE_CHECKING:
    from memtui.service.history.runs import AssembledNow, Run, RunRecord, RunStep

RecordAt = tuple[str, RecordHandle, str]
"""Binding key, record handle and text."""

_PAGE = 100
_HINT = "agent:coding since:7d type:write; empty: all   enter filter   esc go back"
_STATE_STYLES = {"unchanged": OK, "changed": WARN, "gone": BAD, "there": DIM, "unread": WARN}
_NOTHING = (
    "This run did nothing yet, or nothing that you may see.",
    "r reads again, esc goes back.",
)
_TEXT_CHARS = 400
"""Longest record text in a list of records; the context's text is shown in full."""


class RunsScreen(ModalListScreen["Run"]):
    """List runs, the last to do something first; `enter` replays one."""

    ACTION_GROUP = "runs"
    NOUN = "run"
    READING = "Reading the runs …"
    FILTERS = ("List runs with an operation that passes", _HINT)

    def __init__(self, state: AppState, record: RecordAt | None = None) -> None:
        """Prepare the list; `record`: only runs whose context or reads included this record."""
        super().__init__(state)
        self._record = record
        self._total = 0
        self.chosen = Filter() if record else state.log_filter

    def columns(self) -> list[Column[Run]]:
        """Return the columns of the list."""
        clock = self.state.clock
        return [
            Column("run", "run", lambda one: one.run_id, 10, flexible=True, keep=100),
            Column("when", "when", lambda one: fmt.ago(one.last_at, clock()), 6, "right", keep=95,
                   tone="muted"),
            Column("agent", "agent", lambda one: ", ".join(one.agents) or None, 10, flexible=True,
                   keep=94),
            Column("project", "project", lambda one: ", ".join(one.projects) or None, 13, keep=93),
            Column("given", "given", lambda one: _number(one.tokens_given), 6, "right", keep=90),
            Column("asked", "asked", lambda one: _number(one.queries), 5, "right", keep=86),
            Column("wrote", "wrote", lambda one: _number(one.writes), 5, "right", keep=87),
            Column("fixed", "fixed", lambda one: _number(one.corrections), 5, "right", keep=60),
            Column("forgot", "forgot", lambda one: _number(one.forgets), 6, "right", keep=60),
            Column("failed", "failed", _failed, 6, "right", keep=70),
            Column("cost", "$", words.short_cost, 8, "point", keep=92, tone="muted"),
        ]  # fmt: skip

    def key(self, row: Run) -> str:
        """Return the id of a run."""
        return row.run_id

    @property
    def number(self) -> str:
        """How many runs there are, those of later pages too."""
        return fmt.counted(self._total, "run") if self.is_read else ""

    def draw_head(self) -> Content:
        """Return the head: which runs are listed, and how many."""
        what = line("runs of agents", display(self.number, style=STRONG), gap="   ")
        if self._record is not None:
            text = display(" ".join(self._record[2].split()), limit=200, style=STRONG)
            number = display(self.number, style=DIM)
            what = line("runs that were given", text, number, gap="   ")
        return lines([what, *self.narrowed()])

    def detail(self, row: Run, width: int) -> Content:
        """Return a run, without its steps."""
        now, zone = self.state.clock(), self.state.zone
        whose: list[Line] = [
            labelled("agent", ", ".join(row.agents)),
            labelled("project", ", ".join(row.projects)),
            labelled("user", ", ".join(row.subjects)),
            labelled("issue", ", ".join(row.issues)),
            labelled("by", ", ".join(row.principals)),
            labelled("through", ", ".join(row.channels)),
        ]
        did: list[Line] = [
            labelled("given", words.given(row)),
            labelled("did", words.did(row)),
            labelled("failed", display(words.failed(row), style=WARN)),
            labelled("cost", words.cost(row)),
        ]
        when: list[Line] = [
            labelled("from", moment(row.started_at, now, zone)),
            labelled("to", moment(row.last_at, now, zone)),
        ]
        return joined([[display(row.run_id, limit=200, style=STRONG)], whose, when, did], width)

    def happened(self, news: News) -> None:
        """Read the runs again if one has new steps, unless the person has scrolled down."""
        went_on = news.is_part or any(one.scope.run_id for one in news.operations)
        if went_on and self.rows.loaded <= _PAGE:
            self.load()

    async def read(self) -> tuple[Run, ...]:
        """Read the first page."""
        return await self._page(None)

    async def read_on(self) -> tuple[Run, ...]:
        """Read the next page."""
        return await self._page(self.following)

    async def _page(self, before: int | None) -> tuple[Run, ...]:
        record = (self._record[0], self._record[1].provider_record_id) if self._record else None
        page = await self.service.runs.page(
            self.caller, self.chosen, delivered=record, limit=_PAGE, before=before
        )
        self._total, self.following = page.total, page.next_before
        return page.runs

    def nothing(self) -> tuple[str, str]:
        """Return what to say where there is no run."""
        if self._record is not None:
            return "This record was delivered to no run.", "esc goes back."
        if self.chosen != Filter():
            return "No run passes the filter.", "/ changes it; the rest of the runs is not gone."
        return (
            "No run is in the log yet.",
            "`memtui hook install CLIENT` and `memtui mcp install CLIENT` let agents have runs.",
        )

    def open_row(self) -> None:
        """Replay the run, which shows more than the details would."""
        self.talk(self.action_replay())

    async def action_replay(self) -> None:
        """Replay the run under the cursor, from the step that delivered the record on."""
        await self.visit(ReplayScreen(self.state, self.row.run_id, self._record))

    def action_operations(self) -> None:
        """Show all operations of the run."""
        only = format_filter(Filter(run_id=self.row.run_id))
        self.post_message(GoTo("operations", filter_line=only))

    async def action_trace(self) -> None:
        """Show the trace of all records that the run wrote."""
        from memtui.screens.traces import TraceScreen

        run_id = self.row.run_id
        await self.visit(TraceScreen(self.state, (Filter(run_id=run_id), ""), f"run {run_id}"))

    def action_copy(self) -> None:
        """Copy the id of the run."""
        self.copy(self.row.run_id, "Copied the id.")


# How runs read.


def _number(count: int) -> Cell:
    return Cell(fmt.count(count), "" if count else "muted")


def _failed(run: Run) -> Cell:
    return Cell(fmt.count(run.failures), "error" if run.failures else "muted")


class ReplayScreen(ModalListScreen["RunStep"]):
    """The steps of a run in order, beside the state of their records today, read page by page."""

    ACTION_GROUP = "replay"
    NOUN = "step"
    READING = "Replaying the run …"
    NOTHING = _NOTHING

    def __init__(self, state: AppState, run_id: str, record: RecordAt | None = None) -> None:
        """Prepare the list; the cursor begins on the step that delivered `record`."""
        super().__init__(state)
        self._run_id = run_id
        self._record = record
        self._run: Run | None = None

    def columns(self) -> list[Column[RunStep]]:
        """Return the columns of the list."""
        return [
            Column("at", "at", self._offset, 7, "right", keep=90, tone="muted"),
            Column("step", "step", _verb, 12, keep=100),
            Column("what", "what", self._what, 20, flexible=True, keep=95),
            Column("records", "records", lambda one: one.operation.result_count, 7, "right",
                   keep=70),
            Column("today", self._today, _today, 9, keep=75),
            Column("tokens", "tokens", _tokens, 7, "right", keep=80),
            Column("cost", "$", _cost, 9, "point", keep=50, tone="muted"),
        ]  # fmt: skip

    def key(self, row: RunStep) -> str:
        """Return the id of the operation."""
        return row.operation.operation_id

    def names_of(self, row: RunStep) -> list[RecordName]:
        """Return the present names of the records of a step that are there."""
        return [name for one in row.records if (name := _name_of(one))]

    def _what(self, step: RunStep) -> Cell:
        return risky_cell(words.what(step), self.names_of(step), self.marks)

    @property
    def _today(self) -> str:
        """The word for the moment at which records are looked up."""
        return "today" if self.state.as_of is None else "by then"

    def _offset(self, step: RunStep) -> str:
        begun = self._run.started_at if self._run else step.operation.started_at
        return words.offset(step.operation.started_at - begun)

    def draw_head(self) -> Content:
        """Return the head: whose run it is, its outcome, and how much of it exists today."""
        run, name = self._run, display(self._run_id, limit=120, style=STRONG)
        if run is None:
            return line("run", name)
        now = self.state.clock()
        who = " · ".join(filter(None, [", ".join(run.agents), ", ".join(run.projects)]))
        title = line("run", name, display(who, limit=120), fmt.since(run.last_at, now), gap="   ")
        figures = [f"given {words.given(run)}", f"did {words.did(run)}"]
        if run.failures:
            figures.append(f"failed {words.failed(run)}")
        today = words.today(one for _, step in self.rows.held() for one in step.records)
        figures.append(today if self.state.as_of is None else f"{today} by then" if today else "")
        return lines([title, display("   ".join(filter(None, figures)), limit=400, style=DIM)])

    def detail(self, row: RunStep, width: int) -> Content:
        """Return a step whole."""
        now, zone = self.state.clock(), self.state.zone
        operation = row.operation
        number = display(f"#{fmt.count(operation.seq)}", style=DIM)
        verb = display(words.verb(row), style=STRONG)
        head: list[Line] = [
            line(verb, number, outcome_words(operation), gap="  "),
            display(moment(operation.started_at, now, zone), style=DIM),
        ]
        head += ending_lines(operation, row.found)
        blocks = [head, list(_about(row))]
        for one in row.records:
            name = _name_of(one)
            blocks.append([*_record(one), *risk_lines(self.marks.get(name) if name else None)])
        if row.context is None:
            blocks.append(list(usage_lines(operation)))
        return joined(blocks, width)

    def reasons(self) -> Reasons:
        """Return why actions cannot run now."""
        if (step := self.current) is None:
            return ()
        return (
            ("record delivered", not step.records, "This step touched no record."),
            ("assembled_now", step.context is None, "This step delivered no context."),
        )

    def happened(self, news: News) -> None:
        """Add new steps of a run that is still going on."""
        if self._run is None or self.following is not None:
            return
        if news.is_part or any(one.scope.run_id == self._run_id for one in news.operations):
            self.load_on()

    async def read(self) -> tuple[RunStep, ...]:
        """Read the run and the state of its records, up to the step that delivered the record."""
        steps = await self._page(0)
        wanted, self._record = self._record, None
        while wanted is not None:
            delivered = next((one for one in steps if _has(one, wanted)), None)
            if delivered is not None:
                self.written = self.key(delivered)
            if delivered is not None or self.following is None:
                break
            steps += await self._page(self.following)
        return steps

    async def read_on(self) -> tuple[RunStep, ...]:
        """Read the next page of steps."""
        last = self._run.last_seq if self._run else 0
        return await self._page(last if self.following is None else self.following)

    async def _page(self, after: int) -> tuple[RunStep, ...]:
        played = await self.service.runs.replay(self.caller, self._run_id, after=after)
        self._run, self.following = played.run, played.next_after
        return played.steps

    def not_read(self, error: MemtuiError) -> None:
        """Show the error; a client that has just connected has a run without operations."""
        super().not_read(error)
        if isinstance(error, NotFound):
            self.rows_list.notice = _NOTHING

    def action_assembled_now(self) -> None:
        """Compare the context delivered then with what would be delivered now."""
        session, operation = self.session, self.row.operation

        async def compared() -> Callable[[int], Content]:
            found = await session.service.runs.assembled_now(session.caller, operation.operation_id)
            return partial(assembled_now_content, found)

        title = f"What would be delivered now, instead of #{fmt.count(operation.seq)}"
        waiting = display("… assembling the context again", style=DIM)
        self.app.push_screen(Sheet(title, waiting, read=compared))

    def action_operation(self) -> None:
        """Show the step in Operations."""
        self.post_message(GoTo("operations", select=self.row.operation.operation_id))

    async def action_record(self) -> None:
        """Show a record of the step in Records."""
        record = await self._chosen("Show in Records")
        if record is not None:
            now = record.new_id or record.handle.provider_record_id
            self.post_message(GoTo("records", binding_key=record.binding_key, select=now))

    async def action_delivered(self) -> None:
        """Show the other runs that got a record of the step."""
        record = await self._chosen("Runs that were given")
        if record is None or record.binding_key is None:
            return
        record_at = (record.binding_key, record.handle, record.text or "")
        await self.visit(RunsScreen(self.state, record_at))

    async def _chosen(self, title: str) -> RunRecord | None:
        """Return the only record of the step, else ask which one; None: the person went back."""
        records = self.row.records
        if len(records) == 1:
            return records[0]
        choices = [
            Choice(one, record_line(one), f"rank {one.rank:<3} {words.state(one)}")
            for one in records
        ]
        return await self.ask(Choose(title, choices))

    def action_copy(self) -> None:
        """Copy the delivered text, else what the step was about."""
        step = self.row
        if step.context is not None and step.context.text is not None:
            self.copy(step.context.text, "Copied the delivered text.")
        else:
            self.copy(words.what(step), "Copied the text of the step.")


# How a step reads.


def _has(step: RunStep, record: RecordAt) -> bool:
    """Return whether a step returned a record, under its present id or a former one."""
    key, name = record[0], record[1].provider_record_id
    return step.operation.operation_type in DELIVERIES and any(
        one.binding_key == key and name in {one.handle.provider_record_id, one.new_id}
        for one in step.records
    )


def _name_of(record: RunRecord) -> RecordName | None:
    """Return the present name of a record; None: it is gone."""
    if record.binding_key is None or record.state == "gone":
        return None
    return RecordName(record.binding_key, record.new_id or record.handle.provider_record_id)


def _verb(step: RunStep) -> Cell:
    ended = fmt.outcome(step.operation.status)
    tone: Tone = "" if ended.tone == "success" else "error" if ended.tone == "error" else "warning"
    return Cell(f"{ended.symbol} {words.verb(step)}", tone)


def _today(step: RunStep) -> Cell:
    changed = any(one.state in {"changed", "gone"} for one in step.records)
    return Cell(words.changes(step.records), "warning" if changed else "muted")


def _tokens(step: RunStep) -> Cell:
    if step.context is not None:
        return Cell(fmt.count(step.context.price.input_tokens))
    usage = step.operation.usage
    used = sum(one.input_tokens + one.output_tokens + one.embedding_tokens for one in usage)
    return Cell(fmt.count(used) if used else "")


def _cost(step: RunStep) -> str:
    if step.context is not None:
        price = step.context.price
        return fmt.short_money(price.cost_usd, unpriced=not price.priced)
    operation = step.operation
    return fmt.short_money(operation.cost_usd, unpriced=operation.unpriced)


def _about(step: RunStep) -> Iterator[Line]:
    context, operation = step.context, step.operation
    if context is None:
        about = operation.request.get("query") or operation.request.get("content")
        yield display(str(about or words.what(step)), limit=4_000, keep_newlines=True)
        return
    prompt = operation.request.get("prompt")
    yield labelled("for", display(f"“{prompt}”", limit=1_000) if prompt else None)
    yield labelled("costs", words.spent(step))
    sections = (f"{name} {fmt.count(tokens)}" for name, tokens in context.sections.items())
    yield labelled("sections", ", ".join(sections))
    yield key_hint("t", "what would be delivered now")
    yield Content("")
    if context.text is None:
        yield display("The text is no longer stored.", style=DIM)
    elif not context.text:
        yield display("There was nothing new to tell.", style=DIM)
    else:
        yield display(context.text.rstrip("\n"), keep_newlines=True)


def record_line(record: RunRecord) -> str:
    """Return a record as the run knew it, on one line."""
    text = record.text if record.text is not None else record.handle.provider_record_id
    return " ".join(text[:_TEXT_CHARS].split())


def _record(record: RunRecord) -> list[Line]:
    style = _STATE_STYLES[record.state]
    found: list[Line] = [
        line(
            display(f"{record.rank:>3}", style=DIM),
            display(words.measured(record), style=DIM),
            display(words.state(record), limit=300, style=style),
            gap="  ",
        )
    ]
    if record.state == "changed" and record.text is not None and record.now is not None:
        found.extend(diff_lines(record.text, record.now))
    else:
        found.append(display(record_line(record), limit=_TEXT_CHARS))
    found.append(display(record.handle.provider_record_id, limit=300, style=DIM))
    return found


def assembled_now_content(found: AssembledNow, width: int) -> Content:
    """Return the difference between the context of then and the one assembled now."""
    counts = f"{fmt.counted(found.tokens, 'token')} then, {fmt.count(found.now.tokens)} now"
    if not found.difference:
        same = display("The same text would be delivered, word for word.", style=OK)
        return joined([[display(counts, style=DIM)], [same]], width)
    changed = list(diff_lines(found.delivered, found.now.text))
    return joined([[heading("what changed", counts)], changed], width)
