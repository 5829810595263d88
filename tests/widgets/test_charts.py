from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import pytest

from memtui.widgets.charts import STYLES, Chart, Series, Tone, canvas, draw, scale_of
from tests.screens.hostile import HOSTILE, assert_content_harmless

DAYS = tuple(f"{date(2026, 1, 1) + timedelta(days=day):%m-%d}" for day in range(60))


def chart(*values: float | None, limit: float | None = 500) -> Chart:
    padded = (None,) * (60 - len(values)) + values
    series = (Series("tokens", padded, "accent", "●"),)
    return Chart("size", DAYS, series, lines=True, limit=limit, squeezed="day")


def shown(one: Chart, width: int, height: int) -> list[str]:
    drawn = draw(one, width, height).lines
    assert {row.cell_length for row in drawn} == {width}
    assert len(drawn) == height
    return [row.plain for row in drawn]


@pytest.mark.parametrize("size", [(24, 6), (40, 8), (78, 10), (150, 20)])
def test_a_chart_fits_its_place_whatever_the_terminal(size: tuple[int, int]) -> None:
    lines = shown(chart(100, 300, 650), *size)
    assert "●" in "".join(lines[1:])
    assert "-----" in "".join(lines[1:])


def test_the_budget_is_a_line_across_and_named() -> None:
    rows = shown(chart(100, 200), 80, 9)
    assert "- 500" in rows[0]
    assert any(row.lstrip().startswith("500") and "-----" in row for row in rows[1:])


def test_bars_are_as_high_as_their_sum_to_an_eighth_of_a_line() -> None:
    series = (Series("a", (4.0, 1.0, 0.0), "ok", "█"), Series("b", (4.0, 1.0, 0.1), "bad", "▒"))
    rows = shown(Chart("two", ("x", "y", "z"), series), 33, 10)[1:-1]
    columns = ["".join(row[9 + place * 8] for row in reversed(rows)) for place in range(3)]
    assert columns == ["████▒▒▒▒", "█▒      ", "▁       "]


@pytest.mark.parametrize("rows", range(3, 30))
@pytest.mark.parametrize(
    "parts", [(16.0, 4.0, 5.0), (9.0, 6.0, 0.0), (5.0, 4.0, 16.0), (1.0, 8.0, 1.0)]
)
def test_a_cell_that_parts_share_is_that_of_the_largest_in_it(
    parts: tuple[float, ...], rows: int
) -> None:
    tones: tuple[Tone, ...] = ("ok", "bad", "accent")
    series = tuple(
        Series(marker, (value, value * rows), tone, marker)
        for marker, value, tone in zip("abc", parts, tones, strict=True)
    )
    both = Chart("", ("x", "y"), series)
    drawn = canvas(both, 0, 2, 1, rows)
    largest = series[parts.index(max(parts))]
    [style] = drawn[-1][0].spans
    assert style.style == STYLES[largest.tone]
    assert drawn[-1].plain[0] in f"{largest.marker}▁▂▃▄▅▆▇"
    tall = [row.plain[1] for row in drawn]
    for one in series:
        share = (one.values[1] or 0.0) / scale_of(both).high
        assert tall.count(one.marker) == pytest.approx(share * rows, abs=1.5)


@pytest.mark.parametrize("rows", range(3, 30))
def test_little_that_went_has_a_line_beside_much_that_came(rows: int) -> None:
    added = Series("added", (1_000.0,), "ok", "█")
    deleted = Series("deleted", (-1.0,), "bad", "▒")
    drawn = [row.plain for row in canvas(Chart("", ("x",), (added, deleted)), 0, 1, 1, rows)]
    assert drawn == ["█"] * (rows - 1) + ["▒"]
    turned = (
        replace(added, values=(-1_000.0,)),
        replace(deleted, values=(1.0,)),
    )
    first, *others = (row.plain for row in canvas(Chart("", ("x",), turned), 0, 1, 1, rows))
    assert first == "▁"
    assert others == ["█"] * (rows - 1)


def test_what_came_stands_above_zero_and_what_went_below() -> None:
    added = Series("added", (2.0,) * 60, "ok", "█")
    deleted = Series("deleted", (-1.0,) * 60, "bad", "▒")
    rows = shown(Chart("facts", DAYS, (added, deleted)), 80, 10)
    zero = next(place for place, row in enumerate(rows) if row[:9].strip() == "0")
    assert "▒" not in "".join(rows[1 : zero + 1])
    assert "█" not in "".join(rows[zero + 1 :])
    assert {len(row.split("█")) for row in rows[2:zero]} == {61}


def test_days_are_joined_where_all_are_to_be_seen_and_it_is_said() -> None:
    bars = Chart("facts", DAYS, (Series("added", (1.0,) * 60, "ok", "█"),), squeezed="day")
    rows = shown(bars, 40, 10)
    assert "2 days a cell" in rows[0]
    assert rows[1].lstrip().startswith("2 ")
    assert "days a cell" not in shown(bars, 80, 10)[0]


@pytest.mark.parametrize(
    ("highest", "marks"),
    [(112, [120, 60, 0]), (1, [1, 0.5, 0]), (60_500, [70_000, 35_000, 0]), (0.38, [0.4, 0.2, 0])],
)
def test_a_scale_ends_at_round_numbers(highest: float, marks: list[float]) -> None:
    scale = scale_of(Chart("", ("x",), (Series("a", (float(highest),), "ok", "█"),)))
    assert [value for _, value in sorted(scale.marks(9))] == pytest.approx(marks)


def test_a_logarithmic_scale_is_named_by_powers_of_ten() -> None:
    series = (Series("p95", (3.0, 900.0, None), "ok", "o"),)
    scale = scale_of(Chart("", ("x", "y", "z"), series, lines=True, log=True))
    assert [value for _, value in sorted(scale.marks(13))] == pytest.approx([900, 100, 10, 1])


def test_series_are_told_apart_without_colour_and_one_bucket_is_pointed_at() -> None:
    labels = tuple(f"d{number}" for number in range(200))
    ramp = tuple(float(number % 5 + 1) for number in range(200))
    two = Chart(
        "Two", labels, (Series("a", ramp, "ok", "█"), Series("b", (2.0,) * 200, "bad", "▓"))
    )
    drawn = draw(two, 60, 10, selected=3, lead="▸ ")
    text = "\n".join(row.plain for row in drawn.lines)
    assert all(mark in text for mark in ("▸ Two", "▲d3", "█", "▓", "┊"))
    assert drawn.place.at(drawn.place.gutter + 3 - drawn.place.first) == 3
    newest = draw(two, 60, 10)
    assert newest.place.first + newest.place.shown == 200
    assert "‹" in newest.lines[-1].plain


def test_colours_are_the_themes() -> None:
    styles = {str(span.style) for row in draw(chart(100, 200), 60, 9).lines for span in row.spans}
    assert {"$text-accent", "$text-warning"} <= styles
    assert not any("rgb" in style or "#" in style for style in styles)


@pytest.mark.parametrize("values", [(), (None, None), (0.0, 0.0)])
def test_no_data_is_said(values: tuple[float | None, ...]) -> None:
    text = "\n".join(shown(chart(*values), 60, 9))
    assert "There is nothing to draw here." in text
    assert "---" not in text


def test_one_point_and_one_day_are_drawn() -> None:
    one = Chart("size", DAYS[:1], (Series("tokens", (300.0,), "accent", "●"),), lines=True)
    assert "●" in "".join(shown(one, 40, 8)[1:])


def test_a_hostile_title_is_harmless() -> None:
    for text in HOSTILE:
        cut = text[:500]
        drawn = Chart(cut, DAYS, (Series(cut, (1.0,) * 60, "ok", "█"),), nothing=cut)
        for row in draw(drawn, 60, 9).lines + draw(Chart(cut, DAYS, (), nothing=cut), 60, 9).lines:
            assert_content_harmless(row)
