"""CSV cells escaped so that a spreadsheet does not run them as formulas."""

import re

RUN = r"^'*[=+@\t\r＝＋－＠-]"
"""Start of a cell that a spreadsheet takes for a formula; RE2 reads the pattern alike.

Leading apostrophes match too: such a cell gets another one, so that it can be read back exactly."""
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
"""A number such as `-1`: it starts like a formula but is none."""

_RUN, _NUMBER = re.compile(RUN), re.compile(NUMBER)


def cell(text: str) -> str:
    """Return a cell's text; put an apostrophe before one that a spreadsheet would run."""
    return f"'{text}" if _RUN.match(text) and not _NUMBER.match(text) else text


def text_of(cell_text: str) -> str:
    """Return the text of a cell that `cell` made: its inverse."""
    return cell_text[1:] if cell_text[:1] == "'" and cell(cell_text[1:]) == cell_text else cell_text


def cell_sql(column: str) -> str:
    """Return `cell` as a DuckDB SQL expression for a text column."""
    run = RUN.replace("'", "''")
    runs = f"regexp_matches({column}, '{run}') AND NOT regexp_matches({column}, '{NUMBER}')"
    return f"CASE WHEN {runs} THEN '''' || {column} ELSE {column} END"
