"""What shows over the memories of each owner, over a numbered screen: seed 004 phase 3."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import BindingType
from textual.content import Content

from memtui.contract import MemtuiError, Scope, owner_of, owner_scope, owner_words
from memtui.screens.modal import ModalListScreen
from memtui.screens.state import GoTo
from memtui.widgets import format as fmt
from memtui.widgets.columns import Column
from memtui.widgets.detail_lines import joined, labelled
from memtui.widgets.display import DIM, STRONG, WARN, display, line, lines
from memtui.widgets.keys import bindings_for
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import Opened, VirtualList

if TYPE_CHECKING:
    from memtui.pruning.insights import Insight
    from memtui.screens.state import AppState
    from memtui.service.context.pruning import PruneEverywhere


class Insights(ModalListScreen["Insight"]):
    """List what nobody updates or reads and what grows fastest; `enter` reviews what could go."""

    ACTION_GROUP = "insights"
    NOUN = "insight"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("insights")

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self._rows: AppendedRows[Insight] = AppendedRows(
            lambda one: "\x1f".join([one.kind, *owner_of(one.scope), one.topic or ""])
        )
        self._failed: tuple[str, ...] = ()
        """Which bindings were not looked through, and why."""

    def make_list(self) -> VirtualList[Insight]:
        """Return the list."""
        return VirtualList(
            [
                Column("kind", "what", lambda one: one.kind.replace("_", " "), 12, keep=90,
                       tone="muted"),
                Column("tokens", "tok", lambda one: fmt.count(one.tokens), 6, "right", keep=80),
                Column("text", "what shows", lambda one: one.sentence, 40, flexible=True, keep=100),
            ],
            self._rows,
            name="insight-list",
        )  # fmt: skip

    def draw_head(self, width: int) -> Content:
        """Return whose memories these are of, and how many show something."""
        del width
        count = self._rows.loaded
        title = line("insights into", display(self._whose, limit=120, style=STRONG))
        number = display(f"{fmt.count(count)} found", style=DIM) if count else None
        said = [display(f"▲ {one}", limit=300, style=WARN) for one in self._failed]
        return lines([line(title, number, gap="   "), *said])

    @property
    def _whose(self) -> str:
        scope = self.state.record_scope
        whole = owner_of(scope)[0] == "company_id"
        return "everything you see" if whole else owner_words(scope)

    def draw_row(self, width: int) -> Content:
        """Return the insight under the cursor whole."""
        one = self.rows_list.current
        if one is None:
            return Content("")
        of = f"{one.records:,} of {fmt.counted(one.of, 'record')}"
        return joined([[display(one.sentence)], [labelled("records", of)]], width)

    def refusal(self, verb: str) -> str:
        """Return why an action cannot run now."""
        needs_row = verb in {"prune", "records", "copy"}
        return self.none_selected if needs_row and self.rows_list.current is None else ""

    def on_mount(self) -> None:
        """Look through everything."""
        self.action_read()

    def action_read(self) -> None:
        """Look again."""
        from memtui.service.context.pruning import PruneRequest

        session = self.session
        request = PruneRequest(
            scope=Scope(company_id=session.caller.company_id),
            kind=None,
            model=self.state.settings.context_model,
        )
        self.rows_list.notice = ("Looking through all bindings …", "esc goes back.")
        self.draw()
        self.reads.latest(
            lambda: session.service.pruning.everything(session.caller, request),
            self._show,
            self._not_read,
        )

    def _show(self, answer: PruneEverywhere) -> None:
        owner = owner_of(self.state.record_scope)
        found = [
            one
            for one in answer.insights
            if owner[0] == "company_id" or owner_of(one.scope) == owner
        ]
        self._failed = tuple(one.sentence for one in answer.failed)
        self.fill(self._rows, found, "Nothing shows here.", "esc goes back, s widens the scope.")

    def _not_read(self, error: MemtuiError) -> None:
        self._failed = ()
        self.fill(self._rows, (), f"✗ {error}", "r looks again, esc goes back.")

    @on(Opened)
    def _prune_opened(self, event: Opened) -> None:
        event.prevent_default()
        self.action_prune()

    def action_prune(self) -> None:
        """Review which of its owner's records could go."""
        self._go_to(then="records.prune")

    def action_records(self) -> None:
        """Show its owner's records."""
        self._go_to(then="")

    def _go_to(self, *, then: str) -> None:
        scope = owner_scope(self.row.scope)
        self.post_message(GoTo("records", filter_line="", scope=scope, everywhere=True, then=then))

    def action_copy(self) -> None:
        """Copy what shows."""
        self.copy(self.row.sentence, "Copied what shows.")
