"""The screen of the operation log: list on the left, the selected operation on the right."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.widgets import Input

from memtui.actions import Need
from memtui.contract import Conflict, Filter, Invalid, NotFound, OperationStatus
from memtui.filters import Taker, format_filter, parse_filter, parse_when
from memtui.json_text import json_text
from memtui.screens.base import MemtuiScreen
from memtui.screens.columns_dialog import choose_columns
from memtui.screens.dialogs.choose import Choice, Choose
from memtui.screens.dialogs.confirm import Confirm
from memtui.screens.dialogs.prompt import Prompt
from memtui.screens.dialogs.waiting import Waiting
from memtui.screens.exports import Exports, Writer
from memtui.screens.log_views import LogLook
from memtui.screens.marking import Marking
from memtui.screens.open_source import open_source
from memtui.screens.operations.columns import HIDDEN, asked, operation_columns
from memtui.screens.operations.detail import OperationDetail
from memtui.screens.operations.details import DetailFeed
from memtui.screens.operations.feed import NEWEST_FIRST, LogFeed
from memtui.screens.operations.looks import Looks
from memtui.screens.state import AppState, ConfigurationChanged, FilterChosen, GoTo
from memtui.store.operation import Operation
from memtui.widgets import format as fmt
from memtui.widgets.background import Background
from memtui.widgets.filter_line import FilterLine
from memtui.widgets.keys import bindings_for
from memtui.widgets.virtual_list import (
    ColumnsAsked,
    Highlighted,
    Opened,
    PagesWanted,
    Scrolled,
    SelectionChanged,
    SortAsked,
    VirtualList,
)

if TYPE_CHECKING:
    from memtui.service.answers import UndoCandidate

POLL_SECONDS = 2.0
_EXPORTED = ("csv", "jsonl", "parquet")


class OperationsScreen(MemtuiScreen, Marking):
    """Every operation of the company, newest first and live."""

    MODE = "operations"
    NARROWS = Taker.OPERATIONS
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("operations")

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self._typed: str | None = None
        self._feed = LogFeed(self)
        self._details = DetailFeed(self, self._draw_detail)
        self._looks = Looks(self, self._look)
        self._exports = Exports(self)
        self._acts = Background(self, "operation-acts")

    def compose_body(self) -> ComposeResult:
        """Lay out list and detail."""
        with Container(classes="split"):
            log: VirtualList[Operation] = VirtualList(
                operation_columns(self._now),
                self._feed.rows,
                name="operation-list",
            )
            log.sort = NEWEST_FIRST
            log.hidden = HIDDEN
            yield log
            yield OperationDetail(name="operation-detail")

    def on_mount(self) -> None:
        """Begin to look for new operations."""
        super().on_mount()
        self.set_interval(POLL_SECONDS, self._poll)
        self._list.focus()

    def load(self) -> None:
        """Open the log with the filter, unless that was done while it was typed."""
        chosen = self.state.log_filter
        typed, self._typed = self._typed, None
        if typed is None or chosen != self._feed.chosen:
            self._feed.load(chosen)

    def select(self, name: str) -> None:
        """Put the cursor on an operation; the log is narrowed to nothing else to find it."""
        if not self._list.go_to_key(name):
            self._acts.every(lambda: self._find(name), self._point, self.fail)

    @on(FilterLine.Typed)
    def _try(self, event: FilterLine.Typed) -> None:
        event.stop()
        zone = self.state.zone or UTC
        chosen = parse_filter(event.line, now=self.state.clock(), zone=zone)
        if event.line != self.state.filter_line or self._typed is not None:
            self._typed = event.line
            self._feed.load(replace(self.state, filter=chosen).log_filter)

    @on(Input.Blurred)
    def _keep_typed(self) -> None:
        if self._typed is not None:
            self.post_message(FilterChosen(self._typed))

    @on(FilterLine.Applied)
    def _keep_applied(self, event: FilterLine.Applied) -> None:
        if self._typed is not None:
            self._typed = event.line
            if event.line == self.state.filter_line:
                self.load()

    async def _find(self, name: str) -> Operation:
        return await self.session.service.log.get(self.session.caller, name)

    def _point(self, operation: Operation) -> None:
        if self._list.go_to_key(operation.operation_id):
            return
        place = self._feed.place_of(operation)
        if place is None:
            self._draw(operation)
        else:
            self._list.go_to(place, in_the_middle=True)

    @property
    def _list(self) -> VirtualList[Operation]:
        return self.query_one(VirtualList)

    @property
    def _operation(self) -> Operation:
        current = self._list.current
        if current is None:
            raise NotFound("No operation is selected.")
        return current

    @property
    def reading(self) -> bool:
        """Whether the log is being read."""
        return self._feed.busy

    def _now(self) -> datetime:
        return self.state.clock()

    def _poll(self) -> None:
        if self.is_current:
            self._feed.poll()

    @on(PagesWanted)
    def _fetch(self, event: PagesWanted) -> None:
        self._feed.fetch(event.pages)

    @on(Scrolled)
    def _scrolled(self) -> None:
        self._feed.look()

    @on(SortAsked)
    def _sort(self, event: SortAsked) -> None:
        self._feed.sort(event.column)

    @on(SelectionChanged)
    def _marked(self) -> None:
        self._feed.look()

    @on(ColumnsAsked)
    def _choose_columns(self) -> None:
        choose_columns(self, self._list)

    @on(Highlighted)
    def _selected(self) -> None:
        operation = self._list.current
        self.missing = _missing(operation)
        self._draw_detail()
        if operation is not None:
            self._details.read_changes(operation)

    def _draw_detail(self) -> None:
        self._draw(self._list.current)

    def _draw(self, operation: Operation | None) -> None:
        view = None if operation is None else self._details.view(operation)
        self.query_one(OperationDetail).show(view)

    @on(Opened)
    def _enter(self) -> None:
        self.query_one(".split").add_class("-opened")
        self.query_one(OperationDetail).enter()
        if (operation := self._list.current) is not None:
            self._details.read_texts(operation)

    def action_back(self) -> None:
        """Go back from the details to the list; there, take away the range, else all marks."""
        if self._list.has_focus:
            self._list.action_unmark()
        self.query_one(".split").remove_class("-opened")
        self._list.focus()

    @on(OperationDetail.RecordChosen)
    def _go_to_record(self, event: OperationDetail.RecordChosen) -> None:
        operation = self._list.current
        if operation is not None:
            chosen = event.handle.provider_record_id
            self.post_message(GoTo("records", binding_key=operation.binding_key, select=chosen))

    def action_follow(self) -> None:
        """Turn following on or off."""
        self._feed.turn()

    def action_jump(self) -> None:
        """Go to the last operation that had begun by a time."""
        zone = self.state.zone or datetime.now().astimezone().tzinfo or UTC

        def moment(text: str) -> datetime:
            return parse_when(text.strip(), now=self.state.clock(), zone=zone)

        def go(text: str | None) -> None:
            if text is not None:
                self._feed.jump(moment(text))

        prompt = Prompt("Go to a time", placeholder="2026-03-01, 14:30, 3d ago", check=moment)
        self.app.push_screen(prompt, go)

    def action_export(self) -> None:
        """Ask for a file and write all that the filter lets through into it."""
        count = fmt.counted(self._feed.rows.count, "operation")
        self._exports.ask(f"Export {count} to", "operations.csv", _EXPORTED, self._writer)

    def _writer(self, path: Path) -> Writer:
        session, chosen = self.session, self._feed.chosen

        async def write(*, overwrite: bool) -> str:
            from memtui.analytics.export import format_of

            if not overwrite and await asyncio.to_thread(path.exists):
                raise Conflict(f"{path} is there already; overwrite it or give another name.")
            count = await session.service.analysis.export(
                session.caller, path, format_of(str(path)), chosen, force=overwrite
            )
            return f"Wrote {fmt.counted(count, 'operation')} to {path}."

        return write

    def action_views(self) -> None:
        """Offer the saved views, and to save this one."""
        self._looks.ask()

    def _look(self) -> LogLook:
        shown, (column, descending) = self._list, self._feed.order
        return LogLook(
            name="",
            filter_line=self.state.filter_line,
            column=column,
            descending=descending,
            hidden=tuple(sorted(shown.hidden)),
            wider=shown.wider,
        )

    def use_look(self, look: LogLook) -> None:
        """Show the log as in a saved view."""
        keys = {column.key for column in self._list.columns}
        self._list.hidden = frozenset(look.hidden) & keys if keys - {*look.hidden} else HIDDEN
        self._list.wider = {key: cells for key, cells in look.wider.items() if key in keys}
        self._feed.order = (look.column, look.descending) if look.column in keys else NEWEST_FIRST
        self.post_message(FilterChosen(look.filter_line))
        if look.filter_line == self.state.filter_line:
            self.reload()

    def action_open(self) -> None:
        """Open the source of the record under the cursor, else of the operation."""
        handle = self.query_one(OperationDetail).handle
        record = self._details.record(handle.provider_record_id) if handle else None
        if record is not None:
            open_source(self, self._acts, record.source, record.location)
        else:
            open_source(self, self._acts, self._operation.source)

    def action_records(self) -> None:
        """Show the first record that the operation touched."""
        operation = self._operation
        if not operation.handles:
            self.fail(NotFound("This operation touched no record."))
            return
        self.post_message(
            GoTo(
                "records",
                binding_key=operation.binding_key,
                select=operation.handles[0].provider_record_id,
            )
        )

    def action_same_run(self) -> None:
        """Narrow every screen to the run of this operation."""
        operation = self._operation
        source = operation.source
        self._narrow("run", operation.scope.run_id or (source.run_id if source else None))

    def action_same_issue(self) -> None:
        """Narrow every screen to the issue of this operation."""
        operation = self._operation
        source = operation.source
        self._narrow("issue", operation.scope.issue_id or (source.issue_id if source else None))

    def _narrow(self, field: str, value: str | None) -> None:
        if value is None:
            self.fail(NotFound(f"This operation belongs to no {field}."))
            return
        narrowed = Filter().model_copy(update={f"{field}_id": value})
        self.post_message(FilterChosen(format_filter(narrowed)))

    def action_check(self) -> None:
        """Ask the provider whether an unknown outcome happened."""
        self._details.check(self._operation)

    def action_copy(self) -> None:
        """Offer what to copy of the marked operations, else of the selected one."""
        chosen = self._list.chosen
        if not chosen:
            raise NotFound("No operation is selected.")
        texts = {
            "text": "\n".join(filter(None, map(asked, chosen))),
            "id": "\n".join(one.operation_id for one in chosen),
            "JSON": "\n".join(
                json_text(one.model_dump(mode="json"), indent=None if len(chosen) > 1 else 2)
                for one in chosen
            ),
            "digest": "\n".join(one.digest for one in chosen),
        }
        several = len(chosen) > 1
        names = {
            "text": "texts" if several else texts["text"],
            "id": "ids" if several else texts["id"],
            "JSON": "all of them, one a line" if several else "all of it",
            "digest": "digests" if several else texts["digest"],
        }
        which = fmt.counted(len(chosen), "operation") if several else f"#{fmt.count(chosen[0].seq)}"

        def copy(what: str | None) -> None:
            if what is not None:
                self.copy(texts[what], f"Copied the {what} of {which}.")

        choices = [Choice(what, names[what], what) for what in texts if texts[what]]
        self.app.push_screen(Choose(f"Copy of {which}", choices), copy)

    def action_undo(self) -> None:
        """Take the marked changes back after a yes, else the selected or the last one."""
        marked = self._list.selection.marks.values()
        changes = [one for one in marked if one.operation_type.mutates]
        if changes:
            self._ask_undos(sorted(changes, key=lambda one: -one.seq))
            return
        operation = self._list.current
        if operation is not None and operation.operation_type.mutates:
            records = len(operation.handles)
            self._ask_undo(operation, fmt.counted(records, "record") if records else "")
            return
        session = self.session

        async def last() -> list[UndoCandidate]:
            await self._acts.settled()
            return await session.service.undoable(session.caller, 1)

        words = "waiting for the change under way"
        self.app.push_screen(Waiting(words, last, self._offer_last, self.fail))

    def _offer_last(self, found: list[UndoCandidate]) -> None:
        if not found:
            self.fail(Invalid("There is nothing to undo."))
        elif found[0].why_not is not None:
            self.fail(Invalid(f"The last change cannot be taken back. {found[0].why_not}"))
        else:
            self._ask_undo(found[0].operation, fmt.changed(found[0]))

    def _ask_undo(self, operation: Operation, what: str) -> None:
        self._ask(fmt.take_back(operation, what, self.state.clock()), [operation])

    def _ask_undos(self, operations: list[Operation]) -> None:
        records = sum(len(one.handles) for one in operations)
        of = f" of {fmt.counted(records, 'record')}" if records else ""
        marked = fmt.counted(len(operations), "marked change")
        self._ask(f"Take back the {marked}{of}, the newest first?", operations)

    def _ask(self, question: str, operations: Sequence[Operation]) -> None:
        def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            if yes:
                self._acts.every(lambda: self._undo(operations), self._undone, self.fail)

        self.app.push_screen(Confirm(question, verb="take it back"), answered)

    async def _undo(self, operations: Sequence[Operation]) -> str:
        session, records, settings = self.session, 0, 0
        for operation in operations:
            answer = await session.service.undo(session.caller, operation.operation_id)
            records += len(answer.handles)
            settings += len(answer.settings)
        if settings:
            self.post_message(ConfigurationChanged())
        counts = {"record": records, "setting": settings}
        told = [fmt.counted(count, what) for what, count in counts.items() if count]
        return " and ".join(told) or fmt.counted(0, "record")

    def _undone(self, what: str) -> None:
        self._list.selection.marks.clear()
        self.toast(f"Took it back: {what}. Undo that operation to do it again.")
        self._feed.poll()


def _missing(operation: Operation | None) -> dict[Need, str]:
    if operation is None:
        return {Need.ROW: "", Need.UNKNOWN_OUTCOME: ""}
    if operation.status is OperationStatus.UNKNOWN:
        return {}
    return {Need.UNKNOWN_OUTCOME: ""}
