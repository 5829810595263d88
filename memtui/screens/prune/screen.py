"""The review: candidates by reason, what the marked ones save, and the yes that lets them go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from memtui.context.assembly import ContextSection, assemble, section_of_records
from memtui.context.cost import TokenCounter
from memtui.contract import Conflict, Invalid, MemtuiError, RecordHandle
from memtui.pruning.plan import PruneRules
from memtui.screens.budget.view import BudgetView
from memtui.screens.dialogs.confirm import Confirm
from memtui.screens.dialogs.prompt import Prompt
from memtui.screens.dialogs.sheet import Sheet
from memtui.screens.facts.edits import FactEdits
from memtui.screens.help import group_help
from memtui.screens.keymap import footer_entries
from memtui.screens.prune.columns import diff_columns, review_columns
from memtui.screens.prune.contents import State, head_content, line_content
from memtui.screens.prune.review import Line, Part, Review, Sort
from memtui.widgets import format as fmt
from memtui.widgets.background import Background
from memtui.widgets.columns import Column
from memtui.widgets.display import toast
from memtui.widgets.frame import KeyFooter
from memtui.widgets.keys import bindings_for
from memtui.widgets.panes import DetailPane
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import Highlighted, Opened, VirtualList

if TYPE_CHECKING:
    from memtui.screens.state import AppState


_BUSY: dict[State, str] = {
    "looking": "What could go is still being looked for.",
    "forgetting": "The facts are being forgotten.",
}


class PruneReview(ModalScreen[None]):
    """Review what could go from the places of a context; nothing goes without a yes."""

    ACTION_GROUP = "prune"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("prune")
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]

    def __init__(
        self,
        state: AppState,
        view: BudgetView,
        edits: FactEdits,
        refusal: Callable[[str], str],
    ) -> None:
        super().__init__()
        self._state = state
        self._places = view.places
        self._model = view.model
        self._answer = view.answer
        self._edits = edits
        self._refusal = refusal
        self._rules = PruneRules(max_characters=state.fact_max_chars or PruneRules().max_characters)
        self._review = Review()
        self._phase: State = "looking"
        self._rows: AppendedRows[Line] = AppendedRows(lambda row: row.key)
        self._changed: AppendedRows[Line] = AppendedRows(lambda row: row.key)
        self._reading = Background(self, "prune-plan")
        self._comparing = Background(self, "prune-diff")

    def compose(self) -> ComposeResult:
        """Lay out the sums, the candidates or the diff, one candidate, and the keys."""
        with Vertical(id="prune"):
            yield Static(id="prune-head")
            with Container(id="prune-split"):
                with Vertical(id="prune-lists"):
                    yield VirtualList(self._columns(), self._rows, name="prune-list")
                    yield VirtualList(diff_columns(), self._changed, name="prune-diff")
                with DetailPane(id="prune-detail"):
                    yield Static(id="prune-words")
            yield KeyFooter(id="prune-footer")

    def on_mount(self) -> None:
        """Look for candidates."""
        self._diff.display = False
        self._diff.notice = ("Nothing is marked.", "t goes back, space marks.")
        self._list.focus()
        self._read()

    def _columns(self) -> list[Column[Line]]:
        return review_columns(lambda: self._review)

    @property
    def _list(self) -> VirtualList[Line]:
        found: VirtualList[Line] = self.query_one("#prune-list", VirtualList)
        return found

    @property
    def _diff(self) -> VirtualList[Line]:
        found: VirtualList[Line] = self.query_one("#prune-diff", VirtualList)
        return found

    @property
    def _shown(self) -> VirtualList[Line]:
        return self._diff if self._diff.display else self._list

    # Reading.

    def _read(self, keep: Review | None = None) -> None:
        session = self._state.session
        if session is None:
            return
        self._phase = "looking"
        self._list.notice = ("Looking for what could go …",)
        self._draw()

        from memtui.service.context import PruneRequest

        async def plan() -> Review:
            parts = []
            for place in self._places:
                request = PruneRequest(
                    scope=place.scope,
                    rules=self._rules,
                    model=self._model,
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
        counter, now = TokenCounter(self._model), self._state.clock()
        reviewed = {part.place.section for part in parts}
        others = [
            ContextSection(kind=one.kind, title=one.title, budget=one.budget, facts=one.facts)
            for one in (self._answer.sections if self._answer else ())
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
        self._phase = ""
        self._list.notice = (
            "Nothing could go.",
            "Every fact says something of its own, and is read. esc goes back.",
        )
        self._show(review)

    def _failed(self, error: MemtuiError) -> None:
        self._phase = ""
        self._list.notice = (f"✗ {error}", "esc goes back.")
        self._show(Review())

    # Drawing.

    def _show(self, review: Review) -> None:
        self._review = review
        self._rows.replace(review.lines)
        self._list.show(self._rows)
        self._marks_changed()

    def _marks_changed(self) -> None:
        self._list.refresh()
        self._draw()
        if self._diff.display:
            self._compare()

    def _compare(self) -> None:
        """Make the diff of what is marked now."""

        def show(rows: list[Line]) -> None:
            self._changed.replace(rows)
            self._diff.show(self._changed)

        review = self._review
        self._comparing.latest(lambda: asyncio.to_thread(review.diff), show, self._failed)

    def _draw(self) -> None:
        head = head_content(self._places, self._review, self._phase)
        self.query_one("#prune-head", Static).update(head)
        self._draw_line()
        chosen = len(self._review.marks)
        labels = {
            "prune.apply": f"forget {fmt.count(chosen)}…" if chosen else "forget…",
            "prune.diff": "list" if self._diff.display else "diff",
        }
        self.query_one(KeyFooter).entries = footer_entries(
            "prune", self._state.keymap, self.why_disabled, labels
        )

    def _draw_line(self) -> None:
        width = self.query_one("#prune-detail", DetailPane).content_size.width
        content = line_content(self._shown.current, self._review, self._state.clock(), width)
        self.query_one("#prune-words", Static).update(content)

    def why_disabled(self, action_id: str) -> str:
        """Return why an action of the review cannot run now, or nothing."""
        group, _, verb = action_id.partition(".")
        if group != self.ACTION_GROUP or verb in {"leave", "help"}:
            return ""
        if self._phase:
            return _BUSY[self._phase]
        if verb == "apply" and not self._review.marks:
            return "Nothing is marked."
        return self._refusal(action_id)

    @on(Highlighted)
    def _moved(self) -> None:
        self._draw_line()

    @on(Opened)
    def _opened(self) -> None:
        self.action_turn()

    def on_resize(self) -> None:
        """Lay out the detail again for another width."""
        self.call_after_refresh(self._draw)

    async def on_key_footer_pressed(self, message: KeyFooter.Pressed) -> None:
        """Carry out what was clicked in the footer."""
        message.stop()
        await self.run_action(message.action_id.partition(".")[2])

    # Keys.

    def action_turn(self) -> None:
        """Mark or unmark the candidate, or all of its reason, and go on to the next."""
        current = self._list.current
        if self._diff.display or current is None:
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
        self._diff.display = not self._diff.display
        self._list.display = not self._diff.display
        self._shown.focus()
        self._marks_changed()

    def action_stale(self) -> None:
        """Ask after how many days without a reading a fact is stale."""
        value = str(self._rules.stale_days)
        prompt = Prompt("Stale after how many days without being read?", value=value, check=_days)

        def answered(text: str | None) -> None:
            if text is not None:
                self._rules = self._rules.model_copy(update={"stale_days": _days(text)})
                self._read(self._review)

        self.app.push_screen(prompt, answered)

    def action_apply(self) -> None:
        """Forget what is marked, after a yes that names the count and the tokens."""
        records = self._review.marked
        saved = self._review.saved
        where = self._edits.changes.where(records)
        facts, tokens = fmt.counted(len(records), "fact"), fmt.counted(saved, "token")
        question = Confirm(
            f"Forget {facts}, {tokens}, from {where}?", verb="forget", detail="u brings them back."
        )
        self.app.push_screen(question, self._apply)

    def _apply(self, yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
        if not yes:
            return
        saved = self._review.saved
        self._phase = "forgetting"
        self._draw()
        self._edits.forget_now(
            self._review.marked,
            f", saved {fmt.counted(saved, 'token')}",
            self._leave,
            self._not_applied,
        )

    def _not_applied(self, error: MemtuiError) -> None:
        hint = " The plan was made again; look again and repeat."
        toast(self.app, f"{error}{hint if isinstance(error, Conflict) else ''}", severity="error")
        if self.is_attached:
            self._read(self._review)

    def action_merge(self) -> None:
        """Make one fact of the cluster under the cursor."""
        current = self._list.current
        records = self._review.cluster(current.cluster) if current is not None else []
        if len(records) < 2:
            toast(self, "Nothing else says the same; go to a duplicate.", severity="warning")
            return
        self._edits.merge_records(records, partial(self._read, self._review))

    def action_copy(self) -> None:
        """Copy the text of the fact."""
        current = self._shown.current
        if current is not None and current.sort is not Sort.REASON:
            self.app.copy_to_clipboard(current.text.encode("utf-8", "replace").decode("utf-8"))
            toast(self, "Copied the fact.")

    def action_help(self) -> None:
        """Show every key of the review."""
        content = group_help(("prune", "list"), self._state.keymap, self.why_disabled)
        self.app.push_screen(Sheet("Keys", content))

    def _leave(self) -> None:
        if self.is_attached:
            self.dismiss(None)

    def action_leave(self) -> None:
        """Go back, from the diff to the list first; a forget under way goes on."""
        if self._diff.display:
            self.action_diff()
        else:
            self._leave()


def _days(text: str) -> int:
    written = text.strip()
    if not written.isascii() or not written.isdigit() or not 0 < int(written[:6]) <= 36_500:
        raise Invalid(f"{written!r} is no number of days; give 1 to 36500.")
    return int(written)
