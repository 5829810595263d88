"""Where in a statement an error was found; pure."""

from __future__ import annotations

import re

from memtui.contract import MemtuiError

_LINE = re.compile(r"^LINE (\d+): (.*)\n( *)\^", re.MULTILINE)
_NEAR = re.compile(r'(?:at or near|at) "(.+)"')


def place_of(statement: str, written: str, error: MemtuiError) -> tuple[int, int] | None:
    """Return the line and column, from 0, in what is written, at which an error was found.

    None where it is not known, or something else is written by now.
    """
    start = written.find(statement)
    if start < 0 or not statement:
        return None
    found = _LINE.search(str(error.__cause__ or ""))
    if found is not None and not found[2].startswith("..."):
        row = int(found[1]) - 1
        column = len(found[3]) - len(f"LINE {found[1]}: ")
    else:
        near = _NEAR.search(str(error))
        if near is None or statement.count(near[1]) != 1:
            return None
        before = statement[: statement.index(near[1])]
        row, column = before.count("\n"), len(before.rpartition("\n")[2])
    if row < 0 or column < 0:
        return None
    lead = written[:start]
    return row + lead.count("\n"), column + (len(lead.rpartition("\n")[2]) if row == 0 else 0)
