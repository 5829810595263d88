"""Screen 3: ask a question; see its results, their sources, and the cost of the question."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, cast

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.reactive import var
from textual.widgets import Input, OptionList, Static

from memtui.actions import ACTIONS, Action, Need
from memtui.contract import (
    Explanation,
    Filter,
    Matching,
    NotFound,
    OperationStatus,
    OperationType,
    QueryIntent,
    QueryRequest,
    Record,
    Snippet,
    Usage,
)
from memtui.filters import FilterTarget, asked_with
from memtui.presenters import format as fmt
from memtui.presenters.risks import briefly
from memtui.screens.base import MemtuiScreen
from memtui.screens.dialogs import READING, Sheet
from memtui.screens.editing import refused_by
from memtui.screens.following import News
from memtui.screens.leading import choose_tag, show_tagged
from memtui.screens.open_source import open_source, source_filter
from memtui.screens.operations.view import OperationView, foot, handles_content, head
from memtui.screens.records.view import RecordView, record_content
from memtui.screens.scope_choices import FIELDS
from memtui.screens.state import AppState, GoTo
from memtui.store.operation import Operation, OperationPage
from memtui.widgets.background import Background
from memtui.widgets.columns import fit_cell
from memtui.widgets.detail_lines import (
    MARKED_WORD,
    SEPARATOR,
    Line,
    below_heading,
    heading,
    joined,
    labelled,
    marked,
    matches,
    outcome_words,
)
from memtui.widgets.display import ACCENT, DIM, STRONG, WARN, display, hanging, line, lines
from memtui.widgets.editor import ForeignInput
from memtui.widgets.keys import bindings_for
from memtui.widgets.panes import DetailPane, Drawn, Fitted, Notice, OptionRows, Split, State

if TYPE_CHECKING:
    from memtui.service.answers import QueryAnswer
    from memtui.service.operations.everywhere import FoundSnippet
    from memtui.service.review.known_risks import RiskMark

_MOST_RESULTS = 1_000
_PAST = 50
_TEXT_LIMIT = 240
_TEXT_LINES = 3
_SEARCHED = 20_000
_LEAD = 40
_STAGE_SCORES = 20
_FOR = " for “{}”"
_LEAST_OF_QUESTION = 8
"""Least cells for the question in the title; with less room, the title omits it."""


@dataclass(frozen=True, slots=True)
class QueryView:
    """The options of the next question, the last answer, and the past questions."""

    intent: QueryIntent = QueryIntent.ANSWER
    top_k: int = 10
    matching: Matching = Matching.MEMTUI
    request: QueryRequest | None = None
    answer: QueryAnswer | None = None
    """The shown answer, of one binding or of all; None while past questions are shown."""
    aside: QueryAnswer | None = None
    """The last answer, while past questions are shown in its place."""
    changed: frozenset[tuple[str, str]] = frozenset()
    """Bindings and ids of results that were changed or forgotten since the answer."""
    marks: Mapping[tuple[str, str], RiskMark] = field(default_factory=dict)
    """What is known of the risks of the results, by binding and id."""
    said: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The person's verdicts on the results, by binding and id."""
    past: tuple[Operation, ...] | None = None
    """The past questions; None until they are read."""
    asking: bool = False
    error: str = ""
    asked: int = 0
    """Number of questions answered since the app started."""
    spent: tuple[Usage, ...] = ()
    """Usage of all these questions."""

    @property
    def waiting(self) -> list[str]:
        """The bindings that have not answered yet, if all bindings were asked."""
        outcomes = self.answer.bindings if self.answer else ()
        return [one.binding_key for one in outcomes if one.status == "waiting"]

    @property
    def is_joined(self) -> bool:
        """Whether the shown answer is of all bindings."""
        return self.answer is not None and self.answer.together is not None

    @property
    def last(self) -> QueryAnswer | None:
        """The last answer, even while past questions are shown in its place."""
        return self.aside if self.answer is None else self.answer

    @property
    def question(self) -> str:
        """The question of the last answer."""
        return self.request.query if self.request else ""

    def snippet(self, index: int | None) -> Snippet | None:
        """Return a result by its index in the list; None: there is none."""
        snippets = self.answer.snippets if self.answer else ()
        return snippets[index] if index is not None and index < len(snippets) else None

    def past_at(self, index: int | None) -> Operation | None:
        """Return a past question by its index in the list; None: there is none."""
        past = self.past or ()
        if self.answer is not None or index is None or index >= len(past):
            return None
        return past[index]


def placed(answer: QueryAnswer) -> list[tuple[str, Snippet]]:
    """Return the results, each with the key of its binding."""
    return [(answer.binding_of(one), one) for one in answer.snippets]


class AskLine(Horizontal):
    """Takes a question; posts `Asked` with it, `Left` when the person goes to the results."""

    ACTION_GROUP = "ask"
    BINDINGS = bindings_for("ask")

    @dataclass
    class Asked(Message):
        """A question was entered; it is not empty."""

        text: str

    class Left(Message):
        """The person left the line for the results."""

    def compose(self) -> ComposeResult:
        """Lay out the sign and the input."""
        yield Static(Content.styled("›", f"bold {ACCENT}"), classes="ask-sign")
        yield ForeignInput(
            placeholder="Ask your memories, then enter", compact=True, id="ask-input"
        )

    @on(Input.Submitted)
    def action_run(self) -> None:
        """Post the question, unless the line is empty."""
        if text := self.query_one(Input).value.strip():
            self.post_message(self.Asked(text))

    def action_leave(self) -> None:
        """Go to the results."""
        self.post_message(self.Left())


class QueryScreen(MemtuiScreen):
    """A question, its results as cards, the selected result in full, and the cost."""

    MODE = "query"
    NARROWS = FilterTarget.QUESTIONS
    EVERYWHERE = True
    READS_WITH = ("memtui.store.tables",)

    view: var[QueryView] = var(QueryView)

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self._past = Background(self, "past")
        self._marking = Background(self, "risks-of-results")
        self._asked_last: QueryRequest | None = None
        self._stood: int | None = None
        """Index of the selected result before past questions replaced the results."""
        self._asked_of: tuple[datetime | None, bool] = (None, False)
        """Moment at which the last question was asked (None: now), and whether of all bindings."""

    def compose_body(self) -> ComposeResult:
        """Lay out question, options, cards, detail and cost."""
        yield AskLine(id="ask")
        yield Static(id="ask-options")
        with Split(self.MODE, self.state.shares):
            with Vertical(classes="split-list"):
                yield Fitted(id="query-title")
                yield Notice(id="query-notice")
                yield OptionRows(id="cards")
            with DetailPane(classes="split-detail"):
                yield Fitted(id="query-detail")
        yield Static(id="query-cost")

    def load(self) -> None:
        """Read the past questions, and show the scope of the next one.

        The last question is asked again if its reading was interrupted, or if it was asked at
        another moment, or of one binding where now all are asked, or the reverse.
        """
        self._draw_around()
        asking, last = self.view.asking, self._asked_last
        is_broken_off = asking and not self.reads.busy
        is_shown = asking or self.view.answer is not None
        if last and (is_broken_off or (is_shown and self._asked_of != self._asks_of)):
            self._ask(last.query)
        session, chosen = self.session, self.state.log_filter
        asked = Filter(
            agent_id=chosen.agent_id,
            project_id=chosen.project_id,
            subject_id=chosen.subject_id,
            operation_type=OperationType.QUERY,
        )
        self._past.latest(
            lambda: session.service.log.page(session.caller, asked, limit=_PAST),
            self._show_past,
            self.fail,
        )

    async def prepare(self) -> None:
        """Read the past questions before the screen is shown."""
        if self._stale and self._asked_last is None:
            self._stale = False
            self.load()

    async def answered(self) -> None:
        """Wait until the answer and the past questions are read."""
        await self.reads.delivered()
        await self._past.delivered()

    def break_off(self) -> None:
        """Stop the reads that `prepare` began."""
        super().break_off()
        if self._stale:
            self._past.forget()

    @property
    def _asks_of(self) -> tuple[datetime | None, bool]:
        return self.state.as_of, self.state.asks_all

    def select(self, name: str) -> None:
        """Ask a question from another screen."""
        self._ask(name)

    def watch_state(self, before: AppState, now: AppState) -> None:
        """Drop the question and its answer when another company is entered."""
        left, entered = before.session, now.session
        if left and entered and left.caller.company_id != entered.caller.company_id:
            self.reads.forget()
            self._asked_last = None
            was = self.view
            self.view = QueryView(
                was.intent, was.top_k, was.matching, asked=was.asked, spent=was.spent
            )
        super().watch_state(before, now)
        if now.risks is not None and before.risks != now.risks:
            self._read_marks()

    def forget(self) -> None:
        """Drop the answer, so that the question is asked again."""
        asking = self.view.answer is not None or self.view.asking
        self.view = replace(self.view, answer=None, aside=None, asking=asking)

    def read_again(self) -> None:
        """Ask the shown question again; without an answer, reload the past questions."""
        if self._asked_last is not None and self.view.answer is not None:
            self._ask(self._asked_last.query)
        else:
            super().read_again()

    def happened(self, news: News) -> None:
        """Mark results that others changed, and list questions that others asked."""
        answer = self.view.last
        if answer is not None:
            touched = {
                (one.binding_key, handle.provider_record_id)
                for one in news.changes(self)
                for handle in one.handles
                if one.binding_key is not None
            }
            shown = {(key, one.handle.provider_record_id) for key, one in placed(answer)}
            changed = self.view.changed | touched & shown
            self.view = replace(self.view, changed=changed)
        if any(one.operation_type is OperationType.QUERY for one in news.excluding(self)):
            self.reload()

    @property
    def reading(self) -> bool:
        """Whether a question is being answered, or past questions are being read."""
        return super().reading or self._past.busy

    def footer(self) -> list[Action]:
        """Return the actions of the footer; over past questions, only those that apply to them."""
        if self.group != self.MODE or self.view.answer is not None:
            return super().footer()
        back = [ACTIONS["query.history"]] if self.view.aside is not None else []
        others = ("query.input", "app.filter", "app.scope", "app.help")
        return [ACTIONS["list.open"], *back, *(ACTIONS[name] for name in others)]

    def focus_body(self) -> None:
        """Focus the results, or the question if there is no answer."""
        if self.view.answer is None:
            self.set_focus(self.query_one("#ask-input"))
        else:
            self._cards.focus()

    def _show_past(self, page: OperationPage) -> None:
        newest: dict[object, Operation] = {}
        for one in page.operations:
            if question := one.request.get("query"):
                known = newest.setdefault(question, one)
                # A question to several bindings is listed once, by the operation with most results.
                if (
                    known.request.get("together", known.operation_id) == one.request.get("together")
                    and one.result_count > known.result_count
                ):
                    newest[question] = one
        self.view = replace(self.view, past=tuple(newest.values()))

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
        session, asked = self.session, asked_with(self.state.filter)
        everywhere, matching = self.state.asks_all, self.view.matching
        if everywhere:
            matching = Matching.MEMTUI
        else:
            asked["binding_key"] = asked["binding_key"] or self.state.binding_key
        request = QueryRequest(
            scope=self.state.record_scope,
            query=text,
            **asked,
            top_k=self.view.top_k,
            intent=self.view.intent,
            matching=matching,
        )
        self.query_one("#ask-input", Input).value = text
        self.view = replace(self.view, asking=True, error="")
        self._asked_last, self._asked_of = request, self._asks_of

        def so_far(answer: QueryAnswer) -> None:
            if request is self._asked_last and self.is_attached:
                self.view = replace(
                    self.view, request=request, answer=answer, aside=None, changed=frozenset()
                )

        def ask() -> Awaitable[QueryAnswer]:
            service, caller = session.service, session.caller
            if everywhere:
                return service.everywhere.query(caller, request, so_far=so_far)
            return service.query(caller, request)

        self.reads.latest(
            ask,
            lambda answer: self._show_answer(request, answer),
            lambda error: setattr(self, "view", replace(self.view, asking=False, error=str(error))),
        )

    def _show_answer(self, request: QueryRequest, answer: QueryAnswer) -> None:
        self.view = replace(
            self.view,
            asking=False,
            request=request,
            answer=answer,
            aside=None,
            changed=frozenset(),
            marks={},
            said={},
            asked=self.view.asked + 1,
            spent=self.view.spent + answer.usage,
        )
        self._cards.focus()
        self.load()
        self._read_marks()

    def _read_marks(self) -> None:
        """Read what is known of the risks of the results, once risks were looked for."""
        session, answer = self.session, self.view.answer
        if answer is None or self.state.risks is None:
            return
        ids: dict[str, list[str]] = {}
        for key, one in placed(answer):
            ids.setdefault(key, []).append(one.handle.provider_record_id)

        def show(marks: dict[tuple[str, str], RiskMark]) -> None:
            if self.view.answer is answer:
                self.view = replace(self.view, marks=marks)

        self._marking.latest(
            lambda: session.service.risks.marks(session.caller, ids), show, self.fail
        )

    # Drawing.

    def watch_view(self, before: QueryView, now: QueryView) -> None:
        """Draw what changed."""
        if not self.is_mounted:
            return
        if any(
            getattr(before, name) != getattr(now, name)
            for name in ("answer", "said", "changed", "marks")
        ):
            goes_on = (
                before.asking and before.request is now.request
            ) or before.answer is now.answer
            self._draw_cards((self._cards.highlighted or 0) if goes_on else 0)
        elif before.past != now.past and now.answer is None:
            self._draw_cards(_place_of(before.past_at(self._cards.highlighted), now.past or ()))
        lists_past = now.answer is None
        self.labels = {"list.open": "ask again", "query.history": "results"} if lists_past else {}
        notice = self.query_one("#query-notice", Notice)
        if (state := state_of(now)) is None:
            notice.hide()
        else:
            notice.show(*state)
        self._draw_around()
        self._draw_detail()

    @on(OptionRows.WidthChanged)
    def _draw_cards_again(self) -> None:
        self._draw_cards(self._cards.highlighted)

    def _draw_cards(self, highlighted: int | None) -> None:
        self._cards.show(card_contents(self.view, self.state, self._cards.cells), highlighted)

    def _draw_around(self) -> None:
        self.query_one("#ask-options", Static).update(options_line(self.view, self.state))
        view, state = self.view, self.state
        self.query_one("#query-title", Fitted).fit(lambda width: title_line(view, state, width))
        self.query_one("#query-cost", Static).update(cost_content(self.view))
        self.show_count("")
        self._draw_needs()

    @on(OptionList.OptionHighlighted)
    def _draw_detail(self) -> None:
        view, state, index = self.view, self.state, self._cards.highlighted
        detail = self.query_one("#query-detail", Fitted)
        detail.fit(lambda width: detail_content(view, state, index, width))
        self._draw_needs()

    def _draw_needs(self) -> None:
        missing: dict[Need, str] = {Need.TABLE: ""}
        snippet = self.view.snippet(self._cards.highlighted)
        if snippet is None:
            missing[Need.ROW] = "No result is selected."
        elif snippet.source is None and snippet.location is None:
            missing[Need.SOURCE] = Need.SOURCE.value
        if snippet is not None and snippet.read_only:
            missing[Need.MEMORY] = Need.MEMORY.value
        missing |= self._unfit_for_edit()
        binding, everywhere = self.state.binding, self.state.asks_all
        if self.view.request is None:
            missing[Need.EXPLAIN] = "Ask something first."
        elif not self.view.is_joined and binding is not None and not binding.capabilities.explain:
            missing[Need.EXPLAIN] = f"{binding.key} does not explain its results."
        is_own = self.view.matching is Matching.MEMTUI
        if everywhere:
            missing[Need.AGENTS_SEARCH] = "This search works with one binding at a time."
        elif is_own and not (binding is not None and binding.capabilities.agents_search):
            missing[Need.AGENTS_SEARCH] = Need.AGENTS_SEARCH.value if binding is not None else ""
        self.missing = missing

    def _unfit_for_edit(self) -> dict[Need, str]:
        """Return the unmet need if the result's binding takes no correction; else empty."""
        index, answer = self._cards.highlighted, self.view.answer
        found = placed(answer) if answer is not None else []
        key = found[index][0] if index is not None and index < len(found) else None
        binding = next((one for one in self.state.bindings if one.key == key), None)
        return refused_by(binding)

    @property
    def _cards(self) -> OptionRows:
        return self.query_one("#cards", OptionRows)

    @property
    def _result(self) -> tuple[str, Snippet]:
        """The selected result, with its binding key. Raises `NotFound` if there is none."""
        index, answer = self._cards.highlighted, self.view.answer
        if answer is None or index is None or self.view.snippet(index) is None:
            raise NotFound("No result is selected.")
        return placed(answer)[index]

    # Keys.

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        """Open the details of a result, or ask a past question again."""
        past = self.view.past_at(event.option_index)
        if past is not None:
            self._ask(str(past.request.get("query", "")))
        else:
            self.query_one(".split").add_class("-opened")
            self.query_one(DetailPane).focus()

    def action_back(self) -> None:
        """Go back from details or past questions to the results; there, clear the filter."""
        split = self.query_one(".split")
        if split.has_class("-opened"):
            split.remove_class("-opened")
            self._cards.focus()
        elif self.view.aside is None and self._cards.has_focus:
            self.drop_filter()
        else:
            self._show_results()

    def _show_results(self) -> None:
        """Replace the past questions by the last answer."""
        view = self.view
        if view.answer is None and view.aside is not None:
            self.view = replace(view, answer=view.aside, aside=None, error="")
            self._cards.highlighted = self._stood
            self.load()  # asks again if the moment or the bindings changed meanwhile
        self._cards.focus()

    def action_input(self) -> None:
        """Focus the question line."""
        self.set_focus(self.query_one("#ask-input"))

    def action_intent(self) -> None:
        """Switch to the next intent of the question."""
        intents = list(QueryIntent)
        following = intents[(intents.index(self.view.intent) + 1) % len(intents)]
        self.view = replace(self.view, intent=following)

    def action_as_agents(self) -> None:
        """Switch between memtui's search and that of the provider's own agents, and ask again."""
        is_own = self.view.matching is Matching.MEMTUI
        self.view = replace(self.view, matching=Matching.AGENTS if is_own else Matching.MEMTUI)
        if self.view.answer is not None:
            self._ask(self.view.question)

    async def action_results(self) -> None:
        """Ask how many results the next question gets."""
        number = await self.ask_number("How many results?", self.view.top_k, most=_MOST_RESULTS)
        if number is not None:
            self.view = replace(self.view, top_k=number)

    def action_history(self) -> None:
        """Show the past questions; if they are shown, the results again."""
        view = self.view
        if view.answer is None:
            self._show_results()
            return
        self.query_one(".split").remove_class("-opened")
        self._stood = self._cards.highlighted
        self.view = replace(view, answer=None, aside=view.answer, error="")
        self._cards.focus()

    def action_open(self) -> None:
        """Open the source of the result."""
        snippet = self._result[1]
        open_source(self, snippet.source, snippet.location)

    def action_copy(self) -> None:
        """Copy the text of the result."""
        self.copy(self._result[1].text, "Copied the text.")

    async def action_helped(self) -> None:
        """Mark the result as helpful, or withdraw the mark."""
        await self._say("helped")

    async def action_not_helped(self) -> None:
        """Mark the result as not helpful, or withdraw the mark."""
        await self._say("not_helped")

    async def _say(self, wanted: str) -> None:
        from memtui.service.operations.feedback import Verdict

        key, snippet = self._result
        answer, session = self.view.answer, self.session
        place = key, snippet.handle.provider_record_id
        is_said = self.view.said.get(place) == wanted
        said = await self.change(
            lambda: session.service.feedback.say(
                session.caller,
                snippet.handle,
                Verdict.WITHDRAWN if is_said else Verdict(wanted),
                operation_id=answer.operation_of(key) if answer else None,
                binding_key=key,
            )
        )
        if self.view.answer is answer:
            kept = {one: word for one, word in self.view.said.items() if one != place}
            self.view = replace(self.view, said=kept if is_said else {**kept, place: wanted})
        self.toast(
            "Mark withdrawn; pruning no longer counts it."
            if is_said
            else f"Marked {'' if said.verdict == 'helped' else 'not '}helpful; pruning counts this."
        )

    async def action_checks(self) -> None:
        """Show which checks fail."""
        from memtui.screens.checks import Checks

        await self.visit(Checks(self.state))

    async def action_record_check(self) -> None:
        """Record that the question must find the result, or must not if it did not help."""
        from memtui.screens.checks import record

        (key, snippet), answer = self._result, self.view.answer
        name, asked = snippet.handle.provider_record_id, answer and answer.operation_of(key)
        helped = self.view.said.get((key, name)) != "not_helped"
        await record(self, asked or "", record_id=name, helped=helped)

    def action_record(self) -> None:
        """Show the record in Records."""
        self._show_record()

    def action_edit(self) -> None:
        """Show the record in Records, and edit its text there."""
        self._show_record(then="records.edit")

    def _show_record(self, then: str = "") -> None:
        key, snippet = self._result
        name = snippet.handle.provider_record_id
        self.post_message(GoTo("records", binding_key=key, select=name, then=then))

    async def action_runs(self) -> None:
        """Show the runs to which the record was delivered."""
        from memtui.screens.runs import RunsScreen

        key, snippet = self._result
        await self.visit(RunsScreen(self.state, (key, snippet.handle, snippet.text)))

    async def action_trace(self) -> None:
        """Show the trace of the record."""
        from memtui.screens.traces import TraceScreen

        key, snippet = self._result
        await self.visit(TraceScreen(self.state, (key, snippet.handle), snippet.text))

    async def action_tags(self) -> None:
        """Offer all tags, the result's first, and list the records with the chosen one."""
        index = self._cards.highlighted
        await choose_tag(self, None if index is None else self.view.snippet(index))

    @on(Fitted.Clicked)
    def _clicked(self, event: Fitted.Clicked) -> None:
        show_tagged(self, event.name)

    def action_same_source(self) -> None:
        """Show the records of the same source; of all bindings, if all were asked."""
        key, snippet = self._result
        binding_key = None if self.view.is_joined else key
        self.post_message(GoTo("records", source_filter(snippet.source), binding_key))

    def action_explain(self) -> None:
        """Show the stages of the search, and the score that each gave each result."""
        session, request, answer = self.session, self.view.request, self.view.answer
        if request is None:
            return
        lead = "{} " if self.view.is_joined else ""
        ranks = {
            lead.format(key) + one.handle.provider_record_id: rank
            for rank, (key, one) in enumerate(placed(answer) if answer else (), 1)
        }

        async def stages() -> Drawn:
            if answer is not None and answer.stages:  # the answer has them, so no further request
                found = Explanation(stages=answer.stages)
            else:
                found = (await session.service.explain(session.caller, request)).explanation
            return lambda width: explanation_content(found, ranks, width)

        title = f"How “{self.view.question}” was answered"
        self.app.push_screen(Sheet(title, READING, read=stages))


# Contents.


def options_line(view: QueryView, state: AppState) -> Content:
    """Return intent, top-k, scope, and the binding with the reason it was chosen."""
    scope = state.record_scope
    named = [
        f"{word} {value}" for word, field in FIELDS.items() if (value := getattr(scope, field))
    ]
    if state.filter.topic:
        named.append(f"topic {state.filter.topic}")
    found = state.resolution
    binding = f"{found.binding_key}: {found.reason}" if found else state.resolution_problem
    if state.asks_all:
        binding = "all bindings"
    return line(
        display(f"intent {view.intent.value.replace('_', ' ')}"),
        display(f"top {view.top_k}"),
        display("as its agents search" if view.matching is Matching.AGENTS else "", style=WARN),
        display(f"in {', '.join(named) or 'the whole company'}", limit=160),
        display(binding, limit=200, style=DIM),
        gap=SEPARATOR,
    )


def title_line(view: QueryView, state: AppState, width: int) -> Content:
    """Return the title of the list: of results, or of past questions.

    If it is too long, the question is cut or omitted, as the ask line shows it; then the last
    notes are omitted.
    """
    if view.answer is None:
        return display("Asked before · enter asks again", style=DIM) if view.past else Content("")
    found = fmt.counted(len(view.answer.snippets), "result")
    elsewhere = view.request is not None and view.request.scope != state.record_scope
    as_agents = view.request is not None and view.request.matching is Matching.AGENTS
    changed = fmt.count(len(view.changed))
    topic = view.request.topic if view.request else None
    notes = [
        f"{changed} changed; r asks again" if view.changed else "",
        *outcome_notes(view, view.answer),
        "more may match" if view.answer.capped else "",
        f"too few results for topic {topic}, so all topics were searched"
        if view.answer.all_topics
        else "",
        "asked in another scope" if elsewhere else "",
        "as its agents find them" if as_agents else "",
        fmt.not_read(view.answer.problems),
    ]
    count = display(found, style=STRONG)
    warnings = [display(note, style=WARN) for note in notes if note]
    beside = line(count, *warnings, gap=SEPARATOR)
    while len(warnings) > 1 and beside.cell_length > width:
        warnings.pop()
        beside = line(count, *warnings, display("…", style=WARN), gap=SEPARATOR)
    room = width - beside.cell_length - len(_FOR.format(""))
    if room < _LEAST_OF_QUESTION:
        return beside
    count += display(_FOR.format(fit_cell(view.question, room).rstrip()))
    return line(count, *warnings, gap=SEPARATOR)


def outcome_notes(view: QueryView, answer: QueryAnswer) -> list[str]:
    """Return notes on missing answers and hidden facts."""
    asked, hidden = len(answer.bindings), len(answer.hidden)
    answered = asked - len(answer.failed) - len(view.waiting)
    failed = ", ".join(one.binding_key for one in answer.failed)
    return [
        f"from {answered} of {fmt.counted(asked, 'binding')}" if answered < asked else "",
        f"waiting for {', '.join(view.waiting)}" if view.waiting else "",
        f"no answer from {failed}" if failed else "",
        f"{fmt.counted(hidden, 'fact')} overridden by nearer scopes; w explains" if hidden else "",
    ]


def state_of(view: QueryView) -> tuple[State, str, str] | None:
    """Return the notice above the rows or instead of them, as kind, title and hint; None: none."""
    if view.asking and not view.waiting:
        return "loading", "Asking", "Earlier results stay until the answer arrives."
    if view.error:
        hint = "i asks again, B chooses another binding, 1 shows the health of the bindings."
        return "error", view.error, hint
    if view.answer is None and view.past == ():
        hint = "Write a question above; every result names its source, every question its cost."
        return "empty", "Nothing was asked here yet.", hint
    if view.answer is not None and not view.answer.snippets and not view.waiting:
        hint = "i asks in other words, s widens the scope, h shows earlier questions."
        return "empty", "No record here answers that.", hint
    return None


def card_contents(view: QueryView, state: AppState, width: int) -> list[Content]:
    """Return the cards of the list, `width` cells wide."""
    now = state.clock()
    if view.answer is None:
        return [past_card(one, now, width) for one in view.past or ()]
    words = words_of(view.question)
    return [
        snippet_card(
            rank,
            one,
            words,
            now,
            width=width,
            binding=key if view.is_joined else "",
            said=view.said.get((key, one.handle.provider_record_id), ""),
            changed=(key, one.handle.provider_record_id) in view.changed,
            mark=view.marks.get((key, one.handle.provider_record_id)),
        )
        for rank, (key, one) in enumerate(placed(view.answer), 1)
    ]


def detail_content(view: QueryView, state: AppState, index: int | None, width: int) -> Content:
    """Return a result as on the Records screen, or a past question as on Operations."""
    now, zone = state.clock(), state.zone
    if (snippet := view.snippet(index)) is not None:
        words = words_of(view.question)
        place = placed(view.answer)[index][0] if view.answer and index is not None else ""
        mark = view.marks.get((place, snippet.handle.provider_record_id))
        shown = RecordView(
            snippet, now, zone, mark=mark, prune_key="", words=words, score=snippet.score
        )
        record = record_content(shown, width)
        if not view.is_joined:
            return record
        found = [heading("Found in"), *place_lines(cast("FoundSnippet", snippet))]
        return lines([record, Content(""), joined([found], width)])
    if (past := view.past_at(index)) is not None:
        asked = OperationView(past, now, zone)
        returned = [handles_content(past, width)] if past.handles else []
        return Content("\n\n").join([head(asked, width), *returned, foot(asked, width)])
    return Content("")


def place_lines(snippet: FoundSnippet) -> Iterator[Line]:
    """Yield each binding that returned a text: rank and score there, and its share of the total."""
    for one in snippet.places:
        own = f"rank {one.rank}" + ("" if one.score is None else f", score {fmt.score(one.score)}")
        adds = f"adds {fmt.score(one.share)} by weight {one.weight:g}"
        named = [own, adds, fmt.source_line(one.source), one.handle.provider_record_id]
        yield labelled(one.binding_key, SEPARATOR.join(filter(None, named)))


def cost_content(view: QueryView) -> Content:
    """Return the cost of the question, and of all questions since the app started."""
    answer = view.answer
    if answer is None:
        return Content("")
    used = [row.input_tokens + row.output_tokens + row.embedding_tokens for row in answer.usage]
    cost = "no tokens used"
    if any(used) or any(row.cost_usd for row in answer.usage):
        cost = f"tokens {fmt.tokens(answer.usage)} · {usage_cost(answer.usage)}"
    spent = f"{fmt.counted(view.asked, 'question')} so far"
    if any(row.cost_usd != 0 for row in view.spent):
        spent += f", {usage_cost(view.spent)}"
    asked = fmt.counted(len(answer.bindings), "binding") if view.is_joined else ""
    return line(
        display(f"{cost} · {fmt.duration(answer.latency_ms)}", style=DIM),
        display(asked, style=DIM),
        display(spent if view.asked > 1 else "", style=DIM),
        gap="   ",
    )


def usage_cost(usage: Iterable[Usage]) -> str:
    """Return the cost of some usage, with `unpriced` if a part has no price."""
    rows = list(usage)
    priced = [row.cost_usd for row in rows if row.cost_usd is not None]
    unpriced = len(priced) < len(rows)
    return fmt.money(sum(priced[1:], priced[0]) if priced else None, unpriced=unpriced)


def words_of(query: str) -> frozenset[str]:
    """Return the words of a question to mark in its results: those of three letters or more."""
    return frozenset(word for word in MARKED_WORD.findall(query.casefold()) if len(word) > 2)


def _place_of(stood: Operation | None, past: Sequence[Operation]) -> int:
    """Return the new index of the question that was selected; 0 if it is gone."""
    asked = stood.request.get("query") if stood else None
    return next((n for n, one in enumerate(past) if one.request.get("query") == asked), 0)


def snippet_card(
    rank: int,
    snippet: Snippet,
    words: frozenset[str],
    now: datetime,
    *,
    width: int,
    binding: str = "",
    said: str = "",
    changed: bool = False,
    mark: RiskMark | None = None,
) -> Content:
    """Return the card of a result: rank, score and text, and its origin below.

    `binding`: shown if results of several bindings are listed. `said`: the person's verdict.
    `changed`: it was changed or forgotten since the answer. `mark`: what is known of its risks.
    """
    lead = Content.styled(f"{rank:>3}  {fmt.score(snippet.score):>5}  ", DIM)
    title = display(snippet.title, limit=120, style=STRONG) if snippet.title else None
    shown = below_heading(snippet.shown, snippet.title).strip()
    text = marked(display(_around(shown, words), limit=_TEXT_LIMIT), words)
    body = hanging(lead, line(title, text, gap="  "), width, most=_TEXT_LINES)
    place = display(binding, limit=40, style=ACCENT) if binding else None
    verdict = Content.styled(fmt.VERDICTS[said], ACCENT) if said else None
    stale = Content.styled("≠ changed", WARN) if changed else None
    risk = Content.styled(briefly(mark), WARN if mark.reasons else DIM) if mark else None
    comes_from = line(risk, stale, verdict, place, origin(snippet, now), gap=SEPARATOR)
    below = hanging(Content(" " * lead.cell_length), comes_from, width, most=1)
    return lines([body, below])


def _around(text: str, words: frozenset[str]) -> str:
    """Return the part of a text that begins shortly before the first matching word."""
    found = MARKED_WORD.finditer(text[:_SEARCHED])
    first = next((one.start() for one in found if matches(one[0], words)), 0)
    if first <= _TEXT_LIMIT // 2:
        return text[: 2 * _TEXT_LIMIT]
    start = first - _LEAD
    return "… " + text[start : start + 2 * _TEXT_LIMIT]


def origin(record: Record, now: datetime) -> Content:
    """Return the source, time, author and place of a record, dim and in one line."""
    place = fmt.place_line(record.location) if record.location else ""
    when = fmt.since(record.created_at, now) if record.created_at else ""
    last = fmt.since(record.updated_at, now) if record.updated_at else when
    by = f"by {fmt.author(record.created_by)}" if record.created_by else ""
    form = "summary" if record.summary else ""
    changed = f"changed {last}" if last != when else ""
    parts = [form, fmt.source_line(record.source), f"{when} {by}".strip(), changed, place]
    said = dict.fromkeys(filter(None, parts))  # a file can be source and place at once
    return display(SEPARATOR.join(said), limit=300, style=DIM)


def past_card(operation: Operation, now: datetime, width: int) -> Content:
    """Return the card of a past question: its time, text and number of results."""
    asked, found = str(operation.request.get("query", "")), operation.result_count
    hits = display(fmt.counted(found, "hit"), style=DIM)
    if operation.status is not OperationStatus.OK:
        hits = outcome_words(operation)
    elif not found:
        hits = Content.styled("nothing found", WARN)
    when = Content.styled(f"{fmt.ago(operation.started_at, now):>7}  ", DIM)
    return hanging(when, line(display(asked, limit=200), hits, gap="  "), width, most=2)


def explanation_content(explanation: Explanation, ranks: dict[str, int], width: int) -> Content:
    """Return the stages of a retrieval, with the score that each gave each result."""
    blocks: list[Content] = []
    for number, stage in enumerate(explanation.stages, 1):
        name = Content.styled(f"{number}  ", f"bold {ACCENT}") + display(stage.name, style=STRONG)
        blocks += [name, hanging(Content("   "), display(stage.detail, limit=600), width)]
        scored = sorted(stage.scores.items(), key=lambda pair: -pair[1])
        for record_id, value in scored[:_STAGE_SCORES]:
            rank = f"rank {ranks[record_id]}" if record_id in ranks else ""
            lead = Content.styled(f"   {value:>9.3f}  {rank:<7}  ", DIM)
            blocks.append(hanging(lead, display(record_id, limit=200), width))
        if (more := len(scored) - _STAGE_SCORES) > 0:
            blocks.append(display(f"   and {fmt.counted(more, 'more record')}", style=DIM))
        blocks.append(Content(""))
    return lines(blocks[:-1]) if blocks else display("The provider named no stages.")
