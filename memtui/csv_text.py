"""Cells of CSV that a spreadsheet shows instead of running them."""

from __future__ import annotations

import re

RUN = r"^'*[=+@\t\r＝＋－＠-]"
"""What a cell begins with that a spreadsheet takes for a formula (also as RE2 reads it).

What has an apostrophe there already gets another one, so that a cell can be read back exactly."""
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
"""A cell that begins like one and is none."""

_RUN, _NUMBER = re.compile(RUN), re.compile(NUMBER)


def cell(text: str) -> str:
    """Return a cell's text, with an apostrophe before what a spreadsheet would run."""
    return f"'{text}" if _RUN.match(text) and not _NUMBER.match(text) else text


def text_of(cell_text: str) -> str:
    """Return the text that `cell` made a cell of."""
    return cell_text[1:] if cell_text[:1] == "'" and cell(cell_text[1:]) == cell_text else cell_text


def cell_sql(column: str) -> str:
    """Return the SQL of the same for a text column, for DuckDB."""
    run = RUN.replace("'", "''")
    runs = f"regexp_matches({column}, '{run}') AND NOT regexp_matches({column}, '{NUMBER}')"
    return f"CASE WHEN {runs} THEN '''' || {column} ELSE {column} END"
