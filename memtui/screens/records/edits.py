"""Changes to records: each based on the revision that was read, each with a way back.

A text that could not be written is never lost: it is kept as a draft, and editing the same record
takes it up again.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from memtui.contract import (
    Conflict,
    CorrectRequest,
    Invalid,
    MemtuiError,
    Record,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.screens.base import MemtuiScreen
from memtui.screens.conflict import ConflictScreen, Resolve
from memtui.screens.dialogs.edit_text import EditText
from memtui.screens.dialogs.new_record import NewRecord, WriteRecord
from memtui.screens.dialogs.prompt import Prompt
from memtui.screens.external_editor import edit_text
from memtui.screens.facts.expiry import parse_expiry
from memtui.screens.records.changes import Changes, EditedRows, place_of, said
from memtui.screens.records.columns import record_key
from memtui.widgets.detail_lines import record_name
from memtui.widgets.editor import keeps

if TYPE_CHECKING:
    from memtui.service.answers import MutationAnswer


class RecordEdits:
    """Asks, calls the service and shows what came of it."""

    def __init__(self, screen: MemtuiScreen, feed: EditedRows) -> None:
        self._screen = screen
        self._feed = feed
        self.changes = Changes(screen, feed)
        self._work = self.changes.work
        self._drafts: dict[str, str] = {}
        self._unwritten: NewRecord | None = None

    # Changing a text.

    def edit(self, record: Record, draft: str | None = None, note: str = "") -> None:
        """Edit in place; a text that a text area would alter goes to the own editor instead."""
        text = draft if draft is not None else self._drafts.get(record_key(record))
        if not keeps(record.text) or (text is not None and not keeps(text)):
            self._screen.fail(
                Invalid(
                    "This text is too long for editing in place, or has line ends that it would "
                    "change; E opens it in your editor."
                )
            )
            return
        if text is not None and not note:
            note = "This is your draft; the record still holds the text it had."
        title = f"Edit {record_name(record)[:80]}"
        self._screen.app.push_screen(
            EditText(title, record.text, text, note), partial(self._edited, record)
        )

    def edit_external(self, record: Record) -> None:
        """Edit in the person's own editor."""
        text = self._drafts.get(record_key(record), record.text)
        try:
            edited = edit_text(self._screen.app, text, self._screen.state.editor)
        except MemtuiError as error:
            self._screen.fail(error)
            return
        if edited is None and text == record.text:
            self._screen.toast("Unchanged, nothing was written.")
        else:
            self._edited(record, text if edited is None else edited)

    def _edited(self, record: Record, text: str | None) -> None:
        if text is None:
            self._drafts.pop(record_key(record), None)
        else:
            self._correct(record, text)

    def _correct(self, record: Record, text: str) -> None:
        self._drafts[record_key(record)] = text
        request = CorrectRequest(
            scope=place_of(record),
            handle=record.handle,
            binding_key=self._feed.binding_of(record),
            text=text,
            revision=record.revision,
        )
        session = self._screen.session
        self._work.every(
            lambda: session.service.correct(session.caller, request),
            partial(self._corrected, record),
            partial(self._refused, record, text),
        )

    def _corrected(self, record: Record, answer: MutationAnswer, *, told: str = "Changed.") -> None:
        self._drafts.pop(record_key(record), None)
        self.changes.own(answer.operation_id)
        for now in answer.records:
            self._feed.changed(record_key(record), now)
        self._screen.toast(said(told, answer))

    def _refused(self, record: Record, text: str, error: MemtuiError) -> None:
        if not isinstance(error, Conflict):
            self._screen.toast(f"{error} Your text is kept; e takes it up again.", severity="error")
            return
        self._screen.app.push_screen(
            ConflictScreen(record, error.current, text),
            partial(self._resolve, record, error.current, text),
        )

    def _resolve(
        self, record: Record, theirs: Record | None, mine: str, choice: Resolve | None
    ) -> None:
        if choice is Resolve.THEIRS:
            self._drafts.pop(record_key(record), None)
            self._accept(record, theirs)
        elif choice is Resolve.MINE and theirs is not None:
            self._correct(theirs, mine)
        elif choice is Resolve.MINE:
            self._write_anew(record, mine)
        elif choice is Resolve.AGAIN:
            self._accept(record, theirs)
            self.edit(theirs or record, mine, "Saving puts this on top of the record as it is now.")
        else:
            self._accept(record, theirs)
            self._screen.toast("Your text is kept; e takes it up again.")

    def _accept(self, record: Record, theirs: Record | None) -> None:
        if theirs is None:
            self._feed.gone({record_key(record)}, set())
        else:
            self._feed.changed(record_key(record), theirs)

    def _write_anew(self, record: Record, text: str) -> None:
        new = NewRecord(text, record.scope, record.kind, record.topic, record.tags)
        self._write(new, record.source)

    def pin(self, record: Record) -> None:
        """Pin a record, or unpin it."""
        request = CorrectRequest(
            scope=place_of(record),
            handle=record.handle,
            binding_key=self._feed.binding_of(record),
            pinned=not record.pinned,
            revision=record.revision,
        )
        session = self._screen.session
        self._work.every(
            lambda: session.service.correct(session.caller, request),
            partial(self._corrected, record),
            self.changes.failed,
        )

    def expire(self, record: Record) -> None:
        """Ask when a record expires; an empty line means never."""
        zone = self._screen.state.zone
        until = record.expires_at
        prompt = Prompt(
            "Expires when?",
            value=until.astimezone(zone).isoformat("T", "minutes") if until else "",
            placeholder="30d, 6h, 2026-12-31",
            hint="enter set it   empty: never   esc go back",
            check=self._moment,
        )

        def answered(text: str | None) -> None:
            if text is not None:
                self._expire(record, self._moment(text))

        self._screen.app.push_screen(prompt, answered)

    def _moment(self, text: str) -> datetime | None:
        state = self._screen.state
        if not text.strip():
            return None
        return parse_expiry(text, now=state.clock(), zone=state.zone)

    def _expire(self, record: Record, moment: datetime | None) -> None:
        if moment is None and record.expires_at is None:
            self._screen.toast("It has no expiry, nothing was changed.")
            return
        request = CorrectRequest(
            scope=place_of(record),
            handle=record.handle,
            binding_key=self._feed.binding_of(record),
            expires_at=moment,
            never_expires=moment is None,
            revision=record.revision,
        )
        told = "It never expires." if moment is None else "It expires as you said."
        session = self._screen.session
        self._work.every(
            lambda: session.service.correct(session.caller, request),
            partial(self._corrected, record, told=f"{told} u takes it back."),
            self.changes.failed,
        )

    # New records.

    def add(self, scope: Scope) -> None:
        """Ask for a new record and write it."""
        where = WriteRecord(self.changes.where([None]), scope, self._unwritten)
        self._screen.app.push_screen(where, self._added)

    def _added(self, new: NewRecord | None) -> None:
        self._unwritten = new
        if new is not None:
            self._write(
                new, SourceRef(kind=SourceKind.MANUAL_NOTE, company_id=new.scope.company_id)
            )

    def _write(self, new: NewRecord, source: SourceRef | None) -> None:
        request = WriteRequest(
            scope=new.scope,
            source=source
            or SourceRef(kind=SourceKind.MANUAL_NOTE, company_id=new.scope.company_id),
            binding_key=self._feed.binding_of(None) or None,
            content=new.text,
            kind=new.kind,
            topic=new.topic,
            tags=new.tags,
        )
        session = self._screen.session
        self._work.every(
            lambda: session.service.write(session.caller, request), self._written, self._not_written
        )

    def _written(self, answer: MutationAnswer) -> None:
        self._unwritten = None
        self.changes.own(answer.operation_id)
        for record in answer.records:
            self._feed.changed(record_key(record), record)
        self._screen.select(answer.records[0].handle.provider_record_id if answer.records else "")
        self._screen.toast(said("Written. u takes it back.", answer))

    def _not_written(self, error: MemtuiError) -> None:
        kept = " Your text is kept; n takes it up again." if self._unwritten else ""
        self._screen.toast(f"{error}{kept}", severity="error")
