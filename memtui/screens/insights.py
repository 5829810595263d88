"""The insights into each owner's memories, a modal screen (seed 004 phase 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from memtui.contract import MemtuiError, owner_of, owner_scope, owner_words
from memtui.presenters import format as fmt
from memtui.screens.modal import ModalListScreen
from memtui.screens.state import AppState, GoTo
from memtui.widgets.columns import Column
from memtui.widgets.detail_lines import joined, labelled
from memtui.widgets.display import DIM, STRONG, WARN, display, line, lines

if TYPE_CHECKING:
    from memtui.pruning.insights import Insight


class Insights(ModalListScreen["Insight"]):
    """Lists memories not updated, not read, or growing; `enter` reviews their prune candidates."""

    ACTION_GROUP = "insights"
    NOUN = "insight"
    READING = "Looking through all bindings …"
    NOTHING = ("Nothing shows here.", "esc goes back, s widens the scope.")
    AGAIN = "r looks again, esc goes back."

    def __init__(self, state: AppState, known: Sequence[Insight] | None = None) -> None:
        """Prepare the list; `known`: the insights of everything, where they were found already."""
        super().__init__(state)
        self._known = known
        """Shown by the first read; later ones look again."""
        self._everything = known is not None
        self._failed: tuple[str, ...] = ()
        """Sentences about bindings that could not be read."""

    def columns(self) -> list[Column[Insight]]:
        """Return the columns of the list."""
        return [
            Column("kind", "what", lambda one: one.kind.replace("_", " "), 12, keep=90,
                   tone="muted"),
            Column("tokens", "tok", lambda one: fmt.count(one.tokens), 6, "right", keep=80),
            Column("text", "what shows", lambda one: one.sentence, 40, flexible=True, keep=100),
        ]  # fmt: skip

    def key(self, row: Insight) -> str:
        """Return kind, owner and topic of an insight."""
        return "\x1f".join([row.kind, *owner_of(row.scope), row.topic or ""])

    def draw_head(self) -> Content:
        """Return the owner, the number of insights, and bindings not read."""
        count = self.rows.loaded
        title = line("insights into", display(self._whose, limit=120, style=STRONG))
        number = display(f"{fmt.count(count)} found", style=DIM) if count else None
        said = [display(f"▲ {one}", limit=300, style=WARN) for one in self._failed]
        return lines([line(title, number, gap="   "), *said])

    @property
    def _whose(self) -> str:
        return "everything you see" if self._is_whole else owner_words(self.state.record_scope)

    @property
    def _is_whole(self) -> bool:
        return self._everything or owner_of(self.state.record_scope)[0] == "company_id"

    def detail(self, row: Insight, width: int) -> Content:
        """Return the details of an insight."""
        of = f"{row.records:,} of {fmt.counted(row.of, 'record')}"
        return joined([[display(row.sentence)], [labelled("records", of)]], width)

    async def read(self) -> list[Insight]:
        """Read all bindings, and keep the insights into the shown owner."""
        from memtui.service.usecases.pruning import plan_everything

        known, self._known = self._known, None
        if known is not None:
            return list(known)
        answer = await plan_everything(self.service, self.caller)
        self._failed = tuple(one.sentence for one in answer.failed)
        owner = owner_of(self.state.record_scope)
        return [one for one in answer.insights if self._is_whole or owner_of(one.scope) == owner]

    def not_read(self, error: MemtuiError) -> None:
        """Show the error."""
        self._failed = ()
        super().not_read(error)

    def open_row(self) -> None:
        """Review the owner's prune candidates."""
        self.action_prune()

    def action_prune(self) -> None:
        """Review the owner's prune candidates in Records."""
        self._go_to(then="records.prune")

    def action_records(self) -> None:
        """Show the owner's records."""
        self._go_to(then="")

    def _go_to(self, *, then: str) -> None:
        scope = owner_scope(self.row.scope)
        self.post_message(GoTo("records", filter_line="", scope=scope, everywhere=True, then=then))

    def action_copy(self) -> None:
        """Copy the insight's sentence."""
        self.copy(self.row.sentence, "Copied what shows.")
