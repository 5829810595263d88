from __future__ import annotations

from datetime import date, timedelta

import pytest

from memtui.widgets.charts import Chart, Series, chart_content
from tests.screens.hostile import HOSTILE, assert_content_harmless

DAYS = tuple(date(2026, 1, 1) + timedelta(days=day) for day in range(60))


def chart(*values: float | None, limit: float | None = 500, bars: bool = False) -> Chart:
    padded = (None,) * (60 - len(values)) + values
    return Chart("size", DAYS, (Series("tokens", padded, "accent", "●", bars=bars),), limit)


@pytest.mark.parametrize("size", [(24, 6), (40, 8), (78, 10), (150, 20)])
def test_a_chart_fits_its_place_whatever_the_terminal(size: tuple[int, int]) -> None:
    lines = chart_content(chart(100, 300, 650), *size).plain.split("\n")
    assert len(lines) <= size[1]
    assert max(map(len, lines)) <= size[0]
    assert "●" in "".join(lines[1:])
    assert "-----" in "".join(lines[1:])


def test_the_budget_is_a_line_across_and_named() -> None:
    shown = chart_content(chart(100, 200), 60, 9).plain.split("\n")
    assert "- 500" in shown[0]
    assert any(line.startswith("500") and "-----" in line for line in shown)


def test_what_came_stands_above_zero_and_what_went_below() -> None:
    added = Series("added", (2.0,) * 60, "ok", "█", bars=True)
    deleted = Series("deleted", (-1.0,) * 60, "bad", "▒", bars=True)
    lines = chart_content(Chart("facts", DAYS, (added, deleted)), 80, 10).plain.split("\n")[1:]
    above = next(place for place, line in enumerate(lines) if "█" in line)
    below = next(place for place, line in enumerate(lines) if "▒" in line)
    assert above < below


def test_colours_are_the_themes_and_markers_differ() -> None:
    content = chart_content(chart(100, 200), 60, 9)
    styles = {str(span.style) for span in content.spans}
    assert {"$text-accent", "$text-warning"} <= styles
    assert not any("rgb" in style or "#" in style for style in styles)


@pytest.mark.parametrize("values", [(), (None, None), (0.0, 0.0)])
def test_no_data_is_said(values: tuple[float | None, ...]) -> None:
    shown = chart_content(chart(*values), 60, 9).plain
    assert "There is nothing to draw yet." in shown
    assert "---" not in shown


def test_one_point_and_one_day_are_drawn() -> None:
    one = Chart("size", DAYS[:1], (Series("tokens", (300.0,), "accent", "●"),), limit=500)
    assert "●" in chart_content(one, 40, 8).plain.split("\n", 1)[1]


def test_a_hostile_title_is_harmless() -> None:
    for text in HOSTILE:
        shown = text[:500]
        drawn = Chart(shown, DAYS, (Series(shown, (1.0,) * 60, "ok", "█"),), nothing=shown)
        assert_content_harmless(chart_content(drawn, 60, 9))
        assert_content_harmless(chart_content(Chart(shown, DAYS, (), nothing=shown), 60, 9))
