"""The charts of a context over the whole screen, and how well facts serve."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.events import Click
from textual.screen import ModalScreen
from textual.widgets import Static

from memtui.screens.budget.timeline import Timeline, charts_of, metrics_content
from memtui.widgets.charts import Chart, Charts
from memtui.widgets.display import DIM, display

_METRICS_CELLS = 76


class ChartsSheet(ModalScreen[None]):
    """Show every chart; `j` and `k` bring another one to the top where not all fit."""

    BINDINGS = [
        ("escape,q,c", "close", "close"),
        ("j,down,tab,space", "turn(1)", "next"),
        ("k,up,shift+tab", "turn(-1)", "before"),
    ]

    def __init__(self, timeline: Timeline, budget: int) -> None:
        super().__init__()
        self._timeline = timeline
        self._charts: Sequence[Chart] = charts_of(timeline, budget)
        self._first = 0

    def compose(self) -> ComposeResult:
        """Lay out the charts, the figures and the keys."""
        with Vertical(classes="dialog charts-sheet"):
            yield Charts(id="large-charts")
            yield Static(metrics_content(self._timeline, _METRICS_CELLS), id="metrics")
            yield Static(display("↑↓ another chart   esc close", style=DIM))

    def on_mount(self) -> None:
        """Draw the charts."""
        self.action_turn(0)

    def action_turn(self, by: int) -> None:
        """Bring another chart to the top."""
        self._first = (self._first + by) % len(self._charts)
        turned = [*self._charts[self._first :], *self._charts[: self._first]]
        self.query_one(Charts).show(turned)

    def action_close(self) -> None:
        """Close the charts."""
        self.dismiss(None)

    def on_click(self, event: Click) -> None:
        """Turn to another chart by a click on them; one beside them closes them."""
        if event.widget is self:
            self.action_close()
        elif isinstance(event.widget, Charts):
            self.action_turn(1)
