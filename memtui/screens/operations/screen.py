"""The screen of the operation log: list on the left, the selected operation on the right."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from memtui.actions import Need
from memtui.contract import Filter, Invalid, NotFound, OperationStatus
from memtui.filters import format_filter
from memtui.screens.base import MemtuiScreen
from memtui.screens.columns_dialog import choose_columns
from memtui.screens.copying import copy_text
from memtui.screens.dialogs.choose import Choice, Choose
from memtui.screens.dialogs.confirm import Confirm
from memtui.screens.open_source import open_source
from memtui.screens.operations.columns import asked, operation_columns
from memtui.screens.operations.details import DetailFeed
from memtui.screens.operations.feed import NEWEST_FIRST, LogFeed
from memtui.screens.shared import FilterChosen, GoTo, Shared
from memtui.store.operation import Operation
from memtui.widgets import format as fmt
from memtui.widgets.background import Background
from memtui.widgets.keys import bindings_for
from memtui.widgets.list_messages import (
    ColumnsAsked,
    Highlighted,
    Opened,
    PagesWanted,
    Scrolled,
    SortAsked,
)
from memtui.widgets.operation_detail import OperationDetail
from memtui.widgets.virtual_list import VirtualList

if TYPE_CHECKING:
    from memtui.service.answers import MutationAnswer, UndoCandidate

POLL_SECONDS = 2.0


class OperationsScreen(MemtuiScreen):
    """Every operation of the company, newest first and live."""

    MODE = "operations"
    UNFILTERED = frozenset({"topic", "tag", "kind"})
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("operations")

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._feed = LogFeed(self)
        self._details = DetailFeed(self, self._draw_detail)
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
            yield log
            yield OperationDetail(name="operation-detail")

    def on_mount(self) -> None:
        """Begin to look for new operations."""
        super().on_mount()
        self.set_interval(POLL_SECONDS, self._poll)
        self._list.focus()

    def load(self) -> None:
        """Read the newest operations."""
        self._feed.load()

    def select(self, name: str) -> None:
        """Put the cursor on an operation; the log is narrowed to nothing else to find it."""
        if not self._list.go_to_key(name):
            self._acts.every(lambda: self._find(name), self._point, self.fail)

    async def _find(self, name: str) -> Operation:
        return await self.door.service.operation(self.door.caller, name)

    def _point(self, operation: Operation) -> None:
        if not self._list.go_to_key(operation.operation_id):
            self._draw(operation)

    @property
    def _list(self) -> VirtualList[Operation]:
        return self.query_one(VirtualList)

    @property
    def _operation(self) -> Operation:
        current = self._list.current
        if current is None:
            raise NotFound("No operation is selected.")
        return current

    def _now(self) -> datetime:
        return self.shared.clock()

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
        self._details.read_texts(self._operation)

    def action_back(self) -> None:
        """Go back from the details to the list."""
        self.query_one(".split").remove_class("-opened")
        self._list.focus()

    @on(OperationDetail.RecordChosen)
    def _go_to_record(self, event: OperationDetail.RecordChosen) -> None:
        self.post_message(
            GoTo(
                "records",
                binding_key=self._operation.binding_key,
                select=event.handle.provider_record_id,
            )
        )

    def action_follow(self) -> None:
        """Turn following on or off."""
        self._feed.turn()

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
        """Offer what of the operation to copy."""
        operation = self._operation
        choices = [
            Choice("id", operation.operation_id, "id"),
            Choice("JSON", "all of it", "JSON"),
            Choice("digest", operation.digest, "digest"),
        ]
        if asked(operation):
            choices.insert(0, Choice("text", asked(operation), "text"))
        self.app.push_screen(Choose("Copy", choices), self._copy)

    def _copy(self, what: str | None) -> None:
        operation = self._operation
        texts = {
            "text": asked(operation),
            "id": operation.operation_id,
            "JSON": operation.model_dump_json(indent=2),
            "digest": operation.digest,
        }
        if what is not None:
            copy_text(self, texts[what], f"Copied the {what} of #{fmt.count(operation.seq)}.")

    def action_undo(self) -> None:
        """Take the selected change back after a yes; where it is none, offer the last one."""
        operation = self._list.current
        if operation is not None and operation.operation_type.mutates:
            self._ask_undo(operation, len(operation.handles))
            return
        door = self.door
        self._acts.every(lambda: door.service.undoable(door.caller, 1), self._offer_last, self.fail)

    def _offer_last(self, found: list[UndoCandidate]) -> None:
        if found:
            self._ask_undo(found[0].operation, found[0].records)
        else:
            self.fail(Invalid("There is nothing to undo."))

    def _ask_undo(self, operation: Operation, records: int) -> None:
        when = fmt.since(operation.started_at, self.shared.clock())
        question = (
            f"Take back {operation.operation_type.value} #{fmt.count(operation.seq)} "
            f"of {fmt.counted(records, 'record')}, {when} by {operation.principal}?"
        )
        door = self.door

        def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            if yes:
                self._acts.every(
                    lambda: door.service.undo(door.caller, operation.operation_id),
                    self._undone,
                    self.fail,
                )

        self.app.push_screen(Confirm(question, verb="take it back"), answered)

    def _undone(self, answer: MutationAnswer) -> None:
        self.toast(
            f"Took it back: {fmt.counted(len(answer.handles), 'record')}. "
            "Undo that operation to do it again."
        )
        self._feed.poll()


def _missing(operation: Operation | None) -> dict[Need, str]:
    if operation is None:
        return {Need.ROW: "", Need.UNKNOWN_OUTCOME: ""}
    if operation.status is OperationStatus.UNKNOWN:
        return {}
    return {Need.UNKNOWN_OUTCOME: ""}
