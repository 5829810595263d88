"""A migration over the Bindings screen, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import BindingType
from textual.content import Content

from memtui.contract import MemtuiError
from memtui.screens.dialogs import Choice, Choose, Confirm, TypedConfirm
from memtui.screens.migration import lines
from memtui.screens.migration.contents import (
    head_content,
    progress_content,
    row_content,
    steps_content,
)
from memtui.screens.migration.lines import Row
from memtui.screens.modal import ModalListScreen
from memtui.screens.state import ConfigurationChanged
from memtui.widgets import format as fmt
from memtui.widgets.background import Background, Stoppable
from memtui.widgets.display import BAD, DIM, OK, WARN, display
from memtui.widgets.keys import bindings_for
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import VirtualList

if TYPE_CHECKING:
    from memtui.migration.cutover import Switched
    from memtui.migration.ends import Ends, MigrationState
    from memtui.migration.moving import Applied, Progress
    from memtui.migration.planning import Plan
    from memtui.migration.verifying import Verified
    from memtui.screens.state import AppState
    from memtui.service.answers import BindingView

_Step = Callable[["Ends"], Coroutine[Any, Any, Any]]
_SAMPLES = (100, 1_000)
_ALL = 0


class Migration(ModalListScreen):
    """Move the records of a binding to another and prove it; each change needs a yes."""

    ACTION_GROUP = "migration"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("migration")

    def __init__(self, state: AppState, source: BindingView, destination: BindingView) -> None:
        super().__init__(state)
        self._source = source
        self._destination = destination
        self._rows: AppendedRows[Row] = AppendedRows(lambda row: str(row.number))
        self._plan: Plan | None = None
        self._state: MigrationState | None = None
        self._status = Content("")
        self._doing = ""
        self._leaving = False
        self._ends: Ends | None = None
        self._run: Stoppable[Any] = Stoppable(self, "migration")
        self._looking = Background(self, "migration-state")

    def make_list(self) -> VirtualList[Row]:
        """Return the list."""
        return VirtualList(lines.columns(), self._rows, name="migration-list")

    @property
    def _list(self) -> VirtualList[Row]:
        found: VirtualList[Row] = self.query_one("#migration-list", VirtualList)
        return found

    def draw_head(self, width: int) -> Content:
        """Return from where to where, the steps, and what goes on."""
        del width
        steps = steps_content(self._state, self.state.clock(), planned=self._plan is not None)
        return head_content(self._source, self._destination, steps, self._status)

    def draw_row(self, width: int) -> Content:
        """Return the row under the cursor."""
        return row_content(self._list.current, width)

    def refusal(self, verb: str) -> str:
        """Return why a step cannot be taken now."""
        if verb == "stop":
            running = self._doing in {"reading", "moving", "comparing"}
            return "" if running else "Nothing is running."
        if verb == "copy":
            return "" if self._list.current else "No row is selected."
        if verb in {"help", "leave"}:
            return ""
        if self._run.busy:
            return "Wait until this is done; x stops it."
        return self._not_yet(verb)

    def _not_yet(self, verb: str) -> str:
        state = self._state
        if verb == "apply":
            return "See the dry run first; p makes it." if self._plan is None else self._unfit()
        if verb == "verify" and not _is_begun(state):
            return "Nothing was moved yet; a moves the records."
        if verb == "cut_over":
            return self._not_cut(state)
        if verb == "back" and (state is None or not state.switched):
            return f"Nothing was cut over from {self._source.key} to {self._destination.key}."
        return ""

    def _unfit(self) -> str:
        there = self._destination
        if there.read_only:
            return f"The binding {there.key} is read-only; w on it in Bindings opens it."
        if not there.capabilities.writable:
            return f"The provider of {there.key} only reads; choose another destination."
        return ""

    def _not_cut(self, state: MigrationState | None) -> str:
        if state is None or not _is_begun(state):
            return "Nothing was moved yet; a moves the records."
        if state.verified_at is None:
            return "All of it must be found the same first; v compares."
        if not self._source.targets:
            return f"{self._source.key} serves nobody, so there is nothing to cut over."
        return ""

    def on_mount(self) -> None:
        """Say at once what would happen."""
        super().on_mount()
        self.action_plan()

    # Running a step.

    def _take(self, doing: str, step: _Step, show: Callable[[Any], None], waiting: Content) -> None:
        """Open both ends, take a step, and read how far the migration is."""
        from memtui.migration.ends import ProgressFile, open_ends

        session, data = self.session, self.state.data
        keys = self._source.key, self._destination.key

        async def work() -> tuple[Any, Ends, MigrationState]:
            ends = await open_ends(session.service, session.caller, *keys)
            answer = await step(ends)
            after = await open_ends(session.service, session.caller, *keys)
            return answer, after, await asyncio.to_thread(ProgressFile(data, after).read)

        def done(found: tuple[Any, Ends, MigrationState]) -> None:
            answer, self._ends, self._state = found
            ends = self._ends
            self._source, self._destination = ends.source, ends.destination
            self._doing = ""
            show(answer)
            self._ended()

        def stopped() -> None:
            self._doing, self._status = "", display("stopped", style=WARN)
            self._list.notice = ("Stopped.", "p makes the dry run again.")
            if doing == "moving":
                self.toast("Stopped; what was moved stays, and a goes on where it was.")
            self._ended()
            self._look()

        def failed(error: MemtuiError) -> None:
            self._doing, self._status = "", display(f"✗ {error}", limit=600, style=BAD)
            self._list.notice = (f"✗ {error}", "p tries again, esc goes back.")
            self._ended()
            self._look()

        self._doing, self._status = doing, waiting
        self._run.start(work, done=done, stopped=stopped, failed=failed)
        self.draw()

    def _look(self) -> None:
        """Read how far the migration is, after a step that did not end well."""
        from memtui.migration.ends import ProgressFile

        if self._ends is None or not self.is_attached:
            return

        def show(found: MigrationState) -> None:
            self._state = found
            self.draw()

        kept = ProgressFile(self.state.data, self._ends)
        self._looking.latest(lambda: asyncio.to_thread(kept.read), show, self.fail)

    def _ended(self) -> None:
        self.draw()
        if self._leaving:
            self.dismiss(None)

    def _show(self, rows: Iterable[Row], status: Content) -> None:
        self._rows.replace([replace(row, number=number) for number, row in enumerate(rows)])
        self._list.show(self._rows)
        self._list.go_to(0)
        self._status = status

    def _tell(self, status: Content) -> None:
        if self.is_attached and self._doing:
            self._status = status
            self.draw()

    def _read_so_far(self, doing: str) -> Callable[[int], None]:
        def report(number: int) -> None:
            self._tell(display(f"… {doing}: {fmt.counted(number, 'record')} read", style=WARN))

        return report

    # The steps.

    def action_plan(self) -> None:
        """Say what would happen; nothing is written."""
        from memtui.migration.planning import plan
        from memtui.service.mutations import FactLimits

        limits = FactLimits(
            max_chars=self.state.fact_max_chars, max_count=self.state.fact_max_count
        )
        self._list.notice = ("Reading the source …", "Nothing is written by a dry run.")

        def show(found: Plan) -> None:
            self._plan = found
            self._list.notice = (f"{found.source} holds nothing to move.", "esc goes back.")
            self._show(lines.planned(found), _planned_words(found))

        self._take(
            "reading",
            lambda ends: plan(ends, limits, self._read_so_far("dry run")),
            show,
            display("… reading the source", style=WARN),
        )

    def action_apply(self) -> None:
        """Move the records, after a yes."""
        from memtui.migration.moving import Progress, apply

        found = self._plan
        if found is None:
            return
        data = self.state.data

        def progress(now: Progress) -> None:
            self._tell(progress_content("moving", now))

        def show(done: Applied) -> None:
            least = "" if done.complete else "at least "
            words = f"{least}{fmt.count(done.seen)} seen, {fmt.count(done.written)} written"
            tail = (
                f", {fmt.count(done.failed)} failed" if done.failed else "; v compares both sides"
            )
            self._show(lines.applied(done), display(words + tail, style=BAD if done.failed else OK))

        def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            if yes:
                self._take(
                    "moving",
                    lambda ends: apply(ends, data, progress),
                    show,
                    progress_content("moving", begun),
                )

        begun = Progress(done=0, total=found.records, failed=0, rate=0.0, seconds_left=None)
        number = fmt.counted(found.records - found.refused, "record")
        self.app.push_screen(
            Confirm(
                f"Move {number} from {found.source} into {found.destination}?",
                verb="move",
                detail=f"{found.source} is only read. x stops; begun again, it goes on and "
                "doubles nothing.",
                otherwise="leave it",
            ),
            answered,
        )

    def action_verify(self) -> None:
        """Ask whether to compare all or a sample, and compare."""
        choices = [
            Choice(_ALL, "every record", "all"),
            *(Choice(size, f"{fmt.count(size)} records at random", "sample") for size in _SAMPLES),
        ]

        def offered(text: str) -> list[Choice[int]]:
            size = int(text[:9]) if text.isascii() and text.isdigit() else 0
            words = f"{fmt.count(size)} records at random"
            return [Choice(size, words, "sample")] if size else []

        def chosen(size: int | None) -> None:
            if size is not None:
                self._verify(size or None)

        self.app.push_screen(
            Choose("Compare which records?", choices, placeholder="or a number", offer=offered),
            chosen,
        )

    def _verify(self, sample: int | None) -> None:
        from memtui.migration.verifying import verdict, verify

        data = self.state.data

        def show(found: Verified) -> None:
            words = verdict(found, self._source.key, self._destination.key)
            self._show(
                lines.verified(found), display(words, limit=600, style=OK if found.passed else BAD)
            )

        self._take(
            "comparing",
            lambda ends: verify(ends, data, sample=sample, report=self._read_so_far("comparing")),
            show,
            display("… reading both sides", style=WARN),
        )

    def action_cut_over(self) -> None:
        """Let the destination serve what the source serves, after a yes."""
        here, there = self._source.key, self._destination.key
        whole = bool(self._state and self._state.verified_whole)

        def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            if yes:
                self._switch(back=False, force=not whole)

        targets = fmt.counted(len(self._source.targets), "target")
        question = f"Let {there} serve the {targets} of {here}?"
        detail = f"No record is touched; {here} stays as it is, and b gives back."
        if whole:
            self.app.push_screen(
                Confirm(question, verb="cut over", detail=detail, otherwise="leave it"), answered
            )
        else:
            detail = f"{here} could not be listed whole: it may hold more than was moved.\n{detail}"
            self.app.push_screen(
                TypedConfirm(question, word=there, verb="cut over all the same", detail=detail),
                answered,
            )

    def action_back(self) -> None:
        """Let the source serve again what was cut over, after a yes."""

        def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            if yes:
                self._switch(back=True, force=False)

        here, there = self._source.key, self._destination.key
        number = fmt.counted(len(self._state.switched) if self._state else 0, "target")
        self.app.push_screen(
            Confirm(
                f"Give the {number} back to {here}?",
                verb="give back",
                detail=f"What was written to {there} meanwhile stays there.",
                otherwise="leave it",
            ),
            answered,
        )

    def _switch(self, *, back: bool, force: bool) -> None:
        from memtui.migration.cutover import switch

        data = self.state.data

        def show(done: Switched) -> None:
            words = f"{done.served_by} serves {fmt.counted(len(done.targets), 'target')} now"
            self._show(lines.switched(done), display(words, style=OK))
            self.post_message(ConfigurationChanged())

        self._take(
            "switching",
            lambda ends: switch(ends, data, back=back, force=force),
            show,
            display("… switching", style=WARN),
        )

    # Other keys.

    def action_stop(self) -> None:
        """Stop what is running."""
        self._doing, self._status = "stopping", display("… stopping", style=WARN)
        self._run.stop()
        self.draw()

    def action_copy(self) -> None:
        """Copy the row."""
        if (row := self._list.current) is not None:
            records = "" if row.records is None else fmt.count(row.records)
            words = "  ".join(part for part in (row.what, records, row.where) if part)
            self.copy(words, "Copied the row.")

    async def on_unmount(self) -> None:
        """Bring what runs to its end where the whole app is left."""
        await self._run.end()

    def may_leave(self) -> bool:
        """Stop what runs, and leave once it has ended; a switch is waited for."""
        if not self._run.busy:
            return True
        self._leaving = True
        if not self.refusal("stop"):
            self.action_stop()
        return False


def _is_begun(state: MigrationState | None) -> bool:
    return state is not None and (state.begun_at or state.applied_at) is not None


def _planned_words(plan: Plan) -> Content:
    there = plan.destination_records
    least = "" if plan.complete else "at least "
    parts = [f"{least}{fmt.counted(plan.records, 'record')} to move"]
    if there is not None:
        more = "at least " if plan.destination_at_least else ""
        parts.append(f"{more}{fmt.count(there)} in the destination already")
    if plan.refused:
        parts.append(f"{fmt.count(plan.refused)} refused")
    return display(", ".join(parts), style=WARN if plan.refused else DIM)
