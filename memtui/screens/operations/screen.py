"""Screen 2: the operation log; list on the left, the selected operation on the right."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.widgets import Static

from memtui.actions import ACTIONS, Action, Need
from memtui.contract import (
    Filter,
    Invalid,
    MemtuiError,
    NotFound,
    OperationStatus,
    OperationType,
    Record,
    Scope,
)
from memtui.filters import FilterTarget, format_filter, parse_when
from memtui.json_text import json_text
from memtui.paths import check_target
from memtui.presenters import format as fmt
from memtui.screens.dialogs import Choice, Choose, Confirm, Prompt
from memtui.screens.exports import export
from memtui.screens.following import News
from memtui.screens.kept import SavedView
from memtui.screens.list_screen import ListScreen
from memtui.screens.open_source import open_source
from memtui.screens.operations.log import NEWEST_FIRST, LogFeed
from memtui.screens.operations.view import (
    FIXED_BY,
    SHOWN,
    SORTS,
    OperationDetail,
    OperationView,
    about,
    asked,
    names_of,
    operation_columns,
)
from memtui.screens.state import AppState, GoTo
from memtui.store.operation import Operation, Parts, Place
from memtui.widgets.background import Background
from memtui.widgets.display import display
from memtui.widgets.record_names import RecordName
from memtui.widgets.virtual_list import Scrolled, VirtualList

if TYPE_CHECKING:
    from memtui.service.answers import Change, TakenBackBy, Together
    from memtui.service.usecases.agent_writes import AgentWrites
    from memtui.store.journal import OutcomeCheck

_WEEK = timedelta(days=7)
_WRITES = {OperationType.WRITE}
_TELLING = (OperationType.UNDO, OperationType.CHECK)
"""Types of operations that change the details of earlier ones."""
_EXPORTED = ("csv", "jsonl", "parquet")
_HIDDEN = frozenset(SORTS) - SHOWN
_TEXTS_READ = 10
"""Most records read when a person enters the details."""


class _Later(NamedTuple):
    """What later operations say of rows, and what was logged with them, by operation."""

    undone: Mapping[str, TakenBackBy]
    found: Mapping[str, OutcomeCheck]
    parts: Mapping[str, Parts]


class OperationsScreen(ListScreen[Operation]):
    """Every operation of the company, newest first and live.

    The effect of a change comes from the undo journal, without a logged read. The text of a record
    that a query returned needs a read, which is logged as an operation: so it is read once, and
    only when the person enters the details.
    """

    MODE = "operations"
    NOUN = "operation"
    NARROWS = FilterTarget.OPERATIONS
    READS_WITH = (
        "memtui.store.tables",
        "memtui.analytics.reading",
        "memtui.service.history.analysis",
    )

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self._apart: tuple[Operation | None, int] = None, 0
        """A shown operation that the list lacks, and the list's `times_put` at that time."""
        self._feed = LogFeed(self, lambda one: self._parts.get(one.operation_id, one))
        self._records: dict[Place, Record | str] = {}
        self._changes: dict[str, tuple[Change, ...]] = {}
        self._found: dict[str, OutcomeCheck | None] = {}
        """Results of checks of unknown outcomes, by operation."""
        self._undone: dict[str, TakenBackBy] = {}
        """What was undone of the changes among the loaded rows."""
        self._parts: dict[str, Parts] = {}
        """The operations of questions over several bindings, by the row that stands for them."""
        self._journal = Background(self, "operation-changes")
        self._following = Background(self, "later-operations")
        self._texts = Background(self, "operation-texts")
        self._agents = Background(self, "agent-writes")
        self._summed_up: tuple[Scope, datetime | None] | None = None
        """The scope and moment of the first line."""

    def compose_body(self) -> ComposeResult:
        """Lay out what agents wrote this week, and below it list and details."""
        yield Static(id="agent-writes")
        yield from super().compose_body()

    def make_list(self) -> VirtualList[Operation]:
        """Return the list, the newest operations first."""
        columns = operation_columns(
            self.state.clock, self._is_typed, self.marks, self._undone, self._parts,
            found=self._found,
        )  # fmt: skip
        log: VirtualList[Operation] = VirtualList(columns, self._feed.rows, name="operation-list")
        log.sort = NEWEST_FIRST
        log.hidden = _HIDDEN
        return log

    def names_of(self, row: Operation) -> list[RecordName]:
        """Return the names of the records of an operation."""
        return names_of(row, self._parts.get(row.operation_id))

    def _is_typed(self) -> bool:
        """Whether the filter lets through several types of operations."""
        return len(self.state.log_filter.any_of("operation_type")) != 1

    def make_detail(self) -> OperationDetail:
        """Return the pane of the details."""
        return OperationDetail(name="operation-detail")

    def happened(self, news: News) -> None:
        """Read the new operations, if this screen is shown."""
        if news.is_part or any(one.operation_type in _TELLING for one in news.operations):
            self._changes.clear()
            self._read_again()
        elif grown := {one.part_of for one in news.operations} - {None}:
            held = (row for _, row in self.rows_list.rows.held())
            self.read_marks(row for row in held if row.operation_id in grown)
        if self.is_current:
            self._feed.poll()
            self.moved()
            if news.is_part or any(
                one.operation_type is OperationType.WRITE for one in news.operations
            ):
                self._sum_up()

    def on_screen_resume(self) -> None:
        """Read the operations that came while another screen was shown."""
        self._feed.poll()
        self.moved()
        self._read_again()
        self.call_after_refresh(self._sum_up)

    def _sum_up(self) -> None:
        """Show in the first line what agents wrote this week in the scope."""
        state, session = self.state, self.state.session
        if session is None or not self.is_current:
            return
        self._summed_up = state.scope, state.as_of
        chosen = replace(state, filter=Filter()).log_filter
        since = (state.as_of or state.clock()) - _WEEK

        async def read() -> AgentWrites:
            from memtui.service.usecases.agent_writes import agent_writes

            return await agent_writes(session.service, session.caller, since, chosen)

        def show(found: AgentWrites) -> None:
            when = "this week" if state.as_of is None else "in that week"
            words = display(fmt.written_by_agents(found, when))
            self.query_one("#agent-writes", Static).update(words)

        self._agents.latest(read, show, self.fail)

    def on_resize(self) -> None:
        """Update the count for the new width, once the screen is styled for it."""
        if self._feed.count:
            self.call_later(self.look)

    def watch_state(self, before: AppState, now: AppState) -> None:
        """Update the live state, and the notice while a demo is being made."""
        super().watch_state(before, now)
        if before.not_live != now.not_live and self.is_mounted:
            self._feed.look()
        if before.demo_percent != now.demo_percent and self.is_mounted:
            self._feed.demo_grew()
        if before.session is not now.session:
            self.marks.clear()
        if now.risks is not None and before.risks != now.risks:
            self._read_again()
            found = before.risks[1] if before.risks is not None else None
            chosen = self._feed.chosen
            if found != now.risks[1] and any(one.uses for one in (chosen, *chosen.alternatives)):
                self._feed.load(chosen)

    def _read_again(self) -> None:
        """Read the marks of all loaded rows again, and what was undone of them."""
        if self.is_current:
            self.read_marks(row for _, row in self.rows_list.rows.held())

    def read_marks(self, rows: Iterable[Operation]) -> None:
        """Read what later operations say of rows, and the risks of their records.

        Also the other operations that they stand for. It is read in the background.
        """
        rows, session = list(rows), self.state.session
        super().read_marks(rows)
        if not self._feed.folded:
            self._parts.clear()
        if session is None:
            return
        log, caller, folded = session.service.log, session.caller, self._feed.folded
        changes = [one.operation_id for one in rows if one.operation_type.mutates]

        async def read() -> _Later:
            return _Later(
                undone=await log.undone(caller, changes) if changes else {},
                found=await log.found_outcomes(caller, rows),
                parts=await log.parts(caller, rows) if folded else {},
            )

        def show(later: _Later) -> None:
            if session is not self.state.session:
                return
            before = {one: self._undone.pop(one) for one in changes if one in self._undone}
            self._undone.update(later.undone)
            self._found.update(later.found)
            if later.parts and self._feed.folded:
                self._parts.update(later.parts)
                super(OperationsScreen, self).read_marks(
                    one for one in rows if one.operation_id in later.parts
                )
            if before != later.undone or later.found or later.parts:
                self.rows_list.redraw()
                self.draw_detail()

        self._following.every(read, show, self.fail)

    # The log.

    def load(self) -> None:
        """Open the log with the filter, unless typing the filter already opened it."""
        chosen = self.state.log_filter
        values = {column: chosen.any_of(field) for column, field in FIXED_BY.items()}
        fixed = (column for column, known in values.items() if len(known) == 1)
        self.rows_list.fixed = frozenset(fixed)
        if self.typed is None or chosen != self._feed.chosen:
            self._feed.load(chosen, on=True)
        if self._summed_up != (self.state.scope, self.state.as_of):
            self.call_after_refresh(self._sum_up)

    async def prepare(self) -> None:
        """Open the log before the screen is shown."""
        if self._stale:
            self._stale = False
            self.load()

    def forget(self) -> None:
        """Clear the operations and the texts of their records."""
        self._records.clear()
        self._changes.clear()
        self._found.clear()
        self._undone.clear()
        self._parts.clear()
        self._apart = None, 0
        self._feed.rows.reset(0)
        self.rows_list.refresh()
        self.draw_detail()

    def fetch(self, pages: tuple[int, ...]) -> None:
        """Read pages that came into view."""
        self._feed.fetch(pages)

    async def all_rows(self) -> list[Operation]:
        """Read all matching operations."""
        return await self._feed.all_rows()

    def sort(self, column: str) -> None:
        """Sort by a column, or reverse its order."""
        self._feed.sort(column)

    @on(Scrolled)
    def look(self) -> None:
        """Update the count."""
        self._feed.look()

    def try_filter(self, chosen: Filter) -> None:
        """Open the log with a filter; reading the log is no operation."""
        self._feed.load(replace(self.state, filter=chosen).log_filter)

    def select(self, name: str) -> None:
        """Put the cursor on an operation; the filter stays.

        If the log is being opened, it waits, since the present rows may have another filter.
        """
        self.talk(self._select(name))

    async def _select(self, name: str) -> None:
        operation = await self.change(partial(self.service.log.get, self.caller, name))
        self._feed.seek(operation, self._show_apart)

    def _show_apart(self, operation: Operation) -> None:
        """Show an operation that is not listed, until the cursor moves."""
        self._apart = operation, self.rows_list.times_put
        self.read_marks([operation])
        self.draw_keys()
        self.draw_detail()
        self.moved()

    @property
    def _shown_apart(self) -> Operation | None:
        apart, times_put = self._apart
        return apart if times_put == self.rows_list.times_put else None

    @property
    def current(self) -> Operation | None:
        """The shown operation: one that is not listed, else the one under the cursor."""
        return self._shown_apart or super().current

    @property
    def _shown_parts(self) -> Parts | None:
        """The operations that the shown row stands for; None: itself alone."""
        row = None if self._shown_apart else super().current
        return self._parts.get(row.operation_id) if row is not None else None

    @property
    def _rows(self) -> list[Operation]:
        """The marked operations, else the shown one; raises `NotFound` if there is none."""
        shown = self.rows_list
        return shown.chosen if shown.selection.active else [self.row]

    @property
    def _chosen(self) -> list[Operation]:
        """As `_rows`, with all operations that a row stands for in its place."""
        alone = self._shown_apart is not None and not self.rows_list.selection.active
        parts = {} if alone else self._parts
        found = ((row, parts.get(row.operation_id)) for row in self._rows)
        return [one for row, all_of in found for one in (all_of.operations if all_of else [row])]

    def action_follow(self) -> None:
        """Turn following on or off."""
        self._feed.turn()

    async def action_jump(self) -> None:
        """Go to the last operation that had begun by an asked time, or to that of a number."""
        zone = self.state.local_zone

        def place(text: str) -> datetime | str:
            number = text.strip().removeprefix("#").replace(",", "")
            if number.isdecimal() and text.strip().startswith("#"):
                return number
            return parse_when(text.strip(), now=self.state.clock(), zone=zone)

        example, title = "2026-03-01, 14:30, 3d ago, #3,025", "Go to a time or a number"
        prompt = Prompt(title, placeholder=example, go="go there", check=place)
        if (text := await self.ask(prompt)) is not None:
            found = place(text)
            await (self._select(found) if isinstance(found, str) else self._feed.jump(found))

    # Details.

    def missing_for(self, row: Operation | None) -> dict[Need, str]:
        """Return the needs that are not met for an operation."""
        missing = super().missing_for(row)
        found = self._found.get(row.operation_id) if row is not None else None
        is_unknown = row is not None and row.status is OperationStatus.UNKNOWN
        if not is_unknown or (found is not None and found.happened is not None):
            missing[Need.UNKNOWN_OUTCOME] = ""
        return missing

    def draw_detail(self) -> None:
        """Draw the shown operation, with the data read so far."""
        operation, view = self.current, None
        if operation is not None:
            view = OperationView(
                operation=operation,
                now=self.state.clock(),
                zone=self.state.zone,
                records=self._records,
                changes=self._changes.get(operation.operation_id, ()),
                found=self._found.get(operation.operation_id),
                undone=self._undone.get(operation.operation_id),
                marks=self.marks,
                parts=self._shown_parts,
            )
        self.query_one(OperationDetail).show(view)

    def moved(self) -> None:
        """Read a change's effect on each record, and its outcome check."""
        operation = self.current
        if operation is None:
            return
        session, wanted = self.session, operation.operation_id
        if wanted in self._changes or not operation.operation_type.mutates:
            self._journal.forget()
            return

        async def read() -> tuple[tuple[Change, ...], OutcomeCheck | None]:
            log, caller = session.service.log, session.caller
            return await log.changes(caller, wanted), await log.found_outcome(caller, wanted)

        def show(read: tuple[tuple[Change, ...], OutcomeCheck | None]) -> None:
            changes, self._found[wanted] = read
            self._changes[wanted] = changes
            for change in changes:
                record = change.after or change.before
                if record is not None:
                    place = operation.binding_key or "", record.handle.provider_record_id
                    self._records.setdefault(place, record)
            self.draw_keys()
            self.draw_detail()

        self._journal.latest(read, show, self.fail)

    def entered(self) -> None:
        """Read the operation's records that were not read yet."""
        operation, session = self.current, self.session
        if operation is None or self._shown_parts is not None:
            return
        handles = {operation.place_of(one): one.handle for one in operation.handles}
        unknown = [one for one in handles if one[1] and one not in self._records][:_TEXTS_READ]
        if not unknown:
            return

        async def read() -> dict[Place, Record | str]:
            found: dict[Place, Record | str] = {}
            for place in unknown:
                if not (key := place[0]):
                    found[place] = "no binding of this company holds it"
                    continue
                try:
                    answer = await session.service.get(
                        session.caller, handles[place], operation.asked_scope, binding_key=key
                    )
                except NotFound:
                    found[place] = "it is not there any more"
                except MemtuiError as error:
                    found[place] = str(error)
                else:
                    found[place] = answer.record
            return found

        def show(found: dict[Place, Record | str]) -> None:
            self._records.update(found)
            self.draw_detail()

        self._texts.latest(read, show, self.fail)

    async def action_check(self) -> None:
        """Ask the provider whether an unknown outcome happened."""
        wanted = self.row.operation_id
        await self.change(partial(self.service.check_outcome, self.caller, wanted))
        self._changes.pop(wanted, None)
        self.moved()

    async def action_record_check(self) -> None:
        """Record a check from the operation."""
        from memtui.screens.checks import record

        await record(self, self.row.operation_id)

    @on(OperationDetail.RecordChosen)
    def _go_to_record(self, event: OperationDetail.RecordChosen) -> None:
        if (operation := self.current) is not None:
            key, chosen = operation.place_of(event.handle)
            self.post_message(GoTo("records", binding_key=key or None, select=chosen))

    @on(OperationDetail.PartChosen)
    def _open_part(self, event: OperationDetail.PartChosen) -> None:
        self._show_apart(event.operation)
        self.query_one(OperationDetail).enter()
        self.entered()

    def action_back(self) -> None:
        """Go back from one operation of a question to all of them, else as in every list."""
        apart, row = self._shown_apart, super().current
        is_part = apart and row and row.operation_id in (apart.part_of, apart.operation_id)
        if is_part and self.opened:
            self._apart = None, 0
            self.draw_keys()
            self.draw_detail()
            self.query_one(OperationDetail).enter()
            return
        super().action_back()

    def action_open(self) -> None:
        """Open the source of the record under the cursor, else of the operation."""
        handle = self.query_one(OperationDetail).handle
        record = self._records.get(self.row.place_of(handle)) if handle else None
        if isinstance(record, Record):
            open_source(self, record.source, record.location)
        else:
            open_source(self, self.row.source)

    async def action_records(self) -> None:
        """Go to a record that the operation touched."""
        if (found := await self._chosen_place()) is not None:
            key, record_id = found[0]
            self.post_message(GoTo("records", binding_key=key or None, select=record_id))

    async def action_history(self) -> None:
        """Show every version of a record that the operation touched, also where it is gone."""
        from memtui.screens.timeline import TimelineScreen

        if (found := await self._chosen_place()) is None:
            return
        place, operation = found
        if not place[0]:
            raise NotFound("No binding of this company holds it.")
        handle = next(one.handle for one in operation.handles if operation.place_of(one) == place)
        scope, name = operation.asked_scope, self._known_name(place) or place[1]
        await self.visit(TimelineScreen(self.state, place[0], handle, scope, name))

    async def action_trace(self) -> None:
        """Show what came of a record that the operation touched, of its run, or of its agent."""
        from memtui.screens.traces import TraceScreen

        scope, of = self.row.scope, "record"
        named = {"run": scope.run_id, "agent": scope.agent_id}
        offered = [Choice("record", "a record that it touched")] if self.row.handles else []
        offered += [Choice(one, f"{one} {name}") for one, name in named.items() if name]
        if len(offered) > 1 and not (of := await self.ask(Choose("What came of", offered)) or ""):
            return
        if name := named.get(of) or "":
            chosen = Filter().model_copy(update={f"{of}_id": name})
            await self.visit(TraceScreen(self.state, (chosen, ""), f"{of} {name}"))
        elif (found := await self._chosen_place()) is not None:
            place, operation = found
            handles = {operation.place_of(one): one.handle for one in operation.handles}
            what = self._known_name(place) or place[1]
            await self.visit(TraceScreen(self.state, (place[0], handles[place]), what))

    def _known_name(self, place: Place) -> str:
        """Return the name of a record whose text was read; empty if it was not."""
        record = self._records.get(place)
        return fmt.record_name(record) if isinstance(record, Record) else ""

    async def _chosen_place(self) -> tuple[Place, Operation] | None:
        """Return a record and an operation that touched it, asking which if there are several.

        None: the person went back.
        """
        chosen = self._chosen
        touched: dict[Place, list[Operation]] = defaultdict(list)
        for operation in chosen:
            for handle in operation.handles:
                touched[operation.place_of(handle)].append(operation)
        if not touched:
            raise NotFound("No record was touched.")
        place = next(iter(touched))
        if len(touched) > 1:
            is_marked = self.rows_list.selection.active
            marked = fmt.counted(len(chosen), f"{'marked ' * is_marked}operation")
            title = (
                f"{marked if len(chosen) > 1 else 'This operation'} touched "
                f"{fmt.counted(len(touched), 'record')}{_why_fewer(chosen, touched)}"
            )
            offered = [_touched(one, by, self._known_name(one)) for one, by in touched.items()]
            if (answer := await self.ask(Choose(title, offered))) is None:
                return None
            place = answer
        return place, touched[place][0]

    async def action_runs(self) -> None:
        """Show the runs of agents."""
        from memtui.screens.runs import RunsScreen

        await self.visit(RunsScreen(self.state))

    async def action_sources(self) -> None:
        """Show the sources of recent writes."""
        from memtui.screens.sources import Sources

        await self.visit(Sources(self.state))

    async def action_replay(self) -> None:
        """Replay the run of this operation."""
        from memtui.screens.runs import ReplayScreen

        if (run_id := self.row.scope.run_id) is None:
            raise NotFound("This operation belongs to no run.")
        await self.visit(ReplayScreen(self.state, run_id))

    def action_stop(self) -> None:
        """End the search of the log, or its sorting."""
        if not self._feed.stop():
            self.toast("Nothing is being searched.")

    def action_same_run(self) -> None:
        """Narrow every screen to the run of this operation."""
        self._narrow("run")

    def action_same_issue(self) -> None:
        """Narrow every screen to the issue of this operation."""
        self._narrow("issue")

    def _narrow(self, word: str) -> None:
        field, operation = f"{word}_id", self.row
        value = getattr(operation.scope, field) or getattr(operation.source, field, None)
        if value is None:
            raise NotFound(f"This operation belongs to no {word}.")
        narrowed = Filter().model_copy(update={field: value})
        self.post_message(GoTo(filter_line=format_filter(narrowed)))

    async def action_copy(self) -> None:
        """Ask which part of the marked operations, else the selected one, to copy."""
        chosen = self._chosen
        several = len(chosen) > 1
        indent = None if several else 2
        texts = {
            "text": "\n".join(filter(None, map(asked, self._rows))),
            "id": "\n".join(one.operation_id for one in chosen),
            "JSON": "\n".join(
                json_text(one.model_dump(mode="json"), indent=indent) for one in chosen
            ),
            "digest": "\n".join(one.digest for one in chosen),
        }
        names = {**texts, "JSON": "all of it"}
        if several:
            names = {"text": "texts", "id": "ids", "digest": "digests"}
            names["JSON"] = "all of them, one on each line"
        which = fmt.counted(len(chosen), "operation") if several else f"#{fmt.count(chosen[0].seq)}"
        choices = [Choice(what, names[what], what) for what in texts if texts[what]]
        if what := await self.ask(Choose(f"Copy of {which}", choices)):
            self.copy(texts[what], f"Copied the {what} of {which}.")

    def action_export(self) -> None:
        """Ask for a file, and export all matching operations to it."""
        session, chosen = self.session, self._feed.chosen

        async def write(path: Path, *, overwrite: bool) -> str:
            from memtui.analytics.export import format_of

            done = await session.service.analysis.export(
                session.caller, path, format_of(str(path)), chosen, force=overwrite
            )
            wrote = f"Wrote {fmt.counted(done.operations, 'operation')} to {path}."
            return " ".join(filter(None, (wrote, done.problem)))

        count = fmt.counted(self._feed.each, "operation")
        self.talk(export(self, f"Export {count} to", "operations.csv", _EXPORTED, write))

    async def action_verify(self) -> None:
        """Check that nobody altered the log, and show the result."""
        from memtui.screens.operations.proof import Proof

        await self.ask(Proof(self.session))

    def action_export_proof(self) -> None:
        """Ask for a file, and write every operation with its digest to it."""
        session = self.session

        async def write(path: Path, *, overwrite: bool) -> str:
            await asyncio.to_thread(check_target, path, force=overwrite)
            count = await session.service.analysis.export_proof(session.caller, path)
            return f"Wrote {fmt.counted(count, 'operation')} to {path}; docs/audit.md verifies it."

        title = "Export every operation with its digest to"
        self.talk(export(self, title, "proof.jsonl", ("jsonl",), write))

    # Saved views.

    def as_view(self, name: str) -> SavedView:
        """Return the current view as a saved view."""
        column, descending = self._feed.order
        update = {"column": column, "descending": descending}
        return super().as_view(name).model_copy(update=update)

    def use_view(self, view: SavedView) -> None:
        """Apply a saved view."""
        is_known = any(column.key == view.column for column in self.rows_list.columns)
        self._feed.order = (view.column, view.descending) if is_known else NEWEST_FIRST
        super().use_view(view)

    # Undo.

    def footer(self) -> list[Action]:
        """Return the footer's actions; among the records of an operation, to mark one is first."""
        shown = super().footer()
        if not self.query_one(OperationDetail).handle:
            return shown
        return [ACTIONS["operations.mark"], *(one for one in shown if one.verb != "follow")]

    def close_row(self) -> None:
        """Go back to the list; the marks of records in the details go."""
        detail = self.query_one(OperationDetail)
        if detail.marked:
            detail.marked.clear()
            self.draw_detail()
        super().close_row()

    def action_mark(self) -> None:
        """Mark or unmark the row, or in the details the record under the cursor."""
        if not self.query_one(OperationDetail).turn_mark():
            super().action_mark()

    async def action_undo(self) -> None:
        """Undo the marked changes, else the selected one, else the last one, after a yes.

        Of the selected one only the records that are marked in its details, if any are.

        Raises:
            Invalid: the marked or selected operations changed nothing, or cannot be undone.
        """
        marked, current = self.rows_list.selection.marks.values(), self.current
        part = sorted(self.query_one(OperationDetail).marked)
        if part and current is not None:
            await self._undo_part(current, part)
            return
        changes = [one for one in marked or [current] if one and one.operation_type.mutates]
        if marked and not changes:
            raise Invalid("None of the marked operations changed anything; mark changes to undo.")
        for one in changes:
            if not await self.find_out(one):
                return
        if marked:
            changes.sort(key=lambda one: -one.seq)
            ids = [one.operation_id for one in changes]
            what = fmt.taken_back(await self._refuse_undo(ids))
            of = f" of {what}" if what else ""
            count = fmt.counted(len(changes), "marked change")
            question = Confirm(f"Undo the {count}{of}, the newest first?", verb="undo")
        elif changes and current is not None:
            ids = [current.operation_id]
            await self._refuse_undo(ids)
            read = partial(self.service.undo_candidate, self.caller, current.operation_id)
            question = self.undo_question(await self.wait("reading what it changed", read))
        elif current is not None:
            raise Invalid(
                f"This {current.operation_type} changed nothing; select or mark a change to undo."
            )
        else:
            if (found := await self.last_change()) is None:
                return
            ids, question = [found.operation.operation_id], self.undo_question(found)
            await self._refuse_undo(ids)
        if await self.ask(question):
            await self.undo(ids)
            self.rows_list.selection.marks.clear()

    async def _undo_part(self, operation: Operation, records: Sequence[str]) -> None:
        """Undo an operation for some of its records, after a yes."""
        if not await self.find_out(operation):
            return
        ids = [operation.operation_id]
        await self._refuse_undo(ids)
        count = f"{len(records):,} of its {fmt.counted(operation.result_count, 'record')}"
        question = Confirm(f"Undo this {operation.operation_type} for {count}?", verb="undo")
        if await self.ask(question):
            await self.undo(ids, records)
            self.query_one(OperationDetail).marked.clear()
            self.draw_detail()

    async def _refuse_undo(self, operation_ids: Sequence[str]) -> Together:
        """Check that changes can be undone, so that no failing undo is logged; return its extent.

        Raises an error of the contract if they cannot.
        """
        session = self.session

        async def refused() -> Together:
            await self.acts.settled()
            return await session.service.refuse_undo(session.caller, operation_ids)

        return await self.wait("waiting for the change under way", refused)

    async def action_redo(self) -> None:
        """Redo the last undo, made on any screen; the log shows it without reloading."""
        await self.redo_last()


def _why_fewer(chosen: Sequence[Operation], touched: Mapping[Place, Sequence[Operation]]) -> str:
    """Return how many operations touched no record, and how many records several touched."""
    none = sum(not one.handles for one in chosen)
    several = sum(len(by) > 1 for by in touched.values())
    said = [f"{none} touched none"] if none else []
    said += [f"{fmt.counted(several, 'record')} touched by several"] if several else []
    return f" ({', '.join(said)})" if said else ""


def _touched(place: Place, by: Sequence[Operation], name: str) -> Choice[Place]:
    """Return a record as a choice, with its operations below.

    It is named by the subject of a change to it alone, else by `name`, else by its id. Its text is
    not read, as each read is logged.
    """
    said = (about(one) for one in by if one.operation_type.mutates and len(one.handles) == 1)
    record_id = place[1].rstrip("/").rpartition("/")[2]
    times = Counter(one.operation_type.value for one in by)
    done = ", ".join(f"{count}× {what}" if count > 1 else what for what, count in times.items())
    return Choice(place, next(filter(None, said), name or record_id), done)
