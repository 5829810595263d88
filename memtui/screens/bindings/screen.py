"""Screen 1: which binding serves which company, project and agent, and how each of them is."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.reactive import reactive
from textual.widgets import OptionList

from memtui.actions import ACTIONS, Need
from memtui.contract import Location, Problem
from memtui.screens.base import MemtuiScreen
from memtui.screens.bindings.questions import BindingQuestions
from memtui.screens.bindings.view import BindingsView, Row, row_content, row_detail, rows_of
from memtui.screens.keymap import action_entries
from memtui.screens.open_source import open_file
from memtui.screens.state import AppState, ConfigurationChanged, GoTo, find_memories
from memtui.widgets.background import Background
from memtui.widgets.frame import KeyFooter
from memtui.widgets.keys import bindings_for
from memtui.widgets.panes import DetailPane, Fitted, OptionRows

if TYPE_CHECKING:
    from memtui.backends.discovery import Finding
    from memtui.service.answers import BindingHealth, BindingView


class BindingsScreen(MemtuiScreen):
    """The tree of bindings, the selected one in full, and what was found on this machine."""

    MODE = "bindings"
    FILTERED = False
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("bindings")

    view: reactive[BindingsView] = reactive(BindingsView)

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self._reading = Background(self, "bindings")
        self._finding = Background(self, "discovery")
        self._loading = Background(self, "providers")
        self._changing = Background(self, "configure")
        self._opening = Background(self, "file")
        self._health: dict[str, Background] = {}
        self._rows: list[Row] = []
        self._asks = BindingQuestions(self, self._change)

    def compose_body(self) -> ComposeResult:
        """Lay out tree and detail."""
        with Container(classes="split"):
            yield OptionRows(id="binding-tree")
            with DetailPane(classes="split-detail"):
                yield Fitted(id="binding-detail")
                yield KeyFooter(id="binding-more")

    @property
    def _tree(self) -> OptionRows:
        return self.query_one("#binding-tree", OptionRows)

    @property
    def reading(self) -> bool:
        """Whether the bindings are being read."""
        return self._reading.busy

    def load(self) -> None:
        """Read the bindings, then ask each for its health; look for memories once."""
        session = self.session
        self._reading.latest(
            lambda: session.service.bindings.all(session.caller), self._show_bindings, self.fail
        )
        if self.view.findings is None:
            self._discover()
            self._loading.latest(
                session.service.bindings.provider_problems, self._show_unusable, self.fail
            )

    def _show_unusable(self, problems: list[str]) -> None:
        unusable = tuple(Problem(message=one) for one in problems)
        self.view = replace(self.view, unusable=unusable)

    def _show_bindings(self, bindings: list[BindingView]) -> None:
        self.view = replace(self.view, bindings=tuple(bindings))
        for binding in bindings:
            if binding.enabled:
                self._ask_health(binding.key)

    def _ask_health(self, key: str) -> None:
        session = self.session
        work = self._health.setdefault(key, Background(self, f"health:{key}"))
        work.latest(
            lambda: session.service.bindings.health(session.caller, key),
            self._show_health,
            self.fail,
        )

    def _show_health(self, health: BindingHealth) -> None:
        self.view = replace(self.view, healths={**self.view.healths, health.key: health})

    def _discover(self) -> None:
        self._finding.latest(find_memories, self._show_findings, self.fail)

    def _show_findings(self, findings: tuple[Finding, ...]) -> None:
        self.view = replace(self.view, findings=findings)

    def watch_view(self) -> None:
        """Draw the tree again with the cursor on the row it stood on."""
        if not self.is_mounted:
            return
        stood = self._row
        self._rows = rows_of(self.view)
        self._tree.show(
            [row_content(row, self.view, self.state) for row in self._rows],
            _place_of(stood, self._rows, self.view),
            passed={n for n, row in enumerate(self._rows) if not row.selectable},
        )
        self._draw_detail()

    def watch_state(self, before: AppState, now: AppState) -> None:
        """Light another path."""
        super().watch_state(before, now)
        if now.resolution != before.resolution or now.scope != before.scope:
            self.watch_view()

    @property
    def _row(self) -> Row | None:
        index = self._tree.highlighted
        return self._rows[index] if index is not None and index < len(self._rows) else None

    def _draw_detail(self) -> None:
        row = self._row or Row("company")
        view, state = self.view, self.state
        detail = self.query_one("#binding-detail", Fitted)
        detail.fit(lambda width: row_detail(row, view, state, width))
        missing: dict[Need, str] = {Need.TABLE: ""}
        if row.binding is None:
            missing[Need.BINDING] = ""
        else:
            missing |= dict.fromkeys(self._asks.unfit(row.binding, view.bindings), "")
        self.missing = missing
        self.labels = {"bindings.add": "add this" if row.finding else "add"}
        more = (ACTIONS[f"bindings.{verb}"] for verb in ("namespaces", "conformance", "migrate"))
        self.query_one("#binding-more", KeyFooter).entries = (
            action_entries(more, state.keymap, self.why_disabled, {}) if row.binding else ()
        )

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the selected row in full."""
        event.stop()
        self._draw_detail()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Go into the details."""
        event.stop()
        self.query_one(".split").add_class("-opened")
        self.query_one(DetailPane).focus()

    def action_back(self) -> None:
        """Go back from the details to the tree."""
        self.query_one(".split").remove_class("-opened")
        self._tree.focus()

    def action_open(self) -> None:
        """Open the file of a problem or finding; a binding shows its records."""
        row = self._row
        if row is None:
            return
        place = _place(row.problem, row.finding)
        if place is not None:
            open_file(self, self._opening, place)
        elif row.binding is not None:
            self.action_browse()

    def action_browse(self) -> None:
        """Show the records of this binding."""
        if (row := self._row) is not None and row.binding is not None:
            self.post_message(GoTo("records", binding_key=row.binding.key))

    def action_check(self) -> None:
        """Ask every binding for its health again."""
        self.view = replace(self.view, healths={})
        self._show_bindings(list(self.view.bindings))

    def action_discover(self) -> None:
        """Look again for memories on this machine."""
        self.view = replace(self.view, findings=None)
        self._discover()

    def action_copy(self) -> None:
        """Copy the selected row."""
        if (row := self._row) is not None:
            self.copy(row_content(row, self.view, self.state).plain, "Copied the row.")

    def action_add(self) -> None:
        """Add what was found as a read-only binding, or a binding of one's own."""
        row = self._row
        if row is not None and row.finding is not None:
            self._asks.add_finding(row.finding)
        else:
            self._asks.add_own()

    def action_enable(self) -> None:
        """Enable or disable the binding."""
        if (row := self._row) is not None and row.binding is not None:
            self._asks.toggle(row.binding)

    def action_read_only(self) -> None:
        """Make the binding read-only, or writable again."""
        if (row := self._row) is not None and row.binding is not None:
            self._asks.read_only(row.binding)

    def action_target(self) -> None:
        """Choose whom this binding serves."""
        if (row := self._row) is not None and row.binding is not None:
            self._asks.target(row.binding)

    def action_clear_target(self) -> None:
        """Stop this binding from serving the selected target, or one that is chosen."""
        if (row := self._row) is not None and row.binding is not None:
            self._asks.clear_target(row.binding, row.target)

    def action_namespaces(self) -> None:
        """Show the namespaces of the binding."""
        if (row := self._row) is not None and row.binding is not None:
            self._asks.namespaces(row.binding, self.load)

    def action_conformance(self) -> None:
        """Check the memory plugin against its contract."""
        if (row := self._row) is not None and row.binding is not None:
            self._asks.conformance(row.binding, self.load)

    def action_migrate(self) -> None:
        """Ask for the binding to move to, and show the migration."""
        if (row := self._row) is not None and row.binding is not None:
            self._asks.migrate(row.binding, self.view.bindings, self.load)

    def action_remove(self) -> None:
        """Take the binding away, after a yes."""
        if (row := self._row) is not None and row.binding is not None:
            self._asks.remove(row.binding)

    def _change(self, work: Callable[[], Coroutine[Any, Any, object]], said: str) -> None:
        """Run a change of the configuration, say what was done, and read everything again."""

        def done(_: object) -> None:
            self.toast(said)
            self.post_message(ConfigurationChanged())
            self.load()

        self._changing.every(work, done, self.fail)


def _place(problem: Problem | None, finding: Finding | None) -> Location | None:
    if problem is not None:
        return problem.location
    return Location(path=finding.path) if finding is not None else None


def _place_of(stood: Row | None, rows: list[Row], view: BindingsView) -> int | None:
    """Return where the cursor goes: to the row that stands for the same, else the first binding.

    A finding that was added stands as its binding.
    """
    first = next((n for n, row in enumerate(rows) if row.sort == "binding"), None)
    if stood is None:
        return first

    def identity(row: Row) -> tuple[object, ...]:
        return (
            row.sort,
            row.binding.key if row.binding else None,
            row.target,
            row.problem,
            row.finding.path if row.finding else None,
        )

    added = view.holder(stood.finding) if stood.finding else None
    wanted = identity(Row("binding", added) if added else stood)
    return next((n for n, row in enumerate(rows) if identity(row) == wanted), first)
