"""Charts over buckets of time; each bucket has its cells, so that one can be pointed at.

plotext draws lines; this module adds title, scale, axis and the selected bucket. Series differ in
their markers, never in colour alone.

Bars are drawn here, for plotext's end at whole cells or use signs that many fonts lack. plotext
also stacks negative values onto positive ones, leaves no gap between bars, draws no bar for a
small value, and draws a one-line bar only with an axis.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from textual.content import Content
from textual.widgets import Static

from memtui.presenters.format import count
from memtui.widgets.display import (
    ACCENT,
    BAD,
    DIM,
    OK,
    PRIMARY,
    SECONDARY,
    STRONG,
    WARN,
    display,
    line,
    lines,
)

Tone = Literal["primary", "secondary", "accent", "ok", "warn", "bad"]

STYLES: dict[Tone, str] = {
    "primary": PRIMARY,
    "secondary": SECONDARY,
    "accent": ACCENT,
    "ok": OK,
    "warn": WARN,
    "bad": BAD,
}
LEAST_LINES = 6
_LEAST_CELLS = 20
_WIDEST = 8
"""Most cells of a bucket."""
_GUTTER = 9
"""Least cells of the scale, so that charts below each other align."""
_BETWEEN = 4
"""Least cells from the end of one axis label to the next."""
_COLORS: dict[Tone, int] = {tone: number for number, tone in enumerate(STYLES, start=1)}
"""plotext takes colours by number; `_lines` replaces them by the theme's styles."""
_ESCAPE = re.compile(r"\x1b\[([\d;]*)m")

_LEAST_VALUE = 0.001
"""A smaller value is drawn as this one on a logarithmic scale."""
_EIGHTHS = " ▁▂▃▄▅▆▇"
_ROUND = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)
"""A scale ends at one of these times a power of ten, so that half of it is short to write."""
FULL, EMPTY, OVER = "▓", "░", "▲"
_NEARLY = 0.9
_SPARKS = "▁▂▃▄▅▆▇█"


def plain_count(value: float) -> str:
    """Return a count for a scale: `850`, `1,200`; empty for a fraction."""
    return f"{value:,.0f}" if value == round(value) else ""


@dataclass(frozen=True, slots=True)
class Series:
    """A value for each bucket; `marker` distinguishes the series without colour."""

    name: str
    values: tuple[float | None, ...]
    tone: Tone
    marker: str


@dataclass(frozen=True, slots=True)
class Chart:
    """The content of a chart.

    Bars are stacked, the first series at the bottom; negative ones hang from zero. Lines are not
    stacked.
    """

    title: str
    labels: tuple[str, ...]
    series: tuple[Series, ...]
    unit: Callable[[float], str] = plain_count
    """Formats a value of the scale."""
    lines: bool = False
    log: bool = False
    """Whether the scale of lines is logarithmic."""
    limit: float | None = None
    """A horizontal line is drawn at this value."""
    squeezed: str = ""
    """Name of a bucket ("day"). If not all fit, several are merged into one; without a name, only
    the newest that fit are shown."""
    legend: bool = True
    note: str = ""
    nothing: str = "There is nothing to draw here."
    """Shown instead of a chart without values."""

    @property
    def empty(self) -> bool:
        """Whether every value is zero or missing."""
        return not any(value for series in self.series for value in series.values)


@dataclass(frozen=True, slots=True)
class BucketLayout:
    """Position of the buckets in a drawn chart: `shown` from `first` on, each `cells` wide."""

    gutter: int = 0
    first: int = 0
    shown: int = 0
    cells: int = 1

    def at(self, x: int) -> int | None:
        """Return the bucket at column `x`; None: there is none."""
        index = (x - self.gutter) // self.cells
        return self.first + index if x >= self.gutter and 0 <= index < self.shown else None


@dataclass(frozen=True, slots=True)
class Drawn:
    """The lines of a chart, each padded to the requested width."""

    lines: tuple[Content, ...]
    place: BucketLayout = field(default_factory=BucketLayout)


def draw(
    chart: Chart, width: int, height: int, *, selected: int | None = None, lead: str = ""
) -> Drawn:
    """Draw a chart in `width` by `height` cells, its title and legend on the first line.

    Args:
        chart: The content.
        width: Cells.
        height: Lines.
        selected: The bucket to point at.
        lead: Put before the title, where there are several charts; not blank for the chosen one.
    """
    if chart.empty or width < _LEAST_CELLS or height < LEAST_LINES - 1:
        words = chart.nothing if chart.empty else "The chart needs more room."
        rows = [_head(chart, lead, width), display(f"  {words}", style=DIM)]
        return Drawn(tuple(_fit(row, width) for row in rows + [Content("")] * (height - 2)))
    chart = _squeezed(chart, width - _GUTTER)
    inside = height - 2
    scale = scale_of(chart)
    marks = {row: chart.unit(value) for row, value in scale.marks(inside)}
    gutter = max(_GUTTER, *(len(mark) + 1 for mark in marks.values()))
    place = _place(len(chart.labels), width - gutter, gutter, selected)
    rows = [_head(chart, lead, width)]
    drawn = canvas(chart, place.first, place.shown, place.cells, inside)
    for row, part in enumerate(_pointed(drawn, place, selected)):
        rows.append(display(f"{marks.get(row, ''):>{gutter - 1}} ", style=DIM) + part)
    rows.append(Content(" " * gutter) + _axis(chart.labels, place, selected))
    return Drawn(tuple(_fit(row, width) for row in rows), place)


def _fit(row: Content, width: int) -> Content:
    cut = row.truncate(width, ellipsis=True)
    return cut + Content(" " * (width - cut.cell_length))


def _head(chart: Chart, lead: str, width: int) -> Content:
    legend = [
        Content.styled(one.marker, STYLES[one.tone]) + display(f" {one.name}", limit=24, style=DIM)
        for one in chart.series
        if chart.legend
    ]
    if chart.limit is not None:
        legend.append(Content.styled("-", WARN) + display(f" {chart.unit(chart.limit)}", style=DIM))
    chosen = lead.strip()
    title = display(chart.title, style=f"{STRONG} {ACCENT}" if chosen else STRONG)
    head = Content.styled(lead, ACCENT) + line(title, *([] if chart.empty else legend), gap="  ")
    noted = head if chart.empty else line(head, display(chart.note, style=DIM), gap="  ")
    return noted if noted.cell_length <= width else head


def _squeezed(chart: Chart, room: int) -> Chart:
    """Merge buckets where not all fit and `squeezed` asks for all of them."""
    each = -(-len(chart.labels) // max(1, room))
    if each < 2 or not chart.squeezed:
        return chart
    starts = range(0, len(chart.labels), each)

    def joined(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return None if not known else known[-1] if chart.lines else sum(known)

    return replace(
        chart,
        labels=tuple(chart.labels[start] for start in starts),
        series=tuple(
            replace(one, values=tuple(joined(one.values[at : at + each]) for at in starts))
            for one in chart.series
        ),
        note=" ".join(filter(None, [chart.note, f"{each} {chart.squeezed}s a cell"])),
    )


def _place(count: int, room: int, gutter: int, selected: int | None) -> BucketLayout:
    cells = max(1, min(_WIDEST, room // max(1, count)))
    shown = min(count, room // cells)
    first = count - shown
    if selected is not None and selected < first:
        first = max(0, selected - shown // 3)
    return BucketLayout(gutter, first, shown, cells)


def _pointed(
    rows: Sequence[Content], place: BucketLayout, selected: int | None
) -> Iterator[Content]:
    """Draw a vertical line through the empty cells of the selected bucket."""
    if selected is None or not place.first <= selected < place.first + place.shown:
        yield from rows
        return
    column = (selected - place.first) * place.cells + (place.cells - 1) // 2
    for row in rows:
        if row.plain[column : column + 1] in {" ", ""}:
            yield row[:column] + Content.styled("┊", STRONG) + row[column + 1 :]
        else:
            yield row


def _axis(labels: Sequence[str], place: BucketLayout, selected: int | None) -> Content:
    """Return the axis: labels of the selected bucket, the first, the last, and some between."""
    width = place.shown * place.cells
    last = place.first + place.shown - 1
    taken = [" "] * width
    pointed = (0, 0)
    widest = max(map(len, labels[place.first : last + 1]), default=1)
    step = max(1, -(-(widest + _BETWEEN) // place.cells))
    wanted = [selected, place.first, last, *range(place.first, last, step)]
    for index in dict.fromkeys(one for one in wanted if one is not None):
        if not place.first <= index <= last:
            continue
        name = f"▲{labels[index]}" if index == selected else labels[index]
        if index == place.first > 0 and index != selected:
            name = f"‹ {name}"
        middle = (index - place.first) * place.cells
        start = max(0, min(middle, width - len(name)))
        around = taken[max(0, start - 1) : start + len(name) + 1]
        if len(name) <= width and not "".join(around).strip():
            taken[start : start + len(name)] = name
            if index == selected:
                pointed = (start, start + len(name))
    axis = Content.styled("".join(taken), DIM)
    begin, end = pointed
    if begin == end:
        return axis
    return axis[:begin] + display("".join(taken[begin:end]), style=STRONG) + axis[end:]


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values from `low` to `high` to a share of the height."""

    low: float
    high: float
    log: bool = False
    bars: bool = False
    """Whether a value is the upper edge of a row of cells, not its middle."""

    def share(self, value: float) -> float:
        """Return the height of a value, from 0 to 1."""
        if self.log:
            low, high = math.log10(self.low), math.log10(self.high)
            return (math.log10(max(value, _LEAST_VALUE)) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)

    def marks(self, rows: int) -> Iterator[tuple[int, float]]:
        """Yield the rows (0 is the top) that are labelled, each with its round value."""
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
    """Return a scale that has room for all values; it includes zero unless it is logarithmic."""
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
    """Draw buckets, each `cells` wide; cached, as selecting a bucket draws the chart again."""
    buckets = range(first, first + shown)
    drawn = list((_lines if chart.lines else _bars)(chart, buckets, cells, rows))
    return (*drawn[:rows], *[Content(" " * shown * cells)] * (rows - len(drawn)))


def _lines(chart: Chart, buckets: range, cells: int, rows: int) -> Iterator[Content]:
    """Draw lines through the middle of the buckets, and markers on the values.

    Where a bucket is one cell wide, only the last value has its marker.
    """
    import plotext

    width, scale = len(buckets) * cells, scale_of(chart)
    plotext.clear_figure()  # plotext has one figure; nothing else runs between here and `build`
    plotext.theme("clear")
    plotext.limit_size(False, False)  # noqa: FBT003 - plotext's own signature
    plotext.plotsize(width, rows)
    plotext.frame(False)  # noqa: FBT003 - plotext's own signature
    plotext.xticks([], [])
    plotext.yticks([], [])
    plotext.xlim(0, max(1, width - 1))
    plotext.ylim(0, max(1, rows - 1))
    if chart.limit is not None:
        height = scale.share(chart.limit) * (rows - 1)
        plotext.plot([0, width - 1], [height] * 2, marker="-", color=_COLORS["warn"])
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
    styles = {f"38;5;{number}": STYLES[tone] for tone, number in _COLORS.items()}
    for row in plotext.build().split("\n"):
        first, *coloured = _ESCAPE.split(row)
        pairs = zip(coloured[1::2], coloured[::2], strict=True)
        parts = (Content.styled(text, styles.get(code, "")) for text, code in pairs)
        yield Content.assemble(first, *parts)


def _bars(chart: Chart, buckets: range, cells: int, rows: int) -> Iterator[Content]:
    """Fill whole cells with the series' markers; the top cell of a bar is filled in eighths."""
    scale, wide = scale_of(chart), max(1, cells - 1)
    drawn = [[(" ", "")] * len(buckets) for _ in range(rows)]
    for place, index in enumerate(buckets):
        for marker, tone, row in _column(chart, index, scale, rows):
            if row < rows:
                drawn[rows - 1 - row][place] = marker, STYLES[tone]
    for row_of in drawn:
        yield Content.assemble(
            *(Content.styled(f"{marker * wide:{cells}}", style) for marker, style in row_of)
        )


def _column(chart: Chart, index: int, scale: Scale, rows: int) -> Iterator[tuple[str, Tone, int]]:
    """Yield marker, tone and row (0 is the bottom) of each cell of a bucket's bars."""
    lines_of = rows / (scale.high - scale.low)
    there = [(one, value * lines_of) for one in chart.series if (value := one.values[index])]
    rising = [(one, height) for one, height in there if height > 0]
    falling = [(one, -height) for one, height in there if height < 0]
    # Each side of zero that has values gets at least one row.
    zero = max(round(scale.share(0.0) * rows), int(scale.low < 0))
    zero = min(zero, rows - int(scale.high > 0))
    if rising:
        height = sum(height for _, height in rising)
        whole = int(height + 1e-6)
        for row in range(whole):
            series = _most_between(rising, row, row + 1)
            yield series.marker, series.tone, zero + row
        eighths = round((height - whole) * 8) or int(not whole)
        if eighths:
            series = _most_between(rising, whole, height)
            marker = series.marker if eighths == 8 else _EIGHTHS[eighths]
            yield marker, series.tone, zero + whole
    if falling:
        depth = max(1, round(sum(height for _, height in falling)))
        for row in range(min(depth, zero)):
            series = _most_between(falling, row, row + 1)
            yield series.marker, series.tone, zero - 1 - row


def _most_between(parts: Sequence[tuple[Series, float]], low: float, high: float) -> Series:
    """Return which of the stacked parts has most between two heights."""
    shares: list[tuple[float, Series]] = []
    start = 0.0
    for series, height in parts:
        shares.append((min(high, start + height) - max(low, start), series))
        start += height
    return max(shares, key=lambda share: share[0])[1]


class Charts(Static):
    """Shows as many charts below each other as fit, but at least the first."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._charts: tuple[Chart, ...] = ()

    def show(self, charts: Sequence[Chart]) -> None:
        """Show `charts` instead of the present ones."""
        self._charts = tuple(charts)
        self._draw()

    def on_resize(self) -> None:
        """Draw for the new size."""
        self._draw()

    def _draw(self) -> None:
        width, height = self.content_size.width, self.content_size.height
        if not self._charts or not width or not height:
            self.update(Content(""))
            return
        shown = self._charts[: max(1, min(len(self._charts), height // LEAST_LINES))]
        each = height // len(shown)
        gap = 1 if each > LEAST_LINES else 0
        rows: list[Content] = []
        for chart in shown:
            rows.extend((*draw(chart, width, each - gap).lines, *[Content("")] * gap))
        self.update(lines(rows))


def bar(value: float, limit: float, cells: int) -> str:
    """Return a bar; a value above zero fills at least one cell, the limit or more fills all."""
    if cells <= 0:
        return ""
    part = value / limit if limit > 0 else float(value > 0)
    filled = min(cells, max(round(part * cells), int(value > 0)))
    return FULL * filled + EMPTY * (cells - filled)


def budget_bar(value: int, limit: int, cells: int, *, numbers: int = 0) -> Content:
    """Return a bar followed by `212 / 250`, and ▲ where the value is over the limit.

    `numbers` is the least width of the value in cells, so that several bars align.
    """
    style = BAD if value > limit else WARN if value > _NEARLY * limit else OK
    drawn = bar(value, limit, cells)
    filled = drawn.count(FULL)
    words = f"{count(value):>{numbers}} / {count(limit)}"
    over = Content.styled(f" {OVER}", BAD) if value > limit else Content("  ")
    return (
        Content.styled(drawn[:filled], style)
        + Content.styled(drawn[filled:], DIM)
        + Content(f" {words}")
        + over
    )


def numbers_width(values: list[int]) -> int:
    """Return the width in cells of the widest count."""
    return max((len(count(value)) for value in values), default=1)


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the newest `width` values as bars from zero to the largest of them."""
    shown = values[-width:]
    largest = max(shown, default=0.0)
    if largest <= 0:
        return _SPARKS[0] * len(shown)
    steps = len(_SPARKS) - 1
    return "".join(_SPARKS[min(steps, max(0, round(value / largest * steps)))] for value in shown)
