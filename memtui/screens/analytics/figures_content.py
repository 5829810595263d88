"""The figures of the whole, of a bucket or of a group, in words."""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content

from memtui.analytics.figures import Figures, HitSign
from memtui.screens.analytics.board import SIGN_WORDS
from memtui.screens.analytics.plots import short_count, unpriced_words
from memtui.widgets import format as fmt
from memtui.widgets.detail_lines import SEPARATOR, Line, heading, joined, key_hint, labelled
from memtui.widgets.display import BAD, DIM, WARN, display, line, lines

_SIGNS = {HitSign.USED: "used", HitSign.SCORE: "by score"}


@dataclass(frozen=True, slots=True)
class Selected:
    """What is selected: its figures, what it is called, and what `enter` does with it."""

    title: str
    figures: Figures
    note: str = ""
    hint: str = ""


def figures_content(selected: Selected, sign: HitSign, width: int, *, short: bool) -> Content:
    """Return every figure of what is selected, in few lines where it has to be short."""
    return _short(selected, sign) if short else _whole(selected, sign, width)


def _short(selected: Selected, sign: HitSign) -> Content:
    one = selected.figures
    writes = fmt.counted(one.write_count, "write")
    priced = one.usage_count - one.unpriced_count
    unpriced = f"{one.unpriced_count / one.usage_count:.0%} of calls" if priced else "all calls"
    tokens = (
        (one.input_tokens, "in"),
        (one.output_tokens, "out"),
        (one.embedding_tokens, "embedded"),
    )
    return lines(
        [
            heading(selected.title, fmt.counted(one.operation_count, "operation")),
            display(SEPARATOR.join([fmt.counted(one.query_count, "query", "queries"), writes])),
            _ended(one),
            line(
                fmt.short_money(one.cost_usd) if one.cost_usd else "nothing priced",
                display(f"{unpriced} unpriced" if one.unpriced_count else "", style=WARN),
                gap="; ",
            ),
            display(f"hits {_share(one.hit_rate)} ({_SIGNS[sign]})")
            + display(f"{SEPARATOR}empty {_share(one.empty_query_rate)}"),
            display(_latency(one)),
            display(SEPARATOR.join(f"{short_count(count)} {word}" for count, word in tokens)),
            line(
                f"corrected by hand {fmt.count(one.correction_count)}",
                key_hint("enter", selected.hint) if selected.hint else None,
                gap="   ",
            ),
        ]
    )


def _whole(selected: Selected, sign: HitSign, width: int) -> Content:
    one = selected.figures
    others = one.operation_count - one.query_count - one.write_count
    sorts = (
        fmt.counted(one.query_count, "query", "queries"),
        fmt.counted(one.write_count, "write"),
        f"{fmt.count(others)} other",
    )
    inference = f"{fmt.count(one.input_tokens)} in · {fmt.count(one.output_tokens)} out"
    answered = f"of {fmt.count(one.answered_count)} answered"
    block: list[Line] = [
        heading(selected.title, selected.note),
        labelled("did", display(fmt.counted(one.operation_count, "operation"))),
        labelled("", _dim(SEPARATOR.join(sorts))),
        labelled("ended", _ended(one)),
        labelled("cost", _cost(one)),
        labelled("inference", f"{inference} tokens"),
        labelled("embedding", f"{fmt.count(one.embedding_tokens)} tokens"),
        labelled("latency", _latency(one)),
        labelled("hit rate", line(_share(one.hit_rate), _dim(SIGN_WORDS[sign]), gap="  ")),
        labelled("empty", line(_share(one.empty_query_rate), _dim(answered), gap="  ")),
        labelled("corrected", line(fmt.count(one.correction_count), _dim("by people"), gap="  ")),
    ]
    if selected.hint:
        block.append(key_hint("enter", selected.hint))
    return joined([block], width)


def _ended(figures: Figures) -> Content:
    failed = f"✗ {fmt.count(figures.failure_count)} failed"
    stopped = figures.cancelled_count
    return line(
        f"✓ {fmt.count(figures.success_count)} ok",
        display(failed, style=BAD if figures.failure_count else ""),
        display(f"■ {fmt.count(stopped)} cancelled" if stopped else "", style=DIM),
        gap="  ",
    )


def _cost(figures: Figures) -> Content:
    unpriced = unpriced_words(figures)
    paid = fmt.short_money(figures.cost_usd) if figures.cost_usd else "nothing priced"
    return line(paid, display(unpriced, style=WARN), gap="; ")


def _latency(figures: Figures) -> str:
    one = figures.latency_ms
    shares = (("p50", one.p50), ("p95", one.p95), ("p99", one.p99))
    return SEPARATOR.join(f"{name} {fmt.duration(value)}" for name, value in shares)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _dim(words: str) -> Content:
    return display(words, style=DIM)
