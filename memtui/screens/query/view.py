"""What the Query screen shows, as one frozen value, and how each part of it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.content import Content

from memtui.contract import QueryIntent, QueryRequest, Snippet, Usage
from memtui.screens.state import AppState
from memtui.widgets.cards import (
    answer_cost,
    pairs,
    past_card,
    record_detail,
    snippet_card,
    usage_cost,
    words_of,
)
from memtui.widgets.display import DIM, STRONG, WARN, display, line, lines
from memtui.widgets.format import counted, exact, not_read
from memtui.widgets.panes import State

if TYPE_CHECKING:
    from memtui.service.answers import QueryAnswer
    from memtui.store.operation import Operation

SCOPE_WORDS = {
    "project": "project_id",
    "agent": "agent_id",
    "subject": "subject_id",
    "issue": "issue_id",
    "run": "run_id",
}


@dataclass(frozen=True, slots=True)
class QueryView:
    """The question being set up, the answer to the last one, and those asked before."""

    intent: QueryIntent = QueryIntent.ANSWER
    top_k: int = 10
    request: QueryRequest | None = None
    answer: QueryAnswer | None = None
    """The answer that is shown; None while the past questions are."""
    past: tuple[Operation, ...] = ()
    asking: bool = False
    error: str = ""
    asked: int = 0
    """Questions asked since the app began."""
    spent: tuple[Usage, ...] = ()
    """What they used together."""

    @property
    def question(self) -> str:
        """The question that the answer is for."""
        return self.request.query if self.request else ""

    def snippet(self, index: int | None) -> Snippet | None:
        """Return a result by its place in the list."""
        snippets = self.answer.snippets if self.answer else ()
        return snippets[index] if index is not None and index < len(snippets) else None

    def past_at(self, index: int | None) -> Operation | None:
        """Return a past question by its place in the list."""
        if self.answer is not None or index is None or index >= len(self.past):
            return None
        return self.past[index]


def options_line(view: QueryView, state: AppState) -> Content:
    """Return intent, top-k, scope, and the binding with the reason it was chosen."""
    scope = state.record_scope
    named = [
        f"{word} {value}" for word, field in SCOPE_WORDS.items() if (value := getattr(scope, field))
    ]
    if state.filter.topic:
        named.append(f"topic {state.filter.topic}")
    where = ", ".join(named) or "the whole company"
    found = state.resolution
    binding = f"{found.binding_key}: {found.reason}" if found else state.resolution_problem
    return line(
        display(f"intent {view.intent.value.replace('_', ' ')}"),
        display(f"top {view.top_k}"),
        display(f"in {where}", limit=160),
        display(binding, limit=200, style=DIM),
        gap=" · ",
    )


def title_line(view: QueryView, state: AppState) -> Content:
    """Return what the list is: results of a question, or questions asked before."""
    if view.answer is None:
        return display("Asked before · enter asks again", style=DIM) if view.past else Content("")
    found = counted(len(view.answer.snippets), "result")
    notes = [
        "more may match" if view.answer.capped else "",
        "asked in another scope" if _elsewhere(view, state) else "",
        not_read(view.answer.problems),
    ]
    return line(
        display(found, style=STRONG) + display(f" for “{view.question}”", limit=200),
        *(display(note, style=WARN) for note in notes),
        gap=" · ",
    )


def _elsewhere(view: QueryView, state: AppState) -> bool:
    return view.request is not None and view.request.scope != state.record_scope


def state_of(view: QueryView) -> tuple[State, str, str] | None:
    """Return the state to show instead of rows, or above them; None where rows speak."""
    if view.asking:
        return "loading", "Asking", "The results before stay until the answer is there."
    if view.error:
        hint = "i asks again, B chooses another binding, 1 shows how the bindings are."
        return "error", view.error, hint
    if view.answer is None and not view.past:
        hint = "Write a question above; every result names its source, every question its cost."
        return "empty", "Nothing was asked here yet.", hint
    if view.answer is not None and not view.answer.snippets:
        hint = "i asks in other words, s widens the scope, h shows earlier questions."
        return "empty", "No memory here answers that.", hint
    return None


def card_contents(view: QueryView, state: AppState, width: int) -> list[Content]:
    """Return the cards of the list, `width` cells wide."""
    now = state.clock()
    if view.answer is None:
        return [past_card(one, now, width) for one in view.past]
    words = words_of(view.question)
    return [
        snippet_card(rank, one, words, now, width)
        for rank, one in enumerate(view.answer.snippets, 1)
    ]


def detail_content(view: QueryView, state: AppState, index: int | None, width: int) -> Content:
    """Return the highlighted result, or past question, in full."""
    if (snippet := view.snippet(index)) is not None:
        return record_detail(snippet, words_of(view.question), state.zone, width)
    if (past := view.past_at(index)) is not None:
        request = past.request
        head = display(str(request.get("query", "")), style=STRONG, keep_newlines=True)
        facts = [
            ("asked", exact(past.started_at, state.zone)),
            ("by", past.principal),
            ("found", counted(past.result_count, "record")),
            ("intent", str(request.get("intent", ""))),
            ("binding", past.binding_key or ""),
            ("why", past.binding_reason or ""),
            ("cost", usage_cost(past.usage)),
            ("failed", past.error_message or ""),
        ]
        return lines([head, Content(""), *pairs(facts, width)])
    return Content("")


def cost_content(view: QueryView) -> Content:
    """Return what the question cost, and all of them since the app began."""
    if view.answer is None:
        return Content("")
    parts = [
        answer_cost(view.answer.usage, view.answer.latency_ms),
        display(f"{view.answer.binding_key}: {view.answer.binding_reason}", limit=120, style=DIM),
    ]
    if view.asked > 1:
        spent = f"{counted(view.asked, 'question')} so far {usage_cost(view.spent)}"
        parts.append(display(spent, style=DIM))
    return line(*parts, gap="   ")
