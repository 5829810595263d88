"""What the Query screen shows, as one frozen value, and how each part of it reads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from textual.content import Content

from memtui.contract import Explanation, QueryIntent, QueryRequest, Record, Snippet, Usage
from memtui.screens.scope_choices import FIELDS
from memtui.screens.state import AppState
from memtui.store.operation import Operation, details
from memtui.widgets import format as fmt
from memtui.widgets.detail_lines import pairs
from memtui.widgets.display import ACCENT, DIM, STRONG, WARN, display, hanging, line, lines
from memtui.widgets.panes import State

if TYPE_CHECKING:
    from memtui.service.answers import QueryAnswer

_TEXT_LIMIT = 240
_TEXT_LINES = 3
_SEARCHED = 20_000
_LEAD = 40
_WORD = re.compile(r"[^\W_]+")
_MARK = "bold underline"


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
        f"{word} {value}" for word, field in FIELDS.items() if (value := getattr(scope, field))
    ]
    if state.filter.topic:
        named.append(f"topic {state.filter.topic}")
    found = state.resolution
    binding = f"{found.binding_key}: {found.reason}" if found else state.resolution_problem
    return line(
        display(f"intent {view.intent.value.replace('_', ' ')}"),
        display(f"top {view.top_k}"),
        display(f"in {', '.join(named) or 'the whole company'}", limit=160),
        display(binding, limit=200, style=DIM),
        gap=" · ",
    )


def title_line(view: QueryView, state: AppState) -> Content:
    """Return what the list is: results of a question, or questions asked before."""
    if view.answer is None:
        return display("Asked before · enter asks again", style=DIM) if view.past else Content("")
    found = fmt.counted(len(view.answer.snippets), "result")
    elsewhere = view.request is not None and view.request.scope != state.record_scope
    notes = [
        "more may match" if view.answer.capped else "",
        "asked in another scope" if elsewhere else "",
        fmt.not_read(view.answer.problems),
    ]
    return line(
        display(found, style=STRONG) + display(f" for “{view.question}”", limit=200),
        *(display(note, style=WARN) for note in notes),
        gap=" · ",
    )


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
            ("asked", fmt.exact(past.started_at, state.zone)),
            ("by", past.principal),
            ("found", fmt.counted(past.result_count, "record")),
            ("intent", str(request.get("intent", ""))),
            ("binding", past.binding_key or ""),
            *details(past),
            ("cost", usage_cost(past.usage)),
            ("failed", past.error_message or ""),
        ]
        return lines([head, Content(""), *pairs(facts, width)])
    return Content("")


def cost_content(view: QueryView) -> Content:
    """Return what the question cost, and all of them since the app began."""
    answer = view.answer
    if answer is None:
        return Content("")
    used = [row.input_tokens + row.output_tokens + row.embedding_tokens for row in answer.usage]
    cost = "no tokens used"
    if any(used) or any(row.cost_usd for row in answer.usage):
        cost = f"{fmt.tokens(answer.usage)} · {usage_cost(answer.usage)}"
    spent = f"{fmt.counted(view.asked, 'question')} so far {usage_cost(view.spent)}"
    return line(
        display(f"{cost} · {fmt.duration(answer.latency_ms)}", style=DIM),
        display(f"{answer.binding_key}: {answer.binding_reason}", limit=120, style=DIM),
        display(spent if view.asked > 1 else "", style=DIM),
        gap="   ",
    )


def words_of(query: str) -> frozenset[str]:
    """Return the words of a question that are worth marking in its results."""
    return frozenset(word for word in _WORD.findall(query.casefold()) if len(word) > 2)


def marked(content: Content, words: frozenset[str]) -> Content:
    """Return the content with the words marked that begin as one of `words` does."""
    for found in _WORD.finditer(content.plain):
        if _matches(found[0].casefold(), words):
            content = content.stylize(_MARK, found.start(), found.end())
    return content


def _matches(word: str, words: frozenset[str]) -> bool:
    return any(
        word.startswith(asked) or (len(word) > 3 and asked.startswith(word)) for asked in words
    )


def snippet_card(
    rank: int, snippet: Snippet, words: frozenset[str], now: datetime, width: int
) -> Content:
    """Return one result: rank, score and text, and under it where it comes from."""
    lead = Content.styled(f"{rank:>3}  {fmt.score(snippet.score):>5}  ", DIM)
    title = display(snippet.title, limit=120, style=STRONG) if snippet.title else None
    text = marked(display(_around(snippet.text, words), limit=_TEXT_LIMIT), words)
    body = hanging(lead, line(title, text, gap="  "), width, most=_TEXT_LINES)
    below = hanging(Content(" " * lead.cell_length), origin(snippet, now), width, most=1)
    return lines([body, below])


def _around(text: str, words: frozenset[str]) -> str:
    """Return the part of a text that begins shortly before the first word that matches."""
    head = text[:_SEARCHED]
    first = next((f for f in _WORD.finditer(head) if _matches(f[0].casefold(), words)), None)
    if first is None or first.start() <= _TEXT_LIMIT // 2:
        return text[: 2 * _TEXT_LIMIT]
    start = first.start() - _LEAD
    return "… " + text[start : start + 2 * _TEXT_LIMIT]


def origin(record: Record, now: datetime) -> Content:
    """Return where a record comes from, when and by whom, dim and in one line."""
    place = fmt.place_line(record.location) if record.location else ""
    when = fmt.since(record.created_at, now) if record.created_at else ""
    by = f"by {record.created_by}" if record.created_by else ""
    parts = [fmt.source_line(record.source), f"{when} {by}".strip(), place]
    return display(" · ".join(part for part in parts if part), limit=300, style=DIM)


def past_card(operation: Operation, now: datetime, width: int) -> Content:
    """Return a question asked before: when, what, and how many results it had."""
    asked = str(operation.request.get("query", ""))
    found = operation.result_count
    hits = (
        Content.styled("nothing found", WARN)
        if not found
        else display(fmt.counted(found, "hit"), style=DIM)
    )
    when = Content.styled(f"{fmt.ago(operation.started_at, now):>7}  ", DIM)
    return hanging(when, line(display(asked, limit=200), hits, gap="  "), width, most=2)


def record_detail(
    snippet: Snippet, words: frozenset[str], zone: tzinfo | None, width: int
) -> Content:
    """Return a result in full."""
    valid = ""
    if snippet.valid_from or snippet.valid_to:
        start = fmt.exact(snippet.valid_from, zone) if snippet.valid_from else "the beginning"
        valid = f"{start} to {fmt.exact(snippet.valid_to, zone) if snippet.valid_to else 'now'}"
    facts = [
        ("score", fmt.score(snippet.score)),
        ("source", fmt.source_line(snippet.source)),
        ("file", f"{snippet.location.path}:{snippet.location.line}" if snippet.location else ""),
        ("written", fmt.exact(snippet.created_at, zone) if snippet.created_at else ""),
        ("changed", fmt.exact(snippet.updated_at, zone) if snippet.updated_at else ""),
        ("by", snippet.created_by or ""),
        ("kind", snippet.kind),
        ("topic", snippet.topic or ""),
        ("tags", " ".join(snippet.tags)),
        ("valid", valid),
        ("id", snippet.handle.provider_record_id),
    ]
    head = display(snippet.title, limit=200, style=STRONG) if snippet.title else None
    text = marked(display(snippet.text, keep_newlines=True), words)
    parts = [part for part in (head, text, Content("")) if part is not None]
    return lines([*parts, *pairs(facts, width)])


def usage_cost(usage: Iterable[Usage]) -> str:
    """Return the money of some usage; what has no price is the word `unpriced`."""
    rows = list(usage)
    priced = [row.cost_usd for row in rows if row.cost_usd is not None]
    unpriced = len(priced) < len(rows)
    return fmt.money(sum(priced[1:], priced[0]) if priced else None, unpriced=unpriced)


def explanation_content(explanation: Explanation, ranks: dict[str, int], width: int) -> Content:
    """Return the stages of a retrieval and what each contributed to each result."""
    blocks: list[Content] = []
    for number, stage in enumerate(explanation.stages, 1):
        blocks.append(
            Content.styled(f"{number}  ", f"bold {ACCENT}") + display(stage.name, style=STRONG)
        )
        blocks.append(hanging(Content("   "), display(stage.detail, limit=600), width))
        scored = sorted(stage.scores.items(), key=lambda pair: -pair[1])
        for record_id, value in scored[:20]:
            rank = f"#{ranks[record_id]}" if record_id in ranks else ""
            lead = Content.styled(f"   {value:>9.3f}  {rank:>4}  ", DIM)
            blocks.append(hanging(lead, display(record_id, limit=200), width))
        if len(scored) > 20:
            blocks.append(
                display(
                    f"   and {fmt.counted(len(scored) - 20, 'more record', 'more records')}",
                    style=DIM,
                )
            )
        blocks.append(Content(""))
    return lines(blocks[:-1]) if blocks else display("The provider named no stages.")
