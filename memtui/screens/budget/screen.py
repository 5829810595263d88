"""The screen of the budget: what a person can do to what the model sees."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.binding import BindingType

from memtui.contract import Invalid, NotFound, Unsupported
from memtui.screens.budget.body import BudgetBody
from memtui.screens.budget.charts_sheet import ChartsSheet
from memtui.screens.budget.files import files_content
from memtui.screens.budget.models import model_choices, offered_model
from memtui.screens.budget.view import doubts_content, share_content
from memtui.screens.dialogs.choose import Choose
from memtui.screens.dialogs.prompt import Prompt
from memtui.screens.dialogs.sheet import Sheet
from memtui.screens.facts.rows import FactRow
from memtui.screens.marking import Marking
from memtui.screens.state import GoTo
from memtui.widgets import format as fmt
from memtui.widgets.keys import bindings_for


class BudgetScreen(BudgetBody, Marking):
    """What the model sees before a run, and what that costs."""

    MODE = "budget"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("budget")

    @property
    def _row(self) -> FactRow:
        current = self._list.current
        if current is None or current.handle is None:
            raise NotFound("No fact is selected.")
        return current

    @property
    def _place(self) -> int:
        """Which place the cursor is in; the first without a fact."""
        row = self._list.current
        place = self._feed.place_of(row) if row is not None else None
        return self.view.places.index(place) if place in self.view.places else 0

    # The list.

    def action_back(self) -> None:
        """Go back to the list; there, take away the range, else all marks."""
        if self.view.raw:
            self.action_text()
            return
        if self._list.has_focus:
            self._list.action_unmark()
        self.query_one("#budget-split").remove_class("-opened")
        self.focus_body()

    def action_text(self) -> None:
        """Show the text as the model sees it, or the list of its facts."""
        self.view = replace(self.view, raw=not self.view.raw)
        self.query_one("#budget-text" if self.view.raw else "#fact-list").focus()

    # Changing facts.

    def action_add(self) -> None:
        """Write a new fact."""
        self._edits.add(self.view.places, self._place, self.state.fact_max_chars)

    def action_edit(self) -> None:
        """Edit the fact in place."""
        self._edits.edit(self._row)

    def action_edit_external(self) -> None:
        """Edit the fact in the person's editor."""
        self._edits.edit(self._row, external=True)

    def action_forget(self) -> None:
        """Forget the marked facts, else the one under the cursor."""
        self._edits.forget(self._list.chosen)

    def action_undo(self) -> None:
        """Take the last change back."""
        self._edits.changes.undo()

    def action_pin(self) -> None:
        """Pin or unpin the fact."""
        self._need("pin", "pin a fact")
        self._edits.pin(self._row)

    def action_expire(self) -> None:
        """Let the fact expire."""
        self._need("expiry", "let a fact expire")
        self._edits.expire(self._row)

    def action_merge(self) -> None:
        """Make one fact of the marked ones."""
        self._edits.merge(self._list.chosen)

    def action_clear(self) -> None:
        """Forget all facts of the place that the cursor is in."""
        self._edits.clear(self.view.places[self._place])

    def _need(self, capability: str, what: str) -> None:
        place = self._feed.place_of(self._row)
        binding = self._binding_of(place)
        if binding is not None and not getattr(binding.capabilities, capability):
            raise Unsupported(f"The provider of {binding.key} cannot {what}.")

    def action_prune(self) -> None:
        """Review which facts could go."""
        from memtui.screens.prune import PruneReview

        review = PruneReview(self.state, self.view, self._edits, self.why_disabled)
        self.app.push_screen(review)

    # Looking.

    def action_model(self) -> None:
        """Choose the model to count and price for."""
        used = dict.fromkeys((self.view.model, self.state.context_model))
        chooser: Choose[str] = Choose(
            "Count and price for which model?",
            lambda: model_choices(used),
            placeholder="type a model's name",
            offer=offered_model,
        )
        self.app.push_screen(chooser, self._use_model)

    def _use_model(self, model: str | None) -> None:
        if model is not None:
            self.view = replace(self.view, model=model)
            self.reload()

    def action_budget(self) -> None:
        """Set the token budget to look against."""
        prompt = Prompt("Budget in tokens", value=str(self.view.budget), check=_budget)
        self.app.push_screen(prompt, self._use_budget)

    def _use_budget(self, text: str | None) -> None:
        if text is not None:
            self.view = replace(self.view, budget=_budget(text))
            self.reload()

    def action_whole(self) -> None:
        """Show the memory's share of a whole prompt."""
        content = share_content(self._answer.share)
        self.app.push_screen(Sheet("The memory in a whole prompt", content))

    def action_left_out(self) -> None:
        """Show every warning, and what was left out."""
        self.app.push_screen(Sheet("Warnings and left out", doubts_content(self._answer)))

    def action_charts(self) -> None:
        """Show the charts large."""
        if self._timeline is None:
            self.toast("The charts are still being drawn.", severity="warning")
        else:
            self.app.push_screen(ChartsSheet(self._timeline, self.view.budget))

    def action_files(self) -> None:
        """Show the commands that export and import facts."""
        self.app.push_screen(Sheet("Facts as files", files_content(self.view.places)))

    def action_record(self) -> None:
        """Show the fact in Records."""
        row = self._row
        place = self._feed.place_of(row)
        if place is not None and row.handle is not None:
            record_id = row.handle.provider_record_id
            self.post_message(GoTo("records", binding_key=place.binding_key, select=record_id))

    def action_copy(self) -> None:
        """Copy the text of the fact."""
        self.copy(self._row.text, "Copied the fact.")

    def action_copy_text(self) -> None:
        """Copy the text that the model sees."""
        text = self._answer.text
        self.copy(text, f"Copied what the model sees, {fmt.counted(len(text), 'character')}.")


def _budget(text: str) -> int:
    """Return a budget as a person writes it: `500`, `1,000`."""
    digits = text.strip().replace(",", "").replace("_", "")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 9:
        raise Invalid(f"{text.strip()!r} is no budget; give a number of tokens, such as 500.")
    return int(digits)
