"""The review of what could be pruned: candidates by reason, what they save, and the yes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Literal

from textual import on
from textual.binding import BindingType
from textual.content import Content

from memtui.context.assembly import ContextSection, assemble, section_of_records
from memtui.context.cost import TokenCounter
from memtui.contract import Conflict, Invalid, MemtuiError, Record, RecordHandle
from memtui.pruning.plan import PruneRules
from memtui.screens.base import conversation
from memtui.screens.budget.facts import Place, by_words
from memtui.screens.dialogs import Confirm, Prompt
from memtui.screens.modal import ModalListScreen
from memtui.screens.prune.review import Line, Part, Review, Sort
from memtui.widgets import format as fmt
from memtui.widgets.background import Background
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import joined, labelled
from memtui.widgets.display import DIM, OK, STRONG, WARN, display, line, lines
from memtui.widgets.keys import bindings_for
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import Opened, VirtualList

if TYPE_CHECKING:
    from memtui.screens.budget.screen import BudgetScreen

State = Literal["", "looking", "forgetting"]
"""What the review is doing; nothing while it waits for the person."""
_BUSY: dict[State, str] = {
    "looking": "What could go is still being looked for.",
    "forgetting": "The facts are being forgotten.",
}


class PruneReview(ModalListScreen):
    """Review what could go from the places of a context; nothing goes without a yes."""

    ACTION_GROUP = "prune"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("prune")
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]

    def __init__(self, budget: BudgetScreen) -> None:
        super().__init__(budget.state)
        self._budget = budget
        self._view = budget.view
        self._rules = PruneRules(
            max_characters=self.state.settings.fact_max_chars or PruneRules().max_characters
        )
        self._review = Review()
        self._doing: State = "looking"
        self._nothing: tuple[str, ...] = ("Looking for what could go …",)
        self._candidates: AppendedRows[Line] = AppendedRows(lambda row: row.key)
        self._changes: AppendedRows[Line] = AppendedRows(lambda row: row.key)
        self._diff_shown = False
        self._left_at = ""
        """Where the cursor was in the list while the diff is shown."""
        self._reading = Background(self, "prune-plan")
        self._comparing = Background(self, "prune-diff")

    def make_list(self) -> VirtualList[Line]:
        """Return the list, which shows the candidates or the diff."""
        columns = review_columns(lambda: self._review)
        return VirtualList(columns, self._candidates, name="prune-list")

    @property
    def _list(self) -> VirtualList[Line]:
        return self.query_one(VirtualList)

    def on_mount(self) -> None:
        """Look for candidates."""
        self._read()

    # Reading.

    def _read(self, keep: Review | None = None) -> None:
        """Plan; of another review the marks are kept where a fact is as it was."""
        from memtui.service.context import PruneRequest

        session = self.session
        self._doing = "looking"
        self._nothing = ("Looking for what could go …",)
        self._show_list()

        async def plan() -> Review:
            parts = []
            for place in self._view.places:
                request = PruneRequest(
                    scope=place.scope,
                    rules=self._rules,
                    model=self._view.model,
                    binding_key=place.binding_key,
                )
                answer = await session.service.prune_plan(session.caller, request)
                parts.append(Part(place, answer.plan))
            review = await asyncio.to_thread(self._review_of, parts)
            if keep is not None:
                review.mark_as(keep.marked)
            return review

        self._reading.latest(plan, self._planned, self._failed)

    def _review_of(self, parts: Sequence[Part]) -> Review:
        """Review the plans; what is no fact of them stays in the context as it was. Blocking."""
        counter, now = TokenCounter(self._view.model), self.state.clock()
        reviewed = {part.place.section for part in parts}
        others = [
            ContextSection(kind=one.kind, facts=one.facts)
            for one in (self._view.answer.sections if self._view.answer else ())
            if one.kind not in reviewed
        ]

        def size_of(gone: frozenset[RecordHandle]) -> int:
            kept = [
                section_of_records(
                    part.place.section,
                    [one.record for one in part.plan.items if one.record.handle not in gone],
                    now=now,
                )
                for part in parts
            ]
            return assemble([*others, *kept], counter=counter).tokens

        return Review(parts, size_of)

    def _planned(self, review: Review) -> None:
        self._show(
            review,
            "Nothing could go.",
            "Every fact says something of its own, and is read. esc goes back.",
        )

    def _failed(self, error: MemtuiError) -> None:
        self._show(Review(), f"✗ {error}", "esc goes back.")

    # Drawing.

    def _show(self, review: Review, *nothing: str) -> None:
        self._doing, self._nothing = "", nothing
        self._review = review
        self._candidates.replace(review.lines)
        if not self._diff_shown:
            self._show_list()
        self._marks_changed()

    def _marks_changed(self) -> None:
        if self._diff_shown:
            self._compare()
        self._list.refresh()
        self.draw()

    def _show_list(self) -> None:
        shown = self._list
        shown.notice = self._nothing
        shown.show(self._candidates)

    def _compare(self) -> None:
        """Make the diff of what is marked now."""

        def show(rows: list[Line]) -> None:
            self._changes.replace(rows)
            if self._diff_shown:
                self._list.show(self._changes)

        review = self._review
        self._comparing.latest(lambda: asyncio.to_thread(review.diff), show, self._failed)

    def draw_head(self, width: int) -> Content:
        """Return whose facts are reviewed, how many are marked and what that saves."""
        del width
        return head_content(self._view.places, self._review, self._doing)

    def draw_row(self, width: int) -> Content:
        """Return the line under the cursor whole."""
        return line_content(self._list.current, self._review, self.state.clock(), width)

    def labels(self) -> dict[str, str]:
        """Return how many would be forgotten, and what `t` shows."""
        chosen = len(self._review.marks)
        return {
            "prune.apply": f"forget {fmt.count(chosen)}…" if chosen else "forget…",
            "prune.diff": "list" if self._diff_shown else "diff",
        }

    def refusal(self, verb: str) -> str:
        """Return why an action cannot run now; what the Budget screen refuses is refused here."""
        if verb in {"leave", "help"}:
            return ""
        if self._doing:
            return _BUSY[self._doing]
        if verb == "apply" and not self._review.marks:
            return "Nothing is marked."
        return self._budget.why_disabled(f"prune.{verb}")

    @on(Opened)
    def _chosen(self, event: Opened) -> None:
        event.prevent_default()  # the frame would go into the details
        self.action_turn()

    # Marking.

    def action_turn(self) -> None:
        """Mark or unmark the candidate, or all of its reason, and go on to the next."""
        current = self._list.current
        if self._diff_shown or current is None:
            return
        self._review.turn(current)
        self._marks_changed()
        if current.sort is not Sort.REASON:
            self._list.move(1)

    def action_all(self) -> None:
        """Mark everything that is not pinned."""
        self._review.mark_all()
        self._marks_changed()

    def action_none(self) -> None:
        """Take all marks away."""
        self._review.mark_none()
        self._marks_changed()

    def action_suggested(self) -> None:
        """Mark again what was suggested."""
        self._review.mark_suggested()
        self._marks_changed()

    def action_diff(self) -> None:
        """Show the diff, or the list."""
        shown, current = self._list, self._list.current
        self._diff_shown = not self._diff_shown
        if self._diff_shown:
            self._left_at = current.key if current else ""
            shown.columns = tuple(diff_columns())
            shown.notice = ("Nothing is marked.", "t goes back, space marks.")
            self._changes.replace([])
            shown.show(self._changes)
            shown.go_to(0)
        else:
            shown.columns = tuple(review_columns(lambda: self._review))
            self._show_list()
            shown.go_to_key(self._left_at)
        self._marks_changed()

    # Acting.

    @conversation
    async def action_stale(self) -> None:
        """Ask after how many days without a reading a fact is stale."""
        value = str(self._rules.stale_days)
        title = "Stale after how many days without being read?"
        if (text := await self.ask(Prompt(title, value=value, check=_days))) is not None:
            self._rules = self._rules.model_copy(update={"stale_days": _days(text)})
            self._read(self._review)

    @conversation
    async def action_apply(self) -> None:
        """Forget what is marked, after a yes that names the count and the tokens."""
        records, saved = self._review.marked, self._review.saved
        facts, tokens = fmt.counted(len(records), "fact"), fmt.counted(saved, "token")
        question = f"Forget {facts}, {tokens}, from {self._budget.where(records)}?"
        if not await self.ask(Confirm(question, verb="forget", detail="u brings them back.")):
            return
        self._doing = "forgetting"
        self.draw()
        # It goes on where this review is left meanwhile.
        self._budget.talk(self._forget(records, f", saved {tokens}"))

    async def _forget(self, records: Sequence[Record], saved: str) -> None:
        try:
            await self._budget.forget_now(records, saved)
        except MemtuiError as error:
            hint = " The plan was made again; look again and repeat."
            said = f"{error}{hint if isinstance(error, Conflict) else ''}"
            self._budget.toast(said, severity="error")
            if self.is_attached:
                self._read(self._review)
        else:
            self._leave()

    def action_merge(self) -> None:
        """Make one fact of the cluster under the cursor."""
        current = self._list.current
        records = self._review.cluster(current.cluster) if current is not None else []
        if len(records) < 2:
            self.toast("Nothing else says the same; go to a duplicate.", severity="warning")
            return
        self._budget.talk(self._merge(records))

    async def _merge(self, records: Sequence[Record]) -> None:
        if await self._budget.merge(records) and self.is_attached:
            self._read(self._review)

    def action_copy(self) -> None:
        """Copy the text of the fact."""
        current = self._list.current
        if current is not None and current.sort is not Sort.REASON:
            self.copy(current.text, "Copied the fact.")

    def _leave(self) -> None:
        if self.is_attached:
            self.dismiss(None)

    def may_leave(self) -> bool:
        """Go back from the diff to the list first; a forget under way goes on."""
        if self._diff_shown:
            self.action_diff()
            return False
        return True


# How a review reads.


def review_columns(review: Callable[[], Review]) -> list[Column[Line]]:
    """Return the columns of the candidates, marked as in the review there is now."""
    return [
        Column("mark", "", lambda line: _mark(line, review()), 3, keep=100),
        Column("tokens", "tok", _tokens, 5, "right", keep=90),
        Column("text", "fact", lambda line: _text(line, review()), 24, flexible=True, keep=99,
               share=0.5),
        Column("why", "why", lambda line: line.sentence if line.sort is Sort.GOES else "", 30,
               flexible=True, keep=50, tone="muted"),
    ]  # fmt: skip


def diff_columns() -> list[Column[Line]]:
    """Return the columns of the diff."""
    return [
        Column("tokens", "tok", _tokens, 5, "right", keep=90),
        Column("diff", "what goes, and what stays", _diff, 24, flexible=True, keep=100, share=0.5),
        Column("why", "why", lambda line: line.sentence, 30, flexible=True, keep=50, tone="muted"),
    ]


def reason_words(line: Line, review: Review) -> str:
    """Return a reason with how many of its candidates are marked."""
    marked, of = review.chosen(line.reason)
    return f"{line.text}, {marked:,} of {of:,} marked"


def _mark(line: Line, review: Review) -> Cell:
    if line.sort is Sort.STAYS:
        return Cell(" · ", "muted")
    if review.is_marked(line):
        return Cell("[x]", "accent")
    if line.sort is Sort.REASON and review.chosen(line.reason)[0]:
        return Cell("[-]", "accent")
    return Cell("[ ]")


def _tokens(line: Line) -> Cell:
    return Cell(fmt.count(line.tokens), "muted" if line.sort is Sort.STAYS else "")


def _text(line: Line, review: Review) -> Cell:
    if line.sort is Sort.REASON:
        return Cell(reason_words(line, review), "accent")
    words = " ".join(line.text[:2_000].split())
    if line.sort is Sort.STAYS:
        return Cell(f"  stays: {words}", "muted")
    pin = "⚑ " if line.record is not None and line.record.pinned else ""
    return Cell(f"  {pin}{words}")


def _diff(line: Line) -> Cell:
    words = " ".join(line.text[:2_000].split())
    return Cell(f"- {words}", "error") if line.sort is Sort.GOES else Cell(f"  {words}", "muted")


def head_content(places: Sequence[Place], review: Review, doing: State) -> Content:
    """Return whose facts are reviewed, how many are marked and what that saves."""
    whose = " and ".join(place.label for place in places)
    title = line("prune", display(whose, limit=120, style=STRONG))
    if doing == "looking":
        return line(title, display("looking for what could go …", style=DIM), gap="   ")
    marked, saved = len(review.marks), review.saved
    if doing == "forgetting":
        words = f"… forgetting {fmt.counted(marked, 'fact')}, {fmt.counted(saved, 'token')}"
        return line(title, display(words, style=WARN), gap="   ")
    sums = f"context {fmt.counted(review.before, 'token')} → {fmt.count(review.before - saved)}"
    gain = display(f"saves {fmt.count(saved)}", style=OK if saved else DIM)
    chosen = display(f"{fmt.count(marked)} marked", style=STRONG)
    head = line(title, chosen, display(sums), gain, gap="   ")
    if not (lost := review.lost):
        return head
    words = f"▲ {fmt.counted(lost, 'marked fact')} would go with all that say the same."
    return lines([head, display(words, style=WARN)])


def line_content(shown: Line | None, review: Review, now: datetime, width: int) -> Content:
    """Return a line of the review whole."""
    if shown is None:
        return Content("")
    if shown.sort is Sort.REASON:
        words = display(reason_words(shown, review), style=STRONG)
        how = "space marks all of it, or none; pinned facts are only marked one by one."
        return joined([[words], [display(how, style=DIM)]], width)
    about = [labelled("why", display(shown.sentence, limit=1_000))]
    about.append(labelled("tokens", fmt.count(shown.tokens)))
    if (record := shown.record) is not None:
        made = f"{fmt.since(record.created_at, now)} by {by_words(record.created_by)}"
        about.append(labelled("added", display(made, limit=200)))
        if record.pinned:
            about.append(labelled("pinned", "⚑ yes, so it is never suggested"))
    return joined([[display(shown.text, keep_newlines=True)], about], width)


def _days(text: str) -> int:
    written = text.strip()
    if not written.isascii() or not written.isdigit() or not 0 < int(written[:6]) <= 36_500:
        raise Invalid(f"{written!r} is no number of days; give 1 to 36500.")
    return int(written)
