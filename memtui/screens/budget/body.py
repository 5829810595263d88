"""The budget's body: bars on top, the facts under them, one fact and the charts beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.reactive import reactive
from textual.widgets import OptionList, Static

from memtui.actions import Need
from memtui.contract import MemtuiError, NotFound
from memtui.filters import Taker
from memtui.screens.base import MemtuiScreen
from memtui.screens.budget import watching
from memtui.screens.budget.feed import Assembled, FactFeed
from memtui.screens.budget.offers import Offer, find_offers, offer_content
from memtui.screens.budget.same import count_same
from memtui.screens.budget.timeline import Timeline, charts_of, read_timeline
from memtui.screens.budget.view import (
    BudgetView,
    bars_content,
    head_content,
    notes_content,
)
from memtui.screens.budget.watching import Arrivals
from memtui.screens.columns_dialog import choose_columns
from memtui.screens.facts.columns import fact_columns
from memtui.screens.facts.detail import FactDetail, FactView
from memtui.screens.facts.edits import FactEdits
from memtui.screens.facts.rows import FactRow, Place, places_of
from memtui.screens.state import AppState, ScopeChosen
from memtui.widgets import format as fmt
from memtui.widgets.background import Background
from memtui.widgets.charts import Charts
from memtui.widgets.display import DIM, STRONG, display, line, lines
from memtui.widgets.panes import DetailPane, Notice, OptionRows
from memtui.widgets.virtual_list import (
    ColumnsAsked,
    Highlighted,
    Opened,
    SelectionChanged,
    SortAsked,
    VirtualList,
)

if TYPE_CHECKING:
    from memtui.service.answers import BindingView
    from memtui.service.context import ContextAnswer


class BudgetBody(MemtuiScreen):
    """Shows a context and keeps it fresh; what a person can do to it is the screen's."""

    NARROWS = Taker.BUDGET

    view: reactive[BudgetView] = reactive(BudgetView)

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self._feed = FactFeed(self, self._assembled, self._broken)
        self._edits = FactEdits(self, self._feed)
        self._arrivals = Arrivals(self, partial(self._feed.load, by_others=True))
        self._finding = Background(self, "budget-offers")
        self._drawing = Background(self, "budget-charts")
        self._comparing = Background(self, "budget-same")
        self._offers: tuple[Offer, ...] = ()
        self._timeline: Timeline | None = None
        self._compared: object = None
        start = BudgetView(state.context_model, state.context_budget)
        self.set_reactive(BudgetBody.view, start)

    def compose_body(self) -> ComposeResult:
        """Lay out bars, facts or text, detail and charts."""
        yield Static(id="budget-head")
        yield Notice(id="budget-notice")
        yield OptionRows(id="budget-offers")
        with Container(id="budget-split"):
            with Vertical(id="budget-left"):
                yield Static(id="budget-title")
                yield VirtualList(
                    fact_columns(self._now, self._feed.reads), self._feed.rows, name="fact-list"
                )
                with DetailPane(id="budget-text"):
                    yield Static(id="budget-words")
            with Vertical(id="budget-side"):
                yield FactDetail(id="fact-detail")
                yield Charts(id="budget-charts")

    def on_mount(self) -> None:
        """Draw what is known at once, and begin to watch for what others do."""
        super().on_mount()
        self._draw()
        self.set_interval(watching.POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        if self.is_current and self.state.session is not None and not self._feed.busy:
            self._arrivals.poll()

    def load(self) -> None:
        """Assemble the context of the scope, or offer whose there is to look at."""
        view = self.view
        places = places_of(self.state.record_scope)
        scopes = [place.scope for place in places]
        if scopes != [place.scope for place in view.places]:
            self._compared = self._timeline = None
            self.query_one("#budget-charts", Charts).show(())
            view = replace(view, answer=None, same={}, raw=False)
        self.view = replace(view, places=places, problem="")
        if places:
            self._finding.forget()
            self._feed.ask_for(view.model, view.budget)
            self._feed.load()
        else:
            self._feed.forget_scope()
            self._arrivals.follow(())
            self.show_count("")
            self._finding.latest(lambda: find_offers(self.state), self._show_offers, self.fail)

    @property
    def reading(self) -> bool:
        """Whether the context is being read."""
        return self._feed.busy

    @property
    def _list(self) -> VirtualList[FactRow]:
        found: VirtualList[FactRow] = self.query_one("#fact-list", VirtualList)
        return found

    @property
    def _answer(self) -> ContextAnswer:
        if self.view.answer is None:
            raise NotFound("There is no context yet.")
        return self.view.answer

    def _now(self) -> datetime:
        return self.state.clock()

    def _assembled(self, found: Assembled) -> None:
        self.view = replace(self.view, places=found.places, answer=found.answer, problem="")
        self._arrivals.follow(found.places)
        self._arrivals.tell(found.rows, by_others=found.by_others)
        self._read_timeline(found.places)
        texts = hash(tuple((row.key, row.text) for row in found.rows))
        if texts != self._compared:
            self._compared = texts
            session, model = self.session, self.view.model
            self._comparing.latest(
                lambda: count_same(session, found.places, found.rows, model),
                lambda same: setattr(self, "view", replace(self.view, same=same)),
                self.fail,
            )
        if self.focused is None or not self.focused.display:
            self.focus_body()

    def _broken(self, error: MemtuiError) -> None:
        self.view = replace(self.view, answer=None, problem=str(error))

    def _read_timeline(self, places: Sequence[Place]) -> None:
        session, scope, now = self.session, self.state.record_scope, self._now()
        wanted = scope.model_copy(update={"issue_id": None, "run_id": None})
        self._drawing.latest(
            lambda: read_timeline(session, wanted, places, now), self._show_timeline, self.fail
        )

    def _show_timeline(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.query_one("#budget-charts", Charts).show(charts_of(timeline, self.view.budget))

    def _show_offers(self, offers: tuple[Offer, ...]) -> None:
        self._offers = offers
        self._draw()
        if offers:
            self.query_one("#budget-offers", OptionRows).focus()

    # Drawing.

    def watch_view(self) -> None:
        """Draw the view."""
        if self.is_mounted:
            self._draw()

    def on_resize(self) -> None:
        """Draw again for another width."""
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        view = self.view
        chosen = bool(view.places)
        self.query_one("#budget-split").display = chosen
        head = self.query_one("#budget-head", Static)
        head.display = chosen
        width = head.content_size.width or self.size.width - 2
        parts = [head_content(view, width), bars_content(view, width), notes_content(view)]
        head.update(lines([part for part in parts if part.plain]))
        self._draw_offers(shown=not chosen)
        self._draw_text()
        self._update_keys()

    def _draw_offers(self, *, shown: bool) -> None:
        offers, notice = (
            self.query_one("#budget-offers", OptionRows),
            self.query_one("#budget-notice", Notice),
        )
        offers.display = shown and bool(self._offers)
        notice.display = shown
        if not shown:
            return
        offers.show([offer_content(one) for one in self._offers], 0 if self._offers else None)
        if self._offers:
            hint = "enter looks at one; s adds the project to a user, or the user to a project."
        else:
            hint = "s takes a name that is not known yet, 4 shows all records."
        notice.show("empty", "Whose context? It needs a user, a project or an agent.", hint)

    def _draw_text(self) -> None:
        view = self.view
        self._list.display = not view.raw
        self.query_one("#budget-text").display = view.raw
        self.query_one("#budget-split").set_class(view.raw, "-raw")
        shown = "exactly this text" if view.raw else "fact by fact"
        keys = "t shows its facts" if view.raw else "t shows the text"
        title = line(display("what the model sees", style=STRONG), display(shown), gap=", ")
        self.query_one("#budget-title", Static).update(
            line(title, display(keys, style=DIM), gap="   ")
        )
        text = view.answer.text if view.raw and view.answer else ""
        words = display(text, keep_newlines=True) if text else display("Nothing.", style=DIM)
        self.query_one("#budget-words", Static).update(words)

    def _draw_detail(self) -> None:
        row, view = self._list.current, self.view
        self.query_one(FactDetail).show(
            None
            if row is None
            else FactView(
                row=row,
                now=self._now(),
                zone=self.state.zone,
                place=self._feed.place_of(row),
                read=self._feed.reads.get(row.handle) if row.handle else None,
                exact=view.answer is None or view.answer.exact,
            )
        )

    def _binding_of(self, place: Place | None) -> BindingView | None:
        key = place.binding_key if place else ""
        return next((one for one in self.state.bindings if one.key == key), None)

    def _update_keys(self) -> None:
        view, row = self.view, self._list.current
        missing: dict[Need, str] = {}
        if not view.places:
            missing[Need.SCOPE] = ""
        if row is None or view.raw or not view.places:
            missing[Need.ROW] = "t goes back to the list of facts." if view.raw else ""
        place = self._feed.place_of(row) if row is not None else None
        binding = self._binding_of(place)
        if binding is not None and binding.read_only:
            missing[Need.WRITABLE] = f"The binding {binding.key} is read-only."
        elif binding is not None and not binding.capabilities.writable:
            missing[Need.WRITABLE] = f"The provider of {binding.key} only reads."
        if binding is not None and not binding.capabilities.correction:
            missing[Need.CORRECTION] = ""
        if missing != self.missing:
            self.missing = missing
        chosen = len(self._list.chosen)
        forget = f"forget {fmt.count(chosen)}…" if chosen > 1 else "forget…"
        self.labels = {
            "budget.forget": forget,
            "budget.text": "as facts" if view.raw else "as text",
        }

    @on(Highlighted)
    def _selected(self) -> None:
        self._update_keys()
        self._draw_detail()
        if self._list.selection.ranging:
            self._feed.look()

    @on(SelectionChanged)
    def _marked(self) -> None:
        self._feed.look()
        self._update_keys()

    @on(SortAsked)
    def _sort(self, event: SortAsked) -> None:
        self._feed.sort(event.column)

    @on(ColumnsAsked)
    def _choose_columns(self) -> None:
        choose_columns(self, self._list)

    @on(Opened)
    def _enter(self) -> None:
        self.query_one("#budget-split").add_class("-opened")
        self.query_one(FactDetail).focus()

    @on(OptionList.OptionSelected, "#budget-offers")
    def _take_offer(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(
            ScopeChosen(self._offers[event.option_index].applied_to(self.state.scope))
        )
