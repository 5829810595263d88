"""The charts of the dashboard, out of its figures."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from memtui.analytics.figures import BY_HAND, FAILED, Figures, Group, HitSign
from memtui.contract import Comparison, Filter, Measure, OperationType
from memtui.screens.analytics.board import Board
from memtui.screens.analytics.period import bucket_label
from memtui.widgets import format as fmt
from memtui.widgets.charts import Chart, Series, Tone

_MOST_PROVIDERS = 3
_HOURS = 25
"""Hours of a day at most."""
_BARS = "█▓▒░"
_TONES: tuple[Tone, ...] = ("primary", "ok", "accent", "secondary")
_NOTES = {HitSign.USED: "a hit was opened later", HitSign.SCORE: "a hit: score ≥ threshold"}
_SHORT = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))


class Plot(NamedTuple):
    """A chart, and which operations it is made of: by a filter, or by SQL where none says it."""

    chart: Chart
    about: Filter = Filter()
    where: str = ""


def plots_of(board: Board) -> tuple[Plot, ...]:
    """Return the charts, the first answers first."""
    queries = Filter(operation_type=OperationType.QUERY)
    return (
        Plot(_operations(board)),
        Plot(_cost(board), _more_than_nothing(Measure.COST)),
        Plot(_latency(board)),
        Plot(_hits(board), queries),
        Plot(_tokens(board), _more_than_nothing(Measure.TOKENS)),
        Plot(_failures(board), where=FAILED),
        Plot(_corrections(board), where=BY_HAND),
    )


def _more_than_nothing(measure: Measure) -> Filter:
    return Filter(comparisons=(Comparison(measure=measure, sign=">", value=Decimal(0)),))


def short_count(value: float) -> str:
    """Return a count for a scale: `850`, `12.2k`."""
    for size, letter in _SHORT:
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"


def unpriced_words(figures: Figures) -> str:
    """Return which share of the calls has no price, or nothing where all have."""
    if not figures.unpriced_count:
        return ""
    share = figures.unpriced_count / figures.usage_count
    return (
        f"{fmt.count(figures.unpriced_count)} of {fmt.counted(figures.usage_count, 'call')} "
        f"({share:.0%}) unpriced, not in it"
    )


def _money(value: float) -> str:
    return fmt.short_money(Decimal(f"{value:.12f}")).removesuffix(".00") if value else "$0"


def _percent(value: float) -> str:
    return f"{value:.0%}"


def _milliseconds(value: float) -> str:
    if value < 60_000:
        return f"{value:.3g} ms" if value < 1_000 else f"{value / 1_000:.3g} s"
    return f"{value / 60_000:.3g} min"


def _labels(board: Board) -> tuple[str, ...]:
    bucket, of_days = board.question.bucket, len(board.buckets) > _HOURS
    return tuple(
        bucket_label(bucket, one.begins, of_days=of_days) for one in board.buckets if one.begins
    )


def _stack(board: Board, *parts: tuple[str, Callable[[Group], float]]) -> tuple[Series, ...]:
    return tuple(
        Series(name, tuple(float(value(one)) for one in board.buckets), tone, marker)
        for (name, value), tone, marker in zip(parts, _TONES, _BARS, strict=False)
    )


def _by(board: Board) -> str:
    return f"by {board.question.bucket}"


def _operations(board: Board) -> Chart:
    return Chart(
        f"Operations {_by(board)}",
        _labels(board),
        _stack(
            board,
            ("queries", lambda one: one.query_count),
            ("writes", lambda one: one.write_count),
            ("other", lambda one: one.operation_count - one.query_count - one.write_count),
        ),
        short_count,
        note=fmt.count(board.stats.operation_count),
    )


def _cost(board: Board) -> Chart:
    totals: dict[str, Decimal] = {}
    spent: dict[tuple[datetime | None, str], Decimal] = {}
    for one in board.spending:
        if one.cost_usd:
            name = one.keys.get("provider") or "no provider"
            totals[name] = totals.get(name, Decimal(0)) + one.cost_usd
            spent[one.begins, name] = one.cost_usd
    ranked = sorted(totals, key=lambda name: (-totals[name], name))
    shown, rest = ranked[:_MOST_PROVIDERS], ranked[_MOST_PROVIDERS:]

    def of(names: list[str]) -> Callable[[Group], float]:
        return lambda group: float(
            sum((spent.get((group.begins, name), Decimal(0)) for name in names), Decimal(0))
        )

    parts = [(name, of([name])) for name in shown]
    if rest:
        parts.append(("others", of(rest)))
    stats, spent_words = board.stats, fmt.short_money(board.stats.cost_usd)
    if stats.unpriced_count:
        spent_words += f"; {stats.unpriced_count / stats.usage_count:.0%} of calls unpriced"
    return Chart(
        f"Cost {_by(board)}",
        _labels(board),
        _stack(board, *parts),
        _money,
        note=spent_words,
        nothing=f"Nothing that has a price was spent. {unpriced_words(stats)}",
    )


def _latency(board: Board) -> Chart:
    return Chart(
        f"Latency {_by(board)}",
        _labels(board),
        (
            Series("p50", tuple(one.latency_ms.p50 for one in board.buckets), "ok", "o"),
            Series("p95", tuple(one.latency_ms.p95 for one in board.buckets), "warn", "+"),
            Series("p99", tuple(one.latency_ms.p99 for one in board.buckets), "bad", "x"),
        ),
        _milliseconds,
        lines=True,
        log=True,
        note=f"±{board.stats.latency_error:.1%}" if board.stats.latency_error else "",
    )


def _hits(board: Board) -> Chart:
    return Chart(
        f"Hit rate {_by(board)}",
        _labels(board),
        (
            Series("hits", tuple(one.hit_rate for one in board.buckets), "ok", "o"),
            Series("empty", tuple(one.empty_query_rate for one in board.buckets), "bad", "x"),
        ),
        _percent,
        lines=True,
        note=_NOTES[board.stats.hit_sign],
        nothing="No query was a hit, and none came back empty.",
    )


def _tokens(board: Board) -> Chart:
    return Chart(
        f"Tokens {_by(board)}",
        _labels(board),
        _stack(
            board,
            ("inference in", lambda one: one.input_tokens),
            ("inference out", lambda one: one.output_tokens),
            ("embedding", lambda one: one.embedding_tokens),
        ),
        short_count,
        nothing="No provider reported tokens.",
    )


def _failures(board: Board) -> Chart:
    failed = tuple(float(one.failure_count) for one in board.buckets)
    return Chart(
        f"Failures {_by(board)}",
        _labels(board),
        (Series("failed", failed, "bad", _BARS[0]),),
        short_count,
        legend=False,
        note=fmt.count(board.stats.failure_count),
        nothing="Nothing failed.",
    )


def _corrections(board: Board) -> Chart:
    corrected = tuple(float(one.correction_count) for one in board.buckets)
    return Chart(
        f"Corrections by hand {_by(board)}",
        _labels(board),
        (Series("corrections", corrected, "accent", _BARS[0]),),
        short_count,
        legend=False,
        note=fmt.count(board.stats.correction_count),
        nothing="Nobody corrected anything by hand.",
    )
