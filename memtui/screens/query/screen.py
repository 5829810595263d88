"""Screen 3: ask the memories, see what each result comes from and what the question cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Input, OptionList, Static

from memtui.actions import Need
from memtui.contract import Filter, OperationType, QueryIntent, QueryRequest, SourceRef
from memtui.filters import build_filter, format_filter
from memtui.screens.base import MemtuiScreen
from memtui.screens.dialogs import READING, Drawn, Sheet
from memtui.screens.open_source import open_source
from memtui.screens.query.view import (
    QueryView,
    card_contents,
    cost_content,
    detail_content,
    explanation_content,
    options_line,
    state_of,
    title_line,
)
from memtui.screens.state import AppState, GoTo
from memtui.widgets.background import Background
from memtui.widgets.display import ACCENT
from memtui.widgets.keys import bindings_for
from memtui.widgets.panes import DetailPane, Fitted, Notice, OptionRows

if TYPE_CHECKING:
    from memtui.service.answers import QueryAnswer
    from memtui.store.operation import OperationPage

_STEPS = (1, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
_PAST = 50


class AskLine(Horizontal):
    """Takes a question; posts `Asked` with it, `Left` when the person goes to the results."""

    ACTION_GROUP = "ask"
    BINDINGS = bindings_for("ask")

    class Asked(Message):
        """A question was entered; it is not empty."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Left(Message):
        """The person is done with the line."""

    def compose(self) -> ComposeResult:
        """Lay out the sign and the input."""
        yield Static(Content.styled("›", f"bold {ACCENT}"), classes="ask-sign")
        yield Input(placeholder="Ask your memories, then enter", compact=True, id="ask-input")

    @on(Input.Submitted)
    def action_run(self) -> None:
        """Ask what is written, if anything is."""
        if text := self.query_one(Input).value.strip():
            self.post_message(self.Asked(text))

    def action_leave(self) -> None:
        """Go to the results."""
        self.post_message(self.Left())


class QueryScreen(MemtuiScreen):
    """A question, its results as cards, the chosen one in full, and what it cost."""

    MODE = "query"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("query")

    view: reactive[QueryView] = reactive(QueryView)

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self._asking = Background(self, "query")
        self._reading = Background(self, "past")

    def compose_body(self) -> ComposeResult:
        """Lay out question, options, cards, detail and cost."""
        yield AskLine(id="ask")
        yield Static(id="ask-options")
        with Container(classes="split"):
            with Vertical(classes="split-list"):
                yield Static(id="query-title")
                yield Notice(id="query-notice")
                yield OptionRows(id="cards")
            with DetailPane(classes="split-detail"):
                yield Fitted(id="query-detail")
        yield Static(id="query-cost")

    def load(self) -> None:
        """Read the questions asked before, and say for which scope the next one is."""
        self._draw_around()
        session, chosen = self.session, self.state.log_filter
        asked = Filter(
            agent_id=chosen.agent_id,
            project_id=chosen.project_id,
            subject_id=chosen.subject_id,
            operation_type=OperationType.QUERY,
        )
        self._reading.latest(
            lambda: session.service.log.page(session.caller, asked, limit=_PAST),
            self._show_past,
            self.fail,
        )

    @property
    def reading(self) -> bool:
        """Whether a question is being answered, or earlier ones are being read."""
        return self._asking.busy or self._reading.busy

    def focus_body(self) -> None:
        """Put the focus on the results, or without any into the question."""
        if self.view.answer is None:
            self.set_focus(self.query_one("#ask-input"))
        else:
            self._cards.focus()

    def _show_past(self, page: OperationPage) -> None:
        newest = {
            str(one.request.get("query")): one
            for one in reversed(page.operations)
            if one.request.get("query")
        }
        past = sorted(newest.values(), key=lambda one: -one.seq)
        self.view = replace(self.view, past=tuple(past))

    @on(AskLine.Asked)
    def _asked(self, message: AskLine.Asked) -> None:
        self._ask(message.text)

    @on(AskLine.Left)
    def _to_results(self) -> None:
        self._cards.focus()

    def _ask(self, text: str) -> None:
        if self.state.session is None:
            self.toast(Need.SERVICE.value, severity="warning")
            return
        session = self.session
        request = QueryRequest(
            scope=self.state.record_scope,
            query=text,
            binding_key=self.state.filter.binding_key or self.state.binding_key,
            top_k=self.view.top_k,
            intent=self.view.intent,
            topic=self.state.filter.topic,
        )
        self.query_one("#ask-input", Input).value = text
        self.view = replace(self.view, asking=True, error="")
        self._asking.latest(
            lambda: session.service.query(session.caller, request),
            lambda answer: self._show_answer(request, answer),
            lambda error: setattr(self, "view", replace(self.view, asking=False, error=str(error))),
        )

    def _show_answer(self, request: QueryRequest, answer: QueryAnswer) -> None:
        self.view = replace(
            self.view,
            asking=False,
            request=request,
            answer=answer,
            asked=self.view.asked + 1,
            spent=self.view.spent + answer.usage,
        )
        self._cards.focus()
        self.load()

    def watch_view(self, before: QueryView, now: QueryView) -> None:
        """Draw what changed."""
        if not self.is_mounted:
            return
        if (before.answer, before.past) != (now.answer, now.past):
            self._draw_cards(0)
        notice = self.query_one("#query-notice", Notice)
        state = state_of(now)
        if state is None:
            notice.hide()
        else:
            notice.show(*state)
        self._draw_around()
        self._draw_detail()

    @on(OptionRows.WidthChanged)
    def _draw_cards_again(self) -> None:
        self._draw_cards(self._index)

    def _draw_cards(self, highlighted: int | None) -> None:
        self._cards.show(card_contents(self.view, self.state, self._cards.cells), highlighted)

    def _draw_around(self) -> None:
        self.query_one("#ask-options", Static).update(options_line(self.view, self.state))
        self.query_one("#query-title", Static).update(title_line(self.view, self.state))
        self.query_one("#query-cost", Static).update(cost_content(self.view))
        self.show_count("")
        self._draw_needs()

    def _draw_detail(self) -> None:
        view, state, index = self.view, self.state, self._index
        detail = self.query_one("#query-detail", Fitted)
        detail.fit(lambda width: detail_content(view, state, index, width))
        self._draw_needs()

    def _draw_needs(self) -> None:
        missing: dict[Need, str] = {Need.TABLE: ""}
        snippet = self.view.snippet(self._index)
        if snippet is None:
            missing[Need.ROW] = "No result is selected."
        elif snippet.source is None and snippet.location is None:
            missing[Need.SOURCE] = ""
        binding = self.state.binding
        if self.view.request is None:
            missing[Need.EXPLAIN] = "Ask something first."
        elif binding is not None and not binding.capabilities.explain:
            missing[Need.EXPLAIN] = f"{binding.key} does not explain its results."
        self.missing = missing

    @property
    def _cards(self) -> OptionRows:
        return self.query_one("#cards", OptionRows)

    @property
    def _index(self) -> int | None:
        return self._cards.highlighted

    @on(OptionList.OptionHighlighted)
    def _highlighted(self) -> None:
        self._draw_detail()

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        """Go into the details of a result, or ask a past question again."""
        past = self.view.past_at(event.option_index)
        if past is not None:
            self._ask(str(past.request.get("query", "")))
        else:
            self.query_one(".split").add_class("-opened")
            self.query_one(DetailPane).focus()

    def action_back(self) -> None:
        """Go back from the details to the results."""
        self.query_one(".split").remove_class("-opened")
        self._cards.focus()

    def action_input(self) -> None:
        """Write a question."""
        self.set_focus(self.query_one("#ask-input"))

    def action_intent(self) -> None:
        """Change what the question is for."""
        intents = list(QueryIntent)
        following = intents[(intents.index(self.view.intent) + 1) % len(intents)]
        self.view = replace(self.view, intent=following)

    def action_more(self) -> None:
        """Ask for more results."""
        more = min((step for step in _STEPS if step > self.view.top_k), default=_STEPS[-1])
        self.view = replace(self.view, top_k=more)

    def action_fewer(self) -> None:
        """Ask for fewer results."""
        fewer = max((step for step in _STEPS if step < self.view.top_k), default=_STEPS[0])
        self.view = replace(self.view, top_k=fewer)

    def action_history(self) -> None:
        """Show the questions asked before."""
        self.view = replace(self.view, answer=None, error="")
        self._cards.focus()

    def action_open(self) -> None:
        """Open where the result came from."""
        snippet = self.view.snippet(self._index)
        if snippet is not None:
            location = None if snippet.source else snippet.location
            open_source(self, self.acts, snippet.source, location)

    def action_copy(self) -> None:
        """Copy the text of the result."""
        snippet = self.view.snippet(self._index)
        if snippet is not None:
            self.copy(snippet.text, "Copied the text.")

    def action_record(self) -> None:
        """Show the record in Records."""
        snippet, answer = self.view.snippet(self._index), self.view.answer
        if snippet is not None and answer is not None:
            record_id = snippet.handle.provider_record_id
            self.post_message(GoTo("records", binding_key=answer.binding_key, select=record_id))

    def action_same_source(self) -> None:
        """Show the records that come from the same source."""
        snippet, answer = self.view.snippet(self._index), self.view.answer
        if snippet is None or answer is None:
            return
        wanted = source_line_filter(snippet.source)
        if wanted:
            self.post_message(GoTo("records", filter_line=wanted, binding_key=answer.binding_key))
        else:
            self.toast("This result names no issue, run or other source.", severity="warning")

    def action_explain(self) -> None:
        """Show the stages of the search and what each contributed."""
        session, request = self.session, self.view.request
        if request is None:
            return
        shown = self.view.answer.snippets if self.view.answer else ()
        ranks = {one.handle.provider_record_id: rank for rank, one in enumerate(shown, 1)}

        async def stages() -> Drawn:
            answer = await session.service.explain(session.caller, request)
            return lambda width: explanation_content(answer.explanation, ranks, width)

        title = f"How “{self.view.question}” was answered"
        self.app.push_screen(Sheet(title, READING, read=stages))


def source_line_filter(source: SourceRef | None) -> str:
    """Return the filter line for the issue, else the run, else the kind, of a source.

    Empty where there is no source at all.
    """
    if source is None:
        return ""
    if source.issue_id:
        return format_filter(build_filter(issue_id=source.issue_id))
    if source.run_id:
        return format_filter(build_filter(run_id=source.run_id))
    return format_filter(build_filter(source_kind=source.kind))
