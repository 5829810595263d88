"""The prune review: candidates by reason or owner, the tokens saved, and the confirmation.

It covers the context on the Budget screen, or all records that the person may see in all bindings.
In the latter case each binding's plan is shown as it arrives; slow or failed bindings are named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from textual.content import Content

from memtui.contract import (
    BrowseRequest,
    Conflict,
    Filter,
    MemtuiError,
    NotFound,
    OperationType,
    Record,
    RecordHandle,
    Scope,
    owner_words,
)
from memtui.filters import FilterTarget
from memtui.presenters import format as fmt
from memtui.screens.budget.view import BudgetView, by_words, section_word
from memtui.screens.dialogs import Choice, Choose, Confirm
from memtui.screens.following import News
from memtui.screens.leading import choose_reader
from memtui.screens.modal import ModalListScreen
from memtui.screens.prune_review import (
    LeftReview,
    Narrowing,
    PlanPart,
    ReviewedPlans,
    ReviewLine,
    Size,
    Sort,
)
from memtui.screens.state import AppState, GoTo, PruneFigures, PrunePlanned
from memtui.service.usecases.pruning import plan_context, plan_everything, rules_of
from memtui.service.usecases.verdict import verdict_of
from memtui.widgets.background import Background
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import joined, labelled, spread
from memtui.widgets.display import DIM, OK, STRONG, WARN, display, line, lines
from memtui.widgets.panes import Drawn
from memtui.widgets.record_names import RecordName
from memtui.widgets.virtual_list import MARK

if TYPE_CHECKING:
    from memtui.screens.editing import EditingScreen
    from memtui.service.context.pruning import PruneAnswer
    from memtui.service.usecases.pruning import ContextPlan

Doing = Literal["", "looking", "forgetting"]
"""The background work of the review; "" while it waits for the person."""
Shown = Literal["list", "diff"]
_BUSY: dict[Doing, str] = {
    "looking": "What could go is still being looked for.",
    "forgetting": "The records are being forgotten.",
}
_HINT = "enter filter   empty: everything   esc go back"
_NONE_PASSES = ("Nothing that passes the filter could go.", "/ changes it, esc goes back.")
_OF_RECORD = {"record", "history", "queries", "runs"}
_NO_RECORD = "No record is selected."
_NO_DUPLICATE = "Nothing else says the same; go to a duplicate."
_STAYS_ALREADY = "This is the one that stays; go to a duplicate of it to let that one stay instead."
_MOST_DAYS = 36_500
_SOON_SECONDS = 0.3
"""Seconds to wait for all bindings before partial results are shown."""


@dataclass(frozen=True, slots=True)
class Heading:
    """The parts of the head that do not come from `ReviewedPlans`."""

    whose: str
    doing: Doing
    unread: Sequence[str] = ()
    """The bindings that are still being read."""
    of_context: bool = True


class PruneReview(ModalListScreen[ReviewLine]):
    """Review prunable records of a context or of everything; forgetting needs a yes."""

    ACTION_GROUP = "prune"
    NOUN = "line"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]

    def __init__(
        self,
        below: EditingScreen[Any],
        view: BudgetView | None = None,
        narrowing: Narrowing | None = None,
        at: RecordName | None = None,
    ) -> None:
        """Prepare a review.

        Args:
            below: The screen that carries out forgets and undos.
            view: The context to review; None: everything.
            narrowing: The part to show first; None: all of it.
            at: The record to mark and go to; None: none.
        """
        super().__init__(below.state)
        self._below = below
        self._view = view
        self._everything = view is None
        self._rules = rules_of(self.state.settings)
        self._review = ReviewedPlans(narrowing=narrowing or Narrowing())
        self._doing: Doing = "looking"
        self._unread: Sequence[str] = ()
        self._nothing: tuple[str, ...] = ()
        """The notice shown if there are no candidates."""
        self._shown: Shown = "list"
        self._tried: tuple[frozenset[RecordHandle], str] = frozenset(), ""
        """The records of the last impact preview, and how many answers would differ."""
        self._whose: Choose[tuple[bool, Narrowing]] | None = None
        """The open dialog that asks for the owner of the records to review."""
        self._undoing = False
        """Whether an undo begun here is not in the log yet."""
        began_with = replace(self._review.narrowing, now=None)
        self._begun = (self.state.scope, self.state.as_of, began_with)
        """A saved review is resumed only if its `begun` equals this."""
        self._key = f"{Sort.GOES}\x1f{at.binding_key}\x1f{at.record_id}" if at is not None else ""
        """Key of the row to go to once it is loaded."""
        self._marks_it = at is not None
        """Whether that row is to be marked."""
        self._coming = Background(self, "prune-so-far")
        self._arranging = Background(self, "prune-arrange")

    def columns(self) -> Sequence[Column[ReviewLine]]:
        """Return the columns of the candidates, or the diff."""
        if self._shown == "list":
            return review_columns(lambda: self._review)
        return diff_columns()

    def key(self, row: ReviewLine) -> str:
        """Return the key of a line."""
        return row.key

    def begin(self) -> None:
        """Look for candidates; resume at the saved position of a review, if there is one."""
        left, self._below.left_review = self._below.left_review, None
        if left is not None and left.begun == self._begun:
            self._review, self._everything = left.review, left.everything
            self._key = self._key or left.key
        self._read()

    def on_go_to(self, message: GoTo) -> None:
        """Save the position before another screen is shown, to resume it."""
        del message
        current = self.current
        key = current.key if current is not None else ""
        self._below.left_review = LeftReview(self._begun, self._review, self._everything, key)

    # Reading.

    def _read(self) -> None:
        """Plan again; marks of unchanged records stay."""
        self._doing, self._unread = "looking", ()
        self._tried = frozenset(), ""
        self._nothing = ("Looking for what could go …", "esc goes back.")
        self.rows_list.notice = self._nothing
        self.draw()
        self._coming.forget()
        plan = self._plan_everything if self._everything else self._plan_context
        self.reads.latest(plan, self._done, self._failed)

    async def _plan_context(self) -> ReviewedPlans:
        view = self._view
        if view is None or view.request is None or view.answer is None:
            return ReviewedPlans()
        found = await plan_context(
            self.service, self.caller, view.request, answer=view.answer,
            rules=self._rules, to_budget=view.answer.over_budget,
        )  # fmt: skip
        return await asyncio.to_thread(self._taking_over, lambda: context_review(found))

    async def _plan_everything(self) -> ReviewedPlans:
        found = await plan_everything(
            self.service, self.caller, rules=self._rules, so_far=self._so_far
        )
        self._coming.forget()
        review = await asyncio.to_thread(self._taking_over, lambda: review_of(found))
        if self.state.as_of is None:
            figures = await asyncio.to_thread(figures_of, review, found, self.state)
            self.post_message(PrunePlanned(figures))
        return review

    def _so_far(self, found: PruneAnswer) -> None:
        """Show partial results while slower bindings are still being read."""
        self._unread = [one.binding_key for one in found.bindings if one.status == "waiting"]
        self.draw()
        if not self._unread:
            return

        async def review() -> ReviewedPlans:
            await asyncio.sleep(_SOON_SECONDS)
            return await asyncio.to_thread(self._taking_over, lambda: review_of(found))

        self._coming.latest(review, self._show_plans, self._failed)

    def _taking_over(self, make: Callable[[], ReviewedPlans]) -> ReviewedPlans:
        """Make a review with the current narrowing and marks. Blocking."""
        found = make()
        found.take_over(self._review)
        return found

    def _failed(self, error: MemtuiError) -> None:
        self._done(ReviewedPlans(), f"✗ {error}")

    def _done(self, review: ReviewedPlans, *nothing: str) -> None:
        self._doing = ""
        said = nothing or ("Nothing could go.", "No record repeats another.")
        self._nothing = (*said, "esc goes back.")
        self._show_plans(review)
        self._key = ""

    # Drawing.

    def _show_plans(self, review: ReviewedPlans) -> None:
        at_top = self.rows_list.cursor == 0
        self._review = review
        self._draw_rows()
        if self._key and self.rows_list.go_to_key(self._key):
            self._key = ""
            row = self.current
            if self._marks_it and row is not None and row.name not in review.marks:
                self._turn(row)
            self._marks_it = False
        elif at_top:  # new rows above may have pushed the first row down
            self.rows_list.go_to(0)
        if self._whose is not None and self._whose.is_mounted:
            self._whose.update(self._parts())

    def _draw_rows(self) -> None:
        """Draw the candidates, or the diff of the marked records."""
        if self._shown == "diff":
            self.fill(self._review.diff(), "Nothing is marked.", "t goes back, space marks.")
        else:
            is_narrowed = self._review.narrowing.filter != Filter() and not self._doing
            self.fill(self._review.lines, *(_NONE_PASSES if is_narrowed else self._nothing))

    def draw_head(self) -> Drawn:
        """Return the owners, the number of marked records, and what removing them saves."""
        whose = "everything you see"
        if not self._everything and self._view is not None:
            whose = " and ".join(place.label for place in self._view.places)
        narrowing = self._review.narrowing
        narrowed = self.line_of(narrowing.filter)
        whose = "  ".join(part for part in (narrowing.label or whose, narrowed) if part)
        heading = Heading(whose, self._doing, self._unread, of_context=not self._everything)
        return partial(head_content, heading, self._review)

    def detail(self, row: ReviewLine, width: int) -> Content:
        """Return the details of a line."""
        return line_content(row, self._review, self.state.clock(), width)

    def labels(self) -> dict[str, str]:
        """Return the footer labels: how many would be forgotten, and what the keys show."""
        chosen = len(self._review.going)
        return {
            "prune.apply": f"forget {fmt.count(chosen)}…" if chosen else "forget…",
            "prune.diff": "list" if self._shown == "diff" else "diff",
            "prune.group": "by reason" if self._review.by_owner else "by owner",
        }

    def refusal(self, verb: str) -> str:
        """Return why an action cannot run now."""
        if verb in {"leave", "help"}:
            return ""
        if self._doing == "forgetting" or (self._doing and not self._review.total):
            return _BUSY[self._doing]
        if verb in _OF_RECORD:
            current = self.current
            return "" if current is not None and current.record is not None else _NO_RECORD
        if verb in {"apply", "impact"} and not self._review.going:
            return self._review.all_kept or "Nothing is marked."
        return ""

    def open_row(self) -> None:
        """Mark or unmark the candidate."""
        self.action_turn()

    # Marking.

    def turn_mark(self) -> None:
        """Mark or unmark the candidate whose mark was clicked."""
        current = self.current
        if current is not None and self._shown == "list" and not self.refusal("turn"):
            self._turn(current)

    def action_turn(self) -> None:
        """Mark or unmark the candidate, or all of its group, and go on to the next."""
        current = self.current
        if current is None or self._shown == "diff":
            return
        self._turn(current)
        if current.sort is not Sort.GROUP:
            self.rows_list.move(1)

    def _turn(self, row: ReviewLine) -> None:
        if row.kept:
            self.toast(row.kept, severity="warning")
        self._review.turn(row)
        self._draw_rows()

    def action_all(self) -> None:
        """Mark all that is not pinned; then nothing; then what was suggested."""
        self._review.mark_in_turn()
        self._draw_rows()

    # Looking.

    def action_diff(self) -> None:
        """Show the diff, or the list."""
        self._turn_to("diff")

    async def action_insights(self) -> None:
        """Show the insights into everybody's memories; one leads to its owner's records here."""
        from memtui.screens.insights import Insights

        wanted = await self.ask(
            Insights(self.state, self._review.insights if self._everything else None)
        )
        if wanted is not None and wanted.then and self._everything:
            self._narrow(Narrowing(owner=wanted.scope))
        elif wanted is not None:
            self.post_message(wanted)

    def _turn_to(self, what: Shown) -> None:
        self._shown = "list" if self._shown == what else what
        self._draw_columns()
        self._draw_rows()

    def _draw_columns(self) -> None:
        self.rows_list.columns = tuple(self.columns())

    def action_group(self) -> None:
        """Group by owner, or by reason."""
        self._arrange(self._review.narrowing, by_owner=not self._review.by_owner)

    def _narrow(self, narrowing: Narrowing) -> None:
        self._arrange(narrowing, by_owner=self._review.by_owner)

    def _arrange(self, narrowing: Narrowing, *, by_owner: bool) -> None:
        """Show another part of the review."""
        review = self._review

        def show(found: ReviewedPlans) -> None:
            found.marks = self._review.marks
            self._show_plans(found)
            self._draw_columns()
            self.rows_list.go_to(0)

        self._arranging.latest(
            lambda: asyncio.to_thread(review.arranged, narrowing, by_owner=by_owner),
            show,
            self._failed,
        )

    async def action_whose(self) -> None:
        """Choose whose records are reviewed; each says how many of them could go."""
        review = self._review
        self._whose = Choose("Review whose records?", self._parts())
        found = await self.ask(self._whose)
        self._whose = None
        if found is None:
            return
        everything, narrowing = found
        if everything != self._everything:
            self._everything = everything
            self._review = ReviewedPlans(narrowing=narrowing, by_owner=review.by_owner)
            self._read()
        else:
            self._narrow(narrowing)

    def _parts(self) -> list[Choice[tuple[bool, Narrowing]]]:
        """Return the choices of whose records to review, with the counts known so far."""
        review = self._review
        choices: list[Choice[tuple[bool, Narrowing]]] = []
        if self._view is not None:
            label = " and ".join(place.label for place in self._view.places)
            choices.append(Choice((False, Narrowing()), label, "context"))
        if not self._everything:
            choices.append(Choice((True, Narrowing()), "everything you see, in all bindings"))
        for narrowing, could, there in review.parts():
            label = f"{narrowing.label or 'all of it'}  {could:,} of {there:,}"
            chosen = replace(narrowing, filter=review.narrowing.filter, now=review.narrowing.now)
            detail = "binding" if narrowing.binding_key else ""
            choices.append(Choice((self._everything, chosen), label, detail))
        return choices

    async def action_filter(self) -> None:
        """Ask which of the records to review."""
        narrowing = self._review.narrowing
        title = "Review the records that pass"
        chosen = await self.ask_filter(title, _HINT, narrowing.filter, FilterTarget.RECORDS)
        if chosen is not None:
            self._narrow(replace(narrowing, filter=chosen, now=self.state.clock()))

    # Acting.

    async def action_stale(self) -> None:
        """Ask after how many days without a reading a record is stale."""
        title = "Stale after how many days without being read?"
        days = await self.ask_number(title, self._rules.stale_days, most=_MOST_DAYS)
        if days is not None:
            self._rules = self._rules.model_copy(update={"stale_days": days})
            self._read()

    async def action_apply(self) -> None:
        """Forget what is marked, after a yes that names the count and the tokens."""
        records, saved = self._review.marked, self._review.saved
        staying = self._review.staying
        noun = "fact" if all(one.kind == "fact" for one in records) else "record"
        going, tokens = fmt.counted(len(records), noun), fmt.counted(saved, "token")
        question = f"Forget {going}, {tokens}, from {self._below.where(records)}?"
        tried, breaks = self._tried
        warning = breaks if tried == frozenset(one.handle for one in records) else ""
        detail = f"{warning}\nu brings them back.".lstrip()
        if not await self.ask(Confirm(question, verb="forget", detail=detail)):
            return
        self._doing = "forgetting"
        self.draw()
        # The screen below forgets, so that it goes on if the person leaves this review.
        self._below.talk(self._forget(records, staying, f", saved {tokens}"))

    async def _forget(
        self, records: Sequence[Record], staying: Sequence[Record], saved: str
    ) -> None:
        try:
            await self._below.forget_now(records, saved, staying)
        except MemtuiError as error:
            hint = " The plan was made again; look again and repeat."
            said = f"{error}{hint if isinstance(error, Conflict) else ''}"
            self._below.toast(said, severity="error")
            if self.is_attached:
                self._read()
        else:
            self._below.post_message(PrunePlanned(None))
            if self.is_attached:
                self.dismiss(None)

    async def action_impact(self) -> None:
        """Show which of the log's last answers would differ without what is marked."""
        marked = self._review.marked
        breaks = await self._below.show_impact(marked, over=self)
        self._tried = frozenset(one.handle for one in marked), breaks or ""

    def action_merge(self) -> None:
        """Make one fact of the cluster under the cursor."""
        current = self.current
        records = self._review.cluster(current.cluster) if current is not None else []
        if len(records) < 2:
            self.toast(_NO_DUPLICATE, severity="warning")
            return
        self._below.talk(self._merge(records))

    async def _merge(self, records: Sequence[Record]) -> None:
        if await self._below.merge(records) and self.is_attached:
            self._read()

    def action_stays(self) -> None:
        """Let the duplicate under the cursor stay, and the one that was to stay go."""
        review, current = self._review, self.current
        if current is None or self._shown != "list":
            return
        instead = review.staying_for(current.name)
        if current.sort is Sort.STAYS and review.is_repeated(current.name):
            self.toast(_STAYS_ALREADY)
        elif current.name is None or instead is None:
            self.toast(_NO_DUPLICATE, severity="warning")
        elif why := review.kept(instead):
            self.toast(why, severity="warning")
        else:
            review.let_stay(current.name)
            self._draw_rows()
            key = next(one.key for one in review.lines if one.name == current.name)
            self.rows_list.go_to_key(key)

    async def action_undo(self) -> None:
        """Undo the last change, and look again once that is in the log."""
        self._undoing = True
        self._below.talk(self._below.action_undo())

    def happened(self, news: News) -> None:
        """Plan again once an undo begun here is in the log."""
        if self._undoing and any(
            one.operation_type is OperationType.UNDO for one in news.operations
        ):
            self._undoing = False
            self._read()

    def action_record(self) -> None:
        """Show the record in Records."""
        name, _ = self._at
        self.post_message(GoTo("records", binding_key=name.binding_key, select=name.record_id))

    async def action_history(self) -> None:
        """Show every version of the record."""
        from memtui.screens.timeline import timeline_of

        name, record = self._at
        await self.visit(timeline_of(self.state, name.binding_key, record))

    async def action_queries(self) -> None:
        """Offer the queries that returned the record, and go to the chosen one."""
        name, record = self._at
        await choose_reader(self, name.binding_key, record.handle)

    async def action_runs(self) -> None:
        """Show the runs to which the record was delivered."""
        from memtui.screens.runs import RunsScreen

        name, record = self._at
        record_at = (name.binding_key, record.handle, record.text)
        await self.visit(RunsScreen(self.state, record_at))

    @property
    def _at(self) -> tuple[RecordName, Record]:
        """The record under the cursor; raises `NotFound` on a line without a record."""
        current = self.current
        if current is None or current.name is None or current.record is None:
            raise NotFound(_NO_RECORD)
        return current.name, current.record

    def action_copy(self) -> None:
        """Copy the text of the record."""
        current = self.current
        if current is not None and current.sort is not Sort.GROUP:
            self.copy(current.text, "Copied the text.")

    def may_leave(self) -> bool:
        """Go back to the list; True if it is shown."""
        if self._shown != "list":
            self._turn_to(self._shown)
            return False
        return True


# What is reviewed. Both are blocking.


def context_review(found: ContextPlan) -> ReviewedPlans:
    """Review the plans for a context; tokens are counted over the whole context as one text."""

    def size_of(gone: frozenset[RecordName]) -> Size:
        context = found.without(gone)
        return Size(
            context.tokens,
            {section_word(one.kind): (one.tokens, one.budget) for one in context.sections},
        )

    parts = [PlanPart(key, plan) for key, plan in found.plans.items()]
    notes = " ".join(filter(None, (found.stuck, *found.limits)))
    return ReviewedPlans(parts, size_of, budget=found.budget, stuck=notes)


_MOST_UNASKED = 2_000
"""The most records to plan without being asked: each takes about two milliseconds."""


def figures_of(review: ReviewedPlans, found: PruneAnswer, state: AppState) -> PruneFigures:
    """Return the figures of each owner and the verdict from a review of everything. Blocking."""
    unread, now = tuple(one.binding_key for one in review.failed), state.clock()
    verdict = verdict_of(found, state.settings.context_model, now)
    return PruneFigures(state.scope.company_id, now, review.owners(), unread, verdict)


async def count_unasked(state: AppState) -> PruneFigures | None:
    """Return the prune figures of all; None: more than `_MOST_UNASKED` records, or not known."""
    session = state.session
    assert session is not None  # noqa: S101 - whoever asks looks at what it has
    one = BrowseRequest(scope=Scope(company_id=session.caller.company_id), limit=1)
    total = (await session.service.everywhere.browse(session.caller, one)).total
    if total is None or total > _MOST_UNASKED:
        return None
    found = await plan_everything(session.service, session.caller)
    return await asyncio.to_thread(lambda: figures_of(review_of(found), found, state))


def review_of(found: PruneAnswer) -> ReviewedPlans:
    """Review the plans of all bindings; tokens are the sum over their records' lines."""
    parts = [PlanPart(key, plan) for key, plan in found.plans.items()]
    limits = " ".join(found.limits)
    return ReviewedPlans(parts, failed=found.failed, insights=found.insights, stuck=limits)


# How a review reads.


def review_columns(review: Callable[[], ReviewedPlans]) -> list[Column[ReviewLine]]:
    """Return the columns of the candidates; `review` returns the current review.

    A further column has the owner, or, in a list grouped by owner, the surest reason.
    """
    whose: Column[ReviewLine] = Column("whose", "whose", _whose, 20, keep=40, tone="muted")
    reason: Column[ReviewLine] = Column(
        "reason", "reason", lambda line: line.reason, 18, keep=95, tone="muted"
    )
    return [
        Column(MARK, "", lambda line: _mark(line, review()), 3, keep=101),
        Column("tokens", "tok", _tokens, 5, "right", keep=90),
        Column("text", "what", lambda line: _text(line, review()), 24, flexible=True, keep=99,
               share=0.5),
        Column("why", "why", lambda line: line.sentence if line.sort is Sort.GOES else "", 30,
               flexible=True, keep=50, tone="muted"),
        reason if review().by_owner else whose,
    ]  # fmt: skip


def diff_columns() -> list[Column[ReviewLine]]:
    """Return the columns of the diff."""
    return [
        Column("tokens", "tok", _tokens, 5, "right", keep=90),
        Column("diff", "what goes, and what stays", _diff, 24, flexible=True, keep=100, share=0.5),
        Column("why", "why", lambda line: line.sentence, 30, flexible=True, keep=50, tone="muted"),
    ]


def group_words(line: ReviewLine, review: ReviewedPlans) -> str:
    """Return a reason or an owner with how many of its candidates are marked."""
    marked, of = review.chosen(line.group)
    return f"{line.text}, {marked:,} of {of:,} marked"


def _mark(line: ReviewLine, review: ReviewedPlans) -> Cell:
    if line.sort is Sort.STAYS:
        return Cell(" · ", "muted")
    if line.kept:
        return Cell(" – ", "muted")
    if review.is_marked(line):
        return Cell("[x]", "accent")
    if line.sort is Sort.GROUP and review.chosen(line.group)[0]:
        return Cell("[-]", "accent")
    return Cell("[ ]")


def _tokens(line: ReviewLine) -> Cell:
    return Cell(fmt.count(line.tokens), "muted" if line.sort is Sort.STAYS else "")


def _whose(line: ReviewLine) -> str:
    return owner_words(line.record.scope) if line.record is not None else ""


def _text(line: ReviewLine, review: ReviewedPlans) -> Cell:
    if line.sort is Sort.GROUP:
        return Cell(group_words(line, review), "accent")
    words = " ".join(line.text[:2_000].split())
    if line.sort is Sort.STAYS:
        return Cell(f"  stays: {words}", "muted")
    pin = "⚑ " if line.record is not None and line.record.pinned else ""
    return Cell(f"  {pin}{words}", "muted" if line.kept else "")


def _diff(line: ReviewLine) -> Cell:
    words = " ".join(line.text[:2_000].split())
    return Cell(f"- {words}", "error") if line.sort is Sort.GOES else Cell(f"  {words}", "muted")


def head_content(heading: Heading, review: ReviewedPlans, width: int) -> Content:
    """Return the owners, the number of marked records, and what removing them saves."""
    title = line("prune", display(heading.whose, limit=120, style=STRONG))
    marked, saved = len(review.going), review.saved
    if heading.doing == "looking" and not review.total:
        words = _reading(heading.unread) or "looking for what could go…"
        return line(title, display(words, style=DIM), gap="   ")
    if heading.doing == "forgetting":
        words = f"… forgetting {fmt.counted(marked, 'record')}, {fmt.counted(saved, 'token')}"
        return line(title, display(words, style=WARN), gap="   ")
    gain = display(f"saves {fmt.counted(saved, 'token')}", style=OK if saved else DIM)
    chosen = display(f"{fmt.count(marked)} marked", style=STRONG)
    shown = [spread([title, chosen, _sums(heading, review), gain], width)]
    for one in review.over_budget:
        fits, of = one.after <= one.budget, f"its budget of {fmt.count(one.budget)}"
        words = f"{one.word} {fmt.count(one.before)} → {fmt.counted(one.after, 'token')}"
        shown.append(
            display(f"{words}, within {of}", style=OK)
            if fits
            else display(f"▲ {words}, over {of}", style=WARN)
        )
    said = filter(None, (review.stuck, *(one.sentence for one in review.failed)))
    shown += [display(f"▲ {one}", style=WARN, limit=300) for one in said]
    if must_stay := review.must_stay:
        words = (
            f"▲ {fmt.count(must_stay.total())} cannot be forgotten: {' '.join(sorted(must_stay))}"
        )
        shown.append(display(words, style=WARN, limit=300))
    if lost := review.lost:
        words = f"▲ {fmt.counted(lost, 'marked record')} would go with all that say the same."
        shown.append(display(words, style=WARN))
    return lines(shown)


def _sums(heading: Heading, review: ReviewedPlans) -> Content:
    """Return the figures and, while they are not final, the bindings still being read."""
    if heading.of_context:
        before, after = fmt.counted(review.before, "token"), review.before - review.saved
        sums = f"context {before} → {fmt.count(after)}"
        if review.budget is not None:
            of = display(f", budget {fmt.count(review.budget)}")
            style = WARN if after > review.budget else OK
            return display(sums, style=style) + of + _still(heading)
    else:
        sums = f"{fmt.count(review.could)} of {fmt.counted(review.total, 'record')} could go"
    return display(sums) + _still(heading)


def _still(heading: Heading) -> Content:
    if heading.doing != "looking":
        return Content("")
    reading = _reading(heading.unread)
    to_come = f" so far, {reading}" if reading else ", still looking…"
    return display(to_come, style=WARN)


def _reading(bindings: Sequence[str]) -> str:
    """Return which bindings are still being read; empty for none."""
    if len(bindings) == 1:
        return f"reading {bindings[0]}…"
    return f"reading {len(bindings)} more bindings…" if bindings else ""


def line_content(shown: ReviewLine, review: ReviewedPlans, now: datetime, width: int) -> Content:
    """Return the details of a line of the review."""
    if shown.sort is Sort.GROUP:
        words = display(group_words(shown, review), style=STRONG)
        tokens = labelled("tokens", f"{fmt.count(shown.tokens)} in all")
        how = "space marks all records of the group, or none; pinned ones are marked one by one."
        return joined([[words], [tokens], [display(how, style=DIM)]], width)
    about = [labelled("why", display(shown.sentence, limit=1_000))]
    if shown.kept:
        about.append(labelled("stays", display(shown.kept, limit=300, style=WARN)))
    about.append(labelled("tokens", fmt.count(shown.tokens)))
    if (record := shown.record) is not None and shown.name is not None:
        about.append(labelled("whose", display(owner_words(record.scope), limit=200)))
        about.append(labelled("binding", display(shown.name.binding_key, limit=200)))
        about.append(labelled("kind", display(record.kind, limit=100)))
        made = f"{fmt.since(record.created_at, now)} by {by_words(record.created_by)}"
        about.append(labelled("added", display(made, limit=200)))
        if record.pinned:
            about.append(labelled("pinned", "⚑ yes, so it is never suggested"))
    return joined([[display(shown.text, keep_newlines=True)], about], width)
