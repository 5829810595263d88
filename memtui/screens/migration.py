"""A migration from one binding to another: dry run, apply, verify, cut over, roll back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.content import Content

from memtui.presenters import comparison
from memtui.presenters import format as fmt
from memtui.screens.bindings.view import target_words
from memtui.screens.dialogs import Choice, Choose, Confirm, Dialog, TypedConfirm
from memtui.screens.modal import Reasons
from memtui.screens.state import AppState, ConfigurationChanged
from memtui.screens.steps import StepRow, StepScreen, progress_content
from memtui.widgets.background import Background
from memtui.widgets.display import BAD, DIM, OK, STRONG, WARN, display, line, lines

if TYPE_CHECKING:
    from memtui.migration.cutover import Switched
    from memtui.migration.endpoints import Endpoints, MigrationState
    from memtui.migration.envelope import Loss
    from memtui.migration.moving import Applied, MigrationProgress
    from memtui.migration.planning import MigrationPlan
    from memtui.migration.verifying import Verified
    from memtui.service.answers import BindingView
    from memtui.service.usecases.comparing import MemoryComparison

_Step = Callable[["Endpoints"], Coroutine[Any, Any, Any]]
_SAMPLES = (100, 1_000)
_ALL = 0
_COMPARED = 500
"""How many of the log's newest questions a comparison looks at."""
_STOPPED = "Stopped; r makes the dry run again."
_STEPS = "plan apply verify compare cut_over back"


class Migration(StepScreen):
    """Moves the records of a binding to another and verifies it; each change needs a yes."""

    ACTION_GROUP = "migration"

    def __init__(self, state: AppState, source: BindingView, destination: BindingView) -> None:
        super().__init__(state)
        self._source = source
        self._destination = destination
        self._plan: MigrationPlan | None = None
        self._state: MigrationState | None = None
        self._switching = False
        """Whether the running step switches targets, which cannot be stopped."""
        self._endpoints: Endpoints | None = None
        self._looking = Background(self, "migration-state")

    def draw_head(self) -> Content:
        """Return source and destination, the steps, and the status."""
        steps = steps_content(self._state, self.state.clock(), planned=self._plan is not None)
        endpoints = (f"{one.provider_key}·{one.key}" for one in (self._source, self._destination))
        names = Content(" → ").join(display(one, limit=100, style=STRONG) for one in endpoints)
        return lines([line("migrate", names), steps, self.status])

    def reasons(self) -> Reasons:
        """Return why steps cannot run now."""
        here, there, state = self._source.key, self._destination.key, self._state
        begun = state is not None and (state.begun_at or state.applied_at) is not None
        verified = state is not None and state.verified_at is not None
        switched = state is not None and bool(state.switched)
        locked = f"The binding {there} is read-only; ! on it in Bindings opens it."
        unwritten = f"The provider of {there} only reads; choose another destination."
        untargeted = f"{here} serves nobody, so there is nothing to cut over."
        return (
            ("stop", self._switching, "Nothing is running."),
            (_STEPS, self.run.busy, "Wait until this is done; ctrl+c stops it."),
            ("apply", self._plan is None, "See the dry run first; r makes it."),
            ("apply", self._destination.read_only, locked),
            ("apply", not self._destination.capabilities.writable, unwritten),
            ("verify cut_over", not begun, "Nothing was moved yet; a moves the records."),
            ("cut_over", not verified, "All of it must be found the same first; c compares."),
            ("cut_over", not self._source.targets, untargeted),
            ("back", not switched, f"Nothing was cut over from {here} to {there}."),
        )

    def begin(self) -> None:
        """Start the dry run."""
        self.action_plan()

    # Running a step.

    def _take(
        self, step: _Step, show: Callable[[Any], None], waiting: Content, stopped: str = _STOPPED
    ) -> None:
        """Open both bindings, run a step, and read the state of the migration."""
        from memtui.migration.endpoints import ProgressFile, open_endpoints

        session, data = self.session, self.state.paths.data
        keys = self._source.key, self._destination.key

        async def work() -> tuple[Any, Endpoints, MigrationState]:
            endpoints = await open_endpoints(session.service, session.caller, *keys)
            answer = await step(endpoints)
            after = await open_endpoints(session.service, session.caller, *keys)
            return answer, after, await asyncio.to_thread(ProgressFile(data, after).read)

        def done(found: tuple[Any, Endpoints, MigrationState]) -> None:
            answer, self._endpoints, self._state = found
            self._source, self._destination = self._endpoints.source, self._endpoints.destination
            show(answer)

        self.take(work, done, waiting, stopped)

    def broken(self, status: Content, *notice: str) -> None:
        """Show why a step ended without results, and read the state of the migration."""
        super().broken(status, *notice)
        self._look()

    def _look(self) -> None:
        """Read the state of the migration after a failed or stopped step."""
        from memtui.migration.endpoints import ProgressFile

        if self._endpoints is None or not self.is_attached:
            return

        def show(found: MigrationState) -> None:
            self._state = found
            self.draw()

        kept = ProgressFile(self.state.paths.data, self._endpoints)
        self._looking.latest(lambda: asyncio.to_thread(kept.read), show, self.fail)

    def _tell_read(self, doing: str, number: int) -> None:
        self.tell(display(f"… {doing}: {fmt.counted(number, 'record')} read", style=WARN))

    # The steps.

    def action_plan(self) -> None:
        """Make the dry run; nothing is written."""
        from memtui.migration.planning import plan

        self.rows_list.notice = ("Reading the source …", "Nothing is written by a dry run.")

        def show(found: MigrationPlan) -> None:
            self._plan = found
            self.rows_list.notice = (f"{found.source} holds nothing to move.", "esc goes back.")
            self.list_found(planned(found), _planned_words(found))

        self._take(
            lambda endpoints: plan(
                endpoints, self.state.settings, partial(self._tell_read, "dry run")
            ),
            show,
            display("… reading the source", style=WARN),
        )

    async def action_apply(self) -> None:
        """Move the records, after a yes."""
        from memtui.migration.moving import MigrationProgress, apply

        found = self._plan
        if found is None:
            return
        data = self.state.paths.data

        def progress(now: MigrationProgress) -> None:
            self.tell(progress_content("moving", now))

        def show(done: Applied) -> None:
            least = "" if done.complete else "at least "
            words = f"{least}{fmt.count(done.seen)} seen, {fmt.count(done.written)} written"
            tail = (
                f", {fmt.count(done.failed)} failed" if done.failed else "; c compares both sides"
            )
            self.list_found(applied(done), display(words + tail, style=BAD if done.failed else OK))

        begun = MigrationProgress(
            done=0, total=found.records, failed=0, rate=0.0, seconds_left=None
        )
        number = fmt.counted(found.records - found.refused, "record")
        question = Confirm(
            f"Move {number} from {found.source} into {found.destination}?",
            verb="move",
            detail=f"{found.source} is only read. ctrl+c stops; a continues without duplicates.",
            otherwise="leave it",
            final=True,
        )
        if await self.ask(question):
            self._take(
                lambda endpoints: apply(endpoints, data, progress),
                show,
                progress_content("moving", begun),
                "Stopped; what was moved stays, and a continues.",
            )

    async def action_verify(self) -> None:
        """Ask whether to compare all records or a sample, and compare."""
        from memtui.migration.verifying import verdict, verify
        from memtui.service.usecases.checking import checks_path

        checks = checks_path(self.session.service)
        asked = await asyncio.to_thread(checks.is_file)
        choices = [
            Choice(_ALL, "every record", "all"),
            *(Choice(size, f"{fmt.count(size)} records at random", "sample") for size in _SAMPLES),
        ]

        def offered(text: str) -> list[Choice[int]]:
            size = int(text[:9]) if text.isascii() and text.isdigit() else 0
            words = f"{fmt.count(size)} records at random"
            return [Choice(size, words, "sample")] if size else []

        title = f"Compare which records?{f' {checks.name} is asked of both too.' if asked else ''}"
        size = await self.ask(Choose(title, choices, placeholder="or a number", offer=offered))
        if size is None:
            return
        sample = size or None
        data = self.state.paths.data

        def show(found: Verified) -> None:
            words = verdict(found, self._source.key, self._destination.key)
            self.list_found(
                verified(found), display(words, limit=600, style=OK if found.passed else BAD)
            )

        report = partial(self._tell_read, "comparing")
        self._take(
            lambda endpoints: verify(
                endpoints, data, sample=sample, checks=checks if asked else None, report=report
            ),
            show,
            display("… reading both sides", style=WARN),
        )

    async def action_cut_over(self) -> None:
        """Let the destination serve what the source serves, after a yes."""
        here, there = self._source.key, self._destination.key
        whole = bool(self._state and self._state.verified_whole)
        targets = fmt.counted(len(self._source.targets), "target")
        asked = f"Let {there} serve the {targets} of {here}?"
        back = self.state.keymap.label("migration.back")
        detail = f"No record is touched; {here} stays as it is, and {back} rolls back."
        question: Dialog[Any] = Confirm(asked, verb="cut over", detail=detail, otherwise="leave it")
        if not whole:
            detail = f"{here} could not be listed completely: it may hold more records.\n{detail}"
            question = TypedConfirm(asked, word=there, verb="cut over anyway", detail=detail)
        if await self.ask(question):
            self._switch(back=False, force=not whole)

    async def action_back(self) -> None:
        """Roll the targets back to the source, after a yes."""
        here, there = self._source.key, self._destination.key
        number = fmt.counted(len(self._state.switched) if self._state else 0, "target")
        question = Confirm(
            f"Roll the {number} back to {here}?",
            verb="roll back",
            detail=f"What was written to {there} meanwhile stays there.",
            otherwise="leave it",
        )
        if await self.ask(question):
            self._switch(back=True, force=False)

    async def action_compare(self) -> None:
        """Show what the destination answered as a shadow, else ask both the log's questions."""
        from memtui.service.usecases import comparing, shadowing

        service, caller = self.session.service, self.session.caller
        keys = self._source.key, self._destination.key
        shadow = await self.change(partial(comparing.shadow_of, service, caller, keys))
        work = partial(shadowing.report_shadow, service, caller, shadow)
        if shadow.until is None:
            plan = await self.change(
                partial(comparing.plan_comparison, service, caller, keys, _COMPARED)
            )
            question = Confirm(
                f"Ask both bindings {fmt.counted(len(plan.asked), 'question')} of the log?",
                verb="ask",
                detail="Without secrets they may leave this machine, to "
                f"{' and '.join(plan.leave)}.\nSome providers count or bill searches. The yes is "
                "stored for these two.",
                otherwise="leave it",
            )
            if not (plan.agreed or await self.ask(question)):
                return

            def progress(done: int) -> None:
                words = f"… comparing answers: {fmt.of_total(done, len(plan.asked))} asked"
                self.tell(display(words, style=WARN))

            work = partial(
                comparing.compare_memories, service, caller, plan, agreed=True, progress=progress
            )

        def show(found: MemoryComparison) -> None:
            rows = (StepRow(name, None, f"{keys[0]}: {here} · {keys[1]}: {there}")
                    for name, here, there in comparison.figures(found))  # fmt: skip
            step, what = "shadow start", f"asks {keys[1]} too for a time, and delivers no answer"
            if shadow.until is not None:
                step, what = "cutover", f"lets {keys[1]} serve, if the figures support it"
            then = f"Next, `memtui compare {step} {' '.join(keys)}` {what}."
            said = " ".join([*comparison.sentences(found), then])
            self.list_found(rows, display(said, limit=600, style=OK))

        self._take(lambda _: work(), show, display("… comparing answers", style=WARN))

    def _switch(self, *, back: bool, force: bool) -> None:
        from memtui.migration.cutover import switch

        data = self.state.paths.data

        def show(done: Switched) -> None:
            words = f"{done.served_by} serves {fmt.counted(len(done.targets), 'target')} now"
            self.list_found(switched(done), display(words, style=OK))
            self.post_message(ConfigurationChanged())

        async def step(endpoints: Endpoints) -> Switched:
            self._switching = True
            try:
                return await switch(endpoints, data, back=back, force=force)
            finally:
                self._switching = False

        self._take(step, show, display("… switching", style=WARN))


def _planned_words(plan: MigrationPlan) -> Content:
    there = plan.destination_records
    least = "" if plan.complete else "at least "
    parts = [f"{least}{fmt.counted(plan.records, 'record')} to move"]
    if there or (there is not None and not plan.destination_at_least):
        more = "at least " if plan.destination_at_least else ""
        parts.append(f"{more}{fmt.count(there)} in the destination already")
    if plan.refused:
        parts.append(f"{fmt.count(plan.refused)} refused")
    if plan.problems:
        parts.append(f"{fmt.counted(len(plan.problems), 'place')} cannot be read")
    return display(", ".join(parts), style=WARN if plan.refused or plan.problems else DIM)


# The results of each step, as rows.


def planned(plan: MigrationPlan) -> Iterator[StepRow]:
    """Yield unread parts, losses, the destination of records, and refused records."""
    yield from _unread((*plan.source_unread, *plan.problems))
    if plan.refused:
        why = "The destination does not take them; each is listed below."
        yield StepRow("refused", plan.refused, why, "error")
    yield from _lost(plan.losses)
    if plan.staying:
        why = "the projects' own, which the binding reads where they lie"
        yield StepRow("not moved", plan.staying, why, "muted")
    if plan.redacted:
        why = "The records stay; what looks like a secret is taken out of them."
        yield StepRow("secrets taken out", plan.redacted, why, "warning")
    for one in plan.scopes:
        yield StepRow(
            f"{one.scope} · {one.kind}", one.records, f"→ {one.place}" if one.place else ""
        )
    for refused in plan.refusals:
        yield StepRow(f"refused: {refused.record_id}", None, refused.reason, "error")


def _lost(losses: Iterable[Loss]) -> Iterator[StepRow]:
    for loss in losses:
        if loss.filled:
            yield StepRow(f"filled in: {loss.what}", loss.records, loss.fate, "warning")
        elif loss.carried:
            why = "carried in the metadata; a migration back restores it"
            yield StepRow(f"carried: {loss.what}", loss.records, why, "warning")
        else:
            yield StepRow(f"lost: {loss.what}", loss.records, "kept by the source only", "error")


def applied(done: Applied) -> Iterator[StepRow]:
    """Yield the counts of moved records, then each record that was not moved."""
    yield from _unread((*done.source_unread, *done.problems))
    yield StepRow("written", done.written, "new in the destination", "success")
    yield StepRow("replaced", done.replaced, "moved before, and changed in the source since")
    yield StepRow("unchanged", done.unchanged, "there already")
    yield StepRow("failed", done.failed, "not moved", "error" if done.failed else "muted")
    if done.redacted:
        yield StepRow("secrets taken out", done.redacted, "", "warning")
    yield from _lost(done.losses)
    for failure in done.failures:
        yield StepRow(f"failed: {failure.record_id}", None, failure.reason, "error")


def verified(found: Verified) -> Iterator[StepRow]:
    """Yield the counts of a comparison, then each record that differs."""
    yield from _unread((*found.source_unread, *found.problems))
    if found.sample is not None:
        least = "" if found.complete else "at least "
        drawn = f"drawn from {least}{found.source_records:,}, seed {found.seed}"
        yield StepRow("sample", found.sample, drawn, "muted")
    missing = "not in the destination"
    if found.destination_at_least:
        missing = "not found in the destination, which cannot be listed completely"
    yield StepRow("matched", found.matched, f"of {found.checked:,} that were compared", "success")
    for what, number, why in (
        ("missing", found.missing, missing),
        ("different", found.different, "not the same on both sides"),
        ("extra", found.extra, "in the destination only, or more than once"),
    ):
        yield StepRow(what, number, why, "error" if number else "muted")
    yield StepRow("others", found.others, "the destination's own", "muted")
    for check in found.lost_checks:
        yield StepRow(f"{fmt.CHECK_MARKS[check.outcome]} {check.title}", None, check.why, "error")
    for one in found.mismatches:
        names = " → ".join(name for name in (one.source_id, one.destination_id) if name)
        yield StepRow(
            f"{one.what}: {names}", None, ", ".join(one.fields).replace("_", " "), "error"
        )


def _unread(sentences: Sequence[str]) -> Iterator[StepRow]:
    """Yield why the source could not be listed to its end."""
    for sentence in sentences:
        yield StepRow("the source may hold more", None, sentence, "warning")


def switched(done: Switched) -> Iterator[StepRow]:
    """Yield which binding serves each target now."""
    for target in done.targets:
        yield StepRow(target_words(target), None, f"is served by {done.served_by}", "success")
    for target in done.left:
        yield StepRow(
            target_words(target), None, "is served by a third binding, and stays", "warning"
        )


# The head.


def steps_content(state: MigrationState | None, now: datetime, *, planned: bool) -> Content:
    """Return the state of the migration: planned → applied → verified → cut over."""
    applied = state.applied_at if state else None
    begun = state.begun_at if state and applied is None else None
    verified = state.verified_at if state else None
    cut = bool(state and state.switched)
    steps = [
        _step("planned", done=planned, note=""),
        _step("applied", done=applied is not None, note=_when(applied, now))
        if begun is None
        else display(f"◐ applied in part, begun {_when(begun, now)}", style=WARN),
        _step("verified", done=verified is not None, note=_when(verified, now)),
        _step("cut over", done=cut, note=""),
    ]
    return line(*steps, gap=" → ")


def _when(moment: datetime | None, now: datetime) -> str:
    return fmt.since(moment, now) if moment is not None else ""


def _step(word: str, *, done: bool, note: str) -> Content:
    if not done:
        return display(f"○ {word}", style=DIM)
    return line(display(f"● {word}", style=OK), display(note, style=DIM))
