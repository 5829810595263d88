"""The figures of the whole, of a bucket or of a group, in words."""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content

from memtui.analytics.figures import Figures, HitSign
from memtui.screens.analytics.board import SIGN_WORDS
from memtui.screens.analytics.plots import unpriced_words
from memtui.widgets import format as fmt
from memtui.widgets.detail_lines import Line, heading, joined, key_hint, labelled
from memtui.widgets.display import BAD, DIM, WARN, display, line


@dataclass(frozen=True, slots=True)
class Selected:
    """What is selected: its figures, what it is called, and what `enter` does with it."""

    title: str
    figures: Figures
    note: str = ""
    hint: str = ""


def figures_content(selected: Selected, sign: HitSign, width: int) -> Content:
    """Return every figure of what is selected."""
    one = selected.figures
    others = one.operation_count - one.query_count - one.write_count
    sorts = (
        fmt.counted(one.query_count, "query", "queries"),
        fmt.counted(one.write_count, "write"),
        f"{fmt.count(others)} other",
    )
    failed = f"✗ {fmt.count(one.failure_count)} failed"
    ended = display(failed, style=BAD if one.failure_count else "")
    inference = f"{fmt.count(one.input_tokens)} in · {fmt.count(one.output_tokens)} out"
    answered = f"of {fmt.count(one.answered_count)} answered"
    block: list[Line] = [
        heading(selected.title, selected.note),
        labelled("did", display(fmt.counted(one.operation_count, "operation"))),
        labelled("", display(" · ".join(sorts), style=DIM)),
        labelled("ended", line(f"✓ {fmt.count(one.success_count)} ok", ended, gap="  ")),
        labelled("cost", _cost(one)),
        labelled("inference", f"{inference} tokens"),
        labelled("embedding", f"{fmt.count(one.embedding_tokens)} tokens"),
        labelled("latency", _latency(one)),
        labelled("hit rate", _rate(one.hit_rate, SIGN_WORDS[sign])),
        labelled("empty", _rate(one.empty_query_rate, answered)),
        labelled("corrected", fmt.count(one.correction_count)),
    ]
    if selected.hint:
        block.append(key_hint("enter", selected.hint))
    return joined([block], width)


def _cost(figures: Figures) -> Content:
    unpriced = unpriced_words(figures)
    paid = fmt.money(figures.cost_usd) if figures.cost_usd else "nothing priced"
    return line(paid, display(unpriced, style=WARN), gap="; ")


def _latency(figures: Figures) -> str:
    one = figures.latency_ms
    shares = (("p50", one.p50), ("p95", one.p95), ("p99", one.p99))
    return " · ".join(f"{name} {fmt.duration(value)}" for name, value in shares)


def _rate(value: float | None, words: str) -> Content:
    shown = "–" if value is None else f"{value:.1%}"
    return display(shown) + display(f"  {words}", style=DIM)
