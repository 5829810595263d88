"""Cards: what a query found, what was asked before, and the parts of one result in full."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, tzinfo

from textual.content import Content

from memtui.contract import Explanation, Record, Snippet, Usage
from memtui.store.operation import Operation
from memtui.widgets import format as fmt
from memtui.widgets.display import ACCENT, DIM, STRONG, WARN, display, hanging, line, lines

"""Cells that a sheet over the screen has for its text at most."""

_TEXT_LIMIT = 240
_TEXT_LINES = 3
_SEARCHED = 20_000
_LEAD = 40
_WORD = re.compile(r"[^\W_]+")
_MARK = "bold underline"


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
        ("valid", _validity(snippet, zone)),
        ("id", snippet.handle.provider_record_id),
    ]
    head = display(snippet.title, limit=200, style=STRONG) if snippet.title else None
    text = marked(display(snippet.text, keep_newlines=True), words)
    parts = [part for part in (head, text, Content("")) if part is not None]
    return lines([*parts, *pairs(facts, width)])


def pairs(facts: Iterable[tuple[str, str]], width: int) -> list[Content]:
    """Return names and values as lines `width` cells wide, leaving out what has no value."""
    shown = [(name, value) for name, value in facts if value]
    lead = max((len(name) for name, _ in shown), default=0) + 2
    return [
        hanging(Content.styled(f"{name:<{lead}}", DIM), display(value, limit=1_000), width)
        for name, value in shown
    ]


def _validity(record: Record, zone: tzinfo | None) -> str:
    if record.valid_from is None and record.valid_to is None:
        return ""
    start = fmt.exact(record.valid_from, zone) if record.valid_from else "the beginning"
    end = fmt.exact(record.valid_to, zone) if record.valid_to else "now"
    return f"{start} to {end}"


def answer_cost(usage: tuple[Usage, ...], latency_ms: float) -> Content:
    """Return what a query used: tokens, money, time."""
    took = fmt.duration(latency_ms)
    used = "no tokens used"
    if any(_counts(row) for row in usage):
        used = f"{fmt.tokens(usage)} · {usage_cost(usage)}"
    return display(f"{used} · {took}", style=DIM)


def _counts(row: Usage) -> bool:
    return bool(row.input_tokens or row.output_tokens or row.embedding_tokens or row.cost_usd)


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
