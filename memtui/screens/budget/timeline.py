"""How a context and its facts came to be, day by day."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.screen import ModalScreen
from textual.widgets import Static

from memtui.contract import Scope
from memtui.screens.budget.facts import Place
from memtui.widgets.charts import Chart, Charts, Series
from memtui.widgets.detail_lines import Line, heading, joined, labelled
from memtui.widgets.display import DIM, WARN, display
from memtui.widgets.format import count, counted

if TYPE_CHECKING:
    from memtui.screens.state import ServiceSession
    from memtui.service.metrics import FactDay, FactMetrics

DAYS = 60
_METRICS_CELLS = 76


@dataclass(frozen=True, slots=True)
class Timeline:
    """What the log says of a context: its own assemblies, and what was done to its facts.

    `company` is the whole company's, for what only makes sense over all of it.
    """

    contexts: FactMetrics
    facts: tuple[FactMetrics, ...]
    company: FactMetrics


async def read_timeline(
    session: ServiceSession, scope: Scope, places: Sequence[Place], now: datetime
) -> Timeline:
    """Read the last 60 days; nothing of it is an operation."""
    since = now - timedelta(days=DAYS)

    async def measured(scope: Scope | None) -> FactMetrics:
        return await session.service.metrics.facts(session.caller, since, scope=scope)

    contexts, company, *facts = await asyncio.gather(
        measured(scope), measured(None), *(measured(place.scope) for place in places)
    )
    return Timeline(contexts, tuple(facts), company)


def charts_of(timeline: Timeline, budget: int) -> tuple[Chart, ...]:
    """Return the context's size, the facts that came and went, and who saved them."""
    days = timeline.contexts.days

    def chart(title: str, nothing: str, *series: Series, **options: Any) -> Chart:
        labels = tuple(f"{day.day:%m-%d}" for day in days)
        title = f"{title}, {DAYS} days"
        return Chart(title, labels, series, squeezed="day", nothing=nothing, **options)

    def summed(value: Callable[[FactDay], int]) -> tuple[float, ...]:
        """Return the sum over all places for each day, in the days of the contexts."""
        totals: Counter[date] = Counter()
        for metrics in timeline.facts:
            for day in metrics.days:
                totals[day.day] += value(day)
        return tuple(float(totals[day.day]) for day in days)

    sizes = tuple(day.average_context_tokens for day in days)
    return (
        chart(
            "context size",
            "No context of this scope was assembled yet; each look and each run counts.",
            Series("tokens", sizes, "primary", "●"),
            lines=True,
            limit=float(budget),
        ),
        chart(
            "facts",
            "No fact came or went in these days; a adds one.",
            Series("added", summed(lambda day: day.facts_added), "ok", "█"),
            Series("deleted", summed(lambda day: -day.facts_deleted), "bad", "▒"),
        ),
        chart(
            "saves",
            "Nobody saved a fact in these days.",
            Series("ai", summed(lambda day: day.saves_by_ai), "primary", "█"),
            Series("user", summed(lambda day: day.saves_by_user), "accent", "▒"),
        ),
    )


def metrics_content(timeline: Timeline, width: int) -> Content:
    """Return how well facts serve in the company and here, against their targets (seed 004 §8)."""
    whole, here = timeline.company, timeline.contexts
    adoption, deleted = whole.adoption, whole.share_deleted_by_hand
    users = f"{whole.active_users_with_facts} of {counted(whole.active_users, 'active user')}"
    saves = counted(whole.facts_saved, "save")
    by_hand = f"{whole.deleted_by_hand_within_7_days} of {saves} by hand in 7 days"
    over = here.contexts_over_budget / here.contexts if here.contexts else None
    shares = (
        ("adoption", adoption, f"{users} have facts, target {whole.adoption_target:.0%}",
         adoption is not None and adoption < whole.adoption_target),
        ("deleted", deleted, f"{by_hand}, at most {whole.share_deleted_target:.0%}",
         deleted is not None and deleted > whole.share_deleted_target),
        ("over", over, f"{here.contexts_over_budget} of {counted(here.contexts, 'context')} here",
         bool(over)),
    )  # fmt: skip
    averages = (
        ("a user", whole.average_facts_per_user, "facts", whole.facts_per_user_target),
        ("a drive", whole.average_facts_per_active_drive, "facts", whole.facts_per_drive_target),
        ("context", here.average_context_tokens, "tokens here", None),
    )
    block: list[Line] = [heading("how facts serve", f"the whole company, {DAYS} days")]
    block += [
        labelled(name, _share(value, words, missed=bad)) for name, value, words, bad in shares
    ]
    block += [labelled(name, _average(value, noun, aim)) for name, value, noun, aim in averages]
    return joined([block], width)


def _share(value: float | None, words: str, *, missed: bool) -> Content:
    shown = "–" if value is None else f"{value:.0%}{' ▲' if missed else ''}"
    return display(shown, style=WARN if missed else "") + display(f"  {words}", style=DIM)


def _average(value: float | None, noun: str, target: tuple[int, int] | None) -> Content:
    if value is None:
        return display("–", style=DIM)
    shown = count(round(value)) if value >= 100 else f"{value:.1f}"
    aim = f"  target {target[0]} to {target[1]}" if target else ""
    return display(f"{shown} {noun}") + display(aim, style=DIM)


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
