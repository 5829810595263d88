"""The inside of a chart, drawn by plotext cell by cell in the theme's own colours."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from textual.content import Content

from memtui.widgets.charts import STYLES, Chart, Tone

_TONES: tuple[Tone, ...] = ("bad", "ok", "warn", "primary", "accent", "secondary")
_COLORS: dict[Tone, int] = {tone: number for number, tone in enumerate(_TONES, start=1)}
"""plotext knows the terminal's colours by number; they stand for the theme's here."""

_LEAST_VALUE = 0.001
"""What is drawn for less on a logarithmic scale."""
_EIGHTHS = " ▁▂▃▄▅▆▇"
_ROUND = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)
"""What a scale ends at, times a power of ten, so that its half is a short number too."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to the share of the height that they stand at; `low` and `high` are values."""

    low: float
    high: float
    log: bool = False
    bars: bool = False
    """Whether a value is the upper edge of a line of cells, not its middle."""

    def share(self, value: float) -> float:
        """Return how high a value is, from 0 to 1."""
        if self.log:
            low, high = math.log10(self.low), math.log10(self.high)
            return (math.log10(max(value, _LEAST_VALUE)) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)

    def marks(self, rows: int) -> Iterator[tuple[int, float]]:
        """Yield the rows from above, and the round value that each is named by."""
        taken: set[int] = set()
        for value in self._round_values():
            row = self._row(value, rows)
            if not taken & {row - 1, row, row + 1}:
                taken.add(row)
                yield row, value

    def _row(self, value: float, rows: int) -> int:
        share = self.share(value)
        if not self.bars:
            return round((1 - share) * (rows - 1))
        return min(rows - 1, rows - round(share * rows) - (value <= 0))

    def _round_values(self) -> list[float]:
        if not self.log:
            return [self.high, self.low, *([0.0] if self.low < 0 else []), self.high / 2]
        first, last = round(math.log10(self.low)), math.floor(math.log10(self.high))
        return [self.high, *(10.0**power for power in range(first, last + 1))]


def scale_of(chart: Chart) -> Scale:
    """Return a scale on which everything has room, from zero unless it is logarithmic."""
    values = [value for one in chart.series for value in one.values if value is not None]
    if chart.log:
        low = 10.0 ** math.floor(math.log10(max(min(values), _LEAST_VALUE)))
        return Scale(low, max(_rounded_up(max(values)), low * 10), log=True)
    if chart.lines:
        low, high = min(0.0, *values), max(0.0, *values, chart.limit or 0.0)
    else:
        columns = list(zip(*(one.values for one in chart.series), strict=True))
        low = min(sum(value for value in column if value and value < 0) for column in columns)
        high = max(sum(value for value in column if value and value > 0) for column in columns)
    top = _rounded_up(high) or (0.0 if low else 1.0)
    return Scale(0.0 - _rounded_up(-low), top, bars=not chart.lines)


def _rounded_up(value: float) -> float:
    if value <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(value) + 1e-9)
    return next(one for one in _ROUND if one * power >= value * (1 - 1e-9)) * power


@lru_cache(maxsize=64)
def canvas(chart: Chart, first: int, shown: int, cells: int, rows: int) -> tuple[Content, ...]:
    """Draw buckets of a chart, `cells` wide each; kept, for another may be selected next."""
    import plotext
    from rich.text import Text

    width = shown * cells
    plotext.clear_figure()  # plotext has one figure; nothing else runs between here and `build`
    plotext.theme("clear")
    plotext.limit_size(False, False)  # noqa: FBT003 - plotext's own signature
    plotext.plotsize(width, rows)
    plotext.frame(False)  # noqa: FBT003 - plotext's own signature
    plotext.xticks([], [])
    plotext.yticks([], [])
    plotext.xlim(0, max(1, width - 1))
    plotext.ylim(0, max(1, rows - 1))
    scale = scale_of(chart)
    if chart.limit is not None:
        height = scale.share(chart.limit) * (rows - 1)
        plotext.plot([0, width - 1], [height] * 2, marker="-", color=_COLORS["warn"])
    if chart.lines:
        _lines(plotext, chart, range(first, first + shown), cells, rows)
    else:
        _bars(plotext, chart, range(first, first + shown), cells, rows)
    drawn = list(_themed(Text.from_ansi(plotext.build())).split("\n", include_separator=False))
    return (*drawn[:rows], *[Content(" " * width)] * (rows - len(drawn)))


def _lines(plotext: Any, chart: Chart, buckets: range, cells: int, rows: int) -> None:
    scale = scale_of(chart)
    for series in chart.series:
        known = [
            (place * cells + (cells - 1) // 2, scale.share(value) * (rows - 1))
            for place, value in enumerate(series.values[buckets.start : buckets.stop])
            if value is not None
        ]
        xs, ys = [x for x, _ in known], [y for _, y in known]
        color = _COLORS[series.tone]
        if len(xs) > 1:
            plotext.plot(xs, ys, marker="braille", color=color)
        marked = slice(None) if cells > 1 else slice(-1, None)
        if xs:
            plotext.scatter(xs[marked], ys[marked], marker=series.marker, color=color)


def _bars(plotext: Any, chart: Chart, buckets: range, cells: int, rows: int) -> None:
    """Fill whole cells with the markers of the series, and the highest one by eighths."""
    drawn: dict[tuple[str, Tone], list[tuple[int, int]]] = defaultdict(list)
    scale = scale_of(chart)
    wide = max(1, cells - 1)
    for place, index in enumerate(buckets):
        for marker, tone, row in _column(chart, index, scale, rows):
            drawn[marker, tone].extend((place * cells + cell, row) for cell in range(wide))
    for (marker, tone), points in drawn.items():
        xs, ys = zip(*points, strict=True)
        plotext.scatter(list(xs), list(ys), marker=marker, color=_COLORS[tone])


def _column(chart: Chart, index: int, scale: Scale, rows: int) -> Iterator[tuple[str, Tone, int]]:
    """Yield marker, tone and row from below of every cell of a bucket's bars."""
    zero = round(scale.share(0.0) * rows)
    there = [(one, value) for one in chart.series if (value := one.values[index])]
    rising = [(one, value) for one, value in there if value > 0]
    top = zero + sum(value for _, value in rising) / (scale.high - scale.low) * rows
    whole, start, height = int(top + 1e-6), zero, float(zero)
    for number, (series, value) in enumerate(rising, start=1):
        height += value / (scale.high - scale.low) * rows
        end = whole if number == len(rising) else min(whole, round(height))
        for row in range(start, end):
            yield series.marker, series.tone, row
        start = max(start, end)
    if rising:
        eighths = round((top - whole) * 8) or int(whole == zero)
        if eighths == 8:
            yield rising[-1][0].marker, rising[-1][0].tone, whole
        elif eighths:
            yield _EIGHTHS[eighths], rising[-1][0].tone, whole
    below = zero
    for series, value in there:
        if value < 0:
            end = max(0, below - max(1, round(-value / (scale.high - scale.low) * rows)))
            for row in range(end, below):
                yield series.marker, series.tone, row
            below = end


def _themed(drawn: Any) -> Content:
    """Return plotext's text with the theme's colours in place of the terminal's."""
    styled = Content(drawn.plain.rstrip("\n"))
    for span in drawn.spans:
        color = getattr(span.style, "color", None)
        number = getattr(color, "number", None)
        if number is not None and 1 <= number <= len(_TONES):
            styled = styled.stylize(STYLES[_TONES[number - 1]], span.start, span.end)
    return styled
