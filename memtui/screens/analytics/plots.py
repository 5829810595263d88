"""The figures of a board as charts, and the figures of the selection in words."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from textual.content import Content

from memtui.analytics.figures import BY_HAND, FAILED, FigureGroup, Figures, HitSign
from memtui.contract import Comparison, Filter, Measure, OperationType
from memtui.presenters import format as fmt
from memtui.screens.analytics.board import Board, bucket_label
from memtui.widgets.charts import Chart, Series, Tone
from memtui.widgets.detail_lines import (
    LABEL_CELLS,
    SEPARATOR,
    Line,
    heading,
    joined,
    key_hint,
    labelled,
    spread,
)
from memtui.widgets.display import BAD, DIM, WARN, display, line, lines

_MOST_PROVIDERS = 3
_HOURS = 25
"""Most hours of a day: at the end of daylight saving time."""
_BARS = "█▓▒░"
_TONES: tuple[Tone, ...] = ("primary", "ok", "accent", "secondary")
_NOTES = {HitSign.USED: "a hit was opened later", HitSign.SCORE: "a hit: score ≥ threshold"}
_SIGNS = {HitSign.USED: "used", HitSign.SCORE: "by score"}
_SIGN_WORDS = {
    HitSign.USED: "share of queries whose record was opened later",
    HitSign.SCORE: "share of queries with a score ≥ threshold",
}
Scale = Callable[[float], str]
"""Formats a value of an axis."""

_SHORT = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))


class Plot(NamedTuple):
    """A chart, and its operations: as a filter, or as an SQL condition if no filter can."""

    chart: Chart
    about: Filter = Filter()
    where: str = ""


def plots_of(board: Board) -> tuple[Plot, ...]:
    """Return the charts of the dashboard, the most important first."""
    bucket, stats = board.question.bucket, board.stats
    of_days = len(board.buckets) > _HOURS
    labels = tuple(
        bucket_label(bucket, one.begins, of_days=of_days) for one in board.buckets if one.begins
    )

    def plot(
        title: str,
        series: Sequence[Series],
        scale: Scale,
        about: Filter | None = None,
        where: str = "",
        **how: Any,
    ) -> Plot:
        chart = Chart(f"{title} by {bucket}", labels, tuple(series), scale, **how)
        return Plot(chart, about or Filter(), where)

    def of(name: str, value: Callable[[FigureGroup], Any], tone: Tone, marker: str) -> Series:
        return Series(name, tuple(map(value, board.buckets)), tone, marker)

    def stack(*parts: tuple[str, Callable[[FigureGroup], float]]) -> list[Series]:
        shown = zip(parts, _TONES, _BARS, strict=False)
        return [
            of(name, lambda one, value=value: float(value(one)), tone, marker)  # type: ignore[misc]
            for (name, value), tone, marker in shown
        ]

    spent = fmt.short_money(stats.priced_usd)
    if stats.unpriced_count:
        spent += f"; {stats.unpriced_count / stats.usage_count:.0%} of calls unpriced"
    return (
        plot(
            "Operations",
            stack(
                ("queries", lambda one: one.query_count),
                ("writes", lambda one: one.write_count),
                ("other", lambda one: one.operation_count - one.query_count - one.write_count),
            ),
            short_count,
            note=fmt.count(stats.operation_count),
        ),
        plot(
            "Cost",
            stack(*_spending(board)),
            _money,
            _more_than_nothing(Measure.COST),
            note=spent,
            nothing=f"No cost in this period. {unpriced_words(stats)}",
        ),
        plot(
            "Latency",
            (
                of("p50", lambda one: one.latency_ms.p50, "ok", "o"),
                of("p95", lambda one: one.latency_ms.p95, "primary", "+"),
                of("p99", lambda one: one.latency_ms.p99, "bad", "x"),
            ),
            _milliseconds,
            lines=True,
            log=True,
            note=f"±{stats.latency_error:.1%}" if stats.latency_error else "",
        ),
        plot(
            "Hit rate",
            (
                of("hits", lambda one: one.hit_rate, "ok", "o"),
                of("empty", lambda one: one.empty_query_rate, "bad", "x"),
            ),
            lambda value: f"{value:.0%}",
            Filter(operation_type=OperationType.QUERY),
            lines=True,
            note=_NOTES[stats.hit_sign],
            nothing="No query was a hit, and none came back empty.",
        ),
        plot(
            "Tokens",
            stack(
                ("inference in", lambda one: one.input_tokens),
                ("inference out", lambda one: one.output_tokens),
                ("embedding", lambda one: one.embedding_tokens),
            ),
            short_count,
            _more_than_nothing(Measure.TOKENS),
            nothing="No provider reported tokens.",
        ),
        plot(
            "Failures",
            (of("failed", lambda one: float(one.failure_count), "bad", _BARS[0]),),
            short_count,
            legend=False,
            note=fmt.count(stats.failure_count),
            nothing="Nothing failed.",
            where=FAILED,
        ),
        plot(
            "Corrections by hand",
            (of("corrections", lambda one: float(one.correction_count), "accent", _BARS[0]),),
            short_count,
            legend=False,
            note=fmt.count(stats.correction_count),
            nothing="Nobody corrected anything by hand.",
            where=BY_HAND,
        ),
    )


def _spending(board: Board) -> list[tuple[str, Callable[[FigureGroup], float]]]:
    """Return the cost of each of the most expensive providers, and of all others together."""
    paid = [(one.keys.get("provider") or "no provider", one) for one in board.spending]
    totals: dict[str, Decimal] = defaultdict(Decimal)
    for name, one in paid:
        totals[name] += one.cost_usd
    ranked = sorted(filter(totals.get, totals), key=lambda name: (-totals[name], name))
    shown = ranked[:_MOST_PROVIDERS]
    spent: dict[str, dict[datetime | None, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    for name, one in paid:
        spent[name if name in shown else "others"][one.begins] += one.cost_usd

    def of(name: str) -> Callable[[FigureGroup], float]:
        return lambda group: float(spent[name][group.begins])

    others = ["others"] if len(ranked) > len(shown) else []
    return [(name, of(name)) for name in [*shown, *others]]


def _more_than_nothing(measure: Measure) -> Filter:
    return Filter(comparisons=(Comparison(measure=measure, sign=">", value=Decimal(0)),))


def short_count(value: float) -> str:
    """Return a count for a scale: `850`, `12.2k`; empty for a fraction."""
    for size, letter in _SHORT:
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.0f}" if value == round(value) else ""


def unpriced_words(figures: Figures) -> str:
    """Return the share of calls without a price; empty: all have one."""
    if not figures.unpriced_count:
        return ""
    share = figures.unpriced_count / figures.usage_count
    return (
        f"{fmt.count(figures.unpriced_count)} of {fmt.counted(figures.usage_count, 'call')} "
        f"({share:.0%}) unpriced, not in it"
    )


def _money(value: float) -> str:
    return fmt.short_money(Decimal(f"{value:.12f}")).removesuffix(".00") if value else "$0"


def _milliseconds(value: float) -> str:
    if value < 60_000:
        return f"{value:.3g} ms" if value < 1_000 else f"{value / 1_000:.3g} s"
    return f"{value / 60_000:.3g} min"


@dataclass(frozen=True, slots=True)
class Selected:
    """The selection: its title and figures; `hint` is what `enter` does."""

    title: str
    figures: Figures
    note: str = ""
    hint: str = ""
    risks: str = ""
    """How many of all memories are risky; empty: not known, or of a part only."""


def figures_content(selected: Selected, sign: HitSign, width: int, *, short: bool) -> Content:
    """Return the figures of the selection; with `short`, in fewer lines."""
    return _short(selected, sign, width) if short else _whole(selected, sign, width)


def _short(selected: Selected, sign: HitSign, width: int) -> Content:
    one = selected.figures
    writes = fmt.counted(one.write_count, "write")
    priced = one.usage_count - one.unpriced_count
    unpriced = f"{one.unpriced_count / one.usage_count:.0%} of calls" if priced else "all calls"
    tokens = (
        (one.input_tokens, "in"),
        (one.output_tokens, "out"),
        (one.embedding_tokens, "embedded"),
    )
    spent = [f"{short_count(count)} {word}" for count, word in tokens if count] or ["none"]
    return lines(
        [
            heading(selected.title, fmt.counted(one.operation_count, "operation")),
            display(SEPARATOR.join([fmt.counted(one.query_count, "query", "queries"), writes])),
            _ended(one),
            _cost(one, f"{unpriced} unpriced" if one.unpriced_count else ""),
            display(f"hits {_share(one.hit_rate)} ({_SIGNS[sign]})")
            + display(f"{SEPARATOR}empty {_share(one.empty_query_rate)}"),
            _parts(_latency(one), width),
            _parts(["tokens " + spent[0], *spent[1:]], width),
            display(f"corrected by hand {fmt.count(one.correction_count)}"),
            *([display(f"risks {selected.risks}", limit=300)] if selected.risks else []),
            *([key_hint("enter", selected.hint)] if selected.hint else []),
        ]
    )


def _whole(selected: Selected, sign: HitSign, width: int) -> Content:
    one = selected.figures
    room = width - LABEL_CELLS - 1
    others = one.operation_count - one.query_count - one.write_count - _waiting(one)
    sorts = (
        fmt.counted(one.query_count, "query", "queries"),
        fmt.counted(one.write_count, "write"),
        f"{fmt.count(others)} other",
        *([f"{fmt.count(_waiting(one))} held for review"] if _waiting(one) else []),
    )
    inference = f"{fmt.count(one.input_tokens)} in · {fmt.count(one.output_tokens)} out"
    answered = f"of {fmt.count(one.answered_count)} answered"
    block: list[Line] = [
        heading(selected.title, selected.note),
        labelled("did", display(fmt.counted(one.operation_count, "operation"))),
        labelled("", _parts(sorts, room, DIM)),
        labelled("ended", _ended(one)),
        labelled("cost", _cost(one, unpriced_words(one))),
        labelled("inference", f"{inference} tokens"),
        labelled("embedding", f"{fmt.count(one.embedding_tokens)} tokens"),
        labelled("latency", _parts(_latency(one), room)),
        labelled("hit rate", line(_share(one.hit_rate), _dim(_SIGN_WORDS[sign]), gap="  ")),
        labelled("empty", line(_share(one.empty_query_rate), _dim(answered), gap="  ")),
        labelled("helped", _helped(one)),
        labelled("corrected", line(fmt.count(one.correction_count), _dim("by people"), gap="  ")),
        labelled("risks", display(selected.risks, limit=300)),
    ]
    if selected.hint:
        block.append(key_hint("enter", selected.hint))
    return joined([block], width)


def _helped(figures: Figures) -> Content | None:
    said = figures.helped_count + figures.not_helped_count
    if not said:
        return None
    judged = f"of {fmt.counted(said, 'result')} that somebody judged"
    return line(_share(figures.helped_rate), _dim(judged), gap="  ")


def _waiting(figures: Figures) -> int:
    """Return the number of operations with writes that await review."""
    ended = figures.success_count + figures.failure_count + figures.cancelled_count
    return max(0, figures.operation_count - ended)


def _ended(figures: Figures) -> Content:
    failed = f"✗ {fmt.count(figures.failure_count)} failed"
    stopped = figures.cancelled_count
    return line(
        f"✓ {fmt.count(figures.success_count)} ok",
        display(failed, style=BAD if figures.failure_count else ""),
        display(f"■ {fmt.count(stopped)} cancelled" if stopped else "", style=DIM),
        display(f"◔ {fmt.count(_waiting(figures))} held" if _waiting(figures) else "", style=WARN),
        gap="  ",
    )


def _cost(figures: Figures, unpriced: str) -> Content:
    if not figures.usage_count:
        return line("nothing was consumed")
    if figures.unpriced_count == figures.usage_count:
        return line("nothing priced", display(unpriced, style=WARN), gap="; ")
    paid = fmt.short_money(figures.cost_usd)
    pricing = display(unpriced, style=WARN) if unpriced else display("every call priced", style=DIM)
    return line(paid, pricing, gap="; ")


def _parts(parts: Iterable[str], room: int, style: str = "") -> Content:
    return spread((display(part, style=style) for part in parts), room, SEPARATOR)


def _latency(figures: Figures) -> Iterator[str]:
    one = figures.latency_ms
    shares = (("p50", one.p50), ("p95", one.p95), ("p99", one.p99))
    return (f"{name} {fmt.duration(value)}" for name, value in shares)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _dim(words: str) -> Content:
    return display(words, style=DIM)
