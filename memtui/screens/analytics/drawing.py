"""Draws a chart whose buckets each have cells of their own, so that one can be pointed at.

plotext draws bars and lines; the scale, the axis and the selected bucket are put around them.
Series are told apart by what they are drawn with, never by colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from textual.content import Content

from memtui.widgets.charts import NUMBERS, STYLES, Tone
from memtui.widgets.display import ACCENT, DIM, STRONG, display, line

_WIDEST = 8
"""Cells of a bucket at most."""
_GUTTER = 9
"""Cells of the scale at least, so that charts stand under each other."""
_LEAST_VALUE = 0.001
"""What is drawn for less on a logarithmic scale."""
LEAST_LINES = 6
_LEAST_CELLS = 20


@dataclass(frozen=True, slots=True)
class Series:
    """A value for each bucket; `marker` tells it apart where there is no colour."""

    name: str
    values: tuple[float | None, ...]
    tone: Tone
    marker: str


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart. Bars stand on top of each other, the first series at the bottom; lines do not.

    `operation_type` is the type of operation that it is about, where it is about one.
    """

    title: str
    labels: tuple[str, ...]
    series: tuple[Series, ...]
    unit: Callable[[float], str]
    lines: bool = False
    log: bool = False
    """Whether the scale of lines is logarithmic."""
    legend: bool = True
    note: str = ""
    nothing: str = "There is nothing to draw here."
    operation_type: str | None = None

    @property
    def empty(self) -> bool:
        """Whether no series has a value other than nothing."""
        return not any(value for series in self.series for value in series.values)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the buckets of a drawn chart stand: so many from `first` on, `cells` wide each."""

    gutter: int = 0
    first: int = 0
    shown: int = 0
    cells: int = 1

    def at(self, x: int) -> int | None:
        """Return the bucket in a column."""
        index = (x - self.gutter) // self.cells
        return self.first + index if x >= self.gutter and 0 <= index < self.shown else None


@dataclass(frozen=True, slots=True)
class Drawn:
    """The lines of a chart, each as wide as it was asked for."""

    lines: tuple[Content, ...]
    place: Place = field(default_factory=Place)


def draw(plot: Plot, width: int, height: int, *, selected: int | None, active: bool) -> Drawn:
    """Draw a chart in `width` by `height` cells, its title and legend on the first line.

    Args:
        plot: The chart.
        width: Cells.
        height: Lines.
        selected: The bucket to point at.
        active: Whether it is the chosen one of several.
    """
    head = _head(plot, active=active)
    if plot.empty or width < _LEAST_CELLS or height < LEAST_LINES - 1:
        words = plot.nothing if plot.empty else "There is no room for the chart."
        rows = [head, display(f"  {words}", style=DIM)]
        return Drawn(tuple(_fit(row, width) for row in rows + [Content("")] * (height - 2)))
    inside = height - 2
    scale = _scale(plot)
    marks = {
        row: plot.unit(scale.at(1 - row / (inside - 1))) for row in (0, inside // 2, inside - 1)
    }
    gutter = max(_GUTTER, *(len(mark) + 1 for mark in marks.values()))
    place = _place(len(plot.labels), width - gutter, gutter, selected)
    rows = [head]
    canvas = _canvas(plot, place, inside, scale)
    for row, drawn in enumerate(_pointed(canvas, place, selected)):
        rows.append(display(f"{marks.get(row, ''):>{gutter - 1}} ", style=DIM) + drawn)
    rows.append(Content(" " * gutter) + _axis(plot.labels, place, selected))
    return Drawn(tuple(_fit(row, width) for row in rows), place)


def _fit(row: Content, width: int) -> Content:
    cut = row.truncate(width, ellipsis=True)
    return cut + Content(" " * (width - cut.cell_length))


def _head(plot: Plot, *, active: bool) -> Content:
    legend = [
        Content.styled(one.marker, STYLES[NUMBERS[one.tone]])
        + display(f" {one.name}", limit=24, style=DIM)
        for one in plot.series
        if plot.legend
    ]
    title = display(plot.title, style=f"{STRONG} {ACCENT}" if active else STRONG)
    mark = Content.styled("▸ ", ACCENT) if active else Content("  ")
    parts = [] if plot.empty else [*legend, display(plot.note, style=DIM)]
    return mark + line(title, *parts, gap="  ")


@dataclass(frozen=True, slots=True)
class _Scale:
    """From values to the height they are drawn at, and back."""

    low: float
    high: float
    log: bool = False

    def height(self, value: float) -> float:
        """Return what plotext draws for a value."""
        return math.log10(max(value, _LEAST_VALUE)) if self.log else value

    def at(self, share: float) -> float:
        """Return the value at a share of the height."""
        drawn = self.low + (self.high - self.low) * share
        return 10.0**drawn if self.log else drawn


def _scale(plot: Plot) -> _Scale:
    if not plot.lines:
        return _Scale(0.0, max(sum(column) for column in _columns(plot)))
    values = [value for one in plot.series for value in one.values if value is not None]
    if not plot.log:
        return _Scale(0.0, max(values))
    low = math.floor(math.log10(max(min(values), _LEAST_VALUE)))
    return _Scale(low, max(math.log10(max(values)), low + 1), log=True)


def _columns(plot: Plot) -> list[list[float]]:
    count = len(plot.labels)
    return [[one.values[index] or 0.0 for one in plot.series] for index in range(count)]


def _place(count: int, room: int, gutter: int, selected: int | None) -> Place:
    cells = max(1, min(_WIDEST, room // max(1, count)))
    shown = min(count, room // cells)
    first = count - shown
    if selected is not None and selected < first:
        first = max(0, selected - shown // 3)
    return Place(gutter, first, shown, cells)


@lru_cache(maxsize=64)
def _canvas(plot: Plot, place: Place, height: int, scale: _Scale) -> tuple[Content, ...]:
    """Draw the inside of a chart; kept, for another bucket of it may be selected next."""
    import plotext
    from rich.text import Text

    width = place.shown * place.cells
    plotext.clear_figure()  # plotext has one figure; nothing else runs between here and `build`
    plotext.theme("clear")
    plotext.limit_size(False, False)  # noqa: FBT003 - plotext's own signature
    plotext.plotsize(width, height)
    plotext.frame(False)  # noqa: FBT003 - plotext's own signature
    plotext.xticks([], [])
    plotext.yticks([], [])
    plotext.xlim(0, max(1, width - 1))
    plotext.ylim(scale.low, scale.high)
    if plot.lines:
        _lines(plotext, plot, place, scale)
    else:
        _bars(plotext, plot, place)
    drawn = Text.from_ansi(plotext.build())
    rows = list(_themed(drawn).split("\n", include_separator=False))[:height]
    return (*rows, *[Content(" " * width)] * (height - len(rows)))


def _bars(plotext: Any, plot: Plot, place: Place) -> None:
    """Draw the whole height with the last series, then over it what stands below."""
    columns = _columns(plot)[place.first : place.first + place.shown]
    wide = max(1, place.cells - 1)
    for depth in range(len(plot.series), 0, -1):
        tops = [sum(column[:depth]) if column[depth - 1] else 0.0 for column in columns]
        xs = [index * place.cells + cell for index, top in enumerate(tops) if top
              for cell in range(wide)]  # fmt: skip
        ys = [top for top in tops if top for _ in range(wide)]
        series = plot.series[depth - 1]
        if xs:
            plotext.scatter(xs, ys, marker=series.marker, color=NUMBERS[series.tone], fillx=True)


def _lines(plotext: Any, plot: Plot, place: Place, scale: _Scale) -> None:
    for series in plot.series:
        known = [
            (index * place.cells + (place.cells - 1) // 2, scale.height(value))
            for index, value in enumerate(series.values[place.first : place.first + place.shown])
            if value is not None
        ]
        xs, ys = [x for x, _ in known], [y for _, y in known]
        color = NUMBERS[series.tone]
        if len(xs) > 1 and place.cells > 1:
            plotext.plot(xs, ys, marker="braille", color=color)
        if xs:
            plotext.scatter(xs, ys, marker=series.marker, color=color)


def _themed(drawn: Any) -> Content:
    """Return plotext's text with the theme's colours in place of the terminal's."""
    styled = Content(drawn.plain.rstrip("\n"))
    for span in drawn.spans:
        color = getattr(span.style, "color", None)
        style = STYLES.get(color.number) if color is not None else None
        if style:
            styled = styled.stylize(style, span.start, span.end)
    return styled


def _pointed(canvas: Sequence[Content], place: Place, selected: int | None) -> Iterator[Content]:
    """Draw a line down to the selected bucket through what is empty above it."""
    if selected is None or place.at(place.gutter + (selected - place.first) * place.cells) is None:
        yield from canvas
        return
    column = (selected - place.first) * place.cells + (place.cells - 1) // 2
    for row in canvas:
        if row.plain[column : column + 1] in {" ", ""}:
            yield row[:column] + Content.styled("┊", STRONG) + row[column + 1 :]
        else:
            yield row


def _axis(labels: Sequence[str], place: Place, selected: int | None) -> Content:
    """Return the names of the first, the last and the selected bucket, under them."""
    width = place.shown * place.cells
    last = place.first + place.shown - 1
    taken = [" "] * width
    pointed = (0, 0)
    wanted = [selected, place.first, last, (place.first + last) // 2]
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
