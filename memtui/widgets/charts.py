"""Small charts over days, drawn by plotext in the theme's own colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from textual.content import Content
from textual.widgets import Static

from memtui.widgets.display import ACCENT, BAD, DIM, OK, STRONG, WARN, display, line, lines

Tone = Literal["accent", "ok", "bad", "warn"]

NUMBERS: dict[Tone, int] = {"bad": 1, "ok": 2, "warn": 3, "accent": 4}
STYLES = {1: BAD, 2: OK, 3: WARN, 4: ACCENT}
"""plotext knows the terminal's colours by number; they stand for the theme's here."""

_LEAST_LINES = 7
_LEAST_CELLS = 24


@dataclass(frozen=True, slots=True)
class Series:
    """Values over the days of a chart; `marker` tells it apart where there is no colour."""

    name: str
    values: tuple[float | None, ...]
    tone: Tone
    marker: str
    bars: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """What a chart shows. `limit` is a line across; `nothing` is said where there are no values."""

    title: str
    days: tuple[date, ...]
    series: tuple[Series, ...]
    limit: float | None = None
    nothing: str = "There is nothing to draw yet."

    @property
    def empty(self) -> bool:
        """Whether no series has a value other than nothing."""
        return not any(value for series in self.series for value in series.values)


def chart_content(chart: Chart, width: int, height: int) -> Content:
    """Return a chart of `width` by `height` cells, its title and legend on the first line."""
    head = _head(chart, width)
    if chart.empty or width < _LEAST_CELLS or height < _LEAST_LINES - 2:
        return lines([head, display(f"  {chart.nothing if chart.empty else '…'}", style=DIM)])
    return lines([head, *_body(chart, width, height - 1)])


def _head(chart: Chart, width: int) -> Content:
    legend = [
        Content.styled(one.marker, STYLES[NUMBERS[one.tone]]) + display(f" {one.name}", style=DIM)
        for one in chart.series
        if len(chart.series) > 1 or chart.limit is not None
    ]
    if chart.limit is not None:
        legend.append(Content.styled("-", WARN) + display(f" {chart.limit:,.0f}", style=DIM))
    head = line(display(chart.title, style=STRONG), *([] if chart.empty else legend), gap="  ")
    return head.truncate(width, ellipsis=True)


def _body(chart: Chart, width: int, height: int) -> Iterator[Content]:
    import plotext as plot
    from rich.text import Text

    plot.clear_figure()  # plotext has one figure; nothing else runs between here and `build`
    plot.theme("clear")
    plot.limit_size(False, False)  # noqa: FBT003 - plotext's own signature
    plot.plotsize(width, height)
    plot.frame(False)  # noqa: FBT003 - plotext's own signature
    places = list(range(len(chart.days)))
    if chart.limit is not None:
        plot.plot([places[0], places[-1]], [chart.limit] * 2, marker="-", color=3)
    for series in chart.series:
        _draw(plot, series, places)
    _scale(plot, chart)
    yield from _themed(Text.from_ansi(plot.build())).split("\n", include_separator=False)


def _draw(plot: Any, series: Series, places: Sequence[int]) -> None:
    known = [
        (place, value)
        for place, value in zip(places, series.values, strict=True)
        if value is not None
    ]
    if not known:
        return
    xs, ys = [place for place, _ in known], [value for _, value in known]
    color = NUMBERS[series.tone]
    if series.bars:
        there = [(x, y) for x, y in zip(xs, ys, strict=True) if y]
        xs, ys = [x for x, _ in there], [y for _, y in there]
        plot.scatter(xs, ys, marker=series.marker, color=color, fillx=True)
        return
    if len(xs) > 1:
        plot.plot(xs, ys, marker="braille", color=color)
    plot.scatter(xs[-1:], ys[-1:], marker=series.marker, color=color)


def _scale(plot: Any, chart: Chart) -> None:
    values = [value for one in chart.series for value in one.values if value is not None]
    top, bottom = max([*values, chart.limit or 0, 1]), min([*values, 0])
    half = top // 2 if top >= 2 else top
    marks = sorted({bottom, 0, half, top, *([chart.limit] if chart.limit else [])})
    plot.ylim(bottom, top)
    plot.yticks(marks, [f"{mark:,.0f}" for mark in marks])
    last = len(chart.days) - 1
    shown = sorted({0, last // 2, last})
    plot.xlim(-0.5, last + 0.5)
    plot.xticks(shown, [f"{chart.days[place]:%m-%d}" for place in shown])


def _themed(drawn: Any) -> Content:
    """Return plotext's text with the theme's colours in place of the terminal's."""
    styled = Content(drawn.plain.rstrip("\n"))
    for span in drawn.spans:
        color = getattr(span.style, "color", None)
        style = STYLES.get(color.number) if color is not None else None
        if style:
            styled = styled.stylize(style, span.start, span.end)
    return styled


class Charts(Static):
    """Shows as many charts under each other as there is room for, at least the first."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._charts: tuple[Chart, ...] = ()

    def show(self, charts: Sequence[Chart]) -> None:
        """Draw other charts."""
        self._charts = tuple(charts)
        self._draw()

    def on_resize(self) -> None:
        """Draw again for the room there is."""
        self._draw()

    def _draw(self) -> None:
        width, height = self.content_size.width, self.content_size.height
        if not self._charts or not width or not height:
            self.update(Content(""))
            return
        shown = self._charts[: max(1, min(len(self._charts), height // _LEAST_LINES))]
        each = height // len(shown)
        gap = Content("\n\n") if each > _LEAST_LINES else Content("\n")
        drawn = [
            chart_content(one, width, each - (1 if each > _LEAST_LINES else 0)) for one in shown
        ]
        self.update(gap.join(drawn))
