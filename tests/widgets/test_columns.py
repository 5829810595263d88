"""Columns share the width, and a cell keeps to its column whatever it holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from memtui.widgets.columns import GAP, GUTTER, Cell, Column, fit_cell, share_width

COLUMNS: list[Column[str]] = [
    Column("a", "a", Cell, 6, "right", keep=90),
    Column("b", "b", Cell, 10, keep=10),
    Column("c", "c", Cell, 20, flexible=True, keep=100),
]


@pytest.mark.parametrize("width", [8, 20, 40, 80, 120, 200])
def test_the_columns_fill_the_width_and_the_least_kept_go_first(width: int) -> None:
    shown = share_width(COLUMNS, width)
    used = GUTTER + sum(cells for _, cells in shown) + GAP * (len(shown) - 1)
    assert used <= max(width, GUTTER + 1)
    assert "c" in [column.key for column, _ in shown]
    if width >= 43:
        assert used == width
        assert len(shown) == 3
    elif width >= 31:
        assert [column.key for column, _ in shown] == ["a", "c"]


def test_hidden_and_widened_columns() -> None:
    shown = share_width(COLUMNS, 80, hidden={"b"}, wider={"a": 4})
    assert [(column.key, cells) for column, cells in shown] == [("a", 10), ("c", 65)]


@pytest.mark.parametrize("width", range(20, 201, 9))
def test_a_column_with_a_share_gets_it_before_others_are_shown(width: int) -> None:
    columns = [*COLUMNS[:2], replace(COLUMNS[2], share=0.5)]
    shown = {column.key: cells for column, cells in share_width(columns, width)}
    assert shown["c"] >= width // 2 or shown["c"] == width - GUTTER or shown["c"] == 20
    assert list(shown) == [column.key for column in columns if column.key in shown]
    if width >= 110:
        assert shown["c"] >= width / 2
        assert len(shown) == 3


@given(
    st.integers(20, 200),
    st.fixed_dictionaries({"a": st.integers(2, 20), "b": st.integers(2, 30), "c": st.just(150)}),
)
def test_nothing_is_cut_beside_room_that_nobody_needs(width: int, content: dict[str, int]) -> None:
    shown = {column.key: cells for column, cells in share_width(COLUMNS, width, content=content)}
    assert sum(shown.values()) + GAP * (len(shown) - 1) + GUTTER == width
    assert all(cells <= content[key] for key, cells in shown.items() if key != "c")
    least = GUTTER + min(6, content["a"]) + GAP + min(10, content["b"]) + GAP + 20
    assert (len(shown) == 3) == (width >= least)


def test_a_column_that_a_person_wants_goes_last() -> None:
    assert [one.key for one, _ in share_width(COLUMNS, 24, wanted={"b"})] == ["b"]
    assert [one.key for one, _ in share_width(COLUMNS, 24)] == ["c"]
    wider = share_width(COLUMNS, 80, wider={"a": -2}, content={"a": 6, "b": 4, "c": 9})
    assert [(one.key, cells) for one, cells in wider] == [("a", 4), ("b", 4), ("c", 65)]
    assert share_width([], 80) == []


def test_a_name_is_whole_before_columns_that_matter_less_are_shown() -> None:
    columns = [replace(COLUMNS[0], whole=True), *COLUMNS[1:]]
    for width, shown in ((36, ["a", "c"]), (40, ["a", "c"]), (80, ["a", "b", "c"])):
        found = share_width(columns, width, content={"a": 11, "b": 6, "c": 200})
        assert [one.key for one, _ in found] == shown
        assert found[0][1] == 11


@given(st.text(), st.integers(0, 60), st.sampled_from(["left", "right"]))
def test_a_cell_is_as_wide_as_its_column_and_nothing_in_it_is_obeyed(
    text: str, width: int, align: str
) -> None:
    shown = fit_cell(text, width, "right" if align == "right" else "left")
    assert cell_len(shown) == width
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in shown)
    assert not set(shown) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069")


def test_wide_characters_are_cut_between_cells() -> None:
    assert fit_cell("漢字漢字", 5) == "漢字…"
    assert fit_cell("12", 5, "right") == "   12"
    assert cell_len(fit_cell("👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧", 3)) == 3


def test_a_cell_of_ten_megabytes_is_cut_before_it_is_looked_at() -> None:
    assert fit_cell("x" * 10_000_000, 10) == "xxxxxxxxx…"
