"""The rows that a statement returned, as a list shows them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import Any, NamedTuple

from rich.cells import cell_len
from textual.content import Content

from memtui.screens.analytics.files import json_value
from memtui.visible import visible
from memtui.widgets.columns import Cell, Column
from memtui.widgets.display import DIM, display, hanging, lines

_MEASURED = 200
"""Rows from all over the result that are measured for the width of a column."""
_WIDEST = 40
_LONGEST = 2_000
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT",
            "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL",
            "INTERVAL")  # fmt: skip


class ResultRow(NamedTuple):
    """A row and its place, from 0."""

    place: int
    values: tuple[Any, ...]


def is_number(kind: str) -> bool:
    """Return whether values of a type of DuckDB stand at the right."""
    return kind.startswith(_NUMBERS) and not kind.endswith("]")


def cell_text(value: Any, zone: tzinfo) -> str:
    """Return a value as it reads; a moment in the person's zone."""
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, datetime):
        local = value.astimezone(zone) if value.tzinfo else value
        return local.isoformat(sep=" ", timespec="milliseconds" if value.microsecond else "seconds")
    if isinstance(value, float):
        return f"{value:.6g}" if value % 1 else f"{value:.0f}" if abs(value) < 1e15 else str(value)
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    shown = json_value(value)
    return str(shown) if isinstance(shown, str | int) else json.dumps(shown, ensure_ascii=False)


def result_columns(
    columns: Sequence[str], types: Sequence[str], rows: Sequence[ResultRow], zone: tzinfo
) -> tuple[Column[ResultRow], ...]:
    """Return the columns of a result, each as wide as what it shows."""
    return tuple(
        Column(
            str(place),
            title,
            _cell(place, zone),
            _width(title, _measured(place, rows, number=is_number(kind)), zone),
            "right" if is_number(kind) else "left",
            keep=len(columns) - place,
        )
        for place, (title, kind) in enumerate(zip(columns, types, strict=True))
    )


def _cell(place: int, zone: tzinfo) -> Callable[[ResultRow], Cell]:
    def cell(row: ResultRow) -> Cell:
        value = row.values[place]
        return Cell(cell_text(value, zone), "muted" if value is None else "")

    return cell


def _measured(place: int, rows: Sequence[ResultRow], *, number: bool) -> list[Any]:
    """Return values of a column, and of numbers the least and the greatest as well."""
    values = [row.values[place] for row in rows[:: len(rows) // _MEASURED + 1]]
    known = [row.values[place] for row in rows if number and row.values[place] is not None]
    return [*values, min(known), max(known)] if known else values


def _width(title: str, values: Sequence[Any], zone: tzinfo) -> int:
    texts = [title, *(cell_text(value, zone) for value in values)]
    return max(2, *(min(_WIDEST, cell_len(visible(text, limit=_WIDEST + 1))) for text in texts))


def sort_key(place: int) -> Callable[[ResultRow], Any]:
    """Return what orders rows by a column; what has no value comes last, whatever the way."""

    def key(row: ResultRow) -> Any:
        value = row.values[place]
        if isinstance(value, bool | int | float | Decimal):
            return (0, value, "")
        if isinstance(value, datetime) and value.tzinfo:
            return (1, value.timestamp(), "")
        return (2, 0, cell_text(value, UTC))

    return key


def row_content(columns: Sequence[str], row: ResultRow, zone: tzinfo, width: int) -> Content:
    """Return every value of a row behind its column's name."""
    named = [
        (visible(name, limit=_WIDEST), value)
        for name, value in zip(columns, row.values, strict=True)
    ]
    wide = max((cell_len(name) for name, _ in named), default=0)
    return lines(
        hanging(
            display(f"{name}{' ' * (wide - cell_len(name))}  ", style=DIM),
            display(cell_text(value, zone), limit=_LONGEST, style=DIM if value is None else ""),
            width,
        )
        for name, value in named
    )
