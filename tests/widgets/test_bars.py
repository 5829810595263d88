from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.widgets.charts import EMPTY, FULL, bar, budget_bar


@given(st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 60))
def test_a_bar_is_as_wide_as_asked_and_never_hides_that_there_is_something(
    value: int, limit: int, cells: int
) -> None:
    drawn = bar(value, limit, cells)
    assert len(drawn) == cells
    if cells:
        assert (FULL in drawn) == (value > 0)
        assert (EMPTY not in drawn) or value < limit or value == limit == 0


@pytest.mark.parametrize(
    ("value", "words"),
    [(212, "212 / 250"), (250, "250 / 250"), (312, "312 / 250 ▲"), (0, "  0 / 250")],
)
def test_a_budget_is_told_by_number_and_sign_not_only_by_colour(value: int, words: str) -> None:
    shown = budget_bar(value, 250, 10, numbers=3).plain
    assert shown.rstrip().endswith(words)
    assert ("▲" in shown) == (value > 250)
