"""Changes to records: each based on the revision that was read, each with a way back.

A text that could not be written is never lost: it is kept as a draft, and editing the same record
takes it up again.
"""

from __future__ import annotations

from functools import partial

from memtui.contract import (
    Conflict,
    CorrectRequest,
    ForgetRequest,
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
from memtui.screens.dialogs.confirm import Confirm
from memtui.screens.dialogs.edit_text import EditText
from memtui.screens.dialogs.new_record import NewRecord, WriteRecord
from memtui.screens.external_editor import edit_text
from memtui.screens.records.columns import record_key
from memtui.screens.records.feed import RecordFeed
from memtui.service.answers import MutationAnswer, UndoCandidate
from memtui.widgets import format as fmt
from memtui.widgets.background import Background
from memtui.widgets.detail_lines import record_name
from memtui.widgets.editor import keeps


class RecordEdits:
    """Asks, calls the service and shows what came of it."""

    def __init__(self, screen: MemtuiScreen, feed: RecordFeed) -> None:
        self._screen = screen
        self._feed = feed
        self._work = Background(screen, "record-edits")
        self._drafts: dict[str, str] = {}
        self._unwritten: NewRecord | None = None
        self._last_own: str | None = None
        """The operation that `u` takes back without asking."""

    @property
    def _where(self) -> str:
        shared = self._screen.shared
        provider = f"{shared.binding.provider_key}·" if shared.binding else ""
        return f"{provider}{self._feed.binding_key}"

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
            edited = edit_text(self._screen.app, text, self._screen.shared.editor)
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
            scope=_place(record),
            handle=record.handle,
            binding_key=self._feed.binding_key,
            text=text,
            revision=record.revision,
        )
        door = self._screen.door
        self._work.every(
            lambda: door.service.correct(door.caller, request),
            partial(self._corrected, record),
            partial(self._refused, record, text),
        )

    def _corrected(self, record: Record, answer: MutationAnswer) -> None:
        self._drafts.pop(record_key(record), None)
        self._last_own = answer.operation_id
        for now in answer.records:
            self._feed.changed(record_key(record), now)
        self._screen.toast(_said("Changed.", answer))

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
            scope=_place(record),
            handle=record.handle,
            binding_key=self._feed.binding_key,
            pinned=not record.pinned,
            revision=record.revision,
        )
        door = self._screen.door
        self._work.every(
            lambda: door.service.correct(door.caller, request),
            partial(self._corrected, record),
            self._failed,
        )

    # New records.

    def add(self, scope: Scope) -> None:
        """Ask for a new record and write it."""
        where = WriteRecord(self._where, scope, self._unwritten)
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
            binding_key=self._feed.binding_key or None,
            content=new.text,
            kind=new.kind,
            topic=new.topic,
            tags=new.tags,
        )
        door = self._screen.door
        self._work.every(
            lambda: door.service.write(door.caller, request), self._written, self._not_written
        )

    def _written(self, answer: MutationAnswer) -> None:
        self._unwritten = None
        self._last_own = answer.operation_id
        for record in answer.records:
            self._feed.changed(record_key(record), record)
        self._screen.select(answer.records[0].handle.provider_record_id if answer.records else "")
        self._screen.toast(_said("Written. u takes it back.", answer))

    def _not_written(self, error: MemtuiError) -> None:
        kept = " Your text is kept; n takes it up again." if self._unwritten else ""
        self._screen.toast(f"{error}{kept}", severity="error")

    # Forgetting and taking back.

    def forget(self, records: list[Record]) -> None:
        """Forget records after a yes that names the binding and the count."""
        if not records:
            return
        detail = self._reading_of(records)
        question = f"Forget {fmt.counted(len(records), 'record')} from {self._where}?"
        self._screen.app.push_screen(
            Confirm(question, verb="forget", detail=detail), partial(self._forget, records)
        )

    def _reading_of(self, records: list[Record]) -> str:
        stats = self._feed.known.stats
        never = sum(record_key(record) not in stats for record in records)
        if len(records) == 1:
            read = "It was never read." if never else "Queries have returned it."
            return f"“{record_name(records[0])[:100]}”\n{read}"
        if never == len(records):
            return "None of them was ever read."
        return f"{fmt.count(never)} of them {'was' if never == 1 else 'were'} never read."

    def _forget(self, records: list[Record], yes: bool | None) -> None:  # noqa: FBT001
        if not yes:
            return
        scopes = {_place(record) for record in records}
        request = ForgetRequest(
            scope=scopes.pop() if len(scopes) == 1 else self._screen.shared.record_scope,
            handles=tuple(record.handle for record in records),
            binding_key=self._feed.binding_key,
            revisions={
                record_key(record): record.revision for record in records if record.revision
            },
        )
        door = self._screen.door
        self._work.every(
            lambda: door.service.forget(door.caller, request), self._forgot, self._failed
        )

    def _forgot(self, answer: MutationAnswer) -> None:
        self._last_own = answer.operation_id
        ghosts = {handle.provider_record_id for handle in answer.ghosts}
        asked = {handle.provider_record_id for handle in (*answer.handles, *answer.missing)}
        self._feed.gone(asked, ghosts)
        gone = len(asked) - len(ghosts)
        self._screen.toast(_said(f"Forgot {fmt.count(gone)}. u brings them back.", answer))

    def undo(self) -> None:
        """Take the last change back; one that was not made here only after a yes."""
        door = self._screen.door
        self._work.every(
            lambda: door.service.undoable(door.caller, 1), self._offer_undo, self._failed
        )

    def _offer_undo(self, found: list[UndoCandidate]) -> None:
        if not found:
            self._screen.fail(Invalid("There is nothing to undo."))
            return
        operation = found[0].operation
        if operation.operation_id == self._last_own:
            self._undo(operation.operation_id, yes=True)
            return
        when = fmt.since(operation.started_at, self._screen.shared.clock())
        question = (
            f"Take back {operation.operation_type.value} #{fmt.count(operation.seq)} "
            f"of {fmt.counted(found[0].records, 'record')}, {when} by {operation.principal}?"
        )
        self._screen.app.push_screen(
            Confirm(question, verb="take it back"),
            lambda yes: self._undo(operation.operation_id, yes=yes),
        )

    def _undo(self, operation_id: str, *, yes: bool | None) -> None:
        door = self._screen.door
        if yes:
            self._work.every(
                lambda: door.service.undo(door.caller, operation_id), self._undone, self._failed
            )

    def _undone(self, answer: MutationAnswer) -> None:
        self._last_own = answer.operation_id
        self._feed.known.ghosts -= {handle.provider_record_id for handle in answer.handles}
        self._feed.load()
        count = fmt.counted(len(answer.handles), "record")
        self._screen.toast(_said(f"Took it back: {count}. u does it again.", answer))

    def _failed(self, error: MemtuiError) -> None:
        if isinstance(error, Conflict):
            self._feed.load()
            self._screen.toast(
                f"{error} The list shows it as it is now; look again and repeat.", severity="error"
            )
        else:
            self._screen.fail(error)


def _place(record: Record) -> Scope:
    """Return where the record lives, without the issue and run that it came from."""
    return record.scope.model_copy(update={"issue_id": None, "run_id": None})


def _said(done: str, answer: MutationAnswer) -> str:
    """Return what was done, and what a person has to know about it."""
    words = [done]
    if answer.redacted:
        words.append(f"Taken out before it was stored: {', '.join(answer.redacted)}.")
    if answer.ghosts:
        words.append(
            f"The provider still returns {fmt.counted(len(answer.ghosts), 'record')}: "
            "shown as ghosts."
        )
    if answer.missing:
        words.append(f"{fmt.counted(len(answer.missing), 'record')} had gone before.")
    if answer.linked:
        words.append(f"{fmt.counted(len(answer.linked), 'record')} came back under a new id.")
    return " ".join(words)
