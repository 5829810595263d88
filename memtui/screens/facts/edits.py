"""Changes to facts: those of records, and adding, clearing and merging."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from memtui.contract import (
    CorrectRequest,
    Invalid,
    MemtuiError,
    Record,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.screens.base import MemtuiScreen
from memtui.screens.dialogs.choose import Choice, Choose
from memtui.screens.dialogs.confirm import TypedConfirm
from memtui.screens.dialogs.waiting import Waiting
from memtui.screens.facts.new_fact import NewFact, WriteFact
from memtui.screens.facts.rows import FactRow, Place
from memtui.screens.records.changes import Answers, EditedRows, place_of, said
from memtui.screens.records.edits import RecordEdits
from memtui.widgets import format as fmt
from memtui.widgets.background import Work

if TYPE_CHECKING:
    from memtui.service.answers import MutationAnswer


class EditedFacts(EditedRows, Protocol):
    """What the facts are shown in."""

    adding_to: Place | None
    """Where the fact goes that is written next."""

    async def records(self, rows: Sequence[FactRow]) -> list[Record]:
        """Return the records of rows as they are now; raises `NotFound`."""

    async def held(self, place: Place, kind: str | None = None) -> list[Record]:
        """Return all records of a place."""


class FactEdits:
    """Asks, calls the service and shows what came of it.

    Every change is based on the record as it is when the change begins: the rows of a context do
    not carry revisions.
    """

    def __init__(self, screen: MemtuiScreen, facts: EditedFacts) -> None:
        self._screen = screen
        self._facts = facts
        self._edits = RecordEdits(screen, facts)
        self.changes = self._edits.changes
        self._work = self.changes.work
        self._unwritten = ""

    def _with(self, rows: Sequence[FactRow], then: Callable[[list[Record]], None]) -> None:
        """Read the records of rows, then go on with them."""
        if rows:
            self._wait(lambda: self._facts.records(rows), then)

    def _wait(self, work: Work[list[Record]], then: Callable[[list[Record]], None]) -> None:
        words = "reading the facts"
        self._screen.app.push_screen(Waiting(words, work, then, self._screen.fail))

    def edit(self, row: FactRow, *, external: bool = False) -> None:
        """Edit a fact in place, or in the person's editor."""
        edit = self._edits.edit_external if external else self._edits.edit
        self._with([row], lambda records: edit(records[0]))

    def pin(self, row: FactRow) -> None:
        """Pin a fact, or unpin it."""
        self._with([row], lambda records: self._edits.pin(records[0]))

    def expire(self, row: FactRow) -> None:
        """Ask when a fact expires."""
        self._with([row], lambda records: self._edits.expire(records[0]))

    def forget(self, rows: Sequence[FactRow]) -> None:
        """Forget facts after a yes."""
        self._with(rows, self.changes.forget)

    # Adding.

    def add(self, places: Sequence[Place], at: int, most: int, note: str = "") -> None:
        """Ask for a new fact and write it; a text that could not be written is taken up again."""
        if places:
            self._screen.app.push_screen(
                WriteFact(places, at, most, self._unwritten, note),
                partial(self._add, places, most),
            )

    def _add(self, places: Sequence[Place], most: int, new: NewFact | None) -> None:
        if new is None:
            self._unwritten = ""
            return
        self._unwritten = new.text
        self._facts.adding_to = new.place
        scope = new.place.scope
        request = WriteRequest(
            scope=scope,
            source=SourceRef(kind=SourceKind.MANUAL_NOTE, company_id=scope.company_id),
            content=new.text,
            kind="fact",
            binding_key=new.place.binding_key or None,
        )
        session = self._screen.session

        def refused(error: MemtuiError) -> None:
            self.add(places, places.index(new.place), most, str(error))

        self._work.every(
            lambda: session.service.write(session.caller, request), self._added, refused
        )

    def _added(self, answer: MutationAnswer) -> None:
        self._unwritten = ""
        self.changes.own(answer.operation_id)
        self._facts.load()
        self._screen.toast(said("Remembered. u takes it back.", answer))

    # Clearing.

    def clear(self, place: Place) -> None:
        """Forget all facts of a place once its name has been typed."""

        def ask(records: list[Record]) -> None:
            if not records:
                self._screen.fail(Invalid(f"There are no facts of {place.label}."))
                return
            count = fmt.counted(len(records), "fact")
            question = TypedConfirm(
                f"Forget all {count} of {place.label} from {self.changes.where(records)}?",
                word=place.name,
                verb="forget them all",
                detail="u brings them back.",
            )
            self._screen.app.push_screen(question, partial(self._clear, records))

        self._wait(lambda: self._facts.held(place, "fact"), ask)

    def _clear(self, records: list[Record], yes: bool | None) -> None:  # noqa: FBT001
        if yes:
            self.forget_now(records, "")

    def forget_now(
        self,
        records: Sequence[Record],
        saved: str,
        then: Callable[[], None] = lambda: None,
        failed: Callable[[MemtuiError], None] | None = None,
    ) -> None:
        """Forget records that were confirmed; `saved` says what that gains: `, saved 61 tokens`."""

        def done(answers: Answers) -> None:
            gone = sum(len(answer.handles) - len(answer.ghosts) for answer in answers)
            self._screen.toast(
                said(f"Forgot {fmt.count(gone)}{saved}. u brings them back.", *answers)
            )
            then()

        self.changes.forget_now(records, done, failed or self.changes.failed)

    # Merging.

    def merge(self, rows: Sequence[FactRow]) -> None:
        """Make one fact of several, after asking which wording stays."""
        if len(rows) < 2:
            self._screen.fail(Invalid("Mark the facts to merge first, two at least."))
            return
        self._with(rows, self.merge_records)

    def merge_records(
        self, records: Sequence[Record], then: Callable[[], None] = lambda: None
    ) -> None:
        """Make one fact of several of one place, after asking which wording stays."""
        from memtui.contract import owner_scope

        if len({(self._facts.binding_of(one), owner_scope(one.scope)) for one in records}) > 1:
            self._screen.fail(
                Invalid("Facts of several places cannot become one; mark those of one place.")
            )
            return
        ordered = sorted(records, key=lambda one: not one.pinned)
        choices = [Choice(one.text, one.text, "⚑" if one.pinned else "") for one in ordered]
        chooser: Choose[str] = Choose(
            f"Merge {fmt.count(len(ordered))} facts into one: which wording stays?",
            choices,
            placeholder="type to narrow, or a new wording",
            offer=lambda text: [Choice(text, text, "new")],
        )

        def answered(text: str | None) -> None:
            if text is not None:
                self._merge(ordered, text, then)

        self._screen.app.push_screen(chooser, answered)

    def _merge(self, records: Sequence[Record], text: str, then: Callable[[], None]) -> None:
        same = next((one for one in records if one.text == text), None)
        stays = same or records[0]
        pinned = any(one.pinned for one in records)
        others = [one for one in records if one is not stays]
        done: list[str] = []
        if stays.text == text and stays.pinned == pinned:
            self._forget_merged(others, done, then)
            return
        request = CorrectRequest(
            scope=place_of(stays),
            handle=stays.handle,
            binding_key=self._facts.binding_of(stays),
            text=None if stays.text == text else text,
            pinned=None if stays.pinned == pinned else pinned,
            revision=stays.revision,
        )
        session = self._screen.session

        def corrected(answer: MutationAnswer) -> None:
            self.changes.own(answer.operation_id)
            done.append(answer.operation_id)
            self._forget_merged(others, done, then)

        self._work.every(
            lambda: session.service.correct(session.caller, request), corrected, self.changes.failed
        )

    def _forget_merged(
        self, others: Sequence[Record], before: list[str], then: Callable[[], None]
    ) -> None:
        def done(answers: Answers) -> None:
            self.changes.own(*before, *(answer.operation_id for answer in answers))
            merged = fmt.counted(len(others) + 1, "fact")
            self._screen.toast(said(f"Made one of {merged}. u takes it back.", *answers))
            then()

        self.changes.forget_now(others, done, self.changes.failed)
