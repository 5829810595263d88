from __future__ import annotations

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.csv_text import cell, cell_sql, text_of


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1+1", "-cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1", "＝1", "-", "+", "'=1"],
)
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(text: str) -> None:
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "a=1", "-1", "+2.5", "-1e-9", "-.5", "'1", "1-1", " =1"])
def test_all_else_stays(text: str) -> None:
    assert cell(text) == text


@given(st.text(alphabet="=+-@\t\r1.e'a \n") | st.text())
def test_duckdb_quotes_the_same(text: str) -> None:
    if "\0" not in text:
        [[found]] = duckdb.execute(
            f"SELECT {cell_sql('t')} FROM (SELECT ? AS t)", [text]
        ).fetchall()
        assert found == cell(text)
    assert text_of(cell(text)) == text
