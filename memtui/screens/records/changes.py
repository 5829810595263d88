"""Forgetting records and taking changes back, and how what was done is told.

What a person did last may be several operations, such as a forget in each of two bindings; one key
takes all of them back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from memtui.contract import Conflict, ForgetRequest, Invalid, MemtuiError, Record, Scope
from memtui.screens.base import MemtuiScreen
from memtui.screens.dialogs.confirm import Confirm
from memtui.screens.dialogs.waiting import Waiting
from memtui.screens.records.columns import Known, record_key
from memtui.screens.state import ConfigurationChanged
from memtui.widgets import format as fmt
from memtui.widgets.background import Background, Work
from memtui.widgets.detail_lines import record_name

if TYPE_CHECKING:
    from memtui.service.answers import MutationAnswer, UndoCandidate
    from memtui.service.purge import PurgeAnswer


T = TypeVar("T")


class EditedRows(Protocol):
    """What the records are shown in, and how it takes what became of them."""

    @property
    def known(self) -> Known:
        """How often each was read, and which are ghosts."""

    def binding_of(self, record: Record | None) -> str:
        """Return the key of the binding that holds a record; None asks for that of new ones."""

    def changed(self, old_id: str, record: Record) -> None:
        """Take a record as it is now."""

    def gone(self, ids: set[str], ghosts: set[str]) -> None:
        """Let go of forgotten records; ghosts stay, shown as such."""

    def load(self) -> None:
        """Read everything again."""


Answers: TypeAlias = "Sequence[MutationAnswer]"


class Changes:
    """Forgets, and takes back what was done here."""

    def __init__(self, screen: MemtuiScreen, feed: EditedRows) -> None:
        self._screen = screen
        self._feed = feed
        self.work = Background(screen, "record-changes")
        """Runs every change that is made on the screen, so that taking back waits for them."""
        self._last: tuple[str, ...] = ()
        self._taken_back: Answers = ()

    def own(self, *operation_ids: str) -> None:
        """Note what was done here last: `u` takes it back without asking."""
        self._last, self._taken_back = operation_ids, ()

    def where(self, records: Iterable[Record | None]) -> str:
        """Name the bindings of records, `vault·default`; None is a new record's."""
        keys = dict.fromkeys(map(self._feed.binding_of, records))
        providers = {one.key: f"{one.provider_key}·" for one in self._screen.state.bindings}
        return " and ".join(f"{providers.get(key, '')}{key}" for key in keys)

    def forget(self, records: list[Record]) -> None:
        """Forget records after a yes that names the binding and the count."""
        if not records:
            return
        question = f"Forget {fmt.counted(len(records), 'record')} from {self.where(records)}?"

        def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            if yes:
                self.forget_now(records, self._forgot, self.failed)

        self._screen.app.push_screen(
            Confirm(question, verb="forget", detail=self._reading_of(records)), answered
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

    def forget_now(
        self,
        records: Sequence[Record],
        done: Callable[[Answers], None],
        failed: Callable[[MemtuiError], None],
    ) -> None:
        """Forget records without asking, one operation a binding and place.

        What was forgotten before one of them failed is noted too, so that `u` brings it back.
        """
        requests = self._requests(records)
        session = self._screen.session
        answers: list[MutationAnswer] = []

        async def forget_all() -> Answers:
            for request in requests:
                answer = await session.service.forget(session.caller, request)
                answers.append(answer)
            return answers

        def not_all(error: MemtuiError) -> None:
            self._take(answers)
            failed(error)

        def all_done(_: Answers) -> None:
            self._take(answers)
            done(answers)

        self.work.every(forget_all, all_done, not_all)

    def erase(self, record: Record) -> None:
        """Show what erasing a record for good would take, and do that after a yes."""
        from memtui.service import PurgeRequest

        request = PurgeRequest(
            record_id=record_key(record), binding_key=self._feed.binding_of(record), forget=True
        )
        question = f"Erase “{record_name(record)[:60]}” for good?"
        session = self._screen.session

        def show(plan: PurgeAnswer) -> None:
            def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
                if yes:
                    self.work.every(
                        lambda: session.service.purging.apply(session.caller, request),
                        erased,
                        self.failed,
                    )

            copies = [f"{one.place}: {fmt.count(one.count)} {one.what}" for one in plan.copies]
            detail = "\n".join(
                ["The record and memtui's copies go; u cannot bring them back.", *copies]
            )
            self._screen.app.push_screen(Confirm(question, verb="erase", detail=detail), answered)

        def erased(done: PurgeAnswer) -> None:
            self._feed.gone({record_key(record)}, set())
            if done.left:
                self._screen.toast(
                    f"Erased, but a text is still in {done.left[0].place}.", severity="error"
                )
            elif done.found is not None:
                looked = fmt.counted(done.found.files, "file")
                self._screen.toast(f"Erased for good. Looked through {looked}: nothing is left.")

        plan = partial(session.service.purging.plan, session.caller, request)
        words = "looking for every copy"
        # Whoever says yes to what nothing brings back has to have seen it.
        self._screen.app.push_screen(Waiting(words, plan, show, self.failed, gives_keys=False))

    def _requests(self, records: Sequence[Record]) -> list[ForgetRequest]:
        groups: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            groups[self._feed.binding_of(record)].append(record)
        return [self._request(key, group) for key, group in groups.items()]

    def _request(self, binding_key: str, records: Sequence[Record]) -> ForgetRequest:
        scopes = {place_of(record) for record in records}
        return ForgetRequest(
            scope=scopes.pop() if len(scopes) == 1 else self._screen.state.record_scope,
            handles=tuple(record.handle for record in records),
            binding_key=binding_key,
            revisions={
                record_key(record): record.revision for record in records if record.revision
            },
        )

    def _take(self, answers: Answers) -> None:
        if not answers:
            return
        self.own(*(answer.operation_id for answer in answers))
        ghosts = {one.provider_record_id for answer in answers for one in answer.ghosts}
        self._feed.gone(_asked(answers), ghosts)

    def _forgot(self, answers: Answers) -> None:
        gone = len(_asked(answers)) - sum(len(answer.ghosts) for answer in answers)
        self._screen.toast(said(f"Forgot {fmt.count(gone)}. u brings them back.", *answers))

    def undo(self) -> None:
        """Take the last change back; one that was not made here only after a yes."""
        session = self._screen.session

        async def last() -> list[UndoCandidate]:
            await self.work.settled()
            return await session.service.undoable(session.caller, 1)

        self._wait(last, self._offer_undo)

    def _wait(self, work: Work[T], then: Callable[[T], None]) -> None:
        """Go on once nothing is being changed any more; keys wait too, and none is lost."""
        words = "waiting for the change under way"
        self._screen.app.push_screen(Waiting(words, work, then, self.failed))

    def _offer_undo(self, found: list[UndoCandidate]) -> None:
        if not found:
            self._screen.fail(Invalid("There is nothing to undo."))
            return
        operation = found[0].operation
        if self._last and operation.operation_id == self._last[-1]:
            self._undo(self._last)
            return
        if found[0].why_not is not None:
            self._screen.fail(Invalid(f"The last change cannot be taken back. {found[0].why_not}"))
            return
        question = fmt.take_back(operation, fmt.changed(found[0]), self._screen.state.clock())

        def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            if yes:
                self._undo((operation.operation_id,))

        self._screen.app.push_screen(Confirm(question, verb="take it back"), answered)

    def redo(self) -> None:
        """Do again what was taken back here last."""
        self._wait(self.work.settled, lambda _: self._redo())

    def _redo(self) -> None:
        if self._taken_back:
            undoing = tuple(answer.operation_id for answer in self._taken_back)
            self._reverse(undoing, self._redone)
        else:
            self._screen.fail(Invalid("There is nothing to do again; u takes back."))

    def _undo(self, operation_ids: tuple[str, ...]) -> None:
        self._reverse(operation_ids, self._undone)

    def _reverse(self, operation_ids: tuple[str, ...], done: Callable[[Answers], None]) -> None:
        session = self._screen.session
        answers: list[MutationAnswer] = []

        async def undo_all() -> Answers:
            for operation_id in reversed(operation_ids):
                answer = await session.service.undo(session.caller, operation_id)
                answers.append(answer)
            return answers

        def not_all(error: MemtuiError) -> None:
            self.own(*(answer.operation_id for answer in answers))
            self._feed.load()
            self.failed(error)

        self.work.every(undo_all, done, not_all)

    def _undone(self, answers: Answers) -> None:
        count = self._show(answers)
        self.own()
        self._taken_back = answers
        self._screen.toast(said(f"Took it back: {count}. U does it again.", *answers))

    def _redone(self, answers: Answers) -> None:
        count = self._show(answers)
        self.own(*(answer.undoes for answer in self._taken_back if answer.undoes))
        self._screen.toast(said(f"Did it again: {count}. u takes it back.", *answers))

    def _show(self, answers: Answers) -> str:
        """Show the records as they are after a reversal; return how many there are, in words."""
        handles = [handle for answer in answers for handle in answer.handles]
        if settings := sum(len(answer.settings) for answer in answers):
            self._screen.post_message(ConfigurationChanged())
        self._feed.known.ghosts.difference_update(one.provider_record_id for one in handles)
        self._feed.load()
        if settings and not handles:
            return fmt.counted(settings, "setting")
        return fmt.counted(len(handles), "record")

    def failed(self, error: MemtuiError) -> None:
        """Tell why a change was not made; after a conflict show the records as they are now."""
        if isinstance(error, Conflict):
            self._feed.load()
            self._screen.toast(
                f"{error} The list shows it as it is now; look again and repeat.", severity="error"
            )
        else:
            self._screen.fail(error)


def _asked(answers: Answers) -> set[str]:
    return {
        handle.provider_record_id
        for answer in answers
        for handle in (*answer.handles, *answer.missing)
    }


def place_of(record: Record) -> Scope:
    """Return where the record lives, without the issue and run that it came from."""
    return record.scope.model_copy(update={"issue_id": None, "run_id": None})


def said(done: str, *answers: MutationAnswer) -> str:
    """Return what was done, and what a person has to know about it."""
    words = [done]
    redacted = dict.fromkeys(label for answer in answers for label in answer.redacted)
    if redacted:
        words.append(f"Taken out before it was stored: {', '.join(redacted)}.")
    if ghosts := sum(len(answer.ghosts) for answer in answers):
        words.append(
            f"The provider still returns {fmt.counted(ghosts, 'record')}: shown as ghosts."
        )
    if missing := sum(len(answer.missing) for answer in answers):
        words.append(f"{fmt.counted(missing, 'record')} had gone before.")
    if linked := sum(len(answer.linked) for answer in answers):
        words.append(f"{fmt.counted(linked, 'record')} came back under a new id.")
    return " ".join(words)
