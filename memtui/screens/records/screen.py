"""The screen of the records: list on the left, the selected record on the right."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from memtui.actions import Need
from memtui.contract import Filter, NotFound, Record, Unsupported
from memtui.filters import Taker, format_filter
from memtui.screens.base import MemtuiScreen
from memtui.screens.columns_dialog import choose_columns
from memtui.screens.dialogs.choose import Choice, Choose
from memtui.screens.marking import Marking
from memtui.screens.open_source import open_file, open_source
from memtui.screens.records.columns import record_columns
from memtui.screens.records.detail import RecordDetail
from memtui.screens.records.details import RecordDetails
from memtui.screens.records.edits import RecordEdits
from memtui.screens.records.feed import NEWEST_FIRST, RecordFeed
from memtui.screens.records.watching import Watch
from memtui.screens.state import AppState, FilterChosen, GoTo
from memtui.widgets import format as fmt
from memtui.widgets.background import Background
from memtui.widgets.keys import bindings_for
from memtui.widgets.virtual_list import (
    ColumnsAsked,
    Highlighted,
    Opened,
    PagesWanted,
    SelectionChanged,
    SortAsked,
    VirtualList,
)

if TYPE_CHECKING:
    from memtui.service.answers import GetAnswer

_SETTLE_SECONDS = 0.2
"""A jump from another screen may change the binding too: the second reading is the right one."""


class RecordsScreen(MemtuiScreen, Marking):
    """What the active binding holds."""

    MODE = "records"
    NARROWS = Taker.RECORDS
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("records")

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self._feed = RecordFeed(self)
        self._details = RecordDetails(self, self._feed, self._draw_detail)
        self._edits = RecordEdits(self, self._feed)
        self._watch = Watch(self, self.reload)
        self._acts = Background(self, "record-acts")
        self._pointed_at: str | None = None

    def compose_body(self) -> ComposeResult:
        """Lay out list and detail."""
        with Container(classes="split"):
            records: VirtualList[Record] = VirtualList(
                record_columns(self._now, self._feed.known), self._feed.rows, name="record-list"
            )
            records.sort = NEWEST_FIRST
            yield records
            yield RecordDetail(name="record-detail")

    def on_mount(self) -> None:
        """Put the cursor into the list."""
        super().on_mount()
        self._list.focus()

    def load(self) -> None:
        """Read the records of the active binding."""
        self._feed.load()
        if self.state.resolution is not None:
            self._watch.follow(self.state.resolution.binding_key)

    def on_screen_resume(self) -> None:
        """Count again how often the records were returned: another screen may have asked."""
        if self.state.session is not None:
            self._feed.recount()

    def select(self, name: str) -> None:
        """Put the cursor on a record, once it has come; one that no page holds is fetched."""
        if name and not self._list.go_to_key(name):
            self._pointed_at = name

    @property
    def reading(self) -> bool:
        """Whether a page of records is being read."""
        return self._feed.busy

    def _now(self) -> datetime:
        return self.state.clock()

    @property
    def _list(self) -> VirtualList[Record]:
        return self.query_one(VirtualList)

    @property
    def _record(self) -> Record:
        current = self._list.current
        if current is None:
            raise NotFound("No record is selected.")
        return current

    @on(PagesWanted)
    def _fetch(self) -> None:
        self._feed.fetch()

    @on(SortAsked)
    def _sort(self, event: SortAsked) -> None:
        self._feed.sort(event.column)

    @on(ColumnsAsked)
    def _choose_columns(self) -> None:
        choose_columns(self, self._list)

    @on(SelectionChanged)
    def _selection_changed(self) -> None:
        self._feed.look()
        self._update_keys()

    @on(Highlighted)
    def _selected(self) -> None:
        if self._pointed_at is not None and not self._feed.busy:
            self.set_timer(_SETTLE_SECONDS, self._find_pointed)
        record = self._list.current
        self._update_keys()
        self._draw_detail()
        if record is not None:
            self._details.read(record)
        if self._list.selection.ranging:
            self._feed.look()

    def _find_pointed(self) -> None:
        name = self._pointed_at
        if name is None or self._feed.busy:
            return
        self._pointed_at = None
        if self._list.go_to_key(name):
            return
        session, key = self.session, self._feed.binding_key
        scope = self.state.record_scope
        self._acts.every(
            lambda: session.service.get(session.caller, name, scope, binding_key=key),
            self._found,
            self.fail,
        )

    def _found(self, answer: GetAnswer) -> None:
        record = answer.record
        self._feed.changed(record.handle.provider_record_id, record)
        self._list.go_to_key(record.handle.provider_record_id)

    def _update_keys(self) -> None:
        binding, missing = self.state.binding, {}
        if self._list.current is None:
            missing[Need.ROW] = ""
        if binding is not None and binding.read_only:
            missing[Need.WRITABLE] = f"The binding {binding.key} is read-only."
        elif binding is not None and not binding.capabilities.writable:
            missing[Need.WRITABLE] = f"The provider of {binding.key} only reads."
        if binding is not None and not binding.capabilities.correction:
            missing[Need.CORRECTION] = ""
        if missing != self.missing:
            self.missing = missing
        chosen = len(self._list.chosen)
        label = f"forget {fmt.count(chosen)}…" if chosen > 1 else "forget…"
        self.labels = {"records.forget": label}

    def _draw_detail(self) -> None:
        record = self._list.current
        view = None if record is None else self._details.view(record)
        self.query_one(RecordDetail).show(view)

    @on(Opened)
    def _enter(self) -> None:
        self.query_one(".split").add_class("-opened")
        self.query_one(RecordDetail).focus()

    def action_unmark(self) -> None:
        """Go back from the details to the list; there, take away the range, else all marks."""
        if self._list.has_focus:
            self._list.action_unmark()
        self.query_one(".split").remove_class("-opened")
        self._list.focus()

    def action_edit(self) -> None:
        """Edit the text in place."""
        self._edits.edit(self._record)

    def action_edit_external(self) -> None:
        """Edit the text in the person's editor."""
        self._edits.edit_external(self._record)

    def action_add(self) -> None:
        """Write a new record."""
        self._edits.add(self.state.record_scope)

    def action_forget(self) -> None:
        """Forget the marked records, else the one under the cursor."""
        self._edits.changes.forget(self._list.chosen)

    def action_erase(self) -> None:
        """Erase the record under the cursor for good, after a yes."""
        if (record := self._record) is not None:
            self._edits.changes.erase(record)

    def action_undo(self) -> None:
        """Take the last change back."""
        self._edits.changes.undo()

    def action_redo(self) -> None:
        """Do again what was just taken back."""
        self._edits.changes.redo()

    def action_pin(self) -> None:
        """Pin or unpin the record."""
        binding = self.state.binding
        if binding is not None and not binding.capabilities.pin:
            self.fail(Unsupported(f"The provider of {binding.key} cannot pin a record."))
            return
        self._edits.pin(self._record)

    def action_expire(self) -> None:
        """Set when the record expires, or that it never does."""
        binding = self.state.binding
        if binding is not None and not binding.capabilities.expiry:
            self.fail(Unsupported(f"The provider of {binding.key} keeps no expiry."))
            return
        self._edits.expire(self._record)

    def action_history(self) -> None:
        """Show or hide how the record came to be."""
        self._details.turn_history(self._record)

    def action_queries(self) -> None:
        """Offer the queries that returned the record, and go to the one that is chosen."""
        story = self._details.provenance(self._record)
        if story is None or not story.retrievals:
            self.fail(NotFound("No query has returned this record."))
            return
        now = self.state.clock()
        choices = [
            Choice(one.operation_id, one.query, f"{fmt.ago(one.at, now)} #{one.rank}")
            for one in story.retrievals
        ]
        self.app.push_screen(Choose("Queries that returned it", choices), self._go_to_operation)

    def _go_to_operation(self, operation_id: str | None) -> None:
        if operation_id is not None:
            self.post_message(GoTo("operations", select=operation_id))

    def action_open(self) -> None:
        """Open where the record came from, else the file it is kept in."""
        record = self._record
        location = record.location if record.source is None else None
        open_source(self, self._acts, record.source, location)

    def action_open_file(self) -> None:
        """Open the file that the record is kept in, at its line."""
        record = self._record
        if record.location is None:
            self.fail(NotFound("This provider keeps its records in no file that opens."))
            return
        open_file(self, self._acts, record.location)

    def action_copy(self) -> None:
        """Copy the text."""
        record = self._record
        size = fmt.counted(len(record.text), "character")
        self.copy(record.text, f"Copied the text, {size}.")

    def action_copy_id(self) -> None:
        """Copy the id."""
        self.copy(self._record.handle.provider_record_id, "Copied the id.")

    def action_same_source(self) -> None:
        """Narrow every screen to the source of the record."""
        source = self._record.source
        if source is None:
            self.fail(NotFound("This record names no source."))
            return
        if source.run_id or source.issue_id:
            narrowed = Filter(run_id=source.run_id, issue_id=source.issue_id)
        else:
            narrowed = Filter(source_kind=source.kind)
        self.post_message(FilterChosen(format_filter(narrowed)))
